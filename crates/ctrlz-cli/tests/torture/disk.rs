//! File systems in image files that can be mounted, cut off from power, and mounted again.

use std::path::{Path, PathBuf};

use crate::lab::{command, has, is_root, must, run};

/// Returns whether images can be made and mounted here. Prints a note if not.
pub(crate) fn can_mount(kind: Kind) -> bool {
    let program = match kind {
        Kind::Xfs => "mkfs.xfs",
        _ => "mkfs.ext4",
    };
    is_root() && has(program) && has("mount") && has("python3")
}

/// The file systems under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    /// ext4 with timestamps of whole seconds.
    Ext4Coarse,
    Xfs,
}

/// A mounted file system. Unmounted on drop.
pub(crate) struct Mount {
    at: PathBuf,
}

impl Mount {
    pub(crate) fn new(args: &[&str], at: &Path) -> Mount {
        std::fs::create_dir_all(at).unwrap();
        must("mount", &[args, &[at.to_str().unwrap()]].concat());
        Mount { at: at.to_owned() }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = run(command("umount").arg(&self.at)).code() == Some(0);
        if !done {
            // A dying process still uses it. A lazy unmount detaches it now and frees it with its
            // last user.
            run(command("umount").arg("-l").arg(&self.at));
        }
    }
}

/// A file system in an image file.
pub(crate) struct Disk {
    image: PathBuf,
    at: PathBuf,
    kind: Kind,
    mounted: Option<Mount>,
}

impl Disk {
    /// Makes a file system of `size`, in the syntax of truncate(1), and mounts it at `at`.
    pub(crate) fn new(kind: Kind, size: &str, at: &Path) -> Disk {
        let image = at.with_extension("image");
        must("truncate", &["-s", size, image.to_str().unwrap()]);
        let path = image.to_str().unwrap();
        match kind {
            Kind::Ext4 => must("mkfs.ext4", &["-q", "-m", "0", path]),
            Kind::Ext4Coarse => must("mkfs.ext4", &["-q", "-I", "128", path]),
            Kind::Xfs => must("mkfs.xfs", &["-q", path]),
        };
        let mut disk = Disk { image, at: at.to_owned(), kind, mounted: None };
        disk.mount();
        disk
    }

    pub(crate) fn mount(&mut self) {
        // A copied image has the same UUID, which xfs refuses to mount by default.
        let options = if self.kind == Kind::Xfs { "loop,nouuid" } else { "loop" };
        let image = self.image.to_str().unwrap().to_owned();
        self.mounted = Some(Mount::new(&["-o", options, &image], &self.at));
    }

    pub(crate) fn unmount(&mut self) {
        self.mounted = None;
    }

    /// Truncates the image, so that everything after the first `size` bytes is unreadable.
    pub(crate) fn shorten(&self, size: &str) {
        must("truncate", &["-s", size, self.image.to_str().unwrap()]);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// Simulates a power cut: all unflushed data is lost. Then mounts the file system again, which
    /// replays its journal.
    pub(crate) fn cut(&mut self) {
        const SHUTDOWN: &str = "import fcntl,os,struct,sys; \
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
        must("python3", &["-c", SHUTDOWN, self.at.to_str().unwrap()]);
        self.unmount();
        self.mount();
    }

    /// Flushes an unrelated file. This commits the file system's journal with all renames so far,
    /// but not the data of other files.
    pub(crate) fn flush_something_else(&self) {
        let file = std::fs::File::create(self.at.join("unrelated")).unwrap();
        file.sync_all().unwrap();
    }

    /// Flushes the whole file system.
    pub(crate) fn sync(&self) {
        rustix::fs::syncfs(std::fs::File::open(&self.at).unwrap()).unwrap();
    }

    /// Saves the current state of the disk for [`Disk::reset`].
    pub(crate) fn save(&mut self) {
        self.unmount();
        self.copy(&self.image, &self.saved());
        self.mount();
    }

    pub(crate) fn reset(&mut self) {
        self.unmount();
        self.copy(&self.saved(), &self.image);
        self.mount();
    }

    fn saved(&self) -> PathBuf {
        self.image.with_extension("saved")
    }

    fn copy(&self, from: &Path, to: &Path) {
        must("cp", &["--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()]);
    }
}
