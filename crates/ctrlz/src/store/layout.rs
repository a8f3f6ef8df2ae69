//! Directory layout of a store, and its creation, checks and repair on open.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, LookupError, StoreError};
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Dir, FileKind, Named, random_name};
use crate::git::{Kind, ObjectId, Tree};

use super::alternates::has_unknown_lender;
use super::lock::{Lock, Sharing};
use super::refs::Refs;
use super::trust::pending;
use crate::pack::{Objects, TEMPORARY};

const FORMAT: u32 = 1;

/// Keeps plain git, run by hand, from converting, executing or publishing anything.
pub(super) const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tsharedRepository = 0600
\tlogAllRefUpdates = false
\tautocrlf = false
\tsymlinks = true
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
[gc]
\tauto = 0
[maintenance]
\tauto = false
[log]
\tdiffMerges = first-parent
[fsck]
\tgitmodulesBlob = ignore
\tgitmodulesLarge = ignore
\tgitmodulesMissing = ignore
\tgitmodulesName = ignore
\tgitmodulesParse = ignore
\tgitmodulesPath = ignore
\tgitmodulesSymlink = ignore
\tgitmodulesUpdate = ignore
\tgitmodulesUrl = ignore
\tgitattributesBlob = ignore
\tgitattributesLarge = ignore
\tgitattributesLineLength = ignore
\tgitattributesMissing = ignore
\tgitattributesSymlink = ignore
\tlargePathname = ignore
";

/// Overrides every `.gitattributes` of a snapshot, so that plain git checks out raw bytes.
const ATTRIBUTES: &str = "* -text -ident -filter -working-tree-encoding !diff !merge\n";

/// A git repository that belongs to ctrlz.
pub(crate) struct Store {
    git_dir: PathBuf,
    pub(crate) objects: Objects,
    pub(crate) refs: Refs,
    ref_prefix: String,
}

impl Store {
    /// Opens the store at `git_dir`. Returns `None` if there is none.
    pub(crate) fn open(git_dir: &Path, ref_prefix: &str) -> Result<Option<Store>, Error> {
        if !git_dir.join("ctrlz").is_dir() {
            return Ok(None);
        }
        check_owner(git_dir)?;
        check_links(git_dir)?;
        check_format(git_dir)?;
        mend(git_dir)?;
        let objects = Objects::open(&git_dir.join("objects"))?;
        let store = Store {
            git_dir: git_dir.to_owned(),
            objects,
            refs: Refs::new(git_dir),
            ref_prefix: ref_prefix.to_owned(),
        };
        store.sweep()?;
        for dir in [".", "ctrlz", "info", "objects/info"] {
            private::sweep(&git_dir.join(dir))?;
        }
        Ok(Some(store))
    }

