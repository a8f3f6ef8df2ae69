//! Sizes of buffers and packs.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

/// Packs are closed once they reach this size.
pub(crate) const PACK_BYTES: u64 = 256 << 20;

/// Sizes of buffers and packs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Compressed bytes kept in memory.
    pub(super) buffer_bytes: u64,
    /// Size at which a pack is closed. Garbage collection copies packs, so they must not be huge.
    pub(super) pack_bytes: u64,
}

impl Sizes {
    pub(super) const USUAL: Sizes = Sizes { buffer_bytes: 32 << 20, pack_bytes: PACK_BYTES };

    /// Returns the usual sizes, unless a test has set others.
    pub(super) fn now() -> Sizes {
        #[cfg(debug_assertions)]
        if let buffer_bytes @ 1.. = BUFFER_BYTES.load(Ordering::Relaxed) {
            return Sizes { buffer_bytes, pack_bytes: 8 * buffer_bytes };
        }
        Sizes::USUAL
    }
}

#[cfg(debug_assertions)]
static BUFFER_BYTES: AtomicU64 = AtomicU64::new(0);

/// Sets a small buffer size, so that tests with little data write several packs.
#[cfg(debug_assertions)]
pub fn write_small_packs(buffer_bytes: u64) {
    BUFFER_BYTES.store(buffer_bytes, Ordering::Relaxed);
}
