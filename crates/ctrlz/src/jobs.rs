//! Work on several threads, and a pool for work that makes more work, such as walking directories.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs that any worker may take, and how many workers there are and have none.
struct Shared<J> {
    waiting: Vec<J>,
    workers: usize,
    idle: usize,
    /// A worker panicked, so the others need not go on.
    broken: bool,
}

struct Pool<J> {
    shared: Mutex<Shared<J>>,
    wake: Condvar,
    /// Workers without a job, readable without the lock: as long as it is zero, nobody shares.
    hungry: AtomicUsize,
    threads: usize,
}

/// Runs `work` on this thread and beside it on others, `threads` in all; fewer where the system has
/// no more to give, which must not end a restore midway.
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

/// Runs `work` on every job, including those that `work` adds, and gathers the results.
///
/// Each worker keeps what it makes and shares only when another one has nothing to do. With one
/// thread everything happens on the caller's, in a fixed order.
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
        // As soon as all who have begun are idle, nothing is left for one who begins later.
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

    /// Gives the older half away: those tend to lead to more work.
    fn share(&self, mine: &mut Vec<J>) {
        let half = mine.len().div_ceil(2);
        self.lock().waiting.extend(mine.drain(..half));
        self.wake.notify_all();
    }

    /// Takes a part of what is waiting, or waits for it; `false` when everything is done.
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

/// Tells the others when a worker panics, so that they do not wait for it.
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
    fn jobs_that_make_jobs_all_run() {
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
