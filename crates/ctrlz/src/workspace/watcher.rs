//! The watcher: tells the commands of a work tree where something may have changed.
//!
//! It takes no snapshot and writes nothing but its own socket, so it can be killed, stopped or
//! missing at any time: a command that gets no answer looks at everything. There is one per work
//! tree, in a process of its own or on a thread of a long-lived one, whoever is first.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Dir, Named};
use crate::git::{Hasher, TrackedDirs};
use crate::path::PathText;
use crate::scan::{Entered, Lost, Token, WatchSet};
use crate::store::{Lock, Sharing, Store, WorkTree};

use super::Workspace;
use super::ask::{self, Answer, Question};

/// How to watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Ends after this long without a question. Default: 30 minutes.
    pub idle: Duration,
    /// Refuses to watch more directories than this. Default: what the kernel allows.
    pub max_dirs: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { idle: Duration::from_secs(30 * 60), max_dirs: usize::MAX }
    }
}

/// Why a watcher ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEnd {
    /// This work tree has one.
    AlreadyThere,
    /// Nobody asked for a long time.
    Idle,
    /// It was told to stop.
    Stopped,
    /// The work tree or the store went away.
    Gone,
    /// The work tree cannot be watched.
    Refused(Refusal),
}

/// Why a work tree cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Not a local file system that is known to tell of every change.
    FileSystem,
    /// More directories than the user may watch.
    TooManyDirectories,
    /// The system offers no notices, or no more of them.
    NoNotices,
}

impl Refusal {
    /// One line for people.
    pub fn describe(self) -> &'static str {
        match self {
            Refusal::FileSystem => {
                "not a local file system, so changes may be made that nobody is told of"
            }
            Refusal::TooManyDirectories => {
                "more directories than may be watched; see fs.inotify.max_user_watches"
            }
            Refusal::NoNotices => {
                "the system offers no notices of changes; see fs.inotify.max_user_instances"
            }
        }
    }
}

/// Whether a work tree is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum WatcherStatus {
    /// Nobody watches.
    None,
    /// Somebody watches, and is not ready or does not answer; every snapshot looks at everything.
    Silent,
    /// Somebody watches.
    Watching {
        /// The process.
        process: u32,
        /// The directories it watches.
        dirs: u64,
    },
    /// The last one could not.
    Refused {
        /// Why.
        why: Refusal,
    },
}

/// What the last watcher left behind if it could not watch.
#[derive(Debug, Serialize, Deserialize)]
struct Refused {
    why: Refusal,
    at_millis: u64,
}

/// A refusal is not tried again before this.
const REFUSED_MILLIS: u64 = 10 * 60 * 1000;
/// Whether the work tree is still there is looked at this often when nothing happens.
const LOOK: Duration = Duration::from_secs(60);
/// Notices are taken in at most this often, so that somebody who writes all the time keeps the
/// watcher from sleeping but a few times a second.
const PAUSE: Duration = Duration::from_millis(20);
/// A work tree with fewer directories is watched anew within the patience of whoever asks.
const SOON_DIRS: usize = 5_000;
/// Those who hold the lock without watching are given this long: somebody who only looks whether it
/// is held, or a watcher that was told to end or killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether somebody watches.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// A watcher that is of no use to those who ask makes room for another after this.
const UNWANTED: Duration = Duration::from_secs(60);

impl Workspace {
    /// Watches this work tree until nobody needs it; `ready` is told the number of directories.
    ///
    /// Returns at once if somebody else does already.
    pub fn watch(
        &self,
        options: &WatchOptions,
        ready: &mut dyn FnMut(usize),
    ) -> Result<WatchEnd, Error> {
        self.check_enabled()?;
        self.watch_until(options, ready, None)
    }

