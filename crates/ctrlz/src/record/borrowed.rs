//! Blobs that are borrowed from the user's repository, by the ids in its index.
//!
//! An index with correct stat data and wrong ids would put wrong content into a snapshot, and a
//! damaged object would leave it without content. A random sample of the files and their objects is
//! checked before the first snapshot, and the rest when the blobs are copied. After a mismatch the
//! index is never used again for this work tree.

use std::collections::HashSet;

use crate::compare::{Extent, Trees};
use crate::error::Error;
use crate::fs::{Dir, fill_random};
use crate::git::{ObjectId, Rules};
use crate::hold::{Context, Hold};
use crate::jobs::run_jobs;
use crate::log::{Details, Operation, WorkTree, WrongFile, WrongIndex, read_operation};
use crate::path::{PathText, TreePath, escape, join, split};
use crate::scan::{
    Content, EntryStat, Listing, Progress, ReadOutcome, Seeding, StatCache, filter_patterns,
    read_entry,
};
use crate::store::{BorrowSource, Borrowed, Copied, CopyRound, Limits};

use super::keep::HashOnly;
use super::recording::Recording;
use super::request::Cause;

/// The minimum number of files that are compared at the first snapshot.
const MIN_SAMPLE: usize = 64;
/// One of this many files is compared, so that borrowing is still faster than reading.
const ONE_OF: usize = 100;
/// The number of files per job.
const FILES_PER_JOB: usize = 64;

/// A file with the blob id that the user's index has for it.
#[derive(Clone, Debug)]
pub(crate) struct IndexedFile {
    path: Vec<u8>,
    stat: EntryStat,
    id: ObjectId,
}

impl IndexedFile {
    /// Returns whether `source` has no intact object for the file, or the file has unchanged
    /// metadata but other content.
    fn is_wrong(&self, root: &Dir, source: Option<&BorrowSource>) -> bool {
        if source.is_some_and(|source| !source.is_intact(&self.id)) {
            return true;
        }
        let (parent, name) = split(&self.path);
        let Ok(dir) = root.open_below(parent) else { return false };
        match read_entry(&dir, name, self.stat.kind, &HashOnly) {
            Ok(ReadOutcome::Read { stat, id, .. }) => stat == self.stat && id != self.id,
            // A changed or unreadable file proves nothing.
            _ => false,
        }
    }
}

impl Context {
    /// Compares the files of copied blobs with the index. After a mismatch, the files of all
    /// borrowed blobs are compared. Returns those with wrong ids.
    pub(crate) fn check_copied(
        &self,
        root: &Dir,
        work_tree: &WorkTree,
        borrowed: &Borrowed,
        copied: &Copied,
    ) -> Vec<IndexedFile> {
        // After a mismatch all files were read, because the cache was dropped.
        if copied.ids().is_empty() || work_tree.wrong_index().is_some() {
            return Vec::new();
        }
        let cache = StatCache::load(&work_tree.cache_path());
        let wrong =
            self.wrong_among(root, None, &indexed_files(&cache, |id| copied.ids().contains(id)));
        if wrong.is_empty() {
            wrong
        } else {
            self.wrong_among(root, None, &indexed_files(&cache, |id| borrowed.contains(id)))
        }
    }

    fn wrong_among(
        &self,
        root: &Dir,
        source: Option<&BorrowSource>,
        files: &[IndexedFile],
    ) -> Vec<IndexedFile> {
        let jobs: Vec<&[IndexedFile]> = files.chunks(FILES_PER_JOB).collect();
        let wrong = run_jobs(self.options.threads.max(1), jobs, |files, _| {
            files.iter().filter(|file| file.is_wrong(root, source)).cloned().collect::<Vec<_>>()
        });
        let mut wrong: Vec<IndexedFile> = wrong.into_iter().flatten().collect();
        wrong.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        wrong
    }
}

