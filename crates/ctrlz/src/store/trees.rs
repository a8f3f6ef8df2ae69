//! Writing trees: bottom-up from a listing, or by changing a few paths of an existing tree.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::error::Error;
use crate::git::{EntryKind, Kind, ObjectId, TreeEntry, encode_tree, hash_object};
use crate::jobs::run_jobs;
use crate::path::{join, split};
use crate::scan::{Content, ListedDir, ListedEntry, Listing, TreeState, entry_kind};

use crate::pack::{Objects, PackWriter, add, attack};

type Exists<'a> = &'a (dyn Fn(&ObjectId) -> bool + Sync);

/// Writes the trees of a listing, sets the tree of every listed directory and returns the root's.
///
/// An unchanged directory keeps its tree if all of its subdirectories kept theirs.
pub(crate) fn build(
    listing: &mut Listing,
    pack: &PackWriter,
    exists: Exists<'_>,
    threads: usize,
) -> Result<ObjectId, Error> {
    let mut made: HashMap<&[u8], ObjectId> = HashMap::new();
    let mut fresh = Fresh { trees: Vec::new(), bytes: 0, pack, exists, threads };
    let mut outdated: HashSet<&[u8]> = HashSet::new();
    let mut states = vec![TreeState::Unknown; listing.dirs.len()];
    // A directory sorts before its contents, so the reverse order is bottom-up.
    for (dir, state) in listing.dirs.iter().zip(&mut states).rev() {
        let path = dir.path.as_slice();
        let kept = match dir.tree {
            TreeState::Known(tree) if !outdated.contains(path) => Some(tree),
            TreeState::Known(_) | TreeState::Unknown => None,
        };
        let tree = match kept {
            Some(tree) => tree,
            None => {
                let entries = entries_of(dir, &made);
                let shown = !entries.is_empty() || path.is_empty();
                if shown { Some(fresh.add(entries)?) } else { None }
            }
        };
        if let Some(id) = tree {
            made.insert(path, id);
        }
        *state = TreeState::Known(tree);
        if *state != dir.tree {
            outdated.insert(split(path).0);
        }
    }
    fresh.write()?;
    let root = made.get(&b""[..]).copied();
    for (dir, state) in listing.dirs.iter_mut().zip(states) {
        dir.tree = state;
    }
    root.map_or_else(|| write(Vec::new(), pack, exists), Ok)
}

/// Trees that are hashed but not stored yet. Hashing is sequential because a tree contains the ids
/// of its subtrees; compression, which takes most of the time, runs on several threads.
struct Fresh<'a> {
    trees: Vec<(ObjectId, Vec<u8>)>,
    bytes: usize,
    pack: &'a PackWriter,
    exists: Exists<'a>,
    threads: usize,
}

impl Fresh<'_> {
    /// Upper bound on the encoded trees held in memory. Bounds memory use in large work trees.
    const MAX_BYTES: usize = 4 << 20;

    fn add(&mut self, entries: Vec<TreeEntry<'_>>) -> Result<ObjectId, Error> {
        let bytes = encoded(entries);
        let id = hash_object(Kind::Tree, &bytes).ok_or_else(|| attack(Kind::Tree))?;
        self.bytes += bytes.len();
        self.trees.push((id, bytes));
        if self.bytes > Fresh::MAX_BYTES {
            self.write()?;
        }
        Ok(id)
    }

    fn write(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        let trees = std::mem::take(&mut self.trees);
        // Starting a second thread takes longer than writing a few trees.
        let threads = if trees.len() < 64 { 1 } else { self.threads };
        let written = run_jobs(threads, trees.chunks(64).collect(), |trees, _| {
            let add = |(id, tree): &(ObjectId, Vec<u8>)| {
                self.pack.add_hashed(*id, Kind::Tree, tree, self.exists)
            };
            trees.iter().try_for_each(add)
        });
        written.into_iter().collect()
    }
}

fn entries_of<'a>(dir: &'a ListedDir, made: &HashMap<&[u8], ObjectId>) -> Vec<TreeEntry<'a>> {
    let entry = |entry: &'a ListedEntry| {
        let (kind, id) = match &entry.content {
            Content::Known(id) => (entry_kind(&entry.stat)?, *id),
            Content::Directory => {
                (EntryKind::Tree, *made.get(join(&dir.path, &entry.name).as_slice())?)
            }
            Content::ToRead | Content::Ignored | Content::Skipped(_) => return None,
        };
        Some(TreeEntry { name: &entry.name, kind, id })
    };
    dir.entries.iter().filter_map(entry).collect()
}

pub(crate) fn write(
    entries: Vec<TreeEntry<'_>>,
    pack: &PackWriter,
    exists: Exists<'_>,
) -> Result<ObjectId, Error> {
    add(pack, Kind::Tree, &encoded(entries), exists)
}

fn encoded(mut entries: Vec<TreeEntry<'_>>) -> Vec<u8> {
    entries.sort_unstable_by(TreeEntry::order);
    encode_tree(entries.into_iter())
}

/// New entry of a path, or `None` to remove the path.
pub(crate) type Change = Option<(EntryKind, ObjectId)>;

/// Applies `changes` to the tree `root`, writes the new trees and returns the id of the new root.
pub(crate) fn edit(
    objects: &Objects,
    pack: &PackWriter,
    root: ObjectId,
    changes: &BTreeMap<Vec<u8>, Change>,
) -> Result<ObjectId, Error> {
    let editor = Editor { objects, pack, exists: &|id| objects.holds(id) };
    let changes: Vec<(&[u8], &Change)> =
        changes.iter().map(|(path, change)| (path.as_slice(), change)).collect();
    let made = editor.level(Some(root), &changes)?;
    made.map_or_else(|| write(Vec::new(), pack, editor.exists), Ok)
}

struct Editor<'a> {
    objects: &'a Objects,
    pack: &'a PackWriter,
    exists: Exists<'a>,
}

impl Editor<'_> {
    /// Applies changes to one tree and those below it. Returns `None` if it becomes empty.
    fn level(
        &self,
        tree: Option<ObjectId>,
        changes: &[(&[u8], &Change)],
    ) -> Result<Option<ObjectId>, Error> {
        let mut entries: BTreeMap<Vec<u8>, (EntryKind, ObjectId)> = BTreeMap::new();
        if let Some(id) = tree {
            let tree = self.objects.tree(&id)?;
            entries.extend(tree.iter().map(|entry| (entry.name.to_vec(), (entry.kind, entry.id))));
        }
        let mut below: BTreeMap<&[u8], Vec<(&[u8], &Change)>> = BTreeMap::new();
        for (path, change) in changes {
            match path.iter().position(|byte| *byte == b'/') {
                Some(at) => below.entry(&path[..at]).or_default().push((&path[at + 1..], change)),
                None => match change {
                    Some(entry) => drop(entries.insert(path.to_vec(), *entry)),
                    None => drop(entries.remove(*path)),
                },
            }
        }
        for (name, changes) in below {
            let old = entries.get(name).filter(|(kind, _)| kind.is_tree()).map(|(_, id)| *id);
            match self.level(old, &changes)? {
                Some(id) => drop(entries.insert(name.to_vec(), (EntryKind::Tree, id))),
                None if old.is_some() => drop(entries.remove(name)),
                // Nothing was there, or a file has just replaced the directory.
                None => (),
            }
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter();
        let entries = entries.map(|(name, (kind, id))| TreeEntry { name, kind: *kind, id: *id });
        write(entries.collect(), self.pack, self.exists).map(Some)
    }
}
