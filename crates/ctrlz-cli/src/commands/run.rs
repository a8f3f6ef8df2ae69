//! `ctrlz run`: any command as a step that can be undone.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use ctrlz::{ParentTurn, Skipped, StepBegun, StepEnded, StepInfo, StepStart, Uncaptured};

use super::{Done, absorb, gc, watch};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::place::Place;
use crate::progress::watched;
use crate::render;

/// A person waits, and has named the files on purpose.
const MAX_NAMED_BYTES: u64 = 1 << 30;

/// Run a command so that what it changes can be undone
///
/// Records the work tree before and after the command; `ctrlz undo` takes the changes back.
/// Exits like the command, with 128 and the signal's number if it was killed, and prints nothing
/// on standard output. Ctrl-C ends the command, and its step is recorded all the same. If the
/// state before cannot be recorded, the command is not run.
///
/// Example: ctrlz run --session me --label "tidy up" -- npx prettier --write .
#[derive(clap::Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    step: StepArgs,
}

/// What `run` and `guard` take.
#[derive(clap::Args, Debug)]
pub(super) struct StepArgs {
    /// Make the step part of session ID
    #[arg(long, value_name = "ID", default_value = "run")]
    session: String,
    /// Make the step part of message M; without it, it is a turn of its own
    #[arg(long, value_name = "M")]
    message: Option<String>,
    /// Make the step part P of the message
    #[arg(long, value_name = "P")]
    part: Option<String>,
    /// Say that the session is a sub-agent of session ID; undoing that one's turn includes it
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// Name a file that the command will change, so that it is captured even if it is ignored
    ///
    /// Give it once per file. What is named is credited to this step also while others run.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Say what the step is about; without it, the command is shown
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Say which tool it is
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Say which agent it is
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Run the command even if the state before cannot be recorded
    #[arg(long)]
    anyway: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(place: Result<Place, Failure>, args: &RunArgs) -> Result<Done, Failure> {
    let Ran { status, step } = run_as_step(place, &args.step)?;
    if let Some((_, ended)) = step {
        let way_back = match args.step.message {
            None => format!("{} undo", render::program()),
            // The last turn may be more than this step.
            Some(_) => format!("{} undo --step {}", render::program(), ended.step),
        };
        render::note(&match ended.files.len() {
            0 if ended.changed => {
                format!(
                    "ctrlz: only permissions, directories or ignored files changed; undo: {way_back}"
                )
            }
            0 => "ctrlz: no files changed".into(),
            count => format!("ctrlz: {} changed; undo: {way_back}", render::files(count)),
        });
    }
    Ok(Done::Ran(exit_code(status)))
}

/// A command that has ended.
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    /// Its step, unless it ran without one or its end could not be recorded, which was said.
    pub(super) step: Option<(Place, StepEnded)>,
}

/// Runs the command between the two snapshots of a step.
pub(super) fn run_as_step(place: Result<Place, Failure>, args: &StepArgs) -> Result<Ran, Failure> {
    let begun = place.and_then(|place| begin(&place, args).map(|step| (place, step)));
    let begun = match begun {
        Ok(begun) => Some(begun),
        Err(failure) if args.anyway => {
            let why = render::message(&failure);
            render::note(&format!("ctrlz: {why}; running the command without a way back"));
            None
        }
        Err(failure) => {
            render::note("ctrlz: the command was not run, as it could not be undone (--anyway)");
            return Err(failure);
        }
    };
    // From here on the step is open, and only we can end it.
    let ended = Interrupts::catch().and_then(|interrupts| run_to_end(&interrupts, &begun, args));
    let Some((place, step)) = begun else {
        return Ok(Ran { status: ended?, step: None });
    };
    let recorded = watched(|progress| place.workspace.end_step(&step.step, progress));
    let status = ended?;
    match recorded {
        Ok(ended) => {
            warn_of(&ended.skipped);
            tell_uncaptured(&ended.uncaptured);
            gc::begin_if_due(&place);
            Ok(Ran { status, step: Some((place, ended)) })
        }
        // The command has run, so the exit code is its own.
        Err(error) => {
            let why = render::message(&error);
            render::note(&format!("ctrlz: the state after the command was not recorded: {why}"));
            let program = render::program();
            render::note(&format!(
                "the state before it: {program} restore --exact {}",
                step.before
            ));
            Ok(Ran { status, step: None })
        }
    }
}

fn begin(place: &Place, args: &StepArgs) -> Result<StepBegun, Failure> {
    let info = StepInfo {
        session: args.session.clone(),
        message: Some(args.message.clone().unwrap_or_else(new_message)),
        part: args.part.clone(),
        tool: args.tool.clone(),
        label: Some(args.label.clone().unwrap_or_else(|| shown(&args.command))),
        who: args.who.clone(),
        parent: args.parent.clone().map(|session| ParentTurn { session, message: None }),
        ..StepInfo::default()
    };
    let paths = place.paths(&args.paths)?;
    let owner = Some(std::process::id());
    let max_named_bytes = place.workspace.options().max_named_bytes.max(MAX_NAMED_BYTES);
    let start = StepStart {
        info,
        paths,
        owner,
        max_named_bytes: Some(max_named_bytes),
        ..StepStart::default()
    };
    let begun = watched(|progress| place.workspace.begin_step(start, progress))?;
    warn_of(&begun.skipped);
    for path in &begun.not_kept {
        render::note(&format!("ctrlz: {path} is too large to capture, so it cannot be undone"));
    }
    // Before the command runs: it may remove the repository that was borrowed from.
    if begun.borrowed > 0 {
        absorb::begin(place);
    }
    watch::begin(place);
    Ok(begun)
}

#[expect(clippy::disallowed_methods, reason = "running the user's command is the point")]
fn run_to_end(
    interrupts: &Interrupts,
    begun: &Option<(Place, StepBegun)>,
    args: &StepArgs,
) -> Result<ExitStatus, Failure> {
    let (program, words) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(words);
    if let Some((place, _)) = begun {
        command.current_dir(place.dir());
    }
    let failed = |source| Failure::NotStarted { program: program.clone(), source };
    let mut child = command.spawn().map_err(failed)?;
    interrupts.wait(&mut child).map_err(failed)
}

/// The code that a shell would have given.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    const FAILED: u8 = 1;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Says what cannot be undone. What policy leaves out is not worth a line for every command.
fn warn_of(skipped: &[Skipped]) {
    for skipped in skipped.iter().filter(|skipped| skipped.reason.is_failure()) {
        render::note(&format!("ctrlz: not captured, so it cannot be undone: {skipped}"));
    }
}

/// Says what the command did to paths that no snapshot holds.
fn tell_uncaptured(uncaptured: &[Uncaptured]) {
    for lost in uncaptured {
        let (path, what) = (ctrlz::escape(&lost.path), render::printable(&lost.describe()));
        render::note(&match lost.is_loss() {
            true => format!("ctrlz: {path} {what}; it cannot be undone"),
            false => format!("ctrlz: {what}: {path}"),
        });
    }
}

/// A message nobody else uses, so that one undo takes back one run.
fn new_message() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_millis(), std::process::id())
}

/// The command as one line.
fn shown(command: &[OsString]) -> String {
    const MAX_CHARS: usize = 200;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ").chars().take(MAX_CHARS).collect()
}
