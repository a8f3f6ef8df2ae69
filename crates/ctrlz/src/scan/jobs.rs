//! A pool for work that makes more work, such as walking directories.

use std::sync::{Condvar, Mutex, PoisonError};

struct Queue<J> {
    waiting: Vec<J>,
    running: usize,
}

/// Runs `work` on every job, including those that `work` adds, and gathers the results.
///
/// With one thread everything happens on the caller's, in a fixed order.
pub(crate) fn run_jobs<J: Send, R: Send>(
    threads: usize,
    first: Vec<J>,
    work: impl Fn(J, &mut Vec<J>) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 {
        return drain(first, &work);
    }
    let queue = Mutex::new(Queue { waiting: first, running: 0 });
    let wake = Condvar::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| worker(&queue, &wake, &work))).collect();
        workers
            .into_iter()
            .flat_map(|worker| match worker.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

fn drain<J, R>(mut waiting: Vec<J>, work: &impl Fn(J, &mut Vec<J>) -> R) -> Vec<R> {
    let mut results = Vec::new();
    while let Some(job) = waiting.pop() {
        results.push(work(job, &mut waiting));
    }
    results
}

fn worker<J, R>(
    queue: &Mutex<Queue<J>>,
    wake: &Condvar,
    work: &impl Fn(J, &mut Vec<J>) -> R,
) -> Vec<R> {
    let mut results = Vec::new();
    let mut made = Vec::new();
    let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = state.waiting.pop() {
            state.running += 1;
            drop(state);
            let done = Running { queue, wake };
            results.push(work(job, &mut made));
            state = queue.lock().unwrap_or_else(PoisonError::into_inner);
            let more = made.len();
            state.waiting.append(&mut made);
            drop(state);
            drop(done);
            for _ in 1..more {
                wake.notify_one();
            }
            state = queue.lock().unwrap_or_else(PoisonError::into_inner);
        } else if state.running == 0 {
            return results;
        } else {
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Counts a job as over even if it panicked, so that the other workers do not wait for ever.
struct Running<'a, J> {
    queue: &'a Mutex<Queue<J>>,
    wake: &'a Condvar,
}

impl<J> Drop for Running<'_, J> {
    fn drop(&mut self) {
        let mut state = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        state.running -= 1;
        if state.running == 0 {
            self.wake.notify_all();
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
