//! The engine waits for disks and locks, so its calls run on threads of their own: a bounded number,
//! and those that only read never behind those that write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ctrlz::Progress;
use ctrlz_wire::{Access, WireError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::limits;
use crate::refusal::Refusal;

/// Places to work at.
pub(crate) struct Work {
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    streaming: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Stops a call whose client is gone.
struct CancelOnDrop(Arc<Progress>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Work {
    pub(crate) fn new() -> Work {
        Work {
            reading: Arc::new(Semaphore::new(limits::READING)),
            writing: Arc::new(Semaphore::new(limits::WRITING)),
            streaming: Arc::new(Semaphore::new(limits::STREAMING)),
            waiting: AtomicUsize::new(0),
        }
    }

    async fn place(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if waiting >= limits::WAITING {
            return Err(Refusal::new("overloaded", "too many calls are waiting"));
        }
        let closed = |_| Refusal::new("overloaded", "the server ends");
        Arc::clone(places).acquire_owned().await.map_err(closed)
    }

    /// Does `call` on a thread of its own.
    ///
    /// What reads or records is stopped when it takes too long or its client is gone. What writes
    /// is always finished: half an undo is what nobody asked for.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        access: Access,
        call: impl FnOnce(&Progress) -> Result<T, WireError> + Send + 'static,
    ) -> Result<T, Refusal> {
        match access {
            Access::Writes => self.begin(&self.writing, &Arc::default(), call).await,
            Access::Reads => self.stoppable(&self.reading, call).await,
            Access::Records => self.stoppable(&self.writing, call).await,
        }
    }

    async fn stoppable<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        call: impl FnOnce(&Progress) -> Result<T, WireError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let progress: Arc<Progress> = Arc::default();
        let _cancel = CancelOnDrop(Arc::clone(&progress));
        let late = |_| Refusal::new("timed_out", "the call took too long and was stopped");
        timeout(limits::CALL_TIME, self.begin(places, &progress, call)).await.map_err(late)?
    }

    async fn begin<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        progress: &Arc<Progress>,
        call: impl FnOnce(&Progress) -> Result<T, WireError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.place(places).await?;
        let progress = Arc::clone(progress);
        let work = spawn_blocking(move || {
            // Held until the work is over, also if nobody waits for it any more.
            let _place = place;
            call(&progress)
        });
        // A defect must not take the other calls down with it.
        let defect = |_| Refusal::new("internal_error", "the call failed in a way it should not");
        Ok(work.await.map_err(defect)??)
    }

    /// A place for an answer that is given piece by piece.
    pub(crate) async fn stream(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.place(&self.streaming).await
    }

    /// Waits until nothing records or writes any more.
    pub(crate) async fn drain(&self) {
        let all = u32::try_from(limits::WRITING).unwrap_or(u32::MAX);
        // It fails only if there are no places at all.
        drop(self.writing.acquire_many(all).await);
    }
}
