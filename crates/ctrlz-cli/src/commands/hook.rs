//! `ctrlz hook`: handles one event of a coding agent's client.
//!
//! A hook never stops the agent: the exit code is 0, standard output is empty unless the client
//! reads it, and there is a deadline. Failures are kept for `status`, `doctor` and the next prompt.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ctrlz::{Error, Progress, RecordError, TrackOptions, UnrecordedTurn};
use ctrlz_agents::hook::{
    self, Caller, Client, ClientProcess, Event, Failures, Memory, Notice, Scene, What,
};

use super::{Done, adopt, copy_borrowed, watch};
use crate::args::GlobalArgs;
use crate::config::{self, Environment};
use crate::detached;
use crate::failure::Failure;
use crate::place::Place;
use crate::render;

/// Deadline of an event: the client waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Deadline of the first tool call that may change something, which waits for the first snapshot.
const FIRST_PATIENCE: Duration = Duration::from_secs(25);
/// Deadline at the end of a session. Codex allows three seconds.
const LAST_PATIENCE: Duration = Duration::from_millis(2_500);
/// Maximum size of an event, larger than any tool call: 64 MiB.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Record one event of a coding agent's client
///
/// Run by clients that `ctrlz install` has set up. The event is JSON on standard input. Always
/// exits with 0, so that no failure stops an agent; `ctrlz doctor` shows failures.
#[derive(clap::Args, Debug)]
pub(crate) struct HookArgs {
    /// The client: claude-code, codex, gemini-cli, cline, qwen-code or copilot
    #[arg(value_name = "CLIENT", required_unless_present = "baseline")]
    client: Option<String>,
    /// The event's name, which is ignored: the input names the event
    #[arg(value_name = "EVENT", hide = true)]
    event: Option<String>,
    /// Stop after this many milliseconds
    #[arg(long, value_name = "N", hide = true)]
    deadline: Option<u64>,
    /// Take the first snapshot, detached from any client
    #[arg(long, hide = true)]
    baseline: bool,
}

impl HookArgs {
    /// Returns whether another hook started this process to continue after it has exited.
    pub(crate) fn is_detached(&self) -> bool {
        self.baseline
    }
}

/// Message of the worker thread.
enum Word {
    /// The event and the file for its failures are known.
    Begun { event: String, failures: Failures },
    /// The deadline is extended.
    Until(Instant),
    /// The work is done; `reply` is a line for the client.
    Done { reply: Option<String> },
}

/// Handles one event. Never fails, and never exceeds the deadline.
pub(crate) fn run(args: &HookArgs, global: &GlobalArgs, environment: Environment) -> Done {
    if args.baseline {
        take_baseline(global, &environment);
        return Done::Complete;
    }
    let name = args.client.clone().unwrap_or_default();
    let client: Client = match name.parse() {
        Ok(client) => client,
        Err(unknown) => {
            render::note(&format!("ctrlz: {unknown}"));
            return Done::Complete;
        }
    };
    let progress = Arc::new(Progress::default());
    let hook = Hook {
        client,
        global: global.clone(),
        environment,
        deadline: args.deadline.map(Duration::from_millis),
        begun: Instant::now(),
        progress: Arc::clone(&progress),
    };
    let end = hook.begun + hook.deadline.unwrap_or(PATIENCE);
    let (sender, words) = channel();
    // The thread is abandoned at the deadline: the process exits, which releases its locks.
    let started = std::thread::Builder::new().spawn(move || hook.work(&sender));
    match started {
        Ok(_) => wait(client, &words, end, &progress),
        Err(error) => render::note(&format!("ctrlz: cannot start a thread: {error}")),
    }
    Done::Complete
}

/// Waits for the worker thread, replies to the client, and stores failures.
fn wait(client: Client, words: &Receiver<Word>, mut end: Instant, progress: &Progress) {
    let mut begun: Option<(String, Failures)> = None;
    loop {
        let why = match words.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Word::Begun { event, failures }) => {
                begun = Some((event, failures));
                continue;
            }
            Ok(Word::Until(later)) => {
                end = later;
                continue;
            }
            Ok(Word::Done { reply }) => return answer(reply.as_deref()),
            Err(RecvTimeoutError::Timeout) => "it took too long",
            Err(RecvTimeoutError::Disconnected) => "it ended without an answer",
        };
        progress.cancelled.store(true, Ordering::Relaxed);
        match &begun {
            Some((event, failures)) => keep(failures, client, event, why),
            None => render::note(&format!("ctrlz: {why}")),
        }
        return;
    }
}

fn answer(reply: Option<&str>) {
    let Some(reply) = reply else { return };
    let mut stdout = io::stdout().lock();
    // Ignores EPIPE: the client may have exited.
    writeln!(stdout, "{reply}").and_then(|()| stdout.flush()).ok();
}

