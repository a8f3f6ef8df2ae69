//! Test harness: a work tree, a store, and helpers to use them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ctrlz::{
    ObjectId, Options, Progress, RestoreOptions, RestoreReport, Snapshot, TrackOptions, TreePath,
    Workspace,
};

pub(crate) struct Lab {
    dir: tempfile::TempDir,
    pub(crate) options: Options,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let mut options = Options::new(dir.path().join("data"));
        options.threads = 2;
        Lab { dir, options }
    }

    /// Returns a lab whose work tree is a git repository with everything in `files` committed.
    pub(crate) fn with_git(files: &[(&str, &str)]) -> Lab {
        let lab = Lab::new();
        lab.git(&["init", "-q", "-b", "main"]);
        for (path, text) in files {
            lab.write(path, text);
        }
        lab.git(&["add", "-A", "-f"]);
        lab.git(&["commit", "-q", "-m", "first", "--allow-empty"]);
        lab
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(path)).unwrap()).into_owned()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn link(&self, target: &str, path: &str) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn mode(&self, path: &str) -> u32 {
        self.path(path).symlink_metadata().unwrap().mode() & 0o7777
    }

    pub(crate) fn workspace(&self) -> Workspace {
        Workspace::open(&self.root(), self.options.clone()).unwrap()
    }

    pub(crate) fn track(&self) -> Snapshot {
        self.workspace().track(&TrackOptions::default(), &Progress::default()).unwrap()
    }

    pub(crate) fn hash(&self) -> ObjectId {
        self.track().hash
    }

    pub(crate) fn try_restore(
        &self,
        hash: ObjectId,
        options: &RestoreOptions,
    ) -> Result<RestoreReport, ctrlz::Error> {
        self.workspace().restore(hash, options, &Progress::default())
    }

    pub(crate) fn restore(&self, hash: ObjectId) -> RestoreReport {
        self.try_restore(hash, &RestoreOptions::default()).unwrap()
    }

    pub(crate) fn restore_exact(&self, hash: ObjectId) -> RestoreReport {
        self.try_restore(hash, &exact()).unwrap()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.workspace().store_path().unwrap().unwrap()
    }

    /// Runs git in the work tree.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.root(), args)
    }

    /// Runs git on the store.
    pub(crate) fn store_git(&self, args: &[&str]) -> String {
        git(&self.store(), args)
    }

    /// Returns the tree that git computes for the work tree, without filters and without ignore
    /// rules of its own.
    pub(crate) fn git_tree(&self) -> String {
        let oracle = tempfile::tempdir().unwrap();
        let git_dir = oracle.path().join("g");
        let work = self.root();
        let git_dir = git_dir.to_str().unwrap();
        let base = ["--git-dir", git_dir, "--work-tree", work.to_str().unwrap()];
        git(&work, &["init", "-q", "--bare", git_dir]);
        std::fs::write(format!("{git_dir}/info/attributes"), "* -text -filter -ident\n").unwrap();
        let run = |args: &[&str]| git(&work, &[&base[..], args].concat());
        run(&["-c", "core.bare=false", "add", "-A", "."]);
        run(&["-c", "core.bare=false", "write-tree"]).trim().to_owned()
    }

    /// Returns every path of the work tree with its kind, permissions, and content or target,
    /// including directories.
    pub(crate) fn manifest(&self) -> Manifest {
        manifest(&self.root())
    }
}

pub(crate) fn exact() -> RestoreOptions {
    RestoreOptions { exact: true, allow_mass_removal: true, ..RestoreOptions::default() }
}

pub(crate) fn tree_path(path: &str) -> TreePath {
    TreePath::parse(path.as_bytes()).unwrap()
}

/// Returns incompressible bytes, which depend only on the seed.
pub(crate) fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::new();
    while (noise.len() as u64) < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend(state.to_le_bytes());
    }
    noise.truncate(bytes as usize);
    noise
}

fn content_hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The paths of a work tree, each with a description of its entry.
#[derive(PartialEq, Eq)]
pub(crate) struct Manifest(pub(crate) BTreeMap<Vec<u8>, String>);

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (path, thing) in &self.0 {
            writeln!(f, "{}: {thing}", ctrlz::escape(path))?;
        }
        Ok(())
    }
}

/// Asserts that two manifests are equal. The message shows only the differences.
#[track_caller]
pub(crate) fn assert_same(now: &Manifest, wanted: &Manifest, what: &str) {
    let differs = |one: &Manifest, other: &Manifest| -> Vec<String> {
        let lines = one.0.iter().filter(|(path, thing)| other.0.get(*path) != Some(thing));
        lines.map(|(path, thing)| format!("{}: {thing}", ctrlz::escape(path))).collect()
    };
    let (extra, missing) = (differs(now, wanted), differs(wanted, now));
    assert!(
        extra.is_empty() && missing.is_empty(),
        "{what}\nis: {extra:#?}\nshould be: {missing:#?}"
    );
}

/// Returns the manifest of everything below `root` except `.git`.
pub(crate) fn manifest(root: &Path) -> Manifest {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == ".git" {
                continue;
            }
            let meta = entry.path().symlink_metadata().unwrap();
            let mode = meta.mode() & 0o7777;
            let relative = entry.path();
            let relative = relative.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let text = if meta.is_dir() {
                dirs.push(entry.path());
                format!("dir {mode:o}")
            } else if meta.is_symlink() {
                format!("link {:?}", std::fs::read_link(entry.path()).unwrap())
            } else if meta.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned();
                format!("file {mode:o} {} {:016x} {text:?}", bytes.len(), content_hash(&bytes))
            } else {
                "special".into()
            };
            found.insert(relative, text);
        }
    }
    Manifest(found)
}

#[expect(clippy::disallowed_methods, reason = "the oracle is a program")]
fn command(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Runs a program that must succeed and returns its standard output.
pub(crate) fn run(dir: &Path, program: &str, args: &[&OsStr]) -> Vec<u8> {
    let output = command(program).args(args).current_dir(dir).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Runs git, isolated from the developer's configuration.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = git_command(dir, args).output().unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn git_command(dir: &Path, args: &[&str]) -> std::process::Command {
    let mut command = command("git");
    command
        .args(["-c", "core.protectNTFS=false", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .envs([
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@b"),
            ("HOME", "/nonexistent"),
        ]);
    command
}

/// Checks the store with `git fsck`.
pub(crate) fn assert_fsck_clean(store: &Path) {
    let output = git(store, &["fsck", "--strict", "--full", "--no-dangling"]);
    let complaints: Vec<&str> =
        output.lines().filter(|line| !line.starts_with("notice:")).collect();
    assert!(complaints.is_empty(), "{output}");
}

/// Runs cargo on this workspace, with the caller's home directory because the registry is there.
pub(crate) fn cargo(args: &[&str]) -> Vec<u8> {
    let mut command = command(env!("CARGO"));
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let output = command.args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Sets a flag when dropped, also during a panic. Otherwise a failed test would hang, because
/// threads wait for the flag.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
