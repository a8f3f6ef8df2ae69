//! Reverting a session to a message and unreverting it, with regression tests for every defect of
//! OpenCode's revert.

use ctrlz::{
    Boundary, ChangeStatus, Error, ForkOptions, OperationKind, ParentTurn, Progress, RestoreError,
    Rewind, SessionError, StepInfo, StepScope, StepStart, UndoOptions, UndoReport, UndoScope,
};

use crate::lab::{Lab, assert_fsck_clean, assert_same, run, tree_path};
use crate::sessions::{of, start};

fn to(message: &str) -> Boundary {
    Boundary { message: message.into(), part: None }
}

fn to_part(message: &str, part: &str) -> Boundary {
    Boundary { message: message.into(), part: Some(part.into()) }
}

impl Lab {
    fn try_revert(&self, boundary: &Boundary) -> Result<UndoReport, Error> {
        self.workspace().revert_to("s", boundary, &UndoOptions::default(), &Progress::default())
    }

    fn revert(&self, boundary: &Boundary) -> UndoReport {
        self.try_revert(boundary).unwrap()
    }

    fn unrevert(&self) -> UndoReport {
        self.try_unrevert().unwrap()
    }

    fn try_unrevert(&self) -> Result<UndoReport, Error> {
        self.workspace().unrevert("s", &UndoOptions::default(), &Progress::default())
    }

    /// Records the turns `m1` to `m3` of session `s`, each of which writes its number into `a` and
    /// creates a file. Returns the manifest before the first turn and after each one.
    fn three_turns(&self) -> Vec<crate::lab::Manifest> {
        self.write("a", "0\n");
        let mut states = vec![self.manifest()];
        for number in 1..=3 {
            self.step("s", &format!("m{number}"), &format!("{number}"), |lab| {
                lab.write("a", format!("{number}\n"));
                lab.write(&format!("own{number}"), "x\n");
            });
            states.push(self.manifest());
        }
        states
    }
}

#[test]
fn unrevert_deletes_files_that_the_revert_restored() {
    let lab = Lab::new();
    lab.write("keep.txt", "k\n");
    lab.write("one", "1\n");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.remove("keep.txt");
        lab.write("one", "2\n");
        lab.write("new/deep", "n\n");
    });
    let after = lab.manifest();
    lab.revert(&to("m1"));
    assert_same(&lab.manifest(), &before, "reverted");
    lab.unrevert();
    assert_same(&lab.manifest(), &after, "keep.txt is gone again");
    lab.revert(&to("m1"));
    assert_same(&lab.manifest(), &before, "a second revert starts from a clean state");
    lab.unrevert();
    assert_same(&lab.manifest(), &after, "and so does the second unrevert");
    assert_fsck_clean(&lab.store());
}

#[test]
fn unrevert_keeps_and_merges_user_edits_made_since_the_revert() {
    let lab = Lab::new();
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    lab.write("merged", text);
    lab.write("torn", "old\n");
    lab.write("unrelated", "u\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write("merged", text.replace("1\n", "one\n"));
        lab.write("torn", "agent\n");
    });
    lab.revert(&to("m1"));
    lab.write("merged", text.replace("9\n", "nine\n"));
    lab.write("torn", "user\n");
    lab.write("unrelated", "edited\n");
    lab.write("made", "by the user\n");
    let report = lab.unrevert();
    assert_eq!(lab.read("merged"), text.replace("1\n", "one\n").replace("9\n", "nine\n"));
    assert_eq!(lab.read("torn"), "user\n", "conflicting edits of the user stay");
    let reported: Vec<_> = report.conflicts.iter().map(|conflict| &conflict.path).collect();
    assert_eq!(reported, [&tree_path("torn")], "and are reported");
    assert_eq!(lab.read("unrelated"), "edited\n");
    assert_eq!(lab.read("made"), "by the user\n");
}

#[test]
fn an_unknown_message_or_part_is_an_error_and_touches_nothing() {
    let lab = Lab::new();
    let states = lab.three_turns();
    let operations = lab.workspace().log(100).unwrap().len();
    let result = lab.try_revert(&to("nope"));
    assert!(
        matches!(&result, Err(Error::Session(SessionError::NoSuchMessage { message })) if message == "nope")
    );
    let result = lab.try_revert(&to_part("m2", "nope"));
    assert!(
        matches!(&result, Err(Error::Session(SessionError::NoSuchPart { part, .. })) if part == "nope"),
        "{result:?}"
    );
    let result = lab.workspace().revert_to(
        "another session",
        &to("m2"),
        &UndoOptions::default(),
        &Progress::default(),
    );
    assert!(result.is_err(), "messages of another session are unknown");
    assert!(matches!(
        lab.try_unrevert(),
        Err(Error::Session(SessionError::NothingReverted { .. }))
    ));
    assert_same(&lab.manifest(), &states[3], "nothing is touched");
    assert_eq!(lab.workspace().log(100).unwrap().len(), operations, "nothing is recorded");
    assert_eq!(lab.workspace().revert_state("s").unwrap(), None);
}

