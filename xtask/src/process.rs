//! The programs that this command starts: cargo, tests, a package manager, git.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program, to be run at the top of the repository.
#[expect(clippy::disallowed_methods, reason = "this command runs others; it takes no snapshot")]
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(top()).stdin(Stdio::null());
    command
}

/// Runs a program that has to succeed; its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} ended with {}", output.status));
    }
    Ok(output.stdout)
}

/// The first line that a program prints, or nothing.
pub(crate) fn first_line(command: &mut Command) -> String {
    let printed = output(command.stderr(Stdio::null())).unwrap_or_default();
    String::from_utf8_lossy(&printed).lines().next().unwrap_or_default().to_owned()
}

/// The top of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where results are kept.
pub(crate) fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| top().join("target"))
}
