//! Checks of a store before it is used: its owner, its format, and that it is as ctrlz made it.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, StoreError};
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Dir, FileKind, Named};

use super::alternates::{ALTERNATES_LOCK, COPY_LOCK, has_unknown_alternate};
use super::skeleton::{DIRS, FORMAT};

/// Returns whether a directory holds ctrlz's own files beside those of a git repository. Some of
/// them may be missing or damaged.
pub(crate) fn is_store(dir: &Path) -> bool {
    let has = |name: &&str| dir.join(name).symlink_metadata().is_ok();
    dir.join("ctrlz").is_dir() && ["HEAD", "objects", "refs"].iter().any(has)
}

pub(super) fn check_owner(git_dir: &Path) -> Result<(), Error> {
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

/// Refuses a store with symlinks, a `commondir` or unknown alternates, because writing or
/// collecting there could affect another repository. Stores made by ctrlz have none of these.
pub(super) fn check_links(git_dir: &Path) -> Result<(), Error> {
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
    if has_unknown_alternate(git_dir)? {
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
    ALTERNATES_LOCK,
    COPY_LOCK,
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

pub(super) fn check_format(git_dir: &Path) -> Result<(), Error> {
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
