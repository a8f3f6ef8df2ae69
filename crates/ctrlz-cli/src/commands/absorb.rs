//! `ctrlz absorb`: copies what the first snapshot borrowed from the user's repository.
//!
//! `track` starts it. It is cut off without harm: every later command finishes it.

use std::time::Duration;

use super::Done;
use crate::detached;
use crate::failure::Failure;
use crate::place::Place;

/// What is copied before the command ends; more than this is left to a process of its own.
const AT_ONCE_BLOBS: u64 = 100;
const AT_ONCE_BYTES: u64 = 32 << 20;
/// What is copied in one go, into one pack: all of them are opened by every later snapshot, so they
/// should be few. A kill loses no more than this.
const SLICE_BYTES: u64 = 512 << 20;
/// Long enough for a command that waits for the lock to get it.
const PAUSE: Duration = Duration::from_millis(200);

/// Copy what snapshots still borrow from the user's repository
#[derive(clap::Args, Debug)]
pub(crate) struct AbsorbArgs {}

pub(crate) fn run(place: &Place, args: &AbsorbArgs) -> Result<Done, Failure> {
    let AbsorbArgs {} = args;
    let mut left = u64::MAX;
    loop {
        let now = place.workspace.absorb(SLICE_BYTES)?;
        // Fewer every time, unless new loans come in as fast; then the next command goes on.
        if now == 0 || now >= left {
            return Ok(Done::Complete);
        }
        left = now;
        std::thread::sleep(PAUSE);
    }
}

/// Copies a little now, and leaves the rest to a detached process.
///
/// The snapshot is already recorded, so nothing here is worth a failure: what is not copied now
/// is copied by the next command, and `status` shows it until then.
pub(crate) fn begin(place: &Place) {
    if place.workspace.absorb(AT_ONCE_BYTES).is_ok_and(|left| left > 0) {
        detached::start(place, &["absorb"]).ok();
    }
}

/// The same, but `borrowed` blobs that are too many to wait for are all left to the process.
pub(crate) fn begin_aside(place: &Place, borrowed: u64) {
    match borrowed > AT_ONCE_BLOBS {
        true => drop(detached::start(place, &["absorb"])),
        false => begin(place),
    }
}
