//! TCP connections that have not authenticated yet: limited in number and time.
//!
//! Any user of the machine can connect. A connection has to authenticate with its first request.
//! Until then it occupies one of a few slots, and a new connection evicts the oldest of them
//! instead of waiting. Authenticated connections have separate slots, which unauthenticated ones
//! cannot take.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// Unauthenticated connections, and the slots of authenticated ones.
pub(crate) struct Lobby {
    waiting: Mutex<VecDeque<Arc<Admission>>>,
    places: Arc<Semaphore>,
}

/// Authentication state of one connection.
pub(crate) struct Admission {
    state: Mutex<State>,
    /// Notified when the connection has to close.
    evicted: Notify,
    lobby: Option<Arc<Lobby>>,
}

enum State {
    Waiting,
    /// The connection has authenticated. Connections of the private socket hold no slot.
    Admitted {
        _place: Option<OwnedSemaphorePermit>,
    },
}

impl Lobby {
    /// Creates a lobby with slots for `places` authenticated connections.
    pub(crate) fn new(places: usize) -> Arc<Lobby> {
        let places = Arc::new(Semaphore::new(places));
        Arc::new(Lobby { waiting: Mutex::default(), places })
    }

    /// Registers a new connection, and evicts the oldest unauthenticated one if there are too many.
    pub(crate) fn enter(self: &Arc<Lobby>) -> Arc<Admission> {
        let lobby = Some(Arc::clone(self));
        let state = Mutex::new(State::Waiting);
        let admission = Arc::new(Admission { state, evicted: Notify::new(), lobby });
        let mut waiting = self.waiting();
        if waiting.len() >= limits::UNKNOWN {
            waiting.pop_front().into_iter().for_each(|oldest| oldest.evicted.notify_one());
        }
        waiting.push_back(Arc::clone(&admission));
        admission
    }

    fn leave(&self, admission: &Admission) {
        self.waiting().retain(|waiting| !std::ptr::eq(Arc::as_ptr(waiting), admission));
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<Admission>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// Returns the admission of a connection whose peer the kernel has verified.
    pub(crate) fn granted() -> Arc<Admission> {
        let state = Mutex::new(State::Admitted { _place: None });
        Arc::new(Admission { state, evicted: Notify::new(), lobby: None })
    }

    pub(crate) fn is_granted(&self) -> bool {
        matches!(*self.state(), State::Admitted { .. })
    }

    /// Admits the connection. Returns `false` if all slots are taken.
    pub(crate) fn grant(&self) -> bool {
        let (mut state, Some(lobby)) = (self.state(), &self.lobby) else { return true };
        if matches!(*state, State::Admitted { .. }) {
            return true;
        }
        let Ok(place) = Arc::clone(&lobby.places).try_acquire_owned() else { return false };
        *state = State::Admitted { _place: Some(place) };
        drop(state);
        lobby.leave(self);
        true
    }

    /// Waits until the connection has to close: it was evicted, or has not authenticated in time.
    pub(crate) async fn refused(&self) {
        if !self.is_granted() {
            tokio::select! {
                () = self.evicted.notified() => return,
                () = tokio::time::sleep(limits::UNKNOWN_TIME) => (),
            }
            if !self.is_granted() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Unregisters a connection that is closed.
    pub(crate) fn end(&self) {
        if let Some(lobby) = &self.lobby {
            lobby.leave(self);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_closes_only_the_oldest_waiting_one() {
        let lobby = Lobby::new(2);
        let first = lobby.enter();
        let known = lobby.enter();
        assert!(known.grant() && known.is_granted());
        for _ in 1..limits::UNKNOWN {
            lobby.enter();
        }
        assert_eq!(lobby.waiting().len(), limits::UNKNOWN);
        lobby.enter();
        assert_eq!(lobby.waiting().len(), limits::UNKNOWN);
        assert!(!lobby.waiting().iter().any(|waiting| Arc::ptr_eq(waiting, &first)));
        assert!(known.is_granted());
    }

    #[test]
    fn connection_slots_are_limited_and_released_on_drop() {
        let lobby = Lobby::new(1);
        let (one, two) = (lobby.enter(), lobby.enter());
        assert!(one.grant() && one.grant());
        assert!(!two.grant(), "the only place is taken");
        drop(one);
        assert!(two.grant());
    }
}
