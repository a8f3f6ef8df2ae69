//! The engine's front door: one work tree, its store, and what can be done with them.

mod absence;
mod ask;
mod companion;
mod credit;
mod differing;
mod outside;
mod partly;
mod put_back;
mod quota;
mod read;
mod seek;
mod shared_scan;
mod status;
mod track;
mod uncaptured;
mod units;
mod watched;
mod watcher;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::defect::Defect;
use crate::error::Error;
use crate::fs::private::{self, read_small};
use crate::fs::{Dir, Named};
use crate::git::{ObjectId, is_protected_name};
use crate::path::{TreePath, escape, is_within};
use crate::restore::{Journal, Phase, Record, recover};
use crate::scan::{Placed, Progress, StatCache, store_around};
use crate::store::{
    Claim, Details, Gap, Head, Lock, OpenGap, OpenStep, OperationKind, OuterRules, Registry,
    Sharing, Standing, Store, UnrecordedTurn, UserRepo, WorkTree, check_root, load_steps,
    path_hash, save_steps,
};

pub use companion::IgnoredFiles;
pub use put_back::{OnUse, PatchToRevert, Point, RestoreOptions, RestoreReport};
pub use quota::QuotaUse;
pub use read::{Diffs, ListedFile, Patch, Presence};
pub use status::{HeldLock, Status};
pub use track::{Snapshot, TrackOptions};
pub use watcher::{Refusal, WatchEnd, WatchOptions, Watcher, WatcherStatus};

pub(crate) use absence::{Absence, is_dir_of, parents as dirs_above};
pub(crate) use credit::Ending;
pub(crate) use put_back::{Modes, Planning, Prepared, SaveIgnored, check_mass_removal};
pub(crate) use quota::Room;
pub(crate) use seek::Wanted;
pub(crate) use track::{Tracked, look};
pub(crate) use uncaptured::{created_uncaptured, left_out_paths};
pub(crate) use units::{Source, is_database_log, is_shared_memory};

pub(crate) use crate::compare::is_binary;

/// Everything that can be decided about a work tree. The engine reads no environment and no
/// configuration file; whoever calls it does.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where stores lie, unless `store` names one.
    pub data_dir: PathBuf,
    /// A store at a place of the caller's choice, also inside the work tree. Default: none.
    pub store: Option<PathBuf>,
    /// Whether snapshots are taken at all. Default: yes.
    pub enabled: bool,
    /// Whether only git work trees are protected. Default: no.
    pub require_git: bool,
    /// New files above this size are skipped and reported. Default: 10 MiB.
    pub max_new_file_bytes: u64,
    /// Patterns, as in `.gitignore`, to leave out beyond what is ignored. Default: none.
    pub exclude: Vec<String>,
    /// Patterns to capture although they are ignored. Default: none.
    pub include_ignored: Vec<String>,
    /// Which ignored files are kept beside a snapshot. Default: small ones.
    pub ignored: IgnoredFiles,
    /// No more bytes of small ignored files than this are kept. Default: 4 MiB.
    pub max_ignored_bytes: u64,
    /// No more bytes of files that one tool call names, and that are ignored or large, than this are
    /// kept. Default: 64 MiB.
    pub max_named_bytes: u64,
    /// Whether files of repositories inside the work tree are captured. Default: yes.
    pub nested_repos: bool,
    /// More files than this are refused before anything is stored. Default: 1,500,000.
    pub max_files: u64,
    /// More new bytes than this in one snapshot are refused. Default: 20 GiB.
    pub max_snapshot_bytes: u64,
    /// Free space that must remain where the store is. Default: 64 MiB.
    pub min_free_bytes: u64,
    /// The objects of the store take no more than this; what does not fit is skipped and reported,
    /// the largest files first. Default: 10 GiB.
    pub max_store_bytes: u64,
    /// The same for all stores under `data_dir` together. Default: 50 GiB.
    pub max_total_bytes: u64,
    /// The user's global excludes file. Default: none.
    pub excludes_file: Option<PathBuf>,
    /// The user's global attributes file, read only to see which blobs cannot be borrowed.
    pub attributes_file: Option<PathBuf>,
    /// The user's home directory, which is refused as a work tree. Default: none.
    pub home: Option<PathBuf>,
    /// Allows directories that are refused for safety. Default: no.
    pub allow_dangerous_root: bool,
    /// Whether the first snapshot may take blobs from the user's repository. Default: yes.
    pub seed: bool,
    /// Threads to work with; one makes every run do the same in the same order. Default: all cores.
    pub threads: usize,
    /// How long to wait for another command on the same work tree. Default: 30 seconds.
    pub patience: Duration,
    /// Where the log's refs lie in the store. Default: `refs/ctrlz`.
    pub ref_prefix: String,
    /// Whether the log says what a step is about: prompts and commands, which may hold secrets.
    /// Default: yes.
    pub labels: bool,
    /// Whether snapshots ask a watcher, where one runs, what changed. Default: no.
    pub watch: bool,
    /// A snapshot looks at everything all the same if none has for this long: a watcher is not told
    /// of what is written through a memory mapping. Default: 10 minutes.
    pub watch_trust: Duration,
}

