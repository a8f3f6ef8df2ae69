//! Read-only access to the user's own repository. Its configuration is not read here: the command
//! line reads it to find ignore files.

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::read_small_linked;
use crate::fs::{Dir, Time};
use crate::git::{IndexFile, Kind, ObjectId, parse_commit};
use crate::scan::{EntryStat, IndexStamp, is_racy};

use crate::pack::Objects;

/// Branch and commit that HEAD of the user's repository points to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Branch name, or `None` if HEAD is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Commit id, or `None` before the first commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Upper bound on the first-parent commits walked to find the root commit. Projects with longer
/// histories are identified by their path instead.
const MAX_HISTORY: usize = 200_000;

/// Maximum size of a personal ignore list, larger than any written by hand or by a tool. A larger
/// one is not applied.
pub(crate) const MAX_LIST_BYTES: u64 = 16 << 20;

/// Directories in which a repository keeps its own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitDirs {
    /// Directory with `HEAD` and `index`.
    pub git_dir: PathBuf,
    /// Directory with `config` and `objects`, shared by all work trees of a repository.
    pub common_dir: PathBuf,
}

/// Returns the directories of the repository whose work tree is `root`, if it has a usable one.
pub fn git_dirs(root: &Path) -> Option<GitDirs> {
    let UserRepo { git_dir, common_dir } = UserRepo::at(root)?;
    Some(GitDirs { git_dir, common_dir })
}

/// Paths of the user's repository.
#[derive(Clone, Debug)]
pub(crate) struct UserRepo {
    git_dir: PathBuf,
    common_dir: PathBuf,
}

