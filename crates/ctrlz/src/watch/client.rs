//! The client's side: the watcher's state and its changes, from its directory in the store.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock::now_millis;
use crate::error::Error;
use crate::fs::private::{self, Durable};
use crate::path::PathText;
use crate::store::{Lock, Sharing};

use super::protocol::{Request, Response, call};
use super::{Cursor, Refusal, WatcherStatus};

/// Time in milliseconds before a refused work tree is tried again.
const REFUSAL_MILLIS: u64 = 10 * 60 * 1000;
/// Time for a process that holds the lock without watching: one that only checks whether the lock
/// is held, or a watcher that was asked to end or killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Interval between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// The record of a watcher that could not watch the work tree.
#[derive(Debug, Serialize, Deserialize)]
struct Refused {
    why: Refusal,
    at_millis: u64,
}

/// Returns the state of the watcher with this directory.
pub(crate) fn status(dir: &Path) -> Result<WatcherStatus, Error> {
    if let Some(Response::Status { process, dirs }) = call(dir, &Request::Status) {
        return Ok(WatcherStatus::Watching { process, dirs });
    }
    if is_locked(dir)? {
        return Ok(WatcherStatus::Silent);
    }
    Ok(match load_refusal(dir) {
        Some(refused) => WatcherStatus::Refused { why: refused.why },
        None => WatcherStatus::None,
    })
}

/// Returns the present cursor, and the paths that may have changed since `since`, which are `None`
/// if they are not known. Returns `None` without a watcher for the directories of `scope`.
pub(crate) fn changes_since(
    dir: &Path,
    scope: &str,
    since: Option<Cursor>,
) -> Option<(Cursor, Option<Vec<Vec<u8>>>)> {
    match call(dir, &Request::Since { entered: scope.to_owned(), token: since })? {
        Response::Changes { now, dirty } => {
            let bytes = |paths: Vec<PathText>| {
                paths.into_iter().map(PathText::into_bytes).collect::<Vec<_>>()
            };
            Some((now, dirty.map(bytes)))
        }
        Response::Elsewhere | Response::Status { .. } | Response::Stopping => None,
    }
}

/// Asks the watcher to end. Returns `false` if none responds.
pub(crate) fn stop(dir: &Path) -> bool {
    call(dir, &Request::Stop) == Some(Response::Stopping)
}

/// Returns whether a watcher refused the work tree recently.
pub(crate) fn gave_up_recently(dir: &Path) -> bool {
    let refused = load_refusal(dir);
    refused.is_some_and(|refused| now_millis().abs_diff(refused.at_millis) < REFUSAL_MILLIS)
}

/// Returns whether a process holds the watcher's lock.
pub(crate) fn is_locked(dir: &Path) -> Result<bool, Error> {
    Ok(dir.is_dir() && Lock::try_take(&lock_path(dir), Sharing::Shared)?.is_none())
}

/// Takes the watcher's lock. Returns `None` if another watcher has it.
pub(super) fn take_lock(dir: &Path) -> Result<Option<Lock>, Error> {
    let start = Instant::now();
    loop {
        match Lock::take(&lock_path(dir), Sharing::Exclusive, LOCK_PAUSE) {
            Err(Error::Busy { .. }) => (),
            taken => return taken.map(Some),
        }
        if call(dir, &Request::Status).is_some() || start.elapsed() > LOCK_PATIENCE {
            return Ok(None);
        }
    }
}

pub(super) fn lock_path(dir: &Path) -> PathBuf {
    dir.join("lock")
}

fn refusal_path(dir: &Path) -> PathBuf {
    dir.join("refused")
}

fn load_refusal(dir: &Path) -> Option<Refused> {
    private::load_json(&refusal_path(dir), 4096).ok()?
}

/// Records that the work tree cannot be watched, or removes the record.
pub(super) fn record_refusal(dir: &Path, why: Option<Refusal>) -> Result<(), Error> {
    let path = refusal_path(dir);
    match why {
        Some(why) => {
            let record = Refused { why, at_millis: now_millis() };
            private::save_json(&path, &record, Durable::No)?;
        }
        // Errors are ignored: usually there is no record.
        None => drop(std::fs::remove_file(&path)),
    }
    Ok(())
}
