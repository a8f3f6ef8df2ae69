//! Signals while somebody else's command runs: they are for the command, and our record of it must
//! be finished whatever they do to it.

use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// From its creation until the process ends, signals that ask to stop do not stop us.
///
/// A terminal sends its signals to the command as well, since it is in our process group; SIGTERM,
/// which is sent to one process, is passed on.
pub(crate) struct Interrupts {
    command: Arc<Mutex<Command>>,
}

/// The command that signals are for.
#[derive(Default)]
struct Command {
    /// While it runs and its id is its own.
    pid: Option<Pid>,
    /// It was asked to end before its id was known.
    asked_to_end: bool,
}

impl Command {
    fn end(&mut self) {
        match self.pid {
            // It may have ended already, and then nothing is left to be told.
            Some(pid) => drop(kill_process(pid, Signal::TERM)),
            None => self.asked_to_end = true,
        }
    }
}

impl Interrupts {
    pub(crate) fn catch() -> Result<Interrupts, Failure> {
        // What is ignored stays ignored, for the command too: that is how nohup works.
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

    /// Waits for a command to end.
    pub(crate) fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        self.begin(pid);
        // Only wait at first: a process that was waited for gives up its id, and the next signal
        // would be passed on to whoever got it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == rustix::io::Errno::INTR)
        {
        }
        self.command().pid = None;
        child.wait()
    }

    /// The command runs; a request to end that came while it was being started is for it.
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

/// The signals this process was started with as ignored, one bit each; none where nobody says.
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
    fn a_request_that_comes_before_the_command_reaches_it() {
        let interrupts = Interrupts { command: Arc::default() };
        interrupts.command().end();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let status = interrupts.wait(&mut child).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGTERM));
    }
}
