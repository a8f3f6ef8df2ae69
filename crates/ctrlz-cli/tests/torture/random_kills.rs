//! kill -9 at random moments, with all threads of the machine.

use std::time::Duration;

use xtask::{Random, Row};

use crate::lab::{Ended, Lab, ended, noise, sized, start};
use crate::manifest::Manifest;

/// A work tree whose commands are killed, and its acknowledged states.
struct Victim {
    lab: Lab,
    random: Random,
    /// Acknowledged operations, and the states that they recorded.
    acked: Vec<(String, Manifest)>,
}

impl Victim {
    fn new(name: &str, lab: Lab) -> Victim {
        let mut random = Random::new(name);
        for at in 0..40 {
            lab.write(&format!("dir{}/file{at}", at % 5), noise(at, 200 + random.below(3000)));
        }
        let mut victim = Victim { lab, random, acked: Vec::new() };
        victim.acknowledge();
        victim.edit();
        victim.acknowledge();
        victim
    }

    fn acknowledge(&mut self) {
        self.acked.push((self.lab.track_operation(), self.lab.manifest()));
    }

    /// Changes, creates and removes a few files.
    fn edit(&mut self) {
        for _ in 0..1 + self.random.below(5) {
            let (at, bytes) = (self.random.below(40), self.random.below(4000));
            let path = format!("dir{}/file{at}", at % 5);
            match self.random.below(5) {
                0 => self.lab.remove(&path),
                _ => self.lab.write(&path, noise(self.random.below(1 << 30) as u64, bytes)),
            }
        }
    }

    /// Runs a command and kills it after a random time.
    fn run_and_kill(&mut self, args: &[&str]) -> Ended {
        let mut child = start(&mut self.lab.command(args));
        std::thread::sleep(Duration::from_micros(self.random.below(30_000) as u64));
        child.kill().unwrap();
        ended(child)
    }

    /// Kills one random command, and checks the state after it.
    fn kill_random_command(&mut self, round: usize) {
        match self.random.below(8) {
            0..3 => self.kill_track(),
            3 => self.kill_without_changes(&["gc"], round),
            4 => self.kill_undo(round),
            _ => self.kill_restore(round),
        }
        self.lab.assert_no_leftovers(&format!("round {round}"));
    }

    fn kill_track(&mut self) {
        self.edit();
        let now = self.lab.manifest();
        let ended = self.run_and_kill(&["track", "--json"]);
        self.lab.manifest().assert_is(&now, "a killed track");
        // A printed operation is acknowledged, even if the exit code is that of the kill.
        let printed: Option<serde_json::Value> = serde_json::from_str(&ended.stdout).ok();
        match printed.as_ref().and_then(|json| json["operation"].as_str()) {
            Some(operation) => self.acked.push((operation.to_owned(), now)),
            None => self.acknowledge(),
        }
    }

    fn kill_restore(&mut self, round: usize) {
        let (operation, then) = self.random.pick(&self.acked).clone();
        let now = self.lab.manifest();
        self.run_and_kill(&["restore", "--exact", "--yes", &operation]);
        self.check_all_or_nothing(&now, &then, &format!("round {round}: a killed restore"));
    }

    fn kill_undo(&mut self, round: usize) {
        let before = self.lab.manifest();
        let script = format!("echo {round} > dir0/stepped; rm -f dir1/file1");
        let step = ["run", "--session", "s", "--", "sh", "-c", &script];
        self.lab.ctrlz(&step).is(&[0], "a step");
        let now = self.lab.manifest();
        self.run_and_kill(&["undo", "--yes"]);
        self.check_all_or_nothing(&now, &before, &format!("round {round}: a killed undo"));
    }

    /// Kills a command that changes no file.
    fn kill_without_changes(&mut self, args: &[&str], round: usize) {
        let now = self.lab.manifest();
        self.run_and_kill(args);
        self.lab.manifest().assert_is(&now, &format!("round {round}: a killed {args:?}"));
        self.acknowledge();
    }

    fn check_all_or_nothing(&mut self, now: &Manifest, then: &Manifest, when: &str) {
        Manifest::of_user_files(&self.lab.work).assert_between(now, then, when);
        self.lab.ctrlz(&["track"]).is(&[0], &format!("{when}, then track"));
        let found = self.lab.manifest();
        assert!(
            found == *now || found == *then,
            "{when}: neither before nor after; against after:\n{}",
            found.difference(then)
        );
    }

    /// Checks the store, and that a random acknowledged operation is still restored exactly.
    fn check_history(&mut self, when: &str) {
        self.lab.assert_tidy(when);
        let (operation, then) = self.random.pick(&self.acked).clone();
        self.lab.assert_restores(&operation, &then, when);
        // Manifests are large, so only a sample of the acknowledged states is kept.
        if self.acked.len() > 60 {
            let kept = self.random.below(self.acked.len());
            self.acked.swap_remove(kept);
            self.acked.drain(2..30);
        }
    }
}

fn check_random_kills(name: &str, lab: Lab) {
    let mut row = Row::of(1, "random kills with threads");
    let mut victim = Victim::new(name, lab);
    for round in 0..sized(60, 5_000) {
        victim.kill_random_command(round);
        row.done();
        if round % 50 == 49 {
            victim.check_history(&format!("{name}, round {round}"));
        }
    }
    victim.check_history(name);
}

#[test]
fn kills_at_random_moments_lose_no_snapshot() {
    check_random_kills("one", Lab::new().threaded());
}

#[test]
fn kills_at_random_moments_lose_no_snapshot_with_chunked_packs() {
    // Packs are written in chunks.
    check_random_kills("other", Lab::new().threaded().in_pieces(500));
}