impl Hold {
    /// Copies some of the borrowed blobs, within the time that a snapshot may be delayed. Also
    /// returns the operation that corrects wrong content, if there is one.
    pub(super) fn copy_borrowed(&self) -> Result<(CopyRound, Option<Operation>), Error> {
        const MAX_BYTES: u64 = 16 << 20;
        const MAX_OBJECTS: u64 = 1_000;
        let borrowed = Borrowed::load(&self.work_tree.borrowed_path())?;
        if borrowed.is_empty() {
            return Ok((CopyRound::default(), None));
        }
        let Some(_turn) = self.work_tree.try_lock_copying()? else {
            return Ok((CopyRound { left: borrowed.len(), ..CopyRound::default() }, None));
        };
        let room_bytes = self.context.quota_use(self.store.path())?.left();
        let limits = Limits { bytes: MAX_BYTES, objects: MAX_OBJECTS, room_bytes };
        let copied = borrowed.copy(&self.store, &limits)?;
        let wrong = self.context.check_copied(&self.root, &self.work_tree, &borrowed, &copied);
        let corrected = self.correct(wrong)?;
        Ok((self.work_tree.remove_copied(&self.store, copied)?, corrected))
    }

    pub(super) fn borrow_source(&self, is_first: bool) -> Result<Option<BorrowSource>, Error> {
        match &self.context.repo {
            // Nothing is borrowed from an unreadable repository.
            Some(repo) if is_first && self.context.options.seed => {
                Ok(BorrowSource::open(&repo.objects_dir()).ok())
            }
            _ => Ok(None),
        }
    }

    /// Returns the files whose blobs may be borrowed, by attributes outside the work tree.
    pub(super) fn seeding(&self) -> Result<Seeding, Error> {
        let none = Rules::base(&[], &[], &[]);
        let global = self.context.options.attributes_file.as_ref().map(|file| {
            let text = crate::fs::private::read_small_linked(file, 1 << 20).ok().flatten();
            text.unwrap_or_default()
        });
        let own = self.context.repo.as_ref().map(|repo| repo.info("attributes"));
        let mut patterns = Vec::new();
        for text in global.into_iter().chain(own) {
            match filter_patterns(&text) {
                Some(found) => patterns.extend(found),
                None => return Ok(Seeding::Off),
            }
        }
        Ok(Seeding::Except(none.child(b"", &patterns)))
    }

    /// Compares a random sample of the borrowed files with the index and reads their objects.
    /// Returns a path with a wrong id or a damaged object, if any.
    pub(super) fn check_sample(&self, source: &BorrowSource, listing: &Listing) -> Option<Vec<u8>> {
        let mut files: Vec<(usize, usize)> = Vec::new();
        for (at, dir) in listing.dirs.iter().enumerate() {
            let known = |entry: &usize| matches!(dir.entries[*entry].content, Content::Known(_));
            files.extend((0..dir.entries.len()).filter(known).map(|entry| (at, entry)));
        }
        let count = MIN_SAMPLE.max(files.len() / ONE_OF).min(files.len());
        shuffle_front(&mut files, count);
        let file = |&(at, entry): &(usize, usize)| {
            let (dir, entry) = (&listing.dirs[at], &listing.dirs[at].entries[entry]);
            let Content::Known(id) = entry.content else { return None };
            Some(IndexedFile { path: join(&dir.path, &entry.name), stat: entry.stat, id })
        };
        let sample: Vec<IndexedFile> = files[..count].iter().filter_map(file).collect();
        let wrong = self.context.wrong_among(&self.root, Some(source), &sample);
        wrong.into_iter().map(|file| file.path).next()
    }

