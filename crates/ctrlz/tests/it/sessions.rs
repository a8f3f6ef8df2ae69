//! Steps, undo and redo: what one session did goes, what anybody else did stays.

use ctrlz::{
    Error, OperationKind, Progress, StepInfo, StepStart, TreePath, UndoOptions, UndoReport,
    UndoScope,
};
use proptest::prelude::*;

use crate::lab::{Lab, assert_fsck_clean, assert_same, tree_path};

pub(crate) fn start(session: &str, message: &str, step: &str) -> StepStart {
    StepStart {
        info: StepInfo {
            step: step.into(),
            session: session.into(),
            message: Some(message.into()),
            tool: Some("bash".into()),
            who: Some("agent".into()),
            ..StepInfo::default()
        },
        ..StepStart::default()
    }
}

impl Lab {
    pub(crate) fn begin(&self, start: StepStart) {
        self.workspace().begin_step(start, &Progress::default()).unwrap();
    }

    pub(crate) fn end(&self, step: &str) -> Vec<TreePath> {
        self.workspace().end_step(step, &Progress::default()).unwrap().files
    }

    /// One tool call from beginning to end.
    pub(crate) fn step(&self, session: &str, message: &str, step: &str, work: impl FnOnce(&Lab)) {
        self.begin(start(session, message, step));
        work(self);
        self.end(step);
    }

    pub(crate) fn undo(&self) -> UndoReport {
        self.undo_with(&UndoScope::LastTurn, &UndoOptions::default()).unwrap()
    }

    pub(crate) fn undo_with(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
    ) -> Result<UndoReport, Error> {
        self.workspace().undo(scope, options, &Progress::default())
    }

    pub(crate) fn redo(&self) -> UndoReport {
        self.workspace().redo(&UndoOptions::default(), &Progress::default()).unwrap()
    }
}

pub(crate) fn of(session: &str) -> UndoOptions {
    UndoOptions { session: Some(session.into()), ..UndoOptions::default() }
}

#[test]
fn the_last_turn_is_taken_back_and_brought_back() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    let states = [lab.manifest()];
    lab.step("s", "m1", "1", |lab| lab.write("a", "two\n"));
    lab.step("s", "m1", "2", |lab| lab.write("b", "new\n"));
    let after_first = lab.manifest();
    lab.step("s", "m2", "3", |lab| lab.remove("a"));
    let after_second = lab.manifest();
    let report = lab.undo();
    assert_eq!(report.steps, ["3"]);
    assert_same(&lab.manifest(), &after_first, "one turn back");
    assert_eq!(lab.undo().steps, ["1", "2"], "again walks further back, a turn with all its steps");
    assert_same(&lab.manifest(), &states[0], "two turns back");
    assert!(matches!(
        lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default()),
        Err(Error::NothingToUndo)
    ));
    lab.redo();
    assert_same(&lab.manifest(), &after_first, "one turn forward");
    lab.redo();
    assert_same(&lab.manifest(), &after_second, "two turns forward");
    let result = lab.workspace().redo(&UndoOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::NothingToRedo)));
    assert_eq!(lab.undo().steps, ["3"], "and back again");
    assert_fsck_clean(&lab.store());
}

#[test]
fn undoing_one_session_keeps_the_others_work() {
    let lab = Lab::new();
    let text = (1..=20).map(|n| format!("line {n}\n")).collect::<String>();
    lab.write("shared", &text);
    lab.write("own", "x\n");
    lab.step("a", "m1", "a1", |lab| lab.write("shared", text.replace("line 2\n", "A was here\n")));
    lab.step("b", "m1", "b1", |lab| {
        let now = lab.read("shared");
        lab.write("shared", now.replace("line 18\n", "B was here\n"));
        lab.write("only-b", "b\n");
    });
    lab.step("a", "m2", "a2", |lab| lab.write("own", "A again\n"));
    let report = lab.undo_with(&UndoScope::Session, &of("a")).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("shared"), text.replace("line 18\n", "B was here\n"));
    assert_eq!((lab.read("only-b"), lab.read("own")), ("b\n".into(), "x\n".into()));
}

