//! Captures: state of the paths that a step names, before and after it ran.
//!
//! A capture is a file in the work tree's part of the store. The contents that it references are
//! git objects, kept by a ref of their own.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Dir, Landmark, Time};
use crate::git::{Commit, EntryKind, Kind, ObjectId, TreeEntry, encode_commit};
use crate::log::{WorkTree, ref_part};
use crate::pack::PackWriter;
use crate::path::{is_in_repository, is_within};
use crate::record::{HashOnly, StoreKeep};
use crate::restore::{HEAD_BYTES, database_of, is_sqlite, is_sqlite_log};
use crate::scan::parts_of;
use crate::store::{Store, write_tree};

use super::reader::{Budget, Inside, Reader, Seen};
use super::state::{Same, State, Thing, compare};

/// Captures expire after this time. Above `MAX_TOTAL_BYTES` in total, the oldest ones expire first.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
const MAX_TOTAL_BYTES: u64 = 1 << 30;

/// Upper bound on the size of a capture file: 50,000 entries with two paths of 100 bytes fit.
const MAX_CAPTURE_BYTES: u64 = 64 << 20;

/// State of the paths that one step, undo or redo names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Capture {
    /// Step id, or a name for the undo or redo.
    pub(super) of: String,
    pub(super) at_millis: u64,
    pub(super) roots: Vec<Root>,
    /// Identity of the file that it was read from.
    #[serde(default, skip_serializing)]
    pub(super) file: Option<Landmark>,
}

/// A path that is restored completely or not at all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Root {
    /// Directory that contains it: absolute, without symlinks, existing when it was captured.
    #[serde(with = "crate::path::text")]
    pub(super) dir: Vec<u8>,
    #[serde(with = "crate::path::text")]
    pub(super) name: Vec<u8>,
    /// Whether it is in (or is) the directory of a version control system, which is never written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) repository: bool,
    /// Whether it is an SQLite database, which is captured and restored with its log and journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) database: bool,
    pub(super) before: State,
    /// State after the step; absent while it runs.
    #[serde(default)]
    pub(super) after: Option<State>,
}

impl Root {
    pub(super) fn dir(&self) -> PathBuf {
        path_of(&self.dir)
    }

    /// Returns the absolute path.
    pub(super) fn path(&self) -> Vec<u8> {
        full_path(&self.dir, &self.name)
    }

    /// Returns the names in `dir` that belong to it.
    pub(super) fn names(&self) -> Vec<Vec<u8>> {
        names_of(&self.name, self.database)
    }

    /// Returns whether an absolute path is part of it.
    pub(super) fn covers(&self, full: &[u8]) -> bool {
        self.names().iter().any(|name| is_within(full, &full_path(&self.dir, name)))
    }

    pub(super) fn inside(&self) -> Inside {
        if self.repository { Inside::Repository } else { Inside::Files }
    }

    /// Returns whether the step changed it. Without a state after the step, it counts as changed.
    fn is_changed(&self) -> bool {
        let Some(after) = &self.after else { return true };
        let mut paths = self.before.0.keys().chain(after.0.keys());
        paths.any(|path| {
            let (before, after) = (self.before.at(path), after.at(path));
            compare(before.as_ref(), after.as_ref()) == Same::No
        })
    }
}

/// Returns the names that a root consists of.
pub(super) fn names_of(name: &[u8], database: bool) -> Vec<Vec<u8>> {
    parts_of(name).take(if database { usize::MAX } else { 1 }).collect()
}

/// Returns the absolute path of `path` in the absolute directory `dir`.
pub(super) fn full_path(dir: &[u8], path: &[u8]) -> Vec<u8> {
    [dir.strip_suffix(b"/").unwrap_or(dir), b"/", path].concat()
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

/// Result of a capture.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// Absolute paths that exist and were left out, each with the reason.
    pub(crate) left_out: Vec<(Vec<u8>, String)>,
    /// Absolute paths of the repositories that were captured, at least in part.
    pub(crate) repositories: Vec<Vec<u8>>,
}

