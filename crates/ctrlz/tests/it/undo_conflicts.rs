//! Conflicts stay retryable, and an undo covers only what happened before it.

use ctrlz::{Error, Progress, SessionError, StepStart, UndoOptions, UndoScope};

use crate::lab::{Lab, tree_path};
use crate::sessions::{last_turn, of, start};

fn try_redo(lab: &Lab) -> Result<ctrlz::UndoReport, Error> {
    lab.workspace().redo(&UndoOptions::default(), &Progress::default())
}

#[test]
fn an_undo_does_not_cover_what_a_running_step_writes_afterwards() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    assert_eq!(lab.undo().steps, ["1"]);
    assert_eq!(lab.read("a"), "one\n");
    lab.write("b", "AGENT\n");
    lab.end("1");
    let steps = lab.workspace().steps().unwrap();
    assert_eq!(steps.iter().map(|step| step.undone).collect::<Vec<_>>(), [true, false]);
    assert_eq!(lab.undo().steps, ["1"]);
    assert_eq!(lab.read("b"), "one\n");
    lab.redo();
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "AGENT\n".into()));
    lab.redo();
    assert_eq!((lab.read("a"), lab.read("b")), ("AGENT\n".into(), "AGENT\n".into()));
}

#[test]
fn a_redo_stopped_by_a_conflict_can_be_repeated() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "AGENT\n"));
    lab.undo();
    lab.write("a", "user\n");
    for _ in 0..2 {
        let report = try_redo(&lab).unwrap();
        assert_eq!((report.conflicts.len(), report.done.len()), (1, 0), "{report:?}");
        assert_eq!(lab.read("a"), "user\n");
        assert!(lab.workspace().steps().unwrap()[0].undone, "nothing was redone");
    }
    lab.write("a", "one\n");
    assert!(lab.redo().is_complete());
    assert_eq!(lab.read("a"), "AGENT\n");
    assert!(matches!(try_redo(&lab), Err(Error::Session(SessionError::NothingToRedo))));
}

#[test]
fn a_redo_stopped_by_some_conflicts_does_the_rest_when_it_is_repeated() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", "AGENT\n");
        lab.write("b", "AGENT\n");
    });
    lab.undo();
    lab.write("a", "user\n");
    let report = lab.redo();
    assert_eq!((report.conflicts.len(), report.done.len()), (1, 1), "{report:?}");
    assert_eq!(lab.read("b"), "AGENT\n");
    lab.write("a", "one\n");
    assert!(lab.redo().is_complete());
    assert_eq!((lab.read("a"), lab.read("b")), ("AGENT\n".into(), "AGENT\n".into()));
    lab.undo();
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "one\n".into()));
}

#[test]
fn an_undo_after_a_partial_redo_covers_only_the_redone_changes() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", "AGENT\n");
        lab.write("b", "AGENT\n");
    });
    lab.undo();
    lab.write("a", "user\n");
    lab.redo();
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.read("a"), lab.read("b")), ("user\n".into(), "one\n".into()));
}

#[test]
fn an_unrevert_stopped_by_a_conflict_can_be_repeated() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "AGENT\n"));
    let boundary = ctrlz::Boundary { message: "m1".into(), part: None };
    let options = UndoOptions::default();
    let workspace = lab.workspace();
    workspace.revert_to("s", &boundary, &options, &Progress::default()).unwrap();
    lab.write("a", "user\n");
    let report = workspace.unrevert("s", &options, &Progress::default()).unwrap();
    assert_eq!(report.conflicts.len(), 1);
    lab.write("a", "one\n");
    assert!(workspace.unrevert("s", &options, &Progress::default()).unwrap().is_complete());
    assert_eq!(lab.read("a"), "AGENT\n");
}

#[test]
fn a_revert_that_changes_nothing_marks_nothing_as_undone() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "AGENT\n"));
    lab.write("a", "AGENT and user\n");
    let boundary = ctrlz::Boundary { message: "m1".into(), part: None };
    let workspace = lab.workspace();
    let report =
        workspace.revert_to("s", &boundary, &UndoOptions::default(), &Progress::default()).unwrap();
    assert_eq!(report.conflicts.len(), 1);
    assert!(!workspace.steps().unwrap()[0].undone);
    lab.write("a", "AGENT\n");
    assert_eq!(lab.undo().steps, ["1"]);
    assert_eq!(lab.read("a"), "one\n");
}

