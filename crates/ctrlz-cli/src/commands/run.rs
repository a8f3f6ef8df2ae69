//! `ctrlz run`: runs a command as a step that can be undone.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use ctrlz::{
    ParentTurn, Skipped, StepBegun, StepEnd, StepEnded, StepInfo, StepStart, Uncaptured,
    UnrecordedTurn,
};
use ctrlz_agents::reach_of_words;
use ctrlz_api::Reach;

use super::{Done, copy_borrowed, gc, watch};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::place::Place;
use crate::progress::watched;
use crate::render;

/// Minimum size limit for named files: the user waits and has named them explicitly.
const MAX_NAMED_BYTES: u64 = 1 << 30;

/// Run a command so that its changes can be undone
///
/// Records the work tree before and after the command; `ctrlz undo` undoes the changes. Exits with
/// the command's code, or with 128 plus the signal's number if it was killed, and prints nothing on
/// standard output. Ctrl-C ends the command, and its step is still recorded. If the state before
/// cannot be recorded, the command is not run.
///
/// Example: ctrlz run --session me --label "tidy up" -- npx prettier --write .
#[derive(clap::Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    step: StepArgs,
}

/// Arguments of `run` and `guard`.
#[derive(clap::Args, Debug)]
pub(super) struct StepArgs {
    /// Assign the step to session ID
    #[arg(long, value_name = "ID", default_value = "run")]
    session: String,
    /// Assign the step to message M; by default, it is a turn of its own
    #[arg(long, value_name = "M")]
    message: Option<String>,
    /// Assign the step to part P of the message
    #[arg(long, value_name = "P")]
    part: Option<String>,
    /// Mark the session as a sub-agent of session ID; undoing a turn of that session includes it
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// Name a file that the command will change, so that it is captured even if it is ignored
    ///
    /// Needed only for files that the arguments do not name. Can be given several times. Changes of named files are attributed to this step even while
    /// others run.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Set a label; by default, the command is shown
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Set the name of the tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Set the name of the agent
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
            // The last turn may contain more than this step.
            Some(_) => format!("{} undo --step {}", render::program(), ended.step),
        };
        render::note(&match ended.files.len() {
            0 if ended.changed => {
                format!(
                    "ctrlz: only permissions, directories, ignored files or files outside of the \
                     project changed; undo: {way_back}"
                )
            }
            0 => "ctrlz: no files changed".into(),
            count => format!("ctrlz: {} changed; undo: {way_back}", render::files(count)),
        });
    }
    Ok(Done::Ran(exit_code(status)))
}

/// A command that has exited.
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    /// Its step; `None` if it ran without one, or if its end could not be recorded, which was
    /// reported.
    pub(super) step: Option<(Place, StepEnded)>,
}

/// Runs the command between the two snapshots of a step.
pub(super) fn run_as_step(place: Result<Place, Failure>, args: &StepArgs) -> Result<Ran, Failure> {
    let begun = place.and_then(|place| {
        let begun = begin(&place, args, info_of(args));
        if let Err(failure) = &begun
            && args.anyway
        {
            note_gap(&place, info_of(args), failure);
        }
        Ok((place, begun?))
    });
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
    // The step is open from here on, and only this process can end it.
    let ended = Interrupts::catch().and_then(|interrupts| run_to_end(&interrupts, &begun, args));
    let Some((place, step)) = begun else {
        return Ok(Ran { status: ended?, step: None });
    };
    let end = StepEnd::default();
    let recorded = watched(|progress| place.workspace().end_step(&step.step, &end, progress));
    let status = ended?;
    match recorded {
        Ok(ended) => {
            warn_of(&ended.skipped);
            tell_uncaptured(&ended.uncaptured);
            gc::begin_if_due(&place);
            Ok(Ran { status, step: Some((place, ended)) })
        }
        // The command has run, so its exit code is used.
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

/// Notes that the work of the command is not recorded if that is because a disk or quota is full.
fn note_gap(place: &Place, info: StepInfo, failure: &Failure) {
    let Failure::Engine(error) = failure else { return };
    let Some(full) = error.full() else { return };
    let StepInfo { session, message, who, .. } = info;
    // Best effort: the user was told already.
    place.workspace().note_gap(full, UnrecordedTurn { who, session, message }).ok();
}

fn info_of(args: &StepArgs) -> StepInfo {
    StepInfo {
        session: args.session.clone(),
        message: Some(args.message.clone().unwrap_or_else(new_message)),
        part: args.part.clone(),
        tool: args.tool.clone(),
        label: Some(args.label.clone().unwrap_or_else(|| shown(&args.command))),
        who: args.who.clone(),
        parent: args.parent.clone().map(|session| ParentTurn { session, message: None }),
        ..StepInfo::default()
    }
}

fn begin(place: &Place, args: &StepArgs, info: StepInfo) -> Result<StepBegun, Failure> {
    let mut paths = place.paths(&args.paths)?;
    let words: Vec<String> =
        args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let home = place.workspace().options().home.as_deref();
    let Reach { inside, outside, .. } = reach_of_words(&words, place.dir(), place.root(), home);
    paths.extend(inside);
    let owner = Some(std::process::id());
    let max_named_bytes = place.workspace().options().max_named_bytes.max(MAX_NAMED_BYTES);
    let start = StepStart {
        info,
        paths,
        outside,
        owner,
        max_named_bytes: Some(max_named_bytes),
        ..StepStart::default()
    };
    let begun = watched(|progress| place.workspace().begin_step(start, progress))?;
    warn_of(&begun.skipped);
    for path in &begun.not_kept {
        render::note(&format!("ctrlz: {path} is too large to capture, so it cannot be undone"));
    }
    if let Some(why) = &begun.outside_failed {
        render::note(&format!("ctrlz: files outside of the project were not captured: {why}"));
    }
    // Before the command runs, because it may remove the repository that was borrowed from.
    if begun.borrowed > 0 {
        copy_borrowed::begin(place);
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

/// Returns the exit code that a shell would use.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    const FAILED: u8 = 1;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Warns about paths that cannot be undone. Paths skipped by policy are not reported for each
/// command.
fn warn_of(skipped: &[Skipped]) {
    for skipped in skipped.iter().filter(|skipped| skipped.reason.is_failure()) {
        render::note(&format!("ctrlz: not captured, so it cannot be undone: {skipped}"));
    }
}

/// Prints the changes of the command to paths that no snapshot holds.
fn tell_uncaptured(uncaptured: &[Uncaptured]) {
    const MAX_SHOWN: usize = 20;
    for lost in uncaptured.iter().take(MAX_SHOWN) {
        let (path, what) = (ctrlz::escape(&lost.path), render::printable(&lost.describe()));
        render::note(&if lost.is_loss() {
            format!("ctrlz: {path} {what}; it cannot be undone")
        } else {
            format!("ctrlz: {what}: {path}")
        });
    }
    let more = uncaptured.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        let program = render::program();
        render::note(&format!("ctrlz: and {} more; {program} log --lost", render::paths(more)));
    }
}

/// Returns a unique message id, so that one undo undoes one run.
fn new_message() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_millis(), std::process::id())
}

/// Returns the command as one line.
fn shown(command: &[OsString]) -> String {
    const MAX_CHARS: usize = 200;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ").chars().take(MAX_CHARS).collect()
}