    /// Watches this work tree from a thread of this process, for as long as the value lives.
    ///
    /// For agents that live long; others let a process of its own do it.
    pub fn watch_in_background(&self, options: &WatchOptions) -> Result<Watcher, Error> {
        self.check_enabled()?;
        let workspace = Workspace::open(&self.root, self.options.clone())?;
        let (stop, stopped) = UnixStream::pair().named("watch", &self.root)?;
        let (tell, told) = std::sync::mpsc::channel();
        let options = options.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            // Whoever started us waits for this, or is gone.
            let mut ready = |dirs| tell.send(dirs).unwrap_or_default();
            workspace.watch_until(&options, &mut ready, Some(&stopped))
        });
        let thread = thread.named("watch", &self.root)?;
        // Ready, or ended without ever having been.
        told.recv().ok();
        Ok(Watcher { stop, thread: Some(thread) })
    }

    /// Whether somebody watches this work tree.
    pub fn watcher(&self) -> Result<WatcherStatus, Error> {
        let Some(dir) = self.watch_dir()? else { return Ok(WatcherStatus::None) };
        if let Some(Answer::Status { process, dirs }) = ask::ask(&dir, &Question::Status) {
            return Ok(WatcherStatus::Watching { process, dirs });
        }
        if is_held(&dir)? {
            return Ok(WatcherStatus::Silent);
        }
        Ok(match load_refused(&dir) {
            Some(refused) => WatcherStatus::Refused { why: refused.why },
            None => WatcherStatus::None,
        })
    }

    /// Whether it makes sense to start a watcher: none is there, and none has just given up.
    pub fn wants_watcher(&self) -> Result<bool, Error> {
        let Some(dir) = self.watch_dir()? else { return Ok(false) };
        let given_up = load_refused(&dir)
            .is_some_and(|refused| now_millis().abs_diff(refused.at_millis) < REFUSED_MILLIS);
        let wanted = self.options.enabled && self.options.watch && !given_up;
        Ok(wanted && !is_held(&dir)?)
    }

    /// Asks the watcher to end; `false` if none answers.
    pub fn stop_watcher(&self) -> Result<bool, Error> {
        let Some(dir) = self.watch_dir()? else { return Ok(false) };
        Ok(ask::ask(&dir, &Question::Stop) == Some(Answer::Stopping))
    }

    /// The watcher's directory, if the store is decided and has this work tree.
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
        let dir = work_tree.watch_dir();
        private::create_dirs(&dir)?;
        let Some(_lock) = take_lock(&dir)? else { return Ok(WatchEnd::AlreadyThere) };
        let served = Serving::begin(self, &store, dir.clone(), options).and_then(|serving| {
            serving.map_or_else(Ok, |mut serving| {
                ready(serving.set.dirs());
                serving.run(stopped)
            })
        });
        ask::stop_listening(&dir);
        let refused = dir.join("refused");
        match &served {
            Ok(WatchEnd::Refused(why)) => {
                let record = Refused { why: *why, at_millis: now_millis() };
                let json = serde_json::to_vec(&record).expect("plain data has a JSON form");
                private::replace(&refused, &json, Durable::No)?;
            }
            Ok(_) | Err(_) => drop(std::fs::remove_file(&refused)),
        }
        served
    }

    /// What decides which directories a scan enters, in a few bytes that can be compared.
    ///
    /// `index` is the fingerprint of the paths that the user's git tracks.
    pub(super) fn entered_key(
        &self,
        store: &Store,
        root: &Dir,
        index: u64,
    ) -> Result<String, Error> {
        let stat = root.stat_self()?;
        let rules = self.outer_rules(store)?;
        let parts = (rules, self.forbidden(store), stat.device, stat.inode, index);
        Ok(key_of(&parts))
    }
}

/// A few bytes that stand for some data.
pub(super) fn key_of(parts: &impl Serialize) -> String {
    let json = serde_json::to_vec(parts).expect("plain data has a JSON form");
    let mut hasher = Hasher::raw();
    hasher.update(&json);
    hasher.finish().map_or_else(String::new, |id| id.to_string())
}

/// The lock of a watcher, unless another one has it.
fn take_lock(dir: &std::path::Path) -> Result<Option<Lock>, Error> {
    let start = Instant::now();
    loop {
        match Lock::take(&lock_path(dir), Sharing::Exclusive, LOCK_PAUSE) {
            Err(Error::Busy { .. }) => (),
            taken => return taken.map(Some),
        }
        if ask::ask(dir, &Question::Status).is_some() || start.elapsed() > LOCK_PATIENCE {
            return Ok(None);
        }
    }
}

