//! Starting other programs: cargo, tests, a package manager, git.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns a command that runs a program at the top of the repository.
#[expect(clippy::disallowed_methods, reason = "this command runs others; it takes no snapshot")]
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(top()).stdin(Stdio::null());
    command
}

/// Runs a program and returns its standard output. Fails if the program fails.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} ended with {}", output.status));
    }
    Ok(output.stdout)
}

/// Returns the first line that a program prints, or nothing if it fails.
pub(crate) fn first_line(command: &mut Command) -> String {
    let printed = output(command.stderr(Stdio::null())).unwrap_or_default();
    String::from_utf8_lossy(&printed).lines().next().unwrap_or_default().to_owned()
}

/// Returns the top directory of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns cargo's target directory, which also holds the results.
pub(crate) fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| top().join("target"))
}
