//! Records of the registry: which history belongs to a path.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::Landmark;
use crate::fs::private::read_small;
use crate::path::PathText;

use super::user_repo::UserRepo;

/// A history: a store and the part of it that belongs to one work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Project id, which is the store's name in the data directory.
    pub(crate) id: String,
    pub(crate) work_tree: String,
    /// Identity of the directory it was recorded for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) landmark: Option<Landmark>,
}

/// Registry entry of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) path: PathText,
    #[serde(flatten)]
    pub(super) claim: Claim,
    /// New path of the directory, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moved_to: Option<PathText>,
    /// Histories of other directories that were at this path before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<Claim>,
    /// Checksum of all other fields. A corrupt name would lead to an empty history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<u32>,
}

impl Claim {
    /// Returns whether both name the same history.
    pub(crate) fn is_of(&self, other: &Claim) -> bool {
        self.id == other.id && self.work_tree == other.work_tree
    }

    pub(crate) fn store_path(&self, data_dir: &Path) -> PathBuf {
        data_dir.join("snapshot").join(&self.id)
    }

    /// Returns whether the directory at the claim's path is the one it was recorded for, or another
    /// clone of the same project in its place.
    pub(super) fn fits(
        &self,
        here: Option<Landmark>,
        repo: Option<&UserRepo>,
    ) -> Result<bool, Error> {
        let (Some(then), Some(now)) = (self.landmark, here) else { return Ok(true) };
        if then.may_be(&now) {
            return Ok(true);
        }
        let root_commit = repo.map(UserRepo::root_commit).transpose()?.flatten();
        Ok(root_commit.is_some_and(|id| id.to_string() == self.id))
    }
}

impl Record {
    pub(super) fn root(&self) -> PathBuf {
        to_path(&self.path)
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data has a JSON form")
    }

    pub(super) fn sum(&self) -> u32 {
        crc32fast::hash(&Record { checksum: None, ..self.clone() }.to_json())
    }

    /// Returns whether the checksum matches. A record without a checksum is accepted.
    fn is_whole(&self) -> bool {
        self.checksum.is_none_or(|sum| sum == self.sum())
    }
}

pub(super) fn to_path(text: &PathText) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(&text.clone().into_bytes()))
}

/// Reads a record. Returns `None` if it is missing, damaged or not safe to use.
pub(super) fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    let bytes = read_small(path, 1 << 20)?.unwrap_or_default();
    let record: Option<Record> = serde_json::from_slice(&bytes).ok();
    // Both are used as file names.
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let are_names = |record: &Record| is_name(&record.claim.id) && is_name(&record.claim.work_tree);
    Ok(record.filter(|record| are_names(record) && record.is_whole()))
}