#[test]
fn after_an_undo_with_only_conflicts_the_next_one_reaches_further_back() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("a", "AGENT\n"));
    lab.step("s", "m2", "2", |lab| lab.write("b", "AGENT\n"));
    lab.write("b", "AGENT and user\n");
    let report = lab.undo();
    assert_eq!((report.steps.as_slice(), report.conflicts.len()), (&["2".to_owned()][..], 1));
    assert!(!lab.workspace().steps().unwrap()[1].undone);
    assert_eq!(lab.undo().steps, ["1"]);
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "AGENT and user\n".into()));
    let report = lab.undo();
    assert_eq!((report.steps.as_slice(), report.conflicts.len()), (&["2".to_owned()][..], 1));
    lab.write("b", "AGENT\n");
    assert_eq!(lab.undo().steps, ["2"], "the path changed, so it is tried again");
    assert_eq!(lab.read("b"), "one\n");
}

#[test]
fn a_message_id_that_two_sessions_use_is_undone_in_one_of_them() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.write("b", "one\n");
    lab.step("A", "1", "a1", |lab| lab.write("a", "AGENT\n"));
    lab.step("B", "1", "b1", |lab| lab.write("b", "AGENT\n"));
    let message = UndoScope::Message { message: "1".into() };
    let report = lab.undo_with(&message, &UndoOptions::default()).unwrap();
    assert_eq!(report.steps, ["b1"], "the session that worked last");
    assert_eq!((lab.read("a"), lab.read("b")), ("AGENT\n".into(), "one\n".into()));
    assert_eq!(lab.undo_with(&message, &of("A")).unwrap().steps, ["a1"]);
}

#[test]
fn lines_of_the_agent_that_the_user_moved_are_reported_as_still_there() {
    let lab = Lab::new();
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    lab.write("a", text(&["line one", "line two", "line three", "line four"]));
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", text(&["line one", "AGENT line", "line two", "line three", "line four"]));
    });
    lab.write("a", text(&["line one", "line two", "line three", "line four", "AGENT line"]));
    let report = lab.undo();
    assert!(!report.is_complete(), "{report:?}");
    assert!(report.conflicts[0].why.contains("still there"), "{report:?}");
    let options = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!(lab.read("a"), text(&["line one", "line two", "line three", "line four"]));
}

#[test]
fn a_moved_line_is_reported_however_short_it_is() {
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    for line in ["x=1", "AG", "-v", "}"] {
        let lab = Lab::new();
        lab.write("a", text(&["{ one", "}", "two", "three", "four"]));
        lab.step("s", "m1", "1", |lab| {
            lab.write("a", text(&["{ one", "}", line, "two", "three", "four"]));
        });
        lab.write("a", text(&["{ one", "}", "two", "three", "four", line]));
        let report = lab.undo();
        assert!(!report.is_complete() && report.done.is_empty(), "{line}: {report:?}");
    }
}

#[test]
fn a_copy_of_the_agents_line_that_the_user_added_is_not_reported_as_moved() {
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let lab = Lab::new();
    lab.write("a", text(&["one", "two", "three", "four"]));
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", text(&["one", "}", "two", "three", "four"]));
    });
    lab.write("a", text(&["one", "}", "two", "three", "four", "}"]));
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("a"), text(&["one", "two", "three", "four", "}"]));
}

#[test]
fn a_file_that_became_ignored_after_the_step_is_undone_and_redone() {
    let lab = Lab::new();
    lab.write("d/h.md", "text\n");
    lab.write("keep", "x\n");
    lab.step("s", "m1", "1", |lab| lab.remove("d/h.md"));
    lab.write(".gitignore", "*.md\n");
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("d/h.md"), "text\n");
    let report = lab.redo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("d/h.md"));
    lab.undo();
    assert_eq!(lab.read("d/h.md"), "text\n");
}

