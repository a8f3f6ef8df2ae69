//! The engine's front door: one work tree, its store, and the operations on them.

mod outside;
mod put_back;
mod read;
mod recording;
mod seek;
mod status;
mod watcher;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::defect::Defect;
use crate::error::{Error, LookupError, RecordError, RestoreError};
use crate::fs::{Dir, Named, absolute, private};
use crate::git::ObjectId;
use crate::hold::{Context, Hold, Recovery, open_gap};
use crate::log::{Details, Gap, OpenGap, OperationKind, UnrecordedTurn, WorkTree};
use crate::options::Options;
use crate::path::{escape, is_in_repository};
use crate::record::{Cause, TrackOptions};
use crate::restore::{Journal, Phase, Record, recover};
use crate::scan::Progress;
use crate::store::{
    Claim, IN_REPOSITORY, Lock, Registry, Sharing, Standing, Store, UserRepo, check_data_dir,
    check_root, path_hash, resolve_store,
};

pub use put_back::{PatchToRevert, Point};
pub use read::{Diffs, ListedFile, Patch, Presence};
pub use status::{HeldLock, Status};

pub use watcher::WatcherControl;

pub(crate) use seek::Wanted;

pub(crate) use crate::compare::is_binary;

/// Returns the work tree that `dir` belongs to: the nearest ancestor with a `.git`, else the
/// nearest one that is known under `data_dir`, else `dir` itself.
///
/// A repository around a whole home directory, as some users keep for their settings, is skipped.
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

/// Store name in the registry of a store at a path that the caller chose.
const NAMED_STORE: &str = "here";

/// A protected directory.
pub struct Workspace {
    context: Arc<Context>,
    notice: Option<Notice>,
}

/// A message about a directory's history that the user should see once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The directory was moved or renamed, and its history followed it.
    Moved {
        /// Previous path.
        from: PathBuf,
    },
    /// The store inside the project was not made by this user on this machine, or has foreign
    /// parts. It was set aside, and its history is imported into a new one.
    SetAside {
        /// New path of the old store.
        old: PathBuf,
        /// Reason for distrusting it.
        why: &'static str,
    },
    /// The store inside the project cannot be used because something else is in its way. The
    /// history is kept in the data directory instead.
    StoreElsewhere {
        /// Path that was asked for.
        path: PathBuf,
        /// The obstacle.
        why: &'static str,
    },
    /// Another directory was at this path before. Its history is separate, and can be taken over
    /// with [`relink`](crate::relink).
    Replaced,
    /// This may be a directory that was recorded at a path that no longer exists.
    MayBe {
        /// That path.
        old: PathBuf,
    },
}

impl Workspace {
    /// Opens the directory `root` for protection.
    ///
    /// Nothing is created until the first snapshot. Directories that contain far more than a
    /// project, such as a home directory, are refused.
    pub fn open(root: &Path, options: Options) -> Result<Workspace, Error> {
        let root = root.canonicalize().named("open the directory", root)?;
        if !root.is_dir() {
            let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            Err(error).named("open the directory", &root)?;
        }
        // No option allows this: a repository's own directory is never changed.
        if is_in_repository(&root) {
            return Err(Error::dangerous_root(root, IN_REPOSITORY));
        }
        if !options.allow_dangerous_root {
            check_root(&root, options.home.as_deref())?;
            if root.starts_with(absolute(&options.data_dir)) {
                let why = "it lies where snapshots are stored";
                return Err(Error::dangerous_root(root, why));
            }
            let holds_stores =
                options.store.is_none() && absolute(&options.data_dir).starts_with(&root);
            if holds_stores {
                let why = "it holds the directory where snapshots are stored";
                return Err(Error::dangerous_root(root, why));
            }
        }
        let repo = UserRepo::at(&root);
        if options.require_git && repo.is_none() {
            return Err(Error::Record(RecordError::NotGit { path: root }));
        }
        check_data_dir(&options.data_dir)?;
        let home = options.home.as_deref();
        let store = options.store.as_deref().map(|store| resolve_store(&root, store, home));
        if let Some(store) = store.as_deref().filter(|store| is_in_repository(store)) {
            return Err(Error::untrusted(store, IN_REPOSITORY));
        }
        let options = Options { store, ..options };
        let context = Arc::new(Context { root, options, repo });
        let mut workspace = Workspace { context, notice: None };
        let notice = workspace.prepare_store()?;
        workspace.notice = notice.or(workspace.find_history()?);
        Ok(workspace)
    }

    /// Uses the data directory instead of a store in the work tree.
    pub(crate) fn record_in_data_dir(&mut self) {
        let context = Arc::get_mut(&mut self.context).expect("it was made a moment ago");
        context.options.store = None;
    }

    /// Looks up the directory's history, and updates its path if the directory was certainly moved.
    fn find_history(&self) -> Result<Option<Notice>, Error> {
        let registry = self.registry();
        match registry.standing(&self.context.root, self.context.repo.as_ref())? {
            Standing::Known(_) | Standing::New => Ok(None),
            Standing::Replaced => Ok(Some(Notice::Replaced)),
            Standing::MayBe { old } => Ok(Some(Notice::MayBe { old })),
            Standing::Moved { from, claim } => {
                self.take_over(&from, &claim)?;
                Ok(Some(Notice::Moved { from }))
            }
        }
    }

