//! The one place that starts git, to carry pushes and pulls. No snapshot and no undo comes here.
//!
//! Git gets an environment with nothing in it but what finding it, signing in and the way through
//! a proxy need. Of the user's configuration it reads what it always reads, since that is where
//! credential helpers are named; hooks are switched off.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ctrlz::{ObjectId, Push};

use crate::failure::Failure;

/// What git, ssh and curl need to reach a server and to say who the user is.
const PASSED_ON: [&str; 31] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_ASKPASS_REQUIRE",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_TERMINAL_PROMPT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_SSL_CAINFO",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "no_proxy",
    "NO_PROXY",
];

/// Settings that keep git from running, converting or publishing anything else.
const SETTINGS: [&str; 10] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=false",
    "fetch.unpackLimit=1",
    "transfer.unpackLimit=1",
    "gc.auto=0",
    "maintenance.auto=false",
];

fn git(git_dir: &Path) -> Command {
    let mut command = git_anywhere();
    command.arg("--git-dir").arg(git_dir);
    command
}

#[expect(clippy::disallowed_methods, reason = "git carries pushes and pulls, and nothing else")]
fn git_anywhere() -> Command {
    let mut command = Command::new("git");
    command.env_clear();
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::null());
    command
}

fn run(command: &mut Command, what: &'static str) -> Result<Output, Failure> {
    let output = command.output().map_err(Failure::NoGit)?;
    match output.status.success() {
        true => Ok(output),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Failure::Git { what, said })
        }
    }
}

/// The address that a name stands for in the user's own repository, or the text itself.
pub(crate) fn address(root: &Path, remote: &OsStr) -> String {
    let text = remote.to_string_lossy().into_owned();
    if text.contains([':', '/']) {
        return text;
    }
    // Git finds the configuration by itself: in a linked work tree it lies elsewhere.
    let mut command = git_anywhere();
    command.arg("-C").arg(root).args(["config", "--get", &format!("remote.{text}.url")]);
    match run(&mut command, "read the configuration") {
        Ok(output) if !output.stdout.is_empty() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => text,
    }
}

/// An address without the name and password that may be in it.
pub(crate) fn shown(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{scheme}://{host}/{path}")
        }
        None => address.to_owned(),
    }
}

/// The refs of one log that a server has.
pub(crate) fn list(
    store: &Path,
    address: &str,
    log: &str,
) -> Result<Vec<(String, ObjectId)>, Failure> {
    let mut command = git(store);
    command.args(["ls-remote", "--", address]);
    command.args([format!("refs/ctrlz/{log}/*"), format!("refs/ctrlz-private/{log}/*")]);
    let output = run(&mut command, "ask the server")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| {
        let (id, name) = line.split_once('\t')?;
        Some((name.to_owned(), id.parse().ok()?))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// Sets refs on a server, all or none, each only if it still is what it was.
pub(crate) fn push(address: &str, push: &Push) -> Result<(), Failure> {
    let mut command = git(&push.store);
    command.args(["push", "--atomic", "--no-verify", "--quiet"]);
    for update in &push.updates {
        let expected = update.expected.map(|id| id.to_string()).unwrap_or_default();
        command.arg(format!("--force-with-lease={}:{expected}", update.remote));
    }
    command.args(["--", address]);
    command.args(push.updates.iter().map(|update| format!("{}:{}", update.new, update.remote)));
    run(&mut command, "push").map(drop)
}

/// Fetches every log that a server has.
pub(crate) fn fetch(git_dir: &Path, address: &str, ignored: Ignored) -> Result<(), Failure> {
    let mut command = git(git_dir);
    command.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--"]);
    command.args([address, "+refs/ctrlz/*:refs/ctrlz/*"]);
    if ignored == Ignored::Too {
        command.arg("+refs/ctrlz-private/*:refs/ctrlz-private/*");
    }
    run(&mut command, "fetch").map(drop)
}

/// Whether ignored files travel as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    Not,
    Too,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_address_has_no_password() {
        assert_eq!(shown("https://me:secret@host:8/a/b"), "https://host:8/a/b");
        assert_eq!(shown("git@host:a/b"), "git@host:a/b");
    }
}
