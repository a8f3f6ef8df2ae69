//! Paths that a tool names and a snapshot would not cover: ignored files, and files outside the
//! project.

use std::path::{Path, PathBuf};

use ctrlz::TreePath;
use ctrlz_api::{Reach, Tool};

use crate::shell::{Named, named_by, named_paths};

/// Upper bound on the paths that are listed one by one below a directory that a tool changes.
const MAX_FILES: usize = 2_000;

/// Returns the paths that a tool names, inside and outside the work tree `root`.
pub(crate) fn reach(tool: &Tool, root: &Path, home: Option<&Path>) -> Reach {
    let name = tool.name.as_deref().unwrap_or_default();
    let only_named =
        is_edit(name) && !tool.files.is_empty() && tool.commands.iter().all(String::is_empty);
    let runs_command = tool.commands.iter().any(|command| !command.is_empty());
    let works_itself = runs_command || only_named;
    let is_known = works_itself || starts_agent(name);
    let starts_agent = is_known.then_some(!works_itself);
    let reach = Reach { only_named, starts_agent, ..Reach::default() };
    let mut search = Search { root, reach };
    for file in &tool.files {
        let path = tool.dir.join(file);
        search.add(&Named { path: real(&path), changes: true });
        // An edit tool writes the target of a link.
        if let Some(target) = target(&path) {
            search.add(&Named { path: target, changes: true });
        }
    }
    for command in &tool.commands {
        for named in named_paths(command, &tool.dir, home) {
            search.add(&Named { path: real(&named.path), ..named });
        }
    }
    search.reach
}

/// Returns the paths that a program and its arguments name, inside and outside the work tree.
pub fn reach_of_words(words: &[String], dir: &Path, root: &Path, home: Option<&Path>) -> Reach {
    let mut search = Search { root, reach: Reach::default() };
    for named in named_by(words, dir, home) {
        search.add(&Named { path: real(&named.path), ..named });
    }
    search.reach
}

/// Returns a tool's name in lower case and without punctuation, which differ between clients.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns whether a tool edits only the files that it names.
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

/// Returns whether a tool starts a sub-agent and waits for it.
fn starts_agent(name: &str) -> bool {
    const AGENTS: [&str; 7] =
        ["agent", "delegate", "newtask", "spawnagent", "subagent", "task", "usesubagents"];
    AGENTS.contains(&plain(name).as_str())
}

/// Returns the file that an edit tool writes, relative to the work tree `root`, as a call that names
/// it announces it.
pub(crate) fn inside(root: &Path, path: &Path) -> Option<TreePath> {
    let written = target(path).unwrap_or_else(|| real(path));
    TreePath::locate(root, root, &written).ok().flatten()
}

/// Returns the target of a symlink, or `None` if the path is no symlink or its target is missing.
fn target(path: &Path) -> Option<PathBuf> {
    if path.is_symlink() { path.canonicalize().ok() } else { None }
}

struct Search<'a> {
    root: &'a Path,
    reach: Reach,
}

impl Search<'_> {
    fn add(&mut self, named: &Named) {
        /// PATH_MAX on Linux: the kernel refuses longer paths, so no tool can change them.
        const MAX_PATH_BYTES: usize = 4096;
        /// The engine's own limit on path components.
        const MAX_PATH_PARTS: usize = 400;
        let root = self.root;
        let parts = named.path.components().count();
        if named.path.as_os_str().len() > MAX_PATH_BYTES || parts > MAX_PATH_PARTS {
            return;
        }
        let found = std::fs::symlink_metadata(&named.path).ok();
        match TreePath::locate(root, root, &named.path) {
            // The path is the work tree itself, which the snapshot covers.
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

    /// Adds the files below a directory one by one, because ignore rules may exclude them.
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

/// Returns whether user files can be at this path. Kernel file systems hold none.
fn is_files(path: &Path) -> bool {
    let is_kernels = ["/dev", "/proc", "/sys", "/run"].iter().any(|dir| path.starts_with(dir));
    // `/dev/shm` is a tmpfs that holds ordinary files.
    (!is_kernels || path.starts_with("/dev/shm")) && path != Path::new("/")
}

/// Returns the path with symlinks in its ancestors resolved. A final symlink is not followed.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
