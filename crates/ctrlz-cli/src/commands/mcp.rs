//! `ctrlz mcp`: serves tools for a model over standard input and output.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::Done;
use super::rpc::Configured;
use crate::args::GlobalArgs;
use crate::config::Environment;
use crate::failure::Failure;

/// Serve tools with which a model can list, show, undo and redo changes
///
/// Speaks the Model Context Protocol on standard input and output. Clients start it, for instance
/// with `claude mcp add ctrlz -- ctrlz mcp`. It acts only in the project in which it is started.
/// Hooks record what an agent does: see `ctrlz install`.
#[derive(clap::Args, Debug)]
pub(crate) struct McpArgs {}

/// Serves until standard input ends.
pub(crate) fn serve(
    args: &McpArgs,
    global: &GlobalArgs,
    environment: Environment,
) -> Result<Done, Failure> {
    let McpArgs {} = args;
    let host = Arc::new(Configured { args: global.clone(), environment, own_snapshots: true });
    // A separate handle: the usual one is locked by `Output`.
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(Failure::Output)?;
    let served = ctrlz_agents::mcp::serve(File::from(output), host);
    served.map_err(|why| Failure::Agent { why: why.to_string() })?;
    Ok(Done::Complete)
}
