//! `ctrlz install` and `ctrlz uninstall`: add hooks to coding agents' clients, and remove them.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ctrlz_agents::hook::Client;
use ctrlz_agents::install::{
    self, Plan, Refused, Setup, State, Trust, carry_out, hook_command, plan_install, plan_uninstall,
};
use ctrlz_api::{Check, Installation, Installed};
use serde_json::json;

use super::Done;
use crate::args::GlobalArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::machine::ThisMachine;
use crate::place::Place;
use crate::render::{self, Output, printable};

/// Set up a coding agent to record its changes
///
/// CLIENT is claude-code, codex, gemini-cli, cline, qwen-code, copilot, pi, opencode, kilo or
/// marvin; by default, every agent found on this machine is set up. Uses the agent's own plugin
/// command where it has one. Other settings are left unchanged, including comments. Installing
/// again has no effect. Two installations would record every event twice, so only one is kept: the
/// one for the user, and a plugin rather than hooks; one made by hand that cannot be removed is an
/// error. Finally checks that a change made by an agent can be undone.
#[derive(clap::Args, Debug)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// Remove ctrlz from a coding agent
///
/// Restores the agent's configuration and keeps your later changes. Does not need the agent's
/// program. Recorded changes are kept and can still be undone.
#[derive(clap::Args, Debug)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// Arguments of both commands.
#[derive(clap::Args, Debug)]
struct WhichArgs {
    /// The clients of the coding agents
    #[arg(value_name = "CLIENT")]
    clients: Vec<String>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change the project's own configuration, for everyone who works on it
    #[arg(long)]
    project: bool,
}

/// Fails if no client could be set up. A failure of one client does not affect the others.
fn check_any_worked(report: &Installation) -> Result<(), Failure> {
    let failed = |done: &Installed| Some(format!("{}: {}", done.client, done.failed.as_ref()?));
    let failed: Vec<String> = report.clients.iter().filter_map(failed).collect();
    if failed.len() == report.clients.len() {
        Err(Failure::Agent { why: failed.join("; ") })
    } else {
        Ok(())
    }
}

pub(crate) fn install(
    args: &InstallArgs,
    global: &GlobalArgs,
    environment: &Environment,
    out: &mut Output,
) -> Result<Done, Failure> {
    let setup = setup(&args.which, global, environment)?;
    let mut report = Installation { clients: Vec::new(), proven: None };
    let found = |state| !matches!(state, State::Absent);
    for client in chosen(&args.which, &setup, found)? {
        let done = plan_install(client, &setup, &ThisMachine).and_then(|plan| {
            let mut done = perform(client, &plan, &args.which, &setup)?;
            done.notes.extend(note(client, &setup, &plan));
            Ok(done)
        });
        report.clients.push(done.unwrap_or_else(|why| refused(client, &why)));
    }
    check_any_worked(&report)?;
    if !args.which.dry_run {
        prove(&setup)?;
        report.proven = Some(true);
    }
    show(&report, "installed already", out)
}

pub(crate) fn uninstall(
    args: &UninstallArgs,
    global: &GlobalArgs,
    environment: &Environment,
    out: &mut Output,
) -> Result<Done, Failure> {
    let setup = setup(&args.which, global, environment)?;
    let mut report = Installation { clients: Vec::new(), proven: None };
    let installed = |state| matches!(state, State::Installed | State::Outdated);
    for client in chosen(&args.which, &setup, installed)? {
        let done = plan_uninstall(client, &setup, &ThisMachine)
            .and_then(|plan| perform(client, &plan, &args.which, &setup));
        report.clients.push(done.unwrap_or_else(|why| refused(client, &why)));
    }
    check_any_worked(&report)?;
    show(&report, "was not installed", out)
}

fn perform(
    client: Client,
    plan: &Plan,
    args: &WhichArgs,
    setup: &Setup,
) -> Result<Installed, Refused> {
    if !args.dry_run {
        carry_out(client, plan, setup, &ThisMachine)?;
    }
    let actions = plan.actions.iter().map(|action| printable(&action.to_string())).collect();
    let notes = plan.notes.iter().map(|note| printable(note)).collect();
    Ok(Installed { client: client.name(), actions, notes, failed: None })
}

fn refused(client: Client, why: &Refused) -> Installed {
    let failed = Some(printable(&why.to_string()));
    Installed { client: client.name(), actions: Vec::new(), notes: Vec::new(), failed }
}

