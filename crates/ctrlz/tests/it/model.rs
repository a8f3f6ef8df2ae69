//! Random edits, snapshots and restores, compared with a naive copy.

use std::collections::BTreeMap;

use ctrlz::{ObjectId, Options, PatchToRevert, Progress, RestoreOptions, TrackOptions, Workspace};
use proptest::prelude::*;

use crate::lab::{Lab, Manifest, assert_same, exact, tree_path};

/// An event in a work tree.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8),
    Append(usize),
    Delete(usize),
    DeleteDir(usize),
    Chmod(usize, u32),
    Link(usize),
    MakeDir(usize),
    Rename(usize, usize),
    Track,
    RestoreExact(usize),
    Restore(usize),
    Revert(usize, Vec<usize>),
}

/// Paths that conflict with each other as files and directories.
const PATHS: [&str; 9] = ["a", "a/b", "a/b/c", "a.b", "d/e", "d/f", "g", "d", "日/本"];

fn step() -> impl Strategy<Value = Step> {
    let path = 0..PATHS.len();
    prop_oneof![
        6 => (path.clone(), any::<u8>()).prop_map(|(path, byte)| Step::Write(path, byte)),
        2 => path.clone().prop_map(Step::Append),
        2 => path.clone().prop_map(Step::Delete),
        1 => path.clone().prop_map(Step::DeleteDir),
        2 => (path.clone(), prop_oneof![Just(0o600), Just(0o755), Just(0o644), Just(0o640)])
            .prop_map(|(path, mode)| Step::Chmod(path, mode)),
        1 => path.clone().prop_map(Step::Link),
        1 => path.clone().prop_map(Step::MakeDir),
        1 => (path.clone(), path.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        4 => Just(Step::Track),
        2 => any::<usize>().prop_map(Step::RestoreExact),
        1 => any::<usize>().prop_map(Step::Restore),
        1 => (any::<usize>(), proptest::collection::vec(path, 1..4))
            .prop_map(|(at, paths)| Step::Revert(at, paths)),
    ]
}

/// Applies an edit. Edits may fail; a failed one changes nothing.
fn edit(lab: &Lab, step: &Step) {
    let path = |at: usize| lab.path(PATHS[at]);
    let make_parent = |at: usize| drop(std::fs::create_dir_all(path(at).parent().unwrap()));
    match step {
        Step::Write(at, byte) => {
            make_parent(*at);
            drop(std::fs::write(path(*at), vec![*byte; usize::from(*byte % 7)]));
        }
        Step::Append(at) => {
            use std::io::Write;
            if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path(*at)) {
                file.write_all(b"more\n").unwrap();
            }
        }
        Step::Delete(at) => drop(std::fs::remove_file(path(*at))),
        Step::DeleteDir(at) => drop(std::fs::remove_dir_all(path(*at))),
        Step::Chmod(at, mode) => {
            if path(*at).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                lab.chmod(PATHS[*at], *mode);
            }
        }
        Step::Link(at) => {
            make_parent(*at);
            drop(std::os::unix::fs::symlink("target", path(*at)));
        }
        Step::MakeDir(at) => drop(std::fs::create_dir_all(path(*at))),
        Step::Rename(from, to) => drop(std::fs::rename(path(*from), path(*to))),
        Step::Track | Step::RestoreExact(_) | Step::Restore(_) | Step::Revert(..) => (),
    }
}

/// Returns the files and symlinks of a manifest, without directories.
fn leaves(manifest: &Manifest) -> BTreeMap<Vec<u8>, String> {
    let is_leaf = |thing: &String| !thing.starts_with("dir");
    manifest
        .0
        .iter()
        .filter(|(_, thing)| is_leaf(thing))
        .map(|(p, t)| (p.clone(), t.clone()))
        .collect()
}

/// Returns the snapshot hash that a fresh store computes by reading every file.
fn cold_hash(lab: &Lab) -> ObjectId {
    let data = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(&lab.root(), Options::new(data.path())).unwrap();
    let options = TrackOptions { rehash: true, ..TrackOptions::default() };
    workspace.track(&options, &Progress::default()).unwrap().hash
}

