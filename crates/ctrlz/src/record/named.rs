//! Snapshots of named paths: everything else is taken from the previous snapshot.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::fs::{Dir, FileKind};
use crate::git::Kind;
use crate::log::Operation;
use crate::pack::PackWriter;
use crate::path::{NotATreePath, TreePath, dirs_above, join, split};
use crate::scan::{
    Keep, ListInput, Listing, Progress, ReadOutcome, SkipReason, StatCache, list, read_entry,
    read_listing, rule_text, rules_above,
};
use crate::store::edit_tree;

use super::draft::{Draft, Recorded};
use super::edit::Edit;
use super::ignored::Kept;
use super::keep::StoreKeep;
use super::moved::Renames;
use super::quota::Probe;
use super::request::{Cause, TrackOptions};
use crate::hold::Hold;

impl Hold {
    /// Returns whether the ignore rules above the named directories are those of the last snapshot.
    ///
    /// Otherwise the rules in the new snapshot would not be those of the scan, and an ignored file
    /// could be taken for an absent one.
    pub(super) fn rules_hold(
        &self,
        options: &TrackOptions,
        last: &Operation,
    ) -> Result<bool, Error> {
        let outer = self.outer_rules()?;
        let mut then = last.meta.rules.clone();
        then.hidden.clear();
        if outer != then {
            return Ok(false);
        }
        for path in &options.paths {
            if look(&self.root, path.as_bytes())? != Some(FileKind::Dir) {
                continue;
            }
            let dirs = dirs_above(path.as_bytes()).chain([&b""[..]]);
            for dir in dirs {
                let file = TreePath::from_scan(join(dir, b".gitignore"));
                let then = crate::compare::find(&self.store.objects, &last.snapshot, &file)?;
                let now = rule_text(&self.root, dir);
                let now = now.and_then(|text| crate::git::hash_object(Kind::Blob, &text));
                if then.filter(|entry| entry.kind.is_file()).map(|entry| entry.id) != now {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads one named file if its new content fits into the quota.
    fn capture_named(
        &self,
        path: &[u8],
        kind: FileKind,
        keep: &StoreKeep<'_>,
        cause: &Cause,
    ) -> Result<ReadOutcome, Error> {
        let changing = Listing { changed: true, ..Listing::default() };
        let (parent, name) = split(path);
        let stat = self.root.open_below(parent)?.stat(name)?;
        let bytes = stat.map_or(0, |stat| stat.bytes);
        let room = self.room_for(cause, &changing)?;
        if room.is_none_or(|room| room.fits(keep, bytes)) {
            return capture(&self.root, path, kind, keep);
        }
        let probe = Probe { keep, new: Default::default() };
        let outcome = capture(&self.root, path, kind, &probe)?;
        let new = probe.new.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(if new.is_empty() {
            outcome
        } else {
            ReadOutcome::Skip(SkipReason::OverQuota { bytes })
        })
    }

    /// Rescans the named paths, and takes all others from the previous snapshot.
    pub(super) fn record_named(
        &self,
        options: &TrackOptions,
        cause: &Cause,
        last: &Operation,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let store = &self.store;
        let pack = PackWriter::new(&store.objects_dir());
        let log = Some(&self.work_tree);
        let keep = StoreKeep { log, rehash: options.rehash, ..StoreKeep::new(store, &pack) };
        let cache = StatCache::default();
        let index = match &self.context.repo {
            Some(repo) => repo.index()?.0,
            None => None,
        };
        let input = self.context.list_input(store, &self.root, &cache)?;
        let input = ListInput { index: index.as_ref(), rehash: options.rehash, ..input };
        let mut edit = Edit { changes: BTreeMap::new(), meta: last.meta.clone(), read: 0 };
        let mut listing = Listing::default();
        for path in &options.paths {
            if self.is_forbidden(&input.forbidden, path.as_bytes()) {
                let why = "belongs to a repository";
                return Err(NotATreePath { path: path.as_bytes().to_vec(), why }.into());
            }
            edit.forget(path.as_bytes());
            match look(&self.root, path.as_bytes())? {
                Some(FileKind::Dir) => {
                    let rules = rules_above(&self.root, &input.rules, path.as_bytes());
                    let below = ListInput { rules, start: path.as_bytes(), ..input.clone() };
                    let mut part = list(&self.root, &below, &keep, progress)?;
                    edit.read += self.check_budget(&part, progress)?;
                    if let Some(room) = self.room_for(cause, &part)? {
                        room.fit(self, &mut part, &keep, &input, progress)?;
                    }
                    read_listing(&self.root, &mut part, &keep, input.threads, progress)?;
                    edit.take_listing(&part);
                    listing.dirs.append(&mut part.dirs);
                }
                Some(kind) => {
                    let outcome = self.capture_named(path.as_bytes(), kind, &keep, cause)?;
                    edit.take_file(path.as_bytes(), outcome);
                }
                None => (),
            }
        }
        let tree = edit_tree(&store.objects, &pack, last.snapshot, &edit.changes)?;
        edit.meta.sort();
        let (renames, kept) = (Renames::default(), Kept::default());
        let draft = Draft { tree, meta: edit.meta, renames, kept };
        let concluded = self.conclude(cause, Some(last), draft, pack)?;
        let snapshot = concluded.snapshot(&listing, edit.read, 0);
        Ok(Recorded { snapshot, operation: concluded.operation, listing })
    }
}

/// Returns the kind of the file at `path`, without following links.
pub(crate) fn look(root: &Dir, path: &[u8]) -> Result<Option<FileKind>, Error> {
    let (parent, name) = split(path);
    match root.open_below(parent) {
        Ok(dir) => Ok(dir.stat(name)?.map(|stat| stat.kind)),
        // Its directory does not exist.
        Err(error)
            if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory]
                .contains(&error.kind())
                || rustix::io::Errno::from_io_error(&error.source)
                    == Some(rustix::io::Errno::LOOP) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads one file or link, regardless of its size and the rules.
pub(crate) fn capture(
    root: &Dir,
    path: &[u8],
    kind: FileKind,
    keep: &dyn Keep,
) -> Result<ReadOutcome, Error> {
    let (parent, name) = split(path);
    let dir = root.open_below(parent)?;
    read_entry(&dir, name, kind, keep)
}
