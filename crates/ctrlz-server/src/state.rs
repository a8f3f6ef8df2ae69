//! What all requests share, and what is known about a connection.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::entry::Entry;
use crate::events::Events;
use crate::idempotency::Remembered;
use crate::query::Queries;
use crate::roots::Roots;
use crate::work::Work;

/// Everything that outlives a request.
pub(crate) struct Shared {
    pub(crate) entry: Entry,
    pub(crate) roots: Roots,
    pub(crate) work: Work,
    pub(crate) events: Arc<Events>,
    pub(crate) remembered: Remembered,
    pub(crate) queries: Queries,
    pub(crate) answered: AtomicU64,
    /// The address of the page, once the server listens on a port.
    pub(crate) url: OnceLock<String>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of the same user, as the kernel says.
    Socket,
    /// Any process of this machine.
    Tcp {
        /// The address it connected to.
        here: SocketAddr,
    },
    /// Nobody that was told to us.
    Nobody,
}

impl Peer {
    /// The names under which it may ask for this server.
    pub(crate) fn hosts(self) -> Vec<String> {
        match self {
            Peer::Socket => vec!["localhost".into()],
            Peer::Tcp { here } => vec![here.to_string(), format!("localhost:{}", here.port())],
            Peer::Nobody => Vec::new(),
        }
    }
}