fn check_sequence(steps: &[Step]) {
    let lab = Lab::new();
    // Hash, operation and copy of every tracked state. Hashes may repeat, operations do not.
    let mut copies: Vec<(ObjectId, String, Manifest)> = Vec::new();
    for step in steps {
        let pick = |at: usize| (!copies.is_empty()).then(|| &copies[at % copies.len()]);
        match step {
            Step::Track => {
                let snapshot = lab.track();
                assert_eq!(snapshot.hash, cold_hash(&lab), "incremental equals cold");
                copies.push((snapshot.hash, snapshot.operation, lab.manifest()));
            }
            Step::RestoreExact(at) => {
                let Some((hash, operation, copy)) = pick(*at) else { continue };
                let before = lab.manifest();
                let point = ctrlz::Point::Operation(operation.clone());
                let report =
                    lab.workspace().restore(point, &exact(), &Progress::default()).unwrap();
                assert!(report.is_complete(), "{report:?}");
                assert_same(&lab.manifest(), copy, "restored exactly");
                assert_eq!(lab.hash(), *hash);
                let undo = ctrlz::Point::Operation(report.safety_operation);
                lab.workspace().restore(undo, &exact(), &Progress::default()).unwrap();
                assert_same(&lab.manifest(), &before, "restore undone");
                let point = ctrlz::Point::Operation(operation.clone());
                lab.workspace().restore(point, &exact(), &Progress::default()).unwrap();
            }
            Step::Restore(at) => {
                let Some((_, operation, copy)) = pick(*at) else { continue };
                let before = leaves(&lab.manifest());
                let point = ctrlz::Point::Operation(operation.clone());
                let options = RestoreOptions::default();
                let report =
                    lab.workspace().restore(point, &options, &Progress::default()).unwrap();
                let (after, wanted) = (leaves(&lab.manifest()), leaves(copy));
                let in_the_way = |path: &[u8]| {
                    let path = ctrlz::TreePath::parse(path).unwrap();
                    let stays = report.kept.iter().filter(|kept| kept.reason.is_failure());
                    stays.into_iter().any(|kept| path.is_within(&kept.path))
                };
                for (path, thing) in wanted.iter().filter(|(path, _)| !in_the_way(path)) {
                    assert_eq!(after.get(path), Some(thing), "{}", ctrlz::escape(path));
                }
                // Files are replaced by directories of the snapshot, and directories by files of
                // it.
                let is_replaced = |path: &[u8]| {
                    let path = ctrlz::TreePath::parse(path).unwrap();
                    wanted.keys().any(|wanted| {
                        let wanted = ctrlz::TreePath::parse(wanted).unwrap();
                        path.is_within(&wanted) || wanted.is_within(&path)
                    })
                };
                for (path, thing) in before.iter().filter(|(path, _)| !is_replaced(path)) {
                    assert_eq!(
                        after.get(path),
                        Some(thing),
                        "created since: {}",
                        ctrlz::escape(path)
                    );
                }
            }
            Step::Revert(at, paths) => {
                let Some((hash, _, copy)) = pick(*at) else { continue };
                let before = leaves(&lab.manifest());
                let files = paths.iter().map(|at| tree_path(PATHS[*at])).collect();
                let patches = [PatchToRevert { hash: *hash, files }];
                let options = RestoreOptions::default();
                let report =
                    lab.workspace().revert(&patches, &options, &Progress::default()).unwrap();
                let (after, wanted) = (leaves(&lab.manifest()), leaves(copy));
                let content = |thing: Option<&String>| {
                    // A tree hash does not determine permissions, so only content is compared.
                    thing.map(|thing| thing.splitn(3, ' ').last().unwrap_or_default().to_owned())
                };
                for at in paths {
                    let path = PATHS[*at].as_bytes();
                    if report.kept.iter().all(|kept| kept.path.as_bytes() != path) {
                        assert_eq!(
                            content(after.get(path)),
                            content(wanted.get(path)),
                            "{}",
                            PATHS[*at]
                        );
                    }
                }
                for (path, thing) in &before {
                    let touched = paths.iter().any(|at| {
                        let named = tree_path(PATHS[*at]);
                        let path = ctrlz::TreePath::parse(path).unwrap();
                        path.is_within(&named) || named.is_within(&path)
                    });
                    assert!(touched || after.get(path) == Some(thing), "{}", ctrlz::escape(path));
                }
            }
            edit_step => edit(&lab, edit_step),
        }
    }
    if let Some((_, _, copy)) = copies.last() {
        let operation = copies.last().map(|copy| copy.1.clone()).unwrap();
        let point = ctrlz::Point::Operation(operation);
        lab.workspace().restore(point, &exact(), &Progress::default()).unwrap();
        assert_same(&lab.manifest(), copy, "the last copy");
        crate::lab::assert_fsck_clean(&lab.store());
    }
}

fn cases() -> u32 {
    xtask::many(150, 3_000) as u32
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_equals_a_naive_copy(steps in proptest::collection::vec(step(), 1..30)) {
        let mut row = xtask::Row::of(9, "sequences against a naive copy");
        check_sequence(&steps);
        row.done();
    }
}
