//! Data that a git tree cannot hold: coverage, exact permissions, empty directories, ignore rules.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::fs::{FileKind, MODE_BITS};
use crate::git::ObjectId;
use crate::path::{PathText, TreePath, split};
use crate::scan::{Content, Listing, Skipped};

use super::rules::OuterRules;

/// Data of a snapshot besides its tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Paths that were not captured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skipped: Vec<Skipped>,
    /// Most frequent permissions, so that only the others have to be listed.
    #[serde(default)]
    pub(crate) common: CommonModes,
    /// Permissions of the files and directories that differ from the common ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) modes: Vec<(PathText, u32)>,
    /// Whether the permissions include the set-user-ID, set-group-ID and sticky bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) special_bits: bool,
    /// Directories that contain nothing a tree would show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) empty_dirs: Vec<TreePath>,
    /// Ignore rules that are not files of the snapshot.
    #[serde(default)]
    pub(crate) rules: OuterRules,
    /// Commit of the ignored snapshot, if small ignored files are kept.
    #[serde(rename = "companion", default, skip_serializing_if = "Option::is_none")]
    pub(crate) ignored_snapshot: Option<ObjectId>,
}

/// Most frequent permissions of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommonModes {
    pub(crate) file: u32,
    pub(crate) executable: u32,
    pub(crate) dir: u32,
}

impl Default for CommonModes {
    fn default() -> CommonModes {
        CommonModes { file: 0o644, executable: 0o755, dir: 0o755 }
    }
}

impl Meta {
    /// Returns the data of a listing besides its tree.
    pub(crate) fn of_listing(listing: &Listing, rules: &OuterRules) -> Meta {
        Meta::of_listing_with(listing, rules, common_modes(listing))
    }

    /// Does the same with given common permissions.
    pub(crate) fn of_listing_with(
        listing: &Listing,
        rules: &OuterRules,
        common: CommonModes,
    ) -> Meta {
        let mut modes = Vec::new();
        let mut dirs_with_files: BTreeSet<&[u8]> = BTreeSet::new();
        for dir in &listing.dirs {
            if !dir.path.is_empty() && dir.stat.mode & MODE_BITS != common.dir {
                modes.push((PathText::from_bytes(&dir.path), dir.stat.mode & MODE_BITS));
            }
            let mut known =
                dir.entries.iter().filter(|entry| matches!(entry.content, Content::Known(_)));
            if known.clone().next().is_some() {
                mark_with_parents(&mut dirs_with_files, &dir.path);
            }
            for entry in &mut known {
                let mode = entry.stat.mode & MODE_BITS;
                if entry.stat.kind == FileKind::File && mode != common.of_file(mode) {
                    let path = crate::path::join(&dir.path, &entry.name);
                    modes.push((PathText::from_bytes(&path), mode));
                }
            }
        }
        modes.sort_by_cached_key(|(path, _)| path.clone().into_bytes());
        let empty_dirs = empty_dirs(listing, &dirs_with_files);
        let hidden = listing
            .hidden_rules
            .iter()
            .map(|(path, text)| (PathText::from_bytes(path), PathText::from_bytes(text)))
            .collect();
        let rules = rules.with_hidden(hidden);
        Meta {
            skipped: listing.skipped.clone(),
            common,
            modes,
            special_bits: true,
            empty_dirs,
            rules,
            ignored_snapshot: None,
        }
    }

    /// Restores the order of the lists after additions.
    pub(crate) fn sort(&mut self) {
        self.skipped.sort_unstable();
        self.modes.sort_by_cached_key(|(path, _)| path.clone().into_bytes());
        self.empty_dirs.sort_unstable();
    }

