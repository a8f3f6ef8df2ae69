//! Whose change is it? Named paths, the time that a tool ran, refusals, interruptions, sub-agents.

use std::time::Duration;

use ctrlz::{
    ConflictReason, OperationKind, ParentTurn, Progress, StepEnd, StepInfo, StepStart, UndoOptions,
    UndoScope,
};

use crate::lab::{Lab, tree_path};
use crate::sessions::{of, start};

fn naming(start: StepStart, path: &str) -> StepStart {
    StepStart { paths: vec![tree_path(path)], ..start }
}

fn edit_of(start: StepStart, path: &str) -> StepStart {
    StepStart { only_named: true, ..naming(start, path) }
}

fn end_with(lab: &Lab, step: &str, end: StepEnd) {
    lab.workspace().end_step_with(step, &end, &Progress::default()).unwrap();
}

fn sub_agent(message: &str, step: &str) -> StepStart {
    let parent = ParentTurn { session: "main".into(), message: Some(message.into()) };
    let start = start("main/sub", message, step);
    StepStart { info: StepInfo { parent: Some(parent), ..start.info }, ..start }
}

#[test]
fn an_edit_tool_owns_only_the_files_that_it_names() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("notes", "one\n");
    lab.begin(edit_of(start("s", "m1", "1"), "a"));
    lab.write("a", "AGENT\n");
    lab.write("notes", "user\n");
    lab.end("1");
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "user\n".into()));
}

#[test]
fn what_the_user_changes_while_two_edit_tools_run_is_nobodys() {
    let lab = Lab::new();
    for path in ["a", "b", "notes"] {
        lab.write(path, "one\n");
    }
    lab.begin(edit_of(start("s", "m1", "1"), "a"));
    lab.begin(edit_of(start("s", "m1", "2"), "b"));
    lab.write("a", "AGENT\n");
    lab.write("b", "AGENT\n");
    lab.write("notes", "user\n");
    lab.end("1");
    lab.end("2");
    assert!(lab.undo().is_complete());
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "one\n".into()));
    assert_eq!(lab.read("notes"), "user\n");
}

#[test]
fn edits_made_while_a_permission_question_is_open_are_the_users() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("notes", "one\n");
    lab.write("gone", "one\n");
    lab.write("dir/keep", "one\n");
    lab.begin(start("s", "m1", "1"));
    // The question stands: the user works on.
    lab.write("notes", "user\n");
    lab.write("new", "user\n");
    lab.remove("dir/keep");
    std::thread::sleep(Duration::from_millis(900));
    // The user says yes, and the tool runs.
    lab.write("a", "AGENT\n");
    lab.remove("gone");
    end_with(&lab, "1", StepEnd { duration: Some(Duration::from_millis(20)), refused: false });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.read("a"), lab.read("gone")), ("one\n".into(), "one\n".into()));
    assert_eq!((lab.read("notes"), lab.read("new")), ("user\n".into(), "user\n".into()));
    assert!(!lab.exists("dir/keep"));
}

#[test]
fn a_refused_tool_call_owns_nothing() {
    let lab = Lab::new();
    lab.write("notes", "one\n");
    lab.step("s", "m0", "0", |lab| lab.write("a", "AGENT\n"));
    lab.begin(naming(start("s", "m1", "1"), "notes"));
    lab.write("notes", "user\n");
    end_with(&lab, "1", StepEnd { duration: None, refused: true });
    let newest = lab.workspace().log(1).unwrap().remove(0);
    assert!(
        newest.kind != OperationKind::Step
            || newest.details.credits[0].paths.as_deref() == Some(&[])
    );
    assert_eq!(lab.undo().steps, ["0"], "the turn before it is undone");
    assert_eq!(lab.read("notes"), "user\n");
}

#[test]
fn what_an_interrupted_command_deleted_comes_back_and_the_users_edits_stay() {
    let lab = Lab::new();
    lab.write("docs/a", "one\n");
    lab.write("docs/deep/b", "one\n");
    lab.write("notes", "one\n");
    lab.begin(naming(start("s", "m1", "1"), "docs"));
    lab.remove("docs");
    // Interrupted: no event says so. The user goes on working.
    std::thread::sleep(Duration::from_millis(30));
    lab.write("notes", "user\n");
    lab.write("new", "user\n");
    let options = UndoOptions { interrupt: true, ..UndoOptions::default() };
    let report = lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!((lab.read("docs/a"), lab.read("docs/deep/b")), ("one\n".into(), "one\n".into()));
    assert_eq!((lab.read("notes"), lab.read("new")), ("user\n".into(), "user\n".into()));
    let unclear: Vec<String> = report
        .conflicts
        .iter()
        .filter(|conflict| conflict.reason == ConflictReason::Unclear)
        .map(|conflict| conflict.path.to_string())
        .collect();
    assert_eq!(unclear, ["new", "notes"], "{report:?}");
    assert!(!report.is_complete());
    // Naming a path takes it back.
    let named =
        UndoOptions { paths: vec![tree_path("notes")], unclear: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::Step { step: "1".into() }, &named).unwrap();
    assert_eq!((lab.read("notes"), lab.read("new")), ("one\n".into(), "user\n".into()));
}

