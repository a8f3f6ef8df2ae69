//! Damaged stores: damage is detected, never restored, and repaired if the content still exists.

use std::path::{Path, PathBuf};

use ctrlz::{Error, ObjectId, Progress, StoreError, TrackOptions};

use crate::lab::{Lab, assert_fsck_clean, assert_same, exact};

/// Returns every file of the store.
fn store_files(store: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![store.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn copy_dir(from: &Path, to: &Path) {
    crate::lab::run(from, "cp", &["-a".as_ref(), ".".as_ref(), to.as_os_str()]);
}

/// Returns a lab with two snapshots. The second one is the current state.
fn sample() -> (Lab, ObjectId, ObjectId) {
    let lab = Lab::new();
    lab.write("a", "first\n");
    lab.write("dir/b", "same\n");
    lab.write("secret", "x");
    lab.chmod("secret", 0o600);
    let first = lab.hash();
    lab.write("a", "second\n");
    lab.write("dir/new", "new\n");
    let second = lab.hash();
    (lab, first, second)
}

/// Damages one file of the store and checks that no wrong content is restored.
///
/// A restore either succeeds exactly or fails without changes. The next snapshot succeeds and can
/// be restored, because its files still exist.
fn check_damage(what: &str, damage: &dyn Fn(&Path)) {
    let (lab, first, second) = sample();
    let good = lab.manifest();
    let store = lab.store();
    damage(&store);
    let mut failed = 0;
    for hash in [first, second] {
        let before = lab.manifest();
        match lab.try_restore(hash, &exact()) {
            Ok(_) if hash == second => assert_same(&lab.manifest(), &good, what),
            Ok(_) => assert_eq!(lab.read("a"), "first\n", "{what}"),
            Err(_) => {
                failed += 1;
                assert_same(&lab.manifest(), &before, what);
            }
        }
        copy_back(&lab);
    }
    let tracked = lab.workspace().track(&TrackOptions::default(), &Progress::default());
    let snapshot = tracked.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(snapshot.hash, second, "{what}: the same files have the same hash");
    lab.write("a", "broken");
    lab.remove("dir");
    lab.try_restore(second, &exact()).unwrap_or_else(|error| panic!("{what}: {error}, {failed}"));
    assert_same(&lab.manifest(), &good, what);
}

/// Writes the second state into the work tree without a restore.
fn copy_back(lab: &Lab) {
    lab.write("a", "second\n");
    lab.write("dir/b", "same\n");
    lab.write("dir/new", "new\n");
    lab.write("secret", "x");
    lab.chmod("secret", 0o600);
}

#[test]
fn snapshots_work_after_any_store_file_is_truncated_or_lost() {
    let (lab, _, _) = sample();
    let names: Vec<PathBuf> = store_files(&lab.store())
        .iter()
        .map(|path| path.strip_prefix(lab.store()).unwrap().to_owned())
        .collect();
    let mut row = xtask::Row::of(10, "files of the store cut or lost, all healed");
    // Pack names differ between runs, so files are identified by their position in the list.
    for (at, name) in names.iter().enumerate() {
        for cut in 0..5 {
            row.done();
            check_damage(&format!("{name:?} cut {cut}"), &|store| {
                let path = &store_files(store)[at];
                let bytes = std::fs::read(path).unwrap();
                let keep = match cut {
                    0 => 0,
                    1 => 1.min(bytes.len()),
                    2 => bytes.len() / 2,
                    3 => bytes.len().saturating_sub(1),
                    _ => return std::fs::remove_file(path).unwrap(),
                };
                std::fs::write(path, &bytes[..keep]).unwrap();
            });
        }
    }
}

#[test]
fn a_flipped_bit_never_reaches_a_restored_file() {
    let mut row = xtask::Row::of(10, "flipped bits, none of them in a restored file");
    let mut seed = xtask::seed();
    for number in 0..xtask::sized(150, 1_000) {
        let (lab, first, _) = sample();
        let files: Vec<PathBuf> = store_files(&lab.store())
            .into_iter()
            .filter(|path| path.metadata().unwrap().len() > 0)
            .collect();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let path = &files[(seed >> 33) as usize % files.len()];
        let mut bytes = std::fs::read(path).unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (seed >> 33) as usize % bytes.len();
        bytes[at] ^= 1 << (seed >> 60 & 7);
        std::fs::write(path, &bytes).unwrap();
        let before = lab.manifest();
        match lab.try_restore(first, &exact()) {
            Ok(_) => {
                assert_eq!(lab.read("a"), "first\n", "{number}: {path:?} at {at}");
                assert_eq!(lab.read("dir/b"), "same\n");
                assert_eq!(lab.mode("a"), 0o644);
            }
            Err(_) => assert_same(&lab.manifest(), &before, &format!("{path:?} at {at}")),
        }
        row.done();
        // The next snapshot succeeds or returns an error. It must not panic.
        drop(lab.workspace().track(&TrackOptions::default(), &Progress::default()));
    }
}

#[test]
fn verify_detects_damaged_packs() {
    let (lab, _, _) = sample();
    assert_eq!(lab.workspace().maintenance().verify(&Progress::default()).unwrap().problems, []);
    for path in store_files(&lab.store()) {
        if path.extension().is_some_and(|extension| extension == "pack") {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            for byte in &mut bytes[middle..middle + 8] {
                *byte ^= 0xff;
            }
            std::fs::write(path, bytes).unwrap();
        }
    }
    assert_ne!(lab.workspace().maintenance().verify(&Progress::default()).unwrap().problems, []);
}

#[test]
fn an_empty_object_file_is_not_used() {
    let lab = Lab::new();
    lab.write("a", "content\n");
    let hash = lab.hash();
    // After a power cut, an object that git wrote may be an empty file.
    for path in store_files(&lab.store().join("objects/pack")) {
        std::fs::remove_file(path).unwrap();
    }
    let blob = lab.store().join("objects/d9/5f3ad14dee633a758d2e331151e950dd13e4ed");
    std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
    std::fs::write(&blob, "").unwrap();
    assert_eq!(lab.hash(), hash);
    std::fs::remove_file(&blob).unwrap();
    lab.write("a", "other\n");
    lab.restore(hash);
    assert_eq!(lab.read("a"), "content\n");
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_stale_or_corrupt_cache_does_not_change_the_hash() {
    let (lab, _, second) = sample();
    let cache = store_files(&lab.store()).into_iter().find(|path| path.ends_with("stat")).unwrap();
    let old = std::fs::read(&cache).unwrap();
    lab.write("a", "third!\n");
    lab.remove("dir/new");
    let third = lab.hash();
    std::fs::write(&cache, old).unwrap();
    assert_eq!(lab.hash(), third);
    std::fs::write(&cache, "garbage").unwrap();
    assert_eq!(lab.hash(), third);
    lab.restore_exact(second);
    assert_eq!(lab.hash(), second);
}

#[test]
fn lost_refs_are_recovered() {
    let (lab, first, _) = sample();
    std::fs::remove_dir_all(lab.store().join("refs")).unwrap();
    lab.write("a", "third\n");
    lab.track();
    let log = lab.workspace().log(10).unwrap();
    assert_eq!(log.len(), 3, "the new operation continues the old log");
    assert_eq!(log[2].snapshot, first);
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_newer_format_is_refused() {
    let (lab, first, _) = sample();
    std::fs::write(lab.store().join("ctrlz/format"), "99\n").unwrap();
    let result = lab.try_restore(first, &exact());
    assert!(
        matches!(result, Err(Error::Store(StoreError::NewerFormat { found: 99, .. }))),
        "{result:?}"
    );
}

#[test]
fn a_directory_that_is_not_a_store_is_refused() {
    let mut lab = Lab::new();
    lab.write("a", "x");
    // A directory of its own: one beside the work tree falls back to the data directory.
    let elsewhere = tempfile::tempdir().unwrap();
    let place = elsewhere.path().join("someone-elses");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("file"), "x").unwrap();
    lab.options.store = Some(place.clone());
    let result = lab.workspace().track(&TrackOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::Store(StoreError::UntrustedStore { .. }))), "{result:?}");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
}

#[test]
fn open_permissions_of_a_store_are_tightened() {
    use std::os::unix::fs::PermissionsExt;
    let (lab, _, _) = sample();
    let store = lab.store();
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o755)).unwrap();
    lab.track();
    assert_eq!(store.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn leftover_temporary_files_are_removed() {
    let (lab, _, _) = sample();
    let left = lab.store().join("objects/pack/tmp_ctrlz_0123456789abcdef");
    std::fs::write(&left, "half a pack").unwrap();
    lab.track();
    assert!(!left.exists());
}

#[test]
fn a_store_copied_elsewhere_still_works() {
    let (mut lab, first, _) = sample();
    let copy = lab.dir().join("copy");
    std::fs::create_dir(&copy).unwrap();
    copy_dir(&lab.options.data_dir, &copy);
    lab.options.data_dir = copy;
    lab.restore(first);
    assert_eq!(lab.read("a"), "first\n");
}