fn keep(failures: &Failures, client: Client, event: &str, why: &str) {
    render::note(&format!("ctrlz: {event}: {why}"));
    if let Err(error) = failures.add(client.name(), event, why) {
        render::note(&format!("ctrlz: that could not be kept: {error}"));
    }
}

/// One run of the command.
struct Hook {
    client: Client,
    global: GlobalArgs,
    environment: Environment,
    deadline: Option<Duration>,
    begun: Instant,
    progress: Arc<Progress>,
}

impl Hook {
    fn work(&self, sender: &Sender<Word>) {
        let reply = self.handle(sender).unwrap_or_else(|why| {
            self.keep_unplaced(&why);
            None
        });
        // Ignored: the main thread may have stopped waiting.
        sender.send(Word::Done { reply }).ok();
    }

    /// Stores a failure of an event without a known directory, for the current work tree.
    fn keep_unplaced(&self, why: &str) {
        match config::decide(&self.global, &self.environment) {
            Ok(settings) => {
                let failures = Failures::of(&settings.agents_dir, &settings.root);
                keep(&failures, self.client, "an event", why);
            }
            Err(_) => render::note(&format!("ctrlz: {why}")),
        }
    }

    /// Handles the event. Returns the reply for the client.
    fn handle(&self, sender: &Sender<Word>) -> Result<Option<String>, String> {
        let input = read_all(io::stdin().lock()).map_err(|error| error.to_string())?;
        let event = hook::read(self.client, &input).map_err(|error| error.to_string())?;
        if event.what == What::Other {
            return Ok(None);
        }
        let data_dir = self.environment.data_dir(&self.global);
        let data_dir = data_dir.map_err(|failure| render::message(&failure))?;
        let root_of = |dir: &Path| root_of(dir, &data_dir, &self.environment);
        let caller = Caller {
            process: client_process(),
            project: self.environment.project_dir(event.client),
            root_of: &root_of,
        };
        let mut memory = Memory::of(&data_dir, &event, &caller);
        let Some(dir) = memory.dir.clone() else {
            return Err(format!("{} names no directory that is there", event.name));
        };
        let failures = Failures::of(&data_dir, &root_of(&dir));
        failures.allocate();
        let begun = Word::Begun { event: event.name.clone(), failures: failures.clone() };
        sender.send(begun).ok();
        let outcome = self.act(&event, &mut memory, &dir, &failures, sender);
        // Best effort: without it, only a name and a notice are lost.
        memory.save().ok();
        match outcome {
            Ok(notice) => Ok(notice.reply(&event)),
            Err(failure) => Ok(self.failed(&event, &memory, &dir, &failures, &failure)),
        }
    }

    fn act(
        &self,
        event: &Event,
        memory: &mut Memory,
        dir: &Path,
        failures: &Failures,
        sender: &Sender<Word>,
    ) -> Result<Notice, Failure> {
        let mut settings = config::decide(&self.args_in(dir), &self.environment)?;
        if !settings.options.enabled {
            return Ok(Notice::default());
        }
        settings.options.patience = self.patience_for(event, PATIENCE);
        let mut place = Place::find(settings)?;
        if matches!(event.what, What::ToolBefore(_)) && place.workspace().log(1)?.is_empty() {
            let patience = self.patience_for(event, FIRST_PATIENCE);
            sender.send(Word::Until(self.begun + patience)).ok();
            let mut settings = config::decide(&self.args_in(dir), &self.environment)?;
            settings.options.patience = patience;
            place = Place::find(settings)?;
        }
        let scene = Scene {
            workspace: place.workspace(),
            owner: memory.process.map(|process| process.number),
            failures,
            named_time: Some(self.patience_for(event, PATIENCE).mul_f32(0.5)),
            home: self.environment.home(),
            begun: self.begun,
        };
        let outcome = hook::act(event, memory, &scene, &self.progress)?;
        if let Some(why) = &outcome.outside_failed {
            let why = format!("files outside of the project could not be captured: {why}");
            keep(failures, event.client, &event.name, &why);
        }
        if outcome.cut_off {
            let why = "the hook before the tool call did not finish, so what the call changed counts as \
                       made outside of a step";
            keep(failures, event.client, &event.name, why);
        }
        if outcome.wants_baseline {
            // Errors are ignored: the next hook tries again. The process is detached and not waited
            // for.
            detached::start(&place, &["hook", "--baseline"]).ok();
        }
        adopt::begin(&place);
        if outcome.borrowed > 0 {
            copy_borrowed::begin_aside(&place, outcome.borrowed);
        }
        if !matches!(event.what, What::SessionEnd) {
            watch::begin(&place);
        }
        Ok(outcome.notice)
    }

    /// Returns the time to wait for other commands on the same work tree. It is shorter than the
    /// deadline, so that the reason can still be stored.
    fn patience_for(&self, event: &Event, usual: Duration) -> Duration {
        let usual = if event.what == What::SessionEnd { LAST_PATIENCE } else { usual };
        let all = self.deadline.unwrap_or(usual);
        all.saturating_sub(self.begun.elapsed()).mul_f32(0.9)
    }

