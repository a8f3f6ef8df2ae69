//! Writing of caches.

use std::io::{self, Write};
use std::ops::Range;

use super::entry::Basis;
use super::format::{put_dir, put_head, put_table};
use crate::scan::ListedDir;

const PIECE_BYTES: usize = 64 << 10;

/// Writes a cache in pieces, because allocating all of it at once costs more than encoding it.
pub(super) struct Writer<'a, W> {
    out: W,
    sum: crc32fast::Hasher,
    /// Number of bytes written.
    bytes: u64,
    /// Bytes not written yet.
    piece: Vec<u8>,
    /// Offsets of the directories.
    table: Vec<u8>,
    /// Bytes of the cache that unchanged directories are copied from, adjacent ones as one range.
    old: &'a [u8],
    /// Range of the old cache to write after `piece`.
    run: Range<usize>,
}

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn new(out: W, old: &'a [u8], packs: &[String], basis: &Basis) -> Self {
        let (sum, table) = (crc32fast::Hasher::new(), Vec::new());
        let mut piece = Vec::new();
        put_head(&mut piece, packs, basis);
        Writer { out, sum, bytes: 0, piece, table, old, run: 0..0 }
    }

    /// Reserves memory for a cache of `dirs` directories.
    pub(super) fn reserve(&mut self, dirs: usize) {
        self.table.reserve(8 * dirs);
    }

    /// Reserves memory for pieces, if many directories are put.
    pub(super) fn reserve_piece(&mut self) {
        self.piece.reserve(2 * PIECE_BYTES);
    }

    /// Copies the next directory from this range of the old cache.
    pub(super) fn copy(&mut self, span: Range<usize>) -> io::Result<()> {
        if self.run.end != span.start {
            self.end_run()?;
            self.run = span.start..span.start;
        }
        self.note_place();
        self.run.end = span.end;
        Ok(())
    }

    /// Writes the next directory.
    pub(super) fn put(&mut self, dir: &ListedDir) -> io::Result<()> {
        self.end_run()?;
        self.note_place();
        put_dir(&mut self.piece, dir);
        if self.piece.len() >= PIECE_BYTES { self.write_piece() } else { Ok(()) }
    }

    /// Writes the table and the checksum.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_run()?;
        put_table(&mut self.piece, &self.table);
        self.write_piece()?;
        self.out.write_all(&self.sum.finalize().to_le_bytes())
    }

    /// Adds the offset of the next directory to the table.
    fn note_place(&mut self) {
        let place = self.bytes + (self.piece.len() + self.run.len()) as u64;
        self.table.extend(place.to_le_bytes());
    }

    /// Writes a long run directly from the old cache, and adds a short one to the piece.
    fn end_run(&mut self) -> io::Result<()> {
        let run = std::mem::take(&mut self.run);
        let bytes = self.old.get(run).ok_or_else(|| io::Error::other("cut off"))?;
        if self.piece.len() + bytes.len() < 2 * PIECE_BYTES {
            self.piece.extend_from_slice(bytes);
            return Ok(());
        }
        self.write_piece()?;
        self.write(bytes)
    }

    fn write_piece(&mut self) -> io::Result<()> {
        let mut piece = std::mem::take(&mut self.piece);
        self.write(&piece)?;
        piece.clear();
        self.piece = piece;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
