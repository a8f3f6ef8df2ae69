//! Tombstones: keyed hashes of purged contents, so that a pull or an import is known to bring one
//! of them back.
//!
//! The key is random and made with the first tombstone. The file is private and part of no export
//! and no push. Without the key the hashes confirm no guess of what was purged.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::fill_random;
use crate::fs::private::{self, Durable, read_small};
use crate::git::{Kind, ObjectId, hash_object};

use super::layout::Store;

/// The contents that were purged from a store.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Tombstones {
    key: String,
    contents: BTreeSet<ObjectId>,
}

impl Tombstones {
    /// Reads the tombstones of a store. A file that cannot be parsed counts as none.
    pub(crate) fn load(store: &Store) -> Result<Tombstones, Error> {
        let bytes = read_small(&store.tombstones_path(), 1 << 30)?.unwrap_or_default();
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Adds contents, durably. The empty content reveals nothing and is left out.
    pub(crate) fn add(
        mut self,
        store: &Store,
        contents: impl Iterator<Item = ObjectId>,
    ) -> Result<(), Error> {
        if self.key.is_empty() {
            let mut key = [0; 32];
            fill_random(&mut key);
            self.key = key.iter().map(|byte| format!("{byte:02x}")).collect();
        }
        let empty = hash_object(Kind::Blob, b"");
        let contents = contents.filter(|id| Some(*id) != empty);
        let hashes: Vec<ObjectId> = contents.filter_map(|id| self.hash(&id)).collect();
        self.contents.extend(hashes);
        let bytes = serde_json::to_vec(&self).expect("plain data has a JSON form");
        Ok(private::replace(&store.tombstones_path(), &bytes, Durable::Yes)?)
    }

    /// Whether a content was purged.
    pub(crate) fn cover(&self, content: &ObjectId) -> bool {
        !self.contents.is_empty()
            && self.hash(content).is_some_and(|hash| self.contents.contains(&hash))
    }

    /// Key and id have a fixed length, so that hashing one after the other is enough.
    fn hash(&self, content: &ObjectId) -> Option<ObjectId> {
        let bytes = [self.key.as_bytes(), content.as_bytes()].concat();
        hash_object(Kind::Blob, &bytes)
    }
}
