//! A separate project, home and data directory for each test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A place to run `ctrlz` in, isolated from the developer's own files.
pub(crate) struct Bench {
    _temp: tempfile::TempDir,
    pub(crate) project: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) data: PathBuf,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        let bench =
            Bench { _temp: temp, project: at("home/project"), home: at("home"), data: at("data") };
        std::fs::create_dir_all(&bench.project).unwrap();
        bench
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.project.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.project.join(path)).ok()
    }

    /// Writes a file below the home directory.
    pub(crate) fn write_home(&self, path: &str, text: &str) {
        let path = self.home.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns a `ctrlz` command whose environment has only the directories of this bench.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_ctrlz"));
        command.current_dir(&self.project).args(words);
        command
            .env("HOME", &self.home)
            .env("CTRLZ_DATA_DIR", &self.data)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        finish(&mut self.command(words))
    }

    /// Runs a command that must succeed, and returns its trimmed output.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
    }

    /// Runs a command that must succeed, and parses its JSON output.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[&["--json"], words].concat())).unwrap()
    }

    /// Runs a command that must fail with `code` and `part` in its error message.
    #[track_caller]
    pub(crate) fn fails(&self, words: &[&str], code: i32, part: &str) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        assert!(ran.stderr.starts_with("ctrlz: "), "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
        ran
    }

    /// Returns the names in the data directory.
    pub(crate) fn in_data(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.data).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn track(&self) -> String {
        self.ok(&["track"])
    }

    /// Runs a shell script in the project; `$CTRLZ` is the command.
    pub(crate) fn shell(&self, script: &str) -> Ran {
        let mut shell = program("/bin/sh");
        shell.current_dir(&self.project).args(["-c", script]);
        shell
            .env("HOME", &self.home)
            .env("CTRLZ_DATA_DIR", &self.data)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        finish(shell.env("CTRLZ", env!("CARGO_BIN_EXE_ctrlz")))
    }

    /// Runs git in the project, without the configuration of the user and the system.
    #[track_caller]
    pub(crate) fn git(&self, words: &[&str]) -> Ran {
        let mut git = program("git");
        git.current_dir(&self.project).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        git.args(words).env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
        git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let ran = finish(&mut git);
        assert_eq!(ran.code, 0, "git {words:?}: {ran:?}");
        ran
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let Output { status, stdout, stderr } = output;
        // A command that was killed by a signal has no exit code. No test expects -1.
        let code = status.code().unwrap_or(-1);
        Ran { code, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Returns a command with an empty environment and no input.
#[expect(clippy::disallowed_methods, reason = "the one place where tests start a process")]
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env_clear().stdin(Stdio::null());
    command
}

pub(crate) fn finish(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

/// Runs a command whose output goes to `stdout`.
pub(crate) fn finish_into(command: &mut Command, stdout: impl Into<Stdio>) -> Ran {
    let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    child.wait_with_output().unwrap().into()
}

/// Runs a command with `input` on its standard input.
pub(crate) fn feed(command: &mut Command, input: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Errors are ignored: a command may exit before it has read everything.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    child.wait_with_output().unwrap().into()
}

/// Returns whether `text` is exactly a snapshot hash.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns every file below `dir` with its bytes, sorted.
pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}