#[test]
fn the_diff_of_a_message_and_of_a_session_is_not_empty() {
    let lab = Lab::new();
    lab.three_turns();
    let workspace = lab.workspace();
    let paths = |scope: &StepScope| -> Vec<String> {
        let changes = workspace.step_changes(scope).unwrap();
        changes.iter().map(|change| change.path.to_string()).collect()
    };
    assert_eq!(paths(&StepScope::Message("m2".into())), ["a", "own2"]);
    assert_eq!(paths(&StepScope::Session("s".into())), ["a", "own1", "own2", "own3"]);
    let mut text = Vec::new();
    let diffs = workspace.step_diff_full(&StepScope::Session("s".into())).unwrap();
    diffs.write_unified(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("-0\n+3\n"), "from before the first step to after the last:\n{text}");
    let full: Vec<_> = workspace
        .step_diff_full(&StepScope::Message("m3".into()))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!((full.len(), full[0].before.as_str(), full[0].after.as_str()), (2, "2\n", "3\n"));
    let unknown = workspace.step_changes(&StepScope::Message("nope".into()));
    assert!(matches!(unknown, Err(Error::Session(SessionError::NoSuchMessage { .. }))));
}

#[test]
fn the_session_diff_follows_revert_and_unrevert() {
    let lab = Lab::new();
    lab.three_turns();
    let of_session = || {
        let changes = lab.workspace().step_changes(&StepScope::Session("s".into())).unwrap();
        changes.iter().map(|change| change.path.to_string()).collect::<Vec<_>>()
    };
    lab.revert(&to("m2"));
    assert_eq!(of_session(), ["a", "own1"]);
    lab.unrevert();
    assert_eq!(of_session(), ["a", "own1", "own2", "own3"], "W19: recomputed after unrevert");
}

#[test]
fn shell_changes_are_reverted_without_a_git_repository() {
    let lab = Lab::new();
    lab.write("dir/moved", "m\n");
    lab.write("tool", "t\n");
    lab.link("tool", "link");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        let script = "mv dir/moved here; chmod +x tool; rm link; mkdir -p x/y; echo > x/y/z";
        run(&lab.root(), "bash", &["-c".as_ref(), script.as_ref()]);
    });
    let after = lab.manifest();
    lab.revert(&to("m1"));
    assert_same(&lab.manifest(), &before, "reverted without git and without named paths");
    lab.unrevert();
    assert_same(&lab.manifest(), &after, "unreverted");
}

#[test]
fn redo_still_works_after_a_prompt_committed_the_revert() {
    let lab = Lab::new();
    let states = lab.three_turns();
    lab.revert(&to("m2"));
    let state = lab.workspace().revert_state("s").unwrap().unwrap();
    assert_eq!(
        (state.messages, state.steps),
        (vec!["m2".into(), "m3".into()], vec!["2".into(), "3".into()])
    );
    lab.step("s", "m4", "4", |lab| lab.write("other", "later work\n"));
    assert_eq!(lab.workspace().revert_state("s").unwrap(), None, "the next prompt commits it");
    assert!(matches!(
        lab.try_unrevert(),
        Err(Error::Session(SessionError::NothingReverted { .. }))
    ));
    for options in [of("s"), UndoOptions::default()] {
        let preview =
            lab.workspace().plan(&Rewind::Redo { options }, &Progress::default()).unwrap();
        assert_eq!(preview.steps, ["2", "3"]);
    }
    lab.redo();
    assert_eq!(lab.read("other"), "later work\n");
    lab.remove("other");
    assert_same(&lab.manifest(), &states[3], "everything is redone beside the later work");
}

#[test]
fn redo_reverses_an_unrevert_of_a_user() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "AGENT\n"));
    let options = UndoOptions { by_person: true, ..UndoOptions::default() };
    let progress = Progress::default();
    lab.workspace().revert_to("s", &to("m1"), &options, &progress).unwrap();
    lab.workspace().unrevert("s", &options, &progress).unwrap();
    assert_eq!(lab.read("a"), "AGENT\n");
    assert!(lab.redo().is_complete());
    assert_eq!(lab.read("a"), "one\n");
    assert!(lab.workspace().unrevert("s", &options, &progress).unwrap().is_complete());
    assert_eq!(lab.read("a"), "AGENT\n");
}