    /// Stores a failure, and reports it to the client if it is one that the user must know now.
    fn failed(
        &self,
        event: &Event,
        memory: &Memory,
        dir: &Path,
        failures: &Failures,
        failure: &Failure,
    ) -> Option<String> {
        let why = render::message(failure);
        let never_here = matches!(
            failure,
            Failure::Engine(
                Error::Record(RecordError::DangerousRoot { .. })
                    | Error::Record(RecordError::NotGit { .. })
            )
        );
        if !never_here {
            keep(failures, event.client, &event.name, &why);
            let Failure::Engine(error) = failure else { return None };
            return self.say_full(event, memory, dir, error.full()?);
        }
        // For instance a home directory: nothing is broken, but nothing is protected either.
        render::note(&format!("ctrlz: {}: {why}", event.name));
        let mut notice = Notice::default();
        if memory.is_new() || event.what == What::SessionStart {
            notice.say(&format!("ctrlz: what the agent does here cannot be undone: {why}"));
        }
        notice.reply(event)
    }

    /// Notes that the turn is not recorded because a disk or quota is full. Reports it once per
    /// turn.
    fn say_full(
        &self,
        event: &Event,
        memory: &Memory,
        dir: &Path,
        full: &'static str,
    ) -> Option<String> {
        let place = config::decide(&self.args_in(dir), &self.environment).and_then(Place::find);
        let turn = UnrecordedTurn {
            who: Some(event.client.name().to_owned()),
            session: event.session.clone(),
            // If nothing can be stored, a turn that the client does not name would be new at each
            // event.
            message: event.turn.clone().or_else(|| memory.stored_turn()),
        };
        let is_said = place.is_ok_and(|place| {
            let gap = place.workspace().gap().ok().flatten();
            // Best effort: the failure is stored separately. Without the note, the log shows the
            // turn as changes outside of any step.
            place.workspace().note_gap(full, turn.clone()).ok();
            gap.is_some_and(|gap| gap.turns.contains(&turn))
        });
        let mut notice = Notice::default();
        if !is_said {
            notice.say(&format!(
                "ctrlz: {full}: what the agent does now is not recorded and cannot be undone. \
                 Free some space; `ctrlz status` shows where."
            ));
        }
        notice.reply(event)
    }

    fn args_in(&self, dir: &Path) -> GlobalArgs {
        let directory = self.global.directory.clone().unwrap_or_else(|| dir.to_owned());
        GlobalArgs { directory: Some(directory), ..self.global.clone() }
    }
}

/// Returns the recent failures of hooks, one line each.
pub(super) fn failures(place: &Place) -> Vec<String> {
    let recent = kept_failures(place).recent();
    let line = |failed: &ctrlz_api::AgentFailure| {
        let age = render::age(failed.at_millis);
        render::printable(&format!("{}, {}, {age}: {}", failed.client, failed.event, failed.why))
    };
    recent.iter().map(line).collect()
}

/// Removes the failures that [`failures`] returns.
pub(super) fn forget_failures(place: &Place) {
    // Ignored: failures that cannot be removed are shown again.
    kept_failures(place).forget().ok();
}

fn kept_failures(place: &Place) -> Failures {
    Failures::of(&place.agents_dir, place.root())
}

/// Returns the work tree for which failures are stored.
fn root_of(dir: &Path, data_dir: &Path, environment: &Environment) -> PathBuf {
    ctrlz::find_work_tree(dir, data_dir, environment.home()).unwrap_or_else(|_| dir.to_owned())
}

/// Reads the input up to its maximum size. The rest is discarded, because the client may wait until
/// it is read.
fn read_all(mut input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.by_ref().take(MAX_INPUT_BYTES).read_to_end(&mut bytes)?;
    io::copy(&mut input, &mut io::sink())?;
    Ok(bytes)
}

/// Returns the process that started this one, skipping shells.
fn client_process() -> Option<ClientProcess> {
    const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "fish", "ash", "busybox"];
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..8 {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name is in parentheses and may contain any character; the parent is the second field
        // after it.
        let (start, rest) = stat.rsplit_once(')')?;
        let name = start.split_once('(')?.1;
        if !SHELLS.contains(&name) {
            return ClientProcess::of(process).filter(|process| process.number > 1);
        }
        process = rest.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

/// Takes the first snapshot, so that the first tool call does not have to wait for it.
fn take_baseline(global: &GlobalArgs, environment: &Environment) {
    let place = config::decide(global, environment).and_then(Place::find);
    let Ok(place) = place else { return };
    // Errors are ignored: the next hook that needs the snapshot tries again and stores the reason.
    let taken = place.workspace().track(&TrackOptions::default(), &Progress::default());
    if taken.is_ok_and(|snapshot| snapshot.borrowed > 0) {
        copy_borrowed::begin(&place);
    }
}
