//! Bundles: refs and one pack in a single file, readable by `git bundle` and `git clone`.
//!
//! When writing, compressed entries are copied verbatim. When reading, the file is untrusted: sizes
//! are checked before memory is reserved, and every object id is computed from the content.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::fs::{Named, private};
use crate::git::ObjectId;
use crate::pack::{Entry, TemporaryPack};
use crate::scan::Progress;

use super::deltas::Resolver;
use super::entries::{PACK_HEADER_BYTES, Taker};
use super::rejected::Rejected;

pub(super) const SIGNATURE: &[u8] = b"# v2 git bundle\n";
/// Upper bound on the size of a bundle's ref list.
const MAX_HEADER_BYTES: usize = 16 << 20;

/// An opened bundle: its refs are read, its pack is not.
pub(crate) struct Bundle {
    path: PathBuf,
    file: BufReader<File>,
    pub(crate) refs: Vec<(String, ObjectId)>,
    pack_bytes: u64,
}

impl Bundle {
    /// Opens a file and reads its refs.
    pub(crate) fn open(path: &Path) -> Result<Bundle, Rejected> {
        let meta = path.metadata().named("open", path)?;
        if !meta.is_file() {
            return Err("it is not a regular file".into());
        }
        let mut file = BufReader::new(File::open(path).named("open", path)?);
        let mut header = Vec::new();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut line = Vec::new();
            let limit = (MAX_HEADER_BYTES - header.len()) as u64;
            let read = file.by_ref().take(limit).read_until(b'\n', &mut line);
            read.named("read", path)?;
            header.extend_from_slice(&line);
            match line.as_slice() {
                b"\n" => break,
                line if line.ends_with(b"\n") => lines.push(line.trim_ascii_end().to_vec()),
                _ => return Err("its list of refs has no end".into()),
            }
            if lines.len() == 1 && lines[0] != SIGNATURE.trim_ascii_end() {
                return Err("it was not made by `ctrlz export`".into());
            }
        }
        let mut refs = Vec::new();
        for line in lines.iter().skip(1) {
            let parsed = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
            let id = parsed.and_then(|(text, _)| {
                let id: ObjectId = text.parse().ok()?;
                (id.to_string() == text).then_some(id)
            });
            match (parsed, id) {
                (Some((_, name)), Some(id)) => refs.push((name.to_owned(), id)),
                _ => return Err("its list of refs is malformed".into()),
            }
        }
        let pack_bytes = meta.len().saturating_sub(header.len() as u64);
        Ok(Bundle { path: path.to_owned(), file, refs, pack_bytes })
    }

    /// Copies and indexes the pack in `pack_dir`. Returns the number of objects.
    pub(crate) fn unpack(mut self, pack_dir: &Path, progress: &Progress) -> Result<u64, Rejected> {
        crate::fs::check_free(pack_dir, |_| self.pack_bytes)?;
        let path = pack_dir.join("pack-incoming.pack");
        let mut copy = private::create(&path)?;
        std::io::copy(&mut self.file, &mut copy).named("copy", &self.path)?;
        copy.sync_all().named("flush", &path)?;
        let (entries, checksum) = index(&path, progress)?;
        let count = entries.len() as u64;
        let pack = TemporaryPack { path: path.clone(), entries, checksum };
        crate::pack::write_index(&pack)?;
        for extension in ["pack", "idx"] {
            let to = pack_dir.join(format!("pack-{checksum}.{extension}"));
            std::fs::rename(path.with_extension(extension), &to).named("rename", &to)?;
        }
        Ok(count)
    }
}

/// Finds every object of a pack and computes its id.
fn index(path: &Path, progress: &Progress) -> Result<(Vec<Entry>, ObjectId), Rejected> {
    let file = File::open(path).named("open", path)?;
    let total = file.metadata().named("look at", path)?.len();
    let mut taker = Taker { input: BufReader::with_capacity(256 << 10, file), at: 0, seen: None };
    let (parts, checksum) = taker.parts(total, progress)?;
    let mut resolver = Resolver::of(path, parts)?;
    resolver.resolve(progress)?;
    let mut entries = Vec::with_capacity(resolver.parts.len());
    let mut ids = HashSet::new();
    for part in &resolver.parts {
        let id = part.id.ok_or("an object has no base")?;
        if !ids.insert(id) {
            return Err(format!("object {id} is in it twice").into());
        }
        entries.push(Entry { id, crc: part.crc, offset: part.offset - PACK_HEADER_BYTES });
    }
    Ok((entries, checksum))
}
