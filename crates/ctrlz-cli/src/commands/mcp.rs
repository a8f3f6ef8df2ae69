//! `ctrlz mcp`: tools for a model, over standard input and output.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::Done;
use super::rpc::Configured;
use crate::args::GlobalArgs;
use crate::config::Environment;
use crate::failure::Failure;

/// Give a model tools to list, show, undo and redo what was done
///
/// Speaks the Model Context Protocol on standard input and output; clients start it, for instance
/// with `claude mcp add ctrlz -- ctrlz mcp`. It acts in the project it is started in and nowhere
/// else. Recording what an agent does is the hooks' work: see `ctrlz install`.
#[derive(clap::Args, Debug)]
pub(crate) struct McpArgs {}

/// Serves until standard input ends.
pub(crate) fn serve(
    args: &McpArgs,
    global: &GlobalArgs,
    environment: Environment,
) -> Result<Done, Failure> {
    let McpArgs {} = args;
    let host = Arc::new(Configured { args: global.clone(), environment });
    // A handle of its own: the usual one is locked by whoever runs commands.
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(Failure::Output)?;
    let served = ctrlz_agents::mcp::serve(File::from(output), host);
    served.map_err(|why| Failure::Agent { why: why.to_string() })?;
    Ok(Done::Complete)
}
