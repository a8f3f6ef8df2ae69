//! A work tree with agents and a user, and the commands that act on it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xtask::Random;

use crate::lab::{Ended, Lab, command, run};
use crate::manifest::{Manifest, is_temporary};

use super::actions::{Action, Ending, Mode, Planned};
use super::calls::OpenCall;
use super::client::Client;
use super::edits::{Editor, Variety};
use super::oracle::{Author, Checked, Oracle, check};

/// Size above which new files are not captured in [`Mode::Large`], in bytes. In other modes files
/// are smaller.
pub(crate) const MAX_NEW_FILE_BYTES: usize = 4_096;

/// Counters of a case.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) commands: u64,
    pub(crate) undos: u64,
    /// Undos that were incomplete.
    pub(crate) conflicted: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: Counts) {
        self.commands += more.commands;
        self.undos += more.undos;
        self.conflicted += more.conflicted;
    }
}

pub(crate) struct World {
    pub(super) lab: Lab,
    mode: Mode,
    pub(super) oracle: Oracle,
    /// Open calls, by slot.
    pub(super) slots: [Option<OpenCall>; 3],
    /// The call that waits for a sub-agent, by session.
    pub(super) delegating: [Option<OpenCall>; 2],
    /// Number of the current turn, by session.
    pub(super) turns: [usize; 2],
    /// The turn for which a sub-agent works, by session and agent.
    pub(super) agent_turns: [[usize; 2]; 2],
    pub(super) held: Vec<File>,
    /// Inodes of the held files that had a name before the last command.
    pub(super) linked: BTreeSet<u64>,
    /// Process of the client, started by the first hook.
    client: Option<Client>,
    pub(crate) history: Vec<String>,
    pub(crate) counts: Counts,
}

