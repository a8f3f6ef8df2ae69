//! Splits an untrusted stream into lines of bounded length, and resynchronizes after a line that is
//! too long.

use std::io::{self, BufRead, BufReader, Read};

/// One line, without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    /// The line exceeded the limit and was discarded.
    TooLong,
}

/// Reader that splits a stream into lines.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    max_bytes: usize,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R, max_bytes: usize) -> Lines<R> {
        Lines { reader: BufReader::with_capacity(64 << 10, reader), max_bytes }
    }

    /// Returns the next line, or `None` at the end of the stream. Text after the last line feed
    /// counts as a line.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut too_long = false;
        let mut any = false;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(super::RETRY);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            any |= !available.is_empty();
            too_long |= line.len() + part.len() > self.max_bytes;
            if too_long {
                // Frees the partial line, which may be large.
                line = Vec::new();
            } else {
                line.extend_from_slice(part);
            }
            let at_end = available.is_empty();
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() || at_end {
                let line = if too_long { Line::TooLong } else { Line::Whole(line) };
                return Ok(any.then_some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Stream that returns its bytes in pieces of the given sizes.
    struct Pieces<'a> {
        bytes: &'a [u8],
        sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes.next().unwrap_or(1).min(buffer.len()).min(self.bytes.len());
            buffer[..size].copy_from_slice(&self.bytes[..size]);
            self.bytes = &self.bytes[size..];
            Ok(size)
        }
    }

    fn read_all(bytes: &[u8], sizes: Vec<usize>, max_bytes: usize) -> Vec<Line> {
        let mut lines = Lines::new(Pieces { bytes, sizes: sizes.into_iter().cycle() }, max_bytes);
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    /// Returns the expected lines, found by a plain split.
    fn expected(bytes: &[u8], max_bytes: usize) -> Vec<Line> {
        let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        if parts.last().is_some_and(|last| last.is_empty()) {
            parts.pop();
        }
        let line = |part: &&[u8]| {
            if part.len() > max_bytes { Line::TooLong } else { Line::Whole(part.to_vec()) }
        };
        parts.iter().map(line).collect()
    }

    proptest! {
        #[test]
        fn input_is_split_at_line_feeds(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            sizes in prop::collection::vec(1_usize..9, 1..5),
            max_bytes in 0_usize..40,
        ) {
            prop_assert_eq!(read_all(&bytes, sizes, max_bytes), expected(&bytes, max_bytes));
        }
    }
}
