//! The watcher: answers requests for changes until it is idle, stopped or of no use.
//!
//! There is one per work tree, which its lock ensures.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::error::Error;
use crate::fs::private;
use crate::fs::{Dir, FileError, Named};
use crate::path::PathText;

use super::client::{lock_path, record_refusal, take_lock};
use super::mounts::Mounts;
use super::protocol::{self, Request, Response};
use super::tree::{Cursor, Failure, Lost, Scope, WatchTree};
use super::{Refusal, WatchEnd, WatchOptions};

/// Interval of the check whether the work tree still exists, while nothing happens.
const LIVENESS_CHECK: Duration = Duration::from_secs(60);
/// Debounce interval of kernel events: a process that writes continuously wakes the watcher at most
/// 50 times per second.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Trees with fewer directories are watched anew before a client's request times out.
const SMALL_TREE: usize = 5_000;
/// A watcher whose directories no client wants ends after this time, to make room for another.
const UNWANTED: Duration = Duration::from_secs(60);

/// The work tree of a watcher.
pub(crate) struct Site<'a> {
    pub(crate) root: &'a Path,
    /// The watcher's directory in the store.
    pub(crate) dir: PathBuf,
    /// Returns the directories that a scan enters at present, and a key that identifies them.
    pub(crate) scope: &'a dyn Fn() -> Result<(Scope, String), Error>,
}

/// Watches until the watcher ends. Calls `ready` with the number of directories. Returns at once if
/// the work tree has a watcher.
pub(crate) fn serve(
    site: &Site<'_>,
    options: &WatchOptions,
    ready: &mut dyn FnMut(usize),
) -> Result<WatchEnd, Error> {
    private::create_dirs(&site.dir)?;
    let Some(_lock) = take_lock(&site.dir)? else { return Ok(WatchEnd::AlreadyThere) };
    let served = Server::new(site, options).and_then(|mut server| {
        ready(server.tree.dirs());
        server.run()
    });
    protocol::stop_listening(&site.dir);
    let end = match served {
        Ok(never) => match never {},
        Err(Stop::End(end)) => Ok(end),
        Err(Stop::Failed(error)) => Err(error),
    };
    let refusal = match end {
        Ok(WatchEnd::Refused(why)) => Some(why),
        Ok(_) | Err(_) => None,
    };
    record_refusal(&site.dir, refusal)?;
    end
}

/// The way out of the server's loop.
enum Stop {
    End(WatchEnd),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Stop {
        Stop::Failed(error.into())
    }
}

struct Server<'a> {
    site: &'a Site<'a>,
    options: &'a WatchOptions,
    tree: WatchTree,
    /// Identifies the directories of `tree`.
    key: String,
    mounts: Mounts,
    listener: Option<UnixListener>,
    last_request: Instant,
    /// The last request for the directories of `tree`.
    last_use: Instant,
}

/// The events that ended a wait.
struct Woken {
    timed_out: bool,
    request: bool,
    events: bool,
}

impl<'a> Server<'a> {
    fn new(site: &'a Site<'a>, options: &'a WatchOptions) -> Result<Server<'a>, Stop> {
        if !Dir::open(site.root)?.trust()?.notices {
            return Err(Stop::End(WatchEnd::Refused(Refusal::FileSystem)));
        }
        // Before the directories are listed, so that a later mount is noticed.
        let mounts = Mounts::below(site.root);
        let (tree, key) = watch_all(site, options)?;
        let listener = Some(protocol::listen(&site.dir)?);
        let now = Instant::now();
        Ok(Server { site, options, tree, key, mounts, listener, last_request: now, last_use: now })
    }

    fn run(&mut self) -> Result<std::convert::Infallible, Stop> {
        let mut debounce = false;
        loop {
            let woken = self.wait(debounce)?;
            debounce = woken.events;
            if woken.events {
                match self.tree.take_events() {
                    Ok(()) => (),
                    Err(Failure::Lost(lost)) => self.start_over(lost)?,
                    Err(Failure::Other(error)) => return Err(error.into()),
                }
            }
            if woken.request {
                self.answer_all()?;
            }
            if woken.timed_out && !self.exists() {
                return Err(Stop::End(WatchEnd::Gone));
            }
            if self.last_request.elapsed() >= self.options.idle {
                return Err(Stop::End(WatchEnd::Idle));
            }
        }
    }

    /// Sleeps until something happens. With `debounce`, kernel events do not end the sleep.
    fn wait(&self, debounce: bool) -> Result<Woken, Stop> {
        let left = self.options.idle.saturating_sub(self.last_request.elapsed());
        let check = left.min(LIVENESS_CHECK) + Duration::from_millis(1);
        let limit = if debounce { DEBOUNCE } else { check };
        let limit = rustix::event::Timespec::try_from(limit).ok();
        let mut fds = Vec::with_capacity(2);
        fds.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
        if !debounce {
            fds.push(PollFd::new(self.tree.queue(), PollFlags::IN));
        }
        let count = match rustix::event::poll(&mut fds, limit.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Ok(Err(error).named("watch", self.site.root)?),
        };
        let is_ready = |fd: Option<BorrowedFd<'_>>| {
            let wanted = fd.map(|fd| fd.as_raw_fd());
            let is_wanted = |polled: &&PollFd<'_>| Some(polled.as_fd().as_raw_fd()) == wanted;
            fds.iter().find(is_wanted).is_some_and(|polled| !polled.revents().is_empty())
        };
        Ok(Woken {
            timed_out: count == 0,
            request: is_ready(self.listener.as_ref().map(AsFd::as_fd)),
            events: is_ready(Some(self.tree.queue().as_fd())),
        })
    }

