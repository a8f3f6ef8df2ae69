//! Options of undo, redo, plans and forks of a session, and requests that are refused.

use ctrlz::{
    Error, ForkOptions, OperationKind, Progress, RestoreError, SessionError, StepInfo, StepStart,
    TimelineQuery, UndoOptions, UndoScope,
};

use crate::lab::{Lab, tree_path};

impl Lab {
    fn record_step(&self, session: &str, step: &str, paths: &[&str], work: impl FnOnce()) {
        let info = StepInfo {
            session: session.into(),
            message: Some(step.into()),
            step: step.into(),
            ..StepInfo::default()
        };
        let paths = paths.iter().copied().map(tree_path).collect();
        let start = StepStart { info, paths, ..StepStart::default() };
        self.workspace().begin_step(start, &Progress::default()).unwrap();
        work();
        self.workspace().end_step(step, &Default::default(), &Progress::default()).unwrap();
    }
}

fn of(session: &str) -> UndoOptions {
    UndoOptions { session: Some(session.into()), ..UndoOptions::default() }
}

#[test]
fn redo_by_session_name_reverses_the_undo_of_that_session() {
    let lab = Lab::new();
    let progress = Progress::default();
    lab.record_step("s", "1", &[], || lab.write("a", "x"));
    lab.record_step("t", "2", &[], || lab.write("b", "x"));
    lab.workspace().undo(&UndoScope::LastTurn, &of("s"), &progress).unwrap();
    lab.workspace().undo(&UndoScope::LastTurn, &of("t"), &progress).unwrap();
    let redone = lab.workspace().redo(&of("s"), &progress).unwrap();
    assert_eq!(redone.steps, ["1"]);
    assert!(lab.exists("a") && !lab.exists("b"));
    let again = lab.workspace().redo(&of("s"), &progress);
    assert!(matches!(again, Err(Error::Session(SessionError::NothingToRedo))), "{again:?}");
    let query = TimelineQuery { session: Some("t".into()), ..TimelineQuery::default() };
    let kinds: Vec<_> =
        lab.workspace().timeline(&query).unwrap().iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [OperationKind::Undo, OperationKind::Step]);
}

#[test]
fn a_plan_with_nothing_left_to_do_is_stale() {
    let lab = Lab::new();
    let progress = Progress::default();
    lab.write("f", "one\n");
    lab.record_step("s", "1", &[], || lab.write("f", "two\n"));
    let plan = lab.workspace().plan(&crate::sessions::last_turn(&of("s")), &progress).unwrap().plan;
    lab.write("f", "mine\n");
    let applied = lab.workspace().apply(&plan, false, &progress);
    assert!(matches!(applied, Err(Error::Restore(RestoreError::StalePlan))), "{applied:?}");
    assert_eq!(lab.read("f"), "mine\n");
}

#[test]
fn undo_restores_a_named_file_in_an_ignored_directory() {
    let lab = Lab::new();
    lab.write(".gitignore", "/out/\n");
    lab.write("out/f", "one\n");
    lab.record_step("s", "1", &["out/f", "out/new"], || {
        lab.write("out/f", "two\n");
        lab.write("out/new", "new\n");
    });
    let report =
        lab.workspace().undo(&UndoScope::LastTurn, &of("s"), &Progress::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("out/f"), "one\n");
    assert!(!lab.exists("out/new"));
    lab.workspace().redo(&UndoOptions::default(), &Progress::default()).unwrap();
    assert_eq!((lab.read("out/f").as_str(), lab.read("out/new").as_str()), ("two\n", "new\n"));
}

#[test]
fn an_undo_that_interrupts_closes_the_open_step() {
    let lab = Lab::new();
    let progress = Progress::default();
    let info = StepInfo { session: "s".into(), step: "1".into(), ..StepInfo::default() };
    let start = StepStart { info, ..StepStart::default() };
    lab.workspace().begin_step(start, &progress).unwrap();
    lab.write("a", "x");
    let options = UndoOptions { interrupt: true, unclear: true, ..UndoOptions::default() };
    lab.workspace().undo(&UndoScope::LastTurn, &options, &progress).unwrap();
    assert!(!lab.exists("a"));
    assert!(lab.workspace().step("1").unwrap().iter().all(|record| record.inferred));
    let ended = lab.workspace().end_step("1", &Default::default(), &progress);
    assert!(matches!(ended, Err(Error::Session(SessionError::NoSuchStep { .. }))), "{ended:?}");
}

#[test]
fn a_fork_needs_an_unused_id_and_a_directory_outside_the_work_tree() {
    let lab = Lab::new();
    lab.record_step("s", "1", &[], || lab.write("a", "x"));
    let fork = |options| lab.workspace().fork("s", &options, &Progress::default());
    let named = |id: &str| ForkOptions { session: Some(id.into()), ..ForkOptions::default() };
    let into = |path| ForkOptions { into: Some(path), ..ForkOptions::default() };
    assert!(matches!(fork(named("s")), Err(Error::Session(SessionError::SessionExists { .. }))));
    fork(named("t")).unwrap();
    assert!(matches!(fork(named("t")), Err(Error::Session(SessionError::SessionExists { .. }))));
    for path in [lab.path("sub"), lab.path("sub/../other/deep")] {
        assert!(matches!(
            fork(into(path)),
            Err(Error::Restore(RestoreError::InsideWorkTree { .. }))
        ));
    }
    assert!(!lab.exists("sub"));
}

