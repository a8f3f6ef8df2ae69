//! Steps, undo and redo: undo reverses the changes of one session and keeps all others.

use ctrlz::{
    Error, OperationKind, Progress, Rewind, SessionError, StepInfo, StepStart, TreePath,
    UndoOptions, UndoReport, UndoScope,
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
        self.workspace().end_step(step, &Default::default(), &Progress::default()).unwrap().files
    }

    /// Records one tool call from beginning to end.
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

/// Returns the request to undo the last turn.
pub(crate) fn last_turn(options: &UndoOptions) -> Rewind {
    Rewind::Undo { scope: UndoScope::LastTurn, options: options.clone() }
}

#[test]
fn undo_and_redo_move_by_one_turn_at_a_time() {
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
    assert_eq!(lab.undo().steps, ["1", "2"], "the next undo covers all steps of the turn before");
    assert_same(&lab.manifest(), &states[0], "two turns back");
    assert!(matches!(
        lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default()),
        Err(Error::Session(SessionError::NothingToUndo))
    ));
    lab.redo();
    assert_same(&lab.manifest(), &after_first, "one turn forward");
    lab.redo();
    assert_same(&lab.manifest(), &after_second, "two turns forward");
    let result = lab.workspace().redo(&UndoOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::Session(SessionError::NothingToRedo))));
    assert_eq!(lab.undo().steps, ["3"], "undone again");
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
fn undo_keeps_user_edits_made_after_the_step() {
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
fn undoing_a_turn_without_changes_keeps_user_edits() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "plan", "1", |_| ());
    lab.write("a", "the user's\n");
    let result = lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default());
    assert!(matches!(result, Err(Error::Session(SessionError::NothingToUndo))), "{result:?}");
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
fn undo_reverses_every_change_of_a_shell_command() {
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
    assert_same(&lab.manifest(), &before, "undone");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn a_conflict_keeps_the_users_content_unless_forced() {
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
    assert_eq!(lab.read("f"), "user\n", "redo reverses a forced undo exactly");
}

#[test]
fn the_rest_of_a_partially_undone_step_can_be_undone_later() {
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
    let report = lab.undo();
    assert_eq!((report.conflicts.len(), report.done.len()), (1, 0), "the conflict is left again");
    let force = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &force).unwrap();
    assert_eq!(lab.read("f"), "one\n", "the rest, when forced");
    assert!(matches!(
        lab.undo_with(&UndoScope::LastTurn, &force),
        Err(Error::Session(SessionError::NothingToUndo))
    ));
}