    /// Returns a message about the directory's history for the user, if there is one.
    pub fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }

    /// Assigns the history that was recorded at the path `from` to this work tree.
    pub(crate) fn take_over(&self, from: &Path, claim: &Claim) -> Result<(), Error> {
        if let Some(store) = Store::open(&self.store_of(claim), &self.context.options.ref_prefix)? {
            let work_tree = WorkTree::named(&store, &claim.work_tree);
            // Succeeds even if the repository borrowed from is gone, so the history is not lost.
            work_tree.follow(&store, from, &self.context.root)?;
        }
        self.registry().hand_over(from, &self.context.root, claim)
    }

    /// Returns the registry that maps paths to histories.
    pub(crate) fn registry(&self) -> Registry {
        match &self.context.options.store {
            Some(store) => Registry::of_store(&self.context.root.join(store)),
            None => Registry::of_data_dir(&self.context.options.data_dir),
        }
    }

    pub(crate) fn store_of(&self, claim: &Claim) -> PathBuf {
        match &self.context.options.store {
            Some(path) => self.context.root.join(path),
            None => claim.store_path(&self.context.options.data_dir),
        }
    }

    /// Returns the work tree's claim, if it has one.
    pub(crate) fn claimed(&self) -> Result<Option<Claim>, Error> {
        match self.registry().standing(&self.context.root, self.context.repo.as_ref())? {
            Standing::Known(claim) => Ok(Some(claim)),
            Standing::New => self.unrecorded(),
            _ => Ok(None),
        }
    }

    /// Returns the claim of a history without a record, which the next snapshot would continue.
    fn unrecorded(&self) -> Result<Option<Claim>, Error> {
        let named = self.context.options.store.as_ref().map(|_| NAMED_STORE);
        let derived =
            self.registry().derived(&self.context.root, self.context.repo.as_ref(), named)?;
        let Some(claim) = derived else { return Ok(None) };
        let Some(store) = Store::open(&self.store_of(&claim), &self.context.options.ref_prefix)?
        else {
            return Ok(None);
        };
        let head = store.refs.read(WorkTree::named(&store, &claim.work_tree).ref_name())?;
        Ok(head.map(|_| claim))
    }

    /// Returns the work tree and its options.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the work tree's canonical path.
    pub fn root(&self) -> &Path {
        &self.context.root
    }

    /// Returns whether there is a `.git` that cannot be used as a repository.
    pub fn has_unusable_repository(&self) -> bool {
        self.context.repo.is_none() && self.context.root.join(".git").symlink_metadata().is_ok()
    }

    /// Returns the options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.context.options
    }

    /// Returns the path of the store, which may not exist yet. Returns `None` before the first
    /// snapshot has determined it.
    pub fn store_path(&self) -> Result<Option<PathBuf>, Error> {
        match &self.context.options.store {
            Some(path) => Ok(Some(self.context.root.join(path))),
            None => Ok(self.claimed()?.map(|claim| self.store_of(&claim))),
        }
    }

    /// Returns a short name for this work tree, derived from its path.
    pub fn id(&self) -> String {
        path_hash(&self.context.root)[..16].to_owned()
    }

    /// Returns the files that other processes can monitor to notice new records. Returns `None`
    /// before the first snapshot.
    pub fn signs(&self) -> Result<Option<Signs>, Error> {
        let signs = |(store, work_tree): (Store, WorkTree)| Signs {
            operations: store.path().join(work_tree.ref_name()),
            open_steps: work_tree.steps_path(),
        };
        Ok(self.existing()?.map(signs))
    }

    /// Returns the store and this work tree's part of it, if they exist.
    pub(crate) fn existing(&self) -> Result<Option<(Store, WorkTree)>, Error> {
        let Some(claim) = self.claimed()? else { return Ok(None) };
        let path = self.store_of(&claim);
        let Some(store) = Store::open(&path, &self.context.options.ref_prefix)? else {
            return Ok(None);
        };
        let work_tree = WorkTree::named(&store, &claim.work_tree);
        Ok(Some((store, work_tree)))
    }

    /// Opens the store for reading the snapshot `id`, which is unknown if there is no store.
    fn for_reading(&self, id: &ObjectId) -> Result<Store, Error> {
        self.readable()?.ok_or(Error::Lookup(LookupError::UnknownSnapshot { id: *id }))
    }

    /// Opens the store, even if it has no record of this work tree yet but the caller named it.
    fn readable(&self) -> Result<Option<Store>, Error> {
        match self.store_path()? {
            Some(path) => Store::open(&path, &self.context.options.ref_prefix),
            None => Ok(None),
        }
    }

    /// Opens the store for writing, and creates it if necessary.
    pub(crate) fn for_writing(&self) -> Result<(Store, WorkTree), Error> {
        let repo = self.context.repo.as_ref();
        let (store, claim) = match &self.context.options.store {
            Some(path) => {
                let path = self.context.root.join(path);
                let store = self.create_store(&path)?;
                let claim = self.registry().claim(&self.context.root, repo, Some(NAMED_STORE))?;
                (store, claim)
            }
            None => {
                private::create_dirs(&self.context.options.data_dir)?;
                private::sweep_builds(&self.context.options.data_dir.join("snapshot"))?;
                let claim = self.registry().claim(&self.context.root, repo, None)?;
                let path = self.store_of(&claim);
                (self.create_store(&path)?, claim)
            }
        };
        if absolute(store.path()).starts_with(&self.context.root) {
            store.hide_from_git();
        }
        let work_tree = WorkTree::named(&store, &claim.work_tree);
        work_tree.create(&self.context.root)?;
        Ok((store, work_tree))
    }

    /// Returns the store's own `info/exclude`: the agent's hidden directory that contains the
    /// store.
    pub(crate) fn store_exclude(&self, store: &Path) -> String {
        let inside = absolute(store).strip_prefix(&self.context.root).ok().map(Path::to_owned);
        let top = inside.as_deref().and_then(|inside| inside.components().next());
        match top.map(|top| top.as_os_str().to_string_lossy().into_owned()) {
            Some(top) if top.starts_with('.') => format!("/{top}/\n"),
            _ => String::new(),
        }
    }

    /// Notes that a turn is not recorded because the disk is full. The operation that records the
    /// changes later includes the note. Does nothing before the first snapshot.
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

    /// Locks the store so that nothing is removed from it. Other commands can still add to it.
    pub(crate) fn lock_shared(&self, store: &Store) -> Result<Lock, Error> {
        Lock::take(&store.lock_path(), Sharing::Shared, self.context.options.patience)
    }

    /// Takes the work tree's lock and completes interrupted operations of killed commands.
    pub(crate) fn begin(&self) -> Result<Hold, Error> {
        let (store, work_tree) = self.for_writing()?;
        let lock = work_tree.lock(&store, self.context.options.patience)?;
        let shared = self.lock_shared(&store)?;
        store.objects.refresh()?;
        let root = Dir::open(&self.context.root)?;
        if Defect::Meddling.is_made() {
            private::replace(
                &self.context.root.join(".git/ctrlz"),
                b"was here",
                private::Durable::No,
            )?;
        }
        let head = self.context.repo.as_ref().and_then(|repo| repo.standing().ok());
        let context = Arc::clone(&self.context);
        let mut hold =
            Hold { context, store, work_tree, root, head, recovered: None, lock, shared };
        let outside = self.outside_of(&hold).recover()?;
        hold.recovered = self.finish_interrupted(&hold)?.or(outside);
        Ok(hold)
    }

    /// Fails if the next command would first complete an interrupted restore and so change files.
    /// For dry runs, which must not change any.
    pub fn check_finished(&self) -> Result<(), Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(()) };
        if self.outside(&store, &work_tree).is_interrupted()? {
            return Err(Error::Restore(RestoreError::RecoveryPending));
        }
        match Journal::load(&work_tree.journal_path())? {
            Some(journal) if journal.phase != Phase::Recording => {
                Err(Error::Restore(RestoreError::RecoveryPending))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn finish_interrupted(&self, hold: &Hold) -> Result<Option<Recovery>, Error> {
        let path = hold.work_tree.journal_path();
        if Defect::Unrecovered.is_made() {
            return Ok(None);
        }
        let Some(journal) = Journal::load(&path)? else { return Ok(None) };
        let rescue = |dir: &Dir, name: &[u8], path: &[u8]| hold.rescue(dir, name, path);
        let applied = recover(&hold.root, &journal, &path, &rescue)?;
        let is_done = matches!(journal.phase, Phase::Swapping | Phase::Recording);
        match journal.record.as_ref().filter(|_| is_done) {
            Some(record) => {
                self.record_rewind(hold, &journal, record)?;
                Journal::remove(&path)?;
            }
            None => {
                let cause = Cause::of(OperationKind::Restore);
                hold.record(&TrackOptions::default(), &cause, &Progress::default())?;
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
    /// Records an undo or redo whose process was killed, unless that process recorded it.
    fn record_rewind(&self, hold: &Hold, journal: &Journal, record: &Record) -> Result<(), Error> {
        let last = hold.work_tree.last_or_salvaged(&hold.store)?;
        if last.is_some_and(|last| last.kind == record.kind && last.id > record.since) {
            return Ok(());
        }
        let cause = Cause {
            // Other processes may have changed more since.
            details: Details { written: journal.paths(), ..record.details.clone() },
            always: true,
            ..Cause::of(record.kind)
        };
        hold.record_listed(&cause, &Progress::default()).map(drop)
    }
}

/// Files that are replaced by a rename whenever something is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Replaced with every operation.
    pub operations: PathBuf,
    /// Replaced when a step begins or ends.
    pub open_steps: PathBuf,
}
