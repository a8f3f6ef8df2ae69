//! The location of a command: the work tree, and the directory that relative paths start from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ctrlz::{Error, LookupError, Notice, ObjectId, Point, Progress, TreePath, Workspace};
use ctrlz_api::{Call, Hash, MethodError, Opened, WirePath};

use crate::config::Settings;
use crate::failure::Failure;
use crate::progress::watched;
use crate::render::{self, shell_word};

/// An open work tree, and the directory in it in which the command acts.
pub(crate) struct Place {
    opened: Opened,
    /// The directory in which the command acts: the work tree or one below it.
    dir: PathBuf,
    /// The configuration file given on the command line, which detached processes use too.
    pub(crate) config: Option<PathBuf>,
    /// Directory for the state of coding agents' hooks.
    pub(crate) agents_dir: PathBuf,
}

/// A method of the interface, with its parameters and its result as Rust types.
type Method<P, R> = fn(&Call<'_>, &P) -> Result<R, MethodError>;

impl Place {
    /// Opens the work tree of the settings.
    pub(crate) fn find(settings: Settings) -> Result<Place, Failure> {
        let (dir, config) = (settings.dir.clone(), settings.config.clone());
        let agents_dir = settings.agents_dir.clone();
        let place = Place { opened: settings.open()?, dir, config, agents_dir };
        if let Some(notice) = place.workspace().notice() {
            render::note(&told(notice, place.root()));
        }
        Ok(place)
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    pub(crate) fn workspace(&self) -> &Workspace {
        &self.opened.workspace
    }

    /// Returns the call of a method. Relative paths start from [`Place::dir`].
    pub(crate) fn as_call<'a>(&'a self, progress: &'a Progress) -> Call<'a> {
        Call::of_user(&self.opened, &self.dir, progress)
    }

    /// Calls a method, and shows its progress.
    pub(crate) fn call<P, R>(&self, method: Method<P, R>, params: &P) -> Result<R, Failure> {
        Ok(watched(|progress| method(&self.as_call(progress), params))?)
    }

    /// Calls a method, and shows its progress. Relative paths start from the work tree.
    pub(crate) fn call_at_root<P, R>(
        &self,
        method: Method<P, R>,
        params: &P,
    ) -> Result<R, Failure> {
        Ok(watched(|progress| method(&Call::of_user(&self.opened, self.root(), progress), params))?)
    }

    /// Calls a method that makes a plan. Fails if an interrupted restore has to be finished first.
    pub(crate) fn plan<P, R>(&self, method: Method<P, R>, params: &P) -> Result<R, Failure> {
        self.workspace().check_finished()?;
        self.call(method, params)
    }

    /// Calls a method that only reads the log, which takes too little time to show progress.
    pub(crate) fn read<P, R>(&self, method: Method<P, R>, params: &P) -> Result<R, Failure> {
        Ok(method(&self.as_call(&Progress::default()), params)?)
    }

    pub(crate) fn root(&self) -> &Path {
        self.workspace().root()
    }

    /// Returns the directory in which the command acts.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Resolves paths. Returns an empty list if there are none, or if one is the whole work tree.
    pub(crate) fn paths(&self, named: &[PathBuf]) -> Result<Vec<TreePath>, Failure> {
        Ok(self.as_call(&Progress::default()).paths(&as_given(named))?)
    }

    /// Resolves a file relative to the directory in which the command acts.
    pub(crate) fn file(&self, path: &Path) -> Result<TreePath, Failure> {
        Ok(self.as_call(&Progress::default()).file(&path.into())?)
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
        match self.workspace().find_checkpoint(&text) {
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
                Ok(self.workspace().find_operation(&id, 0)?.snapshot)
            }
        }
    }

    /// Returns a path of the work tree relative to the current directory, quoted for a shell.
    pub(crate) fn typed(&self, path: &Path) -> String {
        let here = self.dir.strip_prefix(self.root()).unwrap_or(Path::new(""));
        let mut parts = here.components();
        let mut up = PathBuf::new();
        loop {
            if let Ok(below) = path.strip_prefix(parts.as_path()) {
                let path = up.join(below);
                // Otherwise it would be taken for an option.
                let is_option = path.as_os_str().as_bytes().starts_with(b"-");
                let path = if is_option { Path::new(".").join(path) } else { path };
                return shell_word(path.as_os_str().as_bytes());
            }
            parts.next_back();
            up.push("..");
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

/// Returns paths as parameters of a method.
pub(crate) fn as_given(paths: &[PathBuf]) -> Vec<WirePath> {
    paths.iter().map(|path| path.as_path().into()).collect()
}

/// Returns the hash of a plan or snapshot as a parameter of a method.
pub(crate) fn hash(text: &OsStr) -> Hash {
    Hash(text.to_string_lossy().into_owned())
}
