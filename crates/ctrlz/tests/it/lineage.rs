//! Forks, checkpoints, sub-agents, plans, blame, and lost or renamed files.

use std::os::unix::fs::MetadataExt;

use ctrlz::{
    BlameLine, CheckpointOptions, Error, Fork, ForkOptions, LookupError, OperationKind, Options,
    ParentTurn, Progress, RestoreError, RestoreOptions, Rewind, SessionError, SnapshotBefore,
    StepStart, UndoOptions, UndoScope, Workspace,
};

use crate::lab::{Lab, assert_fsck_clean, assert_same, git, manifest, tree_path};
use crate::sessions::{of, start};

impl Lab {
    fn fork(&self, session: &str, at: Option<&str>, name: &str) -> Fork {
        let options =
            ForkOptions { at: at.map(str::to_owned), session: Some(name.into()), into: None };
        self.workspace().fork(session, &options, &Progress::default()).unwrap()
    }

    /// Begins a step of a sub-agent that works for session `parent`.
    fn begin_child(&self, parent: &str, child: &str, message: &str, step: &str) {
        let mut begun: StepStart = start(child, message, step);
        begun.info.parent = Some(ParentTurn { session: parent.into(), message: None });
        self.begin(begun);
    }

    fn blame(&self, path: &str) -> Vec<(String, String)> {
        let who = |line: &BlameLine| match &line.origin.step {
            Some(step) => step.session.clone(),
            None => format!("{:?}", line.origin.kind).to_lowercase(),
        };
        let lines = self.workspace().blame(&tree_path(path), None).unwrap();
        lines.iter().map(|line| (line.text.clone(), who(line))).collect()
    }

    fn walk(&self, session: &str, messages: &[&str]) -> SnapshotBefore {
        let messages: Vec<String> = messages.iter().map(|message| (*message).to_owned()).collect();
        self.workspace().snapshot_before(session, &messages).unwrap()
    }
}

#[test]
fn a_nested_fork_at_a_shared_message_shares_the_earlier_history() {
    let lab = Lab::new();
    for number in 1..=3 {
        lab.step("s", &format!("m{number}"), &format!("{number}"), |lab| {
            lab.write(&format!("f{number}"), "x\n");
        });
    }
    lab.fork("s", None, "f");
    lab.fork("f", Some("m2"), "g");
    assert_eq!(lab.undo_with(&UndoScope::LastTurn, &of("g")).unwrap().steps, ["1"]);
    let result = lab.undo_with(&UndoScope::LastTurn, &of("g"));
    assert!(matches!(result, Err(Error::Session(SessionError::NothingToUndo))), "{result:?}");
    assert_eq!(lab.undo_with(&UndoScope::LastTurn, &of("f")).unwrap().steps, ["3"]);
}

#[test]
fn undo_in_a_fork_reaches_shared_history_but_not_later_steps_of_the_original() {
    let lab = Lab::new();
    for number in 1..=3 {
        lab.step("s", &format!("m{number}"), &format!("{number}"), |lab| {
            lab.write(&format!("f{number}"), "x\n");
        });
    }
    let fork = lab.fork("s", Some("m3"), "f");
    assert_eq!(fork.snapshot, lab.workspace().step("2").unwrap()[0].after);
    assert!(lab.exists("f3"), "no file of this work tree changes");
    lab.step("f", "g1", "4", |lab| lab.write("f4", "x\n"));
    lab.step("s", "m4", "5", |lab| lab.write("f5", "x\n"));
    let undone: Vec<String> = (0..3)
        .map(|_| lab.undo_with(&UndoScope::LastTurn, &of("f")).unwrap().steps.concat())
        .collect();
    assert_eq!(undone, ["4", "2", "1"]);
    let result = lab.undo_with(&UndoScope::LastTurn, &of("f"));
    assert!(matches!(result, Err(Error::Session(SessionError::NothingToUndo))), "{result:?}");
    assert!(lab.exists("f3") && lab.exists("f5"), "the original's own work stays");
    assert_eq!(lab.undo_with(&UndoScope::LastTurn, &of("s")).unwrap().steps, ["5"]);
    let sessions = lab.workspace().sessions(None).unwrap();
    let forked = sessions.iter().find(|session| session.session == "f").unwrap();
    assert_eq!(forked.forked.as_ref().unwrap().session, "s");
}

