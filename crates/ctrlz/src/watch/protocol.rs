//! Requests to a watcher and its responses.
//!
//! Each is one line of JSON on a Unix socket in the work tree's part of the store, which only its
//! owner can enter. Both sides use short timeouts: a watcher that does not respond in time, or
//! responds with anything else, counts as missing.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::fs::{Dir, FileError, Named};
use crate::path::PathText;

use super::Cursor;

/// Timeout of a client. A response takes well below a millisecond.
const PATIENCE: Duration = Duration::from_millis(500);
/// Timeout of the watcher for one client.
const CLIENT_PATIENCE: Duration = Duration::from_millis(200);
const MAX_REQUEST_BYTES: u64 = 4 << 10;
const MAX_RESPONSE_BYTES: u64 = 64 << 20;
const SOCKET: &str = "socket";

/// A request to the watcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub(super) enum Request {
    /// Asks for the changes since a cursor.
    Since {
        /// Identifies the directories that the client's scan would enter.
        entered: String,
        token: Option<Cursor>,
    },
    Status,
    Stop,
}

/// A response of the watcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub(super) enum Response {
    /// Covers every change before the request.
    Changes {
        now: Cursor,
        /// The paths that may have changed, or `None` if they are not known.
        dirty: Option<Vec<PathText>>,
    },
    /// The watcher watches other directories than the client's scan would enter.
    Elsewhere,
    Status {
        process: u32,
        dirs: u64,
    },
    Stopping,
}

/// Sends a request to the watcher with this directory. Returns `None` if none responds in time.
pub(super) fn call(dir: &Path, request: &Request) -> Option<Response> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = connect(dir)?;
    send(&mut stream, request, PATIENCE)?;
    receive(&mut stream, MAX_RESPONSE_BYTES, deadline)
}

/// Connects without blocking: the backlog of a suspended watcher fills up.
fn connect(dir: &Path) -> Option<UnixStream> {
    let dir = Dir::open(dir).ok()?;
    let address = SocketAddrUnix::new(short_path(&dir)).ok()?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).ok()?;
    is_ours(&stream).then_some(stream)
}

/// Returns a short path of the socket, because an address is limited to 107 bytes.
fn short_path(dir: &Dir) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_fd().as_raw_fd()))
}

/// Listens in `dir`. Replaces the socket of a watcher that was killed. The caller holds the lock.
pub(super) fn listen(dir: &Path) -> Result<UnixListener, FileError> {
    let path = dir.join(SOCKET);
    stop_listening(dir);
    let opened = Dir::open(dir)?;
    let listener = UnixListener::bind(short_path(&opened)).named("listen at", &path)?;
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).named("set the permissions of", &path)?;
    listener.set_nonblocking(true).named("listen at", &path)?;
    Ok(listener)
}

/// Removes the socket, so that no client waits for a response.
pub(super) fn stop_listening(dir: &Path) {
    // Errors are ignored: usually there is no socket.
    std::fs::remove_file(dir.join(SOCKET)).ok();
}

/// Reads a request. Returns `None` if it is another user's, invalid or late.
pub(super) fn read_request(stream: &mut UnixStream) -> Option<Request> {
    stream.set_nonblocking(false).ok()?;
    if !is_ours(stream) {
        return None;
    }
    receive(stream, MAX_REQUEST_BYTES, Instant::now() + CLIENT_PATIENCE)
}

/// Sends a response. Errors are ignored: the client may have exited.
pub(super) fn respond(stream: &mut UnixStream, response: &Response) {
    send(stream, response, CLIENT_PATIENCE);
}

fn is_ours(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

fn send(stream: &mut UnixStream, message: &impl Serialize, patience: Duration) -> Option<()> {
    let mut line = serde_json::to_vec(message).ok()?;
    line.push(b'\n');
    stream.set_write_timeout(Some(patience)).ok()?;
    stream.write_all(&line).ok()
}

fn receive<M: DeserializeOwned>(
    stream: &mut UnixStream,
    limit: u64,
    deadline: Instant,
) -> Option<M> {
    let mut line = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let left =
            deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        let count = match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        line.extend_from_slice(&buffer[..count]);
        if line.last() == Some(&b'\n') {
            return serde_json::from_slice(&line).ok();
        }
        if line.len() as u64 > limit {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    /// Responds to one request with these bytes.
    fn responding(dir: &Path, bytes: &'static [u8]) -> std::thread::JoinHandle<()> {
        let listener = listen(dir).unwrap();
        listener.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(read_request(&mut stream), Some(Request::Status));
            stream.write_all(bytes).unwrap();
        })
    }

    #[test]
    fn a_socket_in_a_deep_directory_is_reached() {
        let dir = dir();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let watcher = responding(&deep, b"{\"answer\":\"stopping\"}\n");
        assert_eq!(call(&deep, &Request::Status), Some(Response::Stopping));
        watcher.join().unwrap();
    }

    #[test]
    fn invalid_responses_are_ignored() {
        for bytes in [&b""[..], b"\n", b"{}\n", b"{\"answer\":\"changes\"}\n", b"\xff\xff\n"] {
            let dir = dir();
            let watcher = responding(dir.path(), bytes);
            assert_eq!(call(dir.path(), &Request::Status), None, "{bytes:?}");
            watcher.join().unwrap();
        }
    }

    #[test]
    fn a_request_without_a_watcher_times_out_or_is_refused() {
        let dir = dir();
        assert_eq!(call(dir.path(), &Request::Status), None);
        let listener = listen(dir.path()).unwrap();
        let start = Instant::now();
        assert_eq!(call(dir.path(), &Request::Status), None);
        assert!(start.elapsed() < PATIENCE * 3, "{:?}", start.elapsed());
        drop(listener);
        let start = Instant::now();
        assert_eq!(call(dir.path(), &Request::Status), None);
        assert!(start.elapsed() < PATIENCE, "refused at once");
    }
}