impl Options {
    /// The defaults, with stores under `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Options {
        Options {
            data_dir: data_dir.into(),
            store: None,
            enabled: true,
            require_git: false,
            max_new_file_bytes: 10 << 20,
            exclude: Vec::new(),
            include_ignored: Vec::new(),
            ignored: IgnoredFiles::Small,
            max_ignored_bytes: 4 << 20,
            max_named_bytes: 64 << 20,
            nested_repos: true,
            max_files: crate::compare::MAX_PATHS,
            max_snapshot_bytes: 20 << 30,
            min_free_bytes: 64 << 20,
            max_store_bytes: 10 << 30,
            max_total_bytes: 50 << 30,
            excludes_file: None,
            attributes_file: None,
            home: None,
            allow_dangerous_root: false,
            seed: true,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            patience: Duration::from_secs(30),
            ref_prefix: "refs/ctrlz".into(),
            watch: false,
            labels: true,
            watch_trust: Duration::from_secs(600),
        }
    }
}

/// The work tree that `dir` belongs to: the nearest directory above it with a `.git`, else the
/// nearest one that is already known under `data_dir`, else `dir` itself.
///
/// A repository around a whole home directory, as some keep for their settings, is passed over.
pub fn find_work_tree(dir: &Path, data_dir: &Path, home: Option<&Path>) -> Result<PathBuf, Error> {
    let dir = dir.canonicalize().named("open the directory", dir)?;
    for above in dir.ancestors() {
        let usable = above == dir || check_root(above, home).is_ok();
        if usable && UserRepo::at(above).is_some() {
            return Ok(above.to_owned());
        }
    }
    Ok(Registry::of_data_dir(data_dir).known_above(&dir).unwrap_or(dir))
}

/// What the registry of a store at a place of the caller's choice calls that store.
const NAMED_STORE: &str = "here";

/// A directory under protection.
pub struct Workspace {
    root: PathBuf,
    options: Options,
    repo: Option<UserRepo>,
    notice: Option<Notice>,
}

/// Something about a directory's history that its user should hear once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "notice")]
pub enum Notice {
    /// The directory was moved or renamed, and its history has followed it.
    Moved {
        /// Where it was.
        from: PathBuf,
    },
    /// Another directory was at this path before. Its history is not this one's; it can be taken
    /// over with [`relink`](crate::relink).
    Replaced,
    /// This may be a directory that was recorded at a path where nothing is any more.
    MayBe {
        /// That path.
        old: PathBuf,
    },
}

impl Workspace {
    /// Protects the directory `root`.
    ///
    /// Nothing is created until the first snapshot. Directories that are far more than a project,
    /// such as a home, are refused.
    pub fn open(root: &Path, options: Options) -> Result<Workspace, Error> {
        let root = root.canonicalize().named("open the directory", root)?;
        if !root.is_dir() {
            let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            Err(error).named("open the directory", &root)?;
        }
        let in_repository = root.components().any(|part| {
            is_protected_name(std::os::unix::ffi::OsStrExt::as_bytes(part.as_os_str()))
        });
        if in_repository {
            // No option allows this: nothing inside a repository is ever ours to change.
            let why = "it lies inside a repository's own directory";
            return Err(Error::DangerousRoot { path: root, why });
        }
        if !options.allow_dangerous_root {
            check_root(&root, options.home.as_deref())?;
            if root.starts_with(absolute(&options.data_dir)) {
                let why = "it lies where snapshots are stored";
                return Err(Error::DangerousRoot { path: root, why });
            }
            let holds_stores =
                options.store.is_none() && absolute(&options.data_dir).starts_with(&root);
            if holds_stores {
                let why = "it holds the directory where snapshots are stored";
                return Err(Error::DangerousRoot { path: root, why });
            }
        }
        let repo = UserRepo::at(&root);
        if options.require_git && repo.is_none() {
            return Err(Error::NotGit { path: root });
        }
        let mut workspace = Workspace { root, options, repo, notice: None };
        workspace.notice = workspace.find_history()?;
        Ok(workspace)
    }

