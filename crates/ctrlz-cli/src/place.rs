//! The location of a command: the work tree, and the directory that relative paths start from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ctrlz::{Error, LookupError, Notice, ObjectId, Point, Retention, TreePath, Workspace};

use crate::config::Settings;
use crate::failure::Failure;
use crate::render::{self, shell_word};

/// An open work tree, and the directory in it in which the command acts.
pub(crate) struct Place {
    pub(crate) workspace: Workspace,
    /// Retention of `gc`.
    pub(crate) retention: Retention,
    /// The directory in which the command acts: the work tree or one below it.
    dir: PathBuf,
    /// The configuration file given on the command line, which detached processes use too.
    pub(crate) config: Option<PathBuf>,
    /// Number of checkpoints to keep, not counting pinned ones.
    pub(crate) keep_checkpoints: usize,
    /// Directory for the state of coding agents' hooks.
    pub(crate) agents_dir: PathBuf,
}

impl Place {
    /// Opens the work tree of the settings.
    pub(crate) fn find(settings: Settings) -> Result<Place, Failure> {
        let Settings { options, retention, root, dir, config, keep_checkpoints, agents_dir } =
            settings;
        let workspace = Workspace::open(&root, options)?;
        if let Some(notice) = workspace.notice() {
            render::note(&told(notice, workspace.root()));
        }
        Ok(Place { workspace, retention, dir, config, keep_checkpoints, agents_dir })
    }

    pub(crate) fn root(&self) -> &Path {
        self.workspace.root()
    }

    /// Returns the directory in which the command acts.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Resolves paths. Returns an empty list if there are none, or if one is the whole work tree.
    pub(crate) fn paths(&self, named: &[PathBuf]) -> Result<Vec<TreePath>, Failure> {
        let located: Vec<Option<TreePath>> =
            named.iter().map(|path| self.locate(path)).collect::<Result<_, _>>()?;
        if located.contains(&None) {
            return Ok(Vec::new());
        }
        Ok(located.into_iter().flatten().collect())
    }

    /// Resolves a file relative to the directory in which the command acts.
    pub(crate) fn file(&self, path: &[u8]) -> Result<TreePath, Failure> {
        self.locate(Path::new(OsStr::from_bytes(path)))?
            .ok_or_else(|| Failure::path(path, "is the work tree itself"))
    }

    /// Resolves a file relative to the work tree.
    pub(crate) fn file_of_root(&self, path: &[u8]) -> Result<TreePath, Failure> {
        let as_path = Path::new(OsStr::from_bytes(path));
        TreePath::locate(self.root(), self.root(), as_path)?
            .ok_or_else(|| Failure::path(path, "is the work tree itself"))
    }

    /// Returns the subdirectory that the command is limited to, or `None` for the whole work tree.
    pub(crate) fn scope(&self) -> Result<Option<TreePath>, Failure> {
        Ok(TreePath::locate(self.root(), self.root(), &self.dir)?)
    }

    /// Resolves the name of a state: a snapshot's hash, a checkpoint's name or label, `latest`,
    /// `resume`, or an operation.
    pub(crate) fn point(&self, name: &OsStr) -> Result<Point, Failure> {
        let text = name.to_string_lossy();
        // A valid hash takes precedence over a checkpoint of the same name.
        let point: Result<Point, _> = text.parse();
        if let Ok(Point::Snapshot(hash)) = point {
            return Ok(Point::Snapshot(hash));
        }
        match self.workspace.find_checkpoint(&text) {
            Ok(checkpoint) => Ok(Point::Operation(checkpoint.operation)),
            Err(Error::Lookup(LookupError::NoSuchCheckpoint { .. })) => Ok(point?),
            Err(error) => Err(error.into()),
        }
    }

    /// Resolves the name of a state to its snapshot; see [`Place::point`].
    pub(crate) fn snapshot(&self, name: &OsStr) -> Result<ObjectId, Failure> {
        match self.point(name)? {
            Point::Snapshot(hash) => Ok(hash),
            Point::Operation(id) | Point::OperationOf { id, .. } => {
                Ok(self.workspace.find_operation(&id, 0)?.snapshot)
            }
        }
    }

    /// Returns a path of the work tree relative to the current directory, quoted for a shell.
    pub(crate) fn typed(&self, path: &TreePath) -> String {
        let here = self.dir.strip_prefix(self.root()).unwrap_or(Path::new(""));
        let mut parts = here.components();
        let mut up = PathBuf::new();
        loop {
            if let Ok(below) = path.as_path().strip_prefix(parts.as_path()) {
                return shell_word(up.join(below).as_os_str().as_bytes());
            }
            parts.next_back();
            up.push("..");
        }
    }

    fn locate(&self, path: &Path) -> Result<Option<TreePath>, Failure> {
        let by_name = TreePath::locate(self.root(), &self.dir, path);
        match by_name {
            Ok(found) => Ok(found),
            // The path of the work tree may contain a symlink; the file itself is not followed.
            Err(error) => match real_path(path) {
                Some(real) => TreePath::locate(self.root(), &self.dir, &real)
                    .map_err(|_| Failure::from(error)),
                None => Err(error.into()),
            },
        }
    }
}

/// Returns the message about a directory that was moved or replaced, which is shown once.
fn told(notice: &Notice, root: &Path) -> String {
    let program = render::program();
    let shown = |path: &Path| render::printable(&path.to_string_lossy());
    let word = |path: &Path| shell_word(path.as_os_str().as_bytes());
    match notice {
        Notice::Moved { from } => {
            format!("ctrlz: moved from {}; its history has followed it", shown(from))
        }
        Notice::SetAside { old, why } => format!(
            "ctrlz: the store in this project is not trusted: {why}. A new one records from now on; \
             the old one is kept as {}, and its history is imported",
            shown(old)
        ),
        Notice::StoreElsewhere { path, why } => format!(
            "ctrlz: {} is not used: {why}. Until that changes, snapshots are kept in the data \
             directory",
            shown(path)
        ),
        Notice::Replaced => format!(
            "ctrlz: another directory was at {} before; this one starts a history of its own \
             (`{program} relink {here} {here}` takes the old one over)",
            shown(root),
            here = word(root),
        ),
        Notice::MayBe { old } => format!(
            "ctrlz: if this is what was at {}, `{program} relink {} {}` brings its history",
            shown(old),
            word(old),
            word(root),
        ),
    }
}

/// Resolves symlinks in the parent of an absolute path.
fn real_path(path: &Path) -> Option<PathBuf> {
    let (parent, name) = (path.parent()?, path.file_name()?);
    path.is_absolute().then(|| parent.canonicalize().ok().map(|parent| parent.join(name)))?
}

/// Parses the hash of a plan.
pub(crate) fn hash(text: &OsStr) -> Result<ObjectId, Failure> {
    Ok(text.to_string_lossy().parse()?)
}
