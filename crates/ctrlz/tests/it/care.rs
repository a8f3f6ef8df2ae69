//! Care of the store: what nothing reaches goes, what anything reaches stays.

use ctrlz::{CareReport, Error, ObjectId, Progress, RestoreOptions, Retention};

use crate::lab::{Lab, assert_fsck_clean};

impl Lab {
    fn care(&self, retention: &Retention) -> CareReport {
        self.workspace().care(retention, &Progress::default()).unwrap()
    }

    fn store_bytes(&self) -> u64 {
        let packs = std::fs::read_dir(self.store().join("objects/pack")).unwrap();
        packs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

fn thorough() -> Retention {
    Retention { thorough: true, ..Retention::default() }
}

/// A text of some size that differs a little from one version to the next.
fn version(number: usize) -> String {
    let line = |at: usize| match at == number % 400 {
        true => format!("line {at} changed by version {number}\n"),
        false => format!("line {at}: {}\n", at * 7919),
    };
    (0..400).map(line).collect()
}

fn versions(lab: &Lab, count: usize) -> Vec<ObjectId> {
    for at in 0..60 {
        lab.write(&format!("src/dir{}/file{at}.txt", at % 7), format!("file {at}\n").repeat(20));
    }
    (0..count)
        .map(|number| {
            lab.write("src/dir3/changing.txt", version(number));
            lab.hash()
        })
        .collect()
}

#[test]
fn consecutive_versions_take_little_room_and_every_one_is_there() {
    let lab = Lab::new();
    let hashes = versions(&lab, 150);
    lab.care(&thorough());
    assert_fsck_clean(&lab.store());
    for (number, hash) in hashes.iter().enumerate().step_by(13) {
        let text = lab.workspace().file_at(hash, &crate::lab::tree_path("src/dir3/changing.txt"));
        assert_eq!(text.unwrap(), version(number).into_bytes());
    }
    lab.restore(hashes[3]);
    assert_eq!(lab.read("src/dir3/changing.txt"), version(3));
    // 150 versions of a text that takes about 3 KB compressed.
    assert!(lab.store_bytes() < 120_000, "{} bytes", lab.store_bytes());
    lab.store_git(&["verify-pack", &pack(&lab)]);
}

fn pack(lab: &Lab) -> String {
    let dir = lab.store().join("objects/pack");
    let packs = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut packs: Vec<_> =
        packs.filter(|path| path.extension().is_some_and(|e| e == "idx")).collect();
    packs.sort_by_key(|path| path.metadata().unwrap().len());
    packs.pop().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn old_segments_go_with_what_only_they_reach() {
    let lab = Lab::new();
    let hashes = versions(&lab, 560);
    let report = lab.care(&Retention { keep_days: 0, ..thorough() });
    assert_eq!(report.dropped_operations, 512);
    assert!(report.gc.dropped_objects > 512, "{report:?}");
    let old = lab.try_restore(hashes[100], &RestoreOptions::default());
    assert!(matches!(old, Err(Error::UnknownSnapshot { .. })), "{old:?}");
    for hash in &hashes[512..] {
        lab.workspace().check_snapshot(hash).unwrap();
    }
    assert_eq!(lab.workspace().log(1000).unwrap().len(), 560 - 512);
    assert_eq!(
        lab.workspace()
            .timeline(&ctrlz::TimelineQuery { limit: 1000, ..Default::default() })
            .unwrap()
            .len(),
        560 - 512
    );
    assert_fsck_clean(&lab.store());
    lab.restore(hashes[520]);
}

#[test]
fn nothing_is_garbage_when_a_ref_cannot_be_read() {
    let lab = Lab::new();
    versions(&lab, 10);
    let refs = lab.store().join("refs/ctrlz");
    let work_tree = std::fs::read_dir(&refs).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(work_tree.join("log")).unwrap();
    for bad in [&b""[..], b"garbage\n", &good[..20]] {
        std::fs::write(work_tree.join("other"), bad).unwrap();
        let refused = lab.workspace().care(&thorough(), &Progress::default());
        assert!(matches!(refused, Err(Error::LostRef { .. })), "{refused:?}");
    }
}
