//! Call queue. Calls that record or write in one directory run one at a time, in order of arrival;
//! all other calls run concurrently.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ctrlz::{Progress, Workspace};
use ctrlz_api::{Access, Method, Params, WireError};
use serde_json::Value;

use super::message::Id;
use super::reply::Reply;

/// Upper bound on the number of waiting calls.
pub(super) const MAX_WAITING: usize = 1024;
/// Upper bound on the total size of the parameters of waiting calls.
const MAX_WAITING_BYTES: usize = 128 << 20;

/// A call that a client requested.
pub(super) struct Call {
    /// `None` for a notification.
    pub(super) id: Option<Id>,
    /// The method and its parameters, or the error to answer with.
    pub(super) asked: Result<(&'static Method, Params), WireError>,
    /// Size of the parameters.
    pub(super) bytes: usize,
    /// Directory as spelled in the request. Two spellings of one directory are two lanes, which the
    /// engine's own lock serializes.
    pub(super) lane: String,
    pub(super) access: Access,
    pub(super) wants_progress: bool,
    pub(super) progress: Arc<Progress>,
    pub(super) reply: Reply,
}

/// Work for a worker thread.
pub(super) enum Work {
    Call(Box<Call>),
    /// Copies borrowed blobs in the background. `left` is the number of blobs that were still
    /// borrowed last time.
    CopyBorrowed {
        workspace: Box<Workspace>,
        lane: String,
        left: u64,
    },
}

impl Work {
    /// Returns the lane that the work needs exclusively, if any.
    fn lane(&self) -> Option<&str> {
        match self {
            Work::Call(call) if call.access == Access::Reads => None,
            Work::Call(call) => Some(&call.lane),
            Work::CopyBorrowed { lane, .. } => Some(lane),
        }
    }

    /// Returns whether this is the call with the given id.
    fn is_call(&self, id: &Value) -> bool {
        let own = match self {
            Work::Call(call) => call.id.as_ref(),
            Work::CopyBorrowed { .. } => None,
        };
        own.is_some_and(|own| own.value == *id)
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Call(call) => call.bytes,
            Work::CopyBorrowed { .. } => 0,
        }
    }
}

/// Reason why a call is rejected.
pub(super) enum Full {
    Overloaded,
    IdInUse,
    /// The server is shutting down.
    Closed,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    waiting_bytes: usize,
    busy: HashSet<String>,
    running: Vec<(Value, Arc<Progress>)>,
    closed: bool,
}

/// Waiting and running work.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a call. A call that is rejected is returned with the reason.
    pub(super) fn push(&self, call: Box<Call>) -> Result<(), (Box<Call>, Full)> {
        let mut state = self.lock();
        if state.closed {
            return Err((call, Full::Closed));
        }
        if let Some(id) = call.id.as_ref().filter(|id| !id.value.is_null()) {
            let in_use = state.running.iter().any(|(running, _)| *running == id.value)
                || state.waiting.iter().any(|work| work.is_call(&id.value));
            if in_use {
                return Err((call, Full::IdInUse));
            }
        }
        let bytes = state.waiting_bytes.saturating_add(call.bytes);
        let full = state.waiting.len() >= MAX_WAITING || bytes > MAX_WAITING_BYTES;
        if full && !state.waiting.is_empty() {
            return Err((call, Full::Overloaded));
        }
        state.waiting_bytes = bytes;
        state.waiting.push_back(Work::Call(call));
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Enqueues background work. It is dropped if the server is shutting down or if the same work
    /// is already waiting.
    pub(super) fn push_quietly(&self, work: Work) {
        let mut state = self.lock();
        let same = |other: &Work| {
            matches!(other, Work::CopyBorrowed { .. }) && other.lane() == work.lane()
        };
        if !state.closed && !state.waiting.iter().any(same) {
            state.waiting.push_back(work);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Returns the next work that may run, blocking until there is some. Returns `None` once the
    /// queue is closed and empty.
    pub(super) fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            let free = |work: &Work| work.lane().is_none_or(|lane| !state.busy.contains(lane));
            if let Some(at) = state.waiting.iter().position(free) {
                let work = state.waiting.remove(at)?;
                state.waiting_bytes -= work.bytes();
                state.busy.extend(work.lane().map(str::to_owned));
                if let Work::Call(call) = &work {
                    let id = call.id.as_ref().map_or(Value::Null, |id| id.value.clone());
                    state.running.push((id, Arc::clone(&call.progress)));
                }
                return Some(work);
            }
            if state.closed && state.waiting.is_empty() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks work as finished, given its lane and progress.
    pub(super) fn done(&self, lane: Option<&str>, progress: Option<&Arc<Progress>>) {
        let mut state = self.lock();
        if let Some(lane) = lane {
            state.busy.remove(lane);
        }
        if let Some(progress) = progress {
            state.running.retain(|(_, running)| !Arc::ptr_eq(running, progress));
        }
        drop(state);
        // Wakes workers that wait for this lane, and at shutdown all of them.
        self.changed.notify_all();
    }

    /// Cancels the call with this id. A running call is flagged as cancelled. A waiting call is
    /// removed and returned, for the caller to answer.
    pub(super) fn cancel(&self, id: &Value) -> Option<Call> {
        let mut state = self.lock();
        for (running, progress) in &state.running {
            if running == id && !id.is_null() {
                progress.cancelled.store(true, Ordering::Relaxed);
            }
        }
        let at = state.waiting.iter().position(|work| work.is_call(id) && !id.is_null())?;
        let work = state.waiting.remove(at)?;
        state.waiting_bytes -= work.bytes();
        match work {
            Work::Call(call) => Some(*call),
            Work::CopyBorrowed { .. } => None,
        }
    }

    /// Accepts no more work and drops background work. Waiting calls are still run.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.retain(|work| matches!(work, Work::Call(_)));
        drop(state);
        self.changed.notify_all();
    }

    /// Accepts no more work and cancels everything. Returns the waiting calls, for the caller to
    /// answer.
    pub(super) fn abandon(&self) -> Vec<Call> {
        let mut state = self.lock();
        state.closed = true;
        state.waiting_bytes = 0;
        for (_, progress) in &state.running {
            progress.cancelled.store(true, Ordering::Relaxed);
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        let call = |work| match work {
            Work::Call(call) => Some(*call),
            Work::CopyBorrowed { .. } => None,
        };
        waiting.into_iter().filter_map(call).collect()
    }
}
