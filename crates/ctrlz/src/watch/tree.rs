//! The directories of a work tree under watch, and the paths in them that became dirty.
//!
//! A [`WatchTree`] watches every directory that a scan enters. A directory is watched *before* it
//! is listed, so that no later change is missed. A directory that is created, moved or removed is
//! dirty as a whole, which covers everything that happened in it before. The set may be larger than
//! the directories of a scan: a snapshot judges dirty paths again.
//!
//! If events are lost (queue overflow, changed ignore rules, too many directories), every method
//! says so and all earlier cursors are invalid.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, Named, NamedKind, random_name};
use crate::git::{Rules, TrackedDirs, Verdict, is_protected_name};
use crate::path::{is_within, join, split};
use crate::scan::{is_store, rule_text_in};

use super::kernel::{Event, EventKind, NotWatched, Queue};

/// The number of dirty paths that are remembered. Beyond that, a full scan is as fast.
const MAX_DIRTY: usize = 20_000;

/// The directories that a scan enters.
pub(crate) struct Scope {
    /// Rules from outside the work tree.
    pub(crate) rules: Arc<Rules>,
    /// Directories that are never entered.
    pub(crate) forbidden: Vec<Vec<u8>>,
    /// The directories with files in the index of the user's git.
    pub(crate) tracked: TrackedDirs,
}

/// A position in the sequence of changes that one watcher sees.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Cursor {
    /// Identifies the watcher since it last lost events.
    instance: String,
    count: u64,
}

/// The reason why all earlier cursors are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The kernel dropped events.
    Overflow,
    /// An ignore file changed.
    Rules,
    /// The work tree has more directories than may be watched.
    TooMany,
    /// The work tree was removed or replaced.
    Root,
}

/// The error of a [`WatchTree`].
#[derive(Debug)]
pub(super) enum Failure {
    Lost(Lost),
    Other(Error),
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Failure {
        Failure::Lost(lost)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure::Other(error.into())
    }
}

struct Watched {
    watch: i32,
    /// The rules for its entries.
    rules: Arc<Rules>,
    /// Whether it is ignored, and entered only for files that git tracks.
    ignored: bool,
    /// Whether it is a store of ctrlz, below which nothing is watched.
    is_store: bool,
}

/// The directories under watch, and the dirty paths in them.
pub(super) struct WatchTree {
    root: PathBuf,
    queue: Queue,
    scope: Scope,
    max_dirs: usize,
    by_watch: HashMap<i32, Vec<u8>>,
    dirs: BTreeMap<Vec<u8>, Watched>,
    dirty: BTreeMap<Vec<u8>, u64>,
    now: Cursor,
    /// Dirty paths up to this count were dropped.
    floor: u64,
    /// The directory of the cookie files that [`WatchTree::sync`] creates.
    cookies: (i32, PathBuf),
}

impl WatchTree {
    /// Watches the work tree at `root`. `cookies` is a directory of the store.
    pub(super) fn new(
        root: &Path,
        cookies: &Path,
        scope: Scope,
        max_dirs: usize,
    ) -> Result<WatchTree, Failure> {
        let queue = Queue::new().named("watch", root)?;
        let cookie_watch = queue.watch(&Dir::open(cookies)?).map_err(|_| Lost::TooMany)?;
        let mut tree = WatchTree {
            root: root.to_owned(),
            queue,
            scope,
            max_dirs,
            by_watch: HashMap::new(),
            dirs: BTreeMap::new(),
            dirty: BTreeMap::new(),
            now: Cursor { instance: random_name() + &random_name(), count: 0 },
            floor: 0,
            cookies: (cookie_watch, cookies.to_owned()),
        };
        let rules = Arc::clone(&tree.scope.rules);
        tree.watch_below(b"", &rules, false)?;
        if tree.dirs.contains_key(&b""[..]) { Ok(tree) } else { Err(Lost::Root.into()) }
    }

    /// Returns the event queue, for polling.
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the number of watched directories.
    pub(super) fn dirs(&self) -> usize {
        self.dirs.len()
    }

