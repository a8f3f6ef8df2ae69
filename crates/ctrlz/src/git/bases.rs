//! The state that decoding of pack entries keeps per thread.

use std::cell::RefCell;
use std::collections::VecDeque;

use gix_object::Kind;

/// Calls `work` with the thread's inflate state and base cache. Initialising the inflate state
/// clears tens of kilobytes, which costs more than decoding most small objects. It is reset before
/// each use.
pub(super) fn with_state<R>(work: impl FnOnce(&mut gix_zlib::Inflate, &mut Bases) -> R) -> R {
    thread_local! {
        static STATE: RefCell<(gix_zlib::Inflate, Bases)> = RefCell::default();
    }
    STATE.with(|kept| match kept.try_borrow_mut() {
        Ok(mut kept) => {
            let (inflate, bases) = &mut *kept;
            work(inflate, bases)
        }
        // A nested call gets a state of its own.
        Err(_) => work(&mut gix_zlib::Inflate::default(), &mut Bases::default()),
    })
}

/// Cache of recently resolved deltas. Versions of a file or directory are deltas of each other and
/// are read in sequence; without the cache, each would be resolved from the start of its chain.
#[derive(Default)]
pub(super) struct Bases {
    kept: VecDeque<Base>,
    bytes: usize,
}

struct Base {
    pack: u32,
    offset: u64,
    kind: Kind,
    packed_bytes: usize,
    bytes: Vec<u8>,
}

impl Bases {
    const MAX_COUNT: usize = 64;
    const MAX_BYTES: usize = 4 << 20;

    fn find(&self, pack: u32, offset: u64) -> Option<&Base> {
        self.kept.iter().rev().find(|base| base.offset == offset && base.pack == pack)
    }

    fn keep(&mut self, base: Base) {
        self.bytes += base.bytes.len();
        self.kept.push_back(base);
        while self.kept.len() > Bases::MAX_COUNT || self.bytes > Bases::MAX_BYTES {
            self.bytes -= self.kept.pop_front().map_or(0, |base| base.bytes.len());
        }
    }
}

/// The base cache while one entry is decoded. The entry itself is never taken from the cache, so
/// that verification reads the bytes in the pack.
pub(super) struct BasesOf<'a> {
    pub(super) entry: u64,
    pub(super) bases: &'a mut Bases,
}

impl gix_pack::cache::DecodeEntry for BasesOf<'_> {
    fn put(&mut self, pack: u32, offset: u64, data: &[u8], kind: Kind, packed_bytes: usize) {
        if data.len() <= Bases::MAX_BYTES / 4 && self.bases.find(pack, offset).is_none() {
            self.bases.keep(Base { pack, offset, kind, packed_bytes, bytes: data.to_vec() });
        }
    }

    fn get(&mut self, pack: u32, offset: u64, out: &mut Vec<u8>) -> Option<(Kind, usize)> {
        let base = self.bases.find(pack, offset).filter(|base| base.offset != self.entry)?;
        out.clear();
        out.extend_from_slice(&base.bytes);
        Some((base.kind, base.packed_bytes))
    }
}
