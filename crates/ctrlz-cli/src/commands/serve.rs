//! `ctrlz serve`: every method over HTTP, for programs and for the page.

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

/// Answer HTTP requests of programs on this machine
///
/// Programs of the same user connect to a socket in a private directory and need nothing else.
/// With --port, browsers and other programs may connect over loopback TCP with the token that lies
/// beside the socket. Only the work trees named here are served. docs/http.md has the addresses,
/// --openapi the types. Ctrl-C ends it.
///
/// Example: curl --unix-socket ~/.local/share/ctrlz/serve/socket http://localhost/v1/projects
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Work trees to serve, and no others [default: the current one]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also listen on this port of 127.0.0.1; 0 takes any
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Also listen at this address, which must be a loopback one
    #[arg(long, value_name = "ADDRESS", conflicts_with = "port")]
    listen: Option<SocketAddr>,
    /// Print the OpenAPI document, and end
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

/// A server for the work trees of `dirs`, or for the current one if there are none.
pub(super) fn bind(
    dirs: &[PathBuf],
    tcp: Option<SocketAddr>,
    global: &GlobalArgs,
    environment: Environment,
) -> Result<Server, Failure> {
    let dirs = config::acting_directories(global, dirs)?;
    // The first one decides about the data directory, since the current one may be no project.
    let first = GlobalArgs { directory: dirs.first().cloned(), ..global.clone() };
    let settings = config::decide(&first, &environment)?;
    let options = ServerOptions { dirs, files: files_in(&settings.options.data_dir), tcp };
    let host = Arc::new(Configured { args: global.clone(), environment });
    Ok(Server::bind(&options, host)?)
}

/// Signals that ask to end, from now on; what comes early is not lost.
pub(super) fn catch_signals() -> Result<Signals, Failure> {
    Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::Signals)
}

/// Answers until somebody wants it to end.
pub(super) fn answer(server: Server, mut signals: Signals) -> Result<Done, Failure> {
    let stopper = server.stopper();
    let wait = move || signals.forever().for_each(|_| stopper.stop());
    std::thread::Builder::new().spawn(wait).map_err(Failure::Signals)?;
    server.run();
    Ok(Done::Complete)
}
