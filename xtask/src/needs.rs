//! Programs that the harnesses need. Tests whose programs cannot be installed are not run.

use std::path::PathBuf;
use std::process::Stdio;

use crate::process::{program, target, top};

/// Programs, each with the Debian package that contains it.
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

/// Installs the missing programs. Best effort.
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

/// Builds the program that runs gitoxide for comparison. Returns `None` if the build fails.
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

/// Returns `PATH` with the directories of programs for root.
pub(crate) fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn is_there(name: &str) -> bool {
    std::env::split_paths(&search_path()).any(|dir| dir.join(name).exists())
}
