//! Forged git indexes: the index is only a hint about file content. It must never decide what is
//! written into a file.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xtask::{Random, Row};

use super::{GOAL, MAX_TIME, timely};
use crate::lab::{Lab, must, sized};

/// Length of every file, in bytes. Equal sizes mean that a forgery cannot be detected by size.
const BYTES: usize = 24;

/// Number of files that the engine compares with the index before the first snapshot.
const SAMPLE: usize = 64;

struct Project {
    lab: Lab,
    /// The expected content of every file.
    files: BTreeMap<String, String>,
}

impl Project {
    fn new(count: usize, random: &mut Random) -> Project {
        let lab = Lab::new();
        let text =
            |at: usize, random: &mut Random| format!("{at:06} {:>17}", random.below(1 << 30));
        let files = (0..count).map(|at| (format!("d{}/f{at}", at % 5), text(at, random))).collect();
        let project = Project { lab, files };
        for (path, text) in &project.files {
            assert_eq!(text.len(), BYTES);
            project.lab.write(path, text);
        }
        project.git(&["init", "-q"]);
        project.git(&["add", "."]);
        let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
        project.git(&[&author[..], &["commit", "-q", "-m", "one"]].concat());
        project
    }

    fn git(&self, args: &[&str]) -> String {
        must("git", &[&["-C", self.lab.work.to_str().unwrap()], args].concat())
    }

    fn id_of(&self, path: &str) -> Vec<u8> {
        let text = self.git(&["rev-parse", &format!("HEAD:{path}")]);
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        (0..20).map(byte).collect()
    }

    fn any(&self, random: &mut Random) -> String {
        random.pick(&self.files.keys().cloned().collect::<Vec<_>>()).clone()
    }

