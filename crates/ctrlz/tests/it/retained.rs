//! History that retention keeps stays usable, and expired parts are reported.

use ctrlz::{
    CheckpointOptions, Error, OperationKind, Point, Progress, RestoreOptions, Retention,
    SessionError, TimelineQuery, UndoOptions, UndoScope,
};

use crate::lab::{Lab, assert_fsck_clean, exact, tree_path};

/// Number of operations in a segment of the log.
const SEGMENT: usize = 256;

/// Keeps the newest segment only.
fn newest_segment() -> Retention {
    Retention { keep_days: 0, ..Retention::default() }
}

impl Lab {
    fn expire(&self, retention: &Retention) {
        let report =
            self.workspace().maintenance().collect(retention, &Progress::default()).unwrap();
        assert!(report.dropped_operations > 0, "{report:?}");
    }

    fn pin(&self, label: &str) -> String {
        let options =
            CheckpointOptions { label: Some(label.into()), pinned: true, ..Default::default() };
        let checkpoint = self.workspace().checkpoint(&options, &Progress::default()).unwrap();
        checkpoint.operation
    }

    /// Records operations until the log has `count`.
    fn fill_log_up_to(&self, count: usize) {
        for number in self.workspace().log(10_000).unwrap().len()..count {
            self.write("counter", format!("{number}\n"));
            self.track();
        }
        assert_eq!(self.workspace().log(10_000).unwrap().len(), count);
    }
}

#[test]
fn a_pinned_checkpoint_is_restored_completely_after_its_segment_expired() {
    let lab = Lab::new();
    lab.write("f", "release\n");
    lab.chmod("f", 0o640);
    std::fs::create_dir(lab.path("empty")).unwrap();
    let operation = lab.pin("release");
    lab.fill_log_up_to(SEGMENT + 4);
    lab.write("f", "later\n");
    lab.chmod("f", 0o600);
    lab.write("created-since", "x\n");
    lab.remove("empty");
    lab.expire(&newest_segment());
    let workspace = lab.workspace();
    let log = workspace.log(10_000).unwrap();
    assert!(log.iter().all(|kept| kept.id != operation), "it expired from the log");
    let checkpoint = workspace.find_checkpoint("release").unwrap();
    assert_eq!((&checkpoint.operation, checkpoint.pinned), (&operation, true));
    let shown = workspace.find_operation(&operation, 10).unwrap();
    assert_eq!((shown.kind, shown.label.as_deref()), (OperationKind::Checkpoint, Some("release")));
    let point = Point::Operation(operation);
    let report = workspace.restore(point, &exact(), &Progress::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.read("f").as_str(), lab.mode("f")), ("release\n", 0o640));
    assert!(lab.path("empty").is_dir());
    assert!(!lab.exists("created-since") && !lab.exists("counter"), "{report:?}");
    assert_fsck_clean(&lab.store());
    // Restoring by hash gives the same permissions and empty directories.
    lab.remove("empty");
    lab.chmod("f", 0o600);
    let options = RestoreOptions::default();
    workspace.restore(checkpoint.snapshot, &options, &Progress::default()).unwrap();
    assert_eq!((lab.mode("f"), lab.path("empty").is_dir()), (0o640, true));
}

#[test]
fn thinning_keeps_the_name_and_the_pin_of_a_checkpoint() {
    let lab = Lab::new();
    lab.fill_log_up_to(100);
    let operation = lab.pin("early");
    lab.fill_log_up_to(SEGMENT + 4);
    lab.expire(&Retention { thin_days: 30, ..newest_segment() });
    let workspace = lab.workspace();
    let checkpoint = workspace.find_checkpoint("early").unwrap();
    assert_eq!((&checkpoint.operation, checkpoint.pinned), (&operation, true));
    let kept = workspace.log(10_000).unwrap();
    let kept = kept.iter().find(|kept| kept.id == operation).unwrap();
    assert_eq!((kept.kind, kept.details.pinned), (OperationKind::Checkpoint, true));
    let options = RestoreOptions::default();
    workspace.restore(Point::Operation(operation), &options, &Progress::default()).unwrap();
    assert_eq!(lab.read("counter"), "99\n");
    assert_fsck_clean(&lab.store());
}

