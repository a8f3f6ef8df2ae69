//! `ctrlz man`: prints the manual pages.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use super::Done;
use crate::args::Cli;
use crate::failure::Failure;
use crate::render::Output;

/// Print the manual page, or write the pages of all commands
#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// Write one page per command into DIR, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: &mut Output) -> Result<Done, Failure> {
    match &args.dir {
        Some(dir) => clap_mangen::generate_to(Cli::command(), dir)
            .map_err(|error| Failure::file("write manual pages to", dir, error))?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            out.write_all(&page)?;
        }
    }
    Ok(Done::Complete)
}
