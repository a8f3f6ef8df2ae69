//! Serves ctrlz over HTTP: every method of [`ctrlz_api`] at its own address, server-sent events,
//! the three addresses that agents already use, and the web page.
//!
//! Programs of the same user connect through a socket in a private directory. Browsers connect over
//! TCP on the loopback interface, with a token. One layer around all routes refuses every other
//! request, and engine calls run on a bounded number of threads. docs/http.md describes the
//! interface, `schema/openapi.json` describes it for programs.
//!
//! This crate prints nothing, reads no environment variables and starts no process.

#![forbid(unsafe_code)]

mod call;
mod entry;
mod events;
mod files;
mod guard;
mod idempotency;
mod limits;
mod listen;
mod lobby;
mod openapi;
mod own;
mod page;
mod query;
mod refusal;
mod roots;
mod routes;
mod secret;
mod session;
mod state;
mod stream;
mod strict;
mod work;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ctrlz_api::{Host, WireError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

use entry::Entry;
use files::Files;
use listen::Serving;
use roots::Roots;
use state::Shared;
use work::Work;

pub use files::connect;
pub use openapi::{openapi, openapi_text, routes_table};
pub use routes::{Route, routes};
pub use secret::Secret;

/// Reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A work tree cannot be served.
    #[error("{}", .0.message)]
    Root(WireError),
    /// Another server uses the directory.
    #[error("a server runs already; its socket is in {}", dir.display())]
    AlreadyServed {
        /// The directory.
        dir: PathBuf,
    },
    /// The address can be reached from other machines.
    #[error("{address} is not a loopback address")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// A file or the socket cannot be used.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// The operation that failed.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The server cannot listen at the address.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The system provides no threads or no random bytes.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// Work trees to serve, and addresses to listen at.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The work trees, or directories in them.
    pub dirs: Vec<PathBuf>,
    /// Directory for the socket, the token and the page's address.
    pub files: PathBuf,
    /// Loopback address for browsers. Default: none, only the socket.
    pub tcp: Option<SocketAddr>,
}

/// A server that is bound, and answers requests once it runs.
pub struct Server {
    runtime: Runtime,
    state: Arc<Shared>,
    files: Files,
    local: UnixListener,
    tcp: Option<TcpListener>,
    stop: watch::Sender<bool>,
}

/// Handle that stops a server from another thread, such as one that handles signals.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Lets running calls finish, and [`Server::run`] return.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Binds the socket and the port.
    pub fn bind(options: &ServerOptions, host: Arc<dyn Host>) -> Result<Server, ServeError> {
        if let Some(address) = options.tcp.filter(|address| !address.ip().is_loopback()) {
            return Err(ServeError::NotLoopback { address });
        }
        let roots = Roots::new(host, &options.dirs).map_err(ServeError::Root)?;
        let files = Files::take(&options.files)?;
        raise_file_limit();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(limits::READING + limits::WRITING + limits::STREAMING + 8)
            .enable_all()
            .build()
            .map_err(ServeError::Start)?;
        let state = Arc::new(Shared {
            entry: Entry::new().map_err(ServeError::Start)?,
            roots,
            work: Work::new(),
            events: Arc::default(),
            remembered: idempotency::Remembered::default(),
            queries: query::Queries::new(),
            answered: Default::default(),
            url: OnceLock::new(),
        });
        let entered = runtime.enter();
        let local = UnixListener::from_std(files.listen()?).map_err(ServeError::Start)?;
        let tcp = options.tcp.map(listen_tcp).transpose()?;
        if let Some(tcp) = &tcp {
            let address = tcp.local_addr().map_err(ServeError::Start)?;
            let url = state.url.get_or_init(|| format!("http://{address}/"));
            files.tell(state.entry.token().reveal(), url)?;
        }
        drop(entered);
        let (stop, _) = watch::channel(false);
        Ok(Server { runtime, state, files, local, tcp, stop })
    }

    /// Returns the page's address, or `None` if the server has only the socket.
    pub fn url(&self) -> Option<&str> {
        self.state.url.get().map(String::as_str)
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.files.socket()
    }

    /// Returns the path of the token file, if the server listens on a port.
    pub fn token_file(&self) -> Option<PathBuf> {
        self.tcp.as_ref().map(|_| self.files.token())
    }

    /// Returns a new code that signs in one page.
    pub fn new_code(&self) -> io::Result<Secret> {
        self.state.entry.new_code()
    }

    /// Returns a handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Answers requests until the server is stopped. Then calls that write are finished, and the
    /// socket, the token and the address are removed.
    pub fn run(self) {
        /// Time limit for calls that write once the server is stopped. The next command finishes an
        /// interrupted call.
        const GRACE: Duration = Duration::from_secs(10);
        let Server { runtime, state, files, local, tcp, stop } = self;
        let serving =
            Serving { app: routes::app(&state), state: Arc::clone(&state), stop: stop.subscribe() };
        runtime.block_on(async {
            let over_tcp = tcp.map(|tcp| tokio::spawn(listen::accept_tcp(tcp, serving.clone())));
            listen::accept_local(local, serving).await;
            if let Some(task) = over_tcp {
                drop(task.await);
            }
            drop(timeout(GRACE, state.work.drain()).await);
            // Gives the last responses time to be sent.
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        drop(files);
        runtime.shutdown_timeout(Duration::from_millis(200));
    }
}

fn listen_tcp(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let listen = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    listen().map_err(|source| ServeError::Listen { address, source })
}

/// Raises the limit on open files, so that idle connections do not keep the engine from opening
/// files.
fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Best effort: with a lower limit, fewer connections are accepted.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// Returns the directory for the server's files, given the data directory.
pub fn files_in(data_dir: &Path) -> PathBuf {
    data_dir.join("serve")
}
