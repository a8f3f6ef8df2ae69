//! `ctrlz completions`: prints a completion script for a shell.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Done;
use crate::args::Cli;
use crate::failure::Failure;
use crate::render::Output;

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Done, Failure> {
    // Buffered in memory, because the generator panics on EPIPE.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ctrlz", &mut script);
    out.write_all(&script)?;
    Ok(Done::Complete)
}
