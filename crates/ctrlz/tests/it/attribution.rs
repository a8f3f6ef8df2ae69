//! Attribution of changes: named paths, tool run times, refused calls, interruptions, sub-agents.

use std::time::Duration;

use ctrlz::{
    ConflictReason, FileEdit, OperationKind, ParentTurn, Progress, StepEnd, StepInfo, StepStart,
    UndoOptions, UndoScope,
};

use crate::lab::{Lab, tree_path};
use crate::sessions::{of, start};

fn naming(start: StepStart, path: &str) -> StepStart {
    StepStart { paths: vec![tree_path(path)], ..start }
}

fn edit_of(start: StepStart, path: &str) -> StepStart {
    StepStart { only_named: true, ..naming(start, path) }
}

fn end_with(lab: &Lab, step: &str, end: &StepEnd) {
    lab.workspace().end_step(step, end, &Progress::default()).unwrap();
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
fn user_edits_during_two_parallel_edit_tools_belong_to_neither() {
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
fn edits_made_while_a_permission_prompt_is_open_belong_to_the_user() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("notes", "one\n");
    lab.write("gone", "one\n");
    lab.write("dir/keep", "one\n");
    lab.begin(start("s", "m1", "1"));
    // The permission prompt is open and the user keeps working.
    lab.write("notes", "user\n");
    lab.write("new", "user\n");
    lab.remove("dir/keep");
    std::thread::sleep(Duration::from_millis(900));
    // The user allows the call and the tool runs.
    lab.write("a", "AGENT\n");
    lab.remove("gone");
    end_with(
        &lab,
        "1",
        &StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() },
    );
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
    end_with(&lab, "1", &StepEnd { refused: true, ..StepEnd::default() });
    let newest = lab.workspace().log(1).unwrap().remove(0);
    assert!(
        newest.kind != OperationKind::Step
            || newest.details.credits[0].paths.as_deref() == Some(&[])
    );
    assert_eq!(lab.undo().steps, ["0"], "the turn before it is undone");
    assert_eq!(lab.read("notes"), "user\n");
}

#[test]
fn undo_restores_files_deleted_by_an_interrupted_command_and_keeps_user_edits() {
    let lab = Lab::new();
    lab.write("docs/a", "one\n");
    lab.write("docs/deep/b", "one\n");
    lab.write("notes", "one\n");
    lab.begin(naming(start("s", "m1", "1"), "docs"));
    lab.remove("docs");
    // The command is interrupted without an event. The user keeps working.
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
    // An unclear path that is named explicitly is undone.
    let named =
        UndoOptions { paths: vec![tree_path("notes")], unclear: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::Step { step: "1".into() }, &named).unwrap();
    assert_eq!((lab.read("notes"), lab.read("new")), ("one\n".into(), "user\n".into()));
}

#[test]
fn unclear_changes_of_an_interrupted_command_are_undone_on_request() {
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
fn changes_before_a_later_event_of_the_turn_are_credited_to_the_open_command() {
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
fn a_background_sub_agent_is_not_credited_with_the_main_agents_work() {
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
fn a_named_path_is_credited_to_the_naming_call_while_a_sub_agent_works() {
    let lab = Lab::new();
    lab.write("lib", "one\n");
    let task = StepStart { starts_agent: Some(true), ..start("main", "m1", "task") };
    lab.begin(task);
    lab.begin(edit_of(start("main", "m1", "write"), "main.py"));
    lab.begin(sub_agent("m1", "sub"));
    lab.write("main.py", "MAIN\n");
    lab.write("lib", "SUB\n");
    for step in ["write", "sub", "task"] {
        lab.end(step);
    }
    let blame = lab.workspace().blame(&tree_path("main.py"), None).unwrap();
    assert!(format!("{:?}", blame[0].origin).contains("write"), "{blame:?}");
    let steps = lab.workspace().steps().unwrap();
    let of = |id: &str| steps.iter().find(|s| s.info.step == id).and_then(|s| s.paths.clone());
    assert_eq!(of("sub"), Some(vec![tree_path("lib")]), "the starting call is not credited");
}

#[test]
fn user_edits_before_the_tool_ran_survive_a_permission_only_change_by_the_tool() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("notes", "one\n");
    lab.chmod("notes", 0o644);
    lab.begin(start("s", "m1", "1"));
    lab.write("notes", "one\nuser\n");
    std::thread::sleep(Duration::from_millis(900));
    lab.write("a", "AGENT\n");
    // Updates the ctime of `notes` without writing to it.
    lab.chmod("notes", 0o644);
    end_with(
        &lab,
        "1",
        &StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() },
    );
    lab.undo();
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "one\nuser\n".into()));
}

