//! The broken build: `ctrlz` with one mistake per invariant, chosen when it runs.
//!
//! It is what the checker's own test runs. The mistakes are behind the feature `failpoints`, which
//! does not compile in release builds.

use std::path::PathBuf;

use crate::process::{output, program, target};

/// Builds it; gives its path.
pub(crate) fn build() -> Result<PathBuf, String> {
    let mut cargo = program("cargo");
    cargo.args(["build", "--quiet", "--locked", "-p", "ctrlz-cli", "--features", "failpoints"]);
    output(&mut cargo)?;
    let path = target().join("broken/ctrlz");
    let place = target().join("broken");
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    // A copy: the next ordinary build puts its own in the same place.
    std::fs::copy(target().join("debug/ctrlz"), &path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let mut restored = program("cargo");
    output(restored.args(["build", "--quiet", "--locked", "-p", "ctrlz-cli"]))?;
    Ok(path)
}
