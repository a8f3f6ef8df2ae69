//! Files that belong together, and files in use.
//!
//! A database and its sidecar files are a unit: they are restored to the same recorded state or
//! left alone. SQLite is recognised by content, LevelDB and RocksDB by file names. A file that
//! another process has open is left alone, because that process would keep using the replaced file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::plan::{Kept, KeptReason, Request, Wanted};
use crate::compare::{Entry, Now, NowAt, find};
use crate::error::Error;
use crate::fs::{InUse, Users, use_of};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{IgnoredSnapshot, Meta, read_ignored};
use crate::path::{PathText, TreePath, escape, is_asked_for, join, split};
use crate::scan::{Content, SIDECARS};

use super::absence::Absence;
use super::report::{OnUse, RestoreOptions};
use super::sqlite::{
    HEAD_BYTES, SHARED_MEMORY, database_of, is_blank, is_shared_memory_head, is_sqlite,
    is_sqlite_log, may_be_log,
};
use crate::record::{Recorded, look};

/// A recorded state that a request restores files to.
pub(crate) struct Source<'a> {
    snapshot: ObjectId,
    ignored: Option<IgnoredSnapshot>,
    absence: Absence<'a>,
    /// Whether the record lists the ignored files that it does not hold.
    lists_ignored: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn of(
        hold: &'a Hold,
        snapshot: ObjectId,
        absence: Absence<'a>,
        meta: Option<&Meta>,
    ) -> Source<'a> {
        let ignored = meta.and_then(|meta| meta.ignored_snapshot);
        let ignored = ignored.and_then(|id| read_ignored(&hold.store.objects, &id).ok());
        let lists_ignored = match &ignored {
            Some(ignored) => ignored.data.not_kept.is_some() && ignored.data.left_out == 0,
            // Nothing was ignored. Records of 0.1.0, without special bits, do not prove that.
            None => meta.is_some_and(|meta| meta.special_bits),
        };
        Source { snapshot, ignored, absence, lists_ignored }
    }

    fn state(&mut self, hold: &Hold, path: &TreePath) -> Result<State, Error> {
        let objects = &hold.store.objects;
        if let Some(entry) = find(objects, &self.snapshot, path)? {
            return Ok(State::Entry(entry));
        }
        if let Some(ignored) = &self.ignored
            && let Some(entry) = find(objects, &ignored.tree, path)?
        {
            return Ok(State::Entry(entry));
        }
        Ok(match self.absence.doubt(path)? {
            None => State::Absent,
            Some(KeptReason::IgnoredThen | KeptReason::RulesUnknown) if self.knows_absent(path) => {
                State::Absent
            }
            Some(_) => State::Unknown,
        })
    }

    /// Returns whether an ignored path that the ignored snapshot does not hold did not exist.
    fn knows_absent(&self, path: &TreePath) -> bool {
        let data = self.ignored.as_ref().map(|ignored| &ignored.data);
        let listed = data.into_iter().flat_map(|data| data.not_kept.iter().flatten());
        let unknown = data.into_iter().flat_map(|data| &data.unknown);
        let mut there = listed.chain(unknown).cloned().map(PathText::into_bytes);
        self.lists_ignored && !there.any(|there| crate::path::is_within(path.as_bytes(), &there))
    }
}

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Entry(Entry),
    Absent,
    Unknown,
}

/// Files that are restored together or not at all.
struct Unit {
    /// Name in reports.
    name: Vec<u8>,
    members: BTreeSet<Vec<u8>>,
    /// File that the owning program creates again when needed, and that is never restored.
    transient: Vec<u8>,
    users: Users,
}

impl Unit {
    /// Returns whether a member is an empty log of an SQLite database, which has no effect.
    fn is_empty_log(&self, path: &[u8], entry: &Entry) -> bool {
        self.transient.ends_with(SHARED_MEMORY)
            && path != self.name
            && entry.kind.is_file()
            && entry.id == ObjectId::EMPTY_BLOB
    }
}

