//! The invariants of ARCHITECTURE.md, each as a check that reports its number.
//!
//! All harnesses use these checks. `checked` runs them against deliberately broken builds.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::lab::{Lab, command, find, run};
use crate::manifest::{Entry, Manifest, is_temporary};

/// A violation of an invariant.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: u8,
    what: String,
}

pub(crate) type Held = Result<(), Violation>;

/// Panics if an invariant was violated.
pub(crate) trait Holds {
    fn holds(self, when: &str);
}

impl Holds for Held {
    #[track_caller]
    fn holds(self, when: &str) {
        if let Err(Violation { invariant, what }) = self {
            panic!("invariant {invariant} violated; {when}: {what}");
        }
    }
}

fn check(invariant: u8, holds: bool, what: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(Violation { invariant, what: what() }) }
}

/// 1: every recorded snapshot is completely readable, and `git fsck` confirms it.
pub(crate) fn valid(lab: &Lab) -> Held {
    let fsck = lab.store_git(&["fsck", "--strict", "--no-dangling", "--no-progress"]);
    check(1, fsck.code() == Some(0) && !fsck.stderr.contains("error"), || {
        format!("fsck says\n{}{}", fsck.stdout, fsck.stderr)
    })
}

/// 2: an acknowledged snapshot can be restored exactly.
pub(crate) fn durable(lab: &Lab, hash: &str, expected: &Manifest) -> Held {
    let ended = lab.ctrlz(&["restore", "--exact", "--yes", hash]);
    check(2, ended.code() == Some(0), || format!("{hash} is not restored: {ended:?}"))?;
    let found = lab.manifest();
    check(2, found == *expected, || {
        format!("{hash} restored another state: found / expected\n{}", found.difference(expected))
    })
}

/// 3: every path has exactly its old or its new version.
pub(crate) fn atomic(lab: &Lab, old: &Manifest, new: &Manifest) -> Held {
    let torn = Manifest::of_user_files(&lab.work).neither(old, new);
    check(3, torn.is_empty(), || torn.join("\n"))
}

/// 4: all file content of the work tree before a command is still there or in the store.
pub(crate) fn kept(lab: &Lab, before: &Manifest) -> Held {
    let now = lab.manifest();
    let stored = stored_ids(lab);
    for (path, entry) in &before.0 {
        let Entry::File { bytes, .. } = entry else { continue };
        let is_here = now.bytes(path) == Some(bytes);
        check(4, is_here || stored.contains(&blob_id(lab, bytes)), || format!("{path} is lost"))?;
    }
    Ok(())
}

/// Returns the ids of all objects in the store.
pub(crate) fn stored_ids(lab: &Lab) -> HashSet<String> {
    let format = "--batch-check=%(objectname)";
    let listed = lab.store_git(&["cat-file", "--batch-all-objects", format]).ok().stdout;
    listed.lines().map(str::to_owned).collect()
}

/// Returns the git blob id of `bytes`.
pub(crate) fn blob_id(lab: &Lab, bytes: &[u8]) -> String {
    let path = lab.dir().join("saved-to-hash");
    std::fs::write(&path, bytes).unwrap();
    let args = ["hash-object", "--no-filters"];
    let id = run(command("git").args(args).arg(&path)).ok().stdout.trim().to_owned();
    crate::lab::remove(&path);
    id
}

/// 5: nothing outside of the work tree and the data directory has changed.
pub(crate) fn contained(lab: &Lab, before: &Manifest) -> Held {
    let now = lab.surroundings();
    check(5, now == *before, || format!("outside, now / before\n{}", now.difference(before)))
}

/// 5 as well: a directory that ctrlz does not own is unchanged, and its content is not in the
/// store.
pub(crate) fn untouched(lab: &Lab, dir: &Path, before: &Manifest, canary: &str) -> Held {
    let now = Manifest::of(dir);
    check(5, now == *before, || format!("elsewhere, now / before\n{}", now.difference(before)))?;
    let leaked = crate::lab::contains(&lab.all_objects(), canary.as_bytes());
    check(5, !leaked, || "the store holds content of the victim".to_owned())
}

