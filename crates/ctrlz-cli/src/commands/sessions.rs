//! `ctrlz sessions`: who worked here.

use ctrlz::SessionInfo;
use serde_json::json;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output, printable};

/// List the sessions that changed something here, the last active one first
#[derive(clap::Args, Debug)]
pub(crate) struct SessionsArgs {}

pub(crate) fn run(place: &Place, args: &SessionsArgs, out: &mut Output) -> Result<Done, Failure> {
    let SessionsArgs {} = args;
    let mut sessions = place.workspace.sessions()?;
    sessions.reverse();
    if out.is_json() {
        out.json(&json!({ "sessions": sessions }))?;
        return Ok(Done::Complete);
    }
    if sessions.is_empty() {
        render::note("no session has changed anything here yet");
    }
    for session in &sessions {
        out.line(&line(session))?;
    }
    Ok(Done::Complete)
}

fn line(session: &SessionInfo) -> String {
    let SessionInfo { session, who, steps, undone, last_at_millis, .. } = session;
    let who = who.as_ref().map(|who| format!("{who}, ")).unwrap_or_default();
    let taken_back = if *undone > 0 { format!(" ({undone} undone)") } else { String::new() };
    let steps = render::steps(*steps);
    printable(&format!("{session}  {who}{steps}{taken_back}, {}", render::age(*last_at_millis)))
}