#[test]
fn a_nested_fork_shares_the_history_of_both_ancestors() {
    let lab = Lab::new();
    lab.step("s", "m1", "1", |lab| lab.write("f1", "x\n"));
    lab.fork("s", None, "f");
    lab.step("s", "m2", "2", |lab| lab.write("f2", "x\n"));
    lab.step("f", "g1", "3", |lab| lab.write("f3", "x\n"));
    lab.fork("f", None, "g");
    lab.step("f", "g2", "4", |lab| lab.write("f4", "x\n"));
    let undone: Vec<String> = (0..2)
        .map(|_| lab.undo_with(&UndoScope::LastTurn, &of("g")).unwrap().steps.concat())
        .collect();
    assert_eq!(undone, ["3", "1"]);
    assert!(lab.exists("f2") && lab.exists("f4"));
    lab.fork("g", Some("m1"), "h");
    let result = lab.undo_with(&UndoScope::LastTurn, &of("h"));
    assert!(
        matches!(result, Err(Error::Session(SessionError::NothingToUndo))),
        "it shares nothing: {result:?}"
    );
    let unknown = lab.workspace().fork("nobody", &ForkOptions::default(), &Progress::default());
    assert!(matches!(unknown, Err(Error::Session(SessionError::NoSuchSession { .. }))));
    let at = ForkOptions { at: Some("nope".into()), ..ForkOptions::default() };
    let unknown = lab.workspace().fork("s", &at, &Progress::default());
    assert!(matches!(unknown, Err(Error::Session(SessionError::NoSuchMessage { .. }))));
}

fn check_fork_into(lab: &Lab, at: &str, wanted: &crate::lab::Manifest) -> Workspace {
    let into = lab.dir().join("into/deep");
    let options =
        ForkOptions { at: Some(at.into()), session: Some("f".into()), into: Some(into.clone()) };
    let fork = lab.workspace().fork("s", &options, &Progress::default()).unwrap();
    assert!(fork.report.unwrap().is_complete());
    assert_same(&manifest(&into), wanted, "the files at the fork point");
    let there = Workspace::open(&fork.into.unwrap(), lab.options.clone()).unwrap();
    assert_eq!(there.store_path().unwrap().unwrap(), lab.store(), "the same project");
    there
}

#[test]
fn a_fork_into_a_directory_is_a_work_tree_of_the_same_project() {
    let lab = Lab::new();
    lab.write("dir/a", "0\n");
    lab.write("tool", "#!/bin/sh\n");
    lab.chmod("tool", 0o755);
    lab.write("secret", "s\n");
    lab.chmod("secret", 0o600);
    lab.link("tool", "link");
    std::fs::create_dir(lab.path("empty")).unwrap();
    lab.step("s", "m1", "1", |lab| lab.write("dir/a", "1\n"));
    let wanted = lab.manifest();
    lab.step("s", "m2", "2", |lab| {
        lab.write("dir/a", "2\n");
        lab.remove("secret");
    });
    let after = lab.manifest();
    let there = check_fork_into(&lab, "m2", &wanted);
    assert_same(&lab.manifest(), &after, "the original work tree is unchanged");
    for file in ["dir/a", "tool"] {
        let meta = there.root().join(file).metadata().unwrap();
        assert_eq!(meta.nlink(), 1, "{file} is a copy of its own");
    }
    // Work in the fork is undone in the fork only.
    let progress = Progress::default();
    there.begin_step(start("f", "g1", "3"), &progress).unwrap();
    std::fs::write(there.root().join("dir/a"), "there\n").unwrap();
    there.end_step("3", &Default::default(), &progress).unwrap();
    there.undo(&UndoScope::LastTurn, &UndoOptions::default(), &progress).unwrap();
    assert_same(&manifest(there.root()), &wanted, "undone in the fork");
    assert_same(&lab.manifest(), &after, "not undone in the original");
    lab.undo();
    assert_same(&lab.manifest(), &wanted, "the original log continues");
    assert_fsck_clean(&lab.store());
}