#[test]
fn the_users_edits_between_and_after_survive() {
    let lab = Lab::new();
    lab.write("code", "one\ntwo\nthree\nfour\nfive\n");
    lab.write("notes", "mine\n");
    lab.step("s", "m1", "1", |lab| lab.write("code", "ONE\ntwo\nthree\nfour\nfive\n"));
    lab.write("notes", "mine, edited while the model thinks\n");
    lab.write("code", "ONE\ntwo\nthree\nfour\nFIVE by the user\n");
    lab.write("new-of-user", "keep me\n");
    lab.undo();
    assert_eq!(lab.read("code"), "one\ntwo\nthree\nfour\nFIVE by the user\n");
    assert_eq!(lab.read("notes"), "mine, edited while the model thinks\n");
    assert_eq!(lab.read("new-of-user"), "keep me\n");
    let kinds: Vec<_> = lab.workspace().log(10).unwrap().iter().map(|op| op.kind).collect();
    use OperationKind::{Baseline, Outside, Step, Undo};
    assert_eq!(kinds, [Undo, Outside, Step, Baseline]);
}

#[test]
fn a_turn_without_changes_takes_nothing_of_the_user_back() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "plan", "1", |_| ());
    lab.write("a", "the user's\n");
    let result = lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default());
    assert!(matches!(result, Err(Error::NothingToUndo)), "{result:?}");
    assert_eq!(lab.read("a"), "the user's\n");
}

#[test]
fn a_file_the_user_creates_after_a_failed_read_stays() {
    let lab = Lab::new();
    lab.write("a", "x\n");
    lab.step("s", "m", "1", |lab| assert!(!lab.exists("config")));
    lab.write("config", "the user's\n");
    lab.step("s", "m", "2", |lab| lab.write("a", "y\n"));
    lab.undo();
    assert_eq!((lab.read("config"), lab.read("a")), ("the user's\n".into(), "x\n".into()));
}

#[test]
fn everything_a_shell_does_is_taken_back() {
    let lab = Lab::new();
    lab.write("src/keep", "1\n");
    lab.write("src/moved", "2\n");
    lab.write("tool", "3\n");
    lab.write("secret", "4\n");
    lab.chmod("secret", 0o600);
    lab.link("tool", "link");
    std::fs::create_dir(lab.path("empty")).unwrap();
    let before = lab.manifest();
    lab.step("s", "m", "1", |lab| {
        let script = "mv src/moved elsewhere; rm -rf empty secret; chmod +x tool; rm link; \
                      ln -s other link; mkdir -p new/deep; echo x > new/deep/f; rm -rf src; echo file > src";
        crate::lab::run(&lab.root(), "bash", &["-c".as_ref(), script.as_ref()]);
    });
    let after = lab.manifest();
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_same(&lab.manifest(), &before, "everything back");
    lab.redo();
    assert_same(&lab.manifest(), &after, "and forth");
}

#[test]
fn a_conflict_keeps_the_users_bytes_and_force_takes_the_old() {
    let lab = Lab::new();
    lab.write("f", "one\n");
    lab.write("g", "one\n");
    lab.step("s", "m", "1", |lab| {
        lab.write("f", "agent\n");
        lab.write("g", "agent\n");
    });
    lab.write("f", "user\n");
    let report = lab.undo();
    assert_eq!(report.conflicts[0].path, tree_path("f"));
    assert_eq!((lab.read("f"), lab.read("g")), ("user\n".into(), "one\n".into()));
    let lab = Lab::new();
    lab.write("f", "one\n");
    lab.step("s", "m", "1", |lab| lab.write("f", "agent\n"));
    lab.write("f", "user\n");
    let options = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!(lab.read("f"), "one\n");
    lab.redo();
    assert_eq!(lab.read("f"), "user\n", "a forced undo is taken back exactly");
}

#[test]
fn what_is_left_of_a_step_can_be_taken_back_later() {
    let lab = Lab::new();
    lab.write("f", "one\n");
    lab.write("g", "one\n");
    lab.step("s", "m", "1", |lab| {
        lab.write("f", "agent\n");
        lab.write("g", "agent\n");
        lab.write("h", "agent\n");
    });
    let only = |path: &str| UndoOptions { paths: vec![tree_path(path)], ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &only("h")).unwrap();
    assert!(!lab.exists("h") && lab.read("g") == "agent\n");
    lab.write("f", "user\n");
    let report = lab.undo();
    assert_eq!((report.conflicts.len(), lab.read("g")), (1, "one\n".to_owned()));
    let result = lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default());
    assert!(matches!(result, Err(Error::NothingToUndo)), "it walks on");
    let force = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &force).unwrap();
    assert_eq!(lab.read("f"), "one\n", "the rest, when forced");
    assert!(matches!(lab.undo_with(&UndoScope::LastTurn, &force), Err(Error::NothingToUndo)));
}

