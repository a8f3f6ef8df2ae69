//! Kernel events of single directories, by inotify.
//!
//! All directories of a [`Queue`] share one queue, in the order of the events.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::fs::Dir;

/// A change of a name in a watched directory, or of the directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The watch descriptor, from [`Queue::watch`].
    pub(super) watch: i32,
    /// The name, or `None` for the directory itself.
    pub(super) name: Option<Vec<u8>>,
    pub(super) kind: EventKind,
}

/// The kinds of events that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// Content or metadata of a file changed, or its name was created or removed.
    File,
    /// The same for a directory.
    Directory,
    /// The watched directory was removed or moved.
    Gone,
    /// The kernel removed the watch.
    Forgotten,
    /// The queue was full and events were dropped.
    Overflow,
    /// The file system was unmounted.
    Unmounted,
}

/// The reason why a directory cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotWatched {
    /// The user may watch no more directories.
    TooMany,
    /// It was removed or is unreadable. Its parent reports when that changes.
    Unreadable,
}

/// A queue of events.
#[derive(Debug)]
pub(super) struct Queue {
    fd: OwnedFd,
}

/// All changes of names, contents and permissions.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

impl Queue {
    pub(super) fn new() -> std::io::Result<Queue> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Queue { fd })
    }

    /// Watches the directory of the handle, which may have another path by now. Returns its
    /// watch descriptor.
    pub(super) fn watch(&self, dir: &Dir) -> Result<i32, NotWatched> {
        let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        let added = retry_on_intr(|| inotify::add_watch(&self.fd, &path, CHANGES));
        added.map_err(|error| match error {
            Errno::NOSPC | Errno::NOMEM => NotWatched::TooMany,
            _ => NotWatched::Unreadable,
        })
    }

    /// Stops watching. Errors are ignored: the kernel may have removed the watch already.
    pub(super) fn forget(&self, watch: i32) {
        inotify::remove_watch(&self.fd, watch).ok();
    }

    /// Removes and returns all events.
    pub(super) fn take(&self) -> std::io::Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); 64 * 1024];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: event.wd(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                    kind: kind_of(event.events()),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn kind_of(flags: ReadFlags) -> EventKind {
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        EventKind::Overflow
    } else if flags.contains(ReadFlags::UNMOUNT) {
        EventKind::Unmounted
    } else if flags.contains(ReadFlags::IGNORED) {
        EventKind::Forgotten
    } else if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
        EventKind::Gone
    } else if flags.contains(ReadFlags::ISDIR) {
        EventKind::Directory
    } else {
        EventKind::File
    }
}
