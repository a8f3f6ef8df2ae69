//! The only module that starts git: for pushes, pulls and deep repacking. Snapshots and undo never
//! use it.
//!
//! Git runs in a fresh repository with its own configuration, so that it reads no configuration,
//! hook or attribute of the store or the project. Its environment contains only what is needed to
//! find git, to authenticate and to use a proxy. The system's and the user's configuration are read
//! as usual, because they name proxies and credential helpers.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ctrlz::{ObjectId, Push};

use crate::failure::Failure;

/// Variables that git, ssh and curl need to reach a server and to authenticate the user.
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

/// Settings that prevent git from running, converting or publishing anything else.
const SETTINGS: [&str; 11] = [
    "protocol.ext.allow=never",
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

fn git(git_dir: &Path, address: &Address) -> Command {
    let mut command = git_anywhere();
    address.allow(&mut command);
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
    if output.status.success() {
        Ok(output)
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::Git { what, said })
    }
}

/// Address of a server.
pub(crate) struct Address {
    pub(crate) text: String,
    /// Whether the project's configuration names it. Local repositories named there are refused,
    /// because git would run their hooks on a push.
    is_of_project: bool,
}

impl Address {
    /// Returns whether git carries the address itself. For any other scheme it starts a helper
    /// program, such as `fd`, which reads from any file descriptor.
    fn has_known_transport(&self) -> bool {
        const KNOWN: [&str; 7] = ["http", "https", "ssh", "git", "git+ssh", "ssh+git", "file"];
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let end = self.text.bytes().position(|byte| !is_scheme(byte)).unwrap_or(self.text.len());
        let (scheme, rest) = self.text.split_at(end);
        if rest.starts_with("://") { KNOWN.contains(&scheme) } else { !rest.starts_with("::") }
    }

    fn allow(&self, command: &mut Command) {
        if self.is_of_project {
            command.args(["-c", "protocol.file.allow=never"]);
        }
    }
}

/// Returns the address of a remote of the user's repository, or the text itself if it is an address
/// or a remote of the user's own configuration. Refuses other names: git would take them for
/// directories of the project and run their hooks.
pub(crate) fn address(git_dir: &Path, root: &Path, remote: &OsStr) -> Result<Address, Failure> {
    let text = remote.to_string_lossy().into_owned();
    if text.contains(':') || ["./", "../", "/"].iter().any(|start| text.starts_with(start)) {
        return Ok(Address { text, is_of_project: false });
    }
    // Git locates the configuration, which is elsewhere for a linked work tree. Reading one value
    // runs no program.
    let mut command = git_anywhere();
    let key = format!("remote.{text}.url");
    command.arg("-C").arg(root).args(["config", "--local", "--no-includes", "--get", &key]);
    if let Some(text) = value(&mut command) {
        let address = Address { text, is_of_project: true };
        return if address.has_known_transport() {
            Ok(address)
        } else {
            let why = "the project names a remote whose address is of no known kind; if you trust \
                       it, pass the address itself";
            Err(Failure::Option { why })
        };
    }
    // The repository at `git_dir` names no remote, so that only the user's configuration is left.
    let mut command = git_anywhere();
    command.arg("--git-dir").arg(git_dir).args(["config", "--get", &key]);
    match value(&mut command) {
        Some(_) => Ok(Address { text, is_of_project: false }),
        None => Err(Failure::Option {
            why: "the repository has no remote of this name; a path starts with ./, ../ or /",
        }),
    }
}

/// Returns the value that `git config` prints, if there is one.
fn value(command: &mut Command) -> Option<String> {
    let output = run(command, "read the configuration").ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns an address without the user name and password of its URL.
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

/// Returns the refs of one log on a server.
pub(crate) fn list(
    git_dir: &Path,
    address: &Address,
    log: &str,
) -> Result<Vec<(String, ObjectId)>, Failure> {
    let mut command = git(git_dir, address);
    command.args(["ls-remote", "--", &address.text]);
    command.args([format!("refs/ctrlz/{log}/*"), format!("refs/ctrlz-private/{log}/*")]);
    let output = run(&mut command, "ask the server")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| {
        let (id, name) = line.split_once('\t')?;
        Some((name.to_owned(), id.parse().ok()?))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// Updates refs on a server atomically, each with a lease on its expected value.
pub(crate) fn push(git_dir: &Path, address: &Address, push: &Push) -> Result<(), Failure> {
    let mut command = git(git_dir, address);
    command.args(["push", "--atomic", "--no-verify", "--quiet"]);
    for update in &push.updates {
        let expected = update.expected.map(|id| id.to_string()).unwrap_or_default();
        command.arg(format!("--force-with-lease={}:{expected}", update.remote));
    }
    command.args(["--", &address.text]);
    command.args(push.updates.iter().map(|update| format!("{}:{}", update.new, update.remote)));
    run(&mut command, "push").map(drop)
}

/// Fetches every log of a server.
pub(crate) fn fetch(git_dir: &Path, address: &Address, ignored: Ignored) -> Result<(), Failure> {
    let mut command = git(git_dir, address);
    command.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--"]);
    command.args([&address.text, "+refs/ctrlz/*:refs/ctrlz/*"]);
    if ignored == Ignored::Too {
        command.arg("+refs/ctrlz-private/*:refs/ctrlz-private/*");
    }
    run(&mut command, "fetch").map(drop)
}

/// Packs objects into one new pack of the repository at `git_dir`, with deltas between all of them.
pub(crate) fn pack(git_dir: &Path, ids: &[ObjectId]) -> Result<(), Failure> {
    let mut command = git_anywhere();
    command.arg("--git-dir").arg(git_dir).args(["pack-objects", "-q", "--delta-base-offset"]);
    command.arg(git_dir.join("objects/pack/pack"));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Failure::NoGit)?;
    let list: String = ids.iter().map(|id| format!("{id}\n")).collect();
    // Ignored: if git exits early, it reports the reason on standard error.
    drop(child.stdin.take().map(|mut stdin| stdin.write_all(list.as_bytes())));
    let output = child.wait_with_output().map_err(Failure::NoGit)?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::Git { what: "pack the store", said })
    }
}

/// Whether ignored files are transferred as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    Not,
    Too,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_git_carries_itself_have_a_known_transport() {
        let known =
            |text: &str| Address { text: text.into(), is_of_project: true }.has_known_transport();
        for text in ["https://host/a", "ssh://host/a", "me@host:a", "host:a", "[::1]:a", "../a"] {
            assert!(known(text), "{text}");
        }
        for text in ["fd::17", "ext::sh -c x", "x::https://host/a", "fd://1", "rsync://host/a"] {
            assert!(!known(text), "{text}");
        }
    }

    #[test]
    fn a_shown_address_has_no_password() {
        assert_eq!(shown("https://me:secret@host:8/a/b"), "https://host:8/a/b");
        assert_eq!(shown("git@host:a/b"), "git@host:a/b");
    }
}
