//! A work tree, a data directory, and the commands that run on them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checker::{self, Holds as _};
use crate::disk::{Disk, Mount};
use crate::manifest::Manifest;

pub(crate) use xtask::sized;

/// Clears a flag on drop, also when a test panics. The threads of a scope loop while the flag is
/// set, and the scope waits for them.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Returns whether the test runs as root. Prints a note if it does not.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("needs root: not run");
        xtask::not_run("needs root");
    }
    root
}

/// Returns whether a program is installed. Prints a note if it is not.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    if !found {
        eprintln!("needs {program}: not run");
        xtask::not_run(&format!("needs {program}"));
    }
    found
}

/// Returns a command with an environment that contains little more than `PATH`.
#[expect(clippy::disallowed_methods, reason = "the one place where these tests start a process")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("LC_ALL", "C").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_SYSTEM", "/dev/null").stdin(Stdio::null());
    command
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Returns the printed hash, if there is one.
    pub(crate) fn hash(&self) -> Option<String> {
        let line = self.stdout.lines().next()?;
        let is_hash = line.len() == 40 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hash && self.stdout.ends_with('\n')).then(|| line.to_owned())
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Ended {
        self.is(&[0], "")
    }

    #[track_caller]
    pub(crate) fn is(self, codes: &[i32], when: &str) -> Ended {
        let fine = self.code().is_some_and(|code| codes.contains(&code));
        assert!(fine, "{when}: ended with {}\n{}{}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Runs a command and waits for it.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Starts a command whose output is captured.
pub(crate) fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a started command.
pub(crate) fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs a program that has to succeed. Returns its standard output.
#[track_caller]
pub(crate) fn must(program: &str, args: &[&str]) -> String {
    run(command(program).args(args)).is(&[0], program).stdout
}

/// Returns the path of the Python interpreter. `python3` may be a script that searches for it on
/// every start.
pub(crate) fn python() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND
        .get_or_init(|| must("python3", &["-c", "import sys; print(sys.executable)"]).trim().into())
}

/// Creates a new directory, in memory where possible, because the tests flush thousands of times.
pub(crate) fn fresh_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("ctrlz-torture-").tempdir_in(memory);
    made.unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// The number of threads that a command may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    One,
    All,
}

