//! All parsers behind one signature, for tests that feed them arbitrary input.
//!
//! Only in tests and fuzzing builds (`fuzz/`). A parser may reject its input, but must not panic,
//! hang, or use memory out of proportion to it.

use std::path::Path;

use crate::exchange::Bundle;
use crate::git::{
    IndexFile, Kind, PackFile, Rules, inflate_loose, parse_commit, parse_tree, salvage_pack,
};
use crate::restore::Journal;
use crate::scan::StatCache;

/// A parser of arbitrary bytes.
pub type Parser = fn(&[u8]);

/// All parsers, by name.
pub const PARSERS: [(&str, Parser); 10] = [
    ("tree", tree),
    ("commit", commit),
    ("loose", loose),
    ("pack", pack),
    ("salvage", salvage),
    ("user_index", user_index),
    ("ignore", ignore),
    ("stat_cache", stat_cache),
    ("journal", journal),
    ("bundle", bundle),
];

/// Upper bound on the size of a single object, in bytes.
const LIMIT: u64 = 1 << 20;

const OLD_MODE: &[u8] = b"100664 ";

/// Parses a tree object.
pub fn tree(bytes: &[u8]) {
    if let Ok(tree) = parse_tree(bytes.to_vec()) {
        for entry in tree.iter() {
            assert!(crate::path::TreePath::parse(entry.name).is_ok(), "a hostile name got in");
            assert!(tree.find(entry.name).is_some(), "an entry that cannot be found");
        }
        // Very old versions of git wrote one more file mode, which is parsed as the usual one.
        let again = crate::git::encode_tree(tree.iter());
        let parsed = parse_tree(again.clone()).expect("what we write, we can read");
        assert!(parsed.iter().eq(tree.iter()), "another tree than was parsed");
        let old = bytes.windows(OLD_MODE.len()).any(|found| found == OLD_MODE);
        assert!(old || again == bytes, "other bytes than were parsed");
    }
}

/// Parses a commit written by ctrlz.
pub fn commit(bytes: &[u8]) {
    if let Some(commit) = parse_commit(bytes) {
        // A parsed commit survives encoding and parsing again.
        let again = parse_commit(&crate::git::encode_commit(&commit));
        assert_eq!(again.map(|again| again.tree), Some(commit.tree));
    }
}

/// Parses a loose object.
pub fn loose(bytes: &[u8]) {
    if let Ok((_, object)) = inflate_loose(bytes, LIMIT) {
        assert!(object.len() as u64 <= LIMIT);
    }
}

/// Parses a pack and its index.
///
/// The first two bytes are the length of the index, which precedes the pack. The index is patched
/// to contain the checksum of the pack; otherwise almost no input would pass the first check.
pub fn pack(bytes: &[u8]) {
    let Some((split, rest)) = bytes.split_first_chunk::<2>() else { return };
    let split = usize::from(u16::from_be_bytes(*split)).min(rest.len());
    let (index, pack) = rest.split_at(split);
    let mut index = index.to_vec();
    if let (Some(sum), Some(end)) = (pack.last_chunk::<20>(), index.len().checked_sub(40)) {
        index[end..end + 20].copy_from_slice(sum);
    }
    with_files(&[("x.idx", &index), ("x.pack", pack)], |dir| {
        let Ok(pack) = PackFile::open(&dir.join("x.idx"), LIMIT) else { return };
        let ids: Vec<_> = pack.ids().take(100).collect();
        for id in &ids {
            drop(pack.read(id));
            drop(pack.header(id));
            assert!(pack.stream(id).is_ok() || pack.read(id).is_err());
        }
        drop(pack.raw_entries());
        drop(pack.entry_sizes());
    });
}

/// Parses a damaged pack.
pub fn salvage(bytes: &[u8]) {
    let mut read = 0;
    let count = salvage_pack(bytes, LIMIT as usize, &mut |_: Kind, object| read += object.len());
    assert!(count <= bytes.len(), "more objects than bytes");
}

/// Parses the user's index.
pub fn user_index(bytes: &[u8]) {
    with_files(&[("index", bytes)], |dir| {
        if let Some(index) = IndexFile::read(&dir.join("index"), Some(false)) {
            drop(index.dirs());
            index.below(b"a");
            index.fingerprint();
        }
    });
}

/// Parses ignore rules.
///
/// The first line is a path, the rest are rules.
pub fn ignore(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (path, text) = bytes.split_at(end);
    let rules = Rules::base(&[text], &[], &[]).child(b"a", text);
    // The rules of a directory are only queried for paths below it.
    let path = if crate::path::TreePath::parse(path).is_ok() { path } else { b"x" };
    for path in [crate::path::join(b"a", path), b"a/b.c".to_vec()] {
        rules.verdict(&path, false);
        rules.ignores_or_above(&path, true);
    }
}