    /// Looks for the directory's history, and brings it along if it certainly was moved.
    fn find_history(&self) -> Result<Option<Notice>, Error> {
        let registry = self.registry();
        match registry.standing(&self.root, self.repo.as_ref())? {
            Standing::Known(_) | Standing::New => Ok(None),
            Standing::Replaced => Ok(Some(Notice::Replaced)),
            Standing::MayBe { old } => Ok(Some(Notice::MayBe { old })),
            Standing::Moved { from, claim } => {
                self.take_over(&from, &claim)?;
                Ok(Some(Notice::Moved { from }))
            }
        }
    }

    /// What the user should hear about the directory's history, if anything.
    pub fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }

    /// Makes a history that was recorded at the path `from` this work tree's.
    pub(crate) fn take_over(&self, from: &Path, claim: &Claim) -> Result<(), Error> {
        if let Some(store) = Store::open(&self.store_of(claim), &self.options.ref_prefix)? {
            let work_tree = WorkTree::named(&store, &claim.work_tree);
            // A lender that cannot be found any more is no reason to lose the history as well.
            work_tree.follow(&store, from, &self.root)?;
        }
        self.registry().hand_over(from, &self.root, claim)
    }

    /// Where it is recorded which path has which history.
    pub(crate) fn registry(&self) -> Registry {
        match &self.options.store {
            Some(store) => Registry::of_store(&self.root.join(store)),
            None => Registry::of_data_dir(&self.options.data_dir),
        }
    }

    pub(crate) fn store_of(&self, claim: &Claim) -> PathBuf {
        match &self.options.store {
            Some(path) => self.root.join(path),
            None => claim.store_path(&self.options.data_dir),
        }
    }

    /// The work tree's claim, if it has one.
    pub(crate) fn claimed(&self) -> Result<Option<Claim>, Error> {
        match self.registry().standing(&self.root, self.repo.as_ref())? {
            Standing::Known(claim) => Ok(Some(claim)),
            Standing::New => self.unrecorded(),
            _ => Ok(None),
        }
    }

    /// A history whose record was lost: the one that the next snapshot would go on with.
    fn unrecorded(&self) -> Result<Option<Claim>, Error> {
        let named = self.options.store.as_ref().map(|_| NAMED_STORE);
        let derived = self.registry().derived(&self.root, self.repo.as_ref(), named)?;
        let Some(claim) = derived else { return Ok(None) };
        let Some(store) = Store::open(&self.store_of(&claim), &self.options.ref_prefix)? else {
            return Ok(None);
        };
        let head = store.refs.read(WorkTree::named(&store, &claim.work_tree).ref_name())?;
        Ok(head.map(|_| claim))
    }

    /// The work tree's canonical path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether there is a `.git` that cannot be used as a repository.
    pub fn has_unusable_repository(&self) -> bool {
        self.repo.is_none() && self.root.join(".git").symlink_metadata().is_ok()
    }

    /// The options it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Where the store is or will be; `None` before the first snapshot has decided it.
    pub fn store_path(&self) -> Result<Option<PathBuf>, Error> {
        match &self.options.store {
            Some(path) => Ok(Some(self.root.join(path))),
            None => Ok(self.claimed()?.map(|claim| self.store_of(&claim))),
        }
    }

    /// A short name for this work tree, the same wherever it is asked for.
    pub fn id(&self) -> String {
        path_hash(&self.root)[..16].to_owned()
    }

    /// The files by which others can tell that something was recorded; `None` before the first
    /// snapshot.
    pub fn signs(&self) -> Result<Option<Signs>, Error> {
        let signs = |(store, work_tree): (Store, WorkTree)| Signs {
            operations: store.path().join(work_tree.ref_name()),
            open_steps: work_tree.steps_path(),
        };
        Ok(self.existing()?.map(signs))
    }

    /// The store, if there is one.
    pub(crate) fn existing(&self) -> Result<Option<(Store, WorkTree)>, Error> {
        let Some(claim) = self.claimed()? else { return Ok(None) };
        let path = self.store_of(&claim);
        let Some(store) = Store::open(&path, &self.options.ref_prefix)? else { return Ok(None) };
        let work_tree = WorkTree::named(&store, &claim.work_tree);
        Ok(Some((store, work_tree)))
    }

    /// The store for reading; a snapshot asked for where there is none is unknown.
    fn for_reading(&self, id: &ObjectId) -> Result<Store, Error> {
        self.readable()?.ok_or(Error::UnknownSnapshot { id: *id })
    }

    /// The store, also if the caller named it and it knows nothing of this work tree yet.
    fn readable(&self) -> Result<Option<Store>, Error> {
        match self.store_path()? {
            Some(path) => Store::open(&path, &self.options.ref_prefix),
            None => Ok(None),
        }
    }

    /// The store for writing, created if there is none.
    pub(crate) fn for_writing(&self) -> Result<(Store, WorkTree), Error> {
        let prefix = &self.options.ref_prefix;
        let repo = self.repo.as_ref();
        let (store, claim) = match &self.options.store {
            Some(path) => {
                let path = self.root.join(path);
                let store = Store::open_or_create(&path, prefix, &self.store_exclude(&path))?;
                let claim = self.registry().claim(&self.root, repo, Some(NAMED_STORE))?;
                (store, claim)
            }
            None => {
                private::create_dirs(&self.options.data_dir)?;
                private::sweep_builds(&self.options.data_dir.join("snapshot"))?;
                let claim = self.registry().claim(&self.root, repo, None)?;
                let path = self.store_of(&claim);
                (Store::open_or_create(&path, prefix, &self.store_exclude(&path))?, claim)
            }
        };
        if absolute(store.path()).starts_with(&self.root) {
            store.hide_from_git();
        }
        let work_tree = WorkTree::named(&store, &claim.work_tree);
        work_tree.create(&self.root)?;
        Ok((store, work_tree))
    }

    /// What the store's own `info/exclude` says: the agent's directory that holds the store.
    fn store_exclude(&self, store: &Path) -> String {
        let inside = absolute(store).strip_prefix(&self.root).ok().map(Path::to_owned);
        let top = inside.as_deref().and_then(|inside| inside.components().next());
        match top.map(|top| top.as_os_str().to_string_lossy().into_owned()) {
            Some(top) if top.starts_with('.') => format!("/{top}/\n"),
            _ => String::new(),
        }
    }

    /// Directories inside the work tree that are none of its files: the store, and the user's
    /// repository where it is not called `.git`.
    pub(crate) fn forbidden(&self, store: &Store) -> Vec<Vec<u8>> {
        let own = self.repo.as_ref().map(UserRepo::own_dirs).unwrap_or_default();
        let inside = |dir: PathBuf| {
            let inside = dir.strip_prefix(&self.root).ok()?;
            Some(std::os::unix::ffi::OsStrExt::as_bytes(inside.as_os_str()).to_vec())
        };
        let dirs = own.into_iter().chain([absolute(store.path())]);
        dirs.filter_map(inside).filter(|path| !path.is_empty()).collect()
    }

    /// Whether `path` is or lies in one of the `forbidden` directories or any other store.
    fn is_forbidden(&self, root: &Dir, forbidden: &[Vec<u8>], path: &[u8]) -> bool {
        forbidden.iter().any(|dir| is_within(path, dir)) || store_around(root, path).is_some()
    }

    /// The ignore rules that are not in the work tree, from the weakest to the strongest.
    fn outer_rules(&self, store: &Store) -> Result<OuterRules, Error> {
        const MAX_RULES_BYTES: u64 = 1 << 20;
        let mut lists = Vec::new();
        if let Some(file) = &self.options.excludes_file {
            // One that cannot be read must not stop a snapshot; git ignores it as well.
            lists.push(read_small(file, MAX_RULES_BYTES).ok().flatten().unwrap_or_default());
        }
        lists.extend(self.repo.as_ref().map(|repo| repo.info("exclude")));
        lists.push(store.exclude()?);
        let Options { exclude, include_ignored, .. } = &self.options;
        Ok(OuterRules::new(&lists, exclude, include_ignored))
    }

    /// Notes that a turn is not recorded because the disk is full. The operation that records the
    /// changes later says so. Does nothing before the first snapshot.
    pub fn note_gap(&self, why: &str, turn: UnrecordedTurn) -> Result<(), Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(()) };
        let Some(last) = work_tree.last(&store)? else { return Ok(()) };
        let new = || OpenGap { after: last.id, gap: Gap { why: why.to_owned(), ..Gap::default() } };
        let mut open = open_gap(&store, &work_tree)?.unwrap_or_else(new);
        open.add(turn);
        open.save(&work_tree.gap_path())
    }

    /// Returns the gap that no operation has recorded yet.
    pub fn gap(&self) -> Result<Option<Gap>, Error> {
        match self.existing()? {
            Some((store, work_tree)) => Ok(open_gap(&store, &work_tree)?.map(|open| open.gap)),
            None => Ok(None),
        }
    }

    /// Takes the work tree's lock and finishes what a killed command left.
    pub(crate) fn begin(&self) -> Result<Hold, Error> {
        let (store, work_tree) = self.for_writing()?;
        let lock = work_tree.lock(&store, self.options.patience)?;
        let shared = Lock::take(&store.lock_path(), Sharing::Shared, self.options.patience)?;
        store.objects.refresh()?;
        let root = Dir::open(&self.root)?;
        if Defect::Meddling.is_made() {
            private::replace(&self.root.join(".git/ctrlz"), b"was here", private::Durable::No)?;
        }
        let head = self.repo.as_ref().and_then(|repo| repo.standing().ok());
        let mut hold =
            Hold { store, work_tree, root, head, recovered: None, _lock: lock, _shared: shared };
        let outside = self.finish_interrupted_outside(&hold)?;
        hold.recovered = self.finish_interrupted(&hold)?.or(outside);
        Ok(hold)
    }

    /// Refuses if the next command would first finish a restore that was cut off, and so change
    /// files. For dry runs, which change none.
    pub fn check_finished(&self) -> Result<(), Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(()) };
        if self.outside(&store, &work_tree).is_interrupted()? {
            return Err(Error::RecoveryPending);
        }
        match Journal::load(&work_tree.journal_path())? {
            Some(journal) if journal.phase != Phase::Recording => Err(Error::RecoveryPending),
            Some(_) | None => Ok(()),
        }
    }

    fn finish_interrupted(&self, hold: &Hold) -> Result<Option<Recovery>, Error> {
        let path = hold.work_tree.journal_path();
        if Defect::Unrecovered.is_made() {
            return Ok(None);
        }
        let Some(journal) = Journal::load(&path)? else { return Ok(None) };
        let rescue = |dir: &Dir, name: &[u8], path: &[u8]| self.rescue(hold, dir, name, path);
        let applied = recover(&hold.root, &journal, &path, &rescue)?;
        let is_done = matches!(journal.phase, Phase::Swapping | Phase::Recording);
        match journal.record.as_ref().filter(|_| is_done) {
            Some(record) => {
                self.record_rewind(hold, &journal, record)?;
                Journal::remove(&path)?;
            }
            None => {
                let cause = Cause::of(OperationKind::Restore);
                self.note_locked(hold, &TrackOptions::default(), &cause, &Progress::default())?;
            }
        }
        Ok(Some(Recovery {
            files: journal.units.len() as u64,
            finished: is_done,
            kept: applied.kept.iter().map(|path| escape(path)).collect(),
            left: applied.left.iter().map(|path| escape(path)).collect(),
        }))
    }
}