/// Whether somebody holds the lock of a watcher.
fn is_held(dir: &std::path::Path) -> Result<bool, Error> {
    Ok(dir.is_dir() && Lock::try_take(&lock_path(dir), Sharing::Shared)?.is_none())
}

fn lock_path(dir: &std::path::Path) -> PathBuf {
    dir.join("lock")
}

fn load_refused(dir: &std::path::Path) -> Option<Refused> {
    let json = read_small(&dir.join("refused"), 4096).ok()??;
    serde_json::from_slice(&json).ok()
}

pub(super) fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// A watcher on a thread of this process. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    stop: UnixStream,
    thread: Option<std::thread::JoinHandle<Result<WatchEnd, Error>>>,
}

impl Watcher {
    /// Ends it and says how it ended, which may have been earlier.
    pub fn stop(mut self) -> Result<WatchEnd, Error> {
        self.end().unwrap_or(Ok(WatchEnd::Stopped))
    }

    /// Whether it has ended by itself.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    fn end(&mut self) -> Option<Result<WatchEnd, Error>> {
        drop(self.stop.shutdown(std::net::Shutdown::Both));
        match self.thread.take()?.join() {
            Ok(ended) => Some(ended),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(self.end());
        }
    }
}

/// A watcher at work.
struct Serving<'a> {
    workspace: &'a Workspace,
    store: &'a Store,
    dir: PathBuf,
    options: &'a WatchOptions,
    set: WatchSet,
    /// What `set` was made by.
    key: String,
    mounts: Mounts,
    listener: Option<UnixListener>,
    asked: Instant,
    /// When somebody asked last who means the same directories.
    wanted: Instant,
}

/// Whether to go on.
type Going = Result<(), WatchEnd>;

