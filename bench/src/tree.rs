//! Generated work trees, with the same files on every machine.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Fallible;

/// Number of files in most directories.
const FILES_PER_DIR: usize = 20;
/// One of this many directories is ten levels deep.
const DEEP_EVERY: usize = 10;

/// Depth of the directories of the deep shape.
const DEEP_LEVELS: usize = 40;

/// Distribution of the files over directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// Wide with some deep directories, as in most projects.
    #[default]
    Usual,
    /// All files in one directory.
    Wide,
    /// All files 40 levels deep.
    Deep,
}

impl Shape {
    /// Returns the text that follows the number of files in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shape::Usual => "",
            Shape::Wide => " in one directory",
            Shape::Deep => ", each 40 levels down",
        }
    }
}

/// A work tree of `files` files.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: usize,
    pub(crate) shape: Shape,
}

impl Tree {
    /// Writes a tree of files that resemble source code.
    pub(crate) fn make(root: &Path, files: usize, shape: Shape) -> Fallible<Tree> {
        let tree = Tree { root: root.to_owned(), files, shape };
        for file in 0..files {
            let path = tree.path(file);
            if file.is_multiple_of(FILES_PER_DIR) {
                std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
            }
            std::fs::write(path, content(file, 0))?;
        }
        let_timestamps_age();
        Ok(tree)
    }

    /// Returns the path of the file with this number.
    pub(crate) fn path(&self, file: usize) -> PathBuf {
        let dir = file / FILES_PER_DIR;
        let mut path = self.root.clone();
        match self.shape {
            Shape::Wide => {
                path.extend(["all".to_owned(), format!("file{file:06}.rs")]);
                return path;
            }
            Shape::Deep => path.extend((0..DEEP_LEVELS).map(|level| format!("level{level:02}"))),
            Shape::Usual => path.push(format!("part{:02}", dir % 50)),
        }
        if self.shape == Shape::Usual && dir.is_multiple_of(DEEP_EVERY) {
            path.extend((0..8).map(|level| format!("level{level}")));
        }
        path.push(format!("module{dir:05}"));
        path.push(format!("file{:03}.rs", file % FILES_PER_DIR));
        path
    }

    /// Writes a commit of all files in the format of `git fast-import`.
    pub(crate) fn write_commit(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write!(out, "commit refs/heads/main\ncommitter a <a@example.com> 0 +0000\ndata 3\nall\n")?;
        for file in 0..self.files {
            let path = self.path(file);
            let content = std::fs::read(&path)?;
            let name = path.strip_prefix(&self.root).unwrap_or(&path).display();
            write!(out, "M 100644 inline {name}\ndata {}\n", content.len())?;
            out.write_all(&content)?;
            writeln!(out)?;
        }
        writeln!(out, "done")
    }

    /// Rewrites `count` files, evenly distributed, with new text for each round.
    pub(crate) fn edit(&self, count: usize, round: usize) -> Fallible<()> {
        let count = count.min(self.files);
        for at in 0..count {
            let file = at * self.files / count;
            std::fs::write(self.path(file), content(file, round + 1))?;
        }
        let_timestamps_age();
        Ok(())
    }

    /// Adds `count` new files in new directories.
    pub(crate) fn add(&self, count: usize, round: usize) -> Fallible<()> {
        for at in 0..count {
            let dir = self.root.join(format!("added{:03}", at / FILES_PER_DIR));
            std::fs::create_dir_all(&dir)?;
            std::fs::write(dir.join(format!("new{at:05}.rs")), content(at, round + 7))?;
        }
        let_timestamps_age();
        Ok(())
    }

    /// Removes the files that [`Tree::add`] added.
    pub(crate) fn remove_added(&self) -> Fallible<()> {
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("added") {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Waits until the timestamps of new files can be trusted, as they can between an agent's steps.
fn let_timestamps_age() {
    std::thread::sleep(std::time::Duration::from_millis(30));
}

/// Returns about 4.6 KB of text that compresses like source code.
pub(crate) fn content(file: usize, round: usize) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "let", "mut", "self", "path", "match", "return", "value", "result", "struct", "impl",
        "pub", "fn", "if", "else", "for", "in", "entry", "index", "bytes", "error", "option",
        "none", "some", "where",
    ];
    let mut random = Random((file as u64) << 20 | round as u64);
    let mut text = Vec::with_capacity(6_000);
    writeln!(text, "// file {file}, round {round}").expect("memory can be written");
    let lines = 60 + random.below(80);
    for line in 0..lines {
        text.extend(std::iter::repeat_n(b' ', 4 * (1 + random.below(3))));
        for _ in 0..3 + random.below(5) {
            let word = WORDS[random.below(WORDS.len())];
            write!(text, "{word}").expect("memory can be written");
            match random.below(4) {
                0 => write!(text, "_{:x} ", random.below(4096)),
                1 => write!(text, "({line}) "),
                _ => write!(text, " "),
            }
            .expect("memory can be written");
        }
        text.extend_from_slice(b";\n");
    }
    text
}

/// A pseudorandom number generator (splitmix64) whose output is the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// Returns the disk space used by everything below `dir`, in bytes.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            total += meta.blocks() * 512;
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_writes_other_text_and_every_run_the_same() {
        assert_eq!(content(3, 1), content(3, 1));
        assert_ne!(content(3, 1), content(3, 2));
        let bytes: usize = (0..200).map(|file| content(file, 0).len()).sum();
        assert!((3_000..6_500).contains(&(bytes / 200)), "{}", bytes / 200);
    }
}
