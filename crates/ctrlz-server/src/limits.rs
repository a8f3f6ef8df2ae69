//! All limits of the server, as named in docs/http.md.

use std::time::Duration;

/// Upper bound on the body of a request.
pub(crate) const BODY_BYTES: u64 = 8 << 20;
/// Upper bound on the body of a request without a token, which signs in a page.
pub(crate) const UNKNOWN_BODY_BYTES: u64 = 1 << 10;
/// Upper bound on the TCP connections that have not authenticated yet.
pub(crate) const UNKNOWN: usize = 64;
/// Time limit for a TCP connection to authenticate.
pub(crate) const UNKNOWN_TIME: Duration = Duration::from_secs(2);
/// File descriptors that are reserved for everything but connections.
pub(crate) const OTHER_FILES: u64 = 256;
/// Upper bound on the head of a request: its request line and headers.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Upper bound on the number of headers of a request.
pub(crate) const HEADERS: usize = 64;
/// Time limit for receiving a request head, including the wait for its first byte.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);
/// Time limit for receiving a request body.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(10);
/// Time limit for a call that changes no file.
pub(crate) const CALL_TIME: Duration = Duration::from_secs(120);
/// Time limit for the client to accept the next piece of a stream.
pub(crate) const READER_TIME: Duration = Duration::from_secs(30);
/// Upper bound on concurrent connections, for the socket and for TCP each. It is lower if the
/// process may not open enough files.
pub(crate) const CONNECTIONS: usize = 4096;
/// Upper bound on concurrent calls that read.
pub(crate) const READING: usize = 8;
/// Upper bound on concurrent calls that record or write. Only one per work tree runs; the others
/// wait.
pub(crate) const WRITING: usize = 24;
/// Upper bound on concurrent streamed responses.
pub(crate) const STREAMING: usize = 16;
/// Upper bound on the calls that wait for one of these slots.
pub(crate) const WAITING: usize = 1024;
/// Upper bound on the wait for another process on the same work tree. A call may ask for less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Upper bound on the length of an id, such as that of a session or a message.
pub(crate) const ID_BYTES: usize = ctrlz::MAX_ID_BYTES;
/// Lifetime of a code that signs in a page.
pub(crate) const CODE_TIME: Duration = Duration::from_secs(120);
/// Upper bound on unused codes, and on signed-in pages. The oldest are dropped first.
pub(crate) const CODES: usize = 16;
/// Upper bound on the responses that are remembered under their idempotency keys.
pub(crate) const REMEMBERED: usize = 1024;
/// Upper bound on the bytes of remembered requests and responses.
pub(crate) const REMEMBERED_BYTES: usize = 64 << 20;
/// Time for which a response is remembered.
pub(crate) const REMEMBERED_TIME: Duration = Duration::from_secs(24 * 3600);
