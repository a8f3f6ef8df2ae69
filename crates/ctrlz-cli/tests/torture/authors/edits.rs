//! Random changes of files. Each written line is a new token of its author.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use xtask::Random;

use crate::manifest::{Entry, Manifest};

use super::oracle::{Author, Script, Tokens};
use super::world::MAX_NEW_FILE_BYTES;

/// Names that collide: `d` and `k` are sometimes files and sometimes directories.
const NAMES: [&str; 14] = [
    "a",
    "b",
    "c.txt",
    "d",
    "d/e",
    "d/f",
    "d/g/h",
    "k",
    "k/l",
    "n.ign",
    "d/o.ign",
    "ignored/x",
    "p q",
    "r/s",
];

/// The kinds of changes that an author makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variety {
    /// Text files only: edits, new files, removed files.
    Lines,
    /// All kinds of files and operations.
    All,
}

/// Changes files below `top` on behalf of one author.
pub(crate) struct Editor<'a> {
    pub(crate) top: &'a Path,
    pub(crate) tree: &'a Manifest,
    pub(crate) tokens: &'a mut Tokens,
    pub(crate) author: Author,
    pub(crate) random: Random,
    /// Whether to create files that are too large to be captured.
    pub(crate) has_large: bool,
}

impl Editor<'_> {
    /// Makes one random change. Returns its description, or `None` if it was not possible.
    pub(crate) fn change(&mut self, variety: Variety) -> Option<String> {
        let choice = self.random.below(if variety == Variety::Lines { 14 } else { 30 });
        match choice {
            0..10 => self.edit_some_file(),
            10..13 => self.create(),
            13 => self.remove(),
            14 | 15 => self.rename(),
            16 | 17 => self.change_mode(),
            18 => self.link(),
            19 => self.hard_link(),
            20 => self.make_dir(),
            21 => self.remove_dir(),
            22 => self.swap_kind(),
            23 => self.remove(),
            24 if self.random.below(2) == 0 => self.backup(),
            24 => self.copy(),
            25 | 26 => self.create(),
            _ => self.edit_some_file(),
        }
    }

    /// Creates a named file, or edits it if it exists.
    pub(crate) fn change_file(&mut self, path: &str) -> Option<String> {
        match self.tree.0.get(path) {
            Some(Entry::File { .. }) => self.edit(path),
            Some(_) => None,
            None => self.create_at(path),
        }
    }

    /// Applies the effect of a shell command that names its files.
    pub(crate) fn follow(&mut self, script: &Script) -> Option<String> {
        match script {
            Script::Remove(path) => {
                crate::lab::remove(&self.at(path));
                Some(script.text())
            }
            Script::Move(from, to) => self.rename_to(from, to),
            Script::Edit(path) => self.edit(path),
            Script::Backup(path, copy) => {
                let copied = self.copy_to(path, copy)?;
                let edited = self.edit(path)?;
                Some(format!("{copied}; {edited}"))
            }
        }
    }

    /// Returns a random shell command that names its files.
    pub(crate) fn pick_script(tree: &Manifest, random: &mut Random) -> Script {
        let path = Editor::pick_path(tree, random);
        let free: Vec<&&str> = NAMES.iter().filter(|name| !tree.0.contains_key(**name)).collect();
        let other = if free.is_empty() { "z" } else { **random.pick(&free) }.to_owned();
        match random.below(4) {
            0 => Script::Remove(path),
            1 => Script::Move(path, other),
            2 => Script::Edit(path),
            _ => Script::Backup(path, other),
        }
    }

    /// Returns a path for a tool that names its file.
    pub(crate) fn pick_path(tree: &Manifest, random: &mut Random) -> String {
        let files: Vec<&String> = tree
            .0
            .iter()
            .filter(|(path, entry)| is_file(entry) && *path != ".gitignore")
            .map(|(path, _)| path)
            .collect();
        if files.is_empty() || random.below(4) == 0 {
            (*random.pick(&NAMES)).to_owned()
        } else {
            (*random.pick(&files)).clone()
        }
    }

    fn files(&self) -> Vec<String> {
        let found =
            self.tree.0.iter().filter(|(path, entry)| is_file(entry) && *path != ".gitignore");
        found.map(|(path, _)| path.clone()).collect()
    }

    fn dirs(&self) -> Vec<String> {
        let found = self.tree.0.iter().filter(|(_, entry)| matches!(entry, Entry::Dir { .. }));
        found.map(|(path, _)| path.clone()).collect()
    }

    fn pick(&mut self, paths: &[String]) -> Option<String> {
        (!paths.is_empty()).then(|| self.random.pick(paths).clone())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.join(path)
    }

    fn edit_some_file(&mut self) -> Option<String> {
        let path = self.pick(&self.files())?;
        self.edit(&path)
    }

    /// Inserts, deletes or replaces a few lines.
    fn edit(&mut self, path: &str) -> Option<String> {
        let bytes = self.tree.bytes(path)?.to_vec();
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let end: &[u8] = if bytes.windows(2).any(|two| two == b"\r\n") { b"\r\n" } else { b"\n" };
        let at = self.random.below(lines.len() + 1);
        let removed = match self.random.below(3) {
            0 => 0,
            _ => self.random.below(3).min(lines.len() - at),
        };
        let added = if removed > 0 { self.random.below(3) } else { 1 + self.random.below(2) };
        let mut new: Vec<Vec<u8>> = (0..added).map(|_| self.line(end)).collect();
        if at > 0 && at == lines.len() && !lines[at - 1].ends_with(b"\n") {
            lines[at - 1].extend(end);
        }
        if self.random.below(12) == 0
            && let Some(last) = new.last_mut()
            && at + removed == lines.len()
        {
            last.truncate(last.len() - end.len());
        }
        let shown: Vec<u8> = new.concat();
        lines.splice(at..at + removed, new);
        self.write(path, &lines.concat())?;
        Some(format!("edit {path}: line {at}, -{removed}, +{:?}", String::from_utf8_lossy(&shown)))
    }

    /// Returns a new token as a line.
    fn line(&mut self, end: &[u8]) -> Vec<u8> {
        let mut line = self.tokens.make(self.author).into_bytes();
        line.extend(end);
        line
    }

    fn create(&mut self) -> Option<String> {
        let path = (*self.random.pick(&NAMES)).to_owned();
        (!self.tree.0.contains_key(&path)).then(|| self.create_at(&path)).flatten()
    }

    fn create_at(&mut self, path: &str) -> Option<String> {
        let style = self.random.below(12);
        let end: &[u8] = if style == 0 { b"\r\n" } else { b"\n" };
        let count = if style == 1 { 0 } else { 1 + self.random.below(8) };
        let mut bytes: Vec<u8> = (0..count).flat_map(|_| self.line(end)).collect();
        if self.has_large && self.random.below(2) == 0 {
            bytes.extend(std::iter::repeat_n(b'x', MAX_NEW_FILE_BYTES + 1));
            bytes.push(b'\n');
        }
        match style {
            2 => bytes.insert(0, 0),
            3 => drop(bytes.pop()),
            _ => (),
        }
        std::fs::create_dir_all(self.at(path).parent()?).ok()?;
        self.write(path, &bytes)?;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        Some(format!("create {path} ({} bytes): {shown:?}", bytes.len()))
    }

    /// Writes in place, or to a temporary file that replaces the old one, like editors do.
    fn write(&mut self, path: &str, bytes: &[u8]) -> Option<()> {
        let path = self.at(path);
        if self.random.below(3) > 0 {
            return std::fs::write(path, bytes).ok();
        }
        let beside = self.top.join("saving~");
        std::fs::write(&beside, bytes).ok()?;
        if let Ok(meta) = path.metadata() {
            std::fs::set_permissions(&beside, meta.permissions()).ok()?;
        }
        let renamed = std::fs::rename(&beside, &path);
        if renamed.is_err() {
            std::fs::remove_file(&beside).ok()?;
        }
        renamed.ok()
    }

    fn remove(&mut self) -> Option<String> {
        let path = self.pick(&self.files())?;
        std::fs::remove_file(self.at(&path)).ok()?;
        Some(format!("rm {path}"))
    }

    fn rename(&mut self) -> Option<String> {
        let mut sources = self.files();
        sources.extend(self.dirs());
        let from = self.pick(&sources)?;
        let to = (*self.random.pick(&NAMES)).to_owned();
        self.rename_to(&from, &to)
    }

    fn rename_to(&mut self, from: &str, to: &str) -> Option<String> {
        if self.tree.0.contains_key(to) || to.starts_with(&format!("{from}/")) {
            return None;
        }
        std::fs::create_dir_all(self.at(to).parent()?).ok()?;
        std::fs::rename(self.at(from), self.at(to)).ok()?;
        Some(format!("mv '{from}' '{to}'"))
    }

    fn copy(&mut self) -> Option<String> {
        let from = self.pick(&self.files())?;
        let to = (*self.random.pick(&NAMES)).to_owned();
        self.copy_to(&from, &to)
    }

    fn copy_to(&mut self, from: &str, to: &str) -> Option<String> {
        if self.tree.0.contains_key(to) {
            return None;
        }
        std::fs::create_dir_all(self.at(to).parent()?).ok()?;
        std::fs::copy(self.at(from), self.at(to)).ok()?;
        Some(format!("cp '{from}' '{to}'"))
    }

    /// Copies a file before editing it.
    fn backup(&mut self) -> Option<String> {
        let from = self.pick(&self.files())?;
        let to = (*self.random.pick(&NAMES)).to_owned();
        self.follow(&Script::Backup(from, to))
    }

    fn change_mode(&mut self) -> Option<String> {
        let (paths, modes) = match self.random.below(3) {
            0 => (self.dirs(), [0o755, 0o700, 0o750, 0o711]),
            _ => (self.files(), [0o644, 0o600, 0o755, 0o640]),
        };
        let path = self.pick(&paths)?;
        let mode = *self.random.pick(&modes);
        std::fs::set_permissions(self.at(&path), std::fs::Permissions::from_mode(mode)).ok()?;
        Some(format!("chmod {mode:o} {path}"))
    }

    fn link(&mut self) -> Option<String> {
        let path = *self.random.pick(&NAMES);
        let target = self.tokens.make(self.author);
        std::fs::create_dir_all(self.at(path).parent()?).ok()?;
        if self.tree.0.get(path).is_some_and(|entry| !matches!(entry, Entry::Dir { .. })) {
            std::fs::remove_file(self.at(path)).ok()?;
        }
        std::os::unix::fs::symlink(&target, self.at(path)).ok()?;
        Some(format!("ln -sf {target} {path}"))
    }

    fn hard_link(&mut self) -> Option<String> {
        let from = self.pick(&self.files())?;
        let to = *self.random.pick(&NAMES);
        std::fs::hard_link(self.at(&from), self.at(to)).ok()?;
        Some(format!("ln {from} {to}"))
    }

    fn make_dir(&mut self) -> Option<String> {
        let path = *self.random.pick(&["d", "k", "empty", "d/empty", "r"]);
        std::fs::create_dir(self.at(path)).ok()?;
        Some(format!("mkdir {path}"))
    }

    fn remove_dir(&mut self) -> Option<String> {
        let path = self.pick(&self.dirs())?;
        std::fs::remove_dir_all(self.at(&path)).ok()?;
        Some(format!("rm -r {path}"))
    }

    /// Replaces a file by a directory, or a directory by a file.
    fn swap_kind(&mut self) -> Option<String> {
        let path = *self.random.pick(&["d", "k", "a"]);
        let (is_dir, full) = (self.at(path).is_dir(), self.at(path));
        crate::lab::remove(&full);
        let line = self.line(b"\n");
        if is_dir {
            std::fs::write(&full, &line).ok()?;
        } else {
            std::fs::create_dir(&full).ok()?;
            std::fs::write(full.join("e"), &line).ok()?;
        }
        let kind = if is_dir { "file" } else { "directory" };
        Some(format!("{path} becomes a {kind} with {:?}", String::from_utf8_lossy(&line)))
    }
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry, Entry::File { .. })
}