#[test]
fn a_committed_revert_cannot_be_unreverted_but_redo_reverses_it() {
    let lab = Lab::new();
    let states = lab.three_turns();
    assert_eq!(lab.workspace().commit_revert("s").unwrap(), None, "nothing to commit");
    lab.revert(&to("m2"));
    let committed = lab.workspace().commit_revert("s").unwrap().unwrap();
    assert_eq!(committed.messages, ["m2", "m3"]);
    assert_eq!(committed.boundary, to("m2"));
    assert_same(&lab.manifest(), &states[1], "the files stay reverted");
    assert!(matches!(
        lab.try_unrevert(),
        Err(Error::Session(SessionError::NothingReverted { .. }))
    ));
    assert_eq!(lab.workspace().commit_revert("s").unwrap(), None, "committed only once");
    lab.redo();
    assert_same(&lab.manifest(), &states[3], "redo");
}

#[test]
fn a_revert_can_stop_at_a_part_of_a_message() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    let mut states = vec![lab.manifest()];
    for (message, part) in [("m1", "p1"), ("m2", "p1"), ("m2", "p2"), ("m2", "p3"), ("m3", "p1")] {
        let step = format!("{message}{part}");
        let mut begun = start("s", message, &step);
        begun.info.part = Some(part.into());
        lab.begin(begun);
        lab.write("a", format!("{step}\n"));
        lab.write(&step, "x\n");
        lab.end(&step);
        states.push(lab.manifest());
    }
    lab.revert(&to_part("m2", "p2"));
    assert_same(&lab.manifest(), &states[2], "m1 and the first part of m2 stay");
    let state = lab.workspace().revert_state("s").unwrap().unwrap();
    assert_eq!(state.boundary, to_part("m2", "p2"), "W17: boundary and files agree");
    assert_eq!(state.steps, ["m2p2", "m2p3", "m3p1"]);
    lab.revert(&to("m2"));
    assert_same(&lab.manifest(), &states[1], "then the whole message");
    lab.revert(&to_part("m2", "p3"));
    assert_same(&lab.manifest(), &states[3], "then only a later part");
    lab.unrevert();
    assert_same(&lab.manifest(), &states[5], "unreverted");
}

#[test]
fn the_boundary_moves_both_ways_and_unrevert_restores_the_initial_state() {
    let lab = Lab::new();
    let states = lab.three_turns();
    for boundary in [3, 1, 2, 3, 2, 1] {
        let message = format!("m{boundary}");
        lab.revert(&to(&message));
        assert_same(&lab.manifest(), &states[boundary - 1], &message);
        let state = lab.workspace().revert_state("s").unwrap().unwrap();
        assert_eq!(state.steps.len(), 4 - boundary);
        assert_eq!(state.boundary, to(&message));
        assert_eq!(
            state.before.to_string(),
            lab.workspace().step("3").unwrap()[0].after.to_string()
        );
    }
    lab.unrevert();
    assert_same(&lab.manifest(), &states[3], "exactly as before the first revert");
    assert!(lab.workspace().steps().unwrap().iter().all(|step| !step.undone));
    assert_eq!(lab.undo().steps, ["3"], "undo continues with the last turn");
}

#[test]
fn moving_the_boundary_keeps_user_edits_made_in_between() {
    let lab = Lab::new();
    let states = lab.three_turns();
    lab.revert(&to("m2"));
    lab.write("mine", "1\n");
    lab.revert(&to("m3"));
    assert!(lab.exists("own2") && !lab.exists("own3") && lab.exists("mine"));
    lab.write("mine", "2\n");
    lab.revert(&to("m1"));
    lab.unrevert();
    assert_eq!(lab.read("mine"), "2\n");
    lab.remove("mine");
    assert_same(&lab.manifest(), &states[3], "everything else is unreverted");
}

