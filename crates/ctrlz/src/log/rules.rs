//! Ignore rules from outside a snapshot's tree, and the private ones among them.
//!
//! The user's global excludes and `.git/info/exclude` never leave the machine. An operation records
//! only a hash of them, which push and export include. The texts are files of the store that are
//! not git objects. The hash is salted with random bytes of the store, so that short lists cannot
//! be guessed from it.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::fill_random;
use crate::fs::private::{self, Durable, read_small};
use crate::git::{Kind, ObjectId, Rules, hash_object};
use crate::path::PathText;

use crate::store::Store;

/// Placeholder for private lists in [`OuterRules::lists`]. Versions without support for private
/// lists then regard every path as ignored, and remove nothing that a snapshot lacks.
const STAND_IN: &str = "*\n";
/// Text with which git creates `.git/info/exclude`.
const TEMPLATE: &str = "\
# git ls-files --others --exclude-from=.git/info/exclude
# Lines that start with '#' are comments.
# For a project mostly in C, the following would be a good set of
# exclude patterns (uncomment them if you want to use them):
# *.[oa]
# *~
";
const SALT_BYTES: usize = 32;

/// Ignore rules from outside the snapshot's tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OuterRules {
    /// Private lists, which are weaker than all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    private: Option<PrivateLists>,
    /// Texts of ignore files, from the weakest to the strongest. The first one is [`STAND_IN`] if
    /// there are private lists. Earlier versions recorded the texts of private lists here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lists: Vec<PathText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    include: Vec<String>,
    /// Ignore files that are themselves ignored, with their text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hidden: Vec<(PathText, PathText)>,
}

/// Ignore lists of the user. Equal hashes mean equal lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "ObjectId", into = "ObjectId")]
struct PrivateLists {
    hash: ObjectId,
    /// Texts, from the weakest to the strongest. Empty if only the hash was read.
    texts: Vec<PathText>,
}

impl PartialEq for PrivateLists {
    fn eq(&self, other: &PrivateLists) -> bool {
        self.hash == other.hash
    }
}

impl Eq for PrivateLists {}

impl From<ObjectId> for PrivateLists {
    fn from(hash: ObjectId) -> PrivateLists {
        PrivateLists { hash, texts: Vec::new() }
    }
}

impl From<PrivateLists> for ObjectId {
    fn from(lists: PrivateLists) -> ObjectId {
        lists.hash
    }
}

/// Ignore lists of a work tree that are not files of it.
pub(crate) struct Lists {
    /// The user's own lists, from the weakest to the strongest.
    pub(crate) private: Vec<Vec<u8>>,
    /// The store's list, which is stronger.
    pub(crate) store: Vec<u8>,
}

impl OuterRules {
    /// Returns the rules of these lists and patterns.
    pub(crate) fn new(
        store: &Store,
        lists: &Lists,
        exclude: &[String],
        include: &[String],
    ) -> OuterRules {
        let texts = |lists: &[Vec<u8>]| -> Vec<PathText> {
            let effective = lists.iter().filter(|list| has_rules(list));
            effective.map(|list| PathText::from_bytes(list)).collect()
        };
        let private = Some(texts(&lists.private)).filter(|texts| !texts.is_empty());
        let private = private.map(|texts| PrivateLists { hash: store.hash_lists(&texts), texts });
        let stand_in = private.iter().map(|_| PathText::from_bytes(STAND_IN.as_bytes()));
        OuterRules {
            lists: stand_in.chain(texts(std::slice::from_ref(&lists.store))).collect(),
            private,
            exclude: exclude.to_vec(),
            include: include.to_vec(),
            hidden: Vec::new(),
        }
    }

    /// Returns the same rules with the given ignored ignore files.
    pub(crate) fn with_hidden(&self, hidden: Vec<(PathText, PathText)>) -> OuterRules {
        OuterRules { hidden, ..self.clone() }
    }