impl Captured {
    /// Returns the result for paths that could not be captured.
    pub(crate) fn failed(paths: &[PathBuf], why: &Error) -> Captured {
        let places = paths.iter().filter_map(|path| place(path));
        let left_out = places.map(|(dir, name)| (full_path(&dir, &name), why.to_string()));
        Captured { left_out: left_out.collect(), repositories: Vec::new() }
    }

    fn add(&mut self, root: &Root) {
        self.left_out.extend(root.before.0.iter().filter_map(|(path, thing)| match thing {
            Thing::LeftOut { why, .. } => Some((full_path(&root.dir, path), why.clone())),
            _ => None,
        }));
        if root.repository && root.before.blobs().next().is_some() {
            self.repositories.push(root.path());
        }
    }
}

/// Captures of one work tree and the operations on them. The caller holds its lock.
pub(crate) struct Outside<'a> {
    pub(crate) store: &'a Store,
    pub(crate) work_tree: &'a WorkTree,
    /// Directories that are not captured: the work tree first, then those of ctrlz.
    pub(crate) omit: Vec<PathBuf>,
    /// Free space to leave on the store's disk.
    pub(crate) min_free_bytes: u64,
    pub(crate) threads: usize,
    /// Whether to ignore captures and journals that ctrlz did not write to their files. They name
    /// directories outside the work tree, and a `git pull` can create files in a store inside it.
    pub(crate) only_originals: bool,
}

