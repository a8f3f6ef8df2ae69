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
        let outcome = task.await.map_err(defect).flatten();
        self.keep_or_forget(&key, &cell, &outcome);
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

    fn keep_or_forget(&self, key: &str, cell: &Arc<OnceCell<Outcome>>, outcome: &Outcome) {
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

    /// Removes the oldest entries beyond the limits. A running request is kept, because it must not
    /// run twice if it is sent again.
    fn forget_old(&mut self) {
        let is_old = |entry: &Entry| entry.made.elapsed() > limits::REMEMBERED_TIME;
        let may_go = |entry: &Entry| entry.outcome.initialized() || is_old(entry);
        while let Some((key, entry)) = self.order.iter().find_map(|key| {
            self.by_key.get(key).filter(|entry| may_go(entry)).map(|entry| (key, entry))
        }) {
            let goes = self.by_key.len() > limits::REMEMBERED
                || self.bytes > limits::REMEMBERED_BYTES
                || is_old(entry);
            if !goes {
                return;
            }
            let key = key.clone();
            self.forget(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_panicked_can_be_sent_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let remembered = Remembered::default();
            let broken = async { panic!("on purpose") };
            assert!(remembered.once("key".into(), "body", broken).await.is_err());
            assert!(remembered.entries().by_key.is_empty());
            let call = async { Ok("done".to_owned()) };
            let answer = remembered.once("key".into(), "another body", call).await.map_err(drop);
            assert_eq!(answer, Ok("done".to_owned()));
        });
    }

    #[test]
    fn a_running_request_is_never_forgotten() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let remembered = Arc::new(Remembered::default());
            let runs = Arc::new(Mutex::new(0));
            let (finish, finished) = tokio::sync::oneshot::channel::<()>();
            let finished = Arc::new(tokio::sync::Mutex::new(finished));
            let slow = || {
                let (remembered, runs) = (Arc::clone(&remembered), Arc::clone(&runs));
                let finished = Arc::clone(&finished);
                tokio::spawn(async move {
                    let call = async move {
                        *runs.lock().unwrap() += 1;
                        (&mut *finished.lock().await).await.ok();
                        Ok("done".to_owned())
                    };
                    remembered.once("slow".into(), "body", call).await.map_err(drop)
                })
            };
            let first = slow();
            tokio::task::yield_now().await;
            for number in 0..2 * limits::REMEMBERED {
                let quick = async { Ok(String::new()) };
                remembered.once(number.to_string(), "", quick).await.map_err(drop).unwrap();
            }
            let again = slow();
            tokio::task::yield_now().await;
            finish.send(()).unwrap();
            let answers = [first.await.unwrap(), again.await.unwrap()];
            assert_eq!(answers, [Ok("done".to_owned()), Ok("done".to_owned())]);
            assert_eq!(*runs.lock().unwrap(), 1);
            assert!(remembered.entries().by_key.len() <= limits::REMEMBERED);
        });
    }
}
