//! Mount points inside a work tree. A scan does not enter them, and inotify does not report them.

use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};

/// The mount points below a directory.
pub(super) struct Mounts {
    file: Option<std::fs::File>,
    prefix: Vec<u8>,
    below: Vec<Vec<u8>>,
}

impl Mounts {
    /// Reads the mount points below `root`. Without `/proc` there are none.
    pub(super) fn below(root: &Path) -> Mounts {
        // The kernel escapes these four bytes.
        let mut prefix = Vec::new();
        for byte in root.as_os_str().as_bytes() {
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

    /// Returns whether a mount point was added or removed since the last call.
    pub(super) fn changed(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        // The file becomes readable once after every change of any mount.
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
        let Some(mut file) = self.file.as_ref() else { return Vec::new() };
        let mut text = Vec::new();
        // A partial read differs from the last one, so that the watcher starts over.
        drop(file.rewind().and_then(|()| file.read_to_end(&mut text)));
        let lines = text.split(|byte| *byte == b'\n');
        let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
        points.filter(|point| point.starts_with(&self.prefix)).map(<[u8]>::to_vec).collect()
    }
}