impl Outside<'_> {
    /// Records the state of `paths` before a step changes them, within `time`. Returns what is new.
    pub(crate) fn capture(
        &self,
        step: &str,
        paths: &[PathBuf],
        time: Option<Duration>,
    ) -> Result<Captured, Error> {
        let mut captured = Captured::default();
        if paths.is_empty() {
            return Ok(captured);
        }
        self.expire()?;
        let mut capture = self.load(step)?.unwrap_or_else(|| new(step));
        // A step may be begun again; the state that was captured first is kept.
        let mut omit = self.omit.to_vec();
        for root in &mut capture.roots {
            root.after = None;
            omit.extend(root.names().iter().map(|name| path_of(&full_path(&root.dir, name))));
        }
        let pack = self.pack();
        let keep = StoreKeep::new(self.store, &pack);
        let mut plain = Budget::plain().within(time);
        let large = Budget::repository().within(time);
        for (dir, name) in self.roots(paths, &capture) {
            let repository = is_in_repository(&path_of(&full_path(&dir, &name)));
            let database = !repository && is_database(&dir, &name);
            let budget = if repository { large } else { plain };
            let mut reader = Reader { keep: &keep, budget, omit: &omit };
            let inside = if repository { Inside::Repository } else { Inside::Files };
            let names = names_of(&name, database);
            let seen = reader.read(&path_of(&dir), &names, inside, None)?;
            let before = State::default();
            let found = Root { dir, name, repository, database, before, after: None };
            let nested = nested(&mut reader, &found, &seen)?;
            if !repository {
                plain = reader.budget;
            }
            for root in [Root { before: seen.state, ..found }].into_iter().chain(nested) {
                captured.add(&root);
                capture.roots.push(root);
            }
        }
        if !capture.roots.is_empty() {
            self.save(&capture, Some(pack))?;
        }
        Ok(captured)
    }

    pub(super) fn pack(&self) -> PackWriter {
        PackWriter::new(&self.store.objects_dir()).leaving(self.min_free_bytes)
    }

    /// Returns the roots to capture for `paths`, each as a directory and a name in it. A path below
    /// another one is part of that root.
    fn roots(&self, paths: &[PathBuf], known: &Capture) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for path in paths {
            let Some((dir, mut name)) = place(path) else { continue };
            if is_part_of_database(&dir, &name) {
                name = database_of(&name).to_vec();
            }
            let full = full_path(&dir, &name);
            let is_ours = self.omit.iter().any(|omit| path_of(&full) == *omit);
            // The project's own repository is captured although it is inside the work tree.
            let is_inside = self.omit.iter().any(|omit| path_of(&full).starts_with(omit));
            let is_known = known.roots.iter().any(|root| root.covers(&full));
            if !is_ours && !is_known && (!is_inside || self.is_project_repository(&full)) {
                found.push((dir, name));
            }
        }
        found.sort_unstable_by_key(|(dir, name)| full_path(dir, name));
        let mut outer: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (dir, name) in found {
            let full = full_path(&dir, &name);
            if !outer.iter().any(|(dir, name)| is_within(&full, &full_path(dir, name))) {
                outer.push((dir, name));
            }
        }
        outer
    }

    /// Returns whether a path in an omitted directory is in the project's repository, not a store.
    fn is_project_repository(&self, full: &[u8]) -> bool {
        let (root, own) = self.omit.split_first().expect("the work tree comes first");
        let in_store = own.iter().any(|own| path_of(full).starts_with(own));
        !in_store && path_of(full).strip_prefix(root).is_ok_and(is_in_repository)
    }

    /// Records the state after a step. Returns whether it changed; if not, the capture is dropped.
    pub(crate) fn record_after(&self, step: &str) -> Result<bool, Error> {
        let Some(mut capture) = self.load(step)? else { return Ok(false) };
        self.note_after(&mut capture, Budget::plain())?;
        self.keep_if_changed(&capture)
    }

    /// Saves a capture if the state changed since, otherwise drops it. Returns whether it changed.
    pub(super) fn keep_if_changed(&self, capture: &Capture) -> Result<bool, Error> {
        let changed = capture.roots.iter().any(Root::is_changed);
        if changed {
            self.save(capture, None)?;
        } else {
            self.forget_step(&capture.of)?;
        }
        Ok(changed)
    }

    /// Records the present state of the roots as their state after the step.
    pub(super) fn note_after(&self, capture: &mut Capture, mut plain: Budget) -> Result<(), Error> {
        let all: Vec<PathBuf> = capture.roots.iter().map(|root| path_of(&root.path())).collect();
        for root in capture.roots.iter_mut().filter(|root| root.after.is_none()) {
            // Roots inside of this one are captured by themselves, before and after the step.
            let own = path_of(&root.path());
            let inner = all.iter().filter(|other| **other != own && other.starts_with(&own));
            let omit: Vec<PathBuf> = self.omit.iter().chain(inner).cloned().collect();
            let budget = if root.repository { Budget::repository() } else { plain };
            let mut reader = Reader { keep: &HashOnly, budget, omit: &omit };
            let seen =
                reader.read(&root.dir(), &root.names(), root.inside(), Some(&root.before))?;
            if !root.repository {
                plain = reader.budget;
            }
            root.after = Some(seen.state);
        }
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.work_tree.outside_dir().join(format!("{key}.json"))
    }

    /// Returns the path of the journal for restoring one root.
    pub(super) fn journal_path(&self, of: &str, root: usize) -> PathBuf {
        self.work_tree.outside_dir().join(format!("{}.{root}.journal", ref_part(of)))
    }

    /// Returns the capture of a step, or `None` if it does not exist or cannot be parsed.
    pub(super) fn load(&self, of: &str) -> Result<Option<Capture>, Error> {
        self.load_key(&ref_part(of))
    }

    pub(super) fn load_key(&self, key: &str) -> Result<Option<Capture>, Error> {
        let path = self.path(key);
        let bytes = read_small(&path, MAX_CAPTURE_BYTES)?.unwrap_or_default();
        let json = bytes.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default();
        let capture: Option<Capture> = serde_json::from_slice(json).ok();
        let is_original = |file: &Option<Landmark>| Landmark::is_noted(file.as_ref(), &path);
        Ok(capture.filter(|capture| !self.only_originals || is_original(&capture.file)))
    }

    /// Writes a capture, after making the contents in `pack` durable.
    pub(super) fn save(&self, capture: &Capture, pack: Option<PackWriter>) -> Result<(), Error> {
        let key = ref_part(&capture.of);
        private::create_dirs(&self.work_tree.outside_dir())?;
        let ids: BTreeSet<ObjectId> =
            capture.roots.iter().flat_map(|root| root.before.blobs()).collect();
        if let Some(pack) = pack
            && !ids.is_empty()
        {
            let commit = write_commit(self.store, &pack, &ids, capture.at_millis)?;
            pack.publish()?;
            self.store.objects.refresh()?;
            self.work_tree.set_ref(self.store, &self.work_tree.outside_ref(&key), &commit)?;
        }
        let mut bytes = 0;
        for id in &ids {
            bytes += self.store.objects.header(id)?.map_or(0, |(_, bytes)| bytes);
        }
        // The size comes first, so that expiry need not parse the rest.
        let start = format!("{bytes}\n");
        // A capture without contents is not worth waiting for an fsync.
        let durable = if ids.is_empty() { Durable::No } else { Durable::Yes };
        Ok(private::replace_marked(&self.path(&key), &start, capture, durable)?)
    }

    /// Removes a capture. Its contents become garbage.
    pub(crate) fn forget_step(&self, of: &str) -> Result<(), Error> {
        self.drop_key(&ref_part(of))
    }

    fn drop_key(&self, key: &str) -> Result<(), Error> {
        self.store.refs.delete(&self.work_tree.outside_ref(key))?;
        Ok(private::remove(&self.path(key))?)
    }

    /// Removes captures that are too old, and the oldest ones while the total size is too large.
    pub(crate) fn expire(&self) -> Result<(), Error> {
        let mut kept: Vec<(SystemTime, u64, String)> = Vec::new();
        for (key, path) in self.keys()? {
            let modified = path.symlink_metadata().and_then(|meta| meta.modified());
            // A file without a timestamp counts as the oldest.
            kept.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), size_in(&path), key));
        }
        kept.sort();
        let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (modified, bytes, key) in kept {
            let is_old = modified.elapsed().is_ok_and(|age| age > MAX_AGE);
            if is_old || total > MAX_TOTAL_BYTES {
                total = total.saturating_sub(bytes);
                self.drop_key(&key)?;
            }
        }
        Ok(())
    }

    /// Removes the captures that contain one of these blobs. Returns the commits that kept them.
    pub(crate) fn forget(&self, ids: &dyn Fn(&ObjectId) -> bool) -> Result<Vec<ObjectId>, Error> {
        let mut dropped = Vec::new();
        for (key, _) in self.keys()? {
            let Some(capture) = self.load_key(&key)? else { continue };
            if capture.roots.iter().any(|root| root.before.blobs().any(|id| ids(&id))) {
                dropped.extend(self.store.refs.read(&self.work_tree.outside_ref(&key))?);
                self.drop_key(&key)?;
            }
        }
        Ok(dropped)
    }

    /// Returns every capture as its key and the path of its file.
    pub(super) fn keys(&self) -> Result<Vec<(String, PathBuf)>, Error> {
        let found = self.files()?.into_iter();
        Ok(found
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
                Some((name, path))
            })
            .collect())
    }

    /// Returns the paths of all capture and journal files.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, Error> {
        Ok(private::list_if_there(&self.work_tree.outside_dir())?)
    }
}

