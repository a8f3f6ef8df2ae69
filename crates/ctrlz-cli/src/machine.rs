//! Access to this machine for the installer: programs in PATH, variables, and processes.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ctrlz_agents::install::{Machine, Run};

/// Time limit for the response of a client.
const PATIENCE: Duration = Duration::from_secs(20);

/// This machine.
pub(crate) struct ThisMachine;

impl Machine for ThisMachine {
    fn find(&self, program: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let can_run = |file: &PathBuf| {
            file.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(can_run)
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn run(&self, run: &Run) -> Result<(), String> {
        let output =
            command(run).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said =
            [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).into_owned());
        let last = said.iter().find_map(|text| text.trim().lines().last().map(str::to_owned));
        Err(last.unwrap_or_else(|| output.status.to_string()))
    }

    fn ask(&self, run: &Run, lines: &[String], wanted: &dyn Fn(&str) -> bool) -> Option<String> {
        let mut command = command(run);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let answer = converse(&mut child, lines, wanted);
        // The client serves until it is killed. Errors are ignored: it may have exited.
        child.kill().ok();
        child.wait().ok();
        answer
    }
}

#[expect(clippy::disallowed_methods, reason = "a client's own command knows best how to install")]
fn command(run: &Run) -> Command {
    let mut command = Command::new(&run.program);
    command.args(&run.words).current_dir(&run.dir).envs(run.variables.iter().copied());
    command
}

fn converse(child: &mut Child, lines: &[String], wanted: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut stdin = child.stdin.take()?;
    let stdout = BufReader::new(child.stdout.take()?);
    stdin.write_all(format!("{}\n", lines.join("\n")).as_bytes()).ok()?;
    let (sender, said) = channel();
    let read = move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
    std::thread::Builder::new().spawn(read).ok()?;
    let end = Instant::now() + PATIENCE;
    loop {
        let line = said.recv_timeout(end.saturating_duration_since(Instant::now())).ok()?;
        if wanted(&line) {
            return Some(line);
        }
    }
}