fn show(report: &Installation, nothing: &str, out: &mut Output) -> Result<Done, Failure> {
    let failed =
        report.clients.iter().filter_map(|done| Some((done.client, done.failed.as_ref()?)));
    let done = if failed.clone().next().is_none() { Done::Complete } else { Done::Incomplete };
    failed.for_each(|(client, why)| render::note(&format!("ctrlz: {client}: {why}")));
    if out.is_json() {
        out.json(report)?;
        return Ok(done);
    }
    for Installed { client, actions, failed, .. } in &report.clients {
        if actions.is_empty() && failed.is_none() {
            out.line(&format!("{client}: {nothing}"))?;
        }
        for action in actions {
            out.line(&format!("{client}: {action}"))?;
        }
    }
    // Printed last, so that the user does not overlook them among the actions.
    for Installed { client, notes, .. } in &report.clients {
        for note in notes {
            out.line(&format!("{client}: {note}"))?;
        }
    }
    if report.proven == Some(true) {
        out.line("a change made through the hooks was recorded and undone: it works")?;
    }
    Ok(done)
}

/// Returns the step that the client leaves to the user.
fn note(client: Client, setup: &Setup, plan: &Plan) -> Option<String> {
    match client {
        Client::Codex if !plan.actions.is_empty() || setup.project.is_some() => Some(
            "open codex and approve the hooks with /hooks; until then it does not run them".into(),
        ),
        _ => None,
    }
}

/// Returns the named clients, or those whose state satisfies `meant`.
fn chosen(
    args: &WhichArgs,
    setup: &Setup,
    meant: impl Fn(State) -> bool,
) -> Result<Vec<Client>, Failure> {
    if !args.clients.is_empty() {
        let named = args.clients.iter().map(|name| name.parse());
        let named: Result<Vec<Client>, ctrlz_agents::hook::UnknownClient> = named.collect();
        return named.map_err(|unknown| Failure::Agent { why: unknown.to_string() });
    }
    let is_meant = |client: &Client| meant(install::state(*client, setup, &ThisMachine));
    let found: Vec<Client> = Client::ALL.into_iter().filter(is_meant).collect();
    if found.is_empty() {
        Err(Failure::Agent {
            why: "no coding agent was found; `ctrlz run -- AGENT` records any program".into(),
        })
    } else {
        Ok(found)
    }
}

fn setup(
    args: &WhichArgs,
    global: &GlobalArgs,
    environment: &Environment,
) -> Result<Setup, Failure> {
    let data_dir = environment.data_dir(global)?;
    ctrlz::check_data_dir(&data_dir)?;
    let dir = global.directory.clone().map_or_else(std::env::current_dir, Ok);
    let dir = dir.and_then(|dir| dir.canonicalize()).map_err(Failure::CurrentDirectory)?;
    let here = ctrlz::find_work_tree(&dir, &data_dir, environment.home());
    let (project, here) = if args.project {
        (Some(here?), None)
    } else {
        // Outside of a project, there is no project configuration to check for a second
        // installation.
        (None, here.ok())
    };
    Ok(Setup {
        home: environment.home().ok_or(Failure::NoDataDir)?.to_owned(),
        data_dir,
        program: this_program()?,
        project,
        here,
    })
}

/// Returns the program that hooks run: the path found in PATH, without resolving symlinks.
fn this_program() -> Result<PathBuf, Failure> {
    let real = std::env::current_exe().map_err(Failure::CurrentDirectory)?;
    let in_path = install::Machine::find(&ThisMachine, "ctrlz");
    let same = |path: &PathBuf| path.canonicalize().ok() == real.canonicalize().ok();
    // A symlink in PATH stays valid if an update moves the program.
    Ok(in_path.filter(|path| path.is_absolute() && same(path)).unwrap_or(real))
}

/// Sends a client's events for a change in a temporary project, and undoes the change.
fn prove(setup: &Setup) -> Result<(), Failure> {
    let failed = |why: String| Failure::Agent { why: format!("the hooks do not work: {why}") };
    let place = setup.data_dir.join(format!(".proof-{}", std::process::id()));
    let project = place.join("project");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&project);
    made.map_err(|error| failed(error.to_string()))?;
    let proven = try_out(setup, &place, &project);
    // Ignored: the directory is private, and leftovers do no harm.
    std::fs::remove_dir_all(&place).ok();
    proven.map_err(failed)
}

