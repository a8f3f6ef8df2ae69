//! What a coding agent waits for: one hook, from the start of its process to its end.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::facts::Machine;
use crate::process::{feed, program};
use crate::tree::Tree;

const CLIENTS: [&str; 4] = ["claude-code", "codex", "gemini-cli", "cline"];

/// The events of a turn, in the order they come.
const EVENTS: [Moment; 4] = [Moment::Prompt, Moment::Before, Moment::After, Moment::End];

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Prompt,
    Before,
    After,
    End,
}

/// What is measured with what.
pub(crate) struct Plan<'a> {
    pub(crate) ctrlz: &'a Path,
    pub(crate) files: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) temp: Option<&'a Path>,
}

/// Measures every client's hooks on every tree and gives the page.
pub(crate) fn run(plan: &Plan<'_>, machine: &Machine) -> Fallible<String> {
    let mut page = heading(plan, machine);
    for files in &plan.files {
        let temp = match plan.temp {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        };
        let tree = Tree::make(&temp.path().join("project"), *files)?;
        for client in CLIENTS {
            let data = temp.path().join("data");
            let samples = session(plan, &tree, &data, client)?;
            page.push_str(&row(*files, client, samples));
            std::fs::remove_dir_all(&data)?;
        }
    }
    Ok(page)
}

/// The waiting times of one session, by event.
fn session(
    plan: &Plan<'_>,
    tree: &Tree,
    data: &Path,
    client: &str,
) -> Fallible<[Vec<Duration>; 4]> {
    let mut samples: [Vec<Duration>; 4] = Default::default();
    let tell = |moment: Moment, round: usize| -> Fallible<Duration> {
        let event = event(client, moment, &tree.root, round);
        let mut command = program(plan.ctrlz);
        command.args(["hook", client]).current_dir(&tree.root).env("CTRLZ_DATA_DIR", data);
        let begun = Instant::now();
        let said = feed(&mut command, event.as_bytes(), &[0])?;
        let waited = begun.elapsed();
        match said.is_empty() {
            true => Ok(waited),
            false => Err(format!("a hook said {}", String::from_utf8_lossy(&said)).into()),
        }
    };
    // The first snapshot is another matter; what agents wait for again and again comes after it.
    tell(Moment::Before, 0)?;
    tell(Moment::After, 0)?;
    for round in 1..=plan.rounds {
        for (at, moment) in EVENTS.into_iter().enumerate() {
            if moment == Moment::After {
                tree.edit(1, round)?;
            }
            samples[at].push(tell(moment, round)?);
        }
    }
    Ok(samples)
}

/// An event as the client writes it.
fn event(client: &str, moment: Moment, root: &Path, round: usize) -> String {
    let names = match client {
        "gemini-cli" => ["BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"],
        "cline" => ["agent_start", "tool_call", "tool_result", "agent_end"],
        _ => ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"],
    };
    let name = names[EVENTS.iter().position(|known| *known == moment).unwrap_or_default()];
    let turn = format!("turn-{round}");
    let command = format!("make round {round}");
    let event = if client == "cline" {
        let call = serde_json::json!({
            "id": turn, "name": "run_commands", "input": { "commands": [command] },
        });
        serde_json::json!({
            "hookName": name, "taskId": "session", "timestamp": turn, "workspaceRoots": [root],
            "tool_call": call, "tool_result": call,
        })
    } else {
        serde_json::json!({
            "hook_event_name": name, "session_id": "session", "cwd": root, "prompt_id": turn,
            "timestamp": turn, "tool_name": "Bash", "tool_use_id": turn,
            "tool_input": { "command": command },
        })
    };
    let mut event = event;
    if client == "codex"
        && let Some(fields) = event.as_object_mut()
    {
        let turn = fields.remove("prompt_id").unwrap_or_default();
        fields.insert("turn_id".into(), turn);
    }
    event.to_string()
}

fn heading(plan: &Plan<'_>, machine: &Machine) -> String {
    let facts: Vec<String> =
        machine.lines.iter().map(|(name, value)| format!("- {name}: {value}")).collect();
    format!(
        "# Hooks\n\n\
         Written by `cargo run --release -p ctrlz-bench -- --hooks --out bench`.\n\n{}\n\n\
         What an agent waits for: one `ctrlz hook`, from the start of its process to its end, in \
         milliseconds, p50 / p99 of {} turns with one tool call each that changes one file. No watcher \
         runs, so before and after a tool every file of the tree is looked at.\n\n\
         | files | client | prompt | before a tool | after a tool | end of turn |\n\
         |--:|---|--:|--:|--:|--:|\n",
        facts.join("\n"),
        plan.rounds
    )
}

fn row(files: usize, client: &str, samples: [Vec<Duration>; 4]) -> String {
    let cells = samples.map(|mut samples| {
        samples.sort();
        let at = |part: f64| {
            let place = (samples.len() as f64 * part).ceil() as usize;
            samples[place.clamp(1, samples.len()) - 1].as_secs_f64() * 1_000.0
        };
        format!("{:.1} / {:.1}", at(0.5), at(0.99))
    });
    format!("| {files} | {client} | {} |\n", cells.join(" | "))
}