/// Parses a stat cache, given without its checksum.
pub fn stat_cache(bytes: &[u8]) {
    let cache = StatCache::from_body(bytes).unwrap_or_default();
    for at in 0..cache.len().min(1000) {
        let Some((path, dir)) = cache.nth(at) else { continue };
        cache.position(path);
        dir.entries().take(1000).for_each(|entry| drop(entry.listed()));
    }
}

/// Parses the journal of a restore.
pub fn journal(bytes: &[u8]) {
    with_files(&[("restore.journal", bytes)], |dir| {
        if let Ok(Some(journal)) = Journal::load(&dir.join("restore.journal")) {
            drop(journal.paths());
        }
    });
}

/// Parses an exported file.
pub fn bundle(bytes: &[u8]) {
    with_files(&[("bundle", bytes)], |dir| drop(Bundle::open(&dir.join("bundle"))));
}

/// Writes files to a temporary directory, for parsers that read from disk, and removes them again.
/// Best effort: on an error the parser gets less input.
fn with_files(files: &[(&str, &[u8])], use_them: impl FnOnce(&Path)) {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory } else { Path::new("/tmp") };
    let dir = parent.join(format!("ctrlz-parser-{}", crate::fs::random_name()));
    if std::fs::create_dir(&dir).is_err() {
        return;
    }
    for (name, bytes) in files {
        drop(std::fs::write(dir.join(name), bytes));
    }
    use_them(&dir);
    for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
        drop(std::fs::remove_file(entry.path()));
    }
    drop(std::fs::remove_dir(&dir));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns well-formed inputs for a parser, as seeds for mutation.
    fn seeds(name: &str) -> Vec<Vec<u8>> {
        let id = [7_u8; 20];
        let entry =
            |mode: &str, name: &str| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &id].concat();
        let text = |text: &str| vec![text.as_bytes().to_vec()];
        match name {
            "tree" => vec![
                [entry("100644", "a"), entry("40000", "b"), entry("120000", "c")].concat(),
                [entry("100664", "a"), entry("100755", "b")].concat(),
            ],
            "commit" => text(
                "tree 0707070707070707070707070707070707070707\n\
                 parent 0707070707070707070707070707070707070707\nauthor a <a@b> 1 +0000\n\
                 committer ctrlz <ctrlz@localhost> 1 +0000\nctrlz {\"kind\":\"step\"}\n\nx\n",
            ),
            "ignore" => vec![
                b"a/b.log\n*.log\n!keep.log\n/out/\n**/x/**\n[a-z]?\\*\n#c\n".to_vec(),
                b"/b.loG\n*\x80".to_vec(),
            ],
            "journal" => text(
                "{\"version\":1,\"phase\":\"Swapping\",\"target\":null,\"safety\":null,\"units\":[],\
                 \"modes\":[],\"emptied\":[],\"tag\":\"0011223344556677\"}",
            ),
            "bundle" => {
                text("# v2 git bundle\n0707070707070707070707070707070707070707 refs/x\n\nPACK")
            }
            "stat_cache" => vec![vec![0; 64], vec![0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]],
            _ => packs(name),
        }
    }

    /// Returns an index, a loose object, or a pack (with its index) of a few small blobs.
    fn packs(name: &str) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let objects = dir.path().join("objects");
        std::fs::create_dir_all(objects.join("pack")).unwrap();
        let writer = crate::pack::PackWriter::new(&objects);
        for text in ["one", "two\n", "a longer text that is compressed, compressed, compressed"] {
            writer.add(Kind::Blob, text.as_bytes(), |_| false).unwrap();
        }
        let published = writer.publish().unwrap();
        let pack = std::fs::read(&published.packs[0]).unwrap();
        let index = std::fs::read(published.packs[0].with_extension("idx")).unwrap();
        match name {
            "pack" => vec![[&(index.len() as u16).to_be_bytes()[..], &index, &pack].concat()],
            "loose" => {
                use std::io::Write as _;
                let mut packed =
                    flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                packed.write_all(b"blob 3\0one").unwrap();
                vec![packed.finish().unwrap()]
            }
            _ => vec![pack, b"DIRC\0\0\0\x02\0\0\0\0".to_vec()],
        }
    }

    #[test]
    fn no_parser_panics_on_mutated_input() {
        for (name, parser) in PARSERS {
            xtask::feed(name, &seeds(name), xtask::sized(400, 40_000), parser);
        }
    }
}