impl Workspace {
    /// Writes down an undo or redo whose process was killed, unless it has done so itself.
    fn record_rewind(&self, hold: &Hold, journal: &Journal, record: &Record) -> Result<(), Error> {
        let last = hold.work_tree.last_or_salvaged(&hold.store)?;
        if last.is_some_and(|last| last.kind == record.kind && last.id > record.since) {
            return Ok(());
        }
        let cause = Cause {
            // Others may have changed more since.
            details: Details { written: journal.paths(), ..record.details.clone() },
            always: true,
            ..Cause::of(record.kind)
        };
        self.track_locked(hold, &TrackOptions::default(), &cause, &Progress::default()).map(drop)
    }
}

/// Files that are replaced, each by a rename, when something is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Replaced with every operation.
    pub operations: PathBuf,
    /// Replaced when a step begins or ends.
    pub open_steps: PathBuf,
}

/// What became of a restore that a killed process left half-done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// Paths it was about.
    pub files: u64,
    /// Whether it was finished; otherwise no file had changed yet, and none has.
    pub finished: bool,
    /// Paths that somebody changed in between, which stay as they are.
    pub kept: Vec<String>,
    /// Replaced things that are not what was saved, and still lie under these names.
    pub left: Vec<String>,
}

/// Limits for capturing files that tools name and that are ignored or large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedLimit {
    /// At most this many bytes instead of [`Options::max_named_bytes`].
    pub(crate) bytes: Option<u64>,
    /// Files that would take longer than this to read are not begun.
    pub(crate) until: Option<Instant>,
}

