//! Detached processes: `ctrlz` continues in a process of its own after the command has exited.
//!
//! The caller may wait for the end of our pipes, kill our process group or close our terminal, so
//! the detached process shares none of them.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ctrlz::Workspace;

use crate::place::Place;

/// Starts `ctrlz` for the same work tree and store. The child has to call [`leave`].
pub(crate) fn start(place: &Place, words: &[&str]) -> io::Result<Child> {
    start_for(place.workspace(), place.config.as_deref(), words)
}

/// Like [`start`], with the configuration file given on the command line.
#[expect(clippy::disallowed_methods, reason = "the only process that is started is ctrlz itself")]
pub(crate) fn start_for(
    workspace: &Workspace,
    config: Option<&Path>,
    words: &[&str],
) -> io::Result<Child> {
    let options = workspace.options();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("-C").arg(workspace.root()).arg("--data-dir").arg(&options.data_dir);
    if let Some(store) = &options.store {
        command.arg("--store").arg(store);
    }
    if let Some(config) = config {
        // The child changes its current directory.
        command.arg("--config").arg(std::path::absolute(config)?);
    }
    if options.allow_dangerous_root {
        command.arg("--force-root");
    }
    command.args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

/// Detaches from everything inherited: files, session, terminal and current directory.
///
/// Best effort: errors are ignored.
pub(crate) fn leave() {
    close_inherited();
    // Fails only for the leader of a process group, which has nothing to leave.
    rustix::process::setsid().ok();
    std::env::set_current_dir("/").ok();
}

/// Closes inherited file descriptors, such as a pipe whose reader waits for its end.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // The descriptor of the listing is among them, and already closed.
    let is_open = |fd: &i32| Path::new(&format!("/proc/self/fd/{fd}")).symlink_metadata().is_ok();
    for fd in open.into_iter().filter(|fd| *fd > 2).filter(is_open) {
        close(fd);
    }
}

#[expect(unsafe_code, reason = "an inherited file has no owner that could close it safely")]
fn close(fd: i32) {
    // SAFETY: the descriptor is open, and this process has opened none yet that it still uses, so
    // nothing else here owns it.
    unsafe { rustix::io::close(fd) };
}
