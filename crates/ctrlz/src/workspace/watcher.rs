//! Control of the watcher of a work tree.

use std::path::PathBuf;

use crate::error::Error;
use crate::log::WorkTree;
use crate::watch::{self, Site, WatchEnd, WatchOptions, WatcherStatus};

use super::Workspace;

/// Control of a work tree's watcher.
pub struct WatcherControl<'a>(&'a Workspace);

impl Workspace {
    /// Returns a handle that starts, queries and stops the watcher of this work tree.
    pub fn watcher(&self) -> WatcherControl<'_> {
        WatcherControl(self)
    }
}

impl WatcherControl<'_> {
    /// Watches this work tree until the watcher ends. Calls `ready` with the number of directories.
    ///
    /// Returns at once if the work tree already has a watcher.
    pub fn run(
        &self,
        options: &WatchOptions,
        ready: &mut dyn FnMut(usize),
    ) -> Result<WatchEnd, Error> {
        self.0.context.check_enabled()?;
        let (store, work_tree) = self.0.for_writing()?;
        let scope = || self.0.context.watch_scope(&store);
        let site = Site { root: &self.0.context.root, dir: work_tree.watch_dir(), scope: &scope };
        watch::serve(&site, options, ready)
    }

    /// Returns the state of this work tree's watcher.
    pub fn status(&self) -> Result<WatcherStatus, Error> {
        self.dir()?.map_or(Ok(WatcherStatus::None), |dir| watch::status(&dir))
    }

    /// Returns whether to start the watcher: it is enabled, none is running, and none has just
    /// failed.
    pub fn is_wanted(&self) -> Result<bool, Error> {
        let Some(dir) = self.dir()? else { return Ok(false) };
        let is_wanted = self.0.context.options.enabled && self.0.context.options.watch;
        Ok(is_wanted && !watch::gave_up_recently(&dir) && !watch::is_locked(&dir)?)
    }

    /// Asks the watcher to end. Returns `false` if none responds.
    pub fn stop(&self) -> Result<bool, Error> {
        Ok(self.dir()?.is_some_and(|dir| watch::stop(&dir)))
    }

    /// Returns the watcher's directory, if the store exists and has this work tree.
    fn dir(&self) -> Result<Option<PathBuf>, Error> {
        let Some(claim) = self.0.claimed()? else { return Ok(None) };
        let dir = WorkTree::watch_dir_in(&self.0.store_of(&claim), &claim.work_tree);
        Ok(dir.parent().is_some_and(std::path::Path::is_dir).then_some(dir))
    }
}