/// Trees contain every version of a file that git tracks, even while rules ignore it.
#[test]
fn a_tracked_file_that_became_ignored_after_the_step_is_undone_and_redone() {
    let lab = Lab::new();
    lab.write("a", "text\n");
    lab.git(&["init", "-q"]);
    lab.git(&["add", "a"]);
    lab.step("s", "m1", "1", |lab| lab.remove("a"));
    lab.write(".gitignore", "a\n");
    for _ in 0..2 {
        assert!(lab.undo().is_complete());
        assert_eq!(lab.read("a"), "text\n");
        let report = lab.redo();
        assert!(report.is_complete(), "{report:?}");
        assert!(!lab.exists("a"));
    }
}

#[test]
fn a_conflict_of_a_partial_undo_is_undone_once_it_is_resolved() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m0", "0", |lab| lab.write("earlier", "x\n"));
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", "AGENT\n");
        lab.write("n", "n\n");
    });
    lab.write("a", "mine\n");
    assert_eq!(lab.undo().conflicts.len(), 1);
    lab.write("a", "AGENT\n");
    assert_eq!(lab.undo().steps, ["1"]);
    assert_eq!(lab.read("a"), "one\n");
    assert!(lab.exists("earlier"));
    assert_eq!(lab.undo().steps, ["0"]);
}

#[test]
fn an_undo_is_completed_once_a_directory_without_files_is_out_of_the_way() {
    for in_it in [None, Some("fifo")] {
        let lab = Lab::new();
        lab.write("f", "one\n");
        lab.write("g", "one\n");
        lab.step("s", "m0", "0", |lab| lab.write("earlier", "x\n"));
        lab.step("s", "m1", "1", |lab| {
            lab.remove("f");
            lab.write("g", "AGENT\n");
        });
        std::fs::create_dir(lab.path("f")).unwrap();
        if let Some(name) = in_it {
            crate::lab::run(&lab.path("f"), "mkfifo", &[name.as_ref()]);
        }
        assert_eq!(lab.undo().conflicts.len(), 1);
        lab.remove("f");
        assert_eq!(lab.undo().steps, ["1"]);
        assert_eq!(lab.read("f"), "one\n");
        assert_eq!(lab.undo().steps, ["0"]);
    }
}

#[test]
fn a_repeated_undo_reports_again_what_the_first_one_left() {
    let from = UndoScope::From { message: "m1".into(), part: None };
    for scope in [UndoScope::LastTurn, UndoScope::Session, from] {
        let lab = Lab::new();
        lab.write("a", "one\n");
        lab.write("log", "one\n");
        lab.step("s", "m1", "1", |lab| {
            lab.write("a", "AGENT\n");
            lab.write("log", "AGENT\n");
            lab.write("n", "n\n");
        });
        lab.write("a", "mine\n");
        let open = std::fs::File::options().append(true).open(lab.path("log")).unwrap();
        let options = UndoOptions::default();
        for round in 0..3 {
            let report = lab.undo_with(&scope, &options).unwrap();
            assert_eq!(report.done.is_empty(), round > 0, "{scope:?}: {report:?}");
            assert_eq!((report.conflicts.len(), report.kept.len()), (1, 1), "{report:?}");
        }
        lab.write("a", "AGENT\n");
        drop(open);
        assert!(lab.undo_with(&scope, &options).unwrap().is_complete());
        let result = lab.undo_with(&scope, &options);
        assert!(matches!(result, Err(Error::Session(SessionError::NothingToUndo))), "{result:?}");
    }
}