#[test]
fn what_an_interrupted_command_changed_is_taken_back_when_asked() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.begin(start("s", "m1", "1"));
    std::thread::sleep(Duration::from_millis(30));
    lab.write("a", "AGENT\n");
    let options = UndoOptions { interrupt: true, unclear: true, ..UndoOptions::default() };
    assert!(lab.undo_with(&UndoScope::LastTurn, &options).unwrap().is_complete());
    assert_eq!(lab.read("a"), "one\n");
}

#[test]
fn a_later_event_of_the_turn_is_a_sign_that_the_command_still_ran() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    std::thread::sleep(Duration::from_millis(30));
    lab.begin(edit_of(start("s", "m1", "2"), "b"));
    lab.end("2");
    let options = UndoOptions { interrupt: true, ..of("s") };
    assert!(lab.undo_with(&UndoScope::LastTurn, &options).unwrap().is_complete());
    assert_eq!(lab.read("a"), "one\n");
}

#[test]
fn a_background_sub_agent_does_not_take_the_main_agents_work() {
    let lab = Lab::new();
    lab.write("lib", "one\n");
    lab.step("main", "m1", "task", |_| ());
    lab.begin(sub_agent("m1", "sub"));
    lab.begin(edit_of(start("main", "m2", "write"), "main.py"));
    lab.write("lib", "SUB\n");
    lab.write("main.py", "MAIN\n");
    lab.end("write");
    let report = lab.undo();
    assert_eq!(report.steps, ["write"], "{report:?}");
    assert!(!lab.exists("main.py"));
    assert_eq!(lab.read("lib"), "SUB\n");
}

#[test]
fn a_path_that_a_call_named_is_its_own_while_a_sub_agent_works() {
    let lab = Lab::new();
    lab.write("lib", "one\n");
    let task = StepStart { starts_agent: true, ..start("main", "m1", "task") };
    lab.begin(task);
    lab.begin(edit_of(start("main", "m1", "write"), "main.py"));
    lab.begin(sub_agent("m1", "sub"));
    lab.write("main.py", "MAIN\n");
    lab.write("lib", "SUB\n");
    for step in ["write", "sub", "task"] {
        lab.end(step);
    }
    let blame = lab.workspace().blame(&tree_path("main.py")).unwrap();
    assert!(format!("{:?}", blame[0].origin).contains("write"), "{blame:?}");
    let steps = lab.workspace().steps().unwrap();
    let of = |id: &str| steps.iter().find(|s| s.info.step == id).and_then(|s| s.paths.clone());
    assert_eq!(of("sub"), Some(vec![tree_path("lib")]), "the call that started it only waits");
}

#[test]
fn an_edit_before_the_tool_ran_stays_the_users_if_the_tool_only_changes_permissions() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("notes", "one\n");
    lab.chmod("notes", 0o644);
    lab.begin(start("s", "m1", "1"));
    lab.write("notes", "one\nuser\n");
    std::thread::sleep(Duration::from_millis(900));
    lab.write("a", "AGENT\n");
    // Moves the change time of `notes`, and writes nothing.
    lab.chmod("notes", 0o644);
    end_with(&lab, "1", StepEnd { duration: Some(Duration::from_millis(20)), refused: false });
    lab.undo();
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "one\nuser\n".into()));
}

#[test]
fn a_file_that_a_refused_call_names_is_not_the_work_of_another_open_step() {
    let lab = Lab::new();
    lab.write("notes", "one\n");
    lab.write("a", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    lab.begin(edit_of(start("s", "m1", "2"), "notes"));
    lab.write("notes", "user\n");
    end_with(&lab, "2", StepEnd { duration: None, refused: true });
    lab.end("1");
    lab.undo();
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "user\n".into()));
}

#[test]
fn a_named_directory_with_ignored_files_is_not_a_change() {
    let lab = Lab::with_git(&[(".gitignore", "*.log\n"), ("d/a", "one\n")]);
    lab.write("d/x.log", "log\n");
    lab.step("one", "m1", "1", |lab| lab.write("d/a", "AGENT\n"));
    lab.begin(edit_of(start("two", "m2", "2"), "d"));
    lab.write("other", "user\n");
    lab.end("2");
    let report = lab.undo();
    assert_eq!(report.steps, ["1"], "the step that named the directory changed nothing");
}
