//! Starts, queries and stops the watcher of this work tree.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::error::Error;
use crate::fs::Named;
use crate::log::WorkTree;
use crate::watch::{self, Site, WatchEnd, WatchOptions, Watcher, WatcherStatus};

use super::Workspace;

impl Workspace {
    /// Watches this work tree until the watcher ends. Calls `ready` with the number of directories.
    ///
    /// Returns at once if the work tree already has a watcher.
    pub fn watch(
        &self,
        options: &WatchOptions,
        ready: &mut dyn FnMut(usize),
    ) -> Result<WatchEnd, Error> {
        self.context.check_enabled()?;
        self.watch_until(options, ready, None)
    }

    /// Watches this work tree on a thread of this process until the returned value is dropped.
    ///
    /// For long-lived agents. Other callers start a process that calls [`Workspace::watch`].
    pub fn watch_in_background(&self, options: &WatchOptions) -> Result<Watcher, Error> {
        self.context.check_enabled()?;
        let workspace = Workspace::open(&self.context.root, self.context.options.clone())?;
        let options = options.clone();
        let watcher = Watcher::start(move |ready, stopped| {
            workspace.watch_until(&options, ready, Some(stopped))
        });
        Ok(watcher.named("watch", &self.context.root)?)
    }

    /// Returns the state of this work tree's watcher.
    pub fn watcher(&self) -> Result<WatcherStatus, Error> {
        self.watch_dir()?.map_or(Ok(WatcherStatus::None), |dir| watch::status(&dir))
    }

    /// Returns whether to start a watcher: it is enabled, none is running, and none has just
    /// failed.
    pub fn wants_watcher(&self) -> Result<bool, Error> {
        let Some(dir) = self.watch_dir()? else { return Ok(false) };
        let is_wanted = self.context.options.enabled && self.context.options.watch;
        Ok(is_wanted && !watch::gave_up_recently(&dir) && !watch::is_locked(&dir)?)
    }

    /// Asks the watcher to end. Returns `false` if none responds.
    pub fn stop_watcher(&self) -> Result<bool, Error> {
        Ok(self.watch_dir()?.is_some_and(|dir| watch::stop(&dir)))
    }

    /// Returns the watcher's directory, if the store exists and has this work tree.
    fn watch_dir(&self) -> Result<Option<PathBuf>, Error> {
        let Some(claim) = self.claimed()? else { return Ok(None) };
        let dir = WorkTree::watch_dir_in(&self.store_of(&claim), &claim.work_tree);
        Ok(dir.parent().is_some_and(std::path::Path::is_dir).then_some(dir))
    }

    fn watch_until(
        &self,
        options: &WatchOptions,
        ready: &mut dyn FnMut(usize),
        stopped: Option<&UnixStream>,
    ) -> Result<WatchEnd, Error> {
        let (store, work_tree) = self.for_writing()?;
        let scope = || self.context.watch_scope(&store);
        let site = Site { root: &self.context.root, dir: work_tree.watch_dir(), scope: &scope };
        watch::serve(&site, options, ready, stopped)
    }
}