impl<'a> Serving<'a> {
    fn begin(
        workspace: &'a Workspace,
        store: &'a Store,
        dir: PathBuf,
        options: &'a WatchOptions,
    ) -> Result<Result<Serving<'a>, WatchEnd>, Error> {
        let root = Dir::open(&workspace.root)?;
        if !root.trust()?.notices {
            return Ok(Err(WatchEnd::Refused(Refusal::FileSystem)));
        }
        // Before the directories are listed: a mount that comes later is noticed.
        let mounts = Mounts::below(&workspace.root);
        let (set, key) = match watch_all(workspace, store, &dir, options)? {
            Ok(made) => made,
            Err(end) => return Ok(Err(end)),
        };
        let listener = Some(ask::listen(&dir)?);
        let now = Instant::now();
        let (asked, wanted) = (now, now);
        Ok(Ok(Serving {
            workspace,
            store,
            dir,
            options,
            set,
            key,
            mounts,
            listener,
            asked,
            wanted,
        }))
    }

    fn run(&mut self, stopped: Option<&UnixStream>) -> Result<WatchEnd, Error> {
        let mut pause = false;
        loop {
            let woken = self.wait(stopped, pause)?;
            pause = woken.notices;
            if woken.stopped {
                return Ok(WatchEnd::Stopped);
            }
            let going = self.step(&woken)?;
            if let Err(end) = going {
                return Ok(end);
            }
        }
    }

    fn step(&mut self, woken: &Woken) -> Result<Going, Error> {
        if woken.notices
            && let Err(lost) = self.set.take_notices()?
            && let Err(end) = self.start_over(lost)?
        {
            return Ok(Err(end));
        }
        if woken.asked
            && let Err(end) = self.serve()?
        {
            return Ok(Err(end));
        }
        if woken.nothing && !self.is_home() {
            return Ok(Err(WatchEnd::Gone));
        }
        let idle = self.asked.elapsed() >= self.options.idle;
        Ok(if idle { Err(WatchEnd::Idle) } else { Ok(()) })
    }

    /// Sleeps until something happens. With `pause`, new notices do not count for a moment.
    fn wait(&self, stopped: Option<&UnixStream>, pause: bool) -> Result<Woken, Error> {
        let left = self.options.idle.saturating_sub(self.asked.elapsed());
        let limit = if pause { PAUSE } else { left.min(LOOK) + Duration::from_millis(1) };
        let limit = rustix::event::Timespec::try_from(limit).ok();
        let ready = PollFlags::IN;
        let mut fds = Vec::with_capacity(3);
        fds.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, ready)));
        fds.extend(stopped.map(|stopped| PollFd::new(stopped, ready)));
        if !pause {
            fds.push(PollFd::new(self.set.queue(), ready));
        }
        let woken = match rustix::event::poll(&mut fds, limit.as_ref()) {
            Ok(woken) => woken,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Ok(Err(error).named("watch", &self.workspace.root)?),
        };
        let is = |fd: Option<std::os::fd::BorrowedFd<'_>>| {
            use std::os::fd::AsRawFd;
            let wanted = fd.map(|fd| fd.as_raw_fd());
            let hit = |polled: &&PollFd<'_>| Some(polled.as_fd().as_raw_fd()) == wanted;
            fds.iter().find(hit).is_some_and(|polled| !polled.revents().is_empty())
        };
        Ok(Woken {
            nothing: woken == 0,
            asked: is(self.listener.as_ref().map(AsFd::as_fd)),
            stopped: is(stopped.map(AsFd::as_fd)),
            notices: is(Some(self.set.queue().as_fd())),
        })
    }

    /// Whether the work tree and the store are where they were.
    fn is_home(&self) -> bool {
        self.workspace.root.is_dir() && lock_path(&self.dir).is_file()
    }

    /// Answers everybody who is waiting.
    fn serve(&mut self) -> Result<Going, Error> {
        loop {
            let Some(Ok((mut stream, _))) = self.listener.as_ref().map(UnixListener::accept) else {
                return Ok(Ok(()));
            };
            let Some(question) = ask::question(&mut stream) else { continue };
            match question {
                Question::Stop => {
                    ask::answer(&mut stream, &Answer::Stopping);
                    return Ok(Err(WatchEnd::Stopped));
                }
                Question::Status => {
                    let dirs = self.set.dirs() as u64;
                    ask::answer(&mut stream, &Answer::Status { process: std::process::id(), dirs });
                }
                Question::Since { entered, token } => {
                    self.asked = Instant::now();
                    if let Err(end) = self.tell(&mut stream, &entered, token.as_ref())? {
                        return Ok(Err(end));
                    }
                }
            }
        }
    }

    /// Says where something may have changed since `token`.
    fn tell(
        &mut self,
        stream: &mut UnixStream,
        entered: &str,
        token: Option<&Token>,
    ) -> Result<Going, Error> {
        let synced = self.set.sync()?;
        let lost = if self.mounts.changed() { Err(Lost::Rules) } else { synced };
        // The index may have changed, which nobody tells us of; or the asker means other options.
        let stale = entered != self.key && entered == self.key_now()?;
        let lost = if stale { lost.and(Err(Lost::Rules)) } else { lost };
        if let Err(lost) = lost {
            let soon = self.set.dirs() < SOON_DIRS;
            if !soon {
                ask::answer(stream, &Answer::Elsewhere);
            }
            let going = self.start_over(lost)?;
            if going.is_err() || !soon {
                return Ok(going);
            }
        }
        if entered != self.key {
            ask::answer(stream, &Answer::Elsewhere);
            let unwanted = self.wanted.elapsed() >= UNWANTED;
            return Ok(if unwanted { Err(WatchEnd::Stopped) } else { Ok(()) });
        }
        self.wanted = Instant::now();
        let dirty = token.and_then(|token| self.set.since(token));
        let dirty =
            dirty.map(|paths| paths.iter().map(|path| PathText::from_bytes(path)).collect());
        ask::answer(stream, &Answer::Changes { now: self.set.now(), dirty });
        Ok(Ok(()))
    }

    fn key_now(&self) -> Result<String, Error> {
        let root = Dir::open(&self.workspace.root)?;
        let (_, index) = tracked(self.workspace)?;
        self.workspace.entered_key(self.store, &root, index)
    }

    /// Watches everything anew; what was said before no longer counts.
    fn start_over(&mut self, lost: Lost) -> Result<Going, Error> {
        match lost {
            Lost::TooMany => return Ok(Err(WatchEnd::Refused(Refusal::TooManyDirectories))),
            Lost::Root => return Ok(Err(WatchEnd::Gone)),
            Lost::Overflow | Lost::Rules => (),
        }
        if self.set.dirs() >= SOON_DIRS {
            // Whoever asks meanwhile need not wait for an answer.
            self.listener = None;
            ask::stop_listening(&self.dir);
        }
        if !self.is_home() {
            return Ok(Err(WatchEnd::Gone));
        }
        self.mounts = Mounts::below(&self.workspace.root);
        match watch_all(self.workspace, self.store, &self.dir, self.options)? {
            Ok((set, key)) => (self.set, self.key) = (set, key),
            Err(end) => return Ok(Err(end)),
        }
        if self.listener.is_none() {
            self.listener = Some(ask::listen(&self.dir)?);
        }
        Ok(Ok(()))
    }
}

