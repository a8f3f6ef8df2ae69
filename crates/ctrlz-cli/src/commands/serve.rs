//! `ctrlz serve`: serves all methods over HTTP, for programs and the web UI.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ctrlz_server::{Server, ServerOptions, files_in, openapi_text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Done;
use super::rpc::Configured;
use crate::args::GlobalArgs;
use crate::config::{self, Environment};
use crate::failure::Failure;
use crate::render::{self, Output};

/// Serve HTTP requests of programs on this machine
///
/// Programs of the same user connect to a socket in a private directory and need nothing else. With
/// --port, browsers and other programs can connect over loopback TCP with the token that is stored
/// beside the socket. Only the given work trees are served. docs/http.md lists the endpoints,
/// --openapi prints the types. Ctrl-C ends the server.
///
/// Example: curl --unix-socket ~/.local/share/ctrlz/serve/socket http://localhost/v1/projects
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Serve only these work trees [default: the current one]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also listen on this port of 127.0.0.1; 0 selects a free one
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Also listen on this address, which must be a loopback address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "port")]
    listen: Option<SocketAddr>,
    /// Print the OpenAPI document, and exit
    #[arg(long)]
    pub(crate) openapi: bool,
}

/// Prints the OpenAPI document.
pub(crate) fn print_openapi(out: &mut Output) -> Result<Done, Failure> {
    io::Write::write_all(out, openapi_text().as_bytes())?;
    Ok(Done::Complete)
}

pub(crate) fn run(
    args: &ServeArgs,
    global: &GlobalArgs,
    environment: Environment,
) -> Result<Done, Failure> {
    let signals = catch_signals()?;
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = bind(&args.dirs, args.listen.or(args.port.map(loopback)), global, environment)?;
    render::note(&format!("ctrlz: socket {}", server.socket().display()));
    if let (Some(url), Some(token)) = (server.url(), server.token_file()) {
        render::note(&format!("ctrlz: {url} with the token in {}", token.display()));
    }
    answer(server, signals)
}

/// Binds a server for the work trees at `named`, or for the current one if none is named.
pub(super) fn bind(
    named: &[PathBuf],
    tcp: Option<SocketAddr>,
    global: &GlobalArgs,
    environment: Environment,
) -> Result<Server, Failure> {
    let dirs = config::acting_directories(global, named)?;
    // The first one determines the data directory, because the current directory may not be a
    // project.
    let first = GlobalArgs { directory: dirs.first().cloned(), ..global.clone() };
    let settings = config::decide(&first, &environment)?;
    check_work_trees(named, &dirs, global, &environment)?;
    let options = ServerOptions { dirs, files: files_in(&settings.options.data_dir), tcp };
    let host = Arc::new(Configured { args: global.clone(), environment, own_snapshots: false });
    Ok(Server::bind(&options, host)?)
}

/// Refuses named directories that are inside of a work tree: more than the directory would be served.
fn check_work_trees(
    named: &[PathBuf],
    dirs: &[PathBuf],
    global: &GlobalArgs,
    environment: &Environment,
) -> Result<(), Failure> {
    for dir in dirs.iter().filter(|_| !named.is_empty()) {
        let args = GlobalArgs { directory: Some(dir.clone()), ..global.clone() };
        if config::decide(&args, environment)?.root != *dir {
            let why = "is inside a work tree; name the work tree itself to serve all of it";
            return Err(Failure::path(dir.as_os_str().as_encoded_bytes(), why));
        }
    }
    Ok(())
}

/// Starts to catch termination signals, so that early ones are not lost.
pub(super) fn catch_signals() -> Result<Signals, Failure> {
    Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::Signals)
}

/// Serves until a termination signal arrives.
pub(super) fn answer(server: Server, mut signals: Signals) -> Result<Done, Failure> {
    let stopper = server.stopper();
    let wait = move || signals.forever().for_each(|_| stopper.stop());
    std::thread::Builder::new().spawn(wait).map_err(Failure::Signals)?;
    server.run();
    Ok(Done::Complete)
}
