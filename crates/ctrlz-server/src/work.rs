//! Runs engine calls on a bounded number of threads, because the engine blocks on disks and locks.
//! Calls that only read never wait for calls that write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ctrlz::Progress;
use ctrlz_api::{Access, WireError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::limits;
use crate::refusal::Refusal;

/// Slots for running calls.
pub(crate) struct Work {
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    streaming: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Cancels a call whose client has disconnected.
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

    /// Runs `call` on a thread of its own.
    ///
    /// Calls that read or record are cancelled when they take too long or their client disconnects.
    /// Calls that write always finish, so that no undo is applied in part.
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
            // Held until the work is done, even if the client has disconnected.
            let _place = place;
            call(&progress)
        });
        // A panic in one call must not end the others.
        let defect = |_| Refusal::new("internal_error", "the call failed in a way it should not");
        Ok(work.await.map_err(defect)??)
    }

    /// Returns a slot for a streamed response.
    pub(crate) async fn stream(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.place(&self.streaming).await
    }

    /// Waits until no call records or writes.
    pub(crate) async fn drain(&self) {
        let all = u32::try_from(limits::WRITING).unwrap_or(u32::MAX);
        // Fails only if the semaphore is closed, which never happens.
        drop(self.writing.acquire_many(all).await);
    }
}
