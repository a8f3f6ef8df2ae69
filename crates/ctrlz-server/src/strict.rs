//! Checks the heads of requests before the parser does: every line must end with CR LF.
//!
//! The parser also accepts a lone LF. A proxy between a client and this server may not, and would
//! then see another request than the server does (request smuggling).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose request heads are checked.
pub(crate) struct Strict<S> {
    stream: S,
    at: At,
}

/// Position of the next byte in a request.
enum At {
    Head(Head),
    /// Number of body bytes that are still to come.
    Body(u64),
    /// In a body of unknown length. Such a request is refused, and the connection is closed.
    Unknown,
}

#[derive(Default)]
struct Head {
    /// Start of the line, as much as is needed to recognize it.
    line: Vec<u8>,
    last: u8,
    any: bool,
    length: u64,
    is_unknown: bool,
}

/// A line that does not end with CR LF.
struct NotALine;

impl Head {
    /// Processes one byte. Returns what follows the head once it is complete.
    fn take(&mut self, byte: u8) -> Result<Option<At>, NotALine> {
        const ENOUGH: usize = 64;
        let last = std::mem::replace(&mut self.last, byte);
        match (last, byte) {
            (b'\r', b'\n') => return Ok(self.end_line()),
            (b'\r', _) | (_, b'\n') => return Err(NotALine),
            (_, b'\r') => (),
            _ if self.line.len() < ENOUGH => self.line.push(byte),
            _ => (),
        }
        Ok(None)
    }

    fn end_line(&mut self) -> Option<At> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).to_ascii_lowercase();
        if line.is_empty() {
            let next = if self.is_unknown { At::Unknown } else { At::Body(self.length) };
            return self.any.then_some(next);
        }
        self.any = true;
        if let Some(length) = line.strip_prefix("content-length:") {
            // The parser refuses a length that is not a number.
            self.length = length.trim().parse().unwrap_or(0);
        }
        self.is_unknown |= line.starts_with("transfer-encoding");
        None
    }
}

impl<S> Strict<S> {
    pub(crate) fn new(stream: S) -> Strict<S> {
        Strict { stream, at: At::Head(Head::default()) }
    }

    fn look(&mut self, mut bytes: &[u8]) -> Result<(), NotALine> {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Unknown => return Ok(()),
                At::Body(0) => self.at = At::Head(Head::default()),
                At::Body(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= here as u64;
                    bytes = &bytes[here..];
                }
                At::Head(head) => {
                    if let Some(next) = head.take(bytes[0])? {
                        self.at = next;
                    }
                    bytes = &bytes[1..];
                }
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let looked = self.look(&buffer.filled()[before..]);
        Poll::Ready(looked.map_err(|NotALine| io::ErrorKind::InvalidData.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether these bytes are accepted, in pieces of various sizes.
    #[track_caller]
    fn check(bytes: &str, expected: bool) {
        for size in [1, 2, 3, 7, bytes.len()] {
            let mut strict = Strict::new(());
            let taken = bytes.as_bytes().chunks(size).all(|piece| strict.look(piece).is_ok());
            assert_eq!(taken, expected, "{bytes:?} by {size}");
        }
    }

    #[test]
    fn header_lines_must_end_with_cr_lf() {
        check("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true);
        check("GET / HTTP/1.1\nHost: x\r\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: x\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: x\r\n\n", false);
        check("GET / HTTP/1.1\r\nHost: x\ry\r\n\r\n", false);
    }

    #[test]
    fn a_body_may_contain_any_bytes() {
        check("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\na\nb\rcGET / HTTP/1.1\r\n\r\n", true);
        check("POST / HTTP/1.1\r\ncontent-LENGTH:  5 \r\n\r\na\nb\rcGET /\n", false);
    }
}
