//! How much of everything: one place, named in docs/http.md.

use std::time::Duration;

/// The longest body that is read.
pub(crate) const BODY_BYTES: u64 = 8 << 20;
/// The longest body of a request without a token, which signs a page in.
pub(crate) const UNKNOWN_BODY_BYTES: u64 = 1 << 10;
/// Connections over TCP that have not authenticated yet, and how long they may stay so.
pub(crate) const UNKNOWN: usize = 64;
/// How long a connection over TCP may take to authenticate.
pub(crate) const UNKNOWN_TIME: Duration = Duration::from_secs(2);
/// Descriptors that are left for everything but connections.
pub(crate) const OTHER_FILES: u64 = 256;
/// The longest head of a request: its line and its headers.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// How many headers a request may have.
pub(crate) const HEADERS: usize = 64;
/// How long a connection may take to send a head, the wait for it included.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a request may take to send its body.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(10);
/// How long a call that changes no file may take.
pub(crate) const CALL_TIME: Duration = Duration::from_secs(120);
/// How long a reader of a stream may take to read the next piece.
pub(crate) const READER_TIME: Duration = Duration::from_secs(30);
/// Connections at the same time, over the socket and over TCP each; fewer where the process may not
/// open so many files.
pub(crate) const CONNECTIONS: usize = 4096;
/// Calls that read at the same time.
pub(crate) const READING: usize = 8;
/// Calls that record or write at the same time; all but one per work tree only wait.
pub(crate) const WRITING: usize = 24;
/// Answers that are given piece by piece, at the same time.
pub(crate) const STREAMING: usize = 16;
/// Calls that may wait for one of these places.
pub(crate) const WAITING: usize = 1024;
/// How long a call waits for another process on the same work tree, unless it says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest id, of a session or a message for instance.
pub(crate) const ID_BYTES: usize = ctrlz::MAX_ID_BYTES;
/// How long a code for the page is good.
pub(crate) const CODE_TIME: Duration = Duration::from_secs(120);
/// Codes that may be open, and pages that may be signed in; the oldest goes first.
pub(crate) const CODES: usize = 16;
/// Answers that are remembered under their idempotency key, and for how long.
pub(crate) const REMEMBERED: usize = 1024;
/// Bytes of answers that are remembered.
pub(crate) const REMEMBERED_BYTES: usize = 64 << 20;
/// How long an answer is remembered.
pub(crate) const REMEMBERED_TIME: Duration = Duration::from_secs(24 * 3600);
