//! What a tool call names that a snapshot would not cover: ignored files, and files outside of the
//! project.

use std::path::{Path, PathBuf};

use ctrlz::TreePath;

use super::ToolCall;
use super::shell::{Named, named_paths};

/// Files that are named one by one below a directory that a command changes.
const MAX_FILES: usize = 2_000;

/// The paths that a call names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Beyond {
    /// Those in the project: they are kept even if they are ignored.
    pub(super) inside: Vec<TreePath>,
    /// Those elsewhere that the call changes.
    pub(super) outside: Vec<PathBuf>,
}

/// The paths that a call names, seen from `dir`.
pub(super) fn beyond(call: &ToolCall, root: &Path, dir: &Path, home: Option<&Path>) -> Beyond {
    let mut beyond = Beyond::default();
    for file in &call.files {
        beyond.add(root, &Named { path: real(&dir.join(file)), changes: true });
    }
    for command in &call.commands {
        for named in named_paths(command, dir, home) {
            beyond.add(root, &Named { path: real(&named.path), ..named });
        }
    }
    beyond
}

impl Beyond {
    fn add(&mut self, root: &Path, named: &Named) {
        let found = std::fs::symlink_metadata(&named.path).ok();
        match TreePath::locate(root, root, &named.path) {
            // Every file of it is the snapshot's business.
            Ok(None) => (),
            Ok(Some(path)) => match found {
                Some(meta) if meta.is_dir() && named.changes => {
                    self.inside.push(path);
                    self.add_below(root, &named.path);
                }
                Some(meta) if meta.is_dir() => (),
                Some(_) => self.inside.push(path),
                None if named.changes => self.inside.push(path),
                None => (),
            },
            Err(_) if named.changes && is_files(&named.path) => {
                self.outside.push(named.path.clone());
            }
            Err(_) => (),
        }
    }

    /// Names the files below a directory, whose rules may ignore them.
    fn add_below(&mut self, root: &Path, dir: &Path) {
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if self.inside.len() >= MAX_FILES {
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && entry.file_name() != ".git" {
                    dirs.push(entry.path());
                } else if let Ok(Some(path)) = TreePath::locate(root, root, &entry.path()) {
                    self.inside.push(path);
                }
            }
        }
    }
}

/// Whether files of people can lie there.
fn is_files(path: &Path) -> bool {
    !["/dev", "/proc", "/sys", "/run"].iter().any(|dir| path.starts_with(dir))
        && path != Path::new("/")
}

/// The path with the symlinks on the way to it resolved; the last one, if it is one, is meant.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
