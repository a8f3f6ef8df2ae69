//! `ctrlz copy-borrowed`: copies blobs that the first snapshot borrowed from the user's repository.
//!
//! Started by `track` and others. It can be killed at any time: every later command resumes it.

use std::time::Duration;

use super::Done;
use crate::detached;
use crate::failure::Failure;
use crate::place::Place;

/// Limits of what is copied before the command exits. The rest is copied by a detached process.
const AT_ONCE_BLOBS: u64 = 100;
const AT_ONCE_BYTES: u64 = 32 << 20;
/// Maximum size of one pack of copied blobs. Every later snapshot opens all packs, so they should
/// be few. A kill loses at most this much work.
const SLICE_BYTES: u64 = 512 << 20;
/// Pause between packs, long enough for a waiting command to take the lock.
const PAUSE: Duration = Duration::from_millis(200);

/// Copy blobs that snapshots still borrow from the user's repository
#[derive(clap::Args, Debug)]
pub(crate) struct CopyBorrowedArgs {}

pub(crate) fn run(place: &Place, args: &CopyBorrowedArgs) -> Result<Done, Failure> {
    let CopyBorrowedArgs {} = args;
    let mut left = u64::MAX;
    loop {
        let now = place.workspace().copy_borrowed(SLICE_BYTES)?;
        // Stops if the number does not decrease because new blobs are borrowed. The next command
        // resumes.
        if now == 0 || now >= left {
            return Ok(Done::Complete);
        }
        left = now;
        std::thread::sleep(PAUSE);
    }
}

/// Copies a limited number of bytes now, and leaves the rest to a detached process.
///
/// Errors are ignored: the snapshot is already recorded. The next command copies the rest, and
/// `status` shows it until then.
pub(crate) fn begin(place: &Place) {
    if place.workspace().copy_borrowed(AT_ONCE_BYTES).is_ok_and(|left| left > 0) {
        detached::start(place, &["copy-borrowed"]).ok();
    }
}

/// Like [`begin`], but leaves everything to the detached process if there are too many blobs.
pub(crate) fn begin_aside(place: &Place, borrowed: u64) {
    if borrowed > AT_ONCE_BLOBS {
        drop(detached::start(place, &["copy-borrowed"]));
    } else {
        begin(place);
    }
}
