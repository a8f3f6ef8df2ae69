//! Being told by the kernel what happens in directories.
//!
//! Linux's inotify, and nothing elsewhere: where [`Notify::new`] fails, nobody watches and every
//! scan looks at everything. All directories of one [`Notify`] share one queue, in the order in
//! which things happened.

use super::Dir;

/// What happened to a name in a watched directory, or to the directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The number that [`Notify::watch`] gave.
    pub(crate) watch: i32,
    /// The name; none if it is about the directory itself.
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) what: What,
}

/// What happened, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A file's content or metadata, or a name that came or went.
    File,
    /// The same for a name that is or was a directory's.
    Directory,
    /// The watched directory is gone, or no longer where it was.
    Gone,
    /// The kernel has forgotten the watch.
    Forgotten,
    /// The queue was full, and notices are missing.
    Overflow,
    /// The file system was unmounted.
    Unmounted,
}

/// Why a directory cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotWatched {
    /// The user may watch no more directories.
    TooMany,
    /// It is gone, or may not be read. Whatever is done about that, its parent tells.
    Unreadable,
}

#[cfg(target_os = "linux")]
mod system {
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::{Errno, retry_on_intr};

    use super::{Dir, NotWatched, Notice, What};

    /// A queue of notices.
    #[derive(Debug)]
    pub(crate) struct Notify {
        queue: OwnedFd,
    }

    /// Everything that can change a name, a content or permissions.
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

    impl Notify {
        pub(crate) fn new() -> std::io::Result<Notify> {
            let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            Ok(Notify { queue })
        }

        /// Watches the directory behind the handle, whatever its path leads to by now.
        pub(crate) fn watch(&self, dir: &Dir) -> Result<i32, NotWatched> {
            let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
            let added = retry_on_intr(|| inotify::add_watch(&self.queue, &path, CHANGES));
            added.map_err(|error| match error {
                Errno::NOSPC | Errno::NOMEM => NotWatched::TooMany,
                _ => NotWatched::Unreadable,
            })
        }

        /// Stops watching; one that is forgotten already is fine.
        pub(crate) fn forget(&self, watch: i32) {
            inotify::remove_watch(&self.queue, watch).ok();
        }

        /// Everything that is in the queue now.
        pub(crate) fn take(&self) -> std::io::Result<Vec<Notice>> {
            let mut notices = Vec::new();
            let mut buffer = vec![MaybeUninit::uninit(); 64 * 1024];
            let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => notices.push(Notice {
                        watch: event.wd(),
                        name: event.file_name().map(|name| name.to_bytes().to_vec()),
                        what: what(event.events()),
                    }),
                    Err(Errno::AGAIN) => return Ok(notices),
                    Err(Errno::INTR) => (),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    impl AsFd for Notify {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.queue.as_fd()
        }
    }

    fn what(flags: ReadFlags) -> What {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            What::Overflow
        } else if flags.contains(ReadFlags::UNMOUNT) {
            What::Unmounted
        } else if flags.contains(ReadFlags::IGNORED) {
            What::Forgotten
        } else if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            What::Gone
        } else if flags.contains(ReadFlags::ISDIR) {
            What::Directory
        } else {
            What::File
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::os::fd::{AsFd, BorrowedFd};

    use super::{Dir, NotWatched, Notice};

    /// There is none on this system.
    #[derive(Debug)]
    pub(crate) enum Notify {}

    impl Notify {
        pub(crate) fn new() -> std::io::Result<Notify> {
            Err(std::io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn watch(&self, _: &Dir) -> Result<i32, NotWatched> {
            match *self {}
        }

        pub(crate) fn forget(&self, _: i32) {
            match *self {}
        }

        pub(crate) fn take(&self) -> std::io::Result<Vec<Notice>> {
            match *self {}
        }
    }

    impl AsFd for Notify {
        fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}

pub(crate) use system::Notify;
