//! `ctrlz rpc`: serves all methods over standard input and output.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;

use ctrlz::{ObjectId, Workspace};
use ctrlz_agents::rpc::{Server, Stopper};
use ctrlz_api::{Host, Opened, Place, WireError, schema_text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Done, gc};
use crate::args::GlobalArgs;
use crate::config::{self, Environment};
use crate::failure::Failure;
use crate::render::Output;

/// Serve JSON-RPC 2.0 requests on standard input, one message per line
///
/// For programs that keep ctrlz running: all methods, with the same JSON as --json. Exits at the
/// end of standard input. Options given here are the defaults of all requests. docs/rpc.md has
/// examples, --schema prints the types.
#[derive(clap::Args, Debug)]
pub(crate) struct RpcArgs {
    /// Print the JSON Schema of all methods and types, and exit
    #[arg(long)]
    pub(crate) schema: bool,
}

/// Opens work trees according to the user's configuration, which is reread for every call.
pub(super) struct Configured {
    pub(super) args: GlobalArgs,
    pub(super) environment: Environment,
    /// Whether snapshots of other work trees that share the store are hidden.
    pub(super) own_snapshots: bool,
}

impl Host for Configured {
    fn open(&self, place: &Place) -> Result<Opened, WireError> {
        let settings = config::decide_for(place, &self.args, &self.environment)
            .map_err(|failure| WireError::from(&failure))?;
        Ok(settings.open()?)
    }

    fn rest(&self, workspace: &Workspace) {
        let Some(mut gc) = gc::start_if_due(workspace, self.args.config.as_deref()) else { return };
        // This process outlives the child and has to reap it.
        drop(std::thread::Builder::new().spawn(move || drop(gc.wait())));
    }

    fn check_snapshot(&self, workspace: &Workspace, hash: &ObjectId) -> Result<(), WireError> {
        if self.own_snapshots { Ok(workspace.check_own_snapshot(hash)?) } else { Ok(()) }
    }

    fn owner(&self) -> Option<u32> {
        Some(std::process::id())
    }
}

/// Prints the schema.
pub(crate) fn print_schema(out: &mut Output) -> Result<Done, Failure> {
    io::Write::write_all(out, schema_text().as_bytes())?;
    Ok(Done::Complete)
}

/// Serves until standard input ends. Only messages are written to standard output.
pub(crate) fn serve(args: &GlobalArgs, environment: Environment) -> Result<Done, Failure> {
    let host = Arc::new(Configured { args: args.clone(), environment, own_snapshots: false });
    // A separate handle: the usual one is buffered, and locked by `Output`.
    let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(Failure::Output)?;
    let server = Server::new(File::from(stdout), host);
    stop_on_signals(server.stopper())?;
    server.run(io::stdin()).map_err(Failure::Output)?;
    Ok(Done::Complete)
}

/// Stops the server cleanly on termination signals.
///
/// Ctrl-C in an agent's terminal also reaches this process, but is meant for the agent, which
/// closes our input when it exits. It stops the server only if requests are typed on a terminal.
fn stop_on_signals(stopper: Stopper) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::Signals)?;
    let by_hand = io::stdin().is_terminal();
    let wait = move || {
        for signal in signals.forever() {
            if signal != SIGINT || by_hand {
                stopper.stop();
            }
        }
    };
    std::thread::Builder::new().spawn(wait).map_err(Failure::Signals)?;
    Ok(())
}
