//! Measuring the cost of work, once and repeatedly.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Fallible;

/// Cost of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) wall_micros: u64,
    /// User and system time of all processes.
    pub(crate) cpu_micros: u64,
    /// Peak memory of the largest process.
    pub(crate) peak_bytes: u64,
    /// Output of the work, such as a hash.
    pub(crate) output: String,
}

/// Processes that a measurement covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This process.
    Own,
    /// Programs that it starts.
    Children,
}

/// Runs `work` and returns its cost.
pub(crate) fn measure(whose: Whose, work: impl FnOnce() -> Fallible<String>) -> Fallible<Sample> {
    let before = usage(whose);
    let start = Instant::now();
    let output = work()?;
    let wall_micros = start.elapsed().as_micros() as u64;
    let after = usage(whose);
    Ok(Sample {
        wall_micros,
        cpu_micros: after.cpu_micros - before.cpu_micros,
        peak_bytes: after.peak_bytes,
        output,
    })
}

struct Usage {
    cpu_micros: u64,
    peak_bytes: u64,
}

#[expect(unsafe_code, reason = "no safe crate of ours offers getrusage; it only fills the struct")]
fn usage(whose: Whose) -> Usage {
    let who = match whose {
        Whose::Own => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    let mut found = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer refers to a complete `rusage`, which is valid when zeroed.
    let found = unsafe {
        libc::getrusage(who, found.as_mut_ptr());
        found.assume_init()
    };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    // `ru_maxrss` includes the memory of the process before it executed this program.
    let peak_bytes = match whose {
        Whose::Own => high_water_bytes(),
        Whose::Children => found.ru_maxrss as u64 * 1024,
    };
    Usage { cpu_micros: micros(found.ru_utime) + micros(found.ru_stime), peak_bytes }
}

/// Returns the peak memory of this program.
fn high_water_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Costs of repeated runs of the same work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<Sample>);

/// Minimum, median and maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Series {
    pub(crate) fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the wall time in milliseconds.
    pub(crate) fn wall(&self) -> Spread {
        self.spread(|sample| sample.wall_micros as f64 / 1000.0)
    }

    /// Returns the CPU time in milliseconds.
    pub(crate) fn cpu(&self) -> Spread {
        self.spread(|sample| sample.cpu_micros as f64 / 1000.0)
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.0.iter().map(|sample| sample.peak_bytes).max().unwrap_or(0)
    }

    fn spread(&self, value: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.0.iter().map(value).collect())
    }
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => at(middle),
            _ => (at(middle.wrapping_sub(1)) + at(middle)) / 2.0,
        };
        Spread { min: at(0), median, max: at(values.len().wrapping_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 2.5);
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
