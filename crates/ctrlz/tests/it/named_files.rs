//! Files that a tool names are captured even if they are ignored or large, within limits.

use ctrlz::{Progress, StepStart};

use crate::lab::{Lab, noise, tree_path};
use crate::sessions::start;

fn large() -> Lab {
    let mut lab = Lab::with_git(&[(".gitignore", "*.db\n"), ("a", "one\n")]);
    lab.options.max_new_file_bytes = 100_000;
    lab.options.max_named_bytes = 20 << 20;
    lab
}

fn naming(paths: &[&str]) -> StepStart {
    let paths = paths.iter().map(|path| tree_path(path)).collect();
    StepStart { paths, ..start("s", "m1", "1") }
}

#[test]
fn undo_restores_large_and_ignored_files_that_a_tool_named() {
    let lab = large();
    let (big, db) = (noise(1, 6 << 20), noise(2, 5 << 20));
    for delete in [true, false] {
        lab.write("big.bin", &big);
        lab.write("dev.db", &db);
        let begun =
            lab.workspace().begin_step(naming(&["big.bin", "dev.db"]), &Progress::default());
        assert_eq!(begun.unwrap().not_kept, []);
        for path in ["big.bin", "dev.db"] {
            if delete { lab.remove(path) } else { lab.write(path, noise(3, 5 << 20)) }
        }
        lab.end("1");
        let report = lab.undo();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(std::fs::read(lab.path("big.bin")).unwrap(), big);
        assert_eq!(std::fs::read(lab.path("dev.db")).unwrap(), db);
    }
}

#[test]
fn named_files_beyond_the_limit_are_reported_and_the_step_is_recorded() {
    let lab = large();
    lab.write("huge.db", noise(1, 25 << 20));
    lab.write("small.db", noise(2, 1 << 20));
    let begun = lab.workspace().begin_step(naming(&["huge.db", "small.db"]), &Progress::default());
    assert_eq!(begun.unwrap().not_kept, [tree_path("huge.db")]);
    lab.remove("huge.db");
    lab.remove("small.db");
    lab.write("a", "AGENT\n");
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    assert_eq!(ended.uncaptured.len(), 1, "{:?}", ended.uncaptured);
    let report = lab.undo();
    assert!(!report.is_complete());
    assert_eq!(report.uncaptured[0].path, b"huge.db");
    assert_eq!(lab.read("a"), "one\n");
    assert!(lab.exists("small.db") && !lab.exists("huge.db"));
}

#[test]
fn lost_files_below_a_named_directory_are_listed_one_by_one() {
    let lab = large();
    lab.write(".gitignore", "data/\n");
    for name in ["1", "2", "3"] {
        lab.write(&format!("data/big{name}"), noise(1, 8 << 20));
    }
    lab.write("data/small", "kept\n");
    let named = ["data", "data/big1", "data/big2", "data/big3", "data/small"];
    let begun = lab.workspace().begin_step(naming(&named), &Progress::default()).unwrap();
    assert_eq!(begun.not_kept, [tree_path("data/big3")]);
    lab.remove("data");
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    let lost = |paths: &[ctrlz::Uncaptured]| -> Vec<String> {
        paths.iter().map(|lost| String::from_utf8(lost.path.clone()).unwrap()).collect()
    };
    assert_eq!(lost(&ended.uncaptured), ["data/big3"]);
    let report = lab.undo();
    assert_eq!(lost(&report.uncaptured), ["data/big3"], "{report:?}");
    assert!(!report.is_complete() && lab.exists("data/small") && lab.exists("data/big2"));
}
