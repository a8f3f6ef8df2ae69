//! Reads the state of a path and everything below it, without following symlinks and within limits.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, MODE_BITS, Stat};
use crate::git::{ObjectId, Verdict, is_protected_name};
use crate::path::{join, split};
use crate::scan::{
    Content, EntryStat, Keep, ListedDir, ListedEntry, Listing, ReadOutcome, SkipReason, TreeState,
    parts_of, read_entry, reread_databases, with_sidecars,
};

use super::state::{Stamp, State, Thing};

/// Limits on the files, bytes and time of a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    files: usize,
    bytes: u64,
    until: Instant,
}

impl Budget {
    /// Returns the limits for all paths that one tool call names.
    pub(super) fn plain() -> Budget {
        Budget::of(10_000, 64 << 20)
    }

    /// Returns the limits for the state that an undo replaces, which must be saved first. No client
    /// waits for it, so they are higher.
    pub(super) fn present() -> Budget {
        let until = Instant::now() + Duration::from_secs(60);
        Budget { until, ..Budget::of(100_000, 4 << 30) }
    }

    /// Returns the limits for the directory of a version control system that a tool call names.
    pub(super) fn repository() -> Budget {
        Budget::of(50_000, 512 << 20)
    }

    /// Returns the same limits, with the time reduced to `time` if that is shorter.
    pub(super) fn within(self, time: Option<Duration>) -> Budget {
        let until = time.map_or(self.until, |time| self.until.min(Instant::now() + time));
        Budget { until, ..self }
    }

    /// The time limit is 3 seconds: a client waits 5 seconds for a hook, and the work tree has to
    /// be recorded as well.
    fn of(files: usize, bytes: u64) -> Budget {
        Budget { files, bytes, until: Instant::now() + Duration::from_secs(3) }
    }

    fn take_names(&mut self, names: usize) -> Result<(), String> {
        match self.files.checked_sub(names) {
            Some(left) => self.files = left,
            None => return Err(format!("{names} files in it, more than are captured")),
        }
        Ok(())
    }

    fn take_bytes(&mut self, bytes: u64) -> Result<(), String> {
        if Instant::now() > self.until {
            return Err("reading took too long".into());
        }
        match self.bytes.checked_sub(bytes) {
            Some(left) => self.bytes = left,
            None => return Err(format!("{bytes} bytes, more than are captured")),
        }
        Ok(())
    }
}

/// Reads states within a budget.
pub(super) struct Reader<'a> {
    pub(super) keep: &'a dyn Keep,
    pub(super) budget: Budget,
    /// Directories that are treated as absent: the work tree and the data directory.
    pub(super) omit: &'a [PathBuf],
}

/// A state, with the information that a restore needs.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) state: State,
    pub(super) listing: Listing,
    /// Whether the directory that contains the path exists.
    pub(super) has_dir: bool,
    /// Repositories below the path; the state contains only their names.
    pub(super) repositories: Vec<Vec<u8>>,
}

/// Whether repository directories are read like any other directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    Files,
    Repository,
}

impl Reader<'_> {
    /// Reads `names` in the directory `dir`, and everything below them. A file whose metadata
    /// equals that in `known` is not read again.
    pub(super) fn read(
        &mut self,
        dir: &Path,
        names: &[Vec<u8>],
        inside: Inside,
        known: Option<&State>,
    ) -> Result<Seen, Error> {
        let (dirs, waiting, seen) = Default::default();
        let mut reading =
            Reading { place: dir, inside, known, trusted: false, dirs, waiting, seen };
        let root = match Dir::open_real(dir) {
            Ok(root) => root,
            // Without its directory, the path certainly does not exist.
            Err(error) if is_absence(&error) => return Ok(reading.seen),
            Err(error) => {
                for name in names {
                    reading.leave_out(name, error.source.to_string(), None);
                }
                return Ok(reading.seen);
            }
        };
        reading.seen.has_dir = true;
        reading.trusted = root.trust().is_ok_and(|trust| trust.stat);
        reading.dirs.insert(Vec::new(), (EntryStat::from(&root.stat_self()?), Vec::new()));
        for name in names {
            reading.entry(self, &root, b"", name)?;
        }
        // The names are those of a database and its sidecar files, or a single one.
        let database = names.first().filter(|_| names.len() > 1);
        reading.reread_databases(self, &root, b"", database.as_slice())?;
        // Breadth first, so that a limit cuts off the deepest directories.
        while let Some(path) = reading.waiting.pop_front() {
            reading.directory(self, &root, &path)?;
        }
        Ok(reading.finish())
    }
}