#[test]
fn a_conflict_below_an_asked_directory_can_be_forced_later() {
    let lab = Lab::new();
    lab.write("dir/f", "one\n");
    lab.write("dir/g", "one\n");
    lab.step("s", "m", "1", |lab| {
        lab.write("dir/f", "agent\n");
        lab.write("dir/g", "agent\n");
    });
    lab.write("dir/f", "user\n");
    let only = UndoOptions { paths: vec![tree_path("dir")], ..UndoOptions::default() };
    let report = lab.undo_with(&UndoScope::LastTurn, &only).unwrap();
    assert_eq!((report.conflicts.len(), lab.read("dir/g")), (1, "one\n".to_owned()));
    let force = UndoOptions { force: true, ..only };
    lab.undo_with(&UndoScope::LastTurn, &force).unwrap();
    assert_eq!(lab.read("dir/f"), "one\n");
}

#[test]
fn a_step_of_a_dead_process_is_closed_and_holds_nobody_up() {
    let lab = Lab::new();
    let mut dead = start("dead", "m", "d");
    // Below, its start time is changed, as if the number now belonged to another process.
    dead.owner = Some(std::process::id());
    lab.begin(dead);
    let wt = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap().unwrap();
    let steps = wt.path().join("steps");
    let text = std::fs::read_to_string(&steps).unwrap();
    let at = text.find("\"started\":").unwrap() + 10;
    std::fs::write(&steps, format!("{}9{}", &text[..at], &text[at..])).unwrap();
    lab.write("by-the-dead", "x\n");
    lab.step("alive", "m", "1", |lab| lab.write("y", "1\n"));
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("y") && lab.exists("by-the-dead"));
    let steps = lab.workspace().steps().unwrap();
    assert!(steps[0].inferred && steps[0].info.session == "dead");
}

#[test]
fn permissions_that_all_files_share_are_taken_back_too() {
    let lab = Lab::new();
    for name in ["a", "b", "c"] {
        lab.write(name, "x\n");
    }
    let before = lab.manifest();
    lab.step("s", "m", "1", |lab| {
        for name in ["a", "b", "c"] {
            lab.chmod(name, 0o600);
        }
    });
    lab.undo();
    assert_same(&lab.manifest(), &before, "0644 again");
}

#[test]
fn only_conflicts_is_not_taken_back_and_says_so() {
    let lab = Lab::new();
    lab.write("f", "one\n");
    lab.step("s", "m", "1", |lab| lab.write("f", "agent\n"));
    lab.write("f", "user\n");
    let report = lab.undo();
    assert!(!report.is_complete());
    assert_eq!(report.after, None);
    assert_eq!(lab.undo().steps, ["1"], "it is still there to be taken back");
}

#[test]
fn a_step_in_the_middle_is_taken_out() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("b", "2\n"));
    lab.step("s", "m3", "3", |lab| lab.write("c", "3\n"));
    lab.undo_with(&UndoScope::Step { step: "2".into() }, &UndoOptions::default()).unwrap();
    assert!(!lab.exists("b") && lab.exists("c"));
    assert_eq!(lab.read("a"), "1\n");
    assert_eq!(lab.undo().steps, ["3"]);
    assert_eq!(lab.undo().steps, ["1"], "the one in the middle is not taken back twice");
}

#[test]
fn a_message_and_everything_after_it_goes() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let kept = lab.manifest();
    lab.step("s", "m2", "2", |lab| lab.write("a", "2\n"));
    lab.step("other", "x", "o", |lab| lab.write("o", "other\n"));
    lab.step("s", "m3", "3", |lab| lab.write("a", "3\n"));
    lab.undo_with(&UndoScope::From { message: "m2".into(), part: None }, &UndoOptions::default())
        .unwrap();
    assert_eq!((lab.read("a"), lab.read("o")), ("1\n".into(), "other\n".into()));
    drop(kept);
    let result = lab.undo_with(
        &UndoScope::From { message: "nope".into(), part: None },
        &UndoOptions::default(),
    );
    assert!(matches!(result, Err(Error::NoSuchMessage { .. })));
}

