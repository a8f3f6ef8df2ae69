//! Hard links inside the work tree.

use std::os::unix::fs::MetadataExt;

use ctrlz::KeptReason;

use crate::lab::Lab;

fn inode(lab: &Lab, path: &str) -> u64 {
    lab.path(path).metadata().unwrap().ino()
}

fn linked(lab: &Lab) {
    lab.write("a", "1\n");
    std::fs::create_dir(lab.path("d")).unwrap();
    std::fs::hard_link(lab.path("a"), lab.path("d/b")).unwrap();
}

#[test]
fn a_write_through_one_hard_link_is_undone_for_all_links() {
    let lab = Lab::new();
    linked(&lab);
    lab.step("s", "m1", "1", |lab| lab.write("a", "AGENT\n"));
    assert_eq!(lab.read("d/b"), "AGENT\n");
    std::thread::sleep(std::time::Duration::from_millis(60));
    let report = lab.undo();
    assert!(report.is_complete() && report.kept.is_empty(), "{report:?}");
    assert_eq!((lab.read("a"), lab.read("d/b")), ("1\n".into(), "1\n".into()));
    assert_eq!(inode(&lab, "a"), inode(&lab, "d/b"), "linked again");
    lab.redo();
    assert_eq!((lab.read("a"), lab.read("d/b")), ("AGENT\n".into(), "AGENT\n".into()));
    assert_eq!(inode(&lab, "a"), inode(&lab, "d/b"), "linked again");
}

#[test]
fn hard_links_that_undo_separates_are_reported() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.write("b", "2\n");
    lab.step("s", "m1", "1", |lab| {
        lab.remove("b");
        std::fs::hard_link(lab.path("a"), lab.path("b")).unwrap();
    });
    let report = lab.undo();
    assert_eq!((lab.read("a"), lab.read("b")), ("1\n".into(), "2\n".into()));
    assert_eq!(report.kept.len(), 1, "{report:?}");
    assert_eq!(report.kept[0].reason, KeptReason::Separated);
    assert!(report.is_complete());
}

#[test]
fn a_file_with_an_uncaptured_hard_link_is_reported_as_separated() {
    let lab = Lab::new();
    lab.write(".gitignore", "ignored\n");
    lab.write("a", "1\n");
    lab.write("b", "1\n");
    std::fs::hard_link(lab.path("a"), lab.path("ignored")).unwrap();
    std::fs::hard_link(lab.path("b"), lab.dir().join("outside")).unwrap();
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", "AGENT\n");
        lab.write("b", "AGENT\n");
    });
    let report = lab.undo();
    assert_eq!((lab.read("a"), lab.read("b")), ("1\n".into(), "1\n".into()));
    let reported: Vec<_> = report.kept.iter().map(|kept| kept.path.to_string()).collect();
    assert_eq!(reported, ["a", "b"], "{report:?}");
    assert!(report.kept.iter().all(|kept| kept.reason == KeptReason::Separated));
}

/// The permissions of the removed link change through the remaining link. That must not count as an
/// edit by another process.
#[test]
fn redo_restores_the_permissions_of_a_removed_hard_link() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.step("s", "m1", "1", |lab| {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(lab.path("a"), mode).unwrap();
        std::fs::hard_link(lab.path("a"), lab.path("b")).unwrap();
    });
    let operations = |lab: &Lab| lab.workspace().log(100).unwrap().len();
    let before = operations(&lab);
    assert!(lab.undo().is_complete());
    assert_eq!(operations(&lab), before + 1, "no other operation was recorded");
    assert!(lab.redo().is_complete());
    for path in ["a", "b"] {
        let mode = lab.path(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o755, "{path}");
    }
}

/// Replaces a file like `sed -i`, which separates it from its other names.
fn replace(lab: &Lab, path: &str, text: &str) {
    lab.write("temporary", text);
    std::fs::rename(lab.path("temporary"), lab.path(path)).unwrap();
}

