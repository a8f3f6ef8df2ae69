//! Purged content is gone from the whole data directory, including unreachable objects.

use std::time::{Duration, Instant};

use xtask::Row;

use crate::lab::{Lab, contains, find, sized};

const CANARY: &str = "canary-8d21-a-password-that-was-never-meant-to-be-here";

#[test]
fn a_purged_secret_is_in_no_object_log_cache_or_file() {
    let mut row = Row::of(16, "snapshots with a secret that is purged");
    let lab = Lab::new();
    let count = sized(40, 1000);
    for at in 0..count {
        lab.write("notes", format!("note {at}"));
        lab.write("secret/key", format!("{CANARY} {at}"));
        lab.track();
    }
    // The label of the step repeats the secret.
    let command = format!("echo {CANARY} > secret/key");
    lab.ctrlz(&["run", "--", "sh", "-c", &command]).ok();
    lab.remove("secret");
    let last = (lab.track(), lab.manifest());
    assert!(contains(&lab.all_objects(), CANARY.as_bytes()), "there was nothing to purge");
    let begun = Instant::now();
    lab.ctrlz(&["purge", "--yes", "secret"]).ok();
    let took = begun.elapsed();
    assert!(!contains(&lab.all_objects(), CANARY.as_bytes()), "an object holds it");
    for path in find(&lab.data, &|path| path.is_file()) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!contains(&bytes, CANARY.as_bytes()), "{} holds it", path.display());
    }
    lab.assert_tidy("purged");
    lab.write("notes", "other");
    lab.assert_restores(&last.0, &last.1, "purged");
    row.add(count);
    row.note(format!("{:.1} s for all of them", took.as_secs_f64()));
    row.violated(u64::from(took > sized(Duration::from_secs(30), Duration::from_secs(5))));
}

#[test]
fn with_labels_disabled_no_command_line_is_in_the_store() {
    let lab = Lab::new();
    lab.write("a", "1");
    let config = lab.dir().join("ctrlz-config.toml");
    let canary = || {
        let files = find(&lab.data, &|path| path.is_file());
        let in_a_file =
            |path: &std::path::PathBuf| contains(&std::fs::read(path).unwrap(), CANARY.as_bytes());
        contains(&lab.all_objects(), CANARY.as_bytes()) || files.iter().any(in_a_file)
    };
    for (labels, is_there) in [(false, false), (true, true)] {
        std::fs::write(&config, format!("labels = {labels}\n")).unwrap();
        let script = format!(": {CANARY}; echo {labels} > a");
        let words = ["--config", config.to_str().unwrap(), "run", "--", "sh", "-c", &script];
        lab.ctrlz(&words).ok();
        assert_eq!(canary(), is_there, "labels = {labels}");
    }
}
