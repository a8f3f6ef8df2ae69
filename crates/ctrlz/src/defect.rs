//! Deliberate defects, one per invariant, so that tests can show that they would detect them.
//!
//! They exist only in builds with debug assertions and are activated by tests. In a release build
//! [`Defect::is_made`] is constantly `false`, so the compiler removes them.

use std::sync::atomic::{AtomicU8, Ordering};

/// A deliberate defect; the number is that of the invariant it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Defect {
    /// Objects are stored with bytes that do not match their id.
    Damaged = 1,
    /// Files of the store are not flushed.
    Unflushed = 2,
    /// A restored file is truncated after it was checked.
    Torn = 3,
    /// Ignored files that a restore overwrites are not stored first.
    Unsaved = 4,
    /// A restore creates a file beside the work tree.
    Escaping = 5,
    /// An interrupted restore is not recovered.
    Unrecovered = 7,
    /// A snapshot does not report the paths that it lacks.
    Silent = 8,
    /// Files of the store are readable by all users.
    Open = 9,
    /// The quota is not enforced.
    Unbounded = 10,
    /// A file is written to the user's repository.
    Meddling = 11,
}

/// Number of the invariant that is broken, or 0.
static BROKEN: AtomicU8 = AtomicU8::new(0);

/// Activates the defect that breaks the invariant with this number.
#[cfg(debug_assertions)]
pub fn break_invariant(number: u8) {
    BROKEN.store(number, Ordering::Relaxed);
}

impl Defect {
    /// Returns whether this defect is active.
    pub(crate) fn is_made(self) -> bool {
        cfg!(debug_assertions) && BROKEN.load(Ordering::Relaxed) == self as u8
    }
}
