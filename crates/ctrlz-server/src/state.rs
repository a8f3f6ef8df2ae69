//! State that all requests share, and the peer of a connection.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::entry::Entry;
use crate::events::Events;
use crate::idempotency::Remembered;
use crate::query::Queries;
use crate::roots::Roots;
use crate::work::Work;

/// State that outlives a request.
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

/// Other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of the same user, as verified by the kernel.
    Socket,
    /// Any process on this machine.
    Tcp {
        /// Local address of the connection.
        here: SocketAddr,
    },
    /// Unknown, because the connection recorded no peer.
    Nobody,
}

impl Peer {
    /// Returns the hosts under which the peer may address this server.
    pub(crate) fn hosts(self) -> Vec<String> {
        match self {
            Peer::Socket => vec!["localhost".into()],
            Peer::Tcp { here } => vec![here.to_string(), format!("localhost:{}", here.port())],
            Peer::Nobody => Vec::new(),
        }
    }
}
