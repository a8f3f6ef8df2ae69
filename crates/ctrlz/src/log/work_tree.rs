//! The part of a store that belongs to one work tree: its lock, cache and log.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, StoreError};
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;

use serde::{Deserialize, Serialize};

use super::codec::{self, NewOperation, Place};
use super::gap::OpenGap;
use super::id::new_id;
use super::ignored_snapshot;
use super::index::{self, LogIndex};
use super::operation::Operation;
use crate::pack::{PackWriter, Published};
use crate::path::PathText;
use crate::store::{
    Borrowed, COPY_LOCK, Copied, CopyRound, Lock, Sharing, Store, path_hash, work_tree_dir,
};

/// Prefix of the names of scratch files that become refs.
const SCRATCH: &str = "ref.";

/// Files and refs that belong to one work tree.
#[derive(Debug)]
pub(crate) struct WorkTree {
    id: String,
    dir: PathBuf,
    ref_name: String,
}

/// A user's index that was wrong about the content of files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WrongIndex {
    /// Path, escaped, of the first such file.
    pub(crate) path: String,
    /// Files that snapshots hold with another content than they had.
    #[serde(default)]
    pub(crate) files: Vec<WrongFile>,
    /// The last operation with such a snapshot.
    #[serde(default)]
    pub(crate) until: String,
}

/// A file with the blob id that the index had for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WrongFile {
    pub(crate) path: PathText,
    pub(crate) id: ObjectId,
}

const WATCH: &str = "watch";
const PLANS: &str = "plans";
const OUTSIDE: &str = "outside";

/// Prefix of the refs of captures outside of the work tree. They are never pushed or exported.
const OUTSIDE_PREFIX: &str = "refs/ctrlz-outside";

impl WorkTree {
    /// Returns the part of `store` with this name: of a work tree, or of a log from another
    /// machine.
    pub(crate) fn named(store: &Store, id: &str) -> WorkTree {
        let id = id.to_owned();
        let ref_name = format!("{}/{id}/log", store.ref_prefix());
        WorkTree { dir: store.work_tree_dir(&id), ref_name, id }
    }

    /// Creates its directory.
    pub(crate) fn create_dir(&self) -> Result<(), Error> {
        Ok(private::create_dirs(&self.dir)?)
    }

