//! Work trees that are served. A request names one of them by its id and cannot name any other
//! directory.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ctrlz::{ObjectId, Workspace};
use ctrlz_api::{Host, Opened, Place, WireError, WirePath, WorkTree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::refusal::Refusal;

/// A work tree that is served.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Project {
    /// Id, for use in addresses.
    pub(crate) project: String,
    /// Path of the work tree.
    pub(crate) path: WirePath,
    /// Last component of the path, for display.
    pub(crate) name: String,
    /// Whether the directory still exists.
    pub(crate) present: bool,
}

/// The work trees that are served.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Projects {
    /// Work trees; the first one is where the server was started.
    pub(crate) projects: Vec<Project>,
}

/// A work tree to serve.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddProject {
    /// Absolute path of the work tree, or of a directory in it.
    pub(crate) path: WirePath,
}

#[derive(Clone)]
struct Root {
    id: String,
    path: PathBuf,
}

/// Registry of served work trees by id.
pub(crate) struct Roots {
    host: Arc<dyn Host>,
    roots: Arc<RwLock<Vec<Root>>>,
}

impl Roots {
    /// Creates the registry with these directories, which `host` opens.
    pub(crate) fn new(host: Arc<dyn Host>, dirs: &[PathBuf]) -> Result<Roots, WireError> {
        let roots = Roots { host, roots: Arc::default() };
        for dir in dirs {
            roots.add(dir)?;
        }
        Ok(roots)
    }

    /// Adds the work tree that a directory belongs to.
    pub(crate) fn add(&self, dir: &Path) -> Result<Project, WireError> {
        if !dir.is_absolute() || !dir.is_dir() {
            let mut error = WireError::new("no_such_project", "it is not an absolute directory");
            error.path = Some(dir.into());
            return Err(error);
        }
        let place = Place { dir: Some(dir.into()), ..Place::default() };
        let workspace = self.host.open(&place)?.workspace;
        let root = Root { id: workspace.id(), path: workspace.root().to_owned() };
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        if !roots.iter().any(|known| known.id == root.id) {
            roots.push(root.clone());
        }
        Ok(describe(&root))
    }

    fn all(&self) -> Vec<Root> {
        read(&self.roots)
    }

    pub(crate) fn list(&self) -> Projects {
        Projects { projects: self.all().iter().map(describe).collect() }
    }

    pub(crate) fn describe(&self, id: &str) -> Result<Project, Refusal> {
        self.root(id).map(|root| describe(&root))
    }

    /// Returns the ids. The first one is where the server was started.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.all().into_iter().map(|root| root.id).collect()
    }

    /// Returns a host that can open only the work tree with this id.
    pub(crate) fn served(&self, id: &str) -> Result<Served, Refusal> {
        let root = self.root(id)?.path;
        Ok(Served { host: Arc::clone(&self.host), root, roots: Arc::clone(&self.roots) })
    }

    fn root(&self, id: &str) -> Result<Root, Refusal> {
        let unknown = || Refusal::new("no_such_project", "no such work tree is served");
        self.all().into_iter().find(|root| root.id == id).ok_or_else(unknown)
    }
}

fn read(roots: &RwLock<Vec<Root>>) -> Vec<Root> {
    roots.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn describe(Root { id, path }: &Root) -> Project {
    let name = path.file_name().unwrap_or(path.as_os_str());
    Project {
        project: id.clone(),
        path: path.as_path().into(),
        name: name.to_string_lossy().into_owned(),
        present: path.is_dir(),
    }
}

/// Host that opens one work tree, regardless of the request.
#[derive(Clone)]
pub(crate) struct Served {
    host: Arc<dyn Host>,
    root: PathBuf,
    /// All work trees that are served.
    roots: Arc<RwLock<Vec<Root>>>,
}

impl Served {
    fn open_root(&self, root: &Path, place: Place) -> Result<Opened, WireError> {
        self.host.open(&Place { dir: Some(root.into()), work_tree: WorkTree::Dir, ..place })
    }
}

impl Host for Served {
    fn open(&self, place: &Place) -> Result<Opened, WireError> {
        check(place)?;
        if !self.root.is_dir() {
            let mut gone = WireError::new("no_such_project", "the work tree is gone");
            gone.path = Some(self.root.as_path().into());
            return Err(gone);
        }
        let mut options = place.options.clone();
        let longest = u64::try_from(limits::PATIENCE.as_millis()).unwrap_or(u64::MAX);
        options.patience_millis = Some(options.patience_millis.unwrap_or(longest).min(longest));
        self.open_root(&self.root, Place { profile: place.profile, options, ..Place::default() })
    }

    fn check_snapshot(&self, workspace: &Workspace, hash: &ObjectId) -> Result<(), WireError> {
        let Err(unknown) = workspace.check_own_snapshot(hash) else { return Ok(()) };
        let others = read(&self.roots).into_iter().filter(|root| root.path != self.root);
        // Work trees that are gone or cannot be opened are skipped.
        let mut opened =
            others.filter_map(|root| self.open_root(&root.path, Place::default()).ok());
        if opened.any(|other| other.workspace.check_own_snapshot(hash).is_ok()) {
            Ok(())
        } else {
            Err(unknown.into())
        }
    }

    fn check_named(&self, path: &Path) -> Result<(), WireError> {
        let real = real(path);
        let is_served = real
            .is_some_and(|real| read(&self.roots).iter().any(|root| real.starts_with(&root.path)));
        if is_served {
            return Ok(());
        }
        let why = "over HTTP `files`, `commands` and `cwd` name only paths of served projects";
        let mut error = WireError::invalid_params(format!("{why}, not {}", path.display()));
        error.path = Some(path.into());
        Err(error)
    }

    fn rest(&self, workspace: &Workspace) {
        self.host.rest(workspace);
    }

    fn owner(&self) -> Option<u32> {
        // The client that begins a step over HTTP is another process.
        None
    }
}

/// Returns the path with symlinks in its ancestors resolved, or `None` if it leaves a directory
/// that does not exist through `..`.
fn real(path: &Path) -> Option<PathBuf> {
    let (above, rest) = path
        .ancestors()
        .skip(1)
        .find_map(|above| Some((above.canonicalize().ok()?, path.strip_prefix(above).ok()?)))?;
    let is_plain = |part| matches!(part, Component::Normal(_));
    rest.components().all(is_plain).then(|| above.join(rest))
}

/// Refuses parameters that only the address may determine, and options that only the user who
/// started the server may set.
fn check(place: &Place) -> Result<(), WireError> {
    let Place { dir, data_dir, store, work_tree, profile: _, options, progress } = place;
    let elsewhere = dir.is_some()
        || data_dir.is_some()
        || store.is_some()
        || *work_tree != WorkTree::default()
        || *progress;
    if elsewhere {
        let why = "over HTTP the address says which work tree; `dir`, `data_dir`, `store`, \
                   `work_tree` and `progress` are not taken";
        return Err(WireError::invalid_params(why));
    }
    let unsafe_options = options.allow_dangerous_root.is_some()
        || options.ref_prefix.is_some()
        || options.threads.is_some();
    if unsafe_options {
        Err(WireError::invalid_params(
            "over HTTP the options `allow_dangerous_root`, `ref_prefix` and `threads` are not taken",
        ))
    } else {
        Ok(())
    }
}
