//! Applies plans: one restore per root, each with its own journal.

use std::cell::RefCell;
use std::path::Path;

use crate::compare::Now;
use crate::error::{Error, RestoreError};
use crate::fs::{Dir, FileKind, MODE_BITS};
use crate::git::{ObjectId, is_protected_name};
use crate::hold::Recovery;
use crate::path::{TreePath, escape, is_within};
use crate::record::StoreKeep;
use crate::restore::{Journal, Phase, Request, Site, apply, check_room, plan, recover};
use crate::scan::{Listing, ReadOutcome, read_entry};

use super::capture::{self, Capture, Outside, Root, full_path, path_of};
use super::planning::{PlannedRoot, want};
use super::reader::Budget;
use super::report::{OutsideChange, OutsideKept, RecoveredRepository};
use super::state::{State, Thing};
use super::{OutsidePlan, Prepared};

/// Result of applying a plan.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// All paths, each with its outcome.
    pub(crate) changes: Vec<OutsideChange>,
    /// Temporary names of replaced objects that could not be removed.
    pub(crate) left: Vec<String>,
}

/// Directory of a version control system, in its state before a step.
pub(crate) struct CapturedRepository {
    at_millis: u64,
    root: Root,
}

impl Outside<'_> {
    /// Saves the state that a plan replaces as a capture named `of`. Does not apply the plan.
    pub(crate) fn save_present(&self, prepared: &mut Prepared, of: &str) -> Result<(), Error> {
        let mut capture = capture::new(of);
        capture.roots = prepared.plan.roots.iter().map(root_of).collect();
        self.save(&capture, prepared.pack.take())
    }

    /// Applies a plan whose present state was saved as `of`. A root that fails is rolled back and
    /// reported; the other roots are still restored.
    pub(crate) fn put_back(&self, plan: OutsidePlan, of: &str) -> Finished {
        let mut finished = Finished { changes: plan.changes, left: Vec::new() };
        let capture =
            Capture { roots: plan.roots.iter().map(root_of).collect(), ..capture::new(of) };
        let capture = RefCell::new(capture);
        for (at, root) in plan.roots.iter().enumerate() {
            match self.put_root_back(&capture, at, root) {
                Ok(left) => finished.left.extend(left),
                Err(error) => {
                    let top = path_of(&full_path(&root.dir, &root.name));
                    finished.changes.retain(|change| change.root != top);
                    let kept = Some(OutsideKept::Failed { why: reason(&error) });
                    let (root, path) = (top.clone(), top);
                    finished.changes.push(OutsideChange { root, path, action: None, kept });
                }
            }
        }
        let mut capture = capture.into_inner();
        // Best effort: without it, redo compares with the state at that time.
        let noted = self.note_after(&mut capture, Budget::present());
        drop(noted.and_then(|()| self.keep_if_changed(&capture)));
        finished
    }

    /// Applies the plan of one root. Returns the temporary names that could not be removed.
    fn put_root_back(
        &self,
        capture: &RefCell<Capture>,
        at: usize,
        root: &PlannedRoot,
    ) -> Result<Vec<String>, Error> {
        let dir = Dir::open_real(&path_of(&root.dir))?;
        check_room(&self.store.objects, &path_of(&root.dir), &root.plan)?;
        let of = capture.borrow().of.clone();
        let rescue = |dir: &Dir, name: &[u8], path: &[u8]| {
            self.rescue(&mut capture.borrow_mut(), at, (dir, name, path))
        };
        let (journal, threads) = (self.journal_path(&of, at), self.threads.max(1));
        let site = Site { root: &dir, journal: &journal, threads, rescue: &rescue };
        let journal = Journal::of(&root.plan, ObjectId::EMPTY_TREE);
        let applied = apply(&site, &self.store.objects, &root.plan, journal)?;
        Ok(applied.left.iter().map(|path| escape(&full_path(&root.dir, path))).collect())
    }

    /// Saves a file that another process modified at the last moment, for redo to restore.
    fn rescue(
        &self,
        capture: &mut Capture,
        at: usize,
        (dir, name, path): (&Dir, &[u8], &[u8]),
    ) -> Result<(), Error> {
        let moved = || Error::moved(path);
        let pack = self.pack();
        let keep = StoreKeep::new(self.store, &pack);
        let kind = dir.stat(name)?.ok_or_else(moved)?.kind;
        let ReadOutcome::Read { stat, id, .. } = read_entry(dir, name, kind, &keep)? else {
            return Err(moved());
        };
        let thing = match stat.kind {
            FileKind::Symlink => Thing::Link(id),
            _ => Thing::File { mode: stat.mode & MODE_BITS, id, stamp: None },
        };
        let root = capture.roots.get_mut(at).ok_or_else(moved)?;
        root.before.0.insert(path.to_vec(), thing);
        self.save(capture, Some(pack))
    }

    /// Completes or rolls back the restores that a killed process left unfinished. If the directory
    /// cannot be opened, the next command tries again.
    pub(crate) fn recover(&self) -> Result<Option<Recovery>, Error> {
        let mut recovered: Option<Recovery> = None;
        for path in self.files()? {
            let Some((key, at)) = journal_key(&path) else { continue };
            let Some(journal) = Journal::load(&path)? else { continue };
            let capture = self.load_key(&key)?;
            let is_ours = !self.only_originals || journal.is_original(&path);
            let root = capture.as_ref().and_then(|capture| capture.roots.get(at));
            let root = root.filter(|root| is_ours && covers(root, &journal));
            let (Some(capture), Some(root)) = (&capture, root) else {
                Journal::set_aside(&path)?;
                continue;
            };
            let dir = match Dir::open_real(&root.dir()) {
                Ok(dir) => dir,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    // The staged files were removed together with the directory.
                    Journal::remove(&path)?;
                    continue;
                }
                Err(_) => continue,
            };
            let place = root.dir.clone();
            let capture = RefCell::new(capture.clone());
            let rescue = |dir: &Dir, name: &[u8], path: &[u8]| {
                self.rescue(&mut capture.borrow_mut(), at, (dir, name, path))
            };
            let Ok(applied) = recover(&dir, &journal, &path, &rescue) else { continue };
            let mut capture = capture.into_inner();
            for root in &mut capture.roots {
                root.after = None;
            }
            self.note_after(&mut capture, Budget::present())?;
            self.keep_if_changed(&capture)?;
            let all = recovered.get_or_insert_default();
            let shown = |path: &Vec<u8>| escape(&full_path(&place, path));
            all.files += journal.units.len() as u64;
            all.finished |= journal.phase == Phase::Swapping;
            all.kept.extend(applied.kept.iter().map(shown));
            all.left.extend(applied.left.iter().map(shown));
        }
        Ok(recovered)
    }

    /// Returns the newest captured directory of a version control system that a step changed.
    pub(crate) fn captured_repository(&self) -> Result<Option<CapturedRepository>, Error> {
        let mut newest: Option<CapturedRepository> = None;
        for (key, _) in self.keys()? {
            let Some(capture) = self.load_key(&key)? else { continue };
            let is_whole = |root: &&Root| root.repository && !root.before.0.is_empty();
            for root in capture.roots.iter().filter(is_whole) {
                let at_millis = capture.at_millis;
                if newest.as_ref().is_none_or(|newest| newest.at_millis < at_millis) {
                    newest = Some(CapturedRepository { at_millis, root: root.clone() });
                }
            }
        }
        Ok(newest)
    }

    /// Writes a captured directory to the empty directory `into`.
    pub(crate) fn write_repository(
        &self,
        captured: CapturedRepository,
        into: &Path,
    ) -> Result<RecoveredRepository, Error> {
        let CapturedRepository { at_millis, root } = captured;
        let top = repository_dir(&root.path());
        let (mut request, mut missing) = (Request::default(), Vec::new());
        for (path, thing) in &root.before.0 {
            let full = full_path(&root.dir, path);
            let relative = full.get(top.len() + 1..).unwrap_or_default().to_vec();
            let is_nested = relative.split(|byte| *byte == b'/').any(is_protected_name);
            match thing {
                Thing::LeftOut { why, .. } => missing.push((path_of(&full), why.clone())),
                _ if relative.is_empty() => (),
                _ if is_nested => {
                    missing.push((path_of(&full), "a repository inside of a repository".into()));
                }
                _ => want(&mut request, relative, None, Some(thing)),
            }
        }
        request.common_dir_mode = 0o755;
        let plan = plan(&Now::of(&Listing::default()), &request);
        let files = plan.blobs().count() as u64;
        let of = format!("recover:{}", crate::log::new_id());
        let (dir, name) = (into.as_os_str(), b".".to_vec());
        let dir = std::os::unix::ffi::OsStrExt::as_bytes(dir).to_vec();
        let planned = PlannedRoot { dir, name, database: false, now: State::default(), plan };
        let mut journaled = capture::new(&of);
        journaled.roots = vec![root_of(&planned)];
        self.save(&journaled, None)?;
        let capture = RefCell::new(journaled);
        let written = self.put_root_back(&capture, 0, &planned);
        if !matches!(written, Err(Error::Restore(RestoreError::Interrupted { .. }))) {
            self.forget_step(&of)?;
        }
        written?;
        let (from, into) = (path_of(&top), into.to_owned());
        Ok(RecoveredRepository { from, into, at_millis, files, missing })
    }
}