/// Records three turns of `s` with one of `other` in between, and forks `s` before its last turn
/// into a directory.
fn forked_into(lab: &Lab) -> Workspace {
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "0\n1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("b", "2\n"));
    lab.step("other", "n1", "o", |lab| lab.write("o", "other\n"));
    lab.step("s", "m3", "3", |lab| lab.write("a", "0\n1\n3\n"));
    let into = Some(lab.dir().join("fork"));
    let options = ForkOptions { at: Some("m3".into()), session: Some("f".into()), into };
    let fork = lab.workspace().fork("s", &options, &Progress::default()).unwrap();
    Workspace::open(&fork.into.unwrap(), lab.options.clone()).unwrap()
}

fn undo_there(there: &Workspace, options: &UndoOptions) -> Result<Vec<String>, Error> {
    there.undo(&UndoScope::LastTurn, options, &Progress::default()).map(|report| report.steps)
}

#[test]
fn undo_in_a_forked_directory_continues_into_shared_history() {
    for options in [of("f"), UndoOptions::default()] {
        let lab = Lab::new();
        let there = forked_into(&lab);
        let here = lab.manifest();
        let state = manifest(there.root());
        let progress = Progress::default();
        there.begin_step(start("f", "g1", "4"), &progress).unwrap();
        std::fs::write(there.root().join("c"), "4\n").unwrap();
        there.end_step("4", &Default::default(), &progress).unwrap();
        // Later turns and undos in the original do not affect the fork.
        lab.step("s", "m4", "5", |lab| lab.write("d", "5\n"));
        lab.undo_with(&UndoScope::Step { step: "2".into() }, &UndoOptions::default()).unwrap();
        lab.redo();
        lab.undo_with(&UndoScope::Step { step: "5".into() }, &UndoOptions::default()).unwrap();
        let undone: Vec<_> = (0..3).map(|_| undo_there(&there, &options).unwrap()).collect();
        assert_eq!(undone, [["4"], ["2"], ["1"]]);
        assert_eq!(std::fs::read_to_string(there.root().join("a")).unwrap(), "0\n");
        assert!(!there.root().join("b").exists() && there.root().join("o").exists());
        let none = undo_there(&there, &options);
        assert!(matches!(none, Err(Error::Session(SessionError::NothingToUndo))), "{none:?}");
        assert_same(&lab.manifest(), &here, "the original's files");
        for step in ["1", "2", "4"] {
            let redone = there.redo(&options, &progress).unwrap();
            assert_eq!(redone.steps, [step]);
        }
        let none = there.redo(&options, &progress);
        assert!(matches!(none, Err(Error::Session(SessionError::NothingToRedo))), "{none:?}");
        std::fs::remove_file(there.root().join("c")).unwrap();
        assert_same(&manifest(there.root()), &state, "redone");
        // The original still has all of its turns to undo.
        assert_eq!(lab.undo_with(&UndoScope::LastTurn, &of("s")).unwrap().steps, ["3"]);
        assert_eq!(lab.undo_with(&UndoScope::LastTurn, &of("s")).unwrap().steps, ["2"]);
        let sessions = there.sessions(None).unwrap();
        let names: Vec<&str> = sessions.iter().map(|one| one.session.as_str()).collect();
        assert_eq!(names, ["f"], "the original's session is not listed there");
    }
}

#[test]
fn a_fork_of_a_forked_directory_shares_the_same_history() {
    let lab = Lab::new();
    let there = forked_into(&lab);
    let progress = Progress::default();
    // At a message that both share, and at the newest state.
    for (at, name, undone) in [(Some("m2"), "g", vec!["1"]), (None, "h", vec!["2", "1"])] {
        let into = Some(lab.dir().join(name));
        let options = ForkOptions { at: at.map(str::to_owned), session: Some(name.into()), into };
        let fork = there.fork("f", &options, &progress).unwrap();
        let further = Workspace::open(&fork.into.unwrap(), lab.options.clone()).unwrap();
        assert_eq!(further.root().join("b").exists(), at.is_none());
        for step in undone {
            assert_eq!(undo_there(&further, &of(name)).unwrap(), [step]);
        }
        let none = undo_there(&further, &of(name));
        assert!(matches!(none, Err(Error::Session(SessionError::NothingToUndo))), "{none:?}");
        assert_eq!(std::fs::read_to_string(further.root().join("a")).unwrap(), "0\n");
    }
}