    /// Processes the events in the queue.
    pub(super) fn take_events(&mut self) -> Result<(), Failure> {
        for event in self.queue.take().named("watch", &self.root)? {
            if event.watch != self.cookies.0 {
                self.take(&event)?;
            }
        }
        Ok(())
    }

    /// Processes all events before this call. A cookie file that is created now is reported after
    /// all earlier events, because the queue is in order.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        let name = format!("sign-{}", random_name());
        let path = self.cookies.1.join(&name);
        drop(crate::fs::private::create(&path)?);
        std::fs::remove_file(&path).named("remove", &path)?;
        let mut seen = false;
        while !seen {
            let events = self.queue.take().named("watch", &self.root)?;
            if events.is_empty() {
                // The kernel queues an event before the call that caused it returns.
                return Err(Lost::Overflow.into());
            }
            for event in events {
                if event.watch == self.cookies.0 {
                    use EventKind::{Forgotten, Gone, Unmounted};
                    seen |= event.name.as_deref() == Some(name.as_bytes());
                    if matches!(event.kind, Gone | Forgotten | Unmounted) {
                        return Err(Lost::Root.into());
                    }
                } else {
                    self.take(&event)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the present cursor.
    pub(super) fn now(&self) -> Cursor {
        self.now.clone()
    }

    /// Returns the paths that may have changed since `cursor`, or `None` if they are not known.
    /// Drops older dirty paths: the client has recorded them.
    pub(super) fn since(&mut self, cursor: &Cursor) -> Option<Vec<Vec<u8>>> {
        let is_known = cursor.instance == self.now.instance
            && (self.floor..=self.now.count).contains(&cursor.count);
        if !is_known {
            return None;
        }
        self.floor = cursor.count;
        self.dirty.retain(|_, count| *count > cursor.count);
        Some(self.dirty.keys().cloned().collect())
    }

    fn mark(&mut self, path: Vec<u8>) {
        self.now.count += 1;
        self.dirty.insert(path, self.now.count);
        if self.dirty.len() > MAX_DIRTY {
            self.dirty.clear();
            self.floor = self.now.count;
        }
    }

    fn take(&mut self, event: &Event) -> Result<(), Lost> {
        use EventKind::{Directory, File, Forgotten, Gone, Overflow, Unmounted};
        if event.kind == Overflow {
            return Err(Lost::Overflow);
        }
        // The watch of a moved directory was dropped; the move itself is dirty.
        let Some(dir) = self.by_watch.get(&event.watch) else { return Ok(()) };
        match (event.kind, &event.name) {
            (Overflow, _) => Err(Lost::Overflow),
            (Gone | Unmounted | Forgotten, _) if dir.is_empty() => Err(Lost::Root),
            (Unmounted, _) => Err(Lost::Root),
            (Forgotten, _) => {
                self.forget(event.watch);
                Ok(())
            }
            // Its parent reports the same, with its name.
            (Gone, _) => Ok(()),
            (File | Directory, None) => {
                if dir.is_empty() {
                    self.mark(Vec::new());
                }
                Ok(())
            }
            // If it is no longer a store, all of it is dirty.
            (File | Directory, Some(_)) if self.is_store(dir) => {
                let dir = dir.clone();
                self.mark(dir.clone());
                self.watch_again(&dir)
            }
            (File | Directory, Some(name)) if name == b".gitignore" => Err(Lost::Rules),
            (File, Some(name)) => {
                let path = join(dir, name);
                self.mark(path);
                Ok(())
            }
            (Directory, Some(name)) => {
                let path = join(dir, name);
                self.mark(path.clone());
                self.watch_again(&path)
            }
        }
    }

    fn is_store(&self, dir: &[u8]) -> bool {
        self.dirs.get(dir).is_some_and(|dir| dir.is_store)
    }

    fn forget(&mut self, watch: i32) {
        if let Some(path) = self.by_watch.remove(&watch)
            && self.dirs.get(&path).is_some_and(|dir| dir.watch == watch)
        {
            self.dirs.remove(&path);
        }
    }

    /// Replaces the watches at and below `path`, after a directory was created, moved or removed.
    fn watch_again(&mut self, path: &[u8]) -> Result<(), Lost> {
        let after = self.dirs.range(path.to_vec()..);
        // Names such as `a-b` sort between `a` and `a/b`.
        let near = after.take_while(|(known, _)| known.starts_with(path));
        let below = near.filter(|(known, _)| is_within(known, path));
        let old: Vec<(Vec<u8>, i32)> =
            below.map(|(known, dir)| (known.clone(), dir.watch)).collect();
        for (known, watch) in old {
            self.dirs.remove(&known);
            // A moved directory keeps its watch, which its new path may have taken over already.
            if self.by_watch.get(&watch) == Some(&known) {
                self.by_watch.remove(&watch);
                self.queue.forget(watch);
            }
        }
        let Some(parent) = self.dirs.get(split(path).0) else { return Ok(()) };
        let (rules, ignored) = (Arc::clone(&parent.rules), parent.ignored);
        match self.enters(path, &rules, ignored) {
            Some(ignored) => self.watch_below(path, &rules, ignored),
            None => Ok(()),
        }
    }

    /// Watches the directory `start` and those below it. `rules` are its parent's.
    fn watch_below(&mut self, start: &[u8], rules: &Arc<Rules>, ignored: bool) -> Result<(), Lost> {
        let Ok(root) = Dir::open(&self.root) else { return Err(Lost::Root) };
        let mut waiting = vec![(start.to_vec(), Arc::clone(rules), ignored)];
        while let Some((path, rules, ignored)) = waiting.pop() {
            // A scan does not enter an unreadable directory either.
            let Ok(dir) = root.open_below(&path) else { continue };
            if self.dirs.len() >= self.max_dirs {
                return Err(Lost::TooMany);
            }
            // Before the listing, so that no change is missed.
            let watch = match self.queue.watch(&dir) {
                Ok(watch) => watch,
                Err(NotWatched::TooMany) => return Err(Lost::TooMany),
                Err(NotWatched::Unreadable) => continue,
            };
            if !path.is_empty() && is_store(&dir) {
                self.by_watch.insert(watch, path.clone());
                self.dirs.insert(path, Watched { watch, rules, ignored, is_store: true });
                continue;
            }
            let listed = dir.names_and_kinds().unwrap_or_default();
            let has_rules = listed.iter().any(|(name, _)| name == b".gitignore");
            let rules = match has_rules.then(|| rule_text_in(&dir)).flatten() {
                Some(text) => rules.child(&path, &text),
                None => rules,
            };
            for name in dir_names(&dir, listed) {
                let below = join(&path, &name);
                if let Some(ignored) = self.enters(&below, &rules, ignored) {
                    waiting.push((below, Arc::clone(&rules), ignored));
                }
            }
            self.by_watch.insert(watch, path.clone());
            self.dirs.insert(path, Watched { watch, rules, ignored, is_store: false });
        }
        Ok(())
    }

    /// Returns `None` if a scan does not enter the directory `path`, else whether it is ignored.
    fn enters(&self, path: &[u8], rules: &Rules, parent_ignored: bool) -> Option<bool> {
        let Scope { forbidden, tracked, .. } = &self.scope;
        let is_ours = is_protected_name(split(path).1) || forbidden.iter().any(|dir| dir == path);
        if is_ours {
            return None;
        }
        let ignored = match rules.verdict(path, true) {
            Verdict::Ignored => true,
            Verdict::Included => false,
            Verdict::Plain => parent_ignored,
        };
        let wanted = || tracked.contains(path) || rules.includes_below(path);
        (!ignored || wanted()).then_some(ignored)
    }
}

/// Returns the directories among the names. Where the listing has no kind, `stat` decides.
fn dir_names(dir: &Dir, listed: Vec<NamedKind>) -> Vec<Vec<u8>> {
    let ask = |name: &[u8]| dir.stat(name).ok().flatten().map(|stat| stat.kind);
    let is_dir = |(name, kind): &NamedKind| kind.or_else(|| ask(name)) == Some(FileKind::Dir);
    listed.into_iter().filter(is_dir).map(|(name, _)| name).collect()
}
