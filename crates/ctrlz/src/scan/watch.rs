//! Watching: directories → the paths in them that may have changed since some moment.
//!
//! A [`WatchSet`] watches every directory that a scan would enter. A directory is watched *before*
//! it is listed, so whatever comes into it afterwards is told; and a directory that comes, moves or
//! goes is dirty as a whole, so whatever came into it before that is looked at as well. It may
//! watch more than a scan enters: what is dirty is judged again by whoever looks.
//!
//! Where track is lost (notices were dropped, ignore rules changed, too many directories) it says so,
//! and nothing it said before counts any more.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{Dir, FileKind, Named, NamedKind, NotWatched, Notice, Notify, What, random_name};
use crate::git::{Rules, TrackedDirs, Verdict, is_protected_name};
use crate::path::{is_within, join};

use super::foreign::is_store;
use super::walk::rule_text_in;

/// More dirty paths than this are not remembered: a scan of everything is as good.
const MAX_DIRTY: usize = 20_000;

/// What decides which directories a scan enters.
pub(crate) struct Entered {
    /// Rules from outside the work tree.
    pub(crate) rules: Arc<Rules>,
    /// Directories never entered.
    pub(crate) forbidden: Vec<Vec<u8>>,
    /// The directories in which the user's git tracks something, if there is an index.
    pub(crate) tracked: TrackedDirs,
    /// No more directories than this are watched.
    pub(crate) max_dirs: usize,
}

/// A moment, as one watcher counts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Token {
    /// The watcher, and its last loss of track.
    pub(crate) instance: String,
    pub(crate) count: u64,
}

/// Why what was said before no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The kernel dropped notices.
    Overflow,
    /// An ignore file changed.
    Rules,
    /// There are more directories than may be watched.
    TooMany,
    /// The work tree is gone, or another directory has its place.
    Root,
}

struct Watched {
    watch: i32,
    /// The rules for what is in it.
    rules: Arc<Rules>,
    /// It is ignored itself, and entered for what git tracks in it.
    ignored: bool,
    /// It is a store of ctrlz: nothing below it is watched.
    is_store: bool,
}

/// Directories under watch, and what became dirty in them.
pub(crate) struct WatchSet {
    root: PathBuf,
    notify: Notify,
    entered: Entered,
    by_watch: HashMap<i32, Vec<u8>>,
    dirs: BTreeMap<Vec<u8>, Watched>,
    dirty: BTreeMap<Vec<u8>, u64>,
    now: Token,
    /// Dirty paths up to here have been forgotten.
    floor: u64,
    /// The directory in which [`WatchSet::sync`] makes its sign.
    signs: (i32, PathBuf),
}

impl WatchSet {
    /// Watches the work tree at `root`.
    ///
    /// `signs` is a directory of ours, outside of what is watched.
    pub(crate) fn new(
        root: &Path,
        signs: &Path,
        entered: Entered,
    ) -> Result<Result<WatchSet, Lost>, Error> {
        let notify = Notify::new().named("watch", root)?;
        let Ok(sign_watch) = notify.watch(&Dir::open(signs)?) else {
            return Ok(Err(Lost::TooMany));
        };
        let mut set = WatchSet {
            root: root.to_owned(),
            notify,
            entered,
            by_watch: HashMap::new(),
            dirs: BTreeMap::new(),
            dirty: BTreeMap::new(),
            now: Token { instance: random_name() + &random_name(), count: 0 },
            floor: 0,
            signs: (sign_watch, signs.to_owned()),
        };
        let rules = Arc::clone(&set.entered.rules);
        match set.watch_below(b"", &rules, false) {
            Ok(()) if set.dirs.contains_key(&b""[..]) => Ok(Ok(set)),
            Ok(()) => Ok(Err(Lost::Root)),
            Err(lost) => Ok(Err(lost)),
        }
    }

    /// The queue, to wait for.
    pub(crate) fn queue(&self) -> &Notify {
        &self.notify
    }

    /// Directories that are watched.
    pub(crate) fn dirs(&self) -> usize {
        self.dirs.len()
    }

    /// Takes in what has been told so far.
    pub(crate) fn take_notices(&mut self) -> Result<Result<(), Lost>, Error> {
        for notice in self.notify.take().named("watch", &self.root)? {
            if notice.watch == self.signs.0 {
                continue;
            }
            if let Err(lost) = self.take(&notice) {
                return Ok(Err(lost));
            }
        }
        Ok(Ok(()))
    }

