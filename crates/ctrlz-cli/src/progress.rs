//! A progress line on the terminal for work that takes longer than half a second.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use ctrlz::Progress;

const PATIENCE: Duration = Duration::from_millis(500);
const REFRESH: Duration = Duration::from_millis(100);
/// Control sequence that moves to the first column and clears the line.
const CLEAR: &str = "\r\x1b[K";

/// Runs `work`, and shows its progress if standard error is a terminal.
pub(crate) fn watched<T>(work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    if !io::stderr().is_terminal() {
        return work(&progress);
    }
    std::thread::scope(|scope| {
        let (working, finished) = channel::<()>();
        let shown = &progress;
        let watcher = move || show(shown, &finished);
        // Best effort: without a second thread, no progress is shown.
        drop(std::thread::Builder::new().spawn_scoped(scope, watcher));
        let outcome = work(&progress);
        drop(working);
        outcome
    })
}

/// Redraws the line until the work is done, then removes it.
fn show(progress: &Progress, finished: &Receiver<()>) {
    let mut wait = PATIENCE;
    while finished.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        draw(&format!("{CLEAR}{}", describe(progress)));
        wait = REFRESH;
    }
    if wait == REFRESH {
        draw(CLEAR);
    }
}

fn describe(progress: &Progress) -> String {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let files = count(&progress.files);
    match count(&progress.files_to_read) {
        0 => format!("looked at {files} files"),
        all => format!("looked at {files} files, read {} of {all}", count(&progress.files_read)),
    }
}

fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Ignored: the terminal may be gone.
    stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).ok();
}
