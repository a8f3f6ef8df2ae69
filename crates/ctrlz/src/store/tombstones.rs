//! Tombstones: keyed hashes of purged contents, so that no pull or import brings one back
//! unnoticed.
//!
//! The key is random and created with the first tombstone. The file is private and is never
//! exported or pushed. Without the key the hashes cannot be used to guess purged contents.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::fill_random;
use crate::fs::private::{self, Durable};
use crate::git::{Kind, ObjectId, hash_object};

use super::layout::Store;

/// Contents that were purged from a store.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Tombstones {
    key: String,
    contents: BTreeSet<ObjectId>,
}

impl Tombstones {
    /// Reads the tombstones of a store. A file that cannot be parsed counts as empty.
    pub(crate) fn load(store: &Store) -> Result<Tombstones, Error> {
        Ok(private::load_json(&store.tombstones_path(), 1 << 30)?.unwrap_or_default())
    }

    /// Adds contents, durably. The empty content is left out, because it reveals nothing.
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
        Ok(private::save_json(&store.tombstones_path(), &self, Durable::Yes)?)
    }

    /// Returns whether a content was purged.
    pub(crate) fn cover(&self, content: &ObjectId) -> bool {
        !self.contents.is_empty()
            && self.hash(content).is_some_and(|hash| self.contents.contains(&hash))
    }

    /// Returns the keyed hash of a content id. Key and id have fixed lengths, so concatenation is
    /// safe.
    fn hash(&self, content: &ObjectId) -> Option<ObjectId> {
        let bytes = [self.key.as_bytes(), content.as_bytes()].concat();
        hash_object(Kind::Blob, &bytes)
    }
}
