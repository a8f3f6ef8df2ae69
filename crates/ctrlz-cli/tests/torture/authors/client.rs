//! The process of a client, which starts hooks and tools like an agent.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::{Ended, command, python};

/// Program of the client. Reads one request per line and answers each with one line.
///
/// `argv` runs a command and waits for it, or kills it after `kill_after` seconds. `tool` starts a
/// process that represents a running tool, and `end` kills it.
const PROGRAM: &str = r#"
import json, subprocess, sys, time
PIPE = subprocess.PIPE
tools = {}
while True:
    line = sys.stdin.readline()
    if not line:
        break
    asked = json.loads(line)
    answer = {}
    if "tool" in asked:
        tools[asked["tool"]] = subprocess.Popen(["sleep", "600"])
    elif "end" in asked:
        tool = tools.pop(asked["end"], None)
        if tool:
            tool.kill()
            tool.wait()
    else:
        run = subprocess.Popen(asked["argv"], env=asked["env"], cwd=asked["cwd"],
                               stdin=PIPE, stdout=PIPE, stderr=PIPE)
        try:
            run.stdin.write(asked["stdin"].encode())
            run.stdin.close()
        except BrokenPipeError:
            pass
        run.stdin = None
        if asked["kill_after"] is not None:
            time.sleep(asked["kill_after"])
            run.kill()
        out, err = run.communicate()
        answer = {"code": run.returncode, "stdout": out.decode(errors="replace"),
                  "stderr": err.decode(errors="replace")}
    print(json.dumps(answer), flush=True)
for tool in tools.values():
    tool.kill()
"#;

/// A client with its own process. The engine checks the descendants of that process to find out
/// whether a tool still runs, so two work trees must not share one.
pub(crate) struct Client {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn start() -> Client {
        let mut command = command(python());
        command.args(["-I", "-S", "-c", PROGRAM]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Client { child, requests, answers }
    }

    fn ask(&mut self, request: &Value) -> Value {
        let requests = self.requests.as_mut().unwrap();
        writeln!(requests, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Runs a command with `input`, and kills it after `kill_after` if that is given.
    pub(crate) fn run(
        &mut self,
        command: &Command,
        input: &str,
        kill_after: Option<Duration>,
    ) -> Ended {
        let text = |text: &std::ffi::OsStr| text.to_str().unwrap().to_owned();
        let program = std::iter::once(command.get_program());
        let argv: Vec<String> = program.chain(command.get_args()).map(text).collect();
        let env: serde_json::Map<String, Value> = command
            .get_envs()
            .filter_map(|(name, value)| Some((text(name), text(value?).into())))
            .collect();
        let answer = self.ask(&json!({
            "argv": argv, "env": env, "cwd": command.get_current_dir(), "stdin": input,
            "kill_after": kill_after.map(|time| time.as_secs_f64()),
        }));
        let code = i32::try_from(answer["code"].as_i64().unwrap()).unwrap();
        // Python reports a signal as a negative exit code.
        let status = ExitStatus::from_raw(if code < 0 { -code } else { code << 8 });
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ended { status, stdout: text("stdout"), stderr: text("stderr") }
    }

    /// Starts a process that represents the tool of a step.
    pub(crate) fn start_tool(&mut self, step: usize) {
        self.ask(&json!({ "tool": step.to_string() }));
    }

    pub(crate) fn end_tool(&mut self, step: usize) {
        self.ask(&json!({ "end": step.to_string() }));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.requests.take());
        drop(self.child.wait());
    }
}
