//! Signals while somebody else's command runs: they are for the command, and our record of it must
//! be finished whatever they do to it.

use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// From its creation until the process ends, signals that ask to stop do not stop us.
///
/// A terminal sends its signals to the command as well, since it is in our process group; SIGTERM,
/// which is sent to one process, is passed on.
pub(crate) struct Interrupts {
    /// The command while it runs and its id is its own.
    child: Arc<Mutex<Option<Pid>>>,
}

impl Interrupts {
    pub(crate) fn catch() -> Result<Interrupts, Failure> {
        // What is ignored stays ignored, for the command too: that is how nohup works.
        let ignored = ignored_signals();
        let caught = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(caught).map_err(Failure::Signals)?;
        let child = Arc::new(Mutex::new(None));
        let running = Arc::clone(&child);
        let pass_on = move || {
            for signal in signals.forever() {
                let child = running.lock().unwrap_or_else(PoisonError::into_inner);
                if let (SIGTERM, Some(child)) = (signal, *child) {
                    // It may have ended already, and then nothing is left to be told.
                    kill_process(child, Signal::TERM).ok();
                }
            }
        };
        std::thread::Builder::new().spawn(pass_on).map_err(Failure::Signals)?;
        Ok(Interrupts { child })
    }

    /// Waits for a command to end.
    pub(crate) fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        self.set(Some(pid));
        // Only wait at first: a process that was waited for gives up its id, and the next signal
        // would be passed on to whoever got it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == rustix::io::Errno::INTR)
        {
        }
        self.set(None);
        child.wait()
    }

    fn set(&self, child: Option<Pid>) {
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = child;
    }
}

/// The signals this process was started with as ignored, one bit each; none where nobody says.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
