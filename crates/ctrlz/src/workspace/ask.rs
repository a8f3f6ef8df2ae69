//! What is said between a command and the watcher of its work tree.
//!
//! One question, one answer, each a line of JSON over a socket in the work tree's part of the
//! store, where only its owner can go. Nobody waits long: a watcher that does not answer, or
//! answers anything else, is as good as none.

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
use crate::scan::Token;

/// An answer takes well below a millisecond; who needs this long has stopped.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the watcher lets a client keep it from others.
const CLIENT_PATIENCE: Duration = Duration::from_millis(200);
const MAX_QUESTION_BYTES: u64 = 4 << 10;
const MAX_ANSWER_BYTES: u64 = 64 << 20;
const SOCKET: &str = "socket";

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub(super) enum Question {
    /// What may have changed since `token`?
    Since {
        /// What decides which directories a scan enters, as the asker sees it.
        entered: String,
        token: Option<Token>,
    },
    /// How are you?
    Status,
    /// Stop.
    Stop,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub(super) enum Answer {
    /// Everything that happened before the question came is in here.
    Changes {
        now: Token,
        /// Where something may have changed; `None` if that is not known.
        dirty: Option<Vec<PathText>>,
    },
    /// Other directories are watched than the asker means.
    Elsewhere,
    Status {
        process: u32,
        dirs: u64,
    },
    Stopping,
}

/// Asks the watcher whose directory is `dir`; `None` if there is none that answers in time.
pub(super) fn ask(dir: &Path, question: &Question) -> Option<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = connect(dir)?;
    send(&mut stream, question, PATIENCE)?;
    receive(&mut stream, MAX_ANSWER_BYTES, deadline)
}

/// Connects without waiting: the queue of a watcher that has stopped fills up.
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

/// The socket's path, however long the directory's own is: an address has room for 107 bytes.
fn short_path(dir: &Dir) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_fd().as_raw_fd()))
}

/// Listens in `dir`, in place of whoever was killed while listening there.
///
/// The caller holds the watcher's lock.
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

/// Takes the socket's name away, so that nobody waits for an answer.
pub(super) fn stop_listening(dir: &Path) {
    std::fs::remove_file(dir.join(SOCKET)).ok();
}

/// Reads a question, if it comes from the same user and in time.
pub(super) fn question(stream: &mut UnixStream) -> Option<Question> {
    stream.set_nonblocking(false).ok()?;
    if !is_ours(stream) {
        return None;
    }
    receive(stream, MAX_QUESTION_BYTES, Instant::now() + CLIENT_PATIENCE)
}

/// Answers; whoever asked may be gone by now.
pub(super) fn answer(stream: &mut UnixStream, answer: &Answer) {
    send(stream, answer, CLIENT_PATIENCE);
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

    /// Answers one question with these bytes.
    fn answering(dir: &Path, bytes: &'static [u8]) -> std::thread::JoinHandle<()> {
        let listener = listen(dir).unwrap();
        listener.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(question(&mut stream), Some(Question::Status));
            stream.write_all(bytes).unwrap();
        })
    }

    #[test]
    fn an_answer_comes_back_however_long_the_path_is() {
        let dir = dir();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let watcher = answering(&deep, b"{\"answer\":\"stopping\"}\n");
        assert_eq!(ask(&deep, &Question::Status), Some(Answer::Stopping));
        watcher.join().unwrap();
    }

    #[test]
    fn nonsense_is_no_answer() {
        for bytes in [&b""[..], b"\n", b"{}\n", b"{\"answer\":\"changes\"}\n", b"\xff\xff\n"] {
            let dir = dir();
            let watcher = answering(dir.path(), bytes);
            assert_eq!(ask(dir.path(), &Question::Status), None, "{bytes:?}");
            watcher.join().unwrap();
        }
    }

    #[test]
    fn a_socket_that_nobody_serves_costs_a_moment() {
        let dir = dir();
        assert_eq!(ask(dir.path(), &Question::Status), None);
        let listener = listen(dir.path()).unwrap();
        let start = Instant::now();
        assert_eq!(ask(dir.path(), &Question::Status), None);
        assert!(start.elapsed() < PATIENCE * 3, "{:?}", start.elapsed());
        drop(listener);
        let start = Instant::now();
        assert_eq!(ask(dir.path(), &Question::Status), None);
        assert!(start.elapsed() < PATIENCE, "refused at once");
    }
}
