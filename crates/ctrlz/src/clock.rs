//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970, or 0 if the clock is set to an earlier time.
pub fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