/// The present state, which requests and units are compared with.
struct Scene<'a> {
    hold: &'a Hold,
    now: Now<'a>,
    ignored: Option<IgnoredSnapshot>,
}

impl Hold {
    /// Removes units that would become inconsistent, files in use and PID files from a request.
    pub(super) fn keep_together(
        &self,
        tracked: &Recorded,
        request: &mut Request,
        sources: &mut [Source<'_>],
        on_use: OnUse,
    ) -> Result<(), Error> {
        let ignored = tracked.operation.meta.ignored_snapshot;
        let ignored = ignored.and_then(|id| read_ignored(&self.store.objects, &id).ok());
        let scene = Scene { hold: self, now: Now::of(&tracked.listing), ignored };
        let mut done: BTreeSet<Vec<u8>> = BTreeSet::new();
        for unit in scene.units(request, sources)? {
            done.extend(unit.members.iter().cloned());
            if scene.is_transient(&unit, request)? {
                done.insert(unit.transient.clone());
                // It is neither restored nor removed: a process may have it mapped.
                request.wanted.remove(&unit.transient);
            }
            let touched: Vec<&Vec<u8>> =
                unit.members.iter().filter(|path| scene.changes(request, path)).collect();
            if touched.is_empty() {
                continue;
            }
            let empty = scene.goes_together(&unit, request, sources)?;
            let reason = match (&empty, on_use) {
                (Some(_), OnUse::Replace) => None,
                (None, OnUse::Replace) => Some(KeptReason::Unit { of: escape(&unit.name) }),
                (Some(_), OnUse::Leave) => scene.use_of_unit(&unit, request),
                (None, OnUse::Leave) => {
                    let unchecked = request.not_checked.len();
                    let used = scene.use_of_unit(&unit, request);
                    request.not_checked.truncate(unchecked);
                    used.or_else(|| Some(KeptReason::Unit { of: escape(&unit.name) }))
                }
            };
            if let Some(reason) = reason {
                let touched: Vec<Vec<u8>> = touched.into_iter().cloned().collect();
                for path in touched {
                    leave(request, &path, &reason);
                }
                continue;
            }
            // A process that has the replaced database open must not share a log with the next one.
            for log in empty.into_iter().flatten().filter(|_| on_use == OnUse::Replace) {
                request.kept.retain(|kept| kept.path.as_bytes() != log);
                request.wanted.insert(log, Wanted::Absent);
            }
        }
        self.drop_process_files(&scene, request)?;
        if on_use == OnUse::Leave {
            scene.leave_used(request, &done);
        }
        Ok(())
    }

    /// Requests the removal of database logs that were created after the recorded state. A log is
    /// part of its database, so even a restore that keeps other new files removes it.
    ///
    /// An empty log has no effect and stays.
    pub(super) fn remove_logs_made_since(
        &self,
        tracked: &Recorded,
        request: &mut Request,
        source: &mut Source<'_>,
        options: &RestoreOptions,
    ) -> Result<(), Error> {
        let scene = Scene { hold: self, now: Now::of(&tracked.listing), ignored: None };
        let is_new = |kept: &&Kept| matches!(kept.reason, KeptReason::CreatedSince);
        let kept = request.kept.iter().filter(is_new).map(|kept| kept.path.as_bytes().to_vec());
        // Logs that are too large to be captured are not in the listing.
        let skipped = tracked.operation.meta.skipped.iter().map(|skipped| skipped.path.clone());
        for path in kept.chain(skipped).collect::<BTreeSet<Vec<u8>>>() {
            let main = database_of(&path);
            // Skipped paths may have names that no snapshot may hold.
            let (Ok(database), Ok(log)) = (TreePath::parse(main), TreePath::parse(&path)) else {
                continue;
            };
            if main == path || !is_asked_for(&database, &options.paths) {
                continue;
            }
            let is_database = match source.state(self, &database)? {
                State::Entry(then) => is_sqlite(&scene.head_of(&then)?),
                // The database itself is removed.
                State::Absent => {
                    request.wanted.get(main) == Some(&Wanted::Absent)
                        && is_sqlite(&scene.head(main))
                }
                State::Unknown => false,
            };
            let is_part = is_database && is_sqlite_log(&scene.head(&path));
            if is_part && source.state(self, &log)? == State::Absent {
                request.kept.retain(|kept| kept.path != log);
                request.wanted.insert(path, Wanted::Absent);
            }
        }
        Ok(())
    }

    /// Removes PID files from a request unless git tracks them.
    fn drop_process_files(&self, scene: &Scene<'_>, request: &mut Request) -> Result<(), Error> {
        let candidates: Vec<(Vec<u8>, Entry)> = request
            .wanted
            .iter()
            .filter(|(path, _)| path.to_ascii_lowercase().ends_with(b".pid"))
            .filter_map(|(path, wanted)| match wanted {
                Wanted::Entry { entry, .. } => Some((path.clone(), *entry)),
                Wanted::Absent => None,
            })
            .collect();
        if candidates.is_empty() {
            return Ok(());
        }
        let index = match &self.context.repo {
            Some(repo) => repo.index()?.0,
            None => None,
        };
        for (path, entry) in candidates {
            let (dir, name) = split(&path);
            let is_tracked = index.as_ref().is_some_and(|index| index.below(dir).tracks(name));
            let is_number = |bytes: &[u8]| {
                let text = bytes.trim_ascii();
                !text.is_empty() && text.len() <= 10 && text.iter().all(u8::is_ascii_digit)
            };
            let head = scene.head_of(&entry)?;
            if !is_tracked && is_number(&head) {
                leave(request, &path, &KeptReason::ProcessFile);
            }
        }
        Ok(())
    }
}

/// Returns the paths of a request directly in a directory.
fn wanted_in<'a>(request: &'a Request, dir: &'a [u8]) -> impl Iterator<Item = &'a Vec<u8>> {
    let from = request.wanted.range(dir.to_vec()..).map(|(path, _)| path);
    let within = from.take_while(move |path| path.starts_with(dir));
    within.filter(move |path| split(path).0 == dir)
}

/// Removes a path from a request and reports it as kept.
fn leave(request: &mut Request, path: &[u8], reason: &KeptReason) {
    if request.wanted.remove(path).is_some() {
        let path = TreePath::from_scan(path.to_vec());
        request.kept.push(Kept { path, reason: reason.clone() });
    }
}

impl Scene<'_> {
    /// Returns whether the request changes the content at a path.
    fn changes(&self, request: &Request, path: &[u8]) -> bool {
        match request.wanted.get(path) {
            None => false,
            Some(Wanted::Entry { entry, .. }) => match self.present(path) {
                State::Entry(there) => !there.is_same_content(entry),
                State::Absent | State::Unknown => true,
            },
            Some(Wanted::Absent) => self.present(path) != State::Absent,
        }
    }

