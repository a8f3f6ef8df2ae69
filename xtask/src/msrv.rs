//! The minimum Rust version: `rust-version` in Cargo.toml.
//!
//! `./check` enforces it as far as the installed compiler can: clippy's `incompatible_msrv` refuses
//! newer library functions, and cargo's resolver newer dependencies. This task builds everything
//! with the minimum version itself.

use crate::process::{program, top};

/// Type-checks the workspace with the minimum Rust version, which rustup must have installed.
pub(crate) fn run() -> Result<bool, String> {
    let manifest = top().join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest)
        .map_err(|error| format!("{}: {error}", manifest.display()))?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = ")?.trim().trim_matches('"').into())
        .ok_or("Cargo.toml has no rust-version")?;
    let status = program("rustup")
        .args(["run", version, "cargo", "check", "--workspace", "--all-targets", "--locked"])
        .status()
        .map_err(|error| format!("rustup: {error}"))?;
    if !status.success() {
        eprintln!("if it is not installed: rustup toolchain install {version} --profile minimal");
    }
    Ok(status.success())
}
