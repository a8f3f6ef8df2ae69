//! Files by which other programs find the server: a socket, the token and the page's address, in a
//! directory that only its user can enter.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::ServeError;

const SOCKET: &str = "socket";
const TOKEN: &str = "token";
const URL: &str = "url";
const LOCK: &str = "lock";

/// Directory of the server's files, locked by one server at a time.
pub(crate) struct Files {
    dir: PathBuf,
    _lock: File,
}

fn file_error(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ServeError {
    let path = path.to_owned();
    move |source| ServeError::File { verb, path, source }
}

impl Files {
    /// Locks the directory, and removes files that a killed server left.
    pub(crate) fn take(dir: &Path) -> Result<Files, ServeError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(file_error("create", dir))?;
        let meta = dir.symlink_metadata().map_err(file_error("read", dir))?;
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
            let why = io::Error::other("it is not a directory of this user's");
            return Err(file_error("use", dir)(why));
        }
        let private = Permissions::from_mode(0o700);
        std::fs::set_permissions(dir, private).map_err(file_error("protect", dir))?;
        let path = dir.join(LOCK);
        let lock = private_file(&path).map_err(file_error("open", &path))?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(ServeError::AlreadyServed { dir: dir.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(file_error("lock", &path)(error)),
        }
        let files = Files { dir: dir.to_owned(), _lock: lock };
        files.clear();
        Ok(files)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.dir.join(TOKEN)
    }

    /// Listens on the socket.
    pub(crate) fn listen(&self) -> Result<UnixListener, ServeError> {
        let path = self.socket();
        let listen = || {
            let dir = File::open(&self.dir)?;
            let listener = UnixListener::bind(short_path(&dir))?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listen().map_err(file_error("listen at", &path))
    }

    /// Writes the token and the page's address.
    pub(crate) fn tell(&self, token: &str, url: &str) -> Result<(), ServeError> {
        for (name, text) in [(TOKEN, token), (URL, url)] {
            let path = self.dir.join(name);
            let write = || {
                // Always a new file: an existing one could be a symlink that another program made.
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(0o600);
                options.open(&path)?.write_all(format!("{text}\n").as_bytes())
            };
            write().map_err(file_error("write", &path))?;
        }
        Ok(())
    }

    /// Removes all files that announce a server.
    fn clear(&self) {
        for name in [SOCKET, TOKEN, URL] {
            // Errors are ignored: the file may not exist, and creating it again reports any other
            // problem.
            std::fs::remove_file(self.dir.join(name)).ok();
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.clear();
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(no_follow).open(path)
}

/// Returns a short path of the socket, because a socket address holds only 107 bytes.
fn short_path(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()))
}

/// Connects to the server whose directory is `dir`. Returns `None` if no server is running.
///
/// The peer is a process of this user: other users cannot create a socket there, and the kernel
/// reports the peer's credentials.
pub fn connect(dir: &Path) -> Option<UnixStream> {
    let opened = File::open(dir).ok()?;
    let stream = UnixStream::connect(short_path(&opened)).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    (peer.uid == rustix::process::geteuid()).then_some(stream)
}