/// Why a snapshot is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) kind: OperationKind,
    pub(crate) details: Details,
    /// Record it even if nothing changed.
    pub(crate) always: bool,
    /// Paths that a tool is about to change, to be kept even if they are ignored.
    pub(crate) named: Vec<TreePath>,
    /// The limit for files that tools name.
    pub(crate) named_limit: NamedLimit,
    /// What was just put in place.
    pub(crate) placed: Placed,
    pub(crate) room: Room,
    /// The step that ends with it.
    pub(crate) ending: Option<Ending>,
    /// An undo follows, and open steps may have been interrupted.
    pub(crate) undoing: bool,
}

impl Cause {
    pub(crate) fn of(kind: OperationKind) -> Cause {
        let (always, named, placed, room) = (false, Vec::new(), Placed::new(), Room::Disk);
        Cause {
            kind,
            details: Details::default(),
            always,
            named,
            named_limit: NamedLimit::default(),
            placed,
            room,
            ending: None,
            undoing: false,
        }
    }

    /// Something changed, and only open steps can say whose it is.
    pub(crate) fn outside() -> Cause {
        Cause { room: Room::Quota, ..Cause::before_change() }
    }

    /// The same before files are changed, when everything has to be saved.
    pub(crate) fn before_change() -> Cause {
        Cause::of(OperationKind::Outside)
    }
}