#[test]
fn names_that_a_step_separated_are_linked_again_or_reported_as_separated() {
    let replaces = |lab: &Lab| replace(lab, "a", "AGENT\n");
    let removes = |lab: &Lab| {
        lab.remove("d/b");
        lab.write("a", "AGENT\n");
    };
    for tool in [&replaces as &dyn Fn(&Lab), &removes] {
        for edited in [false, true] {
            let lab = Lab::new();
            linked(&lab);
            lab.track();
            std::thread::sleep(std::time::Duration::from_millis(30));
            lab.step("s", "m1", "1", tool);
            let other = if lab.exists("d/b") { "d/b" } else { "a" };
            if edited {
                let text = lab.read(other);
                lab.write(other, format!("{text}\nof the\nuser\n"));
            }
            let report = lab.undo();
            assert!(lab.exists("d/b"));
            let is_linked = inode(&lab, "a") == inode(&lab, "d/b");
            assert_eq!(is_linked, !edited, "{report:?}");
            let reasons: Vec<_> = report.kept.iter().map(|kept| &kept.reason).collect();
            assert_eq!(reasons.contains(&&KeptReason::Separated), edited, "{report:?}");
            if !edited {
                assert_eq!((lab.read("a"), lab.read("d/b")), ("1\n".into(), "1\n".into()));
            }
        }
    }
}

#[test]
fn a_file_renamed_over_another_one_is_not_taken_for_a_hard_link() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.write("b", "2\n");
    lab.track();
    std::thread::sleep(std::time::Duration::from_millis(30));
    lab.step("s", "m1", "1", |lab| std::fs::rename(lab.path("b"), lab.path("a")).unwrap());
    let report = lab.undo();
    assert_eq!((lab.read("a"), lab.read("b")), ("1\n".into(), "2\n".into()));
    assert!(report.is_complete() && report.kept.is_empty(), "{report:?}");
}

#[test]
fn redo_links_the_names_again_that_a_step_created() {
    for existing in [false, true] {
        let lab = Lab::new();
        lab.write("a", "1\n");
        if existing {
            lab.write("n", "new\n");
        }
        lab.track();
        std::thread::sleep(std::time::Duration::from_millis(30));
        lab.step("s", "m1", "1", |lab| {
            if !existing {
                lab.write("n", "new\n");
            }
            for name in ["n2", "n3"] {
                std::fs::hard_link(lab.path("n"), lab.path(name)).unwrap();
            }
        });
        assert!(lab.undo().is_complete());
        assert_eq!((lab.exists("n"), lab.exists("n2")), (existing, false));
        let report = lab.redo();
        assert!(report.is_complete() && report.kept.is_empty(), "{report:?}");
        let inodes = ["n", "n2", "n3"].map(|name| inode(&lab, name));
        assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{existing}: {report:?}");
    }
}

#[test]
fn a_removed_name_of_a_hard_link_is_linked_again_or_reported_as_separated() {
    for edited in [false, true] {
        let lab = Lab::new();
        lab.write("a", "1\n");
        lab.write("dir/keep", "1\n");
        std::fs::hard_link(lab.path("a"), lab.path("dir/b")).unwrap();
        lab.track();
        std::thread::sleep(std::time::Duration::from_millis(30));
        lab.step("s", "m1", "1", |lab| lab.remove("dir/b"));
        if edited {
            lab.write("a", "the user's\n");
        }
        let report = lab.undo();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(lab.read("dir/b"), "1\n");
        assert_eq!(inode(&lab, "a") == inode(&lab, "dir/b"), !edited, "{report:?}");
        let separated: Vec<_> = report.kept.iter().map(|kept| kept.path.to_string()).collect();
        assert_eq!(separated, if edited { vec!["dir/b"] } else { Vec::new() }, "{report:?}");
        assert!(lab.redo().is_complete());
        assert!(!lab.exists("dir/b"));
        assert_eq!(lab.read("a"), if edited { "the user's\n" } else { "1\n" });
    }
}