#[test]
fn selected_paths_only() {
    let lab = Lab::new();
    lab.step("s", "m", "1", |lab| {
        lab.write("dir/a", "x\n");
        lab.write("b", "x\n");
    });
    let options = UndoOptions { paths: vec![tree_path("dir")], ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert!(!lab.exists("dir") && lab.exists("b"));
}

#[test]
fn overlapping_steps_are_told_apart_by_what_they_name() {
    let lab = Lab::new();
    lab.write("x", "0\n");
    lab.write("y", "0\n");
    lab.write("z", "0\n");
    let mut one = start("a", "m", "a1");
    one.paths = vec![tree_path("x")];
    let mut two = start("b", "m", "b1");
    two.paths = vec![tree_path("y")];
    lab.begin(one);
    lab.begin(two);
    for path in ["x", "y", "z"] {
        lab.write(path, "1\n");
    }
    lab.end("a1");
    lab.end("b1");
    let report = lab.undo_with(&UndoScope::Session, &of("a")).unwrap();
    assert_eq!(report.conflicts[0].path, tree_path("z"), "shared work is told");
    let read = || (lab.read("x"), lab.read("y"), lab.read("z"));
    assert_eq!(read(), ("0\n".into(), "1\n".into(), "1\n".into()), "and stays");
    lab.undo_with(&UndoScope::Session, &of("b")).unwrap();
    assert_eq!(read(), ("0\n".into(), "0\n".into(), "1\n".into()));
}

#[test]
fn a_late_write_is_outside_and_not_the_next_steps() {
    let lab = Lab::new();
    lab.step("s", "m", "1", |lab| lab.write("a", "1\n"));
    lab.write("late", "by a surviving child\n");
    lab.step("s", "m", "2", |lab| lab.write("b", "2\n"));
    lab.undo();
    assert!(lab.exists("late") && !lab.exists("a") && !lab.exists("b"));
}

#[test]
fn an_interrupted_step_is_closed_by_the_next_turn_and_marked() {
    let lab = Lab::new();
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "half done\n");
    lab.step("s", "m2", "2", |lab| lab.write("b", "x\n"));
    let steps = lab.workspace().steps().unwrap();
    let seen: Vec<_> = steps.iter().map(|s| (s.info.step.as_str(), s.inferred)).collect();
    assert_eq!(seen, [("1", true), ("2", false)]);
    lab.undo();
    lab.undo();
    assert!(!lab.exists("a") && !lab.exists("b"), "an inferred step can be taken back too");
}

#[test]
fn beginning_twice_is_once_and_ending_what_is_not_open_is_an_error() {
    let lab = Lab::new();
    lab.begin(start("s", "m", "1"));
    lab.write("a", "x\n");
    lab.begin(start("s", "m", "1"));
    assert_eq!(lab.end("1"), [tree_path("a")]);
    let result = lab.workspace().end_step("1", &Progress::default());
    assert!(matches!(result, Err(Error::NoSuchStep { .. })));
}

#[test]
fn redo_after_new_work_merges() {
    let lab = Lab::new();
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n";
    lab.write("f", text);
    lab.step("s", "m1", "1", |lab| lab.write("f", text.replace("1\n", "one\n")));
    lab.undo();
    lab.step("s", "m2", "2", |lab| lab.write("f", text.replace("8\n", "eight\n")));
    lab.redo();
    assert_eq!(lab.read("f"), "one\n2\n3\n4\n5\n6\n7\neight\n");
}

#[test]
fn a_moved_head_is_recorded_and_only_told() {
    let lab = Lab::with_git(&[("a", "one\n")]);
    lab.track();
    lab.write("a", "two\n");
    lab.track();
    let head = lab.git(&["rev-parse", "HEAD"]);
    lab.step("s", "m", "1", |lab| {
        lab.git(&["commit", "-q", "-am", "the agent commits"]);
        lab.write("a", "three\n");
    });
    let moved = lab.git(&["rev-parse", "HEAD"]);
    let report = lab.undo();
    assert_eq!(
        report.git_hint.as_deref(),
        Some(format!("git reset --soft {}", head.trim()).as_str())
    );
    assert_eq!(lab.git(&["rev-parse", "HEAD"]), moved, "never run by us");
    assert_eq!(lab.read("a"), "two\n");
}

#[test]
fn a_preview_is_what_happens() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m", "1", |lab| lab.write("a", "1\n"));
    let before = lab.manifest();
    let workspace = lab.workspace();
    let preview = workspace
        .plan_undo(&UndoScope::LastTurn, &UndoOptions::default(), &Progress::default())
        .unwrap();
    assert_same(&lab.manifest(), &before, "a preview changes nothing");
    let options = UndoOptions { expected_plan: Some(preview.plan), ..UndoOptions::default() };
    let report = lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!(report.done, preview.done);
}