#[test]
fn a_session_in_a_forked_directory_is_reverted_to_a_shared_message() {
    let lab = Lab::new();
    let there = forked_into(&lab);
    let state = manifest(there.root());
    let progress = Progress::default();
    let boundary = ctrlz::Boundary { message: "m1".into(), part: None };
    let options = UndoOptions::default();
    let report = there.revert_to("f", &boundary, &options, &progress).unwrap();
    assert_eq!(report.steps, ["1", "2"]);
    assert!(!there.root().join("b").exists());
    there.unrevert("f", &options, &progress).unwrap();
    assert_same(&manifest(there.root()), &state, "unreverted");
}

#[test]
fn a_fork_into_a_nonempty_directory_is_refused() {
    let lab = Lab::new();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let into = lab.dir().join("taken");
    std::fs::create_dir(&into).unwrap();
    std::fs::write(into.join("mine"), "x\n").unwrap();
    let operations = lab.workspace().log(100).unwrap().len();
    let options = ForkOptions { into: Some(into.clone()), ..ForkOptions::default() };
    let result = lab.workspace().fork("s", &options, &Progress::default());
    assert!(matches!(result, Err(Error::Restore(RestoreError::NotEmpty { .. }))), "{result:?}");
    assert_eq!(manifest(&into).0.len(), 1);
    assert_eq!(lab.workspace().log(100).unwrap().len(), operations, "no fork is recorded");
}

#[test]
fn a_fork_shares_an_explicitly_configured_store() {
    let mut lab = Lab::new();
    lab.options = Options { store: Some(lab.dir().join("here")), ..lab.options.clone() };
    lab.write("a", "0\n");
    let wanted = lab.manifest();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    check_fork_into(&lab, "m1", &wanted);
}

#[test]
fn snapshot_before_finds_the_nearest_available_snapshot() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    let base = lab.hash();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let first = lab.hash();
    lab.write("a", "user\n");
    let edited = lab.hash();
    lab.step("s", "m2", "2", |lab| lab.write("a", "2\n"));
    let found = |walk: SnapshotBefore| match walk {
        SnapshotBefore::Found { message, snapshot, .. } => (message, snapshot),
        other => panic!("{other:?}"),
    };
    assert_eq!(found(lab.walk("s", &["m2"])), ("m2".into(), edited), "the start of the message");
    assert_eq!(found(lab.walk("s", &["talk", "m1"])), ("m1".into(), first), "an earlier message");
    assert_eq!(found(lab.walk("s", &["m1"])), ("m1".into(), base));
    assert_eq!(lab.walk("s", &["x", "y"]), SnapshotBefore::Nothing);
    assert_eq!(lab.walk("other", &["m1"]), SnapshotBefore::Nothing);
    lab.fork("s", Some("m2"), "f");
    assert_eq!(found(lab.walk("f", &["m1"])), ("m1".into(), base), "a fork shares it");
    assert_eq!(lab.walk("f", &["m2"]), SnapshotBefore::Nothing, "but not later messages");
}

#[test]
fn a_forked_directory_finds_the_snapshot_before_a_message_of_the_origin() {
    let lab = Lab::new();
    let there = forked_into(&lab);
    let walk = |message: &str| there.snapshot_before("f", &[message.to_owned()]).unwrap();
    let SnapshotBefore::Found { message, snapshot, .. } = walk("m2") else { panic!("not found") };
    let contents = there.files(&snapshot).unwrap().len();
    assert_eq!((message.as_str(), contents), ("m2", 1), "the start of the message");
    assert_eq!(walk("m3"), SnapshotBefore::Nothing, "but not later messages");
}

#[test]
fn a_fork_whose_directory_could_not_be_made_can_be_repeated() {
    let lab = Lab::new();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let into = lab.dir().join("fork");
    std::os::unix::fs::symlink("nowhere/at/all", &into).unwrap();
    let session = Some("f".to_owned());
    let options = ForkOptions { at: None, session, into: Some(into.clone()) };
    let fork = || lab.workspace().fork("s", &options, &Progress::default());
    assert!(fork().is_err());
    std::fs::remove_file(&into).unwrap();
    assert!(fork().unwrap().report.unwrap().is_complete());
    let again = lab.workspace().fork(
        "s",
        &ForkOptions { into: None, ..options.clone() },
        &Progress::default(),
    );
    assert!(matches!(again, Err(Error::Session(SessionError::SessionExists { .. }))), "{again:?}");
}