fn try_out(setup: &Setup, place: &Path, project: &Path) -> Result<(), String> {
    let file = project.join("proof.txt");
    let write = |text: &str| std::fs::write(&file, text).map_err(|error| error.to_string());
    let command = hook_command(Client::ClaudeCode, &setup.program);
    let tell = |event: &str| {
        let event = json!({
            "session_id": "proof", "prompt_id": "proof", "hook_event_name": event, "cwd": project,
            "tool_name": "Bash", "tool_use_id": "proof", "tool_input": { "command": "proof" },
        });
        run_in_shell(&command, place, project, &event.to_string())
    };
    write("before")?;
    tell("PreToolUse")?;
    write("after")?;
    tell("PostToolUse")?;
    let program = hook_command(Client::ClaudeCode, &setup.program);
    let program = program.trim_end_matches(" hook claude-code");
    run_in_shell(&format!("{program} undo"), place, project, "")?;
    match std::fs::read_to_string(&file) {
        Ok(text) if text == "before" => Ok(()),
        Ok(text) => Err(format!("a file is {text:?} after the undo")),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs a command as clients do, with a store of its own, so that nothing is left behind.
#[expect(clippy::disallowed_methods, reason = "the command is ours; a shell is what clients use")]
fn run_in_shell(command: &str, place: &Path, dir: &Path, input: &str) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).current_dir(dir);
    shell.env("CTRLZ_DATA_DIR", place.join("data")).env("XDG_CONFIG_HOME", place.join("config"));
    shell.env_remove("CLAUDE_PROJECT_DIR").env_remove("GEMINI_PROJECT_DIR");
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(|error| error.to_string())?;
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // A hook always exits with 0 and reports errors on standard error.
    if output.status.success() && said.is_empty() {
        Ok(())
    } else {
        Err(format!("`{command}`: {said}"))
    }
}

/// Sources for the state of the integrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Only the agents' files.
    Files,
    /// Also the agents themselves, which takes as long as they take to start.
    Agents,
}

/// Returns the state of the integration with each coding agent on this machine.
pub(super) fn checks(place: &Place, environment: &Environment, asked: Asked) -> Vec<Check> {
    let (Some(home), Ok(program)) = (environment.home(), this_program()) else {
        return Vec::new();
    };
    let data_dir = place.agents_dir.clone();
    let setup = Setup { home: home.to_owned(), data_dir, program, project: None, here: None };
    let shared = Setup { project: Some(place.root().to_owned()), ..setup.clone() };
    let mut checks = Vec::new();
    for client in Client::ALL {
        let in_project = install::state(client, &shared, &ThisMachine) == State::Installed;
        match install::state(client, &setup, &ThisMachine) {
            State::Absent => (),
            State::Installed if in_project => {
                let detail = format!(
                    "installed for you and in this project, which records every event twice; \
                     `ctrlz install {client}` removes the second one"
                );
                checks.push(check(client, false, &detail));
            }
            State::Installed if client == Client::Codex && asked == Asked::Agents => {
                checks.push(trust_check(&setup));
            }
            State::Installed => checks.push(check(client, true, "installed")),
            State::NotInstalled if in_project => {
                checks.push(check(client, true, "installed in this project"));
            }
            State::NotInstalled => {
                let detail = format!("not installed; `ctrlz install {client}` does it");
                checks.push(check(client, true, &detail));
            }
            State::Outdated => {
                let detail = format!("runs another ctrlz; `ctrlz install {client}` mends it");
                checks.push(check(client, false, &detail));
            }
        }
    }
    checks
}

fn check(client: Client, ok: bool, detail: &str) -> Check {
    Check { name: client.name(), ok, detail: render::printable(detail) }
}

/// Returns whether the user has approved the hooks in Codex, which does not run them before.
fn trust_check(setup: &Setup) -> Check {
    let client = Client::Codex;
    match install::trust(setup, &ThisMachine) {
        Trust::Approved => check(client, true, "installed, and its hooks are approved"),
        Trust::Waiting { hooks } => check(
            client,
            false,
            &format!("{hooks} of its hooks wait for your approval: open codex and type /hooks"),
        ),
        Trust::Unknown => {
            check(client, true, "installed; whether its hooks are approved it does not say")
        }
    }
}