    /// Returns whether the work tree and the store still exist.
    fn exists(&self) -> bool {
        self.site.root.is_dir() && lock_path(&self.site.dir).is_file()
    }

    /// Responds to every waiting client.
    fn answer_all(&mut self) -> Result<(), Stop> {
        while let Some(Ok((mut stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            let Some(request) = protocol::read_request(&mut stream) else { continue };
            match request {
                Request::Stop => {
                    protocol::respond(&mut stream, &Response::Stopping);
                    return Err(Stop::End(WatchEnd::Stopped));
                }
                Request::Status => {
                    let (process, dirs) = (std::process::id(), self.tree.dirs() as u64);
                    protocol::respond(&mut stream, &Response::Status { process, dirs });
                }
                Request::Since { entered, token } => {
                    self.last_request = Instant::now();
                    self.answer_since(&mut stream, &entered, token.as_ref())?;
                }
            }
        }
        Ok(())
    }

    /// Responds with the paths that may have changed since `cursor`, if the client means the same
    /// directories.
    fn answer_since(
        &mut self,
        stream: &mut UnixStream,
        wanted: &str,
        cursor: Option<&Cursor>,
    ) -> Result<(), Stop> {
        let synced = self.tree.sync();
        let mut lost = match synced {
            Ok(()) => None,
            Err(Failure::Lost(lost)) => Some(lost),
            Err(Failure::Other(error)) => return Err(error.into()),
        };
        // No event reports a changed index of git, or a client with other options.
        let is_stale = || -> Result<bool, Error> {
            Ok(wanted != self.key && wanted == (self.site.scope)()?.1)
        };
        let is_stale = is_stale()?;
        if self.mounts.changed() || (lost.is_none() && is_stale) {
            lost = Some(Lost::Rules);
        }
        if let Some(lost) = lost {
            let is_small = self.tree.dirs() < SMALL_TREE;
            if !is_small {
                protocol::respond(stream, &Response::Elsewhere);
            }
            self.start_over(lost)?;
            if !is_small {
                return Ok(());
            }
        }
        if wanted != self.key {
            protocol::respond(stream, &Response::Elsewhere);
            return if self.last_use.elapsed() >= UNWANTED {
                Err(Stop::End(WatchEnd::Stopped))
            } else {
                Ok(())
            };
        }
        self.last_use = Instant::now();
        let dirty = cursor.and_then(|cursor| self.tree.since(cursor));
        let dirty =
            dirty.map(|paths| paths.iter().map(|path| PathText::from_bytes(path)).collect());
        protocol::respond(stream, &Response::Changes { now: self.tree.now(), dirty });
        Ok(())
    }

    /// Watches everything anew. Earlier cursors become invalid.
    fn start_over(&mut self, lost: Lost) -> Result<(), Stop> {
        match lost {
            Lost::TooMany => {
                return Err(Stop::End(WatchEnd::Refused(Refusal::TooManyDirectories)));
            }
            Lost::Root => return Err(Stop::End(WatchEnd::Gone)),
            Lost::Overflow | Lost::Rules => (),
        }
        if self.tree.dirs() >= SMALL_TREE {
            // Clients need not wait for a response meanwhile.
            self.listener = None;
            protocol::stop_listening(&self.site.dir);
        }
        if !self.exists() {
            return Err(Stop::End(WatchEnd::Gone));
        }
        self.mounts = Mounts::below(self.site.root);
        (self.tree, self.key) = watch_all(self.site, self.options)?;
        if self.listener.is_none() {
            self.listener = Some(protocol::listen(&self.site.dir)?);
        }
        Ok(())
    }
}

/// Watches every directory that a scan enters.
fn watch_all(site: &Site<'_>, options: &WatchOptions) -> Result<(WatchTree, String), Stop> {
    let (scope, key) = (site.scope)()?;
    match WatchTree::new(site.root, &site.dir, scope, options.max_dirs) {
        Ok(tree) => Ok((tree, key)),
        // Only the creation of the event queue fails with this verb.
        Err(Failure::Other(Error::File(error))) if error.verb == "watch" => {
            Err(Stop::End(WatchEnd::Refused(Refusal::NoNotices)))
        }
        Err(Failure::Other(error)) => Err(error.into()),
        Err(Failure::Lost(Lost::TooMany)) => {
            Err(Stop::End(WatchEnd::Refused(Refusal::TooManyDirectories)))
        }
        Err(Failure::Lost(Lost::Root | Lost::Overflow | Lost::Rules)) => {
            Err(Stop::End(WatchEnd::Gone))
        }
    }
}