#[test]
fn checkpoints_are_named_labelled_pinned_and_pruned() {
    let lab = Lab::new();
    let make = |kind: &str, label: Option<&str>, pinned: bool, keep: usize| {
        let label = label.map(str::to_owned);
        let kind = kind.to_owned();
        let options =
            CheckpointOptions { kind, label, pinned, keep, ..CheckpointOptions::default() };
        lab.workspace().checkpoint(&options, &Progress::default()).unwrap()
    };
    lab.write("a", "0\n");
    let resume = make("resume", None, false, 100);
    lab.write("a", "1\n");
    let pinned = make("turn", Some("before the big change"), true, 100);
    lab.write("a", "2\n");
    let mut last = make("turn", Some("odd / name ~^:"), false, 100);
    let checkpoint = |name: &str| lab.workspace().find_checkpoint(name);
    assert_eq!(checkpoint("latest").unwrap().operation, last.operation);
    assert_eq!(checkpoint("resume").unwrap().operation, resume.operation);
    assert_eq!(checkpoint("before the big change").unwrap().snapshot, pinned.snapshot);
    assert_eq!(checkpoint(&last.name.clone()).unwrap().operation, last.operation);
    assert!(matches!(checkpoint("nope"), Err(Error::Lookup(LookupError::NoSuchCheckpoint { .. }))));
    for number in 0..4 {
        lab.write("a", format!("more {number}\n"));
        last = make("turn", None, false, 3);
    }
    let left = lab.workspace().checkpoints().unwrap();
    assert_eq!(left.len(), 4, "three, and the pinned one: {left:?}");
    assert!(left.iter().any(|checkpoint| checkpoint.operation == pinned.operation));
    assert_eq!(left.last().unwrap().operation, last.operation, "oldest first");
    assert_eq!(checkpoint("resume").unwrap().operation, resume.operation, "still named");
    assert_fsck_clean(&lab.store());
}

#[test]
fn plain_git_can_check_out_a_checkpoint() {
    let lab = Lab::new();
    lab.write("dir/a", "0\n");
    lab.write("tool", "x\n");
    lab.chmod("tool", 0o755);
    let wanted = lab.manifest();
    let made =
        lab.workspace().checkpoint(&CheckpointOptions::default(), &Progress::default()).unwrap();
    lab.write("dir/a", "1\n");
    lab.track();
    let there = lab.dir().join("there");
    std::fs::create_dir(&there).unwrap();
    let store = lab.store();
    let dir = ["--git-dir", store.to_str().unwrap(), "--work-tree", there.to_str().unwrap()];
    for args in [vec!["read-tree", &made.name], vec!["checkout-index", "-a", "-f"]] {
        git(&there, &[&dir[..], &["-c", "core.bare=false"], &args].concat());
    }
    assert_same(&manifest(&there), &wanted, "without ctrlz");
    lab.undo_checkpoint(&made.operation);
    assert_same(&lab.manifest(), &wanted, "with ctrlz");
}

impl Lab {
    fn undo_checkpoint(&self, operation: &str) {
        let point = ctrlz::Point::Operation(operation.into());
        let progress = Progress::default();
        self.workspace().restore(point, &RestoreOptions::default(), &progress).unwrap();
    }
}

#[test]
fn a_sub_agents_steps_belong_to_its_session_and_its_parents_turn() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    let before = lab.manifest();
    lab.begin(start("s", "m1", "own"));
    lab.write("own", "x\n");
    lab.end("own");
    lab.begin(start("s", "m1", "task"));
    lab.begin_child("s", "child", "c1", "c1");
    lab.write("one", "x\n");
    lab.end("c1");
    lab.begin_child("s", "child", "c2", "c2");
    lab.write("two", "x\n");
    lab.end("c2");
    lab.end("task");
    let all = lab.manifest();
    let steps = lab.workspace().steps().unwrap();
    let by: Vec<_> = steps.iter().map(|step| step.info.session.as_str()).collect();
    assert_eq!(by, ["s", "child", "child"], "credited to the child, not to the waiting parent");
    let report = lab.undo();
    assert_eq!(report.steps, ["own", "c1", "c2"], "one plan for the parent's turn");
    assert_same(&lab.manifest(), &before, "the whole turn is undone");
    lab.redo();
    assert_same(&lab.manifest(), &all, "redone");
    let report = lab.undo_with(&UndoScope::LastTurn, &of("child")).unwrap();
    assert!(report.steps.iter().all(|step| step.starts_with('c')), "{report:?}");
    assert!(lab.exists("own"), "only the child's work is undone");
    let session = lab.workspace().sessions(None).unwrap();
    let child = session.iter().find(|session| session.session == "child").unwrap();
    assert_eq!(child.parent.as_deref(), Some("s"));
}

