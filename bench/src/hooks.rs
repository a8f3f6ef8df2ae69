//! Latency for coding agents: one hook, from the start of its process to its end, or one call of an
//! adapter that keeps `ctrlz rpc` running.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::facts::{Machine, load};
use crate::process::{feed, program};
use crate::tree::{Shape, Tree};

const CLIENTS: [&str; 6] = ["claude-code", "codex", "gemini-cli", "cline", "qwen-code", "copilot"];
/// Clients whose adapters make the same calls.
const OVER_RPC: &str = "pi, opencode, kilo, marvin (rpc)";

/// Events of a turn, in order.
const EVENTS: [Moment; 4] = [Moment::Prompt, Moment::Before, Moment::After, Moment::End];

/// Event that runs a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Prompt,
    Before,
    After,
    End,
}

/// Parameters of the measurement.
pub(crate) struct Plan<'a> {
    pub(crate) ctrlz: &'a Path,
    pub(crate) files: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) temp: Option<&'a Path>,
}

/// Measures every client's hooks on every tree and returns the page.
pub(crate) fn run(plan: &Plan<'_>, machine: &Machine) -> Fallible<String> {
    let mut page = heading(plan, machine);
    for files in &plan.files {
        let temp = match plan.temp {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        };
        let tree = Tree::make(&temp.path().join("project"), *files, Shape::Usual)?;
        for client in CLIENTS {
            let data = temp.path().join("data");
            let samples = session(plan, &tree, &data, client)?;
            page.push_str(&row(*files, client, samples));
            std::fs::remove_dir_all(&data)?;
        }
        let samples = rpc_session(plan, &tree, &temp.path().join("data"))?;
        page.push_str(&row(*files, OVER_RPC, samples));
    }
    page.push_str(&format!("\nLoad at the end: {}.\n", load()));
    Ok(page)
}

/// Returns the latencies of one session, by event.
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
        if said.is_empty() {
            Ok(waited)
        } else {
            Err(format!("a hook said {}", String::from_utf8_lossy(&said)).into())
        }
    };
    // Not measured: the first snapshot takes longer than the later ones.
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

/// Returns the latencies of the same session over rpc. The end of a turn makes no call.
fn rpc_session(plan: &Plan<'_>, tree: &Tree, data: &Path) -> Fallible<[Vec<Duration>; 4]> {
    let mut samples: [Vec<Duration>; 4] = Default::default();
    let mut rpc = Rpc::start(plan.ctrlz, tree, data)?;
    for round in 0..=plan.rounds {
        let step = format!("step-{round}");
        let news = rpc.call("timeline", &serde_json::json!({ "limit": 50, "files": 40 }))?;
        let start = serde_json::json!({
            "session": "session", "message": step, "step": step, "commands": ["make round"],
        });
        let begun = rpc.call("begin_step", &start)?;
        tree.edit(1, round)?;
        let ended = rpc.call("end_step", &serde_json::json!({ "step": step }))?;
        // The first snapshot takes longer than the later ones.
        if round > 0 {
            for (at, waited) in [news, begun, ended].into_iter().enumerate() {
                samples[at].push(waited);
            }
        }
    }
    Ok(samples)
}

/// A running `ctrlz rpc`.
struct Rpc {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    root: String,
}

impl Rpc {
    fn start(ctrlz: &Path, tree: &Tree, data: &Path) -> Fallible<Rpc> {
        let mut command = program(ctrlz);
        command.arg("rpc").current_dir(&tree.root).env("CTRLZ_DATA_DIR", data);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let root = tree.root.to_str().ok_or("a path that is no text")?.to_owned();
        Ok(Rpc { child, stdin, stdout, root })
    }

    /// Calls a method and returns its latency.
    fn call(&mut self, method: &str, params: &serde_json::Value) -> Fallible<Duration> {
        let mut params = params.clone();
        params["dir"] = self.root.clone().into();
        let request =
            serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let begun = Instant::now();
        self.stdin.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let waited = begun.elapsed();
        let answer: serde_json::Value = serde_json::from_str(&line)?;
        match answer.get("error") {
            None => Ok(waited),
            Some(error) => Err(format!("{method}: {error}").into()),
        }
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        // Errors are ignored: it has answered all calls, and may have exited already.
        self.child.kill().and_then(|()| self.child.wait()).ok();
    }
}

/// Returns an event in the JSON format of the client.
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
         milliseconds, p50 / p99 of {} turns with one tool call each that changes one file; for adapters \
         that keep `ctrlz rpc` beside them, one call. No watcher runs, so before and after a tool every \
         file of the tree is looked at. On a machine where others work too, p99 is mostly theirs.\n\n\
         | files | client | prompt | before a tool | after a tool | end of turn |\n\
         |--:|---|--:|--:|--:|--:|\n",
        facts.join("\n"),
        plan.rounds
    )
}

fn row(files: usize, client: &str, samples: [Vec<Duration>; 4]) -> String {
    let cells = samples.map(|mut samples| {
        if samples.is_empty() {
            return "–".to_owned();
        }
        samples.sort();
        let at = |part: f64| {
            let place = (samples.len() as f64 * part).ceil() as usize;
            samples[place.clamp(1, samples.len()) - 1].as_secs_f64() * 1_000.0
        };
        format!("{:.1} / {:.1}", at(0.5), at(0.99))
    });
    format!("| {files} | {client} | {} |\n", cells.join(" | "))
}