#[test]
fn reverting_a_busy_session_names_the_holder_until_it_is_interrupted() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let mut running = start("s", "m2", "2");
    running.owner = Some(std::process::id());
    lab.begin(running);
    lab.write("b", "half\n");
    let error = lab.try_revert(&to("m1")).unwrap_err();
    assert_eq!(error.code(), "session_busy");
    let process = format!("agent, process {}", std::process::id());
    assert!(
        matches!(&error, Error::Session(SessionError::SessionBusy { holder, step, .. }) if *holder == process && step == "2"),
        "{error}"
    );
    assert_eq!(lab.read("a"), "1\n");
    assert_eq!(lab.try_unrevert().unwrap_err().code(), "session_busy");
    let interrupt = UndoOptions { interrupt: true, ..UndoOptions::default() };
    lab.workspace().revert_to("s", &to("m1"), &interrupt, &Progress::default()).unwrap();
    assert_eq!((lab.read("a"), lab.exists("b")), ("0\n".into(), false), "the open step is undone");
    let steps = lab.workspace().steps().unwrap();
    let half = steps.iter().find(|step| step.info.step == "2").unwrap();
    assert!(half.inferred && half.undone);
    let result = lab.workspace().end_step("2", &Default::default(), &Progress::default());
    assert!(
        matches!(result, Err(Error::Session(SessionError::NoSuchStep { .. }))),
        "an interrupted step is closed"
    );
}

#[test]
fn another_sessions_open_step_does_not_make_this_one_busy() {
    let lab = Lab::new();
    let states = lab.three_turns();
    lab.begin(start("other", "x", "o"));
    lab.write("others", "work\n");
    lab.revert(&to("m2"));
    lab.end("o");
    assert_eq!(lab.read("others"), "work\n");
    let steps = lab.workspace().steps().unwrap();
    let other = steps.iter().filter(|step| step.info.session == "other").collect::<Vec<_>>();
    let undone: Vec<_> = other.iter().map(|step| step.undone).collect();
    assert_eq!(undone, [false]);
    lab.undo_with(&UndoScope::Session, &of("other")).unwrap();
    assert_same(&lab.manifest(), &states[1], "the revert was not credited to the open step");
}

#[test]
fn a_revert_keeps_changes_by_other_sessions_and_the_user() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    lab.step("other", "x", "o", |lab| lab.write("others", "work\n"));
    lab.write("mine", "user\n");
    lab.step("s", "m1", "2", |lab| lab.write("b", "2\n"));
    lab.revert(&to("m1"));
    assert_eq!((lab.read("a"), lab.exists("b")), ("0\n".into(), false));
    assert_eq!((lab.read("others"), lab.read("mine")), ("work\n".into(), "user\n".into()));
}

#[test]
fn a_revert_in_a_fork_leaves_the_originals_later_steps_alone() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("one", "1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("two", "2\n"));
    let options = ForkOptions { at: Some("m2".into()), session: Some("f".into()), into: None };
    lab.workspace().fork("s", &options, &Progress::default()).unwrap();
    lab.step("f", "f1", "3", |lab| lab.write("three", "3\n"));
    lab.step("s", "m3", "4", |lab| lab.write("four", "4\n"));
    let revert = |message: &str| {
        let boundary = to(message);
        let options = UndoOptions::default();
        lab.workspace().revert_to("f", &boundary, &options, &Progress::default())
    };
    assert!(
        matches!(revert("m2"), Err(Error::Session(SessionError::NoSuchMessage { .. }))),
        "m2 is not part of the fork"
    );
    revert("f1").unwrap();
    assert!(!lab.exists("three") && lab.exists("one") && lab.exists("two") && lab.exists("four"));
    revert("m1").unwrap();
    assert!(!lab.exists("one") && !lab.exists("three"), "shared history belongs to the fork too");
    assert!(lab.exists("two") && lab.exists("four"), "later steps of the original stay");
    lab.workspace().unrevert("f", &UndoOptions::default(), &Progress::default()).unwrap();
    assert!(["one", "two", "three", "four"].iter().all(|file| lab.exists(file)));
}

#[test]
fn a_message_without_changes_can_be_a_revert_boundary() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let kept = lab.manifest();
    lab.step("s", "talk", "2", |_| ());
    lab.step("s", "m3", "3", |lab| lab.write("a", "3\n"));
    let all = lab.manifest();
    let report = lab.revert(&to("talk"));
    assert_eq!(report.steps, ["3"]);
    assert_same(&lab.manifest(), &kept, "later changes are reverted");
    lab.unrevert();
    assert_same(&lab.manifest(), &all, "unreverted");
    lab.step("s", "last", "4", |_| ());
    let report = lab.revert(&to("last"));
    assert!(report.done.is_empty());
    let state = lab.workspace().revert_state("s").unwrap().unwrap();
    assert_eq!(state.boundary, to("last"), "W19: a revert without file changes is recorded");
    lab.unrevert();
    assert_eq!(lab.workspace().revert_state("s").unwrap(), None);
    assert_same(&lab.manifest(), &all, "nothing changed");
}

