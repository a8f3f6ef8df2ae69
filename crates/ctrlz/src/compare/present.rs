//! Present state of a work tree, from the listing of its last scan.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::fs::{FileKind, MODE_BITS};
use crate::git::ObjectId;
use crate::path::{join, split};
use crate::scan::{Content, EntryStat, ListedDir, Listing, entry_kind};

use super::Entry;

/// State of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NowAt {
    Nothing,
    File {
        stat: EntryStat,
        entry: Entry,
        racy: bool,
    },
    Dir,
    /// A file that no snapshot holds, with the reason.
    Unsaved(String),
}

/// Extent of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    Part,
}

/// State of the work tree at its last scan.
pub(crate) struct Now<'a> {
    pub(crate) listing: &'a Listing,
    /// Files that were captured although the ignore rules exclude them.
    pub(crate) forced: BTreeMap<Vec<u8>, (EntryStat, Entry)>,
    /// Directories below ones that the scan did not enter.
    pub(crate) dirs: BTreeSet<Vec<u8>>,
}

impl<'a> Now<'a> {
    pub(crate) fn of(listing: &'a Listing) -> Now<'a> {
        Now { listing, forced: BTreeMap::new(), dirs: BTreeSet::new() }
    }
}

impl Now<'_> {
    /// Returns the paths of all captured files by their content.
    pub(crate) fn by_content(&self) -> HashMap<ObjectId, Vec<Vec<u8>>> {
        let mut found: HashMap<ObjectId, Vec<Vec<u8>>> = HashMap::new();
        for dir in &self.listing.dirs {
            for entry in &dir.entries {
                if let Content::Known(id) = entry.content {
                    found.entry(id).or_default().push(join(&dir.path, &entry.name));
                }
            }
        }
        found
    }

    /// Returns the state of a path.
    pub(crate) fn at(&self, path: &[u8]) -> NowAt {
        if let Some((stat, entry)) = self.forced.get(path) {
            return NowAt::File { stat: *stat, entry: *entry, racy: true };
        }
        if path.is_empty() || self.dirs.contains(path) {
            return NowAt::Dir;
        }
        let (parent, name) = split(path);
        let Some(dir) = self.dir(parent) else { return NowAt::Nothing };
        let Ok(at) = dir.entries.binary_search_by(|entry| (*entry.name).cmp(name)) else {
            return NowAt::Nothing;
        };
        let entry = &dir.entries[at];
        match &entry.content {
            Content::Known(id) => match entry_kind(&entry.stat) {
                Some(kind) => NowAt::File {
                    stat: entry.stat,
                    entry: Entry { kind, id: *id },
                    racy: entry.racy,
                },
                None => NowAt::Unsaved("an unknown type".into()),
            },
            Content::Directory => NowAt::Dir,
            Content::Ignored if entry.stat.kind == FileKind::Dir => NowAt::Dir,
            Content::Ignored => NowAt::Unsaved("ignored".into()),
            Content::Skipped(reason) => NowAt::Unsaved(reason.to_string()),
            Content::ToRead => NowAt::Unsaved("not read".into()),
        }
    }

    /// Returns whether `path` is missing from a directory that was listed.
    pub(crate) fn lacks(&self, path: &[u8], extent: Extent) -> bool {
        let (parent, name) = split(path);
        match self.dir(parent) {
            Some(dir) => dir.entries.binary_search_by(|entry| (*entry.name).cmp(name)).is_err(),
            None if parent.is_empty() || extent == Extent::Part => false,
            None => self.lacks(parent, extent),
        }
    }

    pub(crate) fn dir(&self, path: &[u8]) -> Option<&ListedDir> {
        let dirs = &self.listing.dirs;
        dirs.binary_search_by(|dir| dir.path.as_slice().cmp(path)).ok().map(|at| &dirs[at])
    }

    /// Returns the paths in a directory, each with whether a snapshot holds it.
    pub(crate) fn entries_of(&self, dir: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let entries = self.dir(dir).into_iter().flat_map(|dir| &dir.entries);
        let is_recorded = |content: &Content| match content {
            Content::Known(_) | Content::Directory | Content::ToRead => true,
            Content::Ignored | Content::Skipped(_) => false,
        };
        entries.map(|entry| (join(dir, &entry.name), is_recorded(&entry.content))).collect()
    }

    pub(crate) fn dir_mode(&self, path: &[u8]) -> Option<u32> {
        self.dir(path).map(|dir| dir.stat.mode & MODE_BITS)
    }
}
