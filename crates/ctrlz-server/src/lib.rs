//! ctrlz over HTTP: every method of [`ctrlz_wire`] at an address of its own, server-sent events, the
//! three addresses that agents know already, and the page.
//!
//! Programs of the same user come through a socket in a private directory. Browsers come over TCP on
//! the loopback interface, with a token. One layer around everything refuses whatever comes from
//! elsewhere, and the engine's calls run on a bounded number of threads. docs/http.md describes all
//! of it, `schema/openapi.json` for programs.
//!
//! Nothing here prints, reads the environment or starts a process.

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

use ctrlz_wire::{Host, WireError};
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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A work tree cannot be served.
    #[error("{}", .0.message)]
    Root(WireError),
    /// Another server has the directory.
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
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// No threads or no random bytes.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The work trees, or directories in them.
    pub dirs: Vec<PathBuf>,
    /// Where the socket, the token and the page's address lie.
    pub files: PathBuf,
    /// A loopback address for browsers. Default: none, only the socket.
    pub tcp: Option<SocketAddr>,
}

/// A server that is ready, and answers once it runs.
pub struct Server {
    runtime: Runtime,
    state: Arc<Shared>,
    files: Files,
    local: UnixListener,
    tcp: Option<TcpListener>,
    stop: watch::Sender<bool>,
}

/// Ends a server from another thread, as a signal does.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Lets what runs come to its end, and [`Server::run`] return.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Takes the socket and the port.
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

    /// The page's address; `None` if there is only the socket.
    pub fn url(&self) -> Option<&str> {
        self.state.url.get().map(String::as_str)
    }

    /// Where the socket is.
    pub fn socket(&self) -> PathBuf {
        self.files.socket()
    }

    /// Where the token is, if there is a port.
    pub fn token_file(&self) -> Option<PathBuf> {
        self.tcp.as_ref().map(|_| self.files.token())
    }

    /// A code that signs one page in.
    pub fn new_code(&self) -> io::Result<Secret> {
        self.state.entry.new_code()
    }

    /// A way to end it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Answers until it is stopped. What writes then is finished first, and the socket, the token
    /// and the address are taken away.
    pub fn run(self) {
        /// How long what writes may take once the server was told to end. What is cut off then is
        /// finished by the next command.
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
            // Time for the last answers to leave.
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

/// A thousand idle connections must not keep the engine from opening files.
fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it may not be raised, there are fewer connections.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// Where a server with this data directory has its files.
pub fn files_in(data_dir: &Path) -> PathBuf {
    data_dir.join("serve")
}