#[test]
fn revert_restores_a_file_that_became_ignored_in_the_turn() {
    let lab = Lab::new();
    lab.write("config", "the user's\n");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write("config", "the agent's\n");
        lab.write(".gitignore", "config\n");
    });
    let after = lab.manifest();
    lab.revert(&to("m1"));
    assert_same(&lab.manifest(), &before, "W10");
    lab.unrevert();
    assert_same(&lab.manifest(), &after, "unreverted");
}

#[test]
fn a_revert_changes_only_paths_that_the_session_changed() {
    let lab = Lab::with_git(&[("backend/b", "b\n"), ("frontend/f", "f\n")]);
    lab.step("s", "m1", "1", |lab| lab.write("frontend/f", "agent\n"));
    lab.write("backend/b", "the user's, never committed\n");
    lab.revert(&to("m1"));
    assert_eq!(lab.read("backend/b"), "the user's, never committed\n", "D5, T16");
    lab.write("backend/b", "edited again\n");
    lab.unrevert();
    assert_eq!(lab.read("backend/b"), "edited again\n", "D6");
    assert_eq!(lab.read("frontend/f"), "agent\n");
}

#[test]
fn a_revert_includes_the_sub_agents_of_the_turn() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let kept = lab.manifest();
    let mut task = start("s", "m2", "task");
    task.info.part = Some("p".into());
    lab.begin(task);
    let parent = Some(ParentTurn { session: "s".into(), message: None });
    let info = StepInfo { parent, ..start("child", "c1", "c").info };
    lab.begin(StepStart { info, ..StepStart::default() });
    lab.write("by-the-child", "x\n");
    lab.end("c");
    lab.end("task");
    let all = lab.manifest();
    for boundary in [to("m2"), to_part("m2", "p")] {
        let report = lab.revert(&boundary);
        assert_eq!(report.steps, ["c"], "{boundary:?}");
        assert_same(&lab.manifest(), &kept, "the child's work belongs to the turn");
        lab.unrevert();
        assert_same(&lab.manifest(), &all, "unreverted with the turn");
    }
}

#[test]
fn a_revert_plan_changes_nothing_and_is_applied_by_its_hash() {
    let lab = Lab::new();
    let states = lab.three_turns();
    let workspace = lab.workspace();
    let progress = Progress::default();
    let (session, options) = ("s".to_owned(), UndoOptions::default());
    let rewind = Rewind::RevertTo { session, boundary: to("m2"), options };
    let plan = workspace.plan(&rewind, &progress).unwrap();
    assert_same(&lab.manifest(), &states[3], "a plan changes nothing");
    assert_eq!(workspace.revert_state("s").unwrap(), None);
    let done = workspace.apply(&plan.plan, false, &progress).unwrap();
    assert_eq!(done.done, plan.done);
    assert_same(&lab.manifest(), &states[1], "applied");
    let (session, options) = ("s".to_owned(), UndoOptions::default());
    let plan = workspace.plan(&Rewind::Unrevert { session, options }, &progress).unwrap();
    lab.write("a", "moved\n");
    let stale = workspace.apply(&plan.plan, false, &progress);
    assert!(matches!(stale, Err(Error::Restore(RestoreError::StalePlan))), "{stale:?}");
    assert_eq!(lab.read("a"), "moved\n");
}

#[test]
fn the_log_records_revert_and_unrevert_operations() {
    let lab = Lab::new();
    lab.three_turns();
    lab.revert(&to("m3"));
    lab.unrevert();
    let log = lab.workspace().log(2).unwrap();
    assert_eq!((log[0].kind, log[1].kind), (OperationKind::Unrevert, OperationKind::Revert));
    assert_eq!(log[0].details.takes_back.as_ref(), Some(&log[1].id));
    assert_eq!(log[1].details.undone, ["3"]);
    let own = lab.workspace().step_changes(&StepScope::Step("3".into())).unwrap();
    assert_eq!(
        own.iter().map(|change| change.status()).collect::<Vec<_>>(),
        [ChangeStatus::Modified, ChangeStatus::Added]
    );
}

#[test]
fn redo_for_a_session_ignores_undos_of_other_sessions() {
    let lab = Lab::new();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    lab.step("other", "m1", "2", |lab| lab.write("b", "1\n"));
    lab.undo_with(&UndoScope::LastTurn, &of("s")).unwrap();
    lab.undo_with(&UndoScope::LastTurn, &of("other")).unwrap();
    let report = lab.workspace().redo(&of("s"), &Progress::default()).unwrap();
    assert_eq!(report.steps, ["1"], "the older undo, because it is this session's");
    assert!(lab.exists("a") && !lab.exists("b"));
    let result = lab.workspace().redo(&of("s"), &Progress::default());
    assert!(matches!(result, Err(Error::Session(SessionError::NothingToRedo))), "{result:?}");
}
