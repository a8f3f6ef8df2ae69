//! Reverting single files.

use ctrlz::{
    Error, KeptReason, LookupError, ObjectId, PatchToRevert, Progress, RestoreOptions,
    RestoreReport,
};

use crate::lab::{Lab, assert_same, tree_path};

fn try_revert(lab: &Lab, patches: &[(ObjectId, &[&str])]) -> Result<RestoreReport, Error> {
    let patches: Vec<PatchToRevert> = patches
        .iter()
        .map(|(hash, files)| PatchToRevert {
            hash: *hash,
            files: files.iter().map(|file| tree_path(file)).collect(),
        })
        .collect();
    lab.workspace().revert(&patches, &RestoreOptions::default(), &Progress::default())
}

fn revert(lab: &Lab, patches: &[(ObjectId, &[&str])]) -> RestoreReport {
    try_revert(lab, patches).unwrap()
}

#[test]
fn the_oldest_hash_of_a_file_wins() {
    let lab = Lab::new();
    lab.write("f", "one");
    let first = lab.hash();
    lab.write("f", "two");
    lab.write("g", "two");
    let second = lab.hash();
    lab.write("f", "three");
    lab.write("g", "three");
    let report = revert(&lab, &[(first, &["f"]), (second, &["f", "g"])]);
    assert!(report.is_complete());
    assert_eq!((lab.read("f").as_str(), lab.read("g").as_str()), ("one", "two"));
    lab.restore(report.safety);
    assert_eq!(lab.read("f"), "three");
}

#[test]
fn a_rename_is_reverted_completely() {
    let lab = Lab::new();
    lab.write("dir/old", "content");
    let hash = lab.hash();
    let before = lab.manifest();
    std::fs::create_dir(lab.path("moved")).unwrap();
    std::fs::rename(lab.path("dir/old"), lab.path("moved/new")).unwrap();
    lab.write("moved/new", "edited");
    std::fs::remove_dir(lab.path("dir")).unwrap();
    let patch = lab.workspace().patch(&hash, &Progress::default()).unwrap();
    let patches = [PatchToRevert { hash, files: patch.files }];
    lab.workspace().revert(&patches, &RestoreOptions::default(), &Progress::default()).unwrap();
    assert_same(&lab.manifest(), &before, "no empty directory is left");
}

#[test]
fn an_unknown_hash_deletes_nothing() {
    let lab = Lab::new();
    lab.write("f", "one");
    let known = lab.hash();
    lab.write("f", "two");
    let unknown: ObjectId = "1234567890123456789012345678901234567890".parse().unwrap();
    for patches in [vec![(unknown, &["f"][..])], vec![(known, &["f"][..]), (unknown, &["g"][..])]] {
        let result = try_revert(&lab, &patches);
        assert!(
            matches!(result, Err(Error::Lookup(LookupError::UnknownSnapshot { .. }))),
            "{result:?}"
        );
        assert_eq!(lab.read("f"), "two");
    }
}

#[test]
fn paths_unknown_to_the_snapshot_are_kept() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 10;
    lab.write(".gitignore", "*.log\n");
    lab.write("big", "x".repeat(50));
    lab.write("a", "x");
    let hash = lab.hash();
    lab.write("debug.log", "the user's");
    lab.write("proven", "new");
    let report = revert(&lab, &[(hash, &["big", "debug.log", "proven"])]);
    assert!(lab.exists("big") && lab.exists("debug.log") && !lab.exists("proven"));
    let reason = |path: &str| {
        report.kept.iter().find(|kept| kept.path == tree_path(path)).map(|kept| kept.reason.clone())
    };
    assert!(matches!(reason("big"), Some(KeptReason::SkippedThen { .. })));
    assert_eq!(reason("debug.log"), Some(KeptReason::IgnoredThen));
}

#[test]
fn names_that_git_would_quote_are_reverted_not_deleted() {
    let lab = Lab::new();
    let names = ["日本.md", "émile.md", "s*.md", "sx.md", ":(glob)x", "-rf", "[ab]", "a b "];
    for name in names {
        lab.write(name, "one");
    }
    let hash = lab.hash();
    for name in names {
        lab.write(name, "two");
    }
    lab.write("s?.md", "new");
    let mut files = names.to_vec();
    files.push("s?.md");
    revert(&lab, &[(hash, &files)]);
    for name in names {
        assert_eq!(lab.read(name), "one", "{name}");
    }
    assert!(!lab.exists("s?.md"));
}

#[test]
fn a_type_change_is_reverted_when_all_its_paths_are_named() {
    let lab = Lab::new();
    lab.write("x", "file");
    let hash = lab.hash();
    lab.remove("x");
    lab.write("x/inner", "new");
    revert(&lab, &[(hash, &["x", "x/inner"])]);
    assert_eq!(lab.read("x"), "file");
    let lab = Lab::new();
    lab.write("x/inner", "file");
    let hash = lab.hash();
    lab.remove("x");
    lab.write("x", "new");
    revert(&lab, &[(hash, &["x", "x/inner"])]);
    assert_eq!(lab.read("x/inner"), "file");
}

#[test]
fn an_unnamed_file_in_the_way_is_kept() {
    let lab = Lab::new();
    lab.write("x/inner", "file");
    let hash = lab.hash();
    lab.remove("x");
    lab.write("x", "the user's");
    let report = revert(&lab, &[(hash, &["x/inner"])]);
    assert_eq!(report.kept[0].reason, KeptReason::FileInTheWay);
    assert_eq!(lab.read("x"), "the user's");
}

#[test]
fn a_symlinked_parent_is_not_followed() {
    let lab = Lab::new();
    lab.write("d/x", "one");
    let hash = lab.hash();
    let outside = lab.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("x"), "victim").unwrap();
    std::fs::write(outside.join("new"), "victim").unwrap();
    lab.remove("d");
    lab.link(outside.to_str().unwrap(), "d");
    revert(&lab, &[(hash, &["d/x", "d/new"])]);
    assert_eq!(std::fs::read(outside.join("x")).unwrap(), b"victim");
    assert_eq!(std::fs::read(outside.join("new")).unwrap(), b"victim");
    let report = lab.restore(hash);
    assert!(report.is_complete(), "the directory replaces the symlink: {report:?}");
    assert_eq!(lab.read("d/x"), "one");
    assert_eq!(std::fs::read(outside.join("x")).unwrap(), b"victim");
}

#[test]
fn an_empty_revert_changes_nothing() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    assert_eq!(revert(&lab, &[]).done, []);
}