/// A work tree, its data directory, and the way in which `ctrlz` is run on them.
pub(crate) struct Lab {
    pub(crate) work: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) home: PathBuf,
    /// Words before `ctrlz` on the command line.
    wrapper: Vec<String>,
    /// Number of the invariant that `ctrlz` violates deliberately.
    defect: Option<u8>,
    /// One thread makes the system calls of every run the same.
    threads: Threads,
    /// Number of bytes that are buffered before they are written to a pack, if not the default.
    buffer_bytes: Option<u64>,
    binary: PathBuf,
    /// Declared before `dir`, so that they are unmounted before it is removed.
    pub(crate) disks: Vec<Disk>,
    mounts: Vec<Mount>,
    dir: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let dir = fresh_dir();
        let (work, data) = (dir.path().join("work"), dir.path().join("data"));
        Lab::with(dir, work, data)
    }

    /// Creates a lab whose work tree and data directory are elsewhere, for example on other file
    /// systems.
    pub(crate) fn with(dir: tempfile::TempDir, work: PathBuf, data: PathBuf) -> Lab {
        let home = dir.path().join("home");
        for dir in [&work, &home, &dir.path().join("outside")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(dir.path().join("outside/neighbour"), "not yours").unwrap();
        let binary = env!("CARGO_BIN_EXE_ctrlz").into();
        let (wrapper, disks, mounts) = (Vec::new(), Vec::new(), Vec::new());
        let (threads, defect, buffer_bytes) = (Threads::One, None, None);
        Lab { work, data, home, wrapper, defect, threads, buffer_bytes, binary, disks, mounts, dir }
    }

    /// Adds disks that live as long as the lab.
    pub(crate) fn on(mut self, disks: Vec<Disk>) -> Lab {
        self.disks = disks;
        self
    }

    /// Sets the data directory.
    pub(crate) fn storing_in(mut self, data: PathBuf) -> Lab {
        self.data = data;
        self
    }

    /// Uses as many threads as the machine has cores.
    pub(crate) fn threaded(mut self) -> Lab {
        self.threads = Threads::All;
        self
    }

    /// Uses a `ctrlz` that violates an invariant deliberately.
    pub(crate) fn broken(mut self, invariant: u8) -> Lab {
        self.defect = Some(invariant);
        self
    }

    /// Uses a `ctrlz` with a small buffer, so that packs are written in chunks, as they are for
    /// large amounts of new data.
    pub(crate) fn in_pieces(mut self, buffer_bytes: u64) -> Lab {
        self.buffer_bytes = Some(buffer_bytes);
        self
    }

    /// Adds a mount that lives as long as the lab.
    pub(crate) fn mounted(mut self, mount: Mount) -> Lab {
        self.mounts.push(mount);
        self
    }

    /// Unmounts all mounts.
    pub(crate) fn unmount(&mut self) {
        self.mounts.clear();
    }

    /// Runs every command as the user `nobody`, from a directory that this user can access.
    pub(crate) fn run_by_nobody(mut self) -> Lab {
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.dir.path(), everybody).unwrap();
        let binary = self.dir.path().join("ctrlz");
        // Copied by another program: if this process wrote the file, a child that is forked at that
        // moment could keep it open for writing, and it could not be executed.
        must("cp", &[self.binary.to_str().unwrap(), binary.to_str().unwrap()]);
        self.binary = binary;
        std::fs::create_dir_all(&self.data).unwrap();
        for dir in [&self.work, &self.data, &self.home] {
            std::os::unix::fs::chown(dir, Some(65534), Some(65534)).unwrap();
        }
        self.wrapper = as_nobody();
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the command line of `ctrlz` with `args`, for wrappers such as strace or a shell.
    pub(crate) fn line(&self, args: &[&str]) -> Vec<String> {
        self.line_in(&self.work, args)
    }

    fn line_in(&self, tree: &Path, args: &[&str]) -> Vec<String> {
        let mut line = self.wrapper.clone();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        line.extend([path(&self.binary), "-C".into(), path(tree)]);
        line.extend(["--data-dir".into(), path(&self.data)]);
        if self.threads == Threads::One {
            line.extend(["--threads".into(), "1".into()]);
        }
        line.extend(args.iter().map(|arg| (*arg).to_owned()));
        line
    }

    /// Returns the command `before`, followed by `ctrlz` with `args`.
    pub(crate) fn wrapped(&self, before: &[String], args: &[&str]) -> Command {
        let line: Vec<String> = before.iter().cloned().chain(self.line(args)).collect();
        let mut command = command(&line[0]);
        command.args(&line[1..]).env("HOME", &self.home).current_dir(&self.work);
        if let Some(defect) = self.defect {
            command.env("CTRLZ_DEFECT", defect.to_string());
        }
        if let Some(bytes) = self.buffer_bytes {
            command.env("CTRLZ_BUFFER_BYTES", bytes.to_string());
        }
        command
    }

    /// Runs a shell script with the command line of `ctrlz` as its arguments, `"$@"`.
    pub(crate) fn scripted(&self, script: &str, args: &[&str]) -> Ended {
        let shell = ["sh", "-c", script, "sh"].map(str::to_owned);
        run(&mut self.wrapped(&shell, args))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.wrapped(&[], args)
    }

    /// Like [`Lab::command`], in another work tree.
    pub(crate) fn command_in(&self, tree: &Path, args: &[&str]) -> Command {
        let line = self.line_in(tree, args);
        let mut command = command(&line[0]);
        command.args(&line[1..]).env("HOME", &self.home).current_dir(tree);
        command
    }

    pub(crate) fn ctrlz(&self, args: &[&str]) -> Ended {
        run(&mut self.command(args))
    }

    /// Records the work tree completely. Returns the hash.
    #[track_caller]
    pub(crate) fn track(&self) -> String {
        self.ctrlz(&["track"]).ok().hash().unwrap()
    }

    /// Records the work tree. Returns the operation, which also distinguishes states with the same
    /// hash.
    #[track_caller]
    pub(crate) fn track_operation(&self) -> String {
        let json = self.ctrlz(&["track", "--json"]).ok().stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["operation"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn restore(&self, hash: &str) {
        self.ctrlz(&["restore", "--exact", "--yes", hash]).ok();
    }

    /// Restores an acknowledged hash, and compares the work tree with the expected state.
    #[track_caller]
    pub(crate) fn assert_restores(&self, hash: &str, expected: &Manifest, when: &str) {
        checker::durable(self, hash, expected).holds(when);
    }

    pub(crate) fn manifest(&self) -> Manifest {
        Manifest::of(&self.work)
    }

    /// Returns a manifest of everything except the work tree and the data directory.
    pub(crate) fn surroundings(&self) -> Manifest {
        let mut manifest = Manifest::of(self.dir.path());
        let ours = |path: &str| path.split('/').next().is_some_and(is_ours);
        manifest.0.retain(|path, _| !ours(path));
        manifest
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.work.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, target: &str, path: &str) {
        std::os::unix::fs::symlink(target, self.work.join(path)).unwrap();
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.work.join(path), mode).unwrap();
    }

    /// Removes the file or directory at `path`.
    pub(crate) fn remove(&self, path: &str) {
        remove(&self.work.join(path));
    }

    /// Returns the only store below the data directory.
    pub(crate) fn store(&self) -> PathBuf {
        let found = find(&self.data, &|path| path.join("ctrlz/format").exists());
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    pub(crate) fn store_git(&self, args: &[&str]) -> Ended {
        run(command("git").arg("--git-dir").arg(self.store()).args(args))
    }

    /// Asserts the invariants that hold after every completed command: no leftovers, a store that
    /// `git fsck` accepts, and private permissions.
    #[track_caller]
    pub(crate) fn assert_tidy(&self, when: &str) {
        self.assert_no_leftovers(when);
        checker::valid(self).holds(when);
        checker::private(self).holds(when);
    }

    #[track_caller]
    pub(crate) fn assert_no_leftovers(&self, when: &str) {
        checker::swept(self).holds(when);
    }

    /// Returns the content of every object in the store, reachable or not.
    pub(crate) fn all_objects(&self) -> Vec<u8> {
        let args = ["cat-file", "--batch-all-objects", "--batch", "--unordered"];
        let output = command("git").arg("--git-dir").arg(self.store()).args(args).output().unwrap();
        assert!(output.status.success());
        output.stdout
    }
}

/// Returns the words that run a command as the user `nobody`.
pub(crate) fn as_nobody() -> Vec<String> {
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"].map(str::to_owned).into()
}

fn is_ours(name: &str) -> bool {
    ["work", "data", "saved", "ctrlz", "disk"].iter().any(|ours| name.starts_with(ours))
}

/// Returns whether `needle` occurs in `bytes`.
pub(crate) fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Returns all paths that `wanted` accepts, among `dir` and everything below it.
pub(crate) fn find(dir: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = wanted(dir).then(|| dir.to_owned()).into_iter().collect();
    if dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            found.extend(find(&entry.path(), wanted));
        }
    }
    found
}

/// Removes a file, or a directory with its content, if it exists.
pub(crate) fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => (),
    }
}

/// Removes the content of a directory, but not the directory itself.
pub(crate) fn empty(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        remove(&entry.unwrap().path());
    }
}

/// Copies a directory with permissions and symlinks.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    copy_into(from, to);
}

/// Copies the content of a directory into an existing one.
pub(crate) fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        let meta = from.symlink_metadata().unwrap();
        if meta.is_dir() {
            copy_tree(&from, &to);
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&from).unwrap(), &to).unwrap();
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
    std::fs::set_permissions(to, from.metadata().unwrap().permissions()).unwrap();
}

/// Returns incompressible bytes that depend only on the seed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend(state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}
