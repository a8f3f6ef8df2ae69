//! Events of Cline CLI. It runs the files that are named after the event, and the payload names the
//! event in a vocabulary of its own. A task is one conversation. A turn is identified by its start
//! time.

use std::path::PathBuf;

use ctrlz::now_millis;
use serde::Deserialize;
use serde_json::Value;

use super::apply_patch;
use super::claude_code::{command, files, millis};
use super::event::{Event, ToolCall, What};
use super::{Client, id};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Payload {
    hook_name: String,
    task_id: String,
    timestamp: Option<String>,
    workspace_roots: Vec<PathBuf>,
    session_context: Context,
    #[serde(rename = "agent_id")]
    agent: Option<String>,
    #[serde(rename = "parent_agent_id")]
    parent_agent: Option<String>,
    #[serde(rename = "tool_call")]
    call: Option<Call>,
    #[serde(rename = "tool_result")]
    result: Option<Call>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Context {
    root_session_id: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Call {
    id: String,
    name: String,
    input: Value,
    #[serde(rename = "durationMs")]
    duration_ms: Option<f64>,
    #[serde(rename = "startedAt")]
    started_at: Option<String>,
}

impl Call {
    /// Returns the time since the start of the call in milliseconds. Cline starts its hooks more than
    /// half a second after a call, so that the duration alone does not show the start.
    fn duration(&self) -> Option<u64> {
        let started = self.started_at.as_deref().and_then(millis_of);
        let since = started.and_then(|at| now_millis().checked_sub(at));
        let duration = millis(self.duration_ms);
        duration.map(|duration| since.map_or(duration, |since| since.max(duration)))
    }
}

/// Returns the milliseconds since 1970 of a time such as `2026-11-15T19:34:46.309Z`.
fn millis_of(time: &str) -> Option<u64> {
    let (date, time) = time.strip_suffix('Z')?.split_once('T')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let mut parts = date.splitn(3, '-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (clock, millis) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The year begins in March here, so that a leap day is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    let millis = number(format!("{millis:0<3}").get(..3)?)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis)
}

pub(super) fn read(input: &[u8]) -> Result<Event, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(input)?;
    // Only sub-agents have a parent.
    let agent = payload.parent_agent.as_ref().and(payload.agent.as_deref()).map(id);
    let what = match (payload.hook_name.as_str(), &payload.call, &payload.result) {
        ("tool_call", Some(call), _) => What::ToolBefore(tool_call(call, agent)),
        ("tool_result", _, Some(call)) => What::ToolAfter(vec![tool_call(call, agent)]),
        ("agent_start" | "agent_resume" | "prompt_submit", ..) => match agent {
            Some(_) => What::Other,
            None => What::Prompt,
        },
        ("agent_end" | "agent_abort" | "agent_error", ..) => match agent {
            Some(agent) => What::AgentEnd { agent },
            None => What::TurnEnd,
        },
        ("session_shutdown", ..) => What::SessionEnd,
        _ => What::Other,
    };
    let session = payload.session_context.root_session_id.as_deref().unwrap_or(&payload.task_id);
    Ok(Event {
        client: Client::Cline,
        name: id(&payload.hook_name),
        session: id(session),
        turn: payload.timestamp.as_deref().map(id).filter(|_| what == What::Prompt),
        dir: payload.workspace_roots.first().cloned(),
        what,
    })
}

fn tool_call(call: &Call, agent: Option<String>) -> ToolCall {
    let patch = call.input.get("input").and_then(Value::as_str).unwrap_or_default();
    let mut named = files(&call.input);
    named.extend(apply_patch::files(patch));
    ToolCall {
        id: id(&call.id),
        tool: id(&call.name),
        agent,
        duration_ms: call.duration(),
        files: named,
        edits: apply_patch::edits(patch),
        failed: false,
        commands: commands(&call.input),
        only_reads: matches!(
            call.name.as_str(),
            "read_files"
                | "read_file"
                | "search_codebase"
                | "search_files"
                | "list_files"
                | "fetch_web_content"
                | "ask_question"
                | "ask_followup_question"
        ),
    }
}

/// Returns the commands of a call. Each is a string, or an object that names a program.
fn commands(input: &Value) -> Vec<String> {
    let several = input.get("commands").and_then(Value::as_array).into_iter().flatten();
    let texts = several.filter_map(|command| match command {
        Value::String(text) => Some(text.clone()),
        other => command_of(other),
    });
    texts.chain(command(input)).collect()
}

fn command_of(value: &Value) -> Option<String> {
    value.get("command").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::millis_of;

    #[test]
    fn times_are_read_in_milliseconds() {
        assert_eq!(millis_of("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(millis_of("2026-11-15T19:34:46.309Z"), Some(1_794_771_286_309));
        assert_eq!(millis_of("2024-02-29T23:59:59.5Z"), Some(1_709_251_199_500));
        for wrong in ["", "2026-11-15", "2026-13-15T00:00:00Z", "2026-11-15T00:00Z", "yesterday"] {
            assert_eq!(millis_of(wrong), None, "{wrong}");
        }
    }
}
