//! Command line arguments. Settings are resolved in `config.rs`.

use std::path::PathBuf;

use crate::commands::{
    adopt, apply, blame, checkpoint, completions, copy_borrowed, demo, diff, doctor, du, export,
    fork, gc, guard, hook, import, install, log, ls, man, mcp, patch, pull, purge, push, recover,
    redo, relink, restore, revert, rpc, run, serve, sessions, show, status, track, ui, undo,
    unrevert, verify, watch,
};

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  the machine, the disk or the store failed
  2  wrong usage, or a configuration that makes no sense
  3  done, but incomplete: something could not be captured or put back
  4  no such thing: an unknown snapshot or step, a path outside the work tree, nothing to undo
  5  busy, or the files changed meanwhile; try again
  6  refused by a safeguard; the hint names the option that overrides it
  7  snapshots are disabled here
`run` and `guard` exit like the command they ran; 126 and 127 mean that it could not be started.

Configuration is read from $XDG_CONFIG_HOME/ctrlz/config.toml, never from the project.
Snapshots lie under $CTRLZ_DATA_DIR, else $XDG_DATA_HOME/ctrlz, else ~/.local/share/ctrlz.";

/// Ctrl-Z for coding agents
///
/// Records the state of a working directory and restores any recorded state, without touching your
/// own git. `run` makes any command a step, `undo` undoes the last turn and keeps your later
/// changes, `redo` reverses the undo, and `log` lists everything; `demo` shows it in ten seconds.
/// Every restore records the present state first, so that it can be undone as well.
#[derive(clap::Parser, Debug)]
#[command(name = "ctrlz", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Act in DIR instead of the current directory
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) directory: Option<PathBuf>,
    /// Keep snapshots under DIR
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Use the store at DIR; a relative DIR starts at the work tree
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) store: Option<PathBuf>,
    /// Read the configuration from FILE
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON; paths that are not UTF-8 become {"bytes": [...]}
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Allow directories that are much more than a project, such as a home directory
    #[arg(long, global = true)]
    pub(crate) force_root: bool,
    /// Use N threads
    #[arg(long, value_name = "N", global = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

impl Cli {
    /// Returns the full description of all commands, for help and suggestions.
    pub(crate) fn described() -> clap::Command {
        let mut command = <Cli as clap::CommandFactory>::command();
        command.build();
        command
    }
}

/// The commands. Their help texts are in the command modules.
///
/// Only the requested command is described to the parser, because describing all of them takes as
/// long as a snapshot. Use [`Cli::described`] for help output.
#[derive(clap::Subcommand, Debug)]
#[command(defer = true)]
pub(crate) enum Command {
    Undo(undo::UndoArgs),
    Redo(redo::RedoArgs),
    Apply(apply::ApplyArgs),
    Log(log::LogArgs),
    Sessions(sessions::SessionsArgs),
    Blame(blame::BlameArgs),
    Recover(recover::RecoverArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Fork(fork::ForkArgs),
    Run(run::RunArgs),
    Guard(guard::GuardArgs),
    Demo(demo::DemoArgs),
    Track(track::TrackArgs),
    Patch(patch::PatchArgs),
    Diff(diff::DiffArgs),
    Show(show::ShowArgs),
    Ls(ls::LsArgs),
    Restore(restore::RestoreArgs),
    Revert(revert::RevertArgs),
    Unrevert(unrevert::UnrevertArgs),
    Status(status::StatusArgs),
    Doctor(doctor::DoctorArgs),
    Watch(watch::WatchArgs),
    Rpc(rpc::RpcArgs),
    Relink(relink::RelinkArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Adopt(adopt::AdoptArgs),
    Push(push::PushArgs),
    Pull(pull::PullArgs),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
    Mcp(mcp::McpArgs),
    Hook(hook::HookArgs),
    Serve(serve::ServeArgs),
    Ui(ui::UiArgs),
    Du(du::DuArgs),
    Gc(gc::GcArgs),
    Verify(verify::VerifyArgs),
    Purge(purge::PurgeArgs),
    #[command(hide = true)]
    CopyBorrowed(copy_borrowed::CopyBorrowedArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Command {
    /// Returns whether another `ctrlz` started this process to continue after it has exited.
    pub(crate) fn is_detached(&self) -> bool {
        match self {
            Command::CopyBorrowed(_) => true,
            Command::Adopt(args) => args.is_detached(),
            Command::Gc(args) => args.is_detached(),
            Command::Watch(args) => args.is_detached(),
            Command::Hook(args) => args.is_detached(),
            _ => false,
        }
    }
}