#[test]
fn parallel_sub_agents_are_distinguished_by_the_paths_they_name() {
    let lab = Lab::new();
    lab.begin(start("s", "m1", "task"));
    for (child, path) in [("c1", "one"), ("c2", "two")] {
        let mut begun = start(child, "m", child);
        begun.info.parent = Some(ParentTurn { session: "s".into(), message: None });
        begun.paths = vec![tree_path(path)];
        lab.begin(begun);
    }
    lab.write("one", "x\n");
    lab.write("two", "x\n");
    lab.end("c1");
    lab.end("c2");
    lab.end("task");
    lab.undo_with(&UndoScope::Session, &of("c1")).unwrap();
    assert!(!lab.exists("one") && lab.exists("two"));
    lab.undo_with(&UndoScope::Session, &of("s")).unwrap();
    assert!(!lab.exists("two"), "the rest of the turn");
}

#[test]
fn a_plan_is_applied_by_its_hash_and_refused_when_stale() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.write("elsewhere", "0\n");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let (workspace, progress) = (lab.workspace(), Progress::default());
    let undo = Rewind::Undo { scope: UndoScope::LastTurn, options: UndoOptions::default() };
    let plan = workspace.plan(&undo, &progress).unwrap();
    lab.write("a", "1\nmoved\n");
    let stale = workspace.apply(&plan.plan, false, &progress);
    assert!(matches!(stale, Err(Error::Restore(RestoreError::StalePlan))), "{stale:?}");
    assert_eq!(lab.read("a"), "1\nmoved\n");
    lab.write("a", "1\n");
    lab.write("elsewhere", "1\n");
    let done = workspace.apply(&plan.plan, false, &progress).unwrap();
    assert_eq!(done.done, plan.done, "paths outside the plan may change");
    lab.write("elsewhere", "0\n");
    assert_same(&lab.manifest(), &before, "applied");
    let unknown = workspace.apply(&lab.hash(), false, &progress);
    assert!(matches!(unknown, Err(Error::Lookup(LookupError::UnknownPlan { .. }))));
}

#[test]
fn applying_a_plan_that_removes_most_files_needs_confirmation() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.step("s", "m1", "1", |lab| {
        for number in 0..200 {
            lab.write(&format!("made/{number}"), "x\n");
        }
    });
    let (workspace, progress) = (lab.workspace(), Progress::default());
    let undo = Rewind::Undo { scope: UndoScope::LastTurn, options: UndoOptions::default() };
    let plan = workspace.plan(&undo, &progress).unwrap();
    let refused = workspace.apply(&plan.plan, false, &progress);
    assert!(matches!(refused, Err(Error::Restore(RestoreError::MassChange { .. }))), "{refused:?}");
    assert!(lab.exists("made/199"));
    workspace.apply(&plan.plan, true, &progress).unwrap();
    assert!(!lab.exists("made"));
}

