//! Work on several threads, and a pool for work that makes more work, such as walking directories.

use std::collections::BTreeMap;
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

/// Runs `work` on each job and hands the results to `take` on this thread, in the order of the jobs.
///
/// The others work on while this thread takes, and it works itself while the next result is not
/// there. Of what is begun and not taken, no more than `max_weight` is held, by what `weigh` says of
/// a job; one job is begun whatever it weighs.
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

/// Jobs in a row, and the results that nobody has taken.
struct Row<I: Iterator, R> {
    jobs: I,
    /// The next job, and its weight: to find that out may cost something.
    next: Option<(u64, I::Item)>,
    begun: usize,
    taken: usize,
    weight: u64,
    done: BTreeMap<usize, (u64, R)>,
    /// Nothing more is wanted, or a worker panicked.
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

    /// Works until nothing is left to begin.
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

    /// The next result; `None` if there is none, or nothing more is wanted.
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

    /// Takes a job if there is one and it is not too much.
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

/// Tells everybody that it is over: who takes has enough, or somebody panics.
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

    /// Whatever a job weighs, and however long it takes.
    #[test]
    fn results_come_in_order_and_little_is_held() {
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
            // Six, and the one that is being taken.
            assert!(most.into_inner() <= 7, "{threads} threads");
        }
    }

    #[test]
    fn who_has_enough_is_not_kept_waiting() {
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
    fn a_panic_is_not_taken_for_the_end() {
        for threads in [1, 4] {
            let work = |job: usize| assert_ne!(job, 50, "as it should be");
            let take = |()| Ok::<(), ()>(());
            let done = || in_order(threads, 0..300, 60, |_| 10, work, take);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(done));
            assert!(ended.is_err(), "{threads} threads");
        }
    }
}