/// Returns the directory of the version control system that contains a path.
fn repository_dir(path: &[u8]) -> Vec<u8> {
    let mut top = Vec::new();
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        top = [top.as_slice(), b"/", part].concat();
        if is_protected_name(part) {
            break;
        }
    }
    top
}

/// Returns a capture root for the state that a plan replaces.
fn root_of(planned: &PlannedRoot) -> Root {
    Root {
        dir: planned.dir.clone(),
        name: planned.name.clone(),
        repository: false,
        database: planned.database,
        before: planned.now.clone(),
        after: None,
    }
}

/// Returns whether a journal changes nothing but the captured path and what is below it.
fn covers(root: &Root, journal: &Journal) -> bool {
    let names = root.names();
    let is_part = |path: TreePath| names.iter().any(|name| is_within(path.as_bytes(), name));
    !root.repository && (root.name == b"." || journal.paths().into_iter().all(is_part))
}

/// Returns the capture key and the root index that a journal belongs to.
fn journal_key(path: &Path) -> Option<(String, usize)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".journal")?;
    let (key, at) = name.rsplit_once('.')?;
    Some((key.to_owned(), at.parse().ok()?))
}

/// Returns the description of the innermost cause of an error.
fn reason(error: &Error) -> String {
    match error {
        Error::Restore(RestoreError::RolledBack { cause }) => reason(cause),
        Error::File(error) => format!("{error}: {}", error.source),
        other => other.to_string(),
    }
}