/// Returns whether the error proves that nothing exists at the path.
fn is_absence(error: &FileError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    [NotFound, NotADirectory].contains(&error.kind())
}

struct Reading<'a> {
    /// Directory that contains the path.
    place: &'a Path,
    inside: Inside,
    known: Option<&'a State>,
    /// Whether unchanged metadata proves unchanged content on this file system.
    trusted: bool,
    dirs: BTreeMap<Vec<u8>, (EntryStat, Vec<ListedEntry>)>,
    /// Directories that were found but not yet read.
    waiting: VecDeque<Vec<u8>>,
    seen: Seen,
}

impl Reading<'_> {
    fn leave_out(&mut self, path: &[u8], why: String, stamp: Option<Stamp>) {
        self.seen.state.0.insert(path.to_vec(), Thing::LeftOut { why, stamp });
    }

    fn directory(&mut self, reader: &mut Reader<'_>, root: &Dir, path: &[u8]) -> Result<(), Error> {
        let opened = root.open_below(path).and_then(|dir| {
            let (stat, names) = (dir.stat_self()?, dir.names()?);
            Ok((dir, stat, names))
        });
        let (dir, stat, mut names) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let why = match error.kind() {
                    std::io::ErrorKind::CrossesDevices => SkipReason::OtherMount.to_string(),
                    _ => format!("unreadable directory: {}", error.source),
                };
                self.mark_listed(path, SkipReason::OtherMount);
                self.leave_out(path, why, None);
                return Ok(());
            }
        };
        if let Err(why) = reader.budget.take_names(names.len()) {
            self.mark_listed(path, SkipReason::TooLarge { bytes: 0 });
            self.leave_out(path, why, None);
            return Ok(());
        }
        names.sort_unstable();
        self.dirs.insert(path.to_vec(), (EntryStat::from(&stat), Vec::new()));
        for name in &names {
            self.entry(reader, &dir, path, name)?;
        }
        let databases = with_sidecars(names.iter().map(Vec::as_slice));
        self.reread_databases(reader, &dir, path, &databases)
    }

    /// Replaces the states of databases and their sidecar files by those of one moment.
    fn reread_databases(
        &mut self,
        reader: &Reader<'_>,
        dir: &Dir,
        parent: &[u8],
        databases: &[impl AsRef<[u8]>],
    ) -> Result<(), Error> {
        let Some((_, entries)) = self.dirs.get_mut(parent) else { return Ok(()) };
        reread_databases(dir, databases, entries, reader.keep)?;
        for name in databases.iter().flat_map(|main| parts_of(main.as_ref())) {
            let path = join(parent, &name);
            let things = &mut self.seen.state.0;
            let Some(Thing::File { .. }) = things.get(&path) else { continue };
            let thing = match entries.iter().find(|entry| *entry.name == *name) {
                None => None,
                Some(ListedEntry { content: Content::Known(id), stat, racy, .. }) => {
                    Some(file(stat, *id, self.trusted && !racy))
                }
                Some(_) => {
                    Some(Thing::LeftOut { why: SkipReason::Unstable.to_string(), stamp: None })
                }
            };
            match thing {
                Some(thing) => drop(things.insert(path, thing)),
                None => drop(things.remove(&path)),
            }
        }
        Ok(())
    }

    /// Marks a directory in the listing as not entered.
    fn mark_listed(&mut self, path: &[u8], reason: SkipReason) {
        let (parent, name) = split(path);
        let entries = self.dirs.get_mut(parent).map(|(_, entries)| entries);
        let entry = entries.and_then(|all| all.iter_mut().find(|entry| *entry.name == *name));
        if let Some(entry) = entry {
            entry.content = Content::Skipped(reason);
        }
    }

    fn entry(
        &mut self,
        reader: &mut Reader<'_>,
        dir: &Dir,
        parent: &[u8],
        name: &[u8],
    ) -> Result<(), Error> {
        let path = join(parent, name);
        let full = self.place.join(std::ffi::OsStr::from_bytes(&path));
        if reader.omit.contains(&full) {
            return Ok(());
        }
        let stat = match dir.stat(name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.leave_out(&path, error.source.to_string(), None);
                return Ok(());
            }
        };
        let is_repository = self.inside == Inside::Files && is_protected_name(name);
        let (thing, stat, content, racy) = match stat.kind {
            _ if is_repository => {
                self.seen.repositories.push(path.clone());
                let content = Content::Skipped(SkipReason::ProtectedName);
                (Thing::Repository, EntryStat::from(&stat), content, true)
            }
            FileKind::Dir => {
                self.waiting.push_back(path.clone());
                let mode = stat.mode & MODE_BITS;
                (Thing::Dir(mode), EntryStat::from(&stat), Content::Directory, true)
            }
            FileKind::File | FileKind::Symlink => match self.content(reader, dir, &path, &stat)? {
                Some(read) => read,
                None => return Ok(()),
            },
            FileKind::Special => left_out(&stat, SkipReason::Special.to_string()),
        };
        self.seen.state.0.insert(path, thing);
        let name = name.to_vec().into_boxed_slice();
        let entry = ListedEntry { name, stat, content, verdict: Verdict::Plain, racy };
        if let Some((_, entries)) = self.dirs.get_mut(parent) {
            entries.push(entry);
        }
        Ok(())
    }

    /// Reads a file or symlink. Returns `None` if it no longer exists.
    fn content(
        &self,
        reader: &mut Reader<'_>,
        dir: &Dir,
        path: &[u8],
        stat: &Stat,
    ) -> Result<Option<Found>, Error> {
        let name = split(path).1;
        let now = EntryStat::from(stat);
        if let Some(Thing::File { id, stamp: Some(stamp), .. }) =
            self.known.and_then(|known| known.0.get(path))
            && *stamp == Stamp::from(&now)
            && reader.keep.has(id)
        {
            let (mode, stamp) = (stat.mode & MODE_BITS, Some(*stamp));
            let thing = Thing::File { mode, id: *id, stamp };
            return Ok(Some((thing, now, Content::Known(*id), false)));
        }
        if let Err(why) = reader.budget.take_bytes(stat.bytes) {
            return Ok(Some(left_out(stat, why)));
        }
        Ok(match read_entry(dir, name, stat.kind, reader.keep)? {
            ReadOutcome::Read { stat, id, racy } => {
                let thing = match stat.kind {
                    FileKind::Symlink => Thing::Link(id),
                    _ => file(&stat, id, self.trusted && !racy),
                };
                Some((thing, stat, Content::Known(id), racy))
            }
            ReadOutcome::Gone => None,
            ReadOutcome::Skip(reason) => Some(left_out(stat, reason.to_string())),
        })
    }

    fn finish(self) -> Seen {
        let dirs = self.dirs.into_iter().map(|(path, (stat, mut entries))| {
            entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            ListedDir {
                path,
                stat,
                settled: false,
                rules: 0,
                in_ignored: false,
                tree: TreeState::Unknown,
                entries,
            }
        });
        let listing = Listing { dirs: dirs.collect(), ..Listing::default() };
        Seen { listing, ..self.seen }
    }
}

type Found = (Thing, EntryStat, Content, bool);

/// Returns the state of a file. `is_proven` says whether its metadata proves its content.
fn file(stat: &EntryStat, id: ObjectId, is_proven: bool) -> Thing {
    Thing::File { mode: stat.mode & MODE_BITS, id, stamp: is_proven.then(|| Stamp::from(stat)) }
}

fn left_out(stat: &Stat, why: String) -> Found {
    let now = EntryStat::from(stat);
    let content = Content::Skipped(SkipReason::Unreadable { error: why.clone() });
    (Thing::LeftOut { why, stamp: Some(Stamp::from(&now)) }, now, content, true)
}
