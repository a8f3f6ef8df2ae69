//! Mistakes on purpose: one per invariant, so that tests can see whether they would notice.
//!
//! They exist only in builds with debug assertions, and are made only when a test asks for one. In a
//! release [`Defect::is_made`] is `false` when the program is compiled, and nothing is left of them.

/// What can be done wrong; the number is that of the invariant it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Defect {
    /// An object is stored with other bytes than its id says.
    Damaged = 1,
    /// Nothing of the store is flushed.
    Unflushed = 2,
    /// A restored file is cut off after it was checked.
    Torn = 3,
    /// What a restore overwrites although the rules ignore it is not stored first.
    Unsaved = 4,
    /// A restore leaves something beside the work tree.
    Escaping = 5,
    /// An interrupted restore is left as it is.
    Unrecovered = 7,
    /// What a snapshot lacks is not said.
    Silent = 8,
    /// Files of the store can be read by everybody.
    Open = 9,
    /// The quota is not looked at.
    Unbounded = 10,
    /// Something is written into the user's repository.
    Meddling = 11,
}

#[cfg(debug_assertions)]
static MADE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Breaks the invariant with this number from now on.
#[cfg(debug_assertions)]
pub fn break_invariant(number: u8) {
    MADE.store(number, std::sync::atomic::Ordering::Relaxed);
}

impl Defect {
    /// Whether this mistake is to be made.
    #[cfg(debug_assertions)]
    pub(crate) fn is_made(self) -> bool {
        MADE.load(std::sync::atomic::Ordering::Relaxed) == self as u8
    }

    /// Never.
    #[cfg(not(debug_assertions))]
    pub(crate) const fn is_made(self) -> bool {
        let _ = self;
        false
    }
}
