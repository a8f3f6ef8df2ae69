//! What the harnesses need from the machine. What cannot be had is said, and does without.

use std::path::PathBuf;
use std::process::Stdio;

use crate::process::{program, target, top};

/// A program and the Debian package that brings it.
const NEEDED: [(&str, &str); 8] = [
    ("git", "git"),
    ("strace", "strace"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("setpriv", "util-linux"),
    ("python3", "python3"),
    ("chattr", "e2fsprogs"),
    ("script", "bsdutils"),
];

/// Installs what is missing, where that is possible.
pub(crate) fn install() {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(name, _)| !is_there(name)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    println!("installing: {}", missing.join(" "));
    let mut update = program("apt-get");
    let updated = update.args(["update", "-q"]).stdout(Stdio::null()).status();
    let mut install = program("apt-get");
    install.args(["install", "-y", "-q", "--no-install-recommends"]).args(&missing);
    let installed = install.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).status();
    if !updated.is_ok_and(|status| status.success())
        || !installed.is_ok_and(|status| status.success())
    {
        eprintln!("could not install all of it; what needs it is reported as not run here");
    }
}

/// Builds gitoxide's side of the comparison; `None` if that is not possible here.
pub(crate) fn gix() -> Option<PathBuf> {
    let dir = std::path::absolute(target().join("peers")).ok()?;
    let mut cargo = program("cargo");
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]);
    cargo.arg(top().join("xtask/gix-peer/Cargo.toml")).arg("--target-dir").arg(&dir);
    match cargo.status() {
        Ok(status) if status.success() => Some(dir.join("release/gix-peer")),
        _ => {
            eprintln!("gitoxide could not be built; its rows are reported as not run here");
            None
        }
    }
}

/// The path with the directories that hold programs for root.
pub(crate) fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn is_there(name: &str) -> bool {
    std::env::split_paths(&search_path()).any(|dir| dir.join(name).exists())
}
