//! Snapshots of named paths: everything else is taken from the previous snapshot.

use crate::compare::find;
use crate::error::Error;
use crate::fs::FileKind;
use crate::git::{Kind, hash_object};
use crate::hold::Hold;
use crate::log::Operation;
use crate::pack::PackWriter;
use crate::path::{NotATreePath, TreePath, dirs_above, is_within, join, split};
use crate::scan::{
    ListInput, Listing, ReadOutcome, SkipReason, StatCache, list, rule_text, rules_above,
};
use crate::store::edit_tree;

use super::draft::{Draft, Recorded};
use super::edit::Edit;
use super::file::{capture, look};
use super::kept::Kept;
use super::moved::Renames;
use super::quota::Probe;
use super::recording::{Recording, Scanned};

impl Hold {
    /// Returns whether the ignore rules from outside the work tree are those of a snapshot.
    pub(super) fn outer_rules_are_of(&self, last: &Operation) -> Result<bool, Error> {
        Ok(last.meta.rules.with_hidden(Vec::new()) == self.outer_rules()?)
    }

    /// Returns whether the ignore rules above the named directories are those of the last snapshot.
    ///
    /// Otherwise the rules in the new snapshot would not be those of the scan, and an ignored file
    /// could be taken for an absent one.
    pub(super) fn rules_hold(&self, paths: &[TreePath], last: &Operation) -> Result<bool, Error> {
        if !self.outer_rules_are_of(last)? {
            return Ok(false);
        }
        for path in paths {
            if look(&self.root, path.as_bytes())? != Some(FileKind::Dir) {
                continue;
            }
            let dirs = dirs_above(path.as_bytes()).chain([&b""[..]]);
            for dir in dirs {
                let file = TreePath::from_scan(join(dir, b".gitignore"));
                let then = find(&self.store.objects, &last.snapshot, &file)?;
                let now = rule_text(&self.root, dir);
                let now = now.and_then(|text| hash_object(Kind::Blob, &text));
                if then.filter(|entry| entry.kind.is_file()).map(|entry| entry.id) != now {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl Recording<'_> {
    /// Rescans the named paths, and takes all others from the previous snapshot.
    pub(super) fn named(self, paths: &[TreePath], last: &Operation) -> Result<Recorded, Error> {
        let Hold { context, store, root, .. } = self.hold;
        let recording = Recording { pack: PackWriter::new(&store.objects_dir()), ..self };
        let cache = StatCache::default();
        let index = match &context.repo {
            Some(repo) => repo.index()?.0,
            None => None,
        };
        let input = context.list_input(store, root, &cache)?;
        let input = ListInput { index: index.as_ref(), rehash: recording.rehash, ..input };
        let mut edit = Edit::of(last);
        let mut listing = Listing::default();
        for path in paths {
            let bytes = path.as_bytes();
            if recording.hold.is_forbidden(&input.forbidden, bytes) {
                let why = "belongs to a repository";
                return Err(NotATreePath { path: bytes.to_vec(), why }.into());
            }
            edit.forget(|known| is_within(known, bytes));
            edit.changes.insert(bytes.to_vec(), None);
            match look(root, bytes)? {
                Some(FileKind::Dir) => {
                    let mut part = recording.read(recording.list_dir(&input, bytes)?)?;
                    edit.read += part.read;
                    edit.take_listing(&part.listing);
                    listing.dirs.append(&mut part.listing.dirs);
                }
                Some(kind) => edit.take_file(bytes, recording.capture_named(bytes, kind)?),
                None => (),
            }
        }
        let tree = edit_tree(&store.objects, &recording.pack, last.snapshot, &edit.changes)?;
        edit.meta.sort();
        let (renames, kept) = (Renames::default(), Kept::default());
        let draft = Draft { tree, meta: edit.meta, renames, kept };
        let scanned = Scanned { listing, read: edit.read, room: None };
        recording.finish(Some(last), draft, scanned)
    }

    /// Lists a directory by the rules of a full scan.
    fn list_dir(&self, input: &ListInput<'_>, path: &[u8]) -> Result<Listing, Error> {
        let root = &self.hold.root;
        let rules = rules_above(root, &input.rules, path);
        let below = ListInput { rules, start: path, ..input.clone() };
        list(root, &below, &self.keep(), self.progress)
    }

    /// Reads one named file if its new content fits into the quota.
    fn capture_named(&self, path: &[u8], kind: FileKind) -> Result<ReadOutcome, Error> {
        let (root, keep) = (&self.hold.root, self.keep());
        let changing = Listing { changed: true, ..Listing::default() };
        let (parent, name) = split(path);
        let stat = root.open_below(parent)?.stat(name)?;
        let bytes = stat.map_or(0, |stat| stat.bytes);
        let room = self.hold.room_for(self.cause, &changing)?;
        if room.is_none_or(|room| room.fits(&keep, bytes)) {
            return capture(root, path, kind, &keep);
        }
        let probe = Probe { keep: &keep, new: Default::default() };
        let outcome = capture(root, path, kind, &probe)?;
        let new = probe.new.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(if new.is_empty() {
            outcome
        } else {
            ReadOutcome::Skip(SkipReason::OverQuota { bytes })
        })
    }
}
