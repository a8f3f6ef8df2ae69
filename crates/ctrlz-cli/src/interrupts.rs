//! Signal handling while a user's command runs. Signals are for the command, and its step must be
//! recorded in any case.

use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Prevents termination signals from ending this process, from its creation on.
///
/// A terminal sends its signals to the command as well, since it is in the same process group.
/// SIGTERM, which is sent to one process, is forwarded.
pub(crate) struct Interrupts {
    command: Arc<Mutex<Command>>,
}

/// The command that receives signals.
#[derive(Default)]
struct Command {
    /// Process id, while the command runs and the id cannot be reused.
    pid: Option<Pid>,
    /// Whether SIGTERM arrived before the process id was known.
    asked_to_end: bool,
}

impl Command {
    fn end(&mut self) {
        match self.pid {
            // Ignored: the command may have exited.
            Some(pid) => drop(kill_process(pid, Signal::TERM)),
            None => self.asked_to_end = true,
        }
    }
}

impl Interrupts {
    pub(crate) fn catch() -> Result<Interrupts, Failure> {
        // Ignored signals stay ignored, for the command too; `nohup` relies on it.
        let ignored = ignored_signals();
        let caught = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(caught).map_err(Failure::Signals)?;
        let command = Arc::new(Mutex::new(Command::default()));
        let running = Arc::clone(&command);
        let pass_on = move || {
            for _ in signals.forever().filter(|signal| *signal == SIGTERM) {
                running.lock().unwrap_or_else(PoisonError::into_inner).end();
            }
        };
        std::thread::Builder::new().spawn(pass_on).map_err(Failure::Signals)?;
        Ok(Interrupts { command })
    }

    /// Waits for a command to exit.
    pub(crate) fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        self.begin(pid);
        // Wait without reaping first: reaping frees the process id, and the next signal could be
        // forwarded to another process.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == rustix::io::Errno::INTR)
        {
        }
        self.command().pid = None;
        child.wait()
    }

    /// Registers the running command, and forwards a SIGTERM that arrived while it was being
    /// started.
    fn begin(&self, pid: Pid) {
        let mut command = self.command();
        command.pid = Some(pid);
        if command.asked_to_end {
            command.end();
        }
    }

    fn command(&self) -> MutexGuard<'_, Command> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bit mask of signals that were ignored at process start, or 0 if it is unknown.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a command to pass a signal on to")]
    fn a_termination_request_before_the_command_starts_is_forwarded() {
        let interrupts = Interrupts { command: Arc::default() };
        interrupts.command().end();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let status = interrupts.wait(&mut child).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGTERM));
    }
}