    /// Returns whether both are equivalent. The size of a skipped file and the text of a read error
    /// are ignored: otherwise a growing log file would make every snapshot a new one.
    pub(crate) fn says_the_same_as(&self, other: &Meta) -> bool {
        let alike = |one: &Skipped, other: &Skipped| {
            one.path == other.path
                && std::mem::discriminant(&one.reason) == std::mem::discriminant(&other.reason)
        };
        self.skipped.len() == other.skipped.len()
            && self.skipped.iter().zip(&other.skipped).all(|(one, other)| alike(one, other))
            && self.common == other.common
            && self.modes == other.modes
            && self.empty_dirs == other.empty_dirs
            && self.rules == other.rules
            && self.ignored_snapshot == other.ignored_snapshot
    }

    /// Returns the special bits of `present` if this record does not include them, else 0.
    pub(crate) fn unrecorded_bits(&self, present: u32) -> u32 {
        if self.special_bits { 0 } else { present & 0o7000 }
    }

    /// Returns the files and directories whose listed permissions differ between two records.
    pub(crate) fn other_modes(&self, other: &Meta) -> Vec<TreePath> {
        let (one, two) = (self.mode_map(), other.mode_map());
        let listed: BTreeSet<&Vec<u8>> = one.keys().chain(two.keys()).collect();
        let differ = listed.into_iter().filter(|path| one.get(*path) != two.get(*path));
        differ.filter_map(|path| TreePath::parse(path).ok()).collect()
    }

    /// Returns the listed permissions by path.
    pub(crate) fn mode_map(&self) -> HashMap<Vec<u8>, u32> {
        self.modes.iter().map(|(path, mode)| (path.clone().into_bytes(), *mode)).collect()
    }
}

impl CommonModes {
    pub(crate) fn of_file(&self, mode: u32) -> u32 {
        if mode & 0o100 != 0 { self.executable } else { self.file }
    }
}

fn mark_with_parents<'a>(marked: &mut BTreeSet<&'a [u8]>, dir: &'a [u8]) {
    let mut dir = dir;
    while marked.insert(dir) && !dir.is_empty() {
        dir = split(dir).0;
    }
}

/// Returns the deepest directories without captured files. Their parents are implied.
fn empty_dirs(listing: &Listing, with_files: &BTreeSet<&[u8]>) -> Vec<TreePath> {
    let mut parents: BTreeSet<&[u8]> = BTreeSet::new();
    let mut empty: Vec<&[u8]> = Vec::new();
    for dir in listing.dirs.iter().rev() {
        if dir.path.is_empty() || with_files.contains(dir.path.as_slice()) {
            continue;
        }
        if !parents.contains(dir.path.as_slice()) {
            empty.push(&dir.path);
        }
        mark_with_parents(&mut parents, split(&dir.path).0);
    }
    empty.reverse();
    empty.into_iter().map(|path| TreePath::from_scan(path.to_vec())).collect()
}

/// Number of distinct permission values.
const MODES: usize = MODE_BITS as usize + 1;

fn common_modes(listing: &Listing) -> CommonModes {
    // Counted by permissions, which include the executable bit.
    let (mut files, mut dirs) = ([0_usize; MODES], [0_usize; MODES]);
    for dir in &listing.dirs {
        dirs[(dir.stat.mode & MODE_BITS) as usize] += 1;
        for entry in &dir.entries {
            if entry.stat.kind == FileKind::File && matches!(entry.content, Content::Known(_)) {
                files[(entry.stat.mode & MODE_BITS) as usize] += 1;
            }
        }
    }
    let default = CommonModes::default();
    let most = |counts: &[usize], usual: u32, of_kind: fn(u32) -> bool| {
        let modes = (0..MODES as u32).filter(|mode| of_kind(*mode) && counts[*mode as usize] > 0);
        // Ties go to the usual value, so that a tree of two files does not alternate between them.
        modes.max_by_key(|mode| (counts[*mode as usize], *mode == usual)).unwrap_or(usual)
    };
    CommonModes {
        file: most(&files, default.file, |mode| mode & 0o100 == 0),
        executable: most(&files, default.executable, |mode| mode & 0o100 != 0),
        dir: most(&dirs, default.dir, |_| true),
    }
}