#[test]
fn a_file_opened_for_writing_during_an_undo_is_not_replaced() {
    use std::io::Write;
    const FILES: usize = 300;
    let name = |at: usize| format!("f{at:03}");
    let lab = Lab::new();
    (0..FILES).for_each(|at| lab.write(&name(at), "one\n".repeat(30)));
    lab.track();
    let mut usual = std::time::Duration::from_millis(50);
    let rounds = xtask::many(30, 300);
    for round in 0..rounds {
        let number = round.to_string();
        lab.step("s", &number, &number, |lab| {
            (0..FILES).for_each(|at| lab.write(&name(at), format!("AGENT {round}\n")));
        });
        let path = lab.path(&name(round * 7 % FILES));
        let line = format!("user {round}\n");
        std::thread::scope(|scope| {
            let begun = std::time::Instant::now();
            let lab = &lab;
            let undo = scope.spawn(move || {
                let (options, progress) = (UndoOptions::default(), Progress::default());
                drop(lab.workspace().undo(&UndoScope::LastTurn, &options, &progress));
                begun.elapsed()
            });
            // Opens the file in the middle of the undo and writes to it after the undo has ended.
            std::thread::sleep(usual.mul_f64((round as f64 + 0.5) / rounds as f64));
            let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            usual = (usual + undo.join().unwrap()) / 2;
            file.write_all(line.as_bytes()).unwrap();
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(&line), "round {round}: the line went to an unlinked file");
        (0..FILES).for_each(|at| lab.write(&name(at), "one\n".repeat(30)));
        lab.track();
    }
}

#[test]
fn a_file_in_an_ignored_directory_that_the_user_recreated_is_a_conflict() {
    let lab = Lab::new();
    lab.write(".gitignore", "build\n");
    lab.write("build/cfg", "old\n");
    let paths = vec![tree_path("build/cfg")];
    lab.begin(StepStart { paths, ..start("s", "m1", "1") });
    lab.remove("build/cfg");
    lab.end("1");
    lab.write("build/cfg", "mine\n");
    let (options, progress) = (UndoOptions::default(), Progress::default());
    let plan = lab.workspace().plan(&last_turn(&options), &progress).unwrap();
    let report = lab.undo();
    assert_eq!(lab.read("build/cfg"), "mine\n", "{report:?}");
    assert!(!report.is_complete() && !plan.is_complete());
}

#[test]
fn undo_keeps_an_unrelated_file_at_the_new_name_of_a_rename() {
    let lab = Lab::new();
    lab.write("z", "1\n2\n3\n4\n5\n");
    lab.write("o", "mine\n");
    lab.step("s", "m1", "1", |lab| std::fs::rename(lab.path("z"), lab.path("f")).unwrap());
    std::fs::rename(lab.path("o"), lab.path("f")).unwrap();
    let report = lab.undo();
    assert_eq!(lab.read("f"), "mine\n", "{report:?}");
    assert_eq!(lab.read("z"), "1\n2\n3\n4\n5\n");
    assert!(!report.is_complete());
}

#[test]
fn a_created_file_that_the_user_renamed_is_reported() {
    let lab = Lab::new();
    lab.write("k", "k\n");
    lab.step("s", "m1", "1", |lab| lab.write("n", "AGENT 1\nAGENT 2\n"));
    std::fs::rename(lab.path("n"), lab.path("m")).unwrap();
    let report = lab.undo();
    assert!(!report.is_complete(), "{report:?}");
    assert_eq!(report.conflicts[0].path.to_string(), "m");
}

#[test]
fn a_backup_from_an_earlier_step_stays_if_its_original_is_not_restored() {
    let lab = Lab::new();
    lab.write("a", "1\n2\n3\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::copy(lab.path("a"), lab.path("a.bak")).unwrap();
    });
    lab.step("s", "m1", "2", |lab| lab.write("a", "junk\n"));
    lab.remove("a");
    let report = lab.undo();
    assert_eq!(lab.read("a.bak"), "1\n2\n3\n", "{report:?}");
    assert!(!report.is_complete());
}

#[test]
fn a_file_that_a_turn_edits_and_renames_keeps_a_conflicting_user_edit() {
    let lab = Lab::new();
    let text = |line: &str| format!("1\n2\n3\n4\n{line}\n6\n7\n8\n9\n");
    lab.write("b", text("5"));
    lab.step("s", "m1", "1", |lab| lab.write("b", text("AGENT")));
    lab.step("s", "m1", "2", |lab| std::fs::rename(lab.path("b"), lab.path("g")).unwrap());
    lab.write("g", text("USER"));
    let report = lab.undo();
    assert_eq!(lab.read("g"), text("USER"), "{report:?}");
    assert!(!report.is_complete());
}

#[test]
fn empty_files_are_not_treated_as_copies() {
    let lab = Lab::new();
    lab.write("old", "");
    lab.write("k", "k\n");
    lab.step("s", "m1", "1", |lab| lab.write("pkg/init", ""));
    lab.step("s", "m1", "2", |lab| lab.remove("old"));
    lab.write("old", "the user's\n");
    lab.undo();
    assert!(!lab.exists("pkg"), "an empty file is not a copy of another one");
    lab.step("s", "m2", "3", |lab| lab.write("made", ""));
    lab.remove("made");
    lab.write("mine", "");
    assert!(lab.undo().is_complete(), "an empty file of the user is not a rename");
}