    /// Stops using the index and records the right content of `wrong` in an operation of its own.
    /// Otherwise the difference would be attributed to the open step, and an undo would write the
    /// wrong content. Returns that operation.
    pub(crate) fn correct(&self, wrong: Vec<IndexedFile>) -> Result<Option<Operation>, Error> {
        let Some(first) = wrong.first() else { return Ok(None) };
        let path = escape(&first.path);
        let last = self.work_tree.last_or_salvaged(&self.store)?;
        let until = last.as_ref().map(|last| last.id.clone()).unwrap_or_default();
        let file = |wrong: &IndexedFile| WrongFile {
            path: PathText::from_bytes(&wrong.path),
            id: wrong.id,
        };
        let files = wrong.iter().map(file).collect();
        self.distrust_index(&WrongIndex { path: path.clone(), files, until })?;
        let Some(last) = last else { return Ok(None) };
        let paths: Vec<_> = wrong.into_iter().map(|file| TreePath::from_scan(file.path)).collect();
        let label = Some(format!(
            "correction: git's index was wrong about {path}, and so are the snapshots before this"
        ));
        let details = Details { label, ..Details::default() };
        let cause = Cause { correction: true, details, ..Cause::outside() };
        let progress = Progress::default();
        let recording = Recording::new(self, &cause, &progress, Extent::Whole);
        let recorded = Recording { rehash: true, ..recording }.named(&paths, &last)?;
        Ok(Some(recorded.operation))
    }

    /// Stops using the user's index for this work tree and makes the next scan read every file.
    pub(super) fn distrust_index(&self, wrong: &WrongIndex) -> Result<(), Error> {
        self.work_tree.note_wrong_index(wrong)?;
        self.work_tree.forget_cache()
    }

    /// Returns the files of which `wanted` is content that only a wrong index had. Content that the
    /// file had later, when it was read, is not among them.
    pub(crate) fn misled(
        &self,
        wanted: impl Fn(&[u8]) -> Option<ObjectId>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let Some(WrongIndex { files, until, .. }) = self.work_tree.wrong_index() else {
            return Ok(Vec::new());
        };
        let files = files.into_iter().map(|file| (file.path.into_bytes(), file.id));
        let mut misled: Vec<(TreePath, ObjectId)> = files
            .filter(|(path, id)| wanted(path) == Some(*id))
            .filter_map(|(path, id)| Some((TreePath::parse(&path).ok()?, id)))
            .collect();
        let mut next = self.work_tree.last(&self.store)?;
        let trees = Trees::new(&self.store.objects);
        while let Some(operation) = next.filter(|next| next.id > until && !misled.is_empty()) {
            let mut genuine = HashSet::new();
            for (path, id) in &misled {
                if trees.find(&operation.snapshot, path)?.is_some_and(|entry| entry.id == *id) {
                    genuine.insert(path.clone());
                }
            }
            misled.retain(|(path, _)| !genuine.contains(path));
            // Expired operations prove nothing.
            next = operation.parent.and_then(|id| read_operation(&self.store.objects, &id).ok());
        }
        Ok(misled.into_iter().map(|(path, _)| path.as_bytes().to_vec()).collect())
    }
}

/// Returns the cached files whose blobs are wanted.
fn indexed_files(cache: &StatCache, is_wanted: impl Fn(&ObjectId) -> bool) -> Vec<IndexedFile> {
    let mut files = Vec::new();
    for (path, dir) in (0..cache.len()).filter_map(|at| cache.nth(at)) {
        for entry in dir.entries() {
            let id = entry.id().filter(&is_wanted);
            let file = |id| IndexedFile { path: join(path, entry.name), stat: entry.stat, id };
            files.extend(id.map(file));
        }
    }
    files
}

/// Moves `count` random items to the front.
fn shuffle_front<T>(items: &mut [T], count: usize) {
    let mut random = vec![0; count * 8];
    fill_random(&mut random);
    for (at, bytes) in random.as_chunks::<8>().0.iter().enumerate() {
        let left = (items.len() - at) as u64;
        items.swap(at, at + (u64::from_le_bytes(*bytes) % left) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_no_item_twice() {
        let mut items: Vec<u32> = (0..1_000).collect();
        shuffle_front(&mut items, 500);
        items.sort_unstable();
        assert_eq!(items, (0..1_000).collect::<Vec<u32>>());
        shuffle_front::<u32>(&mut [], 0);
    }
}
