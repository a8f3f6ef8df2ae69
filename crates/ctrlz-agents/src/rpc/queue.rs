//! Which call runs next: calls on one directory that record or write go one after the other, in the
//! order they came; everything else runs beside them.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ctrlz::{Progress, Workspace};
use ctrlz_wire::Access;
use serde_json::Value;

use super::message::Id;
use super::reply::Reply;

/// How many calls may wait.
pub(super) const MAX_WAITING: usize = 1024;
/// How many bytes of parameters may wait.
const MAX_WAITING_BYTES: usize = 128 << 20;

/// A call that was asked for.
pub(super) struct Call {
    /// `None` for a notification.
    pub(super) id: Option<Id>,
    pub(super) method: String,
    pub(super) params: String,
    /// The directory, as the request spells it. Two spellings of one directory are two lanes, and
    /// the engine's own lock keeps them apart.
    pub(super) lane: String,
    pub(super) access: Access,
    pub(super) wants_progress: bool,
    pub(super) progress: Arc<Progress>,
    pub(super) reply: Reply,
}

/// Something to do.
pub(super) enum Work {
    Call(Box<Call>),
    /// Copying what snapshots borrow, while nobody waits; `left` is how much was left last time.
    Absorb {
        workspace: Box<Workspace>,
        lane: String,
        left: u64,
    },
}

impl Work {
    /// The lane it needs for itself.
    fn lane(&self) -> Option<&str> {
        match self {
            Work::Call(call) if call.access == Access::Reads => None,
            Work::Call(call) => Some(&call.lane),
            Work::Absorb { lane, .. } => Some(lane),
        }
    }

    /// Whether it is the call with this id.
    fn is_call(&self, id: &Value) -> bool {
        let own = match self {
            Work::Call(call) => call.id.as_ref(),
            Work::Absorb { .. } => None,
        };
        own.is_some_and(|own| own.value == *id)
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Call(call) => call.params.len(),
            Work::Absorb { .. } => 0,
        }
    }
}

/// Why a call is not taken.
pub(super) enum Full {
    Overloaded,
    IdInUse,
    /// The server is about to end.
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

/// What waits, and what runs.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, unless there is no room for it; then it comes back.
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
        let bytes = state.waiting_bytes.saturating_add(call.params.len());
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

    /// Adds something that nobody waits for. Dropped when the server is about to end, or if the
    /// same is waiting already.
    pub(super) fn push_quietly(&self, work: Work) {
        let mut state = self.lock();
        let same =
            |other: &Work| matches!(other, Work::Absorb { .. }) && other.lane() == work.lane();
        if !state.closed && !state.waiting.iter().any(same) {
            state.waiting.push_back(work);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The next thing to do, once there is one; `None` when nothing will come any more.
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

    /// Says that something that was taken is done, given its lane and progress.
    pub(super) fn done(&self, lane: Option<&str>, progress: Option<&Arc<Progress>>) {
        let mut state = self.lock();
        if let Some(lane) = lane {
            state.busy.remove(lane);
        }
        if let Some(progress) = progress {
            state.running.retain(|(_, running)| !Arc::ptr_eq(running, progress));
        }
        drop(state);
        // Whoever waits for this lane, and at the end everybody.
        self.changed.notify_all();
    }

    /// Cancels the call with this id. One that runs is told to stop; one that waits comes back, to
    /// be answered.
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
            Work::Absorb { .. } => None,
        }
    }

    /// Takes nothing more, and finishes the calls that are there.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.retain(|work| matches!(work, Work::Call(_)));
        drop(state);
        self.changed.notify_all();
    }

    /// Takes nothing more and cancels everything; what waited comes back, to be answered.
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
            Work::Absorb { .. } => None,
        };
        waiting.into_iter().filter_map(call).collect()
    }
}