    /// Returns the recorded path of the work tree.
    pub(crate) fn root(&self) -> Result<Option<PathBuf>, Error> {
        use std::os::unix::ffi::OsStringExt;
        let bytes = private::read_small(&self.dir.join("path"), 1 << 20)?;
        Ok(bytes.map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes))))
    }

    /// Creates its directory and records the path of the work tree.
    pub(crate) fn create(&self, root: &Path) -> Result<(), Error> {
        private::create_dirs(&self.dir)?;
        let record = self.dir.join("path");
        if !record.exists() {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
            private::replace(&record, bytes, Durable::Yes)?;
        }
        OpenGap::allocate(&self.gap_path());
        Ok(())
    }

    /// Returns whether anything was ever written for it.
    pub(crate) fn has_dir(&self) -> bool {
        self.dir.is_dir()
    }

    /// Updates the recorded paths after the work tree moved.
    pub(crate) fn follow(&self, store: &Store, from: &Path, to: &Path) -> Result<(), Error> {
        private::create_dirs(&self.dir)?;
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(to.as_os_str());
        private::replace(&self.dir.join("path"), bytes, Durable::Yes)?;
        Borrowed::load(&self.borrowed_path())?.follow(store, &self.borrowed_path(), from, to)
    }

    /// Takes the lock for copying borrowed objects. Returns `None` if another process holds it,
    /// which would copy the same objects.
    pub(crate) fn try_lock_copying(&self) -> Result<Option<Lock>, Error> {
        Lock::try_take(&self.dir.join(COPY_LOCK), Sharing::Exclusive)
    }

    /// Takes the lock and removes leftovers of a killed process.
    pub(crate) fn lock(&self, store: &Store, patience: Duration) -> Result<Lock, Error> {
        let lock = Lock::take(&self.lock_path(), Sharing::Exclusive, patience)?;
        private::sweep(&self.dir)?;
        private::sweep(&self.outside_dir())?;
        self.clear_ref_locks(store)?;
        Ok(lock)
    }

    /// Removes the ref locks of a killed process. The scratch file of each one names its ref.
    fn clear_ref_locks(&self, store: &Store) -> Result<(), Error> {
        for path in private::list(&self.dir)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(name) = name.strip_prefix(SCRATCH).and_then(unescape) {
                store.refs.clear_own_lock(&name, &path)?;
            }
        }
        Ok(())
    }

    /// Returns the path at which a ref's new value is written before it is renamed.
    fn scratch(&self, ref_name: &str) -> PathBuf {
        self.dir.join(format!("{SCRATCH}{}", escaped(ref_name)))
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.dir.join("lock")
    }

    pub(crate) fn cache_path(&self) -> PathBuf {
        self.dir.join("stat")
    }

    /// Makes the next scan read every file, even if a watcher reports no change.
    pub(crate) fn forget_cache(&self) -> Result<(), Error> {
        for path in [self.watch_state_path(), self.cache_path()] {
            private::remove(&path)?;
        }
        Ok(())
    }

    /// Returns the path of the note about the last scan, for processes that waited for it.
    pub(crate) fn scan_note_path(&self) -> PathBuf {
        self.dir.join("scanned")
    }

    pub(crate) fn journal_path(&self) -> PathBuf {
        self.dir.join("restore.journal")
    }

    /// Returns the directories with journals of restores.
    pub(crate) fn journal_dirs(&self) -> [PathBuf; 2] {
        [self.dir.clone(), self.outside_dir()]
    }

    /// Returns the path of the note about turns that were not recorded because the disk was full.
    pub(crate) fn gap_path(&self) -> PathBuf {
        self.dir.join("gap")
    }

    pub(crate) fn steps_path(&self) -> PathBuf {
        self.dir.join("steps")
    }

    pub(crate) fn borrowed_path(&self) -> PathBuf {
        self.dir.join("borrowed")
    }

    /// Returns the note that the user's index was found to be wrong, if it was.
    pub(crate) fn wrong_index(&self) -> Option<WrongIndex> {
        let text = private::read_small(&self.wrong_index_path(), 64 << 20).ok().flatten()?;
        // Earlier versions wrote only the path.
        let path_alone = || String::from_utf8_lossy(&text).into_owned();
        let note = serde_json::from_slice(&text);
        Some(note.unwrap_or_else(|_| WrongIndex { path: path_alone(), ..WrongIndex::default() }))
    }

    /// Records that the user's index is wrong, so that nothing is borrowed again.
    pub(crate) fn note_wrong_index(&self, wrong: &WrongIndex) -> Result<(), Error> {
        let json = serde_json::to_vec(wrong).expect("plain data has a JSON form");
        Ok(private::replace(&self.wrong_index_path(), &json, Durable::Yes)?)
    }

    fn wrong_index_path(&self) -> PathBuf {
        self.dir.join("wrong-index")
    }

    /// Returns the directory of the watcher's lock, socket and cookie files.
    pub(crate) fn watch_dir(&self) -> PathBuf {
        self.dir.join(WATCH)
    }

    /// Returns the same for the work tree `id`, without opening the store at `store`.
    pub(crate) fn watch_dir_in(store: &Path, id: &str) -> PathBuf {
        work_tree_dir(store, id).join(WATCH)
    }

    /// Returns the path of the record with the newest operation and the watcher's cursor for it.
    pub(crate) fn watch_state_path(&self) -> PathBuf {
        self.dir.join("watched")
    }

    pub(crate) fn ref_name(&self) -> &str {
        &self.ref_name
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the newest operation according to the ref.
    pub(crate) fn last(&self, store: &Store) -> Result<Option<Operation>, Error> {
        let mut head = store.refs.read(&self.ref_name)?;
        loop {
            let Some(at) = head else { return Ok(None) };
            let found = codec::read(&store.objects, &at);
            // Without a lock, a purge may replace the newest commit and remove the old one.
            let missed = matches!(found, Err(Error::Store(StoreError::Damaged { .. })));
            head = if missed { store.refs.read(&self.ref_name)? } else { Some(at) };
            if head == Some(at) {
                return found.map(Some);
            }
        }
    }

    /// Returns the newest operation. If the ref or its commit is lost, finds the newest readable
    /// one and points the ref at it.
    ///
    /// The caller holds the work tree's lock.
    pub(crate) fn last_or_salvaged(&self, store: &Store) -> Result<Option<Operation>, Error> {
        match self.last(store) {
            Ok(Some(last)) => return Ok(Some(last)),
            // There never was a log.
            Ok(None) if !self.is_logged() => return Ok(None),
            Ok(None) => (),
            Err(error) if error.is_damage() => (),
            Err(error) => return Err(error),
        }
        if let Some(lost) = store.refs.read(&self.ref_name)? {
            // Kept in case the missing pack is found. Not a ref, because git would fail on it.
            let note = self.dir.join(format!("lost-{}", new_id()));
            private::replace(&note, format!("{lost}\n").as_bytes(), Durable::Yes)?;
        }
        let Some(head) = codec::salvage(&store.objects, &self.id)? else { return Ok(None) };
        self.point_at(store, &head)?;
        codec::read(&store.objects, &head).map(Some)
    }

    /// Returns a path that exists once there is a log, so that a lost ref is recognised as lost.
    fn marker(&self) -> PathBuf {
        self.dir.join("logged")
    }

    /// Returns whether an operation was ever recorded.
    pub(crate) fn is_logged(&self) -> bool {
        self.marker().exists()
    }

    /// Appends an operation after `last`. Its objects become durable and visible first, then the
    /// log's ref names it, then the refs of its sessions do.
    ///
    /// The caller holds the work tree's lock and the store's.
    pub(crate) fn append(
        &self,
        store: &Store,
        pack: PackWriter,
        last: Option<&Operation>,
        new: NewOperation,
    ) -> Result<(Operation, Published), Error> {
        if let Some(last) = last {
            self.point_sessions(store, last)?;
        }
        let cut = last.is_some_and(|last| last.segment.is_full());
        let mut previous = BTreeMap::new();
        for session in new.sessions() {
            if let Some(commit) = store.refs.read(&self.session_ref(session))? {
                previous.insert(session.to_owned(), commit);
            }
        }
        let last_ignored_snapshot = store.refs.read(&self.ignored_snapshot_ref())?;
        let place = Place { work_tree: &self.id, last, cut, previous, last_ignored_snapshot };
        store.keep_private_lists(&new.meta.rules)?;
        let operation = codec::write(&store.objects, &pack, new, place)?;
        let published = pack.publish()?;
        if let Some(last) = last.filter(|_| cut) {
            self.keep_segment(store, last)?;
        }
        // The ignored snapshot's ref comes first: every operation in the log has its ignored
        // snapshot.
        if let Some(ignored) = operation.meta.ignored_snapshot
            && last_ignored_snapshot != Some(ignored)
        {
            self.set_ref(store, &self.ignored_snapshot_ref(), &ignored)?;
        }
        self.point_at(store, &operation.commit)?;
        if operation.parent.is_none() {
            private::replace(&self.marker(), b"", Durable::Yes)?;
        }
        self.point_sessions(store, &operation)?;
        index::append(&self.index_path(), &operation);
        store.objects.refresh()?;
        Ok((operation, published))
    }

    /// Creates a ref for the segment that ends with `last`.
    fn keep_segment(&self, store: &Store, last: &Operation) -> Result<(), Error> {
        let past = store.past_ref(&self.id, &last.id);
        self.set_ref(store, &past, &last.commit)?;
        if let Some(ignored) = store.refs.read(&self.ignored_snapshot_ref())? {
            self.set_ref(store, &self.past_ignored_snapshot_ref(&last.id), &ignored)?;
        }
        Ok(())
    }

    /// Points the refs of an operation's sessions at it, unless they are already.
    ///
    /// Also completes the work of a process that was killed after it moved the log's ref.
    fn point_sessions(&self, store: &Store, operation: &Operation) -> Result<(), Error> {
        for session in codec::sessions_of(&operation.details) {
            let name = self.session_ref(session);
            if store.refs.read(&name)? != Some(operation.commit) {
                self.set_ref(store, &name, &operation.commit)?;
            }
        }
        Ok(())
    }

    /// Returns a session's newest operation.
    pub(crate) fn newest_of(
        &self,
        store: &Store,
        session: &str,
    ) -> Result<Option<Operation>, Error> {
        match store.refs.read(&self.session_ref(session))? {
            Some(commit) => codec::read(&store.objects, &commit).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the past segments: the id and the commit of the last operation of each.
    pub(crate) fn past(&self, store: &Store) -> Result<Vec<(String, ObjectId)>, Error> {
        let dir = store.past_ref(&self.id, "");
        let all = store.refs.list(dir.trim_end_matches('/'))?;
        Ok(all
            .into_iter()
            .filter_map(|(name, id)| Some((name.strip_prefix(&dir)?.to_owned(), id)))
            .collect())
    }

    /// Returns the refs of a past segment and of its ignored snapshots.
    pub(crate) fn segment_refs(&self, store: &Store, id: &str) -> [String; 2] {
        [self.past_ignored_snapshot_ref(id), store.past_ref(&self.id, id)]
    }

    /// Returns the refs of sessions whose newest operation is one of `commits`.
    pub(crate) fn sessions_at(
        &self,
        store: &Store,
        commits: &HashSet<ObjectId>,
    ) -> Result<Vec<String>, Error> {
        let dir = self.session_ref("");
        let all = store.refs.list(dir.trim_end_matches('/'))?.into_iter();
        Ok(all.filter(|(_, commit)| commits.contains(commit)).map(|(name, _)| name).collect())
    }

    /// Removes copied and lost blobs from the list of borrowed ones. The caller holds the lock.
    pub(crate) fn remove_copied(&self, store: &Store, copied: Copied) -> Result<CopyRound, Error> {
        if copied.has_lost() {
            // The next scan reads the files of lost blobs again.
            self.forget_cache()?;
        }
        Borrowed::update(store, &self.borrowed_path(), copied)
    }

    /// Returns the entries of the log, newest first. There are none without a ref of the log.
    pub(crate) fn index<'a>(&self, store: &'a Store) -> Result<LogIndex<'a>, Error> {
        let head = store.refs.read(&self.ref_name)?;
        LogIndex::open(store, self.id().to_owned(), self.index_path(), head)
    }

    /// Removes the index of the log. The next reader rebuilds it.
    pub(crate) fn forget_index(&self) -> Result<(), Error> {
        Ok(private::remove(&self.index_path())?)
    }

    /// Returns the path of the list of sessions that retention need not keep any more.
    pub(crate) fn released_path(&self) -> PathBuf {
        self.dir.join("released")
    }

    pub(crate) fn session_ref(&self, session: &str) -> String {
        let parent = self.ref_name.trim_end_matches("/log");
        format!("{parent}/session/{}", ref_part(session))
    }

    pub(crate) fn ignored_snapshot_ref(&self) -> String {
        format!("{}/{}/log", ignored_snapshot::PREFIX, self.id)
    }

    /// Returns the ref of the ignored snapshots of the segment that ends with the operation `id`.
    pub(crate) fn past_ignored_snapshot_ref(&self, id: &str) -> String {
        format!("{}/{}/past/{id}", ignored_snapshot::PREFIX, self.id)
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.dir.join("log.index")
    }

    /// Returns the path of the metadata of kept ignored files, which is a disposable cache.
    pub(crate) fn aside_path(&self) -> PathBuf {
        self.dir.join("aside")
    }

    /// Returns the directory of the descriptions of captures outside of the work tree.
    pub(crate) fn outside_dir(&self) -> PathBuf {
        self.dir.join(OUTSIDE)
    }

    /// Returns the ref that keeps the contents of one such capture.
    pub(crate) fn outside_ref(&self, key: &str) -> String {
        format!("{OUTSIDE_PREFIX}/{}/{key}", self.id)
    }

    pub(crate) fn plans_dir(&self) -> PathBuf {
        self.dir.join(PLANS)
    }

    /// Returns the path of the note about the origin of a log from another machine.
    pub(crate) fn source_path(&self) -> PathBuf {
        self.dir.join("from")
    }

    /// Returns the path of the list of pushed heads, which stay known after they expire.
    pub(crate) fn pushed_path(&self) -> PathBuf {
        self.dir.join("pushed")
    }

    /// Returns its refs except those of ignored files, by their names below its prefix.
    pub(crate) fn own_refs(&self, store: &Store) -> Result<Vec<(String, ObjectId)>, Error> {
        let dir = format!("{}/{}/", store.ref_prefix(), self.id);
        let all = store.refs.list(&dir)?.into_iter();
        Ok(all.filter_map(|(name, id)| Some((name.strip_prefix(&dir)?.to_owned(), id))).collect())
    }

    /// Returns the refs of its checkpoints, including `latest` and `resume`, by their names below
    /// its prefix. They keep an operation readable after its segment of the log was dropped.
    pub(crate) fn checkpoint_refs(&self, store: &Store) -> Result<Vec<(String, ObjectId)>, Error> {
        let refs = self.own_refs(store)?.into_iter();
        Ok(refs.filter(|(rest, _)| rest != "log" && !rest.contains('/')).collect())
    }

    /// Returns the operation `id` if a checkpoint names it.
    pub(crate) fn checkpointed(&self, store: &Store, id: &str) -> Result<Option<Operation>, Error> {
        let refs = self.checkpoint_refs(store)?.into_iter();
        // An unreadable checkpoint must not hide the others.
        let mut operations =
            refs.filter_map(|(_, commit)| codec::read(&store.objects, &commit).ok());
        Ok(operations.find(|operation| operation.id == id))
    }

    /// Makes `commit`, of this or another machine, the newest of its log. The caller holds the
    /// lock.
    pub(crate) fn set_log(&self, store: &Store, commit: &ObjectId) -> Result<(), Error> {
        self.point_at(store, commit)?;
        private::replace(&self.marker(), b"", Durable::Yes)?;
        Ok(store.objects.refresh()?)
    }

    /// Takes over the refs and open steps of another work tree. The caller holds both locks.
    pub(crate) fn go_on_from(&self, store: &Store, other: &WorkTree) -> Result<(), Error> {
        let own = format!("{}/{}", store.ref_prefix(), self.id);
        for (name, id) in store.refs.list(&format!("{}/{}/", ignored_snapshot::PREFIX, other.id))? {
            let rest =
                name.trim_start_matches(&format!("{}/{}", ignored_snapshot::PREFIX, other.id));
            self.set_ref(store, &format!("{}/{}{rest}", ignored_snapshot::PREFIX, self.id), &id)?;
        }
        let refs = other.own_refs(store)?;
        for (rest, id) in refs.iter().filter(|(rest, _)| rest != "log") {
            self.set_ref(store, &format!("{own}/{rest}"), id)?;
        }
        if let Some(steps) = private::read_small(&other.steps_path(), 64 << 20)? {
            private::replace(&self.steps_path(), &steps, Durable::Yes)?;
        }
        match refs.into_iter().find(|(rest, _)| rest == "log") {
            Some((_, log)) => self.set_log(store, &log),
            None => Ok(()),
        }
    }

    fn point_at(&self, store: &Store, commit: &ObjectId) -> Result<(), Error> {
        self.set_ref(store, &self.ref_name, commit)
    }

    /// Sets a ref that belongs to this work tree. The caller holds the lock.
    pub(crate) fn set_ref(&self, store: &Store, name: &str, to: &ObjectId) -> Result<(), Error> {
        store.refs.write(name, to, &self.scratch(name))
    }
}

/// Returns a text as one component of a ref name. Long texts are hashed.
pub(crate) fn ref_part(text: &str) -> String {
    // File names are limited to 255 bytes, and a scratch file's name contains the ref name.
    match escaped(text) {
        short if short.len() <= 100 => short,
        _ => format!("%{}", path_hash(Path::new(text))),
    }
}

/// Escapes every byte except ASCII letters, digits, `_` and `-` as `%XX`, for use in ref names.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Reverses [`escaped`].
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        match first {
            b'%' => {
                let digits = std::str::from_utf8(more.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &more[2..];
            }
            plain => bytes.push(*plain),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_session_name_becomes_one_ref_component() {
        for text in ["abc-1_2", "a/b..c.lock", "%41", "ä\u{1}\n~^:?*[\\", "@{", ""] {
            assert_eq!(unescape(&escaped(text)).as_deref(), Some(text));
            assert!(!escaped(text).contains(['/', '.', '~', '^', ':', ' ', '\\', '@']));
        }
        assert_ne!(ref_part(&"a".repeat(300)), ref_part(&"a".repeat(301)));
    }
}
