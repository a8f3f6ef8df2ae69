//! Metadata of kept ignored files, so that unchanged ones are not read again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fs::FsTrust;
use crate::fs::private;
use crate::git::ObjectId;
use crate::path::PathText;
use crate::scan::EntryStat;

use crate::hold::Hold;

/// A kept file. It is not read again while its metadata is the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) path: PathText,
    pub(super) named: bool,
    pub(super) mode: u32,
    pub(super) bytes: u64,
    pub(super) mtime: (i64, u32),
    pub(super) ctime: (i64, u32),
    pub(super) inode: u64,
    /// `None` if the metadata was too recent to prove anything.
    pub(super) id: Option<ObjectId>,
}

impl Remembered {
    pub(super) fn of(
        path: &[u8],
        named: bool,
        stat: &EntryStat,
        id: Option<ObjectId>,
    ) -> Remembered {
        Remembered {
            path: PathText::from_bytes(path),
            named,
            mode: stat.mode,
            bytes: stat.bytes,
            mtime: (stat.mtime.seconds, stat.mtime.nanos),
            ctime: (stat.ctime.seconds, stat.ctime.nanos),
            inode: stat.inode,
            id,
        }
    }

    /// Returns whether the metadata except the inode is the same.
    pub(super) fn is_same(&self, now: &EntryStat) -> bool {
        let now = Remembered::of(b"", self.named, now, self.id);
        self.mode == now.mode
            && self.bytes == now.bytes
            && self.mtime == now.mtime
            && self.ctime == now.ctime
    }

    /// Returns the id of the content if the metadata proves that it is unchanged.
    pub(super) fn holds(&self, now: &EntryStat, trust: FsTrust) -> Option<ObjectId> {
        let same = self.is_same(now) && (!trust.inode || self.inode == now.inode);
        self.id.filter(|_| trust.stat && same)
    }
}

/// Returns the inodes of the ignored files that were kept beside the last snapshot.
pub(super) fn kept_inodes(hold: &Hold) -> Vec<(Vec<u8>, u64)> {
    recall(hold).into_iter().map(|(path, known)| (path, known.inode)).collect()
}

pub(super) fn recall(hold: &Hold) -> BTreeMap<Vec<u8>, Remembered> {
    let known = private::load_json(&hold.work_tree.aside_path(), 16 << 20).ok().flatten();
    let known: Vec<Remembered> = known.unwrap_or_default();
    known.into_iter().map(|known| (known.path.clone().into_bytes(), known)).collect()
}
