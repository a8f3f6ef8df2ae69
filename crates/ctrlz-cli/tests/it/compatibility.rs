//! Stores made by released versions: every later version opens, lists, undoes and restores them.
//!
//! `testdata/stores/make.sh` made each archive with the release it is named after. Archives are
//! never made again.

use std::path::Path;

use crate::bench::{Bench, finish, program};

/// The releases whose stores are checked in.
const RELEASES: [&str; 1] = ["0.1.0"];

/// Unpacks a release's project and stores, and relinks the project's history to its new place.
fn unpack(release: &str) -> Bench {
    let bench = Bench::new();
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/stores/{release}.tar.gz"));
    std::fs::remove_dir(&bench.project).unwrap();
    let mut tar = program("tar");
    tar.env("PATH", std::env::var_os("PATH").unwrap()).arg("-xzf").arg(archive);
    let ran = finish(tar.arg("-C").arg(&bench.home));
    assert_eq!(ran.code, 0, "{ran:?}");
    std::fs::rename(bench.home.join("data"), &bench.data).unwrap();
    // Retention must not drop the operations that the tests are about, however old they get.
    bench.write_home(".config/ctrlz/config.toml", "keep_days = 100000\n");
    let old = std::fs::read_to_string(bench.home.join("path")).unwrap();
    bench.ok(&["relink", old.trim(), "."]);
    bench
}

fn hash_in(bench: &Bench, file: &str) -> String {
    std::fs::read_to_string(bench.home.join(file)).unwrap().trim().to_owned()
}

#[test]
fn every_released_store_is_checked_in() {
    for release in RELEASES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/stores");
        assert!(path.join(format!("{release}.tar.gz")).is_file(), "{release}");
    }
}

#[test]
fn an_old_store_opens_and_lists_its_log() {
    for release in RELEASES {
        let bench = unpack(release);
        assert_eq!(bench.track(), hash_in(&bench, "hash"), "nothing changed since");
        let log = bench.ok(&["log"]);
        for part in ["rename price", "drop notes", "checkpoint release", "[undone]", "fork of main"]
        {
            assert!(log.contains(part), "{part}: {log}");
        }
        let sessions = bench.ok(&["sessions"]);
        for name in ["main", "sub", "forked", "tail"] {
            assert!(sessions.contains(name), "{name}: {sessions}");
        }
        let blame = bench.ok(&["blame", "src/app.py"]);
        assert!(blame.contains("rename price") && blame.contains("drop notes"), "{blame}");
        bench.ok(&["verify"]);
    }
}

#[test]
fn steps_of_an_old_store_are_undone_and_redone() {
    for release in RELEASES {
        let bench = unpack(release);
        bench.ok(&["undo", "--session", "tail"]);
        assert!(bench.read("numbers.txt").is_none());
        bench.ok(&["redo"]);
        assert_eq!(bench.read("numbers.txt").unwrap().lines().count(), 2_000);
        // The user's VAT edit stays. Files deleted by the agent come back, also the ignored one.
        bench.ok(&["undo", "--message", "2", "--session", "main"]);
        assert_eq!(bench.read("notes.txt").unwrap(), "buy milk\n");
        assert_eq!(bench.read(".env").unwrap(), "TOKEN=before\n");
        let text = bench.read("src/app.py").unwrap();
        assert!(text.contains("0.21") && text.contains("gross") && !text.contains("# agent"));
        bench.ok(&["verify"]);
    }
}

#[test]
fn snapshots_and_checkpoints_of_an_old_store_are_restored() {
    use std::os::unix::fs::PermissionsExt;
    for release in RELEASES {
        let bench = unpack(release);
        bench.ok(&["restore", "--exact", "--yes", "release"]);
        assert!(bench.read("src/app.py").unwrap().contains("def price(net)"));
        assert_eq!(bench.read("notes.txt").unwrap(), "buy milk\n");
        assert!(bench.read("numbers.txt").is_none());
        let mode = |path: &str| {
            std::fs::metadata(bench.project.join(path)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode("tool.sh"), 0o750);
        assert!(bench.project.join("empty").is_dir());
        bench.ok(&["restore", "--exact", "--yes", &hash_in(&bench, "hash")]);
        assert_eq!(bench.track(), hash_in(&bench, "hash"));
        bench.ok(&["verify"]);
    }
}

#[test]
fn an_old_store_inside_the_project_is_undone_and_restored() {
    for release in RELEASES {
        let bench = unpack(release);
        let store = ["--store", ".agent/snapshots"];
        // The store was made at another path, so its history is imported first.
        bench.ok(&[&store[..], &["undo"]].concat());
        assert_eq!(bench.read("later.txt").unwrap(), "later\n");
        let hash = hash_in(&bench, "inside-hash");
        bench.ok(&[&store[..], &["restore", "--exact", &hash]].concat());
        assert!(bench.read("later.txt").is_none());
        bench.ok(&[&store[..], &["verify"]].concat());
    }
}