/// Returns an empty capture.
pub(super) fn new(of: &str) -> Capture {
    Capture { of: of.to_owned(), at_millis: Time::now().millis(), roots: Vec::new(), file: None }
}

/// Reads the repositories below a path, as separate roots.
fn nested(reader: &mut Reader<'_>, outer: &Root, seen: &Seen) -> Result<Vec<Root>, Error> {
    let mut found = Vec::new();
    for path in &seen.repositories {
        let full = full_path(&outer.dir, path);
        let (dir, name) = crate::path::split(&full);
        let inside = Inside::Repository;
        let before = reader.read(&path_of(dir), &[name.to_vec()], inside, None)?.state;
        let (dir, name) = (dir.to_vec(), name.to_vec());
        let (repository, database) = (true, false);
        found.push(Root { dir, name, repository, database, before, after: None });
    }
    Ok(found)
}

/// Returns whether a name is that of an SQLite database or of its log, journal or shared memory.
/// The database or the file itself must have the content of one.
fn is_part_of_database(dir: &[u8], name: &[u8]) -> bool {
    let main = database_of(name);
    is_sqlite(&head_at(dir, main)) || (main != name && is_sqlite_log(&head_at(dir, name)))
}

/// Returns whether a name is that of an SQLite database. A log without its database counts.
fn is_database(dir: &[u8], name: &[u8]) -> bool {
    names_of(name, true).iter().any(|part| is_part_of_database(dir, part))
}

