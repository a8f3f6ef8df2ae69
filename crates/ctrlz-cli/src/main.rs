//! The `ctrlz` command: parses the arguments, resolves the settings, calls one method of the
//! interface and prints the result.
//!
//! Data goes to standard output and everything else to standard error. EPIPE is not an error; every
//! other outcome has a documented exit code.

mod args;
mod commands;
mod config;
mod config_file;
mod detached;
mod failure;
mod git;
mod git_config;
mod hints;
mod interrupts;
mod machine;
mod place;
mod progress;
mod reftable;
mod render;
mod small_file;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use commands::Done;
use config::Environment;
use failure::Failure;
use place::Place;
use render::Output;

fn main() -> ExitCode {
    #[cfg(debug_assertions)]
    break_on_purpose();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and suggestions need the full description of all commands, which parsing defers.
        Err(message) => {
            return show_usage(&Cli::described().try_get_matches().err().unwrap_or(message));
        }
    };
    render::remember_program(&cli.global);
    let mut out = Output::new(cli.global.json);
    let outcome = run(&cli, &mut out).and_then(|done| out.finish().map(|()| done));
    match outcome {
        Ok(done) => ExitCode::from(done.exit_code()),
        // EPIPE: the reader has exited.
        Err(_) if out.is_closed() => ExitCode::SUCCESS,
        Err(failure) => {
            render::failure(&mut out, &failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: &Cli, out: &mut Output) -> Result<Done, Failure> {
    if cli.command.is_detached() {
        detached::leave();
    }
    let environment = Environment::read();
    let place = || -> Result<Place, Failure> {
        let place = Place::find(config::decide(&cli.global, &environment)?)?;
        if !cli.command.is_detached() {
            commands::adopt::begin(&place);
        }
        Ok(place)
    };
    match &cli.command {
        Command::Undo(args) => commands::undo::run(&place()?, args, out),
        Command::Redo(args) => commands::redo::run(&place()?, args, out),
        Command::Apply(args) => commands::apply::run(&place()?, args, out),
        Command::Log(args) => commands::log::run(&place()?, args, &environment, out),
        Command::Sessions(args) => commands::sessions::run(&place()?, args, out),
        Command::Blame(args) => commands::blame::run(&place()?, args, environment.palette(), out),
        Command::Recover(args) => commands::recover::run(&place()?, args, out),
        Command::Checkpoint(args) => commands::checkpoint::run(&place()?, args, out),
        Command::Fork(args) => commands::fork::run(&place()?, args, out),
        // These two can run the command even if no snapshot can be taken.
        Command::Run(args) => commands::run::run(place(), args),
        Command::Guard(args) => commands::guard::run(place(), args),
        Command::Demo(args) => commands::demo::run(args, out),
        Command::Track(args) => commands::track::run(&place()?, args, out),
        Command::Patch(args) => commands::patch::run(&place()?, args, out),
        Command::Diff(args) => commands::diff::run(&place()?, args, out),
        Command::Show(args) => commands::show::run(&place()?, args, out),
        Command::Ls(args) => commands::ls::run(&place()?, args, out),
        Command::Restore(args) => commands::restore::run(&place()?, args, out),
        Command::Revert(args) => commands::revert::run(&place()?, args, out),
        Command::Unrevert(args) => commands::unrevert::run(&place()?, args, out),
        Command::Status(args) => commands::status::run(&place()?, args, &environment, out),
        Command::Doctor(args) => commands::doctor::run(&place()?, args, &environment, out),
        Command::Watch(args) => commands::watch::run(&place()?, args, out),
        Command::Relink(args) => {
            commands::relink::run(config::decide(&cli.global, &environment)?, args, out)
        }
        Command::Export(args) => commands::export::run(&place()?, args, out),
        Command::Import(args) => commands::import::run(&place()?, args, out),
        Command::Adopt(args) => commands::adopt::run(&place()?, args, out),
        Command::Push(args) => commands::push::run(&place()?, args, out),
        Command::Pull(args) => commands::pull::run(&place()?, args, out),
        Command::Du(args) => commands::du::run(&place()?, args, out),
        Command::Gc(args) => commands::gc::run(&place()?, args, out),
        Command::Verify(args) => commands::verify::run(&place()?, args, out),
        Command::Purge(args) => commands::purge::run(&place()?, args, out),
        Command::CopyBorrowed(args) => commands::copy_borrowed::run(&place()?, args),
        Command::Rpc(args) if args.schema => commands::rpc::print_schema(out),
        Command::Rpc(_) => commands::rpc::serve(&cli.global, environment),
        Command::Mcp(args) => commands::mcp::serve(args, &cli.global, environment),
        Command::Install(args) => commands::install::install(args, &cli.global, &environment, out),
        Command::Uninstall(args) => {
            commands::install::uninstall(args, &cli.global, &environment, out)
        }
        Command::Hook(args) => Ok(commands::hook::run(args, &cli.global, environment)),
        Command::Serve(args) if args.openapi => commands::serve::print_openapi(out),
        Command::Serve(args) => commands::serve::run(args, &cli.global, environment),
        Command::Ui(args) => commands::ui::run(args, &cli.global, environment),
        // These two describe the command itself and need no work tree.
        Command::Completions(args) => commands::completions::run(args, out),
        Command::Man(args) => commands::man::run(args, out),
    }
}

/// Breaks the invariant whose number is in the environment, to check that the tests detect it, and
/// sets the size of pack writes. Not part of release builds.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "this is the mistake")]
fn break_on_purpose() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let defect = number("CTRLZ_DEFECT").and_then(|number| u8::try_from(number).ok());
    if defect == Some(6) {
        drop(std::process::Command::new("true").status());
    }
    ctrlz::break_invariant(defect.unwrap_or_default());
    ctrlz::write_small_packs(number("CTRLZ_BUFFER_BYTES").unwrap_or_default());
}

/// Prints clap's message: help and version on standard output, wrong usage on standard error.
fn show_usage(message: &clap::Error) -> ExitCode {
    // Ignored: there is no other channel to report the error on.
    message.print().ok();
    if message.use_stderr() && !is_hook() {
        return ExitCode::from(failure::WRONG_USAGE);
    }
    ExitCode::SUCCESS
}

/// Returns whether a client runs this process as a hook. Clients interpret the exit code for wrong
/// usage as a request to stop the agent.
fn is_hook() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let is_option = |word: &std::ffi::OsString| word.as_encoded_bytes().starts_with(b"-");
    let at = words.iter().position(|word| word == "hook");
    // Only options and their values come before the command.
    let is_before = |at: usize| is_option(&words[at]) || (at > 0 && is_option(&words[at - 1]));
    at.is_some_and(|at| (0..at).all(is_before))
}