/// Returns a lab in which session `s` added a line in an expired segment, and in three later steps.
fn half_expired() -> Lab {
    let lab = Lab::new();
    lab.write("f", "old\n");
    lab.step("s", "m0", "0", |lab| lab.write("f", "old\n0\n"));
    lab.fill_log_up_to(SEGMENT);
    lab.step("s", "m1", "1", |lab| lab.write("f", "old\n0\n1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("f", "old\n0\n1\n2\n"));
    lab.step("s", "m3", "3", |lab| lab.write("f", "old\n0\n1\n2\n3\n"));
    lab.expire(&newest_segment());
    lab
}

#[test]
fn log_and_sessions_omit_steps_whose_previous_state_has_expired() {
    let lab = half_expired();
    let timeline = lab.workspace().timeline(&TimelineQuery::default()).unwrap();
    let offered: Vec<&str> =
        timeline.iter().flat_map(|entry| &entry.steps).map(|step| &*step.info.step).collect();
    assert_eq!(offered, ["3", "2"]);
    assert_eq!(timeline.last().unwrap().kind, OperationKind::Baseline);
    assert_eq!(lab.workspace().sessions(None).unwrap()[0].steps, 2);
    for step in offered {
        let scope = UndoScope::Step { step: step.to_owned() };
        let report = lab.undo_with(&scope, &UndoOptions::default()).unwrap();
        assert!(report.is_complete(), "{report:?}");
    }
    assert_eq!(lab.read("f"), "old\n0\n1\n");
    let gone = lab.undo_with(&UndoScope::Step { step: "1".into() }, &UndoOptions::default());
    assert!(matches!(gone, Err(Error::Session(SessionError::NoSuchStep { .. }))), "{gone:?}");
}

#[test]
fn undoing_a_session_reports_its_expired_steps() {
    let lab = half_expired();
    let report = lab.undo_with(&UndoScope::Session, &UndoOptions::default()).unwrap();
    assert_eq!(report.steps, ["2", "3"]);
    assert_eq!(lab.read("f"), "old\n0\n1\n");
    let expired: Vec<Option<&str>> =
        report.expired.iter().map(|one| one.step.as_ref().map(|step| &*step.step)).collect();
    assert_eq!(expired, [None, Some("1")]);
    assert!(!report.is_complete());
    assert!(lab.redo().is_complete());
    // The last turn is retained completely.
    assert!(lab.undo().is_complete());
}

#[test]
fn undoing_a_fully_retained_session_reports_no_expired_steps() {
    let lab = Lab::new();
    lab.step("other", "m0", "0", |lab| lab.write("f", "0\n"));
    lab.fill_log_up_to(SEGMENT);
    lab.step("other", "m1", "1", |lab| lab.write("f", "1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("g", "2\n"));
    lab.expire(&newest_segment());
    let options = UndoOptions { session: Some("s".into()), ..UndoOptions::default() };
    let report = lab.undo_with(&UndoScope::Session, &options).unwrap();
    assert_eq!(report.steps, ["2"]);
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn blame_credits_no_step_with_lines_that_are_older_than_the_log() {
    let lab = half_expired();
    let lines = lab.workspace().blame(&tree_path("f"), None).unwrap();
    let origins: Vec<_> = lines
        .iter()
        .map(|line| (line.origin.expired, line.origin.step.as_ref().map(|step| &*step.step)))
        .collect();
    let older = (true, None);
    assert_eq!(origins, [older, older, older, (false, Some("2")), (false, Some("3"))]);
    let versions = lab.workspace().versions(&tree_path("f")).unwrap();
    assert_eq!(versions.last().unwrap().step, None);
    // Lines that existed when recording began keep the baseline as their origin.
    let fresh = Lab::new();
    fresh.write("f", "first\n");
    fresh.track();
    let lines = fresh.workspace().blame(&tree_path("f"), None).unwrap();
    assert_eq!((lines[0].origin.kind, lines[0].origin.expired), (OperationKind::Baseline, false));
}

#[test]
fn blame_credits_no_step_with_lines_of_a_thinned_day() {
    let lab = Lab::new();
    lab.write("f", "base\n");
    lab.track();
    lab.step("s", "m0", "0", |lab| lab.write("f", "base\nagent\n"));
    lab.fill_log_up_to(SEGMENT + 4);
    lab.step("s", "m1", "1", |lab| lab.write("g", "agent\n"));
    lab.expire(&Retention { thin_days: 30, ..newest_segment() });
    let lines = lab.workspace().blame(&tree_path("f"), None).unwrap();
    assert_eq!((lines[0].origin.kind, lines[0].origin.expired), (OperationKind::Baseline, false));
    assert_eq!((&lines[1].origin.step, lines[1].origin.expired), (&None, true));
}

#[test]
fn undo_in_a_forked_directory_reports_expired_shared_history() {
    let lab = Lab::new();
    lab.write("f", "0\n");
    lab.step("s", "m1", "1", |lab| lab.write("f", "1\n"));
    lab.step("s", "m2", "2", |lab| lab.write("f", "2\n"));
    let into = Some(lab.dir().join("fork"));
    let options = ctrlz::ForkOptions { at: Some("m2".into()), session: Some("f".into()), into };
    let fork = lab.workspace().fork("s", &options, &Progress::default()).unwrap();
    let there = ctrlz::Workspace::open(&fork.into.unwrap(), lab.options.clone()).unwrap();
    lab.fill_log_up_to(SEGMENT + 4);
    lab.expire(&newest_segment());
    let progress = Progress::default();
    let undone = there.undo(&UndoScope::LastTurn, &UndoOptions::default(), &progress);
    assert!(
        matches!(&undone, Err(Error::Session(SessionError::SharedExpired { session })) if session == "s"),
        "{undone:?}"
    );
    let step = crate::sessions::start("f", "g1", "3");
    there.begin_step(step, &progress).unwrap();
    std::fs::write(there.root().join("f"), "3\n").unwrap();
    there.end_step("3", &Default::default(), &progress).unwrap();
    // The fork's own turn can be undone. The whole session reaches beyond the retained history.
    let (scope, options) = (UndoScope::Session, crate::sessions::of("f"));
    let all = there.plan(&ctrlz::Rewind::Undo { scope, options }, &progress).unwrap();
    assert_eq!((all.steps.as_slice(), all.expired.len()), (&["3".to_owned()][..], 1));
    let report = there.undo(&UndoScope::LastTurn, &UndoOptions::default(), &progress).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(std::fs::read_to_string(there.root().join("f")).unwrap(), "1\n");
}