/// What woke the watcher.
struct Woken {
    nothing: bool,
    asked: bool,
    stopped: bool,
    notices: bool,
}

/// Watches every directory that a scan would enter.
fn watch_all(
    workspace: &Workspace,
    store: &Store,
    dir: &std::path::Path,
    options: &WatchOptions,
) -> Result<Result<(WatchSet, String), WatchEnd>, Error> {
    let root = Dir::open(&workspace.root)?;
    let (tracked, index) = tracked(workspace)?;
    let key = workspace.entered_key(store, &root, index)?;
    let entered = Entered {
        rules: workspace.outer_rules(store)?.base(),
        forbidden: workspace.forbidden(store),
        tracked,
        max_dirs: options.max_dirs,
    };
    let made = match WatchSet::new(&workspace.root, dir, entered) {
        Ok(made) => made,
        // The only thing in there that can fail so is asking for notices.
        Err(Error::File(error)) if error.verb == "watch" => {
            return Ok(Err(WatchEnd::Refused(Refusal::NoNotices)));
        }
        Err(error) => return Err(error),
    };
    Ok(match made {
        Ok(set) => Ok((set, key)),
        Err(Lost::TooMany) => Err(WatchEnd::Refused(Refusal::TooManyDirectories)),
        Err(Lost::Root | Lost::Overflow | Lost::Rules) => Err(WatchEnd::Gone),
    })
}

/// What the user's git tracks: the directories, and a fingerprint of the paths.
fn tracked(workspace: &Workspace) -> Result<(TrackedDirs, u64), Error> {
    let index = match &workspace.repo {
        Some(repo) => repo.index()?.0,
        None => None,
    };
    Ok(index.map_or_else(Default::default, |index| (index.dirs(), index.fingerprint())))
}

/// The mounts inside the work tree: what is behind one is not ours, and nobody tells us of it.
struct Mounts {
    file: Option<std::fs::File>,
    prefix: Vec<u8>,
    below: Vec<Vec<u8>>,
}

impl Mounts {
    fn below(root: &std::path::Path) -> Mounts {
        // The kernel writes these four so that a path is one word.
        let mut prefix = Vec::new();
        for byte in std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str()) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\\' => prefix.extend(format!("\\{byte:03o}").bytes()),
                _ => prefix.push(*byte),
            }
        }
        prefix.push(b'/');
        let file = std::fs::File::open("/proc/self/mountinfo").ok();
        let mut mounts = Mounts { file, prefix, below: Vec::new() };
        mounts.below = mounts.read();
        mounts
    }

    /// Whether something was mounted or unmounted in the work tree since the last call.
    fn changed(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        // Readable once for every change anywhere, so most of the time there is nothing to read.
        let mut fds = [PollFd::new(file, PollFlags::PRI)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&now)) == Ok(0) {
            return false;
        }
        let below = self.read();
        let changed = below != self.below;
        self.below = below;
        changed
    }

    fn read(&self) -> Vec<Vec<u8>> {
        use std::io::{Read, Seek};
        let Some(mut file) = self.file.as_ref() else { return Vec::new() };
        let mut text = Vec::new();
        drop(file.rewind().and_then(|()| file.read_to_end(&mut text)));
        let lines = text.split(|byte| *byte == b'\n');
        let at = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
        at.filter(|at| at.starts_with(&self.prefix)).map(<[u8]>::to_vec).collect()
    }
}