#[test]
fn a_call_disowns_edits_that_a_snapshot_recorded_while_its_permission_question_was_open() {
    let lab = Lab::new();
    for path in ["a", "notes"] {
        lab.write(path, "one\n");
    }
    lab.begin(start("s", "m1", "1"));
    lab.write("notes", "one\nuser\n");
    lab.track();
    std::thread::sleep(Duration::from_millis(900));
    lab.write("a", "AGENT\n");
    let end = StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() };
    end_with(&lab, "1", &end);
    assert!(lab.undo().is_complete());
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "one\nuser\n".into()));
}

#[test]
fn undo_keeps_user_edits_that_a_snapshot_recorded_before_the_interruption_was_known() {
    let lab = Lab::new();
    for path in ["a", "gone", "named", "notes"] {
        lab.write(path, "one\n");
    }
    lab.begin(naming(start("s", "m1", "1"), "named"));
    lab.remove("gone");
    lab.write("named", "AGENT\n");
    // The command is interrupted without an event. The user keeps working, and something else takes
    // a snapshot.
    std::thread::sleep(Duration::from_millis(30));
    lab.write("notes", "user\n");
    lab.track();
    lab.write("a", "user\n");
    let options = UndoOptions { interrupt: true, ..UndoOptions::default() };
    let report = lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!((lab.read("gone"), lab.read("named")), ("one\n".into(), "one\n".into()));
    assert_eq!((lab.read("a"), lab.read("notes")), ("user\n".into(), "user\n".into()));
    let unclear: Vec<(String, ConflictReason)> = report
        .conflicts
        .iter()
        .map(|conflict| (conflict.path.to_string(), conflict.reason))
        .collect();
    let expected = ["a", "notes"].map(|path| (path.to_owned(), ConflictReason::Unclear));
    assert_eq!(unclear, expected, "{report:?}");
    let named =
        UndoOptions { paths: vec![tree_path("notes")], unclear: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::Step { step: "1".into() }, &named).unwrap();
    assert_eq!((lab.read("a"), lab.read("notes")), ("user\n".into(), "one\n".into()));
}

#[test]
fn closing_an_interrupted_step_keeps_edits_that_a_snapshot_recorded_while_it_was_open() {
    let lab = Lab::new();
    lab.write("notes", "one\n");
    lab.begin(start("s", "m1", "1"));
    std::thread::sleep(Duration::from_millis(30));
    lab.write("notes", "user\n");
    lab.track();
    lab.workspace().close_steps(&["1".into()], &Progress::default()).unwrap();
    let report = lab.undo();
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    assert_eq!(report.conflicts[0].reason, ConflictReason::Unclear);
    assert_eq!(lab.read("notes"), "user\n");
}

#[test]
fn a_file_named_by_a_refused_call_is_not_credited_to_another_open_step() {
    let lab = Lab::new();
    lab.write("notes", "one\n");
    lab.write("a", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    lab.begin(edit_of(start("s", "m1", "2"), "notes"));
    lab.write("notes", "user\n");
    end_with(&lab, "2", &StepEnd { refused: true, ..StepEnd::default() });
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

#[test]
fn a_refused_call_in_a_parallel_batch_disowns_what_another_calls_end_recorded_for_it() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("notes", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.begin(edit_of(start("s", "m1", "2"), "a"));
    lab.write("notes", "one\nuser\n");
    lab.write("a", "AGENT\n");
    lab.end("2");
    end_with(&lab, "1", &StepEnd { refused: true, ..StepEnd::default() });
    let report = lab.undo();
    assert_eq!(report.steps, ["2"], "{report:?}");
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "one\nuser\n".into()));
    let sessions = lab.workspace().sessions(None).unwrap();
    assert_eq!(sessions.len(), 1);
}