    /// Opens the store at `git_dir`, or creates it atomically.
    ///
    /// `exclude` becomes the store's `info/exclude`.
    pub(crate) fn open_or_create(
        git_dir: &Path,
        ref_prefix: &str,
        exclude: &str,
    ) -> Result<Store, Error> {
        if let Some(store) = Store::open(git_dir, ref_prefix)? {
            return Ok(store);
        }
        let parent = git_dir.parent().unwrap_or(Path::new("/"));
        private::create_dirs(parent)?;
        private::sweep_builds(parent)?;
        let foreign = std::fs::read_dir(git_dir).is_ok_and(|mut entries| entries.next().is_some());
        if foreign {
            // Another process may have created its store there in the meantime.
            if let Some(store) = Store::open(git_dir, ref_prefix)? {
                return Ok(store);
            }
            let why = "the directory is not empty and holds no store";
            return Err(Error::untrusted(git_dir, why));
        }
        // The handle locks the directory until it is renamed, so that no other process sweeps it.
        let (fresh, _building) = private::create_build_dir(parent)?;
        let made = build(&fresh, exclude);
        if let Err(error) = made {
            // Best effort. The random name is not used by other processes.
            drop(std::fs::remove_dir_all(&fresh));
            return Err(error);
        }
        if let Err(error) = std::fs::rename(&fresh, git_dir) {
            drop(std::fs::remove_dir_all(&fresh));
            // Another process created the store first, or the parent is not writable.
            if let Some(store) = Store::open(git_dir, ref_prefix)? {
                return Ok(store);
            }
            return Ok(Err(error).named("create the store", git_dir)?);
        }
        private::sync_dir(parent)?;
        Store::open(git_dir, ref_prefix)?
            .ok_or_else(|| Error::untrusted(git_dir, "it vanished while it was made"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.git_dir
    }

    /// Hides the store from the git of the work tree that contains it. Otherwise `git add -A` would
    /// add it and `git clean -fd` would delete it.
    ///
    /// Best effort, because no snapshot depends on it and the next command tries again.
    pub(crate) fn hide_from_git(&self) {
        let path = self.git_dir.join(".gitignore");
        if path.symlink_metadata().is_err() {
            drop(private::replace(&path, b"*\n", Durable::No));
        }
    }

    pub(crate) fn objects_dir(&self) -> PathBuf {
        self.git_dir.join("objects")
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.git_dir.join("ctrlz").join("store.lock")
    }

    /// Returns the path of the lock held by garbage collection, purge and repair.
    pub(crate) fn care_lock_path(&self) -> PathBuf {
        self.git_dir.join("ctrlz").join("care.lock")
    }

    /// Returns the path of maintenance's result: an empty file, or the reason of its failure.
    pub(crate) fn cared_path(&self) -> PathBuf {
        self.git_dir.join("ctrlz").join("cared")
    }

    /// Returns the path of the keyed hashes of purged contents.
    pub(super) fn tombstones_path(&self) -> PathBuf {
        self.git_dir.join("ctrlz").join("tombstones")
    }

    /// Returns the path of a loose object.
    pub(crate) fn loose_path(&self, id: &ObjectId) -> PathBuf {
        let hex = id.to_string();
        self.objects_dir().join(&hex[..2]).join(&hex[2..])
    }

    pub(crate) fn work_tree_dir(&self, id: &str) -> PathBuf {
        work_tree_dir(&self.git_dir, id)
    }

    pub(crate) fn ref_prefix(&self) -> &str {
        &self.ref_prefix
    }

    /// Returns the store's own exclude list.
    pub(crate) fn exclude(&self) -> Result<Vec<u8>, Error> {
        Ok(read_small(&self.git_dir.join("info").join("exclude"), 1 << 20)?.unwrap_or_default())
    }

    /// Returns the tree `id`. The error says whether it is purged, not imported yet or unknown.
    pub(crate) fn snapshot(&self, id: &ObjectId) -> Result<Tree, Error> {
        if *id == ObjectId::EMPTY_TREE {
            return Ok(Tree::empty());
        }
        match self.objects.read(id)? {
            Some((Kind::Tree, _)) => self.objects.tree(id),
            Some((kind, _)) => {
                Err(Error::Lookup(LookupError::NotASnapshot { id: *id, kind: kind.to_string() }))
            }
            None => match self.purged()?.get(&id.to_string()) {
                Some(replacement) => Err(Error::Lookup(LookupError::Purged {
                    id: *id,
                    replacement: replacement.parse()?,
                })),
                None if !pending(&self.git_dir)?.is_empty() => {
                    Err(Error::Lookup(LookupError::BeingImported { id: *id }))
                }
                None => Err(Error::Lookup(LookupError::UnknownSnapshot { id: *id })),
            },
        }
    }

    /// Returns the purged snapshots, each with the snapshot that replaces it.
    pub(crate) fn purged(&self) -> Result<std::collections::BTreeMap<String, String>, Error> {
        let path = self.git_dir.join("ctrlz").join("purged");
        Ok(private::load_json(&path, 1 << 30)?.unwrap_or_default())
    }

    /// Records the replacements of purged snapshots. Called before the old snapshots are removed.
    pub(crate) fn note_purged(
        &self,
        trees: impl Iterator<Item = (ObjectId, ObjectId)>,
    ) -> Result<(), Error> {
        let mut purged = self.purged()?;
        purged.extend(trees.map(|(old, new)| (old.to_string(), new.to_string())));
        let path = self.git_dir.join("ctrlz").join("purged");
        Ok(private::save_json(&path, &purged, Durable::Yes)?)
    }

    /// Sets any ref. The caller holds the store's lock exclusively.
    pub(crate) fn set_ref_alone(&self, name: &str, id: &ObjectId) -> Result<(), Error> {
        let scratch = self.git_dir.join("ctrlz").join(format!("tmp_{}", random_name()));
        self.refs.write(name, id, &scratch)
    }

    /// Returns the directories of the work trees that use the store, sorted.
    pub(crate) fn work_tree_dirs(&self) -> Result<Vec<PathBuf>, Error> {
        Ok(private::list(&self.git_dir.join("ctrlz").join("wt"))?)
    }

    /// Returns the parents of a commit.
    pub(crate) fn parents_of(&self, id: &ObjectId) -> Result<Vec<ObjectId>, Error> {
        let damaged = || Error::damaged(id, "it is missing or no commit");
        let (_, bytes) = self.objects.read(id)?.ok_or_else(damaged)?;
        Ok(crate::git::parse_commit(&bytes).ok_or_else(damaged)?.parents)
    }

    /// Removes a loose object. Does nothing if it is missing.
    pub(crate) fn remove_loose(&self, id: &ObjectId) -> Result<(), Error> {
        Ok(private::remove(&self.loose_path(id))?)
    }

    /// Removes leftovers of killed writers. Writers hold the store's lock shared, so every
    /// temporary file is an orphan once the lock is held exclusively.
    fn sweep(&self) -> Result<(), Error> {
        let pack_dir = self.objects_dir().join("pack");
        let is_orphan = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(TEMPORARY);
        let list = || -> Result<Vec<PathBuf>, Error> {
            let entries = std::fs::read_dir(&pack_dir).named("list", &pack_dir)?;
            let names: std::collections::HashSet<_> =
                entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
            let orphans = names.iter().filter(|name| {
                let path = Path::new(name);
                let lonely = path.extension().is_some_and(|extension| extension == "pack")
                    && !names.contains(path.with_extension("idx").as_os_str());
                is_orphan(name) || (lonely && is_old(&pack_dir.join(name)))
            });
            Ok(orphans.map(|name| pack_dir.join(name)).collect())
        };
        if list()?.is_empty() {
            return Ok(());
        }
        let Some(_alone) = Lock::try_take(&self.lock_path(), Sharing::Exclusive)? else {
            return Ok(());
        };
        for path in list()? {
            if path.file_name().is_some_and(is_orphan) {
                std::fs::remove_file(&path).named("remove", &path)?;
            } else {
                // A killed writer did not publish the index, or the index was lost.
                drop(self.quarantine(&path)?);
            }
        }
        Ok(())
    }
}

/// Returns the directory of a work tree's own files in the store.
pub(crate) fn work_tree_dir(git_dir: &Path, id: &str) -> PathBuf {
    git_dir.join("ctrlz").join("wt").join(id)
}

/// Returns whether a pack is over an hour old, so that no git command is still writing its index.
fn is_old(path: &Path) -> bool {
    let modified = path.symlink_metadata().and_then(|meta| meta.modified()).ok();
    let age = modified.and_then(|time| std::time::SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > std::time::Duration::from_secs(3600))
}

fn check_owner(git_dir: &Path) -> Result<(), Error> {
    let refuse = |why| Err(Error::untrusted(git_dir, why));
    let meta = git_dir.symlink_metadata().named("look at", git_dir)?;
    let me = rustix::process::geteuid().as_raw();
    if meta.is_symlink() && meta.uid() != me {
        return refuse("it is a link of another user");
    }
    let meta = git_dir.metadata().named("look at", git_dir)?;
    if meta.uid() != me {
        return refuse("it belongs to another user");
    }
    if meta.mode() & 0o077 != 0 {
        let private = Permissions::from_mode(0o700);
        std::fs::set_permissions(git_dir, private).named("set the permissions of", git_dir)?;
    }
    Ok(())
}

/// Directories of a store that packs, refs and notes are written into.
const DIRS: [&str; 7] =
    ["ctrlz", "ctrlz/wt", "info", "objects", "objects/info", "objects/pack", "refs"];

/// Refuses a store with symlinks, a `commondir` or unknown alternates, because writing or
/// collecting there could affect another repository. Stores made by ctrlz have none of these.
fn check_links(git_dir: &Path) -> Result<(), Error> {
    let is_link = |path: PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    let refuse = |why| Err(Error::untrusted(git_dir, why));
    if DIRS.iter().any(|dir| is_link(git_dir.join(dir))) {
        return refuse("one of its directories is a link");
    }
    for dir in DIRS {
        for (path, kind) in entries(&git_dir.join(dir)) {
            // The files of each work tree are written in place and collected, too.
            let is_part = kind == FileKind::Dir && dir.starts_with("ctrlz");
            let has_link = || entries(&path).any(|(_, kind)| kind == FileKind::Symlink);
            if kind == FileKind::Symlink || (is_part && has_link()) {
                return refuse("it holds a link");
            }
        }
    }
    if git_dir.join("commondir").symlink_metadata().is_ok() {
        return refuse("it names another repository as its own (commondir)");
    }
    if has_unknown_lender(git_dir)? {
        refuse("it borrows objects from a repository that none of its projects is (alternates)")
    } else {
        Ok(())
    }
}

/// Returns the entries of a directory with their kinds. An unreadable directory counts as empty,
/// because nothing in it could be followed.
fn entries(dir: &Path) -> impl Iterator<Item = (PathBuf, FileKind)> {
    let opened = Dir::open(dir).ok();
    let names = opened.as_ref().and_then(|dir| dir.names_and_kinds().ok()).unwrap_or_default();
    names.into_iter().filter_map(move |(name, kind)| {
        let dir = opened.as_ref()?;
        // Some file systems do not report the kind in a listing.
        let kind = kind.or_else(|| Some(dir.stat(&name).ok()??.kind))?;
        Some((dir.path_of(&name), kind))
    })
}

/// Names of files in `ctrlz/` and in the directories of its work trees. A directory of such a name
/// would make every command fail.
const FILES: [&str; 33] = [
    "adopted",
    "adopting",
    "adopting.lock",
    "aside",
    "borrowed",
    "care.lock",
    "cared",
    "flawed",
    "format",
    "from",
    "gap",
    "id",
    "lenders.lock",
    "loans.lock",
    "lock",
    "log.index",
    "logged",
    "lost",
    "origin",
    "path",
    "purged",
    "pushed",
    "refused",
    "released",
    "restore.journal",
    "rules_salt",
    "scanned",
    "stat",
    "steps",
    "store.lock",
    "tombstones",
    "watched",
    "wrong-index",
];

/// Returns why a store inside a project is not as ctrlz made it. A `git pull` can write links and
/// other files into it, although it belongs to this user.
pub(crate) fn foreign_part(git_dir: &Path) -> Result<Option<&'static str>, Error> {
    let found = check_links(git_dir).and_then(|()| check_kinds(git_dir));
    match found {
        Ok(()) => Ok(None),
        Err(Error::Store(StoreError::UntrustedStore { why, .. })) => Ok(Some(why)),
        Err(error) => Err(error),
    }
}

/// Refuses a store with a symlink at any depth of its refs and of ctrlz's own files, with a
/// directory in place of a file, or with a file in place of a directory.
fn check_kinds(git_dir: &Path) -> Result<(), Error> {
    /// Far more files than a store has; bounds the time of the check.
    const MAX_ENTRIES: usize = 1_000_000;
    let refuse = |why| Err(Error::untrusted(git_dir, why));
    let is_dir = |path: &Path| path.symlink_metadata().map(|meta| meta.is_dir()).ok();
    if DIRS.iter().any(|dir| is_dir(&git_dir.join(dir)) == Some(false)) {
        return refuse("a file is in place of one of its directories");
    }
    let files = ["HEAD", "config", "packed-refs", "info/attributes", "objects/info/alternates"];
    if files.iter().any(|file| is_dir(&git_dir.join(file)) == Some(true)) {
        return refuse("a directory is in place of one of its files");
    }
    let own = git_dir.join("ctrlz");
    let mut dirs = vec![own.clone(), git_dir.join("refs")];
    let mut count = 0;
    while let Some(dir) = dirs.pop() {
        let (is_own, holds_dirs) = (dir.starts_with(&own), dir == own.join("wt"));
        for (path, kind) in entries(&dir) {
            count += 1;
            let is_file = || {
                let is_listed =
                    path.file_name().is_some_and(|name| FILES.iter().any(|file| name == *file));
                // The directories of a work tree, such as `plans`, hold only files.
                let above = path.ancestors().nth(3);
                is_listed || dir == own.join("paths") || above == Some(&own.join("wt"))
            };
            match kind {
                FileKind::Symlink => return refuse("it holds a link"),
                FileKind::Dir if is_own && is_file() => {
                    return refuse("a directory is in place of one of its files");
                }
                kind if is_ref_of_wrong_kind(git_dir, &path, kind) => {
                    return refuse("a file and a directory of its refs are confused");
                }
                FileKind::Dir => dirs.push(path),
                _ if holds_dirs => return refuse("a file is in place of one of its directories"),
                _ => (),
            }
        }
        if count > MAX_ENTRIES {
            return refuse("it holds too many files");
        }
    }
    Ok(())
}

/// Returns whether one of ctrlz's refs is a directory, or one of their directories is a file:
/// `refs/ctrlz*/<id>/log`, `refs/ctrlz*/<id>/session/<name>`.
fn is_ref_of_wrong_kind(git_dir: &Path, path: &Path, kind: FileKind) -> bool {
    let Ok(rest) = path.strip_prefix(git_dir.join("refs")) else { return false };
    let parts: Vec<_> = rest.iter().map(std::ffi::OsStr::to_string_lossy).collect();
    let is_ours = parts[0].starts_with("ctrlz") && parts[0] != "ctrlz-adopted";
    is_ours
        && match (&parts[1..], kind) {
            ([] | [_], kind) => kind != FileKind::Dir,
            ([_, name], FileKind::Dir) => name != "session" && name != "past",
            ([_, name], _) => name == "session" || name == "past",
            (_, kind) => kind == FileKind::Dir,
        }
}

/// Returns whether a newer version of ctrlz wrote the store.
pub(crate) fn is_newer(git_dir: &Path) -> Result<bool, Error> {
    Ok(format_of(git_dir)?.is_some_and(|found| found > FORMAT))
}

/// Returns the format of a store, or `None` if it is missing or damaged.
fn format_of(git_dir: &Path) -> Result<Option<u32>, Error> {
    let text = read_small(&git_dir.join("ctrlz").join("format"), 64)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).trim().parse().ok())
}

