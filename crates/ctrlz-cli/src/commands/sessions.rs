//! `ctrlz sessions`: lists the sessions of the work tree.

use ctrlz_api::methods::{self, NoParams, ReleaseParams};
use ctrlz_api::{SessionInfo, Sessions};

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
        let params = ReleaseParams { session: id.clone(), remove_store: *remove_store };
        let released = place.read(methods::release_session, &params)?;
        match out.is_json() {
            true => out.json(&released)?,
            false if *remove_store => out.line("released, and the store is removed")?,
            false => out.line(&format!(
                "released; it can be undone until `{} gc` drops it",
                render::program()
            ))?,
        }
        return Ok(Done::Complete);
    }
    let found = place.read(methods::sessions, &NoParams {})?;
    if out.is_json() {
        out.json(&found)?;
        return Ok(Done::Complete);
    }
    let Sessions { sessions, elsewhere } = &found;
    if sessions.is_empty() && elsewhere.is_empty() {
        render::note("no session has changed anything here yet");
    }
    for session in sessions {
        out.line(&line(session))?;
    }
    for log in elsewhere {
        out.line(&printable(&format!("log {} from {}:", log.log, log.from)))?;
        for session in &log.sessions {
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