    fn wait_for_copies(&self, when: &str) {
        let begun = Instant::now();
        loop {
            let status = timely(&self.lab, &["status", "--json"], when).ok().stdout;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            if status["borrowed"] == 0 {
                return;
            }
            assert!(begun.elapsed() < MAX_TIME, "{when}: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until no file is recent, and dates the index after all of them. The engine reads every
    /// file that changed within the last 20 ms or is not older than the index, and ignores the
    /// index for it.
    fn age_files(&self) {
        std::thread::sleep(Duration::from_millis(40));
        let index = self.lab.work.join(".git/index");
        must("touch", &["-d", "+3 seconds", index.to_str().unwrap()]);
    }

    /// Falsifies one index entry in a random way. Returns a description.
    fn forge(&mut self, random: &mut Random) -> String {
        let (one, other) = (self.any(random), self.any(random));
        self.forge_entry(random.below(5), &one, &other, random)
    }

    /// Falsifies one index entry in the way that `kind` selects. Returns a description.
    fn forge_entry(&mut self, kind: usize, one: &str, other: &str, random: &mut Random) -> String {
        let index = self.lab.work.join(".git/index");
        let replace = |old: &[u8], new: &[u8]| {
            let mut bytes = std::fs::read(&index).unwrap();
            // An earlier forgery may already have replaced it.
            if let Some(at) = bytes.windows(old.len()).position(|window| window == old) {
                bytes[at..at + new.len()].copy_from_slice(new);
                std::fs::write(&index, bytes).unwrap();
            }
        };
        match kind {
            0 => {
                replace(&self.id_of(one), &self.id_of(other));
                format!("{one} has the content of {other}")
            }
            1 => {
                // The object exists, but it was never the content of a file.
                let file = self.lab.dir().join("foreign");
                std::fs::write(&file, format!("{:>BYTES$}", "foreign")).unwrap();
                let id = self.git(&["hash-object", "-w", file.to_str().unwrap()]);
                let parse = |at: usize| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap();
                replace(&self.id_of(one), &(0..20).map(parse).collect::<Vec<_>>());
                format!("{one} has foreign content")
            }
            2 => {
                // Rewrites the file with the same size and modification time. Only the change time
                // differs.
                let path = self.lab.work.join(one);
                let stamp = self.lab.dir().join("stamp");
                let (path_text, stamp) =
                    (path.to_str().unwrap(), stamp.to_str().unwrap().to_owned());
                must("touch", &["-r", path_text, &stamp]);
                let text = format!("{:>BYTES$}", random.below(1 << 30));
                std::fs::write(&path, &text).unwrap();
                must("touch", &["-r", &stamp, path_text]);
                self.files.insert(one.to_owned(), text);
                format!("{one} was rewritten in secret")
            }
            3 => {
                let flag = *random.pick(&["--assume-unchanged", "--skip-worktree"]);
                let text = format!("{:>BYTES$}", random.below(1 << 30));
                self.lab.write(one, &text);
                self.files.insert(one.to_owned(), text);
                // Git refuses this if the index is already damaged, so the exit code is ignored.
                let dir = self.lab.work.to_str().unwrap();
                crate::lab::run(crate::lab::command("git").args([
                    "-C",
                    dir,
                    "update-index",
                    flag,
                    one,
                ]));
                format!("{one} has {flag}")
            }
            _ => {
                let mut bytes = std::fs::read(&index).unwrap();
                for _ in 0..1 + random.below(6) {
                    let at = random.below(bytes.len());
                    bytes[at] = random.byte();
                }
                std::fs::write(&index, bytes).unwrap();
                "other bytes".into()
            }
        }
    }
}

/// An agent changes and deletes files of a project whose index is forged. Undo either restores the
/// original bytes of a file, or leaves the file as the agent left it and exits with a nonzero code.
#[test]
fn undo_never_writes_content_from_a_forged_git_index() {
    let mut row = Row::of(GOAL, "forged indexes");
    let mut random = Random::new("forged indexes");
    let mut noticed = 0;
    for case in 0..sized(12, 400) {
        let count = *random.pick(&[2, 8, 40, 300]);
        let mut project = Project::new(count, &mut random);
        let forged: Vec<String> =
            (0..1 + random.below(3)).map(|_| project.forge(&mut random)).collect();
        project.age_files();
        let when = format!("case {case} with {count} files: {forged:?}");
        let touched: Vec<String> = (0..5).map(|_| project.any(&mut random)).collect();
        let (deleted, edited) = touched.split_at(2);
        let script = format!(
            "echo agent | tee -a {} >/dev/null; rm -f {}",
            edited.join(" "),
            deleted.join(" ")
        );
        // If there are more files than the sample, some are compared only when their blobs are
        // copied, shortly after the snapshot.
        if count > SAMPLE || random.below(2) == 0 {
            let tracked = timely(&project.lab, &["track"], &when);
            noticed += u64::from(tracked.stderr.contains("git's index is wrong about"));
            project.wait_for_copies(&when);
        }
        let ran = timely(&project.lab, &["run", "--", "sh", "-c", &script], &when);
        assert_eq!(ran.code(), Some(0), "{when}: {ran:?}");
        let undone = timely(&project.lab, &["undo", "--yes"], &when);
        let is_whole = undone.code() == Some(0);
        for (path, text) in &project.files {
            let now = std::fs::read_to_string(project.lab.work.join(path)).ok();
            let is_own = now.as_ref() == Some(text);
            let left = if deleted.contains(path) {
                now.is_none()
            } else {
                let now = now.as_deref().unwrap_or_default();
                edited.contains(path)
                    && now.strip_prefix(text.as_str()).is_some_and(|end| end.starts_with("agent"))
            };
            assert!(is_own || (!is_whole && left), "{when}: {path} is {now:?}: {undone:?}");
        }
        row.done();
    }
    row.note(format!("{noticed} were reported as wrong"));
}

/// Checks that the forgeries of the random cases reach the engine: in a project smaller than the
/// sample, the first snapshot reports both kinds that name another object.
#[test]
fn a_forged_index_of_a_small_project_is_reported() {
    let mut random = Random::new("reported indexes");
    for kind in [0, 1] {
        let mut project = Project::new(8, &mut random);
        let forged = project.forge_entry(kind, "d0/f0", "d1/f1", &mut random);
        project.age_files();
        let tracked = timely(&project.lab, &["track"], &forged);
        assert!(tracked.stderr.contains("git's index is wrong about"), "{forged}: {tracked:?}");
    }
}