#[test]
fn a_conflict_below_a_selected_directory_can_be_forced_later() {
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
fn a_step_of_a_dead_process_is_closed_and_blocks_no_other_step() {
    let lab = Lab::new();
    let mut dead = start("dead", "m", "d");
    // Its start time is changed below, as if the pid now belonged to another process.
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
fn undo_restores_permissions_that_all_files_share() {
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
fn an_undo_with_only_conflicts_is_reported_as_incomplete() {
    let lab = Lab::new();
    lab.write("f", "one\n");
    lab.step("s", "m", "1", |lab| lab.write("f", "agent\n"));
    lab.write("f", "user\n");
    let report = lab.undo();
    assert!(!report.is_complete());
    assert_eq!(report.after, None);
    assert_eq!(lab.undo().steps, ["1"], "the step can still be undone");
}

#[test]
fn a_step_in_the_middle_can_be_undone() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("b", "2\n"));
    lab.step("s", "m3", "3", |lab| lab.write("c", "3\n"));
    lab.undo_with(&UndoScope::Step { step: "2".into() }, &UndoOptions::default()).unwrap();
    assert!(!lab.exists("b") && lab.exists("c"));
    assert_eq!(lab.read("a"), "1\n");
    assert_eq!(lab.undo().steps, ["3"]);
    assert_eq!(lab.undo().steps, ["1"], "the step in the middle is not undone twice");
}

#[test]
fn undo_from_a_message_includes_all_later_turns_of_the_session() {
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
    assert!(matches!(result, Err(Error::Session(SessionError::NoSuchMessage { .. }))));
}

#[test]
fn undo_can_be_limited_to_selected_paths() {
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
fn overlapping_steps_are_distinguished_by_the_paths_they_name() {
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
    assert_eq!(report.conflicts[0].path, tree_path("z"), "shared work is reported");
    let read = || (lab.read("x"), lab.read("y"), lab.read("z"));
    assert_eq!(read(), ("0\n".into(), "1\n".into(), "1\n".into()), "and stays");
    lab.undo_with(&UndoScope::Session, &of("b")).unwrap();
    assert_eq!(read(), ("0\n".into(), "0\n".into(), "1\n".into()));
}

#[test]
fn shared_changes_of_parallel_steps_are_undone_with_the_turn() {
    let lab = Lab::new();
    lab.write("x", "0\n");
    lab.write("y", "0\n");
    lab.begin(start("a", "m", "a1"));
    lab.begin(start("a", "m", "a2"));
    lab.write("x", "1\n");
    lab.end("a1");
    lab.write("y", "1\n");
    lab.end("a2");
    let one = lab.undo_with(&UndoScope::Step { step: "a1".into() }, &of("a")).unwrap();
    assert_eq!(one.conflicts[0].path, tree_path("x"), "the other step may have made the change");
    assert!(lab.undo_with(&UndoScope::LastTurn, &of("a")).unwrap().is_complete());
    assert_eq!((lab.read("x"), lab.read("y")), ("0\n".into(), "0\n".into()));
}

#[test]
fn a_late_write_is_not_credited_to_the_next_step() {
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
    let options = UndoOptions { unclear: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert!(!lab.exists("a") && !lab.exists("b"), "an inferred step can be undone too");
}

#[test]
fn beginning_twice_is_idempotent_and_ending_a_closed_step_fails() {
    let lab = Lab::new();
    lab.begin(start("s", "m", "1"));
    lab.write("a", "x\n");
    lab.begin(start("s", "m", "1"));
    assert_eq!(lab.end("1"), [tree_path("a")]);
    let result = lab.workspace().end_step("1", &Default::default(), &Progress::default());
    assert!(matches!(result, Err(Error::Session(SessionError::NoSuchStep { .. }))));
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
fn a_user_edit_is_merged_with_the_undo_of_several_steps() {
    let lab = Lab::new();
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    lab.write("f", text);
    lab.step("s", "m", "1", |lab| lab.write("f", text.replace("1\n", "one\n")));
    lab.step("s", "m", "2", |lab| lab.write("f", lab.read("f").replace("5\n", "five\n")));
    lab.write("f", lab.read("f").replace("9\n", "user\n"));
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("f"), text.replace("9\n", "user\n"));
}

#[test]
fn a_moved_head_is_reported_but_not_reset() {
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
    assert_eq!(lab.git(&["rev-parse", "HEAD"]), moved, "the hint is never executed");
    assert_eq!(lab.read("a"), "two\n");
}

#[test]
fn an_undo_matches_its_preview() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m", "1", |lab| lab.write("a", "1\n"));
    let before = lab.manifest();
    let workspace = lab.workspace();
    let plan = last_turn(&UndoOptions::default());
    let preview = workspace.plan(&plan, &Progress::default()).unwrap();
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
    let sessions = lab.workspace().sessions(None).unwrap();
    let seen: Vec<_> = sessions.iter().map(|s| (s.session.as_str(), s.steps, s.undone)).collect();
    assert_eq!(seen, [("two", 1, 0), ("one", 2, 1)]);
    let shown = lab.store_git(&["log", "--all", "--format=%an: %s"]);
    assert!(shown.contains("agent: bash"), "{shown}");
}

/// An event while two agents and a user work.
#[derive(Clone, Debug)]
enum Event {
    /// An agent writes its own line of a file.
    Step(usize, usize, u8),
    /// The user writes the user's line of a file.
    User(usize, u8),
    /// An agent moves a file to its other name.
    Rename(usize),
    Undo(usize),
    ForcedUndo(usize),
    Redo,
    /// Reverts an agent's session to one of its messages, before or after the current boundary.
    RevertTo(usize, usize),
    Unrevert(usize),
    /// An agent continues in a fork of its session, possibly from an earlier message.
    Fork(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    let (agent, file) = (0..2_usize, 0..FILES.len());
    prop_oneof![
        8 => (agent.clone(), file.clone(), any::<u8>()).prop_map(|(s, f, b)| Event::Step(s, f, b)),
        4 => (file, any::<u8>()).prop_map(|(f, b)| Event::User(f, b)),
        2 => agent.clone().prop_map(Event::Rename),
        4 => agent.clone().prop_map(Event::Undo),
        1 => agent.clone().prop_map(Event::ForcedUndo),
        2 => Just(Event::Redo),
        3 => (agent.clone(), any::<usize>()).prop_map(|(s, m)| Event::RevertTo(s, m)),
        2 => agent.clone().prop_map(Event::Unrevert),
        1 => (agent, any::<usize>()).prop_map(|(s, m)| Event::Fork(s, m)),
    ]
}

/// Three ordinary files and an ignored one.
const FILES: [&str; 4] = ["f0", "f1", "f2", ".env"];
/// The two names between which a fifth file is moved.
const NAMES: [&str; 2] = ["r", "moved/r"];

/// Returns the text of a file. The lines of agent 0, agent 1 and the user are far apart, so that
/// all changes merge.
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

/// Two agents and a user who share a work tree.
struct Scenario {
    lab: Lab,
    /// Each agent's session, and the messages it knows.
    sessions: [String; 2],
    messages: [Vec<String>; 2],
    /// Whether an agent has forked. Its earlier work may then belong to another session.
    forked: [bool; 2],
    events: usize,
}

impl Scenario {
    fn open() -> Scenario {
        let lab = Lab::new();
        lab.write(".gitignore", ".env\n");
        for file in FILES.iter().chain(&NAMES[..1]) {
            lab.write(file, compose(&[0, 0, 0]));
        }
        lab.track();
        let sessions = ["s0".to_owned(), "s1".to_owned()];
        Scenario { lab, sessions, messages: Default::default(), forked: [false; 2], events: 0 }
    }

    fn read(&self) -> Vec<[u8; 3]> {
        FILES.iter().map(|file| lines_of(&self.lab.read(file))).collect()
    }

    fn names(&self) -> Vec<&'static str> {
        NAMES.into_iter().filter(|name| self.lab.exists(name)).collect()
    }

    fn step(&mut self, agent: usize, paths: &[&str], work: impl FnOnce(&Lab)) {
        let message = format!("m{}", self.events);
        let mut begun = start(&self.sessions[agent], &message, &message);
        begun.paths = paths.iter().map(|path| tree_path(path)).collect();
        self.lab.begin(begun);
        work(&self.lab);
        self.lab.end(&message);
        self.messages[agent].push(message);
    }

    fn apply(&mut self, event: &Event) {
        self.events += 1;
        let before = self.read();
        match *event {
            Event::Step(agent, file, byte) => self.step(agent, &[FILES[file]], |lab| {
                let mut lines = before[file];
                lines[agent] = byte;
                lab.write(FILES[file], compose(&lines));
            }),
            Event::User(file, byte) => {
                let mut lines = before[file];
                lines[2] = byte;
                self.lab.write(FILES[file], compose(&lines));
            }
            Event::Rename(agent) => {
                let [from] = self.names()[..] else { return };
                let to = NAMES[usize::from(from == NAMES[0])];
                self.step(agent, &[], |lab| {
                    std::fs::create_dir_all(lab.path("moved")).unwrap();
                    std::fs::rename(lab.path(from), lab.path(to)).unwrap();
                });
            }
            Event::Undo(agent) => self.undo(agent, &UndoOptions::default()),
            Event::ForcedUndo(agent) => {
                self.undo(agent, &UndoOptions { force: true, ..UndoOptions::default() });
            }
            Event::Redo => {
                let result =
                    self.lab.workspace().redo(&UndoOptions::default(), &Progress::default());
                assert!(
                    matches!(result, Ok(_) | Err(Error::Session(SessionError::NothingToRedo))),
                    "{result:?}"
                );
                for (was, is) in before.iter().zip(&self.read()) {
                    assert_eq!(was[2], is[2], "the user's line never changes");
                }
            }
            Event::RevertTo(agent, message) => self.revert(agent, message),
            Event::Unrevert(agent) => {
                let session = &self.sessions[agent];
                let (options, progress) = (UndoOptions::default(), Progress::default());
                let result = self.lab.workspace().unrevert(session, &options, &progress);
                self.check_only(agent, &before);
                assert!(
                    matches!(
                        result,
                        Ok(_) | Err(Error::Session(SessionError::NothingReverted { .. }))
                    ),
                    "{result:?}"
                );
            }
            Event::Fork(agent, message) => self.fork(agent, message),
        }
    }

    /// Asserts that only the lines of one agent have changed.
    fn check_only(&self, agent: usize, before: &[[u8; 3]]) {
        for (was, is) in before.iter().zip(&self.read()) {
            let other = 1 - agent;
            assert_eq!((was[other], was[2]), (is[other], is[2]), "only its own line changes");
        }
        assert!(!self.names().is_empty(), "the moved file still exists");
    }

    fn undo(&self, agent: usize, options: &UndoOptions) {
        let before = (self.read(), self.lab.manifest());
        let session = Some(self.sessions[agent].clone());
        let options = UndoOptions { session, ..options.clone() };
        let result = self.lab.undo_with(&UndoScope::LastTurn, &options);
        if !(options.force && self.forked[agent]) {
            self.check_only(agent, &before.0);
        }
        let report = match result {
            Ok(report) => report,
            Err(Error::Session(SessionError::NothingToUndo)) => {
                assert_same(&self.lab.manifest(), &before.1, "nothing to undo");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let of_files = |path: &TreePath| !NAMES.iter().any(|name| *path == tree_path(name));
        let torn = report.conflicts.iter().any(|conflict| of_files(&conflict.path));
        assert!(!torn || self.forked[agent], "{report:?}");
        if report.after.is_none() {
            return;
        }
        let after = self.lab.manifest();
        let asked = of(&self.sessions[agent]);
        self.lab.workspace().redo(&asked, &Progress::default()).unwrap();
        assert_same(&self.lab.manifest(), &before.1, "redo returns the exact prior state");
        self.lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
        assert_same(&self.lab.manifest(), &after, "undo again gives the same state");
    }

    fn revert(&self, agent: usize, message: usize) {
        let (session, messages) = (&self.sessions[agent], &self.messages[agent]);
        if messages.is_empty() {
            return;
        }
        let before = (self.read(), self.lab.manifest());
        let message = messages[message % messages.len()].clone();
        let (options, progress) = (UndoOptions::default(), Progress::default());
        let workspace = self.lab.workspace();
        let pending = workspace.revert_state(session).unwrap();
        let boundary = ctrlz::Boundary { message, part: None };
        let report = workspace.revert_to(session, &boundary, &options, &progress).unwrap();
        self.check_only(agent, &before.0);
        let state = workspace.revert_state(session).unwrap().unwrap();
        assert_eq!((&state.boundary, &state.steps), (&boundary, &report.steps));
        if pending.is_none() {
            let after = self.lab.manifest();
            workspace.unrevert(session, &options, &progress).unwrap();
            assert_same(&self.lab.manifest(), &before.1, "unrevert returns the exact prior state");
            workspace.revert_to(session, &state.boundary, &options, &progress).unwrap();
            assert_same(&self.lab.manifest(), &after, "revert again gives the same state");
        }
    }

    fn fork(&mut self, agent: usize, message: usize) {
        let messages = &mut self.messages[agent];
        if messages.is_empty() {
            return;
        }
        let at = message % (messages.len() + 1);
        let options = ctrlz::ForkOptions {
            at: messages.get(at).cloned(),
            session: Some(format!("s{agent}.{}", self.events)),
            into: None,
        };
        let before = self.lab.manifest();
        let session = &self.sessions[agent];
        let fork = self.lab.workspace().fork(session, &options, &Progress::default()).unwrap();
        assert_same(&self.lab.manifest(), &before, "a fork changes no file");
        messages.truncate(at);
        self.sessions[agent] = fork.session;
        self.forked[agent] = true;
    }
}

fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or(xtask::many(16, 10_000) as u32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn undo_and_revert_change_only_lines_of_their_own_session(
        events in proptest::collection::vec(event(), 1..20)
    ) {
        let mut row = xtask::Row::of(9, "sequences of sessions, undo, redo, revert and fork");
        let mut scenario = Scenario::open();
        events.iter().for_each(|event| scenario.apply(event));
        assert_fsck_clean(&scenario.lab.store());
        row.done();
    }
}

#[test]
fn a_revert_can_be_moved_forward_after_another_session_worked() {
    let lab = Lab::new();
    lab.write("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    lab.write("b", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    lab.step("A", "m1", "1", |lab| lab.write("b", "AGENT\n2\n3\n4\n5\n6\n7\n8\n9\n"));
    lab.step("A", "m2", "2", |lab| lab.write("a", "AGENT\n2\n3\n4\n5\n6\n7\n8\n9\n"));
    let (options, progress) = (UndoOptions::default(), Progress::default());
    let boundary = |message: &str| ctrlz::Boundary { message: message.into(), part: None };
    lab.workspace().revert_to("A", &boundary("m1"), &options, &progress).unwrap();
    lab.step("B", "m3", "3", |lab| lab.write("a", "1\n2\n3\n4\nOTHER\n6\n7\n8\n9\n"));
    let report = lab.workspace().revert_to("A", &boundary("m2"), &options, &progress).unwrap();
    assert_eq!(report.steps, ["2"], "{report:?}");
    let state = lab.workspace().revert_state("A").unwrap().unwrap();
    assert_eq!((state.boundary, state.steps), (boundary("m2"), report.steps.clone()), "{report:?}");
}