#[test]
fn a_damaged_snapshot_does_not_hide_the_timeline() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    lab.write("a", "two");
    lab.track();
    lab.write("a", "three");
    let lost = lab.track();
    lab.write("a", "four");
    lab.track();
    // Damages only the blob, because other objects of its pack are still needed.
    let packs = lab.store().join("objects/pack");
    let damaged = std::fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().path());
    let blob = lab.store_git(&["rev-parse", &format!("{}:a", lost.hash)]);
    for pack in damaged.filter(|path| path.extension().is_some_and(|ext| ext == "idx")) {
        let listed = lab.store_git(&["verify-pack", "-v", pack.to_str().unwrap()]);
        let Some(line) = listed.lines().find(|line| line.starts_with(blob.trim())) else {
            continue;
        };
        let offset: usize = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        let pack = pack.with_extension("pack");
        let mut bytes = std::fs::read(&pack).unwrap();
        for byte in &mut bytes[offset + 2..offset + 6] {
            *byte ^= 0xff;
        }
        lab.make_writable(&pack);
        std::fs::write(&pack, bytes).unwrap();
    }
    let timeline = lab.workspace().timeline(&TimelineQuery::default()).unwrap();
    let damaged: Vec<bool> = timeline.iter().map(|entry| entry.damaged).collect();
    assert_eq!(damaged, [true, true, false, false], "{timeline:?}");
}

impl Lab {
    /// Makes a read-only file of the store writable, so that the test can damage it.
    fn make_writable(&self, path: &std::path::Path) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Each command reads the paths of all open steps.
#[test]
fn the_paths_of_a_step_are_limited_in_total() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.write("late", "one");
    let dir = ["d".repeat(99).as_str(); 40].join("/");
    let many = (0..2_000).map(|at| tree_path(&format!("{dir}/{at}")));
    let paths = [tree_path("a")].into_iter().chain(many).chain([tree_path("late")]).collect();
    lab.begin(StepStart { paths, only_named: true, ..crate::sessions::start("s", "m", "1") });
    let wt = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap().unwrap();
    let bytes = wt.path().join("steps").metadata().unwrap().len();
    assert!(bytes < 2 << 20, "{bytes}");
    // Paths that were left out are not taken for the user's.
    lab.write("a", "two");
    lab.write("late", "two");
    lab.end("1");
    lab.undo();
    assert_eq!((lab.read("a"), lab.read("late")), ("one".into(), "one".into()));
}

#[test]
fn named_paths_that_are_too_long_are_ignored() {
    let lab = Lab::new();
    lab.write("file", "one");
    let workspace = lab.workspace();
    let long = "d/".repeat(3_000) + "file";
    let info = StepInfo { session: "s".into(), step: "1".into(), ..StepInfo::default() };
    let paths = vec![tree_path(&long), tree_path("file")];
    let start = StepStart { info, paths, ..StepStart::default() };
    workspace.begin_step(start, &Progress::default()).unwrap();
    let open = std::fs::read(workspace.signs().unwrap().unwrap().open_steps).unwrap();
    assert!(open.len() < 3_000 && open.windows(6).any(|part| part == b"\"file\""));
}

#[test]
fn ids_that_are_too_long_are_refused_and_labels_are_clipped() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    let long = "x".repeat(ctrlz::MAX_ID_BYTES + 1);
    let texts: [fn(&mut ctrlz::StepInfo) -> &mut Option<String>; 4] = [
        |info| &mut info.message,
        |info| &mut info.part,
        |info| &mut info.tool,
        |info| &mut info.who,
    ];
    for text in texts {
        let mut start = crate::sessions::start("s", "m", "1");
        *text(&mut start.info) = Some(long.clone());
        let refused = lab.workspace().begin_step(start, &Progress::default());
        assert!(
            matches!(refused, Err(Error::Session(SessionError::TooLong { .. }))),
            "{refused:?}"
        );
    }
    let session = crate::sessions::start(&long, "m", "1");
    let refused = lab.workspace().begin_step(session, &Progress::default());
    assert!(matches!(refused, Err(Error::Session(SessionError::TooLong { .. }))), "{refused:?}");
    let mut start = crate::sessions::start("s", "m", "1");
    start.info.label = Some("\u{e4}".repeat(10_000_000));
    lab.begin(start);
    lab.write("a", "2\n");
    lab.end("1");
    let label = lab.workspace().steps().unwrap()[0].info.label.clone().unwrap();
    assert_eq!(label.len(), ctrlz::MAX_ID_BYTES);
}

#[test]
fn undo_of_a_named_path_finds_the_step_that_changed_only_its_permissions() {
    let lab = Lab::new();
    lab.write("d/a", "1\n");
    lab.write("b", "1\n");
    lab.chmod("d/a", 0o644);
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.chmod("d/a", 0o600));
    lab.step("s", "m2", "2", |lab| lab.write("b", "AGENT\n"));
    let paths = vec![crate::lab::tree_path("d")];
    let options = UndoOptions { paths, ..UndoOptions::default() };
    let report =
        lab.workspace().undo(&UndoScope::LastTurn, &options, &Progress::default()).unwrap();
    assert_eq!(report.steps, ["1"]);
    assert_eq!((lab.mode("d/a") & 0o777, lab.read("b").as_str()), (0o644, "AGENT\n"));
}
