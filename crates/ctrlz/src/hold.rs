//! One command's hold on a work tree: its options, its store and the locks.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, RecordError};
use crate::fs::private::read_small_linked;
use crate::fs::{Dir, absolute};
use crate::log::{Lists, OpenGap, OpenStep, OuterRules, WorkTree, load_steps, save_steps};
use crate::options::Options;
use crate::path::is_within;
use crate::scan::store_around;
use crate::store::{Head, Lock, MAX_LIST_BYTES, Store, UserRepo, set_aside};

/// A work tree and the options that it was opened with.
#[derive(Debug)]
pub(crate) struct Context {
    /// The canonical path.
    pub(crate) root: PathBuf,
    pub(crate) options: Options,
    pub(crate) repo: Option<UserRepo>,
}

impl Context {
    /// Fails if snapshots are disabled. Recorded states can still be restored.
    pub(crate) fn check_enabled(&self) -> Result<(), Error> {
        if self.options.enabled {
            Ok(())
        } else {
            Err(Error::Record(RecordError::Disabled { path: self.root.clone() }))
        }
    }

    /// Returns the directories of the work tree that no snapshot enters: the store, and the user's
    /// repository where it is not called `.git`.
    pub(crate) fn forbidden(&self, store: &Store) -> Vec<Vec<u8>> {
        let own = self.repo.as_ref().map(UserRepo::own_dirs).unwrap_or_default();
        let inside = |dir: PathBuf| {
            let inside = dir.strip_prefix(&self.root).ok()?;
            Some(std::os::unix::ffi::OsStrExt::as_bytes(inside.as_os_str()).to_vec())
        };
        let path = absolute(store.path());
        let is_inside = path.starts_with(&self.root);
        let aside = if is_inside { set_aside(&path) } else { Vec::new() };
        let dirs = own.into_iter().chain(aside).chain([path]);
        dirs.filter_map(inside).filter(|path| !path.is_empty()).collect()
    }

    /// Returns the ignore rules from outside the work tree, from the weakest to the strongest.
    pub(crate) fn outer_rules(&self, store: &Store) -> Result<OuterRules, Error> {
        let mut private = Vec::new();
        if let Some(file) = &self.options.excludes_file {
            // Like git, ignores a file that cannot be read.
            let text = read_small_linked(file, MAX_LIST_BYTES).ok().flatten();
            private.push(text.unwrap_or_default());
        }
        private.extend(self.repo.as_ref().map(|repo| repo.info("exclude")));
        let lists = Lists { private, store: store.exclude()? };
        let Options { exclude, include_ignored, .. } = &self.options;
        Ok(OuterRules::new(store, &lists, exclude, include_ignored))
    }
}

/// The outcome of a restore that a killed process left unfinished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The number of its paths.
    pub files: u64,
    /// Whether it was finished. Otherwise it was rolled back and no file changed.
    pub finished: bool,
    /// Paths that were changed in between and left alone.
    pub kept: Vec<String>,
    /// Replaced files that differ from the saved ones and are kept under these names.
    pub left: Vec<String>,
}

/// One command's hold on a work tree.
pub(crate) struct Hold {
    pub(crate) context: Arc<Context>,
    pub(crate) store: Store,
    pub(crate) work_tree: WorkTree,
    pub(crate) root: Dir,
    pub(crate) head: Option<Head>,
    pub(crate) recovered: Option<Recovery>,
    pub(crate) lock: Lock,
    pub(crate) shared: Lock,
}

impl Hold {
    /// Returns the open steps. Those whose process died are marked as abandoned.
    pub(crate) fn open_steps(&self) -> Result<Vec<OpenStep>, Error> {
        let mut open = load_steps(&self.work_tree.steps_path())?;
        for step in &mut open {
            step.abandoned |= step.is_orphan();
        }
        Ok(open)
    }

    /// Drops abandoned steps, once a snapshot has credited them.
    pub(crate) fn drop_abandoned(&self) -> Result<(), Error> {
        let open = self.open_steps()?;
        if open.iter().any(|step| step.abandoned) {
            let open: Vec<OpenStep> = open.into_iter().filter(|step| !step.abandoned).collect();
            self.save_steps(&open)?;
        }
        Ok(())
    }

    /// Returns the gap that the next operation closes, if agents worked without being recorded.
    pub(crate) fn open_gap(&self) -> Result<Option<OpenGap>, Error> {
        open_gap(&self.store, &self.work_tree)
    }

    /// Removes the gap once all changes are recorded.
    ///
    /// Best effort: a newer operation voids it as well.
    pub(crate) fn close_gap(&self) {
        drop(OpenGap::forget(&self.work_tree.gap_path()));
    }

    pub(crate) fn save_steps(&self, steps: &[OpenStep]) -> Result<(), Error> {
        save_steps(&self.work_tree.steps_path(), steps)
    }

    /// Returns the ignore rules from outside the work tree.
    pub(crate) fn outer_rules(&self) -> Result<OuterRules, Error> {
        self.context.outer_rules(&self.store)
    }

    /// Returns the directories that no snapshot enters.
    pub(crate) fn forbidden(&self) -> Vec<Vec<u8>> {
        self.context.forbidden(&self.store)
    }

    /// Returns whether `path` is or lies in one of the `forbidden` directories or any other store.
    pub(crate) fn is_forbidden(&self, forbidden: &[Vec<u8>], path: &[u8]) -> bool {
        forbidden.iter().any(|dir| is_within(path, dir)) || store_around(&self.root, path).is_some()
    }
}

/// Returns the gap that the next operation of a work tree closes.
pub(crate) fn open_gap(store: &Store, work_tree: &WorkTree) -> Result<Option<OpenGap>, Error> {
    let Some(open) = OpenGap::load(&work_tree.gap_path()) else { return Ok(None) };
    let last = work_tree.last(store)?;
    Ok(last.is_some_and(|last| last.id == open.after).then_some(open))
}