/// 6: a command executes no program other than itself.
pub(crate) fn nothing_executed(lab: &Lab, args: &[&str]) -> Held {
    let log = lab.dir().join("ctrlz-execs");
    let mut before =
        ["strace", "-f", "-qq", "-e", "trace=execve,execveat", "-o"].map(str::to_owned).to_vec();
    before.push(log.to_str().unwrap().into());
    run(&mut lab.wrapped(&before, args)).is(&[0], &args.join(" "));
    let log = std::fs::read_to_string(log).unwrap();
    let execs: Vec<&str> = log.lines().filter(|line| line.contains("exec")).collect();
    check(6, execs.len() == 1, || format!("{args:?} executed {execs:?}"))
}

/// 7: the next command succeeds, and the work tree has either its old or its new state.
pub(crate) fn recovered(lab: &Lab, old: &Manifest, new: &Manifest) -> Held {
    let next = lab.ctrlz(&["track"]);
    check(7, next.code() == Some(0), || format!("the next command failed: {next:?}"))?;
    let now = Manifest::of_user_files(&lab.work);
    check(7, now == *old || now == *new, || {
        format!("the command took effect partially:\n{}", now.difference(new))
    })?;
    swept(lab)
}

/// 7 as well: no temporary file is left.
pub(crate) fn swept(lab: &Lab) -> Held {
    let manifest = lab.manifest();
    let in_work: Vec<_> = manifest.0.keys().filter(|path| is_temporary(path)).collect();
    check(7, in_work.is_empty(), || format!("left in the work tree: {in_work:?}"))?;
    let unfinished = find(&lab.data, &|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tmp_"))
    });
    check(7, unfinished.is_empty(), || format!("left in the store: {unfinished:?}"))
}

/// 8: a snapshot that is reported as complete holds every file. An incomplete one names the missing
/// files.
pub(crate) fn honest(lab: &Lab) -> Held {
    let ended = lab.ctrlz(&["track"]).is(&[0, 3], "track");
    let hash = ended.hash().unwrap();
    let listed = lab.store_git(&["ls-tree", "-r", "-z", "--name-only", &hash]).ok().stdout;
    let listed: HashSet<&str> = listed.split('\0').collect();
    for (path, entry) in &lab.manifest().0 {
        let is_file = matches!(entry, Entry::File { .. } | Entry::Link { .. });
        let is_said = ended.code() == Some(3) && ended.stderr.contains(path.as_str());
        check(8, !is_file || is_said || listed.contains(path.as_str()), || {
            format!("{path} is not in the snapshot and was not reported: {ended:?}")
        })?;
    }
    Ok(())
}

/// 9: other users cannot read anything in the data directory. The directory itself may have any
/// mode.
pub(crate) fn private(lab: &Lab) -> Held {
    let is_open = |path: &Path| {
        let meta = path.symlink_metadata().unwrap();
        path != lab.data && !meta.is_symlink() && meta.mode() & 0o077 != 0
    };
    let open: Vec<PathBuf> = find(&lab.data, &is_open);
    check(9, open.is_empty(), || format!("others may read {open:?}"))
}

/// 10: the store does not exceed its maximum size.
pub(crate) fn bounded(lab: &Lab, max_bytes: u64) -> Held {
    let files = find(&lab.store(), &|path| path.is_file());
    let bytes: u64 = files.iter().map(|path| path.metadata().unwrap().len()).sum();
    check(10, bytes <= max_bytes, || format!("the store has {bytes} of {max_bytes} bytes"))
}

/// 11: the user's repository is unchanged, byte for byte.
pub(crate) fn git_untouched(lab: &Lab, before: &Manifest) -> Held {
    let now = Manifest::of(&lab.work.join(".git"));
    check(11, now == *before, || format!(".git, now / before\n{}", now.difference(before)))
}
