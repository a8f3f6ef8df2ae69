//! Thread pools: parallel jobs, and jobs that create more jobs (such as walking directories).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs that any worker may take, and the numbers of running and idle workers.
struct Shared<J> {
    waiting: Vec<J>,
    workers: usize,
    idle: usize,
    /// Set when a worker panics, so that the others stop.
    broken: bool,
}

struct Pool<J> {
    shared: Mutex<Shared<J>>,
    wake: Condvar,
    /// Number of workers waiting for a job, readable without the lock. While it is zero, workers do
    /// not share their jobs.
    hungry: AtomicUsize,
    threads: usize,
}

/// Runs `work` on this thread and on others, `threads` in all. Uses fewer if the system cannot
/// start more, because a failure here must not abort a restore midway.
pub(crate) fn on_threads<R: Send>(threads: usize, work: impl Fn() -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut results = vec![work()];
        for other in others {
            match other.join() {
                Ok(result) => results.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}

/// Runs `work` on every job, including those that `work` adds, and returns the results.
///
/// Each worker keeps the jobs it creates and shares them only when another worker is idle. With one
/// thread everything runs on the caller's thread in a fixed order.
pub(crate) fn run_jobs<J: Send, R: Send>(
    threads: usize,
    first: Vec<J>,
    work: impl Fn(J, &mut Vec<J>) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 {
        return drain(first, &work);
    }
    let pool = Pool {
        shared: Mutex::new(Shared { waiting: first, workers: 0, idle: 0, broken: false }),
        wake: Condvar::new(),
        hungry: AtomicUsize::new(0),
        threads,
    };
    on_threads(threads, || pool.work(&work)).into_iter().flatten().collect()
}

fn drain<J, R>(mut waiting: Vec<J>, work: &impl Fn(J, &mut Vec<J>) -> R) -> Vec<R> {
    let mut results = Vec::new();
    while let Some(job) = waiting.pop() {
        results.push(work(job, &mut waiting));
    }
    results
}

impl<J> Pool<J> {
    fn lock(&self) -> MutexGuard<'_, Shared<J>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work<R>(&self, work: &impl Fn(J, &mut Vec<J>) -> R) -> Vec<R> {
        let _alarm = Alarm(self);
        // Counts only workers that have started. One that starts after all others became idle finds
        // no jobs left.
        self.lock().workers += 1;
        let mut results = Vec::new();
        let mut mine = Vec::new();
        while self.refill(&mut mine) {
            while let Some(job) = mine.pop() {
                results.push(work(job, &mut mine));
                if mine.len() > 1 && self.hungry.load(Ordering::Relaxed) > 0 {
                    self.share(&mut mine);
                }
            }
        }
        results
    }

    /// Shares the older half of the jobs, which tend to create more jobs.
    fn share(&self, mine: &mut Vec<J>) {
        let half = mine.len().div_ceil(2);
        self.lock().waiting.extend(mine.drain(..half));
        self.wake.notify_all();
    }

    /// Takes a share of the waiting jobs, or blocks until there are some. Returns `false` once all
    /// jobs are done or a worker panicked.
    fn refill(&self, mine: &mut Vec<J>) -> bool {
        let mut shared = self.lock();
        loop {
            if shared.broken {
                return false;
            }
            if !shared.waiting.is_empty() {
                let share = shared.waiting.len().div_ceil(self.threads);
                let from = shared.waiting.len() - share;
                mine.extend(shared.waiting.drain(from..));
                return true;
            }
            shared.idle += 1;
            if shared.idle == shared.workers {
                self.wake.notify_all();
                return false;
            }
            self.hungry.fetch_add(1, Ordering::Relaxed);
            shared = self.wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
            self.hungry.fetch_sub(1, Ordering::Relaxed);
            if shared.idle == shared.workers {
                return false;
            }
            shared.idle -= 1;
        }
    }
}

/// Wakes the other workers when one panics, so that they do not wait for it.
struct Alarm<'a, J>(&'a Pool<J>);

impl<J> Drop for Alarm<'_, J> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().broken = true;
            self.0.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_added_by_other_jobs_all_run() {
        for threads in [1, 4] {
            let results = run_jobs(threads, vec![12_u64], |n, more| {
                if n > 0 {
                    more.extend([n - 1, n - 1]);
                }
                1_u64
            });
            assert_eq!(results.len(), (1 << 13) - 1, "{threads} threads");
        }
    }
}
