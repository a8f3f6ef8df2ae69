//! `ctrlz sessions`: lists the sessions of the work tree.

use ctrlz::SessionInfo;
use ctrlz_api::{Released, Sessions};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output, printable};

/// List the sessions that changed something here, most recently active first
///
/// Prints one line per session: the number of steps, how many of them are undone, when it was last
/// active, its parent session, the session it was forked from, and a revert that is not final yet.
#[derive(clap::Args, Debug)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Release a session, so that the next `ctrlz gc` may drop what only it did
    Delete {
        /// The session
        id: String,
        /// Then remove the whole store permanently, unless another work tree or session needs it
        #[arg(long)]
        remove_store: bool,
    },
}

pub(crate) fn run(place: &Place, args: &SessionsArgs, out: &mut Output) -> Result<Done, Failure> {
    if let Some(Action::Delete { id, remove_store }) = &args.action {
        place.workspace.release_session(id)?;
        let store_removed = *remove_store;
        if store_removed {
            place.workspace.remove_store()?;
        }
        match out.is_json() {
            true => out.json(&Released { session: id.clone(), store_removed })?,
            false if store_removed => out.line("released, and the store is removed")?,
            false => out.line(&format!(
                "released; it can be undone until `{} gc` drops it",
                render::program()
            ))?,
        }
        return Ok(Done::Complete);
    }
    if out.is_json() {
        out.json(&Sessions::of(&place.workspace)?)?;
        return Ok(Done::Complete);
    }
    let mut elsewhere = Vec::new();
    for log in place.workspace.logs_from_elsewhere()?.into_iter().rev() {
        let sessions = place.workspace.sessions_of(&log.name)?;
        elsewhere.push((log, sessions));
    }
    let sessions = place.workspace.sessions()?;
    if sessions.is_empty() && elsewhere.is_empty() {
        render::note("no session has changed anything here yet");
    }
    for session in sessions.iter().rev() {
        out.line(&line(session))?;
    }
    for (log, sessions) in &elsewhere {
        out.line(&printable(&format!("log {} from {}:", log.name, log.from)))?;
        for session in sessions.iter().rev() {
            out.line(&format!("  {}", line(session)))?;
        }
    }
    Ok(Done::Complete)
}

fn line(info: &SessionInfo) -> String {
    let mut parts: Vec<String> = info.who.iter().cloned().collect();
    let undone = info.undone;
    let taken_back = if undone > 0 { format!(" ({undone} undone)") } else { String::new() };
    parts.push(format!("{}{taken_back}", render::steps(info.steps)));
    parts.push(render::age(info.last_at_millis));
    parts.extend(info.parent.iter().map(|parent| format!("works for {parent}")));
    if let Some(forked) = &info.forked {
        let at = forked.message.as_ref().map(|message| format!(" before {message}"));
        parts.push(format!("fork of {}{}", forked.session, at.unwrap_or_default()));
    }
    if let Some(state) = &info.reverted {
        let part = state.boundary.part.as_ref().map(|part| format!(", part {part}"));
        let to = format!("{}{}", state.boundary.message, part.unwrap_or_default());
        parts.push(format!("reverted to before {to} (not final: ctrlz unrevert)"));
    }
    printable(&format!("{}  {}", info.session, parts.join(", ")))
}
