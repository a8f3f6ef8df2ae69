//! Compares `ctrlz` with other tools and the floor in one run.
//!
//! Each sample is a new process of this program that does one piece of work and prints its cost
//! ([`job`]). Contenders take turns, so that load from other processes affects them alike. The
//! result is the ratio of medians.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that reports to whoever started it"
)]

mod facts;
mod hooks;
mod job;
mod measure;
mod peers;
mod plot;
mod process;
mod report;
mod scenarios;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Result of a function whose error is shown to the user.
pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Compare ctrlz with git, OpenCode's git calls and the floor
#[derive(Parser, Debug)]
#[command(name = "ctrlz-bench")]
struct Args {
    /// Sizes of the generated work trees
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    files: Vec<usize>,
    /// Use small trees and few rounds, to check in under two minutes that everything runs
    #[arg(long)]
    quick: bool,
    /// Add a tree of a million files, without plain git and with fewer rounds
    #[arg(long)]
    million: bool,
    /// Use a session of 10,000 steps instead of 1,000
    #[arg(long)]
    long_session: bool,
    /// Measure only the session, and write SESSIONS.md
    #[arg(long)]
    session: bool,
    /// Measure only the latency of hooks, and write HOOKS.md
    #[arg(long)]
    hooks: bool,
    /// Number of turns per client with --hooks
    #[arg(long, value_name = "N", default_value_t = 100)]
    turns: usize,
    /// Include Jujutsu, if `jj` is installed
    #[arg(long)]
    jj: bool,
    /// Directory for RESULTS.md and growth.svg; without it the page is only printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory for the generated trees
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,
    /// Take one sample, described in JSON; used by the program itself
    #[arg(long, hide = true)]
    job: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.job {
        Some(job) => job::run_and_print(job),
        None => run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ctrlz-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Fallible<()> {
    let mut files = if args.quick { vec![300, 1_000] } else { args.files.clone() };
    if args.million {
        files.push(1_000_000);
    }
    let plan = scenarios::Plan {
        files,
        quick: args.quick,
        steps: match (args.quick, args.long_session) {
            (true, _) => 30,
            (false, false) => 1_000,
            (false, true) => 10_000,
        },
        jj: args.jj,
        temp: args.temp.clone(),
        ctrlz: process::build_ctrlz()?,
    };
    let machine = facts::Machine::look(&plan)?;
    if args.session {
        let page = report::session_page(&machine, &scenarios::run_session(&plan)?);
        if let Some(dir) = &args.out {
            std::fs::write(dir.join("SESSIONS.md"), &page)?;
        }
        println!("{page}");
        return Ok(());
    }
    if args.hooks {
        return run_hooks(args, &plan, &machine);
    }
    let mut page = String::new();
    scenarios::run(&plan, |results| {
        page = report::markdown(&machine, results);
        if let Some(dir) = &args.out {
            std::fs::write(dir.join("RESULTS.md"), &page)?;
            std::fs::write(dir.join("growth.svg"), plot::growth(results))?;
        }
        Ok(())
    })?;
    println!("{page}");
    Ok(())
}

fn run_hooks(args: &Args, plan: &scenarios::Plan, machine: &facts::Machine) -> Fallible<()> {
    let (files, rounds) =
        if args.quick { (vec![300], 5) } else { (vec![10_000, 100_000], args.turns) };
    let hooks = hooks::Plan { ctrlz: &plan.ctrlz, files, rounds, temp: plan.temp.as_deref() };
    let page = hooks::run(&hooks, machine)?;
    if let Some(dir) = &args.out {
        std::fs::write(dir.join("HOOKS.md"), &page)?;
    }
    println!("{page}");
    Ok(())
}
