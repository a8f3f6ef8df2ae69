//! Starting programs. The engine never does this, but the benchmark measures processes.

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Fallible;

/// Returns a command with a clean environment, without the developer's settings.
#[expect(clippy::disallowed_methods, reason = "the peers are programs; this is no part of ctrlz")]
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", "/nonexistent").env("LC_ALL", "C");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(Stdio::null());
    command
}

/// Runs a program and returns its output. Fails if the program fails.
pub(crate) fn output(command: &mut Command) -> Fallible<Vec<u8>> {
    let Output { status, stdout, stderr } = command.output()?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        return Err(format!("{command:?}: {status}: {said}").into());
    }
    Ok(stdout)
}

/// Runs a program with `input` on its standard input. Any exit code in `codes` is a success.
pub(crate) fn feed(command: &mut Command, input: &[u8], codes: &[i32]) -> Fallible<Vec<u8>> {
    pour(command, codes, |stdin| stdin.write_all(input))
}

/// Like [`feed`], with an input that is generated while the program reads it.
pub(crate) fn pour(
    command: &mut Command,
    codes: &[i32],
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()> + Send,
) -> Fallible<Vec<u8>> {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn()?;
    let mut stdin = BufWriter::new(child.stdin.take().ok_or("no standard input")?);
    let output = std::thread::scope(|scope| {
        // Ignores EPIPE: the program may close its input early. Its exit code decides.
        scope.spawn(move || drop(write(&mut stdin).and_then(|()| stdin.flush())));
        child.wait_with_output()
    })?;
    if !output.status.code().is_some_and(|code| codes.contains(&code)) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}: {said}", output.status).into());
    }
    Ok(output.stdout)
}

/// Runs a program and returns its output without surrounding whitespace.
pub(crate) fn word(command: &mut Command) -> Fallible<String> {
    Ok(String::from_utf8(output(command)?)?.trim().to_owned())
}

/// Returns whether a program is installed.
pub(crate) fn is_installed(name: &str) -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).any(|dir| dir.join(name).is_file())
}

/// Builds `ctrlz` with the profile of this program and returns its path.
pub(crate) fn build_ctrlz() -> Fallible<PathBuf> {
    let me = std::env::current_exe()?;
    let beside = me.with_file_name("ctrlz");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = cargo_command(&cargo);
        if me.parent().is_some_and(|dir| dir.ends_with("release")) {
            build.arg("--release");
        }
        // Like `cargo install-static`: a statically linked program starts faster.
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            build.args(["--", "-C", "target-feature=+crt-static"]);
        }
        output(&mut build)?;
    }
    if !beside.is_file() {
        return Err(format!("{} is missing: run through cargo", beside.display()).into());
    }
    Ok(beside)
}

#[expect(clippy::disallowed_methods, reason = "cargo needs the developer's environment")]
fn cargo_command(cargo: &OsStr) -> Command {
    let mut build = Command::new(cargo);
    build.args(["rustc", "--quiet", "-p", "ctrlz", "--bin", "ctrlz"]);
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    build
}