/// Returns the first bytes of a file, or nothing if it is unreadable.
pub(super) fn head_at(dir: &[u8], path: &[u8]) -> Vec<u8> {
    let (parent, name) = crate::path::split(path);
    let file = Dir::open(&path_of(dir))
        .and_then(|dir| dir.open_below(parent))
        .and_then(|dir| dir.open_file(name));
    let mut head = Vec::new();
    if let Ok(file) = file {
        // Errors are ignored: an unreadable file is not recognised as a database.
        file.take(HEAD_BYTES).read_to_end(&mut head).ok();
    }
    head
}

/// Returns the directory in which a path is captured, and its name there. It is the nearest
/// existing directory, since a tool may create the ones between.
fn place(path: &Path) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut at = path.to_owned();
    loop {
        let name = at.file_name()?.as_bytes().to_vec();
        let parent = at.parent()?;
        let real = parent.canonicalize();
        let real = real.unwrap_or_else(|_| parent.to_owned());
        match Dir::open_real(&real) {
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                at = parent.to_owned();
            }
            // A directory that cannot be opened is reported when the path is read.
            Ok(_) | Err(_) => return Some((real.into_os_string().into_vec(), name)),
        }
    }
}

/// Returns the size in bytes from the first line of a capture file.
fn size_in(path: &Path) -> u64 {
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(24).read_to_end(&mut start));
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    // An unreadable file counts as 0 bytes; it expires by age.
    read.ok().and(number).unwrap_or(0)
}

/// Writes a commit that keeps blobs alive: its tree has one entry per blob, named by its id.
fn write_commit(
    store: &Store,
    pack: &PackWriter,
    ids: &BTreeSet<ObjectId>,
    at_millis: u64,
) -> Result<ObjectId, Error> {
    let exists = |id: &ObjectId| store.objects.holds(id);
    let names: Vec<(String, ObjectId)> = ids.iter().map(|id| (id.to_string(), *id)).collect();
    let entries = names.iter().map(|(name, id)| TreeEntry {
        name: name.as_bytes(),
        kind: EntryKind::File,
        id: *id,
    });
    let commit = Commit {
        tree: write_tree(entries.collect(), pack, &exists)?,
        parents: Vec::new(),
        author: "ctrlz".into(),
        seconds: (at_millis / 1000) as i64,
        // Not a JSON object, so that it is not taken for an operation or an ignored snapshot.
        data: "\"outside\"".into(),
        message: "files outside of the work tree".into(),
    };
    let added = pack.add(Kind::Commit, &encode_commit(&commit), exists)?;
    added.ok_or_else(|| Error::damaged(&ObjectId::NULL, "a commit of ours"))
}

/// Returns whether an object is a file or symlink, whose content a capture holds.
pub(super) fn is_leaf(thing: &Thing) -> bool {
    matches!(thing, Thing::File { .. } | Thing::Link(_))
}