impl UserRepo {
    /// Returns the repository whose work tree is exactly `root`, if it is usable.
    ///
    /// A step can write anything into a `.git`. An unreadable one is unusable, but must not prevent
    /// an undo.
    pub(crate) fn at(root: &Path) -> Option<UserRepo> {
        let dot_git = root.join(".git");
        let git_dir = if dot_git.is_dir() {
            dot_git
        } else {
            let text = read_small_linked(&dot_git, 8192).ok()??;
            let target = text.trim_ascii_end().strip_prefix(b"gitdir: ")?;
            root.join(Path::new(std::ffi::OsStr::from_bytes(target)))
        };
        let common_dir = match read_small_linked(&git_dir.join("commondir"), 8192).ok()? {
            Some(text) => {
                git_dir.join(Path::new(std::ffi::OsStr::from_bytes(text.trim_ascii_end())))
            }
            None => git_dir.clone(),
        };
        let objects = common_dir.join("objects");
        // A `pack` that is missing is fine.
        let is_readable = |dir: &Path| match std::fs::read_dir(dir) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound && dir != objects,
        };
        let usable = git_dir.join("HEAD").is_file()
            && is_readable(&objects)
            && is_readable(&objects.join("pack"));
        usable.then_some(UserRepo { git_dir, common_dir })
    }

    /// Returns the canonical paths of the repository's own directories.
    pub(crate) fn own_dirs(&self) -> Vec<PathBuf> {
        let real = |dir: &PathBuf| dir.canonicalize().ok();
        [&self.git_dir, &self.common_dir].into_iter().filter_map(real).collect()
    }

    pub(crate) fn objects_dir(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// Reads a file in `info/` without following symlinks, because its text becomes part of a
    /// snapshot's record. Returns an empty text if it is absent or unreadable, as in git, or
    /// larger than [`MAX_LIST_BYTES`].
    pub(crate) fn info(&self, name: &str) -> Vec<u8> {
        let dir = Dir::open(&self.common_dir).and_then(|dir| dir.open_below(b"info"));
        let Ok(file) = dir.and_then(|dir| dir.open_file(name.as_bytes())) else {
            return Vec::new();
        };
        let is_small = |meta: &std::fs::Metadata| meta.is_file() && meta.len() <= MAX_LIST_BYTES;
        let mut text = Vec::new();
        let read = file.metadata().is_ok_and(|meta| is_small(&meta))
            && file.take(MAX_LIST_BYTES).read_to_end(&mut text).is_ok();
        if read { text } else { Vec::new() }
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Returns the decoded index, if it exists, and whether it was readable. A missing or empty
    /// index counts as readable.
    pub(crate) fn index(&self) -> Result<(Option<IndexFile>, bool), Error> {
        let path = self.index_path();
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
            return Ok((None, true));
        }
        let sha256 = self.head()?.map(|hex| hex.len() == 64);
        let index = IndexFile::read(&path, sha256);
        let is_readable = index.is_some();
        Ok((index, is_readable))
    }

    /// Returns the metadata of the index. Taken before the index is read, it shows the next command
    /// whether the index has changed since.
    pub(crate) fn index_stamp(&self) -> IndexStamp {
        let before = Time::now();
        let stat = Dir::open(&self.git_dir).and_then(|dir| Ok((dir.trust()?, dir.stat(b"index")?)));
        match stat {
            Ok((trust, Some(stat))) => {
                let settled = trust.stat && !is_racy(stat.ctime, before);
                IndexStamp { stat: Some(EntryStat::from(&stat)), settled }
            }
            Ok((_, None)) => IndexStamp { stat: None, settled: true },
            Err(_) => IndexStamp { stat: None, settled: false },
        }
    }

    /// Returns the branch and commit of HEAD, for the record.
    pub(crate) fn standing(&self) -> Result<Head, Error> {
        let text = self.read_ref(Path::new("HEAD"))?.unwrap_or_default();
        // Repositories with reftables have a placeholder in the file.
        let branch = text.strip_prefix("ref: refs/heads/").filter(|name| *name != ".invalid");
        let branch = branch.map(str::to_owned);
        Ok(Head { branch, commit: self.head()? })
    }

    /// Returns the commit that HEAD resolves to, as 40 (SHA-1) or 64 (SHA-256) hexadecimal digits.
    fn head(&self) -> Result<Option<String>, Error> {
        let mut name = PathBuf::from("HEAD");
        for _ in 0..5 {
            let Some(text) = self.read_ref(&name)? else { return Ok(None) };
            match text.strip_prefix("ref: ") {
                Some(target) => name = PathBuf::from(target),
                None => {
                    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
                    return Ok((is_hex && [40, 64].contains(&text.len())).then_some(text));
                }
            }
        }
        Ok(None)
    }

    fn read_ref(&self, name: &Path) -> Result<Option<String>, Error> {
        let climbs =
            |part: std::path::Component<'_>| !matches!(part, std::path::Component::Normal(_));
        if name.components().any(climbs) {
            return Ok(None);
        }
        for dir in [&self.git_dir, &self.common_dir] {
            // An invalid file name and an unreadable file count as a missing ref.
            if let Ok(Some(bytes)) = read_small_linked(&dir.join(name), 4096) {
                return Ok(Some(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()));
            }
        }
        let packed =
            read_small_linked(&self.common_dir.join("packed-refs"), 64 << 20)?.unwrap_or_default();
        let packed = String::from_utf8_lossy(&packed);
        let wanted = name.to_string_lossy();
        let found = packed.lines().find_map(|line| {
            let (id, found) = line.split_once(' ')?;
            (found == wanted).then(|| id.to_owned())
        });
        Ok(found)
    }

    /// Returns the root commit of the first-parent history.
    ///
    /// Returns `None` if that cannot identify the project: no commit yet, a shallow or partial
    /// clone, another hash function, or a history longer than [`MAX_HISTORY`].
    pub(crate) fn root_commit(&self) -> Result<Option<ObjectId>, Error> {
        let Some(Ok(mut id)) = self.head()?.map(|hex| hex.parse::<ObjectId>()) else {
            return Ok(None);
        };
        let shallow =
            read_small_linked(&self.common_dir.join("shallow"), 64 << 20)?.unwrap_or_default();
        let shallow: HashSet<ObjectId> = String::from_utf8_lossy(&shallow)
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        // An unreadable repository must not prevent a snapshot.
        let Ok(objects) = Objects::open(&self.objects_dir()) else { return Ok(None) };
        for _ in 0..MAX_HISTORY {
            if shallow.contains(&id) {
                return Ok(None);
            }
            let Ok(Some((Kind::Commit, bytes))) = objects.read_known(&id) else { return Ok(None) };
            let Some(commit) = parse_commit(&bytes) else { return Ok(None) };
            match commit.parents.first() {
                Some(parent) => id = *parent,
                None => return Ok(Some(id)),
            }
        }
        Ok(None)
    }
}
