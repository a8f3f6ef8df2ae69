//! Repair: lost content is recovered from existing files or reported, and the rest keeps working.

use std::path::PathBuf;

use ctrlz::{ObjectId, Progress, RepairReport, Retention, Verification};

use crate::lab::{Lab, assert_fsck_clean};

fn slow() -> bool {
    std::env::var_os("RUN_SLOW_TESTS").is_some()
}

impl Lab {
    fn verify(&self) -> Verification {
        self.workspace().maintenance().verify(&Progress::default()).unwrap()
    }

    fn repair(&self) -> RepairReport {
        self.workspace().maintenance().repair(&Progress::default()).unwrap()
    }

    fn packs(&self) -> Vec<PathBuf> {
        let dir = std::fs::read_dir(self.store().join("objects/pack")).unwrap();
        let paths = dir.map(|entry| entry.unwrap().path());
        let mut packs: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|part| part == "pack")).collect();
        packs.sort();
        packs
    }
}

/// Returns a lab with three snapshots. Only the files of the last one still exist.
fn sample() -> (Lab, Vec<ObjectId>) {
    let lab = Lab::new();
    let mut hashes = Vec::new();
    for number in 0..3 {
        lab.write("same.txt", "always the same\n");
        lab.write("dir/kept.txt", format!("version {number}\n").repeat(40));
        lab.write(&format!("dir/only{number}.txt"), format!("only in {number}\n").repeat(30));
        hashes.push(lab.hash());
        lab.remove(&format!("dir/only{number}.txt"));
    }
    lab.write("dir/only2.txt", "only in 2\n".repeat(30));
    (lab, hashes)
}

#[test]
fn any_damaged_pack_byte_is_detected_and_repaired_where_possible() {
    let (lab, _) = sample();
    let lengths: Vec<u64> = lab.packs().iter().map(|path| path.metadata().unwrap().len()).collect();
    let mut row = xtask::Row::of(10, "damaged bytes of packs, found and healed");
    let step = if slow() { 7 } else { 61 };
    for (pack, length) in lengths.iter().enumerate() {
        for at in (0..*length as usize).step_by(step) {
            let (lab, hashes) = sample();
            let Some(path) = lab.packs().get(pack).cloned() else { continue };
            let mut bytes = std::fs::read(&path).unwrap();
            if at >= bytes.len() {
                continue;
            }
            bytes[at] ^= 0x41;
            std::fs::write(&path, bytes).unwrap();
            let when = format!("pack {pack}, byte {at}");
            let found = lab.verify();
            assert!(!found.problems.is_empty(), "{when}: not detected");
            let report = lab.repair();
            // All files of the newest state exist, so it is repaired whichever byte is damaged.
            lab.workspace().check_snapshot(&hashes[2]).unwrap_or_else(|e| panic!("{when}: {e}"));
            let last = report.after.problems.iter().find(|p| p.snapshots.contains(&hashes[2]));
            assert!(last.is_none(), "{when}: {last:?}");
            for problem in &report.after.problems {
                assert!(problem.object.is_some(), "{when}: {problem:?}");
            }
            lab.hash();
            lab.workspace()
                .maintenance()
                .collect(
                    &Retention { thorough: true, ..Retention::default() },
                    &Progress::default(),
                )
                .unwrap_or_else(|error| panic!("{when}: {error}"));
            lab.restore_exact(hashes[2]);
            assert_eq!(lab.read("dir/kept.txt"), "version 2\n".repeat(40), "{when}");
            row.done();
        }
    }
}

#[test]
fn damage_is_reported_by_path_and_repaired_from_existing_files() {
    let (lab, hashes) = sample();
    let blob = lab.store_git(&["rev-parse", &format!("{}:dir/only0.txt", hashes[0])]);
    let blob: ObjectId = blob.trim().parse().unwrap();
    // In a single pack, the offset of the blob is known exactly.
    lab.store_git(&["-c", "gc.auto=0", "repack", "-adq"]);
    let pack = lab.packs().pop().unwrap();
    let listed =
        lab.store_git(&["verify-pack", "-v", pack.with_extension("idx").to_str().unwrap()]);
    let line = listed.lines().find(|line| line.starts_with(&blob.to_string())).unwrap();
    let offset: usize = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    std::fs::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    bytes[offset + 4] ^= 0xff;
    std::fs::write(&pack, bytes).unwrap();
    let found = lab.verify();
    let named: Vec<_> = found
        .problems
        .iter()
        .filter_map(|p| Some((p.path.clone()?, p.snapshots.clone())))
        .collect();
    assert_eq!(named, [("dir/only0.txt".to_owned(), vec![hashes[0]])]);
    // The content no longer exists: it stays lost and is reported. Everything else works.
    let report = lab.repair();
    assert_eq!(report.healed, 0);
    assert_eq!(report.after.problems.len(), 1, "{:?}", report.after.problems);
    assert_eq!(report.quarantined.len(), 1);
    assert!(report.quarantined[0].exists());
    lab.restore_exact(hashes[1]);
    assert!(lab.try_restore(hashes[0], &crate::lab::exact()).is_err());
    // The same content under another name.
    lab.write("elsewhere/copy", "only in 0\n".repeat(30));
    let report = lab.repair();
    assert_eq!((report.healed, report.after.problems.as_slice()), (1, &[][..]));
    lab.restore_exact(hashes[0]);
    assert_eq!(lab.read("dir/only0.txt"), "only in 0\n".repeat(30));
    assert_fsck_clean(&lab.store());
}