#[test]
fn a_call_disowns_edits_that_were_recorded_while_its_permission_question_was_open() {
    let lab = Lab::new();
    for path in ["a", "b", "notes"] {
        lab.write(path, "one\n");
    }
    lab.begin(start("s", "m1", "1"));
    lab.begin(edit_of(start("s", "m1", "2"), "a"));
    lab.write("notes", "one\nuser\n");
    lab.write("a", "AGENT\n");
    lab.end("2");
    std::thread::sleep(Duration::from_millis(900));
    lab.write("b", "AGENT\n");
    end_with(
        &lab,
        "1",
        &StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() },
    );
    lab.undo();
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "one\n".into()));
    assert_eq!(lab.read("notes"), "one\nuser\n");
}

#[test]
fn user_edits_of_an_edited_file_are_found_although_a_snapshot_recorded_them() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.begin(edit_of(start("s", "m1", "1"), "a"));
    lab.write("a", "one\nuser\n");
    // Another process records the edit while the permission prompt is open.
    lab.track();
    lab.write("a", "AGENT\nuser\n");
    let replaced = vec![("one\n".to_owned(), "AGENT\n".to_owned())];
    let edit = FileEdit { path: tree_path("a"), found: None, replaced };
    end_with(&lab, "1", &StepEnd { edits: vec![edit], ..StepEnd::default() });
    let blame = lab.workspace().blame(&tree_path("a"), None).unwrap();
    let kinds: Vec<OperationKind> = blame.iter().map(|line| line.origin.kind).collect();
    assert_eq!(kinds, [OperationKind::Step, OperationKind::Outside]);
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("a"), "one\nuser\n");
}

#[test]
fn an_edit_of_another_call_is_not_the_users_when_a_call_reports_the_text_that_it_found() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.begin(edit_of(start("s", "m1", "1"), "a"));
    lab.begin(edit_of(start("s", "m1", "2"), "a"));
    lab.write("a", "one\nFIRST\n");
    lab.write("a", "one\nFIRST\nSECOND\n");
    let found = Some("one\nFIRST\n".to_owned());
    let edit = FileEdit { path: tree_path("a"), found, replaced: Vec::new() };
    end_with(&lab, "2", &StepEnd { edits: vec![edit], ..StepEnd::default() });
    lab.end("1");
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("a"), "one\n");
}

#[test]
fn log_and_blame_show_user_edits_during_a_permission_prompt_as_the_users() {
    let lab = Lab::new();
    for path in ["a", "gone", "notes"] {
        lab.write(path, "one\n");
    }
    lab.begin(start("s", "m1", "1"));
    lab.write("notes", "user\n");
    lab.remove("gone");
    std::thread::sleep(Duration::from_millis(900));
    lab.write("a", "AGENT\n");
    end_with(
        &lab,
        "1",
        &StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() },
    );
    let workspace = lab.workspace();
    let newest = workspace.timeline(&ctrlz::TimelineQuery::default()).unwrap().remove(0);
    assert_eq!(newest.kind, OperationKind::Step);
    assert_eq!(newest.outside, [tree_path("gone"), tree_path("notes")]);
    let origin = |path: &str| workspace.blame(&tree_path(path), None).unwrap().remove(0).origin;
    assert_eq!((origin("a").kind, origin("a").step.is_some()), (OperationKind::Step, true));
    assert_eq!(origin("notes").kind, OperationKind::Outside);
    assert_eq!(workspace.lost_files().list().unwrap()[0].kind, OperationKind::Outside);
    assert_eq!(workspace.versions(&tree_path("notes")).unwrap()[0].kind, OperationKind::Outside);
    let report = lab.undo();
    assert_eq!(report.done.len(), 1, "undo tells the same: {report:?}");
    assert_eq!((lab.read("a"), lab.read("notes")), ("one\n".into(), "user\n".into()));
}