    fn present(&self, path: &[u8]) -> State {
        if let NowAt::File { entry, .. } = self.now.at(path) {
            return State::Entry(entry);
        }
        if matches!(look(&self.hold.root, path), Ok(None)) {
            return State::Absent;
        }
        let kept = self.ignored.as_ref().and_then(|ignored| {
            let path = TreePath::from_scan(path.to_vec());
            find(&self.hold.store.objects, &ignored.tree, &path).ok().flatten()
        });
        kept.map_or(State::Unknown, State::Entry)
    }

    /// Checks that all members end up in the state of the same source. Returns the empty logs that
    /// the source does not have, which have no effect, or `None` if the members differ.
    fn goes_together(
        &self,
        unit: &Unit,
        request: &Request,
        sources: &mut [Source<'_>],
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        for source in sources {
            let (mut same, mut empty) = (true, Vec::new());
            for path in &unit.members {
                let after = match request.wanted.get(path) {
                    Some(Wanted::Entry { entry, .. }) => State::Entry(*entry),
                    Some(Wanted::Absent) => State::Absent,
                    None => self.present(path),
                };
                let then = source.state(self.hold, &TreePath::from_scan(path.clone()))?;
                // Permissions are not compared.
                same &= match (after, then) {
                    (State::Entry(after), State::Entry(then)) => after.id == then.id,
                    (State::Absent, State::Absent) => true,
                    (State::Entry(after), State::Absent) if unit.is_empty_log(path, &after) => {
                        empty.push(path.clone());
                        true
                    }
                    _ => false,
                };
            }
            if same {
                return Ok(Some(empty));
            }
        }
        Ok(None)
    }

    /// Returns whether the file that is never restored belongs to the unit by its content. The
    /// shared memory of a database may still be empty.
    fn is_transient(&self, unit: &Unit, request: &Request) -> Result<bool, Error> {
        let is_memory = |head: &[u8]| is_blank(head) || is_shared_memory_head(SHARED_MEMORY, head);
        Ok(!unit.transient.ends_with(SHARED_MEMORY)
            || self.has_content(request, &unit.transient, is_memory)?)
    }

    /// Returns whether the first bytes of a file, present or requested, satisfy a condition.
    fn has_content(
        &self,
        request: &Request,
        path: &[u8],
        is_such: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Error> {
        let is_present = self.size_of(path).is_some();
        Ok(match request.wanted.get(path) {
            Some(Wanted::Entry { entry, .. }) => {
                is_such(&self.head_of(entry)?) || (is_present && is_such(&self.head(path)))
            }
            Some(Wanted::Absent) | None => is_such(&self.head(path)),
        })
    }

    /// Returns the units that the request touches.
    fn units(&self, request: &Request, sources: &mut [Source<'_>]) -> Result<Vec<Unit>, Error> {
        let mut units: BTreeMap<Vec<u8>, Unit> = BTreeMap::new();
        let mut seen: BTreeSet<&[u8]> = BTreeSet::new();
        for (path, wanted) in &request.wanted {
            let main = database_of(path);
            if !units.contains_key(main) && self.is_database(request, main, path, wanted)? {
                let mut members = BTreeSet::from([main.to_vec()]);
                for log in SIDECARS.iter().map(|end| [main, end].concat()) {
                    if self.has_content(request, &log, may_be_log)? {
                        members.insert(log);
                    }
                }
                let transient = [main, SHARED_MEMORY].concat();
                let (name, users) = (main.to_vec(), Users::All);
                units.insert(main.to_vec(), Unit { name, members, transient, users });
            }
            let (dir, _) = split(path);
            let key = join(dir, b"CURRENT");
            if seen.insert(dir) && self.is_key_value_store(request, dir, sources)? {
                units.insert(key, self.key_value_store(request, dir));
            }
        }
        Ok(units.into_values().collect())
    }

    /// Returns whether `main` is an SQLite database, by its own first bytes, present or requested,
    /// or by those of the sidecar file `path`.
    fn is_database(
        &self,
        request: &Request,
        main: &[u8],
        path: &[u8],
        wanted: &Wanted,
    ) -> Result<bool, Error> {
        // The size of a database is a multiple of its page size, which is at least 512 bytes.
        let may_be = |bytes: u64| bytes >= 512 && bytes.is_multiple_of(512);
        if self.size_of(main).is_some_and(may_be) && is_sqlite(&self.head(main)) {
            return Ok(true);
        }
        let main_wanted = match request.wanted.get(main) {
            Some(Wanted::Entry { entry, .. }) => Some(*entry),
            Some(Wanted::Absent) | None => None,
        };
        if let Some(entry) = main_wanted.filter(|entry| entry.kind.is_file()) {
            let header = self.hold.store.objects.header(&entry.id)?;
            if header.is_some_and(|(_, bytes)| may_be(bytes)) && is_sqlite(&self.head_of(&entry)?) {
                return Ok(true);
            }
        }
        if main == path {
            return Ok(false);
        }
        let head = match wanted {
            Wanted::Entry { entry, .. } if entry.kind.is_file() => self.head_of(entry)?,
            Wanted::Entry { .. } | Wanted::Absent => self.head(path),
        };
        Ok(is_sqlite_log(&head))
    }

    /// Returns whether a directory holds a LevelDB or RocksDB database, now or in a source.
    fn is_key_value_store(
        &self,
        request: &Request,
        dir: &[u8],
        sources: &[Source<'_>],
    ) -> Result<bool, Error> {
        let current = join(dir, b"CURRENT");
        let is_manifest = |name: &[u8]| name.starts_with(b"MANIFEST-");
        let listed = self.listed(dir);
        if listed.iter().any(|name| is_manifest(name)) && listed.contains(&b"CURRENT".to_vec()) {
            return Ok(true);
        }
        if wanted_in(request, dir).any(|path| is_manifest(split(path).1)) {
            let path = TreePath::from_scan(current);
            for source in sources {
                if find(&self.hold.store.objects, &source.snapshot, &path)?.is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn key_value_store(&self, request: &Request, dir: &[u8]) -> Unit {
        let wanted = wanted_in(request, dir).cloned();
        let there = self.listed(dir).into_iter().map(|name| join(dir, &name));
        let transient = join(dir, b"LOCK");
        let members = wanted.chain(there).filter(|path| *path != transient).collect();
        Unit { name: dir.to_vec(), members, transient, users: Users::Writers }
    }

    /// Returns the names of the files in a directory that the scan entered.
    fn listed(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let dirs = &self.now.listing.dirs;
        let Ok(at) = dirs.binary_search_by(|listed| listed.path.as_slice().cmp(dir)) else {
            return Vec::new();
        };
        let files = dirs[at].entries.iter().filter(|entry| entry.content != Content::Directory);
        files.map(|entry| entry.name.to_vec()).collect()
    }

    /// Returns the reason to leave a unit alone, if a process has one of its files open.
    fn use_of_unit(&self, unit: &Unit, request: &mut Request) -> Option<KeptReason> {
        for path in unit.members.iter().chain([&unit.transient]) {
            match use_of(&self.hold.root, path, unit.users) {
                Some((InUse::Yes, process)) => return Some(KeptReason::InUse { process }),
                Some((InUse::Unknown, _)) => request.not_checked.push(path.clone()),
                Some((InUse::No, _)) | None => (),
            }
        }
        None
    }

    /// Removes the files that another process has open from the request.
    fn leave_used(&self, request: &mut Request, done: &BTreeSet<Vec<u8>>) {
        let others = request.wanted.keys().filter(|path| !done.contains(*path));
        let paths: Vec<Vec<u8>> =
            others.filter(|path| self.changes(request, path)).cloned().collect();
        for path in paths {
            match use_of(&self.hold.root, &path, Users::Writers) {
                Some((InUse::Yes, process)) => {
                    leave(request, &path, &KeptReason::InUse { process });
                }
                Some((InUse::Unknown, _)) => request.not_checked.push(path),
                Some((InUse::No, _)) | None => (),
            }
        }
    }

    fn size_of(&self, path: &[u8]) -> Option<u64> {
        let (parent, name) = split(path);
        self.hold.root.glimpse(parent)?.stat(name).map(|stat| stat.bytes)
    }

    /// Returns the first bytes of a file on disk, or nothing if it is unreadable.
    fn head(&self, path: &[u8]) -> Vec<u8> {
        let (parent, name) = split(path);
        let file = self.hold.root.open_below(parent).and_then(|dir| dir.open_file(name));
        let mut head = Vec::new();
        if let Ok(file) = file {
            // Errors are ignored: an unreadable file is not recognised as a database.
            file.take(HEAD_BYTES).read_to_end(&mut head).ok();
        }
        head
    }

    /// Returns the first bytes of a recorded file.
    fn head_of(&self, entry: &Entry) -> Result<Vec<u8>, Error> {
        self.hold.store.objects.blob_head(&entry.id, HEAD_BYTES)
    }
}
