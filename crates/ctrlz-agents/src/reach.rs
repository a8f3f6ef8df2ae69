//! What a tool names that a snapshot would not cover: ignored files, and files outside of the
//! project.

use std::path::{Path, PathBuf};

use ctrlz::TreePath;
use ctrlz_wire::{Reach, Tool};

use crate::shell::{Named, named_paths};

/// Files that are named one by one below a directory that a command changes.
const MAX_FILES: usize = 2_000;

/// The paths that a tool names, for the work tree `root`.
pub(crate) fn reach(tool: &Tool, root: &Path, home: Option<&Path>) -> Reach {
    let name = tool.name.as_deref().unwrap_or_default();
    let only_named =
        is_edit(name) && !tool.files.is_empty() && tool.commands.iter().all(String::is_empty);
    let reach = Reach { only_named, starts_agent: starts_agent(name), ..Reach::default() };
    let mut search = Search { root, reach };
    for file in &tool.files {
        search.add(&Named { path: real(&tool.dir.join(file)), changes: true });
    }
    for command in &tool.commands {
        for named in named_paths(command, &tool.dir, home) {
            search.add(&Named { path: real(&named.path), ..named });
        }
    }
    search.reach
}

/// A tool's name without case and punctuation, which differ between clients.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether a tool edits the files that it names and no others.
fn is_edit(name: &str) -> bool {
    const EDITS: [&str; 15] = [
        "applypatch",
        "create",
        "createfile",
        "edit",
        "editfile",
        "editnotebook",
        "multiedit",
        "notebookedit",
        "patch",
        "replace",
        "replaceinfile",
        "strreplace",
        "write",
        "writefile",
        "writetofile",
    ];
    EDITS.contains(&plain(name).as_str())
}

/// Whether a tool starts a sub-agent and waits for it.
fn starts_agent(name: &str) -> bool {
    const AGENTS: [&str; 7] =
        ["agent", "delegate", "newtask", "spawnagent", "subagent", "task", "usesubagents"];
    AGENTS.contains(&plain(name).as_str())
}

struct Search<'a> {
    root: &'a Path,
    reach: Reach,
}

impl Search<'_> {
    fn add(&mut self, named: &Named) {
        /// PATH_MAX on Linux: the kernel opens no longer path, so no tool can change one.
        const MAX_PATH_BYTES: usize = 4096;
        /// As many as the engine accepts.
        const MAX_PATH_PARTS: usize = 400;
        let root = self.root;
        let parts = named.path.components().count();
        if named.path.as_os_str().len() > MAX_PATH_BYTES || parts > MAX_PATH_PARTS {
            return;
        }
        let found = std::fs::symlink_metadata(&named.path).ok();
        match TreePath::locate(root, root, &named.path) {
            // Every file of it is the snapshot's business.
            Ok(None) => (),
            Ok(Some(path)) => match found {
                Some(meta) if meta.is_dir() && named.changes => {
                    self.reach.inside.push(path);
                    self.add_below(&named.path);
                }
                Some(meta) if meta.is_dir() => (),
                Some(_) => self.reach.inside.push(path),
                None if named.changes => self.reach.inside.push(path),
                None => (),
            },
            Err(_) if named.changes && is_files(&named.path) => {
                self.reach.outside.push(named.path.clone());
            }
            Err(_) => (),
        }
    }

    /// Names the files below a directory, whose rules may ignore them.
    fn add_below(&mut self, dir: &Path) {
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if self.reach.inside.len() >= MAX_FILES {
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && entry.file_name() != ".git" {
                    dirs.push(entry.path());
                } else if let Ok(Some(path)) = TreePath::locate(self.root, self.root, &entry.path())
                {
                    self.reach.inside.push(path);
                }
            }
        }
    }
}

/// Whether files of people can lie there.
fn is_files(path: &Path) -> bool {
    let is_kernels = ["/dev", "/proc", "/sys", "/run"].iter().any(|dir| path.starts_with(dir));
    // What lies in memory there is files all the same.
    (!is_kernels || path.starts_with("/dev/shm")) && path != Path::new("/")
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
