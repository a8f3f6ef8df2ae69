//! Permissions merge three ways, like content.

use ctrlz::{Progress, UndoOptions, UndoScope};

use crate::lab::{Lab, assert_same};

#[test]
fn a_later_chmod_of_the_user_survives_undo_and_redo() {
    let lab = Lab::new();
    lab.write("conf", "a\n");
    lab.step("s", "m1", "1", |lab| lab.write("conf", "agent\n"));
    lab.chmod("conf", 0o600);
    lab.undo();
    assert_eq!((lab.read("conf"), lab.mode("conf")), ("a\n".into(), 0o600));
    lab.redo();
    assert_eq!((lab.read("conf"), lab.mode("conf")), ("agent\n".into(), 0o600));
}

#[test]
fn undo_restores_a_removed_or_renamed_directory_with_its_permissions() {
    for rename in [false, true] {
        let lab = Lab::new();
        lab.write("d/secret/key", "k\n");
        lab.chmod("d/secret", 0o700);
        lab.chmod("d", 0o750);
        let before = lab.manifest();
        lab.step("s", "m1", "1", |lab| {
            if rename {
                std::fs::rename(lab.path("d"), lab.path("e")).unwrap();
            } else {
                lab.remove("d");
            }
        });
        lab.undo();
        assert_same(&lab.manifest(), &before, "undone");
        assert_eq!((lab.mode("d"), lab.mode("d/secret")), (0o750, 0o700));
        std::fs::remove_dir_all(lab.path("d")).unwrap();
        let path = crate::lab::tree_path("d");
        lab.workspace()
            .lost_files()
            .recover(&path, &Default::default(), &Progress::default())
            .unwrap();
        assert_eq!((lab.mode("d"), lab.mode("d/secret")), (0o750, 0o700), "recovered");
    }
}

#[test]
fn a_chmod_of_a_directory_is_undone_and_redone() {
    let lab = Lab::new();
    lab.write("d/a", "a\n");
    lab.write("e/a", "a\n");
    lab.step("s", "m1", "1", |lab| lab.chmod("d", 0o777));
    let report = lab.undo();
    assert_eq!((report.done.len(), lab.mode("d")), (1, 0o755), "{report:?}");
    lab.redo();
    assert_eq!(lab.mode("d"), 0o777);
    lab.chmod("d", 0o700);
    assert!(lab.undo().done.is_empty());
    assert_eq!(lab.mode("d"), 0o700, "the user's later chmod stays");
}

#[test]
fn several_chmods_of_one_turn_compose() {
    let lab = Lab::new();
    lab.write("f", "a\n");
    lab.write("g", "a\n");
    lab.step("s", "m1", "1", |lab| lab.chmod("f", 0o640));
    lab.step("s", "m1", "2", |lab| lab.chmod("f", 0o600));
    lab.step("s", "m1", "3", |lab| lab.chmod("g", 0o600));
    lab.step("s", "m1", "4", |lab| lab.write("g", "agent\n"));
    let after = lab.manifest();
    lab.undo();
    assert_eq!((lab.mode("f"), lab.mode("g")), (0o644, 0o644));
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn repeated_reverts_do_not_flip_permissions() {
    let lab = Lab::new();
    lab.write("f", "a\n");
    lab.write("g", "a\n");
    lab.step("s", "m1", "1", |lab| {
        lab.chmod("f", 0o600);
        lab.write("g", "agent\n");
    });
    let workspace = lab.workspace();
    let boundary = ctrlz::Boundary { message: "m1".into(), part: None };
    for _ in 0..3 {
        let options = UndoOptions::default();
        workspace.revert_to("s", &boundary, &options, &Progress::default()).unwrap();
        assert_eq!((lab.mode("f"), lab.read("g")), (0o644, "a\n".into()));
    }
    workspace.unrevert("s", &UndoOptions::default(), &Progress::default()).unwrap();
    assert_eq!((lab.mode("f"), lab.read("g")), (0o600, "agent\n".into()));
}

#[test]
fn set_user_id_and_set_group_id_bits_are_kept() {
    let lab = Lab::new();
    lab.write("tool", "a\n");
    lab.chmod("tool", 0o4755);
    lab.write("shared/a", "a\n");
    lab.chmod("shared", 0o2775);
    let before = lab.track();
    lab.step("s", "m1", "1", |lab| {
        lab.write("tool", "agent\n");
        lab.chmod("tool", 0o755);
        lab.remove("shared");
    });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.mode("tool"), lab.mode("shared")), (0o4755, 0o2775));
    lab.chmod("tool", 0o755);
    lab.chmod("shared", 0o755);
    lab.restore(before.hash);
    assert_eq!((lab.mode("tool"), lab.mode("shared")), (0o4755, 0o2775));
}

#[test]
fn undo_of_several_chmods_restores_the_first_mode_across_the_executable_bit() {
    let lab = Lab::new();
    lab.write("f", "1\n");
    lab.chmod("f", 0o644);
    lab.write("other", "1\n");
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.chmod("f", 0o600));
    lab.step("s", "m1", "2", |lab| lab.chmod("f", 0o755));
    assert!(lab.undo().is_complete());
    assert_eq!(lab.mode("f") & 0o777, 0o644);
}

#[test]
fn a_later_chmod_of_a_renamed_file_survives_undo_and_redo() {
    let lab = Lab::new();
    lab.write("a", "1\n2\n3\n");
    lab.step("s", "m1", "1", |lab| std::fs::rename(lab.path("a"), lab.path("b")).unwrap());
    lab.chmod("b", 0o755);
    assert!(lab.undo().is_complete());
    assert_eq!(lab.mode("a") & 0o777, 0o755);
    lab.redo();
    assert_eq!(lab.mode("b") & 0o777, 0o755);
}

#[test]
fn undo_restores_permissions_of_a_directory_removed_and_recreated_by_two_steps() {
    let lab = Lab::new();
    lab.write("d/a", "1\n");
    lab.write("other/b", "1\n");
    lab.chmod("d", 0o750);
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.remove("d"));
    lab.step("s", "m1", "2", |lab| lab.write("d/new", "AGENT\n"));
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(lab.exists("d/a") && !lab.exists("d/new"));
    assert_eq!(lab.mode("d") & 0o777, 0o750);
    lab.redo();
    assert!(lab.exists("d/new") && !lab.exists("d/a"));
}

#[test]
fn permissions_that_were_changed_since_are_a_conflict_and_can_be_forced() {
    let lab = Lab::new();
    lab.write("f", "1\n");
    lab.write("d/a", "1\n");
    lab.write("other/b", "1\n");
    lab.chmod("f", 0o644);
    lab.chmod("d", 0o755);
    lab.track();
    lab.step("s", "m1", "1", |lab| {
        lab.chmod("f", 0o640);
        lab.chmod("d", 0o750);
    });
    lab.chmod("f", 0o600);
    lab.chmod("d", 0o700);
    let report = lab.undo();
    let conflicts: Vec<String> = report.conflicts.iter().map(|one| one.path.to_string()).collect();
    assert_eq!(conflicts, ["d", "f"], "{report:?}");
    assert!(!report.is_complete());
    assert_eq!((lab.mode("f") & 0o777, lab.mode("d") & 0o777), (0o600, 0o700));
    let forced = UndoOptions { force: true, ..UndoOptions::default() };
    let report = lab.workspace().undo(&UndoScope::LastTurn, &forced, &Progress::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((lab.mode("f") & 0o777, lab.mode("d") & 0o777), (0o644, 0o755));
}
