//! What a cache holds about one entry, and the conditions under which a cache was written.

use crate::git::{ObjectId, Verdict};
use crate::scan::{Content, EntryStat, ListedEntry, SkipReason};

/// Conditions under which a cache was written. If they differ, cached decisions are invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Basis {
    /// Fingerprint of everything outside the work tree that decides which paths are captured.
    pub(crate) policy: u64,
    /// The user's index, which decides about ignored paths.
    pub(crate) index: IndexStamp,
    /// The commit of the operation that recorded exactly this listing.
    pub(crate) operation: Option<ObjectId>,
}

/// The metadata of the user's index when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexStamp {
    /// `None` if there was no index.
    pub(crate) stat: Option<EntryStat>,
    /// Whether equal metadata proves equal content: it was old enough, and the file system is
    /// trusted.
    pub(crate) settled: bool,
}

impl IndexStamp {
    /// Returns whether the index described by `now` has the same content.
    pub(crate) fn proves(&self, now: &IndexStamp) -> bool {
        self.settled && self.stat == now.stat
    }
}

/// One entry of a cached directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) stat: EntryStat,
    pub(crate) fate: Fate,
    pub(crate) verdict: Verdict,
    pub(crate) racy: bool,
}

/// Result of the last scan for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Known(ObjectId),
    /// A directory that was entered.
    Entered,
    /// An ignored path.
    LeftOut,
    /// Skipped because of its name.
    Protected,
    /// Skipped because it is a store of ctrlz.
    Store,
    /// Skipped for a reason that has to be checked by every scan.
    Doubtful,
}

impl CachedEntry<'_> {
    /// Converts the entry to its form in a listing. The reason for skipping a doubtful entry is not
    /// cached; it becomes [`SkipReason::ProtectedName`].
    pub(crate) fn listed(&self) -> ListedEntry {
        let content = match self.fate {
            Fate::Known(id) => Content::Known(id),
            Fate::Entered => Content::Directory,
            Fate::LeftOut => Content::Ignored,
            Fate::Store => Content::Skipped(SkipReason::NestedRepository),
            Fate::Protected | Fate::Doubtful => Content::Skipped(SkipReason::ProtectedName),
        };
        let CachedEntry { stat, verdict, racy, .. } = *self;
        ListedEntry { name: self.name.into(), stat, content, verdict, racy }
    }

    /// Returns whether no tree contains it: it is ignored, or a repository's own directory.
    pub(in crate::scan) fn is_unrecorded(&self) -> bool {
        matches!(self.fate, Fate::LeftOut | Fate::Protected)
    }

    pub(crate) fn id(&self) -> Option<ObjectId> {
        match self.fate {
            Fate::Known(id) => Some(id),
            Fate::Entered | Fate::LeftOut | Fate::Protected | Fate::Store | Fate::Doubtful => None,
        }
    }
}