#[test]
fn sessions_are_listed() {
    let lab = Lab::new();
    lab.step("one", "m1", "1", |lab| lab.write("a", "1\n"));
    lab.step("two", "m1", "2", |lab| lab.write("b", "1\n"));
    lab.step("one", "m2", "3", |lab| lab.write("a", "2\n"));
    lab.undo();
    let sessions = lab.workspace().sessions().unwrap();
    let seen: Vec<_> = sessions.iter().map(|s| (s.session.as_str(), s.steps, s.undone)).collect();
    assert_eq!(seen, [("two", 1, 0), ("one", 2, 1)]);
    let shown = lab.store_git(&["log", "--all", "--format=%an: %s"]);
    assert!(shown.contains("agent: bash"), "{shown}");
}

/// What can happen while two agents and a user work.
#[derive(Clone, Debug)]
enum Event {
    /// A session writes its own line of a file.
    Step(usize, usize, u8),
    /// The user writes theirs.
    User(usize, u8),
    Undo(usize),
    Redo,
}

const SESSIONS: [&str; 2] = ["s0", "s1"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..2_usize, 0..3_usize, any::<u8>()).prop_map(|(s, f, b)| Event::Step(s, f, b)),
        2 => (0..3_usize, any::<u8>()).prop_map(|(f, b)| Event::User(f, b)),
        2 => (0..2_usize).prop_map(Event::Undo),
        1 => Just(Event::Redo),
    ]
}

/// Lines far apart belong to session 0, session 1 and the user, so that everything merges.
fn compose(lines: &[u8; 3]) -> String {
    let gap = "same\n".repeat(6);
    format!("{gap}s0 {}\n{gap}s1 {}\n{gap}user {}\n{gap}", lines[0], lines[1], lines[2])
}

fn lines_of(text: &str) -> [u8; 3] {
    let find = |prefix: &str| {
        text.lines().find_map(|line| line.strip_prefix(prefix)).unwrap().parse().unwrap()
    };
    [find("s0 "), find("s1 "), find("user ")]
}

fn check_events(events: &[Event]) {
    let lab = Lab::new();
    let files = ["f0", "f1", "f2"];
    let read = |lab: &Lab| files.map(|file| lines_of(&lab.read(file)));
    for file in files {
        lab.write(file, compose(&[0, 0, 0]));
    }
    lab.track();
    for (number, event) in events.iter().enumerate() {
        let before = read(&lab);
        match event {
            Event::Step(session, file, byte) => {
                lab.step(SESSIONS[*session], &format!("m{number}"), &format!("{number}"), |lab| {
                    let mut lines = before[*file];
                    lines[*session] = *byte;
                    lab.write(files[*file], compose(&lines));
                });
            }
            Event::User(file, byte) => {
                let mut lines = before[*file];
                lines[2] = *byte;
                lab.write(files[*file], compose(&lines));
            }
            Event::Undo(session) => {
                let result = lab.undo_with(&UndoScope::LastTurn, &of(SESSIONS[*session]));
                let after = read(&lab);
                match result {
                    Ok(report) => assert!(report.is_complete(), "{report:?}"),
                    Err(Error::NothingToUndo) => assert_eq!(after, before),
                    Err(error) => panic!("{error}"),
                }
                for (was, is) in before.iter().zip(&after) {
                    let other = 1 - session;
                    assert_eq!((was[other], was[2]), (is[other], is[2]), "only its own line moves");
                }
                if result_is_ok(&lab, &before, &after) {
                    let manifest = lab.manifest();
                    lab.redo();
                    assert_eq!(read(&lab), before, "redo returns the exact prior state");
                    lab.undo_with(&UndoScope::LastTurn, &of(SESSIONS[*session])).unwrap();
                    assert_same(&lab.manifest(), &manifest, "and undo again the same");
                }
            }
            Event::Redo => {
                let result = lab.workspace().redo(&UndoOptions::default(), &Progress::default());
                match result {
                    Ok(report) => {
                        let after = read(&lab);
                        for (was, is) in before.iter().zip(&after) {
                            assert!(report.conflicts.len() <= 3);
                            assert_eq!(was[2], is[2], "never the user's line");
                        }
                    }
                    Err(Error::NothingToRedo) => (),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    assert_fsck_clean(&lab.store());
}

/// Whether an undo changed something, so that a redo has something to bring back.
fn result_is_ok(_: &Lab, before: &[[u8; 3]; 3], after: &[[u8; 3]; 3]) -> bool {
    before != after
}

fn cases() -> u32 {
    if std::env::var_os("RUN_SLOW_TESTS").is_some() { 10_000 } else { 60 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_only_the_undone_sessions_bytes_move(
        events in proptest::collection::vec(event(), 1..25)
    ) {
        check_events(&events);
    }
}