#[test]
fn repair_rebuilds_a_corrupt_pack_index() {
    let (lab, hashes) = sample();
    for pack in lab.packs() {
        std::fs::write(pack.with_extension("idx"), "garbage").unwrap();
    }
    let report = lab.repair();
    assert_eq!(report.after.problems, []);
    for hash in hashes {
        lab.restore_exact(hash);
    }
    assert_fsck_clean(&lab.store());
}

#[test]
fn repair_recovers_lost_and_torn_refs() {
    let lab = Lab::new();
    for number in 0..300 {
        lab.write("a", format!("{number}\n"));
        lab.hash();
    }
    let log = |lab: &Lab| lab.workspace().log(1000).unwrap().len();
    assert_eq!(log(&lab), 300);
    let refs = lab.store().join("refs/ctrlz");
    std::fs::remove_dir_all(&refs).unwrap();
    let report = lab.repair();
    assert!(report.refs.len() >= 2, "{:?}", report.refs);
    assert_eq!((log(&lab), report.after.problems.as_slice()), (300, &[][..]));
    let dir = std::fs::read_dir(&refs).unwrap().next().unwrap().unwrap().path();
    std::fs::write(dir.join("log"), "torn").unwrap();
    assert_eq!(lab.repair().after.problems, []);
    assert_eq!(log(&lab), 300);
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_lost_operation_does_not_affect_other_operations() {
    let lab = Lab::new();
    let mut hashes = Vec::new();
    for number in 0..8 {
        lab.write("a", format!("{number}\n"));
        hashes.push(lab.hash());
    }
    // Every snapshot has its own pack. Without it, its operation, tree and content are lost.
    let holds = |pack: &PathBuf| {
        let index = pack.with_extension("idx");
        lab.store_git(&["verify-pack", "-v", index.to_str().unwrap()])
            .contains(&hashes[4].to_string())
    };
    let pack = lab.packs().into_iter().find(holds).unwrap();
    std::fs::remove_file(pack.with_extension("idx")).unwrap();
    std::fs::remove_file(pack).unwrap();
    assert!(!lab.verify().problems.is_empty());
    let report = lab.repair();
    assert_eq!(report.after.problems, []);
    assert_eq!(lab.workspace().log(100).unwrap().len(), 7);
    for hash in hashes.iter().filter(|hash| **hash != hashes[4]) {
        lab.restore_exact(*hash);
    }
    lab.workspace().maintenance().collect(&Retention::default(), &Progress::default()).unwrap();
    assert_fsck_clean(&lab.store());
}

/// Returns a pack that contains deltas, and an offset inside the base of one of them.
fn delta_base(lab: &Lab) -> (PathBuf, usize) {
    for pack in lab.packs() {
        let listing = lab.store_git(&["verify-pack", "-v", pack.to_str().unwrap()]);
        let rows: Vec<Vec<&str>> =
            listing.lines().map(|line| line.split_whitespace().collect()).collect();
        let base_of = |row: &&Vec<&str>| row.len() == 7 && row[1] == "blob";
        let Some(base) = rows.iter().rfind(base_of).map(|row| row[6]) else { continue };
        let row = rows.iter().find(|row| row[0] == base && row.len() >= 5).unwrap();
        let (bytes, at): (usize, usize) = (row[3].parse().unwrap(), row[4].parse().unwrap());
        return (pack, at + bytes / 2);
    }
    panic!("no pack has deltas");
}

#[test]
fn a_damaged_pack_does_not_stop_merging_and_is_reported() {
    let lab = Lab::new();
    let text = |number: usize| {
        let line =
            |at: usize| format!("line {at} {}\n", if at == number % 90 { number } else { 0 });
        (0..100).map(line).collect::<String>()
    };
    let track = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            lab.write("a.txt", text(number));
            lab.hash();
        }
    };
    track(0..55);
    let (pack, at) = delta_base(&lab);
    let mut bytes = std::fs::read(&pack).unwrap();
    bytes[at] ^= 0x41;
    std::fs::write(&pack, bytes).unwrap();
    track(55..170);
    assert!(lab.packs().len() < 55, "{} packs", lab.packs().len());
    let status = lab.workspace().status().unwrap();
    assert_eq!(status.damaged_packs.len(), 1, "{status:?}");
    assert_eq!(status.damaged_packs[0].0, pack);
    lab.workspace().maintenance().collect(&Retention::default(), &Progress::default()).unwrap();
    assert!(pack.exists(), "a damaged pack is not deleted");
    lab.repair();
    let status = lab.workspace().status().unwrap();
    assert_eq!((status.damaged_packs, status.gc_failed), (vec![], None));
    track(170..240);
    assert!(lab.packs().len() < 55);
}

#[test]
fn a_failed_gc_is_reported_until_one_succeeds() {
    let (lab, hashes) = sample();
    let care =
        || lab.workspace().maintenance().collect(&Retention::default(), &Progress::default());
    care().unwrap();
    let tree = hashes[0].to_string();
    // Hides the pack that contains the root tree of the first snapshot.
    let with_tree = |pack: &&PathBuf| {
        lab.store_git(&["verify-pack", "-v", pack.to_str().unwrap()]).contains(&tree)
    };
    let pack = lab.packs().iter().find(with_tree).unwrap().clone();
    let aside = lab.dir().join("aside.pack");
    std::fs::rename(&pack, &aside).unwrap();
    care().unwrap_err();
    assert!(lab.workspace().status().unwrap().gc_failed.is_some());
    std::fs::rename(&aside, &pack).unwrap();
    care().unwrap();
    assert_eq!(lab.workspace().status().unwrap().gc_failed, None);
}