/// One command's hold on a work tree.
pub(crate) struct Hold {
    pub(crate) store: Store,
    pub(crate) work_tree: WorkTree,
    pub(crate) root: Dir,
    pub(crate) head: Option<Head>,
    pub(crate) recovered: Option<Recovery>,
    _lock: Lock,
    _shared: Lock,
}

impl Hold {
    /// Ends the hold and tidies the store up if it is time for it.
    ///
    /// Small packs pile up, one per snapshot; a moment when nobody else writes is enough. What was
    /// done is recorded, so a failure to tidy up is none of its.
    pub(crate) fn release(self) {
        let Hold { store, work_tree, _lock, _shared, .. } = self;
        drop(_shared);
        let merged = store.merge_small_packs().unwrap_or_default();
        if !merged.is_empty() {
            let now = store.objects.pack_names();
            watched::WatchState::follow_merge(&work_tree, &merged, &now);
            StatCache::follow_merge(&work_tree.cache_path(), &merged, &now);
        }
        drop(_lock);
    }

    /// The steps in progress; those whose process died are marked.
    pub(crate) fn open_steps(&self) -> Result<Vec<OpenStep>, Error> {
        let mut open = load_steps(&self.work_tree.steps_path())?;
        for step in &mut open {
            step.abandoned |= step.is_orphan();
        }
        Ok(open)
    }

    /// Forgets steps that nobody will close, once a snapshot has credited them.
    pub(crate) fn drop_abandoned(&self) -> Result<(), Error> {
        let open = self.open_steps()?;
        if open.iter().any(|step| step.abandoned) {
            let open: Vec<OpenStep> = open.into_iter().filter(|step| !step.abandoned).collect();
            self.save_steps(&open)?;
        }
        Ok(())
    }

    /// The gap that the next operation closes, if agents worked without being recorded.
    pub(crate) fn open_gap(&self) -> Result<Option<OpenGap>, Error> {
        open_gap(&self.store, &self.work_tree)
    }

    /// Forgets the gap once everything that changed is recorded.
    ///
    /// Best effort: a newer operation makes the note void as well.
    pub(crate) fn close_gap(&self) {
        drop(OpenGap::forget(&self.work_tree.gap_path()));
    }

    pub(crate) fn save_steps(&self, steps: &[OpenStep]) -> Result<(), Error> {
        save_steps(&self.work_tree.steps_path(), steps)
    }
}

fn open_gap(store: &Store, work_tree: &WorkTree) -> Result<Option<OpenGap>, Error> {
    let Some(open) = OpenGap::load(&work_tree.gap_path()) else { return Ok(None) };
    let last = work_tree.last(store)?;
    Ok(last.is_some_and(|last| last.id == open.after).then_some(open))
}

/// A path without symlinks where it exists, and as it is written below that.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            return rest.iter().rev().fold(real, |path, name| path.join(name));
        }
        rest.extend(above.file_name().map(std::ffi::OsStr::to_owned));
    }
    path.to_owned()
}

/// Whether `path` is asked for: `paths` is empty, or one of them is it or above it.
fn is_asked_for(path: &TreePath, paths: &[TreePath]) -> bool {
    paths.is_empty() || paths.iter().any(|asked| path.is_within(asked))
}