#[test]
fn blame_credits_every_line_to_its_author_across_a_rename() {
    let lab = Lab::new();
    lab.write("old", "base\nx\nx\nx\n");
    lab.track();
    lab.step("one", "m", "1", |lab| lab.write("old", "base\nby one\nx\nx\nx\n"));
    lab.write("old", "base\nby one\nx\nx\nx\nby the user\n");
    lab.step("two", "m", "2", |lab| {
        lab.write("dir/keep", "");
        std::fs::rename(lab.path("old"), lab.path("dir/new")).unwrap();
    });
    lab.step("two", "m", "3", |lab| {
        lab.write("dir/new", "by two\nbase\nby one\nx\nx\nx\nby the user\n");
    });
    let expected = [
        ("by two", "two"),
        ("base", "baseline"),
        ("by one", "one"),
        ("x", "baseline"),
        ("x", "baseline"),
        ("x", "baseline"),
        ("by the user", "outside"),
    ];
    let expected = expected.map(|(text, who)| (text.to_owned(), who.to_owned()));
    assert_eq!(lab.blame("dir/new"), expected);
    let lines = lab.workspace().blame(&tree_path("dir/new"), None).unwrap();
    assert_eq!(lines[2].origin.path, tree_path("old"), "its path at that time");
    assert!(lab.workspace().blame(&tree_path("old"), None).is_err());
    lab.write("binary", b"\0\0\0");
    lab.track();
    let result = lab.workspace().blame(&tree_path("binary"), None);
    assert!(matches!(result, Err(Error::Lookup(LookupError::Binary { .. }))));
}

#[test]
fn lost_files_are_listed_and_recovered_in_their_last_version() {
    let lab = Lab::new();
    lab.write("dir/a", "1\n");
    lab.write("dir/b", "1\n");
    lab.write("keep", "1\n");
    lab.chmod("dir/a", 0o600);
    lab.track();
    lab.write("dir/a", "2\n");
    lab.step("s", "m", "1", |lab| lab.remove("dir"));
    lab.write("dir/b", "made again\n");
    lab.track();
    let lost = lab.workspace().lost_files().list().unwrap();
    let paths: Vec<String> = lost.iter().map(|lost| lost.path.to_string()).collect();
    assert_eq!(paths, ["dir/a"], "a recreated file is not lost");
    assert_eq!(lost[0].step.as_ref().unwrap().step, "1");
    let (options, progress) = (RestoreOptions::default(), Progress::default());
    lab.workspace().lost_files().recover(&tree_path("dir"), &options, &progress).unwrap();
    assert_eq!((lab.read("dir/a"), lab.mode("dir/a")), ("2\n".into(), 0o600));
    assert_eq!(lab.read("dir/b"), "made again\n");
    assert!(lab.workspace().lost_files().list().unwrap().is_empty());
    let nothing = lab.workspace().lost_files().recover(&tree_path("keep"), &options, &progress);
    assert!(matches!(nothing, Err(Error::Lookup(LookupError::NothingLost { .. }))));
    lab.remove("keep");
    lab.workspace().lost_files().recover(&tree_path("keep"), &options, &progress).unwrap();
    assert!(lab.exists("keep"), "a file deleted just now is recovered too");
    let versions = lab.workspace().versions(&tree_path("dir/a")).unwrap();
    let seen: Vec<_> = versions.iter().map(|version| version.content.is_some()).collect();
    assert_eq!(seen, [true, false, true, true], "newest first, the deletion among them");
}

#[test]
fn undoing_a_rename_merges_later_edits_into_the_old_file() {
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let lab = Lab::new();
    lab.write("old", text);
    lab.step("s", "m", "1", |lab| {
        std::fs::rename(lab.path("old"), lab.path("new")).unwrap();
    });
    lab.write("new", text.replace("9\n", "nine\n"));
    let after = lab.manifest();
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("old"), text.replace("9\n", "nine\n"), "the user's edit is in it");
    assert!(!lab.exists("new"));
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn undoing_a_rename_keeps_both_files_if_later_edits_conflict() {
    let lab = Lab::new();
    let text = "1\n2\n3\n4\n5\n6\n";
    lab.write("old", text);
    lab.step("s", "m", "1", |lab| {
        lab.remove("old");
        lab.write("new", text.replace("1\n", "agent\n"));
    });
    lab.write("new", text.replace("1\n", "user\n"));
    let report = lab.undo();
    assert_eq!(report.conflicts[0].path, tree_path("new"));
    assert_eq!(lab.read("new"), text.replace("1\n", "user\n"), "the user's file stays");
    assert_eq!(lab.read("old"), text, "the old file is restored");
    let kinds: Vec<_> = lab.workspace().log(1).unwrap().iter().map(|op| op.kind).collect();
    assert_eq!(kinds, [OperationKind::Undo]);
    lab.redo();
    assert!(!lab.exists("old"));
    assert_eq!(lab.read("new"), text.replace("1\n", "user\n"));
}