#[test]
fn changes_of_a_call_whose_end_is_reported_late_are_not_the_users() {
    let lab = Lab::new();
    for path in ["named", "other", "gone"] {
        lab.write(path, "one\n");
    }
    lab.begin(naming(start("s", "m1", "1"), "named"));
    lab.write("named", "AGENT\n");
    lab.write("other", "AGENT\n");
    lab.remove("gone");
    // A busy machine starts the hook late.
    std::thread::sleep(Duration::from_millis(1200));
    let end = StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() };
    end_with(&lab, "1", &end);
    let report = lab.undo();
    assert_eq!((lab.read("named"), lab.read("gone")), ("one\n".into(), "one\n".into()));
    // The user can have changed it during a permission prompt.
    assert_eq!(report.conflicts[0].path, tree_path("other"));
    assert_eq!(report.conflicts[0].reason, ConflictReason::Unclear);
    let forced = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &forced).unwrap();
    assert_eq!(lab.read("other"), "one\n");
}

#[test]
fn a_call_that_had_no_time_to_wait_owns_all_changes() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    std::thread::sleep(Duration::from_millis(400));
    let end = StepEnd { duration: Some(Duration::from_millis(20)), ..StepEnd::default() };
    end_with(&lab, "1", &end);
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("a"), "one\n");
}

#[test]
fn a_command_that_runs_beside_an_edit_of_the_same_file_owns_its_lines() {
    let lab = Lab::new();
    lab.write("a", "one\ntwo\nthree\nfour\nfive\n");
    lab.begin(start("s", "m1", "1"));
    lab.begin(edit_of(start("s", "m1", "2"), "a"));
    lab.write("a", "one\ntwo\nthree\nfour\nFORMATTED\n");
    lab.write("a", "EDITED\ntwo\nthree\nfour\nFORMATTED\n");
    let replaced = vec![("one\n".to_owned(), "EDITED\n".to_owned())];
    let edit = FileEdit { path: tree_path("a"), found: None, replaced };
    end_with(&lab, "2", &StepEnd { edits: vec![edit], ..StepEnd::default() });
    lab.end("1");
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("a"), "one\ntwo\nthree\nfour\nfive\n");
}

#[test]
fn a_command_beside_an_edit_of_a_background_sub_agent_owns_its_changes() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    // The call that started the sub-agent has ended.
    lab.begin(StepStart { starts_agent: Some(false), ..start("main", "m1", "1") });
    let edit = sub_agent("m1", "2");
    lab.begin(edit_of(edit, "b"));
    lab.write("a", "AGENT\n");
    lab.end("1");
    lab.write("b", "AGENT\n");
    lab.end("2");
    assert!(lab.undo().is_complete());
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "one\n".into()));
}

#[test]
fn files_that_the_user_deletes_after_an_undo_of_an_interrupted_command_stay_deleted() {
    let lab = Lab::new();
    lab.write("dir/file", "one\n");
    lab.write("old", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.remove("dir/file");
    // The command is interrupted without an event.
    let options = UndoOptions { interrupt: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!(lab.read("dir/file"), "one\n");
    lab.remove("old");
    lab.undo_with(&UndoScope::LastTurn, &options).ok();
    assert!(!lab.exists("old"));
}

#[test]
fn an_edit_that_failed_does_not_own_user_edits_made_while_it_waited() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.begin(edit_of(start("s", "m1", "1"), "a"));
    lab.write("a", "user\n");
    std::thread::sleep(Duration::from_millis(900));
    let duration = Some(Duration::from_millis(4));
    end_with(&lab, "1", &StepEnd { duration, failed: true, ..StepEnd::default() });
    lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default()).ok();
    assert_eq!(lab.read("a"), "user\n");
}

#[test]
fn a_refused_call_has_no_share_in_the_changes_of_a_parallel_one() {
    let lab = Lab::new();
    lab.begin(start("s", "m1", "1"));
    lab.begin(start("s", "m1", "2"));
    lab.write("made", "AGENT\n");
    lab.end("1");
    end_with(&lab, "2", &StepEnd { refused: true, ..StepEnd::default() });
    assert!(lab.undo().is_complete());
    assert!(!lab.exists("made"));
}
