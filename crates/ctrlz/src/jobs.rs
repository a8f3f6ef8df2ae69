//! Thread pools: parallel jobs, jobs that create more jobs (such as walking directories), and jobs
//! with results in order.

use std::collections::BTreeMap;
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

/// Runs `work` on each job and passes the results to `take` on this thread, in the order of the
/// jobs.
///
/// Other threads keep working while this one is in `take`, and this thread works too while the next
/// result is not ready. The total weight of jobs begun and not yet taken is at most `max_weight`,
/// except that a single job may exceed it.
pub(crate) fn in_order<J: Send, R: Send, E>(
    threads: usize,
    jobs: impl Iterator<Item = J> + Send,
    max_weight: u64,
    weigh: impl Fn(&J) -> u64 + Sync,
    work: impl Fn(J) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let (next, done) = (None, BTreeMap::new());
    let row = Row { jobs, next, begun: 0, taken: 0, weight: 0, done, over: false };
    let line = &Line { row: Mutex::new(row), wake: Condvar::new(), max_weight, weigh, work };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, || line.help()).ok();
        let _others: Vec<_> = (1..threads).map_while(spawn).collect();
        let _over = Over { line, only_in_panic: false };
        while let Some(result) = line.next() {
            take(result)?;
        }
        Ok(())
    })
}

/// Jobs in order, and the results not yet taken.
struct Row<I: Iterator, R> {
    jobs: I,
    /// Next job with its weight, which is cached because weighing may be expensive.
    next: Option<(u64, I::Item)>,
    begun: usize,
    taken: usize,
    weight: u64,
    done: BTreeMap<usize, (u64, R)>,
    /// Set when the consumer stopped or a worker panicked.
    over: bool,
}

struct Line<I: Iterator, R, Weigh, Work> {
    row: Mutex<Row<I, R>>,
    wake: Condvar,
    max_weight: u64,
    weigh: Weigh,
    work: Work,
}

impl<I, R, Weigh, Work> Line<I, R, Weigh, Work>
where
    I: Iterator,
    Weigh: Fn(&I::Item) -> u64,
    Work: Fn(I::Item) -> R,
{
    fn lock(&self) -> MutexGuard<'_, Row<I, R>> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, row: MutexGuard<'a, Row<I, R>>) -> MutexGuard<'a, Row<I, R>> {
        self.wake.wait(row).unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs jobs until none is left to begin.
    fn help(&self) {
        let _over = Over { line: self, only_in_panic: true };
        let mut row = self.lock();
        while !row.over && self.weight_of_next(&mut row).is_some() {
            row = match self.begin(&mut row) {
                Some(begun) => {
                    drop(row);
                    self.finish(begun)
                }
                None => self.wait(row),
            };
        }
    }

    /// Returns the next result, running jobs while it is not ready. Returns `None` after the last
    /// one or once the line is over.
    fn next(&self) -> Option<R> {
        let mut row = self.lock();
        while !row.over {
            let taken = row.taken;
            if let Some((weight, result)) = row.done.remove(&taken) {
                row.taken += 1;
                row.weight -= weight;
                self.wake.notify_all();
                return Some(result);
            }
            row = match self.begin(&mut row) {
                Some(begun) => {
                    drop(row);
                    self.finish(begun)
                }
                None if row.begun == row.taken => return None,
                None => self.wait(row),
            };
        }
        None
    }

    /// Takes the next job if there is one and it fits into the weight limit.
    fn begin(&self, row: &mut Row<I, R>) -> Option<(usize, u64, I::Item)> {
        let after = row.weight.saturating_add(self.weight_of_next(row)?);
        if after > self.max_weight && row.begun > row.taken {
            return None;
        }
        let (weight, job) = row.next.take()?;
        row.weight += weight;
        row.begun += 1;
        Some((row.begun - 1, weight, job))
    }

    fn weight_of_next(&self, row: &mut Row<I, R>) -> Option<u64> {
        if row.next.is_none() {
            let heaviest = u64::MAX / 2;
            row.next = row.jobs.next().map(|job| ((self.weigh)(&job).min(heaviest), job));
        }
        row.next.as_ref().map(|(weight, _)| *weight)
    }

    fn finish(&self, (at, weight, job): (usize, u64, I::Item)) -> MutexGuard<'_, Row<I, R>> {
        let result = (self.work)(job);
        let mut row = self.lock();
        row.done.insert(at, (weight, result));
        self.wake.notify_all();
        row
    }
}

/// Signals shutdown: the consumer stopped, or a worker panicked.
struct Over<'a, I: Iterator, R, Weigh, Work> {
    line: &'a Line<I, R, Weigh, Work>,
    only_in_panic: bool,
}

impl<I: Iterator, R, Weigh, Work> Drop for Over<'_, I, R, Weigh, Work> {
    fn drop(&mut self) {
        if !self.only_in_panic || std::thread::panicking() {
            self.line.row.lock().unwrap_or_else(PoisonError::into_inner).over = true;
            self.line.wake.notify_all();
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

    /// Holds for any weight and duration of the jobs.
    #[test]
    fn results_arrive_in_order_with_a_bounded_backlog() {
        for threads in [1, 2, 5] {
            let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = |job: usize| {
                let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros((job * 37 % 11) as u64 * 50));
                job
            };
            let mut taken = Vec::new();
            let weigh = |job: &usize| if *job == 100 { 1_000 } else { 10 };
            let take = |job| {
                held.fetch_sub(1, Ordering::SeqCst);
                taken.push(job);
                Ok::<(), ()>(())
            };
            in_order(threads, 0..300, 60, weigh, work, take).unwrap();
            assert_eq!(taken, (0..300).collect::<Vec<_>>(), "{threads} threads");
            // Six waiting results, and the one that is being taken.
            assert!(most.into_inner() <= 7, "{threads} threads");
        }
    }

    #[test]
    fn an_error_of_the_consumer_stops_the_workers() {
        for threads in [1, 4] {
            let begun = AtomicUsize::new(0);
            let work = |job: usize| {
                begun.fetch_add(1, Ordering::SeqCst);
                job
            };
            let take = |job| if job == 20 { Err(job) } else { Ok(()) };
            assert_eq!(in_order(threads, 0.., 50, |_| 10, work, take), Err(20));
            assert!(begun.into_inner() < 100, "{threads} threads");
        }
    }

    #[test]
    fn a_panic_of_a_worker_is_propagated() {
        for threads in [1, 4] {
            let work = |job: usize| assert_ne!(job, 50, "expected panic");
            let take = |()| Ok::<(), ()>(());
            let done = || in_order(threads, 0..300, 60, |_| 10, work, take);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(done));
            assert!(ended.is_err(), "{threads} threads");
        }
    }
}
