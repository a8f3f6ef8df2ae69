//! Idempotency keys: a request that is sent twice runs once.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ctrlz_api::WireError;
use tokio::sync::OnceCell;

use crate::limits;
use crate::refusal::Refusal;

type Outcome = Result<String, WireError>;

/// One request, finished or running.
struct Entry {
    body: String,
    made: Instant,
    outcome: Arc<OnceCell<Outcome>>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<String, Entry>,
    /// Keys, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// Responses by the key of their request.
#[derive(Default)]
pub(crate) struct Remembered {
    entries: Mutex<Entries>,
}

impl Remembered {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call`, or returns the response to the same request again. Waits for a request that is
    /// still running. Only successes are remembered, so that a failed request can be retried.
    pub(crate) async fn once(
        self: &Remembered,
        key: String,
        body: &str,
        call: impl Future<Output = Result<String, Refusal>> + Send + 'static,
    ) -> Result<String, Refusal> {
        let cell = self.cell(&key, body)?;
        // Runs in a task of its own, so that it continues if the first client disconnects.
        let task = {
            let cell = Arc::clone(&cell);
            let call = async move { call.await.map_err(|refusal| refusal.0) };
            tokio::spawn(async move { cell.get_or_init(|| call).await.clone() })
        };
        let defect = |_| WireError::new("internal_error", "the call failed in a way it should not");
        let outcome = task.await.map_err(defect)?;
        self.settle(&key, &cell, &outcome);
        Ok(outcome?)
    }

    fn cell(&self, key: &str, body: &str) -> Result<Arc<OnceCell<Outcome>>, Refusal> {
        let mut entries = self.entries();
        entries.forget_old();
        if let Some(entry) = entries.by_key.get(key) {
            return if entry.body == body {
                Ok(Arc::clone(&entry.outcome))
            } else {
                let why = "this key was used for a request with another body";
                Err(Refusal::new("key_reused", why))
            };
        }
        let outcome: Arc<OnceCell<Outcome>> = Arc::default();
        let entry =
            Entry { body: body.to_owned(), made: Instant::now(), outcome: Arc::clone(&outcome) };
        entries.bytes += entry.bytes();
        entries.by_key.insert(key.to_owned(), entry);
        entries.order.push_back(key.to_owned());
        Ok(outcome)
    }

    fn settle(&self, key: &str, cell: &Arc<OnceCell<Outcome>>, outcome: &Outcome) {
        let mut entries = self.entries();
        let is_this = |entry: &Entry| Arc::ptr_eq(&entry.outcome, cell);
        if !entries.by_key.get(key).is_some_and(is_this) {
            return;
        }
        match outcome {
            Ok(_) => entries.recount(),
            Err(_) => entries.forget(key),
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        let answer = self.outcome.get().and_then(|outcome| outcome.as_ref().ok());
        self.body.len() + answer.map_or(0, String::len)
    }
}

impl Entries {
    fn recount(&mut self) {
        self.bytes = self.by_key.values().map(Entry::bytes).sum();
        self.forget_old();
    }

    fn forget(&mut self, key: &str) {
        if let Some(entry) = self.by_key.remove(key) {
            self.bytes = self.bytes.saturating_sub(entry.bytes());
            self.order.retain(|known| known != key);
        }
    }

    fn forget_old(&mut self) {
        while let Some(key) = self.order.front().cloned() {
            let is_old = |entry: &Entry| entry.made.elapsed() > limits::REMEMBERED_TIME;
            let goes = self.by_key.len() > limits::REMEMBERED
                || self.bytes > limits::REMEMBERED_BYTES
                || self.by_key.get(&key).is_none_or(is_old);
            if !goes {
                return;
            }
            self.forget(&key);
        }
    }
}
