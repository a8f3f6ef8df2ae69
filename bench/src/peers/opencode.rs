//! The git calls of OpenCode 1.18's snapshots, in their order and with their settings.
//!
//! The time of its JavaScript is not included, which is in OpenCode's favour.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::Fallible;
use crate::job::{Job, Work};
use crate::process::{feed, output, program, word};

const LIMIT_BYTES: u64 = 2 * 1024 * 1024;
const BATCH: usize = 100;

/// Configuration of its git directory.
const SETTINGS: [(&str, &str); 8] = [
    ("core.autocrlf", "false"),
    ("core.longpaths", "true"),
    ("core.symlinks", "true"),
    ("core.fsmonitor", "false"),
    ("feature.manyFiles", "true"),
    ("index.version", "4"),
    ("index.threads", "true"),
    ("core.untrackedCache", "true"),
];

/// Options of single calls.
const CORE: [&str; 2] = ["core.longpaths=true", "core.symlinks=true"];
const CFG: [&str; 3] = ["core.longpaths=true", "core.symlinks=true", "core.autocrlf=false"];
const QUOTE: [&str; 4] =
    ["core.longpaths=true", "core.symlinks=true", "core.autocrlf=false", "core.quotepath=false"];

fn git(job: &Job, settings: &[&str]) -> Command {
    let mut git = program("git");
    git.current_dir(&job.tree);
    for setting in settings {
        git.args(["-c", setting]);
    }
    git.arg("--git-dir").arg(&job.state).arg("--work-tree").arg(&job.tree);
    git
}

/// Returns a git command for the user's own repository.
fn source(job: &Job) -> Command {
    let mut git = program("git");
    git.current_dir(&job.tree);
    git
}

/// Runs the git commands of a job.
pub(crate) fn run(job: &Job) -> Fallible<String> {
    match &job.work {
        Work::Track => track(job),
        Work::Patch(hash) => patch(job, hash),
        Work::DiffFull(from, to) => diff_full(job, from, to),
        Work::Restore(hash) => {
            output(git(job, &CORE).args(["read-tree", hash]))?;
            word(git(job, &CORE).args(["checkout-index", "-a", "-f"]))
        }
        Work::RestoreExact(_) | Work::ReadAll | Work::WriteAll(_) => {
            Err("OpenCode does not do this".into())
        }
    }
}

fn track(job: &Job) -> Fallible<String> {
    if !job.state.exists() {
        init(job)?;
    }
    add(job)?;
    word(git(job, &[]).arg("write-tree"))
}

fn init(job: &Job) -> Fallible<()> {
    std::fs::create_dir_all(&job.state)?;
    let mut init = program("git");
    init.env("GIT_DIR", &job.state).env("GIT_WORK_TREE", &job.tree).args(["init", "-q"]);
    output(&mut init)?;
    for (key, value) in SETTINGS {
        output(program("git").arg("--git-dir").arg(&job.state).args(["config", key, value]))?;
    }
    let common =
        word(source(job).args(["rev-parse", "--path-format=absolute", "--git-common-dir"]))?;
    let common = Path::new(&common);
    let info = job.state.join("objects/info");
    std::fs::create_dir_all(&info)?;
    std::fs::write(info.join("alternates"), format!("{}\n", common.join("objects").display()))?;
    std::fs::copy(common.join("index"), job.state.join("index"))?;
    Ok(())
}

/// Brings the index up to date with the work tree.
fn add(job: &Job) -> Fallible<()> {
    let exclude = word(source(job).args(["rev-parse", "--git-path", "info/exclude"]))?;
    let exclude = std::fs::read(job.tree.join(exclude)).unwrap_or_default();
    std::fs::create_dir_all(job.state.join("info"))?;
    std::fs::write(job.state.join("info/exclude"), &exclude)?;
    let mut changed = git(job, &QUOTE);
    changed.args(["diff-files", "--name-only", "-z", "--", "."]);
    let mut new = git(job, &QUOTE);
    new.args(["ls-files", "--full-name", "--others", "--exclude-standard", "-z", "--", "."]);
    let (changed, new) = std::thread::scope(|scope| {
        let changed = scope.spawn(move || output(&mut changed).map_err(|error| error.to_string()));
        (changed.join(), output(&mut new))
    });
    let changed = changed.map_err(|_| "a thread panicked")??;
    let new: BTreeSet<Vec<u8>> = names(&new?).collect();
    let mut candidates: BTreeSet<Vec<u8>> = names(&changed).collect();
    candidates.extend(new.iter().cloned());
    if candidates.is_empty() {
        return Ok(());
    }
    let ignored: BTreeSet<Vec<u8>> = check_ignore(job, &candidates)?;
    let allowed = candidates.into_iter().filter(|path| !ignored.contains(path));
    let small = allowed.filter(|path| {
        let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path);
        let bytes = std::fs::metadata(job.tree.join(path)).map_or(0, |meta| meta.len());
        bytes <= LIMIT_BYTES || !new.contains(std::os::unix::ffi::OsStrExt::as_bytes(path))
    });
    let mut list = Vec::new();
    for path in small {
        list.extend_from_slice(b":(top,literal)");
        list.extend(path);
        list.push(0);
    }
    let mut add = git(job, &CFG);
    add.args(["add", "--all", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"]);
    feed(&mut add, &list, &[0])?;
    Ok(())
}

fn names(list: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}

fn check_ignore(job: &Job, paths: &BTreeSet<Vec<u8>>) -> Fallible<BTreeSet<Vec<u8>>> {
    let mut check = program("git");
    check.current_dir(&job.tree);
    for setting in QUOTE {
        check.args(["-c", setting]);
    }
    check.arg("--git-dir").arg(job.tree.join(".git")).arg("--work-tree").arg(&job.tree);
    check.args(["check-ignore", "--no-index", "--stdin", "-z"]);
    let list: Vec<u8> = paths.iter().flat_map(|path| [path, &b"\0"[..]].concat()).collect();
    Ok(names(&feed(&mut check, &list, &[0, 1])?).collect())
}

fn patch(job: &Job, hash: &str) -> Fallible<String> {
    add(job)?;
    let mut diff = git(job, &QUOTE);
    diff.args(["diff", "--cached", "--no-ext-diff", "--name-only", hash, "--", "."]);
    let listed = output(&mut diff)?;
    let files: BTreeSet<Vec<u8>> =
        listed.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect();
    let ignored = if files.is_empty() { BTreeSet::new() } else { check_ignore(job, &files)? };
    Ok((files.len() - ignored.len()).to_string())
}

fn diff_full(job: &Job, from: &str, to: &str) -> Fallible<String> {
    let range = ["--no-renames", from, to, "--", "."];
    output(git(job, &QUOTE).args(["diff", "--no-ext-diff", "--name-status"]).args(range))?;
    let rows = output(git(job, &QUOTE).args(["diff", "--no-ext-diff", "--numstat"]).args(range))?;
    let rows = String::from_utf8(rows)?;
    let files: Vec<&str> = rows.lines().filter_map(|row| row.split('\t').nth(2)).collect();
    check_ignore(job, &files.iter().map(|file| file.as_bytes().to_vec()).collect())?;
    let mut bytes = 0;
    for batch in files.chunks(BATCH) {
        let asked: String =
            batch.iter().map(|file| format!("{from}:{file}\n{to}:{file}\n")).collect();
        bytes += feed(git(job, &CFG).args(["cat-file", "--batch"]), asked.as_bytes(), &[0])?.len();
    }
    Ok(bytes.to_string())
}