    /// Takes in everything that happened before this call.
    ///
    /// All notices are in one queue, in order: a sign made now is told after everything else.
    pub(crate) fn sync(&mut self) -> Result<Result<(), Lost>, Error> {
        let name = format!("sign-{}", random_name());
        let path = self.signs.1.join(&name);
        drop(crate::fs::private::create(&path)?);
        std::fs::remove_file(&path).named("remove", &path)?;
        let mut seen = false;
        while !seen {
            let notices = self.notify.take().named("watch", &self.root)?;
            if notices.is_empty() {
                // The kernel queues a notice before the call that caused it returns.
                return Ok(Err(Lost::Overflow));
            }
            for notice in notices {
                if notice.watch == self.signs.0 {
                    seen |= notice.name.as_deref() == Some(name.as_bytes());
                    if matches!(notice.what, What::Gone | What::Forgotten | What::Unmounted) {
                        return Ok(Err(Lost::Root));
                    }
                } else if let Err(lost) = self.take(&notice) {
                    return Ok(Err(lost));
                }
            }
        }
        Ok(Ok(()))
    }

    /// This moment.
    pub(crate) fn now(&self) -> Token {
        self.now.clone()
    }

    /// The paths that may have changed since `token`; `None` if that is not known.
    ///
    /// Who asks for what happened since a moment needs nothing older, so that is forgotten.
    pub(crate) fn since(&mut self, token: &Token) -> Option<Vec<Vec<u8>>> {
        let known = token.instance == self.now.instance
            && (self.floor..=self.now.count).contains(&token.count);
        if !known {
            return None;
        }
        self.floor = token.count;
        self.dirty.retain(|_, count| *count > token.count);
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

    fn take(&mut self, notice: &Notice) -> Result<(), Lost> {
        if notice.what == What::Overflow {
            return Err(Lost::Overflow);
        }
        // One that is not known was given up because its directory moved; the move is dirty.
        let Some(dir) = self.by_watch.get(&notice.watch) else { return Ok(()) };
        match (notice.what, &notice.name) {
            (What::Overflow, _) => Err(Lost::Overflow),
            (What::Gone | What::Unmounted | What::Forgotten, _) if dir.is_empty() => {
                Err(Lost::Root)
            }
            (What::Unmounted, _) => Err(Lost::Root),
            (What::Forgotten, _) => {
                self.forget(notice.watch);
                Ok(())
            }
            // Its parent tells the same, with its name.
            (What::Gone, _) => Ok(()),
            (What::File | What::Directory, None) => {
                if dir.is_empty() {
                    self.mark(Vec::new());
                }
                Ok(())
            }
            // It may be no store any more, and then everything in it counts.
            (What::File | What::Directory, Some(_)) if self.is_store(dir) => {
                let dir = dir.clone();
                self.mark(dir.clone());
                self.watch_again(&dir)
            }
            (What::File | What::Directory, Some(name)) if name == b".gitignore" => Err(Lost::Rules),
            (What::File, Some(name)) => {
                let path = join(dir, name);
                self.mark(path);
                Ok(())
            }
            (What::Directory, Some(name)) => {
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

    /// Watches what is at `path` now instead of what was there.
    ///
    /// The same for a directory that came, moved or went: only what is there now counts, and what
    /// happens next is told again.
    fn watch_again(&mut self, path: &[u8]) -> Result<(), Lost> {
        let after = self.dirs.range(path.to_vec()..);
        // Names such as `a-b` sort between `a` and what is in it.
        let near = after.take_while(|(known, _)| known.starts_with(path));
        let below = near.filter(|(known, _)| is_within(known, path));
        let old: Vec<(Vec<u8>, i32)> =
            below.map(|(known, dir)| (known.clone(), dir.watch)).collect();
        for (known, watch) in old {
            self.dirs.remove(&known);
            // A directory that moved keeps its watch, which its new name may have taken over already.
            if self.by_watch.get(&watch) == Some(&known) {
                self.by_watch.remove(&watch);
                self.notify.forget(watch);
            }
        }
        let Some(parent) = self.dirs.get(crate::path::split(path).0) else { return Ok(()) };
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
            // What cannot be opened is not entered by a scan either.
            let Ok(dir) = root.open_below(&path) else { continue };
            if self.dirs.len() >= self.entered.max_dirs {
                return Err(Lost::TooMany);
            }
            // First: what comes from now on is told, and what is there already is listed below.
            let watch = match self.notify.watch(&dir) {
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

    /// Whether a scan enters the directory `path`, and if so, whether it is ignored all the same.
    fn enters(&self, path: &[u8], rules: &Rules, parent_ignored: bool) -> Option<bool> {
        let Entered { forbidden, tracked, .. } = &self.entered;
        let is_ours = is_protected_name(crate::path::split(path).1)
            || forbidden.iter().any(|dir| dir == path);
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

/// The directories among the names; where the file system does not say, each is asked.
fn dir_names(dir: &Dir, listed: Vec<NamedKind>) -> Vec<Vec<u8>> {
    let ask = |name: &[u8]| dir.stat(name).ok().flatten().map(|stat| stat.kind);
    let is_dir = |(name, kind): &NamedKind| kind.or_else(|| ask(name)) == Some(FileKind::Dir);
    listed.into_iter().filter(is_dir).map(|(name, _)| name).collect()
}