    /// Returns the rules that apply at the top of the work tree. Private lists are left out if
    /// `store` does not have them.
    pub(crate) fn base(&self, store: &Store) -> Arc<Rules> {
        let private = self.private_texts(store).unwrap_or_default();
        let visible = self.lists.iter().skip(self.private.iter().count()).cloned();
        let lists = private.into_iter().chain(visible).map(PathText::into_bytes);
        let lists: Vec<Vec<u8>> = lists.collect();
        let lists: Vec<&[u8]> = lists.iter().map(Vec::as_slice).collect();
        Rules::base(&lists, &self.exclude, &self.include)
    }

    /// Returns whether `store` has every list.
    pub(crate) fn are_known(&self, store: &Store) -> bool {
        self.private.is_none() || self.private_texts(store).is_some()
    }

    /// Returns whether these rules, recorded by an earlier version, contain texts of private lists.
    /// `own` is the store's list. Git's template contains no private data.
    pub(crate) fn holds_texts(&self, own: &[u8]) -> bool {
        let is_public = |list: &PathText| {
            let list = list.clone().into_bytes();
            list == own || list == TEMPLATE.as_bytes()
        };
        self.private.is_none() && !self.lists.iter().all(is_public)
    }

    /// Replaces texts of private lists that an earlier version recorded by their hash.
    pub(crate) fn withhold_texts(&mut self, store: &Store) -> Result<(), Error> {
        let own = store.exclude()?;
        let lists = std::mem::take(&mut self.lists).into_iter().map(PathText::into_bytes);
        let (own, private) = lists.partition::<Vec<_>, _>(|list| *list == own);
        let lists = Lists { private, store: own.into_iter().next().unwrap_or_default() };
        let new = OuterRules::new(store, &lists, &self.exclude, &self.include);
        *self = new.with_hidden(std::mem::take(&mut self.hidden));
        Ok(())
    }

    fn private_texts(&self, store: &Store) -> Option<Vec<PathText>> {
        let private = self.private.as_ref()?;
        if private.texts.is_empty() {
            store.private_lists(&private.hash)
        } else {
            Some(private.texts.clone())
        }
    }
}

/// Returns whether a list has more than comments and blank lines, unlike git's template.
fn has_rules(list: &[u8]) -> bool {
    let is_rule = |line: &[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
    list.split(|byte| *byte == b'\n').any(is_rule)
}

impl Store {
    /// Stores the private lists of an operation before it is recorded, unless they are stored.
    pub(crate) fn keep_private_lists(&self, rules: &OuterRules) -> Result<(), Error> {
        let Some(PrivateLists { hash, texts }) = &rules.private else { return Ok(()) };
        let path = self.private_lists_path(hash);
        if texts.is_empty() || path.exists() {
            return Ok(());
        }
        Ok(private::save_json(&path, texts, Durable::Yes)?)
    }

    /// Returns the private lists with this hash, or `None` if another machine recorded them.
    fn private_lists(&self, hash: &ObjectId) -> Option<Vec<PathText>> {
        const MAX_BYTES: u64 = 64 << 20;
        private::load_json(&self.private_lists_path(hash), MAX_BYTES).ok()?
    }

    fn private_lists_path(&self, hash: &ObjectId) -> PathBuf {
        self.path().join("ctrlz").join(format!("rules_{hash}"))
    }

    fn hash_lists(&self, texts: &[PathText]) -> ObjectId {
        let mut bytes = self.rules_salt();
        bytes.extend(serde_json::to_vec(texts).expect("plain data has a JSON form"));
        // Without the salt no collision can be prepared.
        hash_object(Kind::Blob, &bytes).unwrap_or(ObjectId::NULL)
    }

    /// Returns the store's random salt. A different salt only makes equal lists look different.
    fn rules_salt(&self) -> Vec<u8> {
        let path = self.path().join("ctrlz").join("rules_salt");
        let known = read_small(&path, SALT_BYTES as u64).ok().flatten();
        if let Some(salt) = known.filter(|salt| salt.len() == SALT_BYTES) {
            return salt;
        }
        let mut salt = vec![0; SALT_BYTES];
        fill_random(&mut salt);
        // Best effort: without the file, the next call creates another salt.
        drop(private::replace(&path, &salt, Durable::No));
        salt
    }
}