fn check_format(git_dir: &Path) -> Result<(), Error> {
    match format_of(git_dir)? {
        Some(found) if found > FORMAT => Err(Error::Store(StoreError::NewerFormat {
            path: git_dir.to_owned(),
            found,
            known: FORMAT,
        })),
        Some(_) => Ok(()),
        // Damaged by another program or a crash. Format 1 is the only one so far.
        None => {
            let path = git_dir.join("ctrlz").join("format");
            Ok(private::replace(&path, format!("{FORMAT}\n").as_bytes(), Durable::Yes)?)
        }
    }
}

/// Returns the files that plain git needs. They can be rewritten at any time.
fn skeleton() -> [(&'static str, String); 4] {
    [
        ("HEAD", "ref: refs/heads/main\n".into()),
        ("config", CONFIG.into()),
        ("info/attributes", ATTRIBUTES.into()),
        ("ctrlz/format", format!("{FORMAT}\n")),
    ]
}

/// Recreates missing or damaged files of a store, so that one bad file never disables a project.
fn mend(git_dir: &Path) -> Result<(), Error> {
    // The directory that marks a store as ours comes first.
    for dir in ["ctrlz/wt", "info", "objects/info", "objects/pack", "refs"] {
        private::create_dirs(&git_dir.join(dir))?;
    }
    for (name, text) in skeleton() {
        let path = git_dir.join(name);
        let good = match name {
            // Users may add to the configuration, but git refuses to run with a torn one.
            "config" => read_small(&path, 1 << 20)?
                .is_some_and(|bytes| bytes.starts_with(b"[core]") && !bytes.contains(&0)),
            "HEAD" => read_small(&path, 4096)?.is_some_and(|bytes| bytes.starts_with(b"ref: ")),
            // A power loss can leave an empty file.
            _ => path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0),
        };
        if !good {
            private::replace(&path, text.as_bytes(), Durable::Yes)?;
        }
    }
    Ok(())
}

/// Creates the files of a new store. Its directories and the exclude list are durable on return.
/// The other files are not flushed, because [`mend`] recreates them.
fn build(git_dir: &Path, exclude: &str) -> Result<(), Error> {
    for dir in DIRS {
        private::create_dir(&git_dir.join(dir))?;
    }
    for (name, text) in skeleton() {
        private::replace(&git_dir.join(name), text.as_bytes(), Durable::No)?;
    }
    if !exclude.is_empty() {
        private::replace(&git_dir.join("info/exclude"), exclude.as_bytes(), Durable::Yes)?;
    }
    for dir in ["objects", "ctrlz", "."] {
        private::sync_dir(&git_dir.join(dir))?;
    }
    Ok(())
}
