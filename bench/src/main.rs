//! `ctrlz` beside its peers and the floor, in one run.
//!
//! Every sample is a fresh process of this program that does one piece of work and prints what it
//! cost ([`job`]). Contenders take turns, so that a noisy neighbour hits them all alike, and what
//! counts is the ratio of medians.

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

/// An error is for whoever reads the terminal.
pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Measures ctrlz beside git, OpenCode's git calls and the floor
#[derive(Parser, Debug)]
#[command(name = "ctrlz-bench")]
struct Args {
    /// Sizes of the generated work trees
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    files: Vec<usize>,
    /// Small trees and few rounds: shows that everything runs, in under two minutes
    #[arg(long)]
    quick: bool,
    /// Also a tree of a million files, without plain git and with fewer rounds
    #[arg(long)]
    million: bool,
    /// A session of 10,000 steps instead of 1,000
    #[arg(long)]
    long_session: bool,
    /// Only the session, into SESSIONS.md
    #[arg(long)]
    session: bool,
    /// Only what agents wait for, into HOOKS.md
    #[arg(long)]
    hooks: bool,
    /// How many turns each agent has, for --hooks
    #[arg(long, value_name = "N", default_value_t = 100)]
    turns: usize,
    /// Also Jujutsu, if `jj` is installed
    #[arg(long)]
    jj: bool,
    /// Where RESULTS.md and growth.svg go; without it they are only printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the trees are made
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,
    /// One sample, described in JSON; used by the program itself
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
