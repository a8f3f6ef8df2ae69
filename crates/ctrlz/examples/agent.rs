//! An agent loop: each tool call is a step, and the last turn is undone.
//!
//! `cargo run -p ctrlz-engine --example agent -- PROJECT`

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::path::PathBuf;

use ctrlz::{Options, Progress, StepEnd, StepInfo, StepStart, UndoOptions, UndoScope, Workspace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let project = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: agent PROJECT")?);
    // A store inside the project. Snapshots leave out all of `.agent/`.
    let store = Some(PathBuf::from(".agent/snapshots"));
    let options = Options { store, ..Options::new(project.join(".agent")) };
    let workspace = Workspace::open(&project, options)?;
    let progress = Progress::default();

    for (message, text) in [("m1", "a plan\n"), ("m2", "oops\n")] {
        let info = StepInfo {
            session: "session-1".into(),
            message: Some(message.into()),
            tool: Some("write".into()),
            ..StepInfo::default()
        };
        let step = workspace.begin_step(StepStart { info, ..StepStart::default() }, &progress)?;
        let worked = std::fs::write(project.join("notes.txt"), text); // the tool
        let ended = workspace.end_step(&step.step, &StepEnd::default(), &progress)?; // also if it failed
        println!("{message}: {} changed", ended.files.len());
        worked?;
    }

    let undone = workspace.undo(&UndoScope::LastTurn, &UndoOptions::default(), &progress)?;
    println!("undone: {} action, complete: {}", undone.done.len(), undone.is_complete());
    Ok(())
}