impl World {
    pub(crate) fn new(mode: Mode, seed: u64) -> World {
        let lab = Lab::new().threaded();
        lab.write(".gitignore", "*.ign\nignored/\n");
        let settings = match mode {
            Mode::Watcher => "watch = true\n".to_owned(),
            Mode::Large => format!("max_new_file_bytes = {MAX_NEW_FILE_BYTES}\n"),
            _ => String::new(),
        };
        let config = lab.dir().join("home/.config/ctrlz");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("config.toml"), settings).unwrap();
        let oracle = Oracle::new(Manifest::default());
        let mut world = World {
            lab,
            mode,
            oracle,
            slots: [None, None, None],
            delegating: [None, None],
            turns: [1, 1],
            agent_turns: [[1, 1], [1, 1]],
            held: Vec::new(),
            linked: BTreeSet::new(),
            client: None,
            history: Vec::new(),
            counts: Counts::default(),
        };
        let mut random = Random::from(seed ^ 0x5eed);
        if mode == Mode::Git || random.below(3) == 0 {
            world.git(&["init", "-q"]);
        }
        world.look(Author::User);
        for path in ["a", "b", "c.txt", "d/e", "d/f", "n.ign"] {
            world.edit_with(Author::User, &mut random, |editor| editor.change_file(path));
        }
        if mode == Mode::Git {
            world.git(&["add", "-A"]);
            world.git(&["commit", "-q", "-m", "start"]);
        }
        world
    }

    /// Returns the manifest of the work tree without the user's repository.
    pub(super) fn tree(&self) -> Manifest {
        let mut tree = Manifest::of(&self.lab.work);
        let is_git = |path: &str| path == ".git" || path.starts_with(".git/");
        tree.0.retain(|path, _| !is_git(path) && !is_temporary(path));
        tree
    }

    /// Records the changes that an author made.
    pub(super) fn look(&mut self, author: Author) {
        let tree = self.tree();
        self.oracle.note(author, tree);
    }

    /// Ends the segment: the next command records a snapshot.
    pub(super) fn cut(&mut self) {
        self.oracle.cut();
    }

    /// Ends the segment before an undo, redo, revert or unrevert. These check whether tools still
    /// run.
    pub(super) fn cut_for_undo(&mut self) {
        self.oracle.cut();
        self.oracle.mark_idle();
    }

    /// Returns the process that starts hooks and tools.
    pub(super) fn client(&mut self) -> &mut Client {
        self.client.get_or_insert_with(Client::start)
    }

    pub(super) fn say(&mut self, line: String) {
        self.history.push(line);
    }

    pub(super) fn ctrlz(&mut self, args: &[&str]) -> Ended {
        self.counts.commands += 1;
        self.lab.ctrlz(args)
    }

    fn git(&mut self, args: &[&str]) -> Ended {
        let who = ["-c", "user.name=u", "-c", "user.email=u@example.com"];
        let quiet = ["-c", "advice.detachedHead=false", "-c", "gc.auto=0"];
        run(command("git").args(who).args(quiet).args(args).current_dir(&self.lab.work))
    }

    /// Makes a change on behalf of an author.
    pub(super) fn edit_with(
        &mut self,
        author: Author,
        random: &mut Random,
        change: impl FnOnce(&mut Editor<'_>) -> Option<String>,
    ) {
        let tree = Arc::clone(&self.oracle.seen);
        let mut editor = Editor {
            top: &self.lab.work,
            tree: &tree,
            tokens: &mut self.oracle.tokens,
            author,
            random: random.clone(),
            has_large: self.mode == Mode::Large,
        };
        let done = change(&mut editor);
        *random = editor.random;
        self.look(author);
        if let Some(done) = done {
            let who = match author {
                Author::Step(step) => format!("  step {step}"),
                Author::User | Author::Ctrlz => "  user".into(),
            };
            self.say(format!("{who}: {done}"));
        }
    }

    pub(super) fn edits(&mut self, author: Author, random: &mut Random) {
        let variety = if random.below(3) == 0 { Variety::Lines } else { Variety::All };
        for _ in 0..1 + random.below(3) {
            self.edit_with(author, random, |editor| editor.change(variety));
        }
    }

    pub(crate) fn act(&mut self, planned: &Planned) -> Checked {
        let mut random = Random::from(planned.salt);
        match planned.action {
            Action::User => {
                self.edits(Author::User, &mut random);
                Ok(())
            }
            Action::Git => {
                self.git_operation(&mut random);
                Ok(())
            }
            Action::Step(call, meanwhile) => self.step(call, meanwhile, &mut random),
            Action::Begin(slot, call) => self.begin_in(slot, call, &mut random),
            Action::Work(slot) => {
                self.work_in(slot, &mut random);
                Ok(())
            }
            Action::End(slot, ending) => self.end_in(slot, ending),
            Action::Prompt(session) => self.prompt(session),
            Action::Stop(session) => self.stop(session),
            Action::Delegate(session) => self.delegate(session),
            Action::Delegated(session) => self.delegated(session),
            Action::Undo(scope, then) => self.undo(scope, then, &mut random),
            Action::Redo => self.take_back("redo", &[], &[]).map(drop),
            Action::Revert => self.revert(&mut random),
            Action::Unrevert => self.take_back("unrevert", &[], &[]).map(drop),
            Action::Kill(victim) => self.kill(victim, &mut random),
            Action::Gc => self.quiet(&["gc"]),
            Action::Track => self.track(),
            Action::Hold => {
                self.hold(&mut random);
                Ok(())
            }
            Action::Release => {
                self.held.clear();
                self.oracle.held.clear();
                Ok(())
            }
        }
    }

    pub(super) fn track(&mut self) -> Checked {
        self.cut();
        self.quiet(&["track"])
    }

    /// Runs a command that succeeds and changes no file.
    fn quiet(&mut self, args: &[&str]) -> Checked {
        self.say(format!("ctrlz {}", args.join(" ")));
        let ended = self.ctrlz(args);
        check("a command failed", ended.code() == Some(0), || format!("{args:?}: {ended:?}"))?;
        self.unchanged(args[0])
    }

    pub(super) fn unchanged(&mut self, name: &str) -> Checked {
        let tree = self.tree();
        check("files changed without a reason", tree == *self.oracle.seen, || {
            format!("{name}: now / before\n{}", tree.difference(&self.oracle.seen))
        })
    }

    fn hold(&mut self, random: &mut Random) {
        let path = Editor::pick_path(&self.oracle.seen, random);
        if let Ok(file) = OpenOptions::new().append(true).open(self.lab.work.join(&path)) {
            self.say(format!("a process opens {path} for writing"));
            self.held.push(file);
            self.oracle.held.insert(path);
        }
    }

    fn git_operation(&mut self, random: &mut Random) {
        let lines: &[&[&str]] = match random.below(8) {
            0 => &[&["add", "-A"], &["commit", "-q", "-m", "work"]],
            1 => &[&["switch", "-q", "-C", "other"]],
            2 => &[&["stash", "-u", "-q"]],
            3 => &[&["stash", "pop", "-q"]],
            4 => &[&["reset", "--hard", "-q"]],
            5 => &[&["clean", "-fdq"]],
            6 => &[&["checkout", "-q", "HEAD~1", "--", "."]],
            _ => &[],
        };
        for line in lines {
            self.say(format!("  user: git {}", line.join(" ")));
            self.git(line);
        }
        if lines.is_empty() {
            let name = *random.pick(&["c.txt", "k", "b"]);
            let mut text =
                std::fs::read_to_string(self.lab.work.join(".gitignore")).unwrap_or_default();
            if text.contains(name) {
                text = text.replace(&format!("{name}\n"), "");
            } else {
                text.push_str(&format!("{name}\n"));
            }
            self.say(format!("  user: .gitignore = {text:?}"));
            self.lab.write(".gitignore", text);
            self.oracle.ignored_names.insert(name.to_owned());
        }
        self.look(Author::User);
    }

    /// Ends all open calls and verifies the store.
    pub(crate) fn finish(&mut self) -> Checked {
        for slot in 0..self.slots.len() {
            self.end_in(slot, Ending::Success)?;
        }
        for session in 0..self.delegating.len() {
            self.delegated(session)?;
        }
        self.quiet(&["verify", "--json"])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let open = self.slots.iter_mut().chain(&mut self.delegating);
        open.filter_map(Option::take).for_each(OpenCall::abandon);
        if self.mode == Mode::Watcher {
            // Errors are ignored: the watcher may not be running.
            drop(self.lab.ctrlz(&["watch", "--stop"]));
        }
    }
}
