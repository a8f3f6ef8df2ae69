//! `cargo xtask`: tasks for developers.
//!
//!   cargo xtask torture [smoke|full|soak] [--seed N] [--goal N]... [--minutes N]
//!   cargo xtask house [DIR]
//!   cargo xtask msrv

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people at a terminal")]

mod goals;
mod harness;
mod house;
mod msrv;
mod needs;
mod process;
mod table;
mod torture;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.split_first() {
        Some((&"torture", rest)) => torture::Request::parse(rest).and_then(|asked| asked.run()),
        Some((&"house", [])) => house::run(None),
        Some((&"house", [dir])) => house::run(Some(dir)),
        Some((&"msrv", [])) => msrv::run(),
        _ => Err("usage: cargo xtask torture [smoke|full|soak] [--seed N] [--goal N]... \
                  [--minutes N], cargo xtask house [DIR], or cargo xtask msrv"
            .to_owned()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}