/// If the old path is taken, a moved file stays at its new path, with and without later edits.
#[test]
fn a_moved_file_stays_if_a_file_blocks_its_old_path() {
    for edit in ["", "mine\n"] {
        let lab = Lab::new();
        lab.write("d/e", "1\n2\n3\n4\n");
        lab.step("s", "m1", "1", |lab| {
            std::fs::create_dir(lab.path("k")).unwrap();
            std::fs::rename(lab.path("d/e"), lab.path("k/l")).unwrap();
        });
        let now = format!("1\n2\n3\n4\n{edit}");
        lab.write("k/l", &now);
        lab.remove("d");
        lab.write("d", "a file\n");
        let report = lab.undo();
        assert_eq!((lab.read("k/l"), lab.read("d")), (now, "a file\n".into()), "{report:?}");
        assert!(!report.is_complete());
    }
}

#[test]
fn an_undo_can_be_completed_once_a_blocking_file_is_removed() {
    let lab = Lab::new();
    lab.write("d/1", "1\n");
    lab.write("t", "1\n");
    lab.step("s", "m1", "1", |lab| {
        lab.remove("d");
        lab.write("t", "2\n");
    });
    lab.write("d", "a file\n");
    let report = lab.undo();
    assert!(!report.is_complete() && lab.read("t") == "1\n", "{report:?}");
    lab.remove("d");
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("d/1"), "1\n");
}

#[test]
fn undo_of_a_purged_file_reports_that_its_content_was_purged() {
    let lab = Lab::new();
    lab.write("other", "one\n");
    lab.step("s", "m0", "0", |lab| lab.write("other", "AGENT\n"));
    lab.write("secret", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("secret", "two\n"));
    let path = crate::lab::tree_path("secret");
    lab.workspace()
        .maintenance()
        .purge(&path, ctrlz::PurgeOptions::default(), &Progress::default())
        .unwrap();
    let report = lab.undo();
    assert_eq!((report.steps.as_slice(), report.is_complete()), (&["1".to_owned()][..], false));
    let reported: Vec<_> = report.conflicts.iter().map(|kept| kept.path.to_string()).collect();
    assert_eq!(reported, ["secret"], "{report:?}");
    assert!(report.conflicts[0].why.contains("purged"), "{report:?}");
    assert_eq!(lab.read("secret"), "two\n");
    assert!(lab.undo().is_complete(), "the step before it is undone");
    assert_eq!(lab.read("other"), "one\n");
}

#[test]
fn undo_reports_a_purged_file_that_the_step_removed_among_others() {
    let lab = Lab::new();
    lab.write("secret", "one\n");
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| {
        lab.remove("secret");
        lab.write("a", "AGENT\n");
    });
    let path = crate::lab::tree_path("secret");
    lab.workspace()
        .maintenance()
        .purge(&path, ctrlz::PurgeOptions::default(), &Progress::default())
        .unwrap();
    let report = lab.undo();
    let reported: Vec<_> = report.conflicts.iter().map(|kept| kept.path.to_string()).collect();
    assert_eq!((reported, report.is_complete()), (vec!["secret".to_owned()], false), "{report:?}");
    assert_eq!((lab.read("a"), lab.exists("secret")), ("one\n".to_owned(), false));
}

#[test]
fn an_edit_is_undone_at_the_name_to_which_an_undo_of_an_older_rename_moved_the_file() {
    let lab = Lab::new();
    lab.write("a", "one\ntwo\nthree\n");
    lab.step("s", "m1", "1", |lab| std::fs::rename(lab.path("a"), lab.path("m")).unwrap());
    lab.step("s", "m2", "2", |lab| lab.write("m", "one\ntwo\nthree\nAGENT\n"));
    let rename = UndoScope::Message { message: "m1".into() };
    lab.undo_with(&rename, &UndoOptions::default()).unwrap();
    assert_eq!(lab.read("a"), "one\ntwo\nthree\nAGENT\n");
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.read("a").as_str(), lab.exists("m")), ("one\ntwo\nthree\n", false));
    lab.redo();
    assert_eq!(lab.read("a"), "one\ntwo\nthree\nAGENT\n");
}
