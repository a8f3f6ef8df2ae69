//! `ctrlz demo`: a demonstration with real files in a temporary directory.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ctrlz::{
    Options, Progress, StepEnd, StepInfo, StepStart, UndoOptions, UndoReport, UndoScope, Workspace,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Done;
use super::undo::kept_lines;
use crate::failure::Failure;
use crate::render::{Output, printable};

/// Show in ten seconds what undo does
///
/// Creates a small project in a temporary directory, lets an "agent" break it while "you" edit it
/// too, undoes the agent's changes, and removes everything again. Nothing is simulated: every file
/// that is shown is read from disk.
#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {}

const PAUSE: Duration = Duration::from_millis(900);
const APP: &str = "src/app.py";
const FILES: [(&str, &str); 4] = [
    (".env", "API_KEY=the-only-copy\n"),
    ("notes.txt", "ideas for Monday\n"),
    (APP, "greeting = 'hello'\n\ndef price(net):\n    vat = 0.19\n    return net * (1 + vat)\n"),
    ("src/tests/test_app.py", "from app import price\n"),
];

pub(crate) fn run(args: &DemoArgs, out: &mut Output) -> Result<Done, Failure> {
    let DemoArgs {} = args;
    let stage = Stage::build()?;
    let complete = stage.play(out)?;
    out.finish()?;
    stage.strike()?;
    Ok(Done::of(complete))
}

/// A project and its store in a temporary directory, which is removed on drop.
struct Stage {
    top: PathBuf,
    project: PathBuf,
    workspace: Workspace,
    /// Whether a signal asked to stop.
    stopped: Arc<AtomicBool>,
    watched: bool,
}

impl Stage {
    fn build() -> Result<Stage, Failure> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).map_err(Failure::Signals)?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("ctrlz-demo-{}-{:x}", std::process::id(), now.as_nanos());
        let top = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&top);
        made.map_err(|error| Failure::file("create the directory", &top, error))?;
        let project = top.join("project");
        let opened = fill(&project).and_then(|()| {
            let options = Options::new(top.join("data"));
            Ok(Workspace::open(&project, options)?)
        });
        match opened {
            Ok(workspace) => {
                let watched = io::stdout().is_terminal();
                Ok(Stage { top, project, workspace, stopped, watched })
            }
            Err(failure) => {
                // Ignored: the original error is reported.
                fs::remove_dir_all(&top).ok();
                Err(failure)
            }
        }
    }

    /// Removes the directory, and reports errors.
    fn strike(self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.top).map_err(|error| Failure::file("remove", &self.top, error))
    }

    fn play(&self, out: &mut Output) -> Result<bool, Failure> {
        self.scene("You have a project:", out)?;

        self.step("edit", || self.replace(APP, "'hello'", "'HELLO!!!'"))?;
        self.replace(APP, "0.19", "0.21")?;
        self.step("shell", || self.remove(&[".env", "notes.txt", "src/tests"]))?;
        out.line("")?;
        out.line("An agent edits src/app.py. You correct the VAT in the same file.")?;
        self.scene("Then the agent runs  rm -rf .env notes.txt src/tests", out)?;

        let progress = Progress::default();
        let options = UndoOptions { allow_mass_removal: true, ..UndoOptions::default() };
        let undone = self.workspace.undo(&UndoScope::LastTurn, &options, &progress)?;
        out.line("")?;
        self.scene("$ ctrlz undo", out)?;
        say_kept(&undone, out)?;
        if undone.is_complete() && self.read(APP)?.contains("0.21") {
            out.line("Everything the agent did is gone; your VAT is still there.")?;
        }

        let redone = self.workspace.redo(&options, &progress)?;
        out.line("")?;
        self.scene("You want it after all?  $ ctrlz redo", out)?;
        say_kept(&redone, out)?;
        out.line("")?;
        out.line("Try it on a command of your own: ctrlz run -- CMD, then ctrlz undo")?;
        Ok(undone.is_complete() && redone.is_complete())
    }

    /// Runs `work` as a step, recorded like a tool call of an agent.
    fn step(&self, tool: &str, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let info = StepInfo {
            session: "demo".into(),
            message: Some("1".into()),
            tool: Some(tool.into()),
            who: Some("agent".into()),
            ..StepInfo::default()
        };
        let progress = Progress::default();
        let start = StepStart { info, ..StepStart::default() };
        let step = self.workspace.begin_step(start, &progress)?.step;
        work()?;
        self.workspace.end_step(&step, &StepEnd::default(), &progress)?;
        Ok(())
    }

    /// Prints a title and the files on disk.
    fn scene(&self, title: &str, out: &mut Output) -> Result<(), Failure> {
        out.line(title)?;
        for (path, _) in FILES {
            let at = self.project.join(path);
            if at.exists() {
                out.line(&format!("    {path:<22} {}", told(&self.read(path)?)))?;
            }
        }
        out.finish()?;
        if self.watched {
            std::thread::sleep(PAUSE);
        }
        if self.stopped.load(Ordering::Relaxed) {
            Err(ctrlz::Error::Cancelled.into())
        } else {
            Ok(())
        }
    }

    fn read(&self, path: &str) -> Result<String, Failure> {
        let path = self.project.join(path);
        fs::read_to_string(&path).map_err(|error| Failure::file("read", &path, error))
    }

    fn replace(&self, path: &str, from: &str, to: &str) -> Result<(), Failure> {
        write(&self.project.join(path), &self.read(path)?.replace(from, to))
    }

    fn remove(&self, paths: &[&str]) -> Result<(), Failure> {
        for path in paths.iter().map(|path| self.project.join(path)) {
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|error| Failure::file("remove", &path, error))?;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Ignored: the directory is already removed after a complete run, and after an error that
        // error is reported.
        fs::remove_dir_all(&self.top).ok();
    }
}

/// Writes the project's files.
fn fill(project: &Path) -> Result<(), Failure> {
    for (path, text) in FILES {
        let path = project.join(path);
        let parent = path.parent().unwrap_or(project);
        fs::create_dir_all(parent)
            .map_err(|error| Failure::file("create the directory", parent, error))?;
        write(&path, text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::file("write", path, error))
}

/// Returns the relevant lines of a file on one line.
fn told(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let values: Vec<&str> = lines.iter().copied().filter(|line| line.contains(" = ")).collect();
    printable(&if values.is_empty() { lines.join("; ") } else { values.join("; ") })
}

fn say_kept(report: &UndoReport, out: &mut Output) -> Result<(), Failure> {
    kept_lines(&ctrlz_api::UndoReport::from(report)).iter().try_for_each(|line| out.line(line))
}
