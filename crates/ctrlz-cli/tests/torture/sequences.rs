//! Random sequences of edits, commands and crashes, compared with a model that keeps plain copies.

use std::time::Duration;

use xtask::{Random, Row};

use crate::lab::{Ended, Lab, ended, run, sized, start};
use crate::manifest::Manifest;

/// Paths that collide as files and directories.
const PATHS: [&str; 8] = ["a", "a/b", "a/b/c", "a.b", "d/e", "d/f", "g", "日/本"];

/// A work tree and its expected states.
struct World {
    lab: Lab,
    random: Random,
    /// All recorded and acknowledged states.
    recorded: Vec<(String, Manifest)>,
    /// Expected results of consecutive undos. Cleared when other changes are made.
    undos: Vec<Manifest>,
    redos: Vec<Manifest>,
    history: Vec<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let (lab, random) = (Lab::new().threaded(), Random::from(seed));
        lab.write("start", "here");
        let (recorded, undos, redos) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = World { lab, random, recorded, undos, redos, history: Vec::new() };
        world.track();
        world
    }

    fn when(&self) -> String {
        self.history.join(", ")
    }

    fn act(&mut self) {
        let action = self.random.below(12);
        self.history.push(format!("{action}"));
        match action {
            0..4 => self.edit(),
            4 | 5 => self.track(),
            6 => self.restore(),
            7 | 8 => self.step(),
            9 => self.undo_or_redo(),
            10 => self.collect(),
            _ => self.track_killed(),
        }
    }

    /// Makes a random edit. It may fail, and then changes nothing.
    fn edit(&mut self) {
        let path = self.lab.work.join(self.random.pick(&PATHS));
        match self.random.below(5) {
            0 => drop(std::fs::remove_file(&path)),
            1 => drop(std::fs::remove_dir_all(&path)),
            2 => drop(std::os::unix::fs::symlink("target", &path)),
            _ => {
                drop(std::fs::create_dir_all(path.parent().unwrap()));
                let text = format!("{}\n", self.random.below(50)).repeat(self.random.below(9));
                drop(std::fs::write(&path, text));
            }
        }
        self.undos.clear();
        self.redos.clear();
    }

    fn track(&mut self) {
        let ended = self.lab.ctrlz(&["track", "--json"]).is(&[0], &self.when());
        self.note(&ended);
        // Compares with the hash of a full scan with an empty store.
        let hash = self.lab.track();
        let cold = self.lab.dir().join("data-cold");
        let mut line = self.lab.line(&["track"]);
        for word in &mut line {
            if *word == self.lab.data.to_str().unwrap() {
                *word = cold.to_str().unwrap().into();
            }
        }
        let cold_hash = run(crate::lab::command(&line[0]).args(&line[1..])).ok().hash();
        assert_eq!(cold_hash, Some(hash), "{}: not the cold hash", self.when());
        crate::lab::remove(&cold);
    }

    fn note(&mut self, ended: &Ended) {
        let json: Option<serde_json::Value> = serde_json::from_str(&ended.stdout).ok();
        if let Some(operation) = json.as_ref().and_then(|json| json["operation"].as_str()) {
            self.recorded.push((operation.to_owned(), self.lab.manifest()));
        }
    }

    fn track_killed(&mut self) {
        let now = self.lab.manifest();
        let ended = self.kill(&["track", "--json"]);
        self.lab.manifest().assert_is(&now, &self.when());
        self.note(&ended);
    }

    fn restore(&mut self) {
        let (operation, then) = self.random.pick(&self.recorded).clone();
        let args = ["restore", "--exact", "--yes", &operation];
        self.run_or_kill(&args, &then);
        self.undos.clear();
        self.redos.clear();
    }

    /// Runs a command that leads to `then`, and kills it half of the time. Returns whether it took
    /// effect. It must never take effect partially.
    fn run_or_kill(&mut self, args: &[&str], then: &Manifest) -> bool {
        let now = self.lab.manifest();
        if self.random.below(2) == 0 {
            self.lab.ctrlz(args).is(&[0], &self.when());
            self.lab.manifest().assert_is(then, &self.when());
            return true;
        }
        self.history.push("killed".into());
        self.kill(args);
        self.lab.ctrlz(&["track"]).is(&[0], &self.when());
        let found = self.lab.manifest();
        assert!(found == now || found == *then, "{}: half done: {found:?}", self.when());
        found == *then
    }

    fn kill(&mut self, args: &[&str]) -> Ended {
        let mut child = start(&mut self.lab.command(args));
        std::thread::sleep(Duration::from_micros(self.random.below(25_000) as u64));
        child.kill().unwrap();
        ended(child)
    }

    /// Runs a step that always changes something.
    fn step(&mut self) {
        let before = self.lab.manifest();
        let number = self.history.len();
        let script = format!("echo {number} > start; rm -rf g d; mkdir -p d; echo {number} > d/f");
        let args = ["run", "--session", "s", "--", "sh", "-c", &script];
        self.lab.ctrlz(&args).is(&[0], &self.when());
        self.undos.push(before);
        self.redos.clear();
    }

    fn undo_or_redo(&mut self) {
        let (command, from) = if self.redos.is_empty() || self.random.below(2) == 0 {
            ("undo", &mut self.undos)
        } else {
            ("redo", &mut self.redos)
        };
        let Some(then) = from.pop() else { return };
        let now = self.lab.manifest();
        let done = self.run_or_kill(&[command, "--yes"], &then);
        match (command, done) {
            ("undo", true) => self.redos.push(now),
            ("undo", false) => self.undos.push(then),
            (_, true) => self.undos.push(now),
            (_, false) => self.redos.push(then),
        }
    }

    fn collect(&mut self) {
        let now = self.lab.manifest();
        match self.random.below(2) {
            0 => drop(self.lab.ctrlz(&["gc", "--thorough"]).is(&[0], &self.when())),
            _ => drop(self.kill(&["gc", "--thorough"])),
        }
        self.lab.manifest().assert_is(&now, &self.when());
    }

    /// Asserts that every acknowledged state can still be restored.
    fn check(&mut self) {
        self.lab.track();
        let when = self.when();
        self.lab.assert_tidy(&when);
        for (operation, then) in self.recorded.clone() {
            self.lab.assert_restores(&operation, &then, &when);
        }
    }
}

#[test]
fn random_sequences_with_crashes_match_the_model() {
    let mut row = Row::of(9, "sequences with crashes");
    for number in 0..sized(6, 400) {
        let seed = xtask::seed().wrapping_mul(1_000_003).wrapping_add(number);
        let mut world = World::new(seed);
        for _ in 0..14 {
            world.history.truncate(40);
            world.act();
        }
        world.history.insert(0, format!("seed {seed}"));
        world.check();
        row.done();
    }
}
