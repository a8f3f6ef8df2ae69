//! Paths outside the work tree: captured before a step, restored completely or not at all.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ctrlz::{
    Error, OutsideAction, OutsideKept, Progress, RestoreError, StepEnd, StepStart, Uncaptured,
    UndoOptions, UndoReport, UndoScope, Workspace,
};

use crate::lab::Lab;
use crate::sessions::{last_turn, start};

/// A lab with a directory beside the work tree that steps may name.
struct Scene {
    lab: Lab,
    elsewhere: PathBuf,
}

fn scene() -> Scene {
    let lab = Lab::new();
    let elsewhere = lab.dir().canonicalize().unwrap().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    lab.write("a", "one\n");
    Scene { lab, elsewhere }
}

fn asked() -> UndoOptions {
    UndoOptions { outside: true, ..UndoOptions::default() }
}

fn forced() -> UndoOptions {
    UndoOptions { force: true, ..asked() }
}

impl Scene {
    fn workspace(&self) -> Workspace {
        self.lab.workspace()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.elsewhere.join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.at(path)).ok()
    }

    fn remove(&self, path: &str) {
        if self.at(path).symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(self.at(path)).unwrap();
        } else {
            std::fs::remove_file(self.at(path)).unwrap();
        }
    }

    fn start(&self, id: &str, named: &[&str]) -> StepStart {
        let outside = named.iter().map(|path| self.at(path)).collect();
        StepStart { outside, ..start("s", id, id) }
    }

    /// Records a step that names paths. `tool` makes its changes.
    fn step(&self, id: &str, named: &[&str], tool: impl FnOnce()) {
        let begun = self.workspace().begin_step(self.start(id, named), &Progress::default());
        assert_eq!(begun.unwrap().outside_failed, None);
        tool();
        self.workspace().end_step(id, &Default::default(), &Progress::default()).unwrap();
    }

    fn undo(&self, options: &UndoOptions) -> UndoReport {
        self.try_undo(options).unwrap()
    }

    fn try_undo(&self, options: &UndoOptions) -> Result<UndoReport, Error> {
        self.workspace().undo(&UndoScope::LastTurn, options, &Progress::default())
    }

    fn plan(&self, options: &UndoOptions) -> UndoReport {
        let progress = Progress::default();
        self.workspace().plan(&last_turn(options), &progress).unwrap()
    }

    fn redo(&self, options: &UndoOptions) -> UndoReport {
        self.workspace().redo(options, &Progress::default()).unwrap()
    }

    /// Returns every path below the outside directory with its mode and content.
    fn listing(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut dirs = vec![self.elsewhere.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                let content = if meta.is_symlink() {
                    path.read_link().unwrap().into_os_string().into_encoded_bytes()
                } else {
                    std::fs::read(&path).unwrap_or_default()
                };
                if meta.is_dir() {
                    dirs.push(path.clone());
                }
                found.push((path, meta.mode(), content));
            }
        }
        found.sort();
        found
    }
}

fn kept<'a>(report: &'a UndoReport, path: &Path) -> Option<&'a OutsideKept> {
    let change = report.outside.iter().find(|change| change.path == path);
    change.unwrap_or_else(|| panic!("{path:?} is not in {:#?}", report.outside)).kept.as_ref()
}

#[test]
fn undo_restores_everything_below_a_named_outside_path_and_redo_reverses_it() {
    let scene = scene();
    scene.write("photos/deep/1.jpg", "one");
    scene.write("photos/2.jpg", "two");
    std::fs::create_dir(scene.at("photos/empty")).unwrap();
    for (path, mode) in
        [("photos/deep/1.jpg", 0o600), ("photos/deep", 0o750), ("photos/empty", 0o700)]
    {
        std::fs::set_permissions(scene.at(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    symlink("deep/1.jpg", scene.at("photos/link")).unwrap();
    scene.write("notes", "mine");
    let before = scene.listing();
    scene.step("1", &["photos", "notes", "new", "made/deep/file"], || {
        scene.remove("photos");
        scene.write("notes", "the agent's text");
        scene.write("new", "x");
        scene.write("made/deep/file", "x");
        scene.lab.write("a", "two\n");
    });
    let after = scene.listing();
    let listed = scene.plan(&UndoOptions::default());
    assert_eq!(kept(&listed, &scene.at("photos/2.jpg")), Some(&OutsideKept::NotAsked));
    assert!(listed.is_complete(), "{listed:#?}");
    assert_eq!(scene.listing(), after, "listing writes nothing");

    let report = scene.undo(&asked());
    assert!(report.is_complete(), "{report:#?}");
    assert_eq!(scene.listing(), before);
    assert_eq!(scene.lab.read("a"), "one\n");
    let action = |path: &str| {
        report.outside.iter().find(|change| change.path == scene.at(path)).unwrap().action
    };
    assert_eq!(action("photos/2.jpg"), Some(OutsideAction::Create));
    assert_eq!(action("notes"), Some(OutsideAction::Overwrite));
    assert_eq!(action("made/deep/file"), Some(OutsideAction::Remove));

    let report = scene.redo(&UndoOptions::default());
    assert!(report.is_complete(), "{report:#?}");
    assert_eq!((scene.listing(), scene.lab.read("a")), (after.clone(), "two\n".into()));
    scene.undo(&asked());
    assert_eq!(scene.listing(), before);
}

#[test]
fn undo_reverses_type_changes_between_files_and_directories_outside() {
    let scene = scene();
    scene.write("one/file", "x");
    scene.write("two", "y");
    let before = scene.listing();
    scene.step("1", &["one", "two"], || {
        scene.remove("one");
        scene.write("one", "a file now");
        scene.remove("two");
        scene.write("two/deep/file", "a directory now");
    });
    let after = scene.listing();
    assert!(scene.undo(&asked()).is_complete());
    assert_eq!(scene.listing(), before);
    assert!(scene.redo(&asked()).is_complete());
    assert_eq!(scene.listing(), after);
}

#[test]
fn a_step_that_changed_only_outside_paths_can_be_undone() {
    let scene = scene();
    scene.step("1", &[], || scene.lab.write("a", "two\n"));
    scene.write("notes", "mine");
    scene.step("2", &["notes"], || scene.remove("notes"));
    let report = scene.undo(&UndoOptions::default());
    assert_eq!(report.steps, ["2"], "{report:#?}");
    assert_eq!(scene.lab.read("a"), "two\n");
    assert_eq!(scene.read("notes"), None);
    assert_eq!(scene.undo(&asked()).steps, ["2"]);
    assert_eq!(scene.read("notes").as_deref(), Some("mine"));
    // First the outside part, then the whole turn.
    scene.redo(&UndoOptions::default());
    assert_eq!(scene.read("notes"), None);
    scene.undo(&asked());
    assert_eq!(scene.undo(&asked()).steps, ["1"]);
    assert_eq!(scene.lab.read("a"), "one\n");
}

#[test]
fn a_later_edit_blocks_undo_of_the_whole_named_path_unless_forced() {
    let scene = scene();
    scene.write("dir/1", "one");
    scene.write("dir/2", "two");
    scene.write("other", "mine");
    scene.step("1", &["dir", "other"], || {
        scene.write("dir/1", "agent");
        scene.write("dir/2", "agent");
        scene.write("other", "agent");
    });
    scene.write("dir/1", "mine again");
    scene.write("dir/mine", "new");
    let report = scene.undo(&asked());
    assert!(!report.is_complete());
    assert_eq!(kept(&report, &scene.at("dir/1")), Some(&OutsideKept::ChangedSince));
    assert_eq!(scene.read("dir/1").as_deref(), Some("mine again"));
    assert_eq!(scene.read("dir/2").as_deref(), Some("agent"), "the whole path or nothing");
    assert_eq!(scene.read("other").as_deref(), Some("mine"), "another named path is restored");

    assert!(scene.undo(&forced()).is_complete());
    assert_eq!(scene.read("dir/1").as_deref(), Some("one"));
    assert_eq!(scene.read("dir/2").as_deref(), Some("two"));
    assert_eq!(scene.read("dir/mine").as_deref(), Some("new"), "the step did not create it");
    scene.redo(&UndoOptions::default());
    assert_eq!(scene.read("dir/1").as_deref(), Some("mine again"), "redo restores the user's edit");
}

#[test]
fn steps_with_overlapping_outside_paths_are_undone_together() {
    let scene = scene();
    scene.write("dir/1", "one");
    scene.write("dir/2", "two");
    let before = scene.listing();
    let in_turn = |step: &str, named: &[&str], tool: &dyn Fn()| {
        let mut begin = scene.start(step, named);
        begin.info.message = Some("turn".into());
        scene.workspace().begin_step(begin, &Progress::default()).unwrap();
        tool();
        scene.workspace().end_step(step, &Default::default(), &Progress::default()).unwrap();
    };
    in_turn("1", &["dir/1"], &|| scene.write("dir/1", "agent"));
    in_turn("2", &["dir"], &|| scene.remove("dir"));
    in_turn("3", &["dir"], &|| scene.write("dir/3", "new"));
    let planned = scene.plan(&asked());
    let report = scene.undo(&asked());
    assert_eq!(report.outside, planned.outside);
    assert!(report.is_complete(), "{report:#?}");
    assert_eq!(scene.listing(), before);
}

#[test]
fn a_capture_that_is_too_large_is_not_partially_restored() {
    let scene = scene();
    for number in 0..10_001 {
        scene.write(&format!("many/{number}"), "x");
    }
    scene.step("1", &["many"], || scene.remove("many"));
    let report = scene.undo(&asked());
    assert!(!report.is_complete());
    let reason = kept(&report, &scene.at("many"));
    assert!(matches!(reason, Some(OutsideKept::NotCaptured { .. })), "{reason:?}");
    assert!(scene.listing().is_empty());
}

#[test]
fn the_loss_of_an_outside_path_that_did_not_fit_is_reported() {
    for (path, is_removed) in [("big/z", true), ("big/z", false), ("many", true), ("many", false)] {
        let scene = scene();
        match path {
            "many" => (0..10_001).for_each(|at| scene.write(&format!("many/{at}"), "x")),
            _ => scene.write(path, vec![0; 65 << 20]),
        }
        scene.write("big/captured", "x");
        let begun =
            scene.workspace().begin_step(scene.start("1", &["big", "many"]), &Progress::default());
        assert_eq!(begun.unwrap().outside_failed, None);
        match (path, is_removed) {
            (_, true) => scene.remove(path),
            ("many", false) => scene.remove("many/1"),
            (_, false) => scene.write(path, "AGENT"),
        }
        let ended = scene
            .workspace()
            .end_step("1", &ctrlz::StepEnd::default(), &Progress::default())
            .unwrap();
        let full = scene.at(path).into_os_string().into_encoded_bytes();
        let lost = |found: &[Uncaptured]| {
            let paths = found.iter().filter(|lost| lost.is_loss()).map(|lost| lost.path.clone());
            paths.collect::<Vec<_>>()
        };
        assert_eq!(lost(&ended.uncaptured), [full.as_slice()], "{path}");
        assert_eq!(scene.workspace().lost_files().uncaptured().unwrap().len(), 1);
        let report = scene.undo(&UndoOptions::default());
        assert_eq!(lost(&report.uncaptured), [full.as_slice()], "{path}");
        assert!(!report.is_complete() && report.done.is_empty(), "{report:#?}");
        let steps = scene.workspace().steps().unwrap();
        assert!(steps.iter().all(|step| !step.undone), "nothing was undone");
    }
}

#[test]
fn an_outside_path_that_did_not_fit_and_is_unchanged_is_not_reported() {
    let scene = scene();
    scene.write("big", vec![0; 65 << 20]);
    scene.write("notes", "mine");
    scene.step("1", &["big", "notes"], || scene.remove("notes"));
    let report = scene.undo(&asked());
    assert!(report.is_complete() && report.uncaptured.is_empty(), "{report:#?}");
    assert_eq!(scene.read("notes").as_deref(), Some("mine"));
}

#[test]
fn undo_needs_permission_to_remove_many_outside_files() {
    let scene = scene();
    scene.step("1", &["many"], || {
        for number in 0..60 {
            scene.write(&format!("many/{number}"), "x");
        }
    });
    let refused = scene.try_undo(&asked());
    assert!(
        matches!(refused, Err(Error::Restore(RestoreError::MassChange { removed: 60, .. }))),
        "{refused:?}"
    );
    assert_eq!(scene.listing().len(), 61);
    scene.undo(&UndoOptions { allow_mass_removal: true, ..asked() });
    assert!(scene.listing().is_empty());
}

#[test]
fn undo_does_not_write_through_a_symlink_created_since() {
    let scene = scene();
    scene.write("photos/1", "one");
    scene.write("victim/1", "victim");
    scene.step("1", &["photos/1"], || scene.remove("photos/1"));
    scene.remove("photos");
    symlink(scene.at("victim"), scene.at("photos")).unwrap();
    scene.remove("victim/1");
    let report = scene.undo(&forced());
    assert!(!report.is_complete(), "{report:#?}");
    assert_eq!(std::fs::read_dir(scene.at("victim")).unwrap().count(), 0);
}

#[test]
fn an_outside_repository_is_captured_but_never_written() {
    let scene = scene();
    for path in ["repo/.git/HEAD", "repo/.git/objects/aa/bb", "repo/file"] {
        scene.write(path, path);
    }
    scene.step("1", &["repo"], || scene.remove("repo"));
    let report = scene.undo(&asked());
    assert!(!report.is_complete());
    assert_eq!(kept(&report, &scene.at("repo/.git")), Some(&OutsideKept::Repository));
    assert_eq!(scene.read("repo/file").as_deref(), Some("repo/file"));
    assert!(!scene.at("repo/.git").exists());

    let inside = scene.workspace().lost_files().recover_repository(&scene.at("x/.git"));
    assert!(
        matches!(inside, Err(Error::Restore(RestoreError::InsideRepository { .. }))),
        "{inside:?}"
    );
    let recovered = scene.workspace().lost_files().recover_repository(&scene.at("saved")).unwrap();
    assert_eq!((recovered.from, recovered.files), (scene.at("repo/.git"), 2));
    assert_eq!(scene.read("saved/HEAD").as_deref(), Some("repo/.git/HEAD"));
    assert_eq!(scene.read("saved/objects/aa/bb").as_deref(), Some("repo/.git/objects/aa/bb"));
    let again = scene.workspace().lost_files().recover_repository(&scene.at("saved"));
    assert!(matches!(again, Err(Error::Restore(RestoreError::NotEmpty { .. }))), "{again:?}");
}

#[test]
fn the_projects_own_repository_is_recovered_into_another_directory() {
    let scene = scene();
    scene.lab.git(&["init", "-q"]);
    scene.lab.git(&["add", "-A"]);
    scene.lab.git(&["commit", "-q", "-m", "first"]);
    let commit = scene.lab.git(&["rev-parse", "HEAD"]);
    let own = scene.lab.root().canonicalize().unwrap().join(".git");
    let named = StepStart { outside: vec![own.clone()], ..start("s", "1", "1") };
    scene.workspace().begin_step(named, &Progress::default()).unwrap();
    scene.lab.remove(".git");
    scene.lab.git(&["init", "-q"]);
    scene.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    let fresh = std::fs::read_dir(&own).unwrap().count();
    let report = scene.undo(&asked());
    assert!(!report.is_complete());
    assert_eq!(kept(&report, &own), Some(&OutsideKept::Repository));
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), fresh, "nothing is written into it");
    let recovered = scene.workspace().lost_files().recover_repository(&scene.at("saved")).unwrap();
    assert_eq!(recovered.missing, []);
    let found = crate::lab::git(&scene.at("saved"), &["rev-parse", "HEAD"]);
    assert_eq!(found, commit);
}

#[test]
fn a_capture_is_kept_only_if_something_changed_and_the_tool_ran() {
    let scene = scene();
    scene.write("notes", "mine");
    scene.step("1", &["notes"], || ());
    let refs = || scene.lab.store_git(&["for-each-ref", "refs/ctrlz-outside"]);
    assert_eq!(refs(), "");
    scene.workspace().begin_step(scene.start("2", &["notes"]), &Progress::default()).unwrap();
    assert_ne!(refs(), "");
    scene.lab.store_git(&["fsck", "--strict"]);
    let refused = StepEnd { refused: true, ..StepEnd::default() };
    scene.write("notes", "mine, while the question was open");
    scene.workspace().end_step("2", &refused, &Progress::default()).unwrap();
    assert_eq!(refs(), "");
}

#[test]
fn beginning_a_step_twice_keeps_the_first_capture() {
    let scene = scene();
    scene.write("photos/1", "one");
    scene.step("1", &["photos"], || scene.remove("photos"));
    scene.step("1", &["photos", "more"], || scene.write("more", "x"));
    scene.undo(&asked());
    assert_eq!(scene.read("photos/1").as_deref(), Some("one"));
    assert_eq!(scene.read("more"), None);
}

#[test]
fn captures_survive_garbage_collection() {
    let scene = scene();
    scene.write("notes", "a private note elsewhere");
    scene.step("1", &["notes"], || scene.remove("notes"));
    let retention = ctrlz::Retention { thorough: true, ..ctrlz::Retention::default() };
    scene.workspace().maintenance().collect(&retention, &Progress::default()).unwrap();
    scene.undo(&asked());
    assert_eq!(scene.read("notes").as_deref(), Some("a private note elsewhere"));
}

#[test]
fn a_purge_also_removes_the_content_from_captures() {
    let scene = scene();
    scene.lab.write("secret", "SECRET=1\n");
    scene.lab.track();
    scene.write("copy", "SECRET=1\n");
    scene.step("1", &["copy"], || scene.remove("copy"));
    scene.lab.remove("secret");
    let path = crate::lab::tree_path("secret");
    let options = ctrlz::PurgeOptions::default();
    let report =
        scene.workspace().maintenance().purge(&path, options, &Progress::default()).unwrap();
    assert_eq!(report.contents, 1, "{report:?}");
    let objects = scene.lab.store_git(&["cat-file", "--batch-all-objects", "--batch"]);
    assert!(!objects.contains("SECRET=1"));
}

#[test]
fn an_outside_file_open_for_writing_is_left_alone_unless_forced() {
    let scene = scene();
    scene.write("server.log", "one\n");
    scene.step("1", &["server.log"], || scene.write("server.log", "AGENT\n"));
    let writer = std::fs::OpenOptions::new().append(true).open(scene.at("server.log")).unwrap();
    let report = scene.undo(&asked());
    assert!(matches!(report.outside[0].kept, Some(OutsideKept::InUse { .. })), "{report:?}");
    assert!(!report.is_complete());
    assert_eq!(scene.read("server.log").as_deref(), Some("AGENT\n"));
    let report = scene.undo(&forced());
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(scene.read("server.log").as_deref(), Some("one\n"));
    drop(writer);
}

#[test]
fn a_renamed_outside_file_stays_if_its_old_name_is_taken() {
    let scene = scene();
    scene.write("old", "only copy\n");
    scene.step("1", &["old", "new"], || {
        std::fs::rename(scene.at("old"), scene.at("new")).unwrap();
    });
    scene.write("old", "the user's\n");
    let report = scene.undo(&asked());
    assert!(!report.is_complete(), "{report:?}");
    assert_eq!(scene.read("old").as_deref(), Some("the user's\n"));
    assert_eq!(scene.read("new").as_deref(), Some("only copy\n"), "{report:?}");
}

#[test]
fn a_file_moved_out_of_the_work_tree_stays_if_its_old_path_is_taken() {
    let scene = scene();
    scene.lab.write("notes", "only copy\n");
    scene.step("1", &["notes"], || {
        std::fs::rename(scene.lab.path("notes"), scene.at("notes")).unwrap();
    });
    scene.lab.write("notes", "the user's\n");
    let report = scene.undo(&asked());
    assert!(!report.is_complete(), "{report:?}");
    assert_eq!(scene.lab.read("notes"), "the user's\n");
    assert_eq!(scene.read("notes").as_deref(), Some("only copy\n"), "{report:?}");
}

#[test]
fn an_outside_database_is_not_restored_beside_an_uncaptured_wal() {
    let scene = scene();
    let database = |last: u8| [&b"SQLite format 3\0"[..], &[last; 496]].concat();
    scene.write("app.db", database(1));
    scene.step("1", &["app.db"], || scene.write("app.db", database(2)));
    scene.write("app.db-wal", "a log of the newer database");
    let report = scene.undo(&asked());
    assert_eq!(report.outside[0].kept, Some(OutsideKept::Unit), "{report:?}");
    assert_eq!(std::fs::read(scene.at("app.db")).unwrap(), database(2));
}

#[test]
fn export_and_fork_refuse_a_destination_inside_a_repository() {
    let scene = scene();
    scene.lab.step("s", "m1", "1", |lab| lab.write("a", "two\n"));
    std::fs::create_dir(scene.at(".git")).unwrap();
    symlink(scene.at(".git"), scene.at("link")).unwrap();
    for place in [".git/x", "link/x"] {
        let place = scene.at(place);
        let (options, progress) = (ctrlz::ExportOptions::default(), Progress::default());
        let exported = scene.workspace().transfer().export(&place, &options, &progress);
        assert!(
            matches!(exported, Err(Error::Restore(RestoreError::InsideRepository { .. }))),
            "{exported:?}"
        );
        let options = ctrlz::ForkOptions { into: Some(place.clone()), ..Default::default() };
        let forked = scene.workspace().fork("s", &options, &progress);
        assert!(
            matches!(forked, Err(Error::Restore(RestoreError::InsideRepository { .. }))),
            "{forked:?}"
        );
        assert!(!place.exists());
    }
}

#[test]
fn a_step_that_begins_again_with_a_parent_of_a_named_path_removes_nothing() {
    let scene = scene();
    scene.write("dir/inner", "one");
    scene.write("dir/other", "one");
    let begin = |named: &[&str]| {
        scene.workspace().begin_step(scene.start("1", named), &Progress::default()).unwrap()
    };
    begin(&["dir/inner"]);
    begin(&["dir"]);
    scene.write("dir/other", "AGENT");
    scene.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    let report = scene.undo(&asked());
    assert_eq!(scene.read("dir/inner").as_deref(), Some("one"), "{:#?}", report.outside);
    assert_eq!(scene.read("dir/other").as_deref(), Some("one"));
}

const SHARED_MEMORY: [u8; 4] = 3_007_000_u32.to_ne_bytes();

/// Writes a database with a write-ahead log and shared memory.
fn write_database(scene: &Scene, path: &str) {
    let log = [&0x377f_0682_u32.to_be_bytes()[..], b"log"].concat();
    scene.write(path, [&b"SQLite format 3\0"[..], &[1; 496]].concat());
    scene.write(&format!("{path}-wal"), log);
    scene.write(&format!("{path}-shm"), SHARED_MEMORY);
}

#[test]
fn an_outside_log_is_not_restored_beside_a_newer_database() {
    for named in [&["app.db-wal"][..], &["app.db", "app.db-wal"], &["app.db-shm"], &["."]] {
        let scene = scene();
        write_database(&scene, "app.db");
        scene.step("1", named, || scene.remove("app.db-wal"));
        let newer = [&b"SQLite format 3\0"[..], &[2; 496]].concat();
        scene.write("app.db", &newer);
        for options in [asked(), forced()] {
            let report = scene.undo(&options);
            assert!(!scene.at("app.db-wal").exists(), "{named:?}: {:#?}", report.outside);
            assert_eq!(std::fs::read(scene.at("app.db")).unwrap(), newer);
            assert_eq!(kept(&report, &scene.at("app.db-wal")), Some(&OutsideKept::Unit));
            assert!(!report.is_complete());
        }
    }
}

#[test]
fn an_outside_database_and_its_log_are_restored_together_but_not_its_shared_memory() {
    for (named, removed) in [
        (&["app.db-wal"][..], &["app.db-wal"][..]),
        (&["app.db"], &["app.db", "app.db-wal", "app.db-shm"]),
        (&["."], &["app.db", "app.db-wal", "app.db-shm"]),
    ] {
        let scene = scene();
        write_database(&scene, "app.db");
        let before = scene.listing();
        scene.step("1", named, || removed.iter().for_each(|path| scene.remove(path)));
        let after = scene.listing();
        let report = scene.undo(&asked());
        assert!(report.is_complete(), "{named:?}: {:#?}", report.outside);
        let came_back = |path: &PathBuf| {
            !path.ends_with("app.db-shm") || after.iter().any(|(other, ..)| other == path)
        };
        let expected: Vec<_> = before.into_iter().filter(|(path, ..)| came_back(path)).collect();
        assert_eq!(scene.listing(), expected, "{named:?}");
        assert!(scene.redo(&asked()).is_complete());
        assert_eq!(scene.listing(), after, "{named:?}");
    }
}

/// A `git pull` can create files in a store inside the project. They must not direct a change to
/// any path of the user.
#[test]
fn captures_and_journals_that_another_program_wrote_are_ignored() {
    for forged in ["", "capture", "journal"] {
        let mut scene = scene();
        scene.lab.options.store = Some(".agent/snapshots".into());
        scene.write("f", "1");
        std::fs::set_permissions(scene.at("f"), PermissionsExt::from_mode(0o644)).unwrap();
        scene.step("p", &["f"], || scene.write("f", "2"));
        let logs = scene.lab.path(".agent/snapshots/ctrlz/wt");
        let log = std::fs::read_dir(logs).unwrap().next().unwrap().unwrap().path();
        let capture = log.join("outside/p.json");
        match forged {
            "capture" => {
                let text = std::fs::read(&capture).unwrap();
                std::fs::write(log.join("copy"), text).unwrap();
                std::fs::rename(log.join("copy"), &capture).unwrap();
            }
            "journal" => {
                let mode = r#"{"path":"f","from":420,"to":511,"is_dir":false}"#;
                let text = format!(
                    r#"{{"version":1,"phase":"Swapping","target":null,"safety":"{}","units":[],
                        "modes":[{mode}],"emptied":[],"record":null}}"#,
                    "0".repeat(40)
                );
                std::fs::write(log.join("outside/p.0.journal"), text).unwrap();
            }
            _ => (),
        }
        drop(scene.try_undo(&asked()));
        let wanted = if forged == "capture" { "2" } else { "1" };
        assert_eq!(scene.read("f").as_deref(), Some(wanted), "{forged}");
        let mode = scene.at("f").metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o644, "{forged}");
        assert!(!log.join("outside/p.0.journal").exists());
    }
}

/// Both parts of a database change while the capture reads the second one.
#[test]
fn a_database_outside_that_changes_meanwhile_is_captured_at_one_moment() {
    use rustix::fs::inotify;
    let scene = scene();
    // Each part has its version at this offset. The log is so large that it is read in chunks.
    const VERSIONS: [(&str, u64); 2] = [("d/app.db", 16), ("d/app.db-wal", 4)];
    let main = [&b"SQLite format 3\0\0"[..], &noise(1, 9000)].concat();
    let log = [&[0x37, 0x7f, 0x06, 0x82, 0][..], &noise(2, 12 << 20)].concat();
    for (round, named) in ["d/app.db", "d"].into_iter().enumerate() {
        scene.write("d/app.db", &main);
        scene.write("d/app.db-wal", &log);
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        let opened = inotify::WatchFlags::OPEN;
        inotify::add_watch(&queue, scene.at("d/app.db-wal"), opened).unwrap();
        let id = format!("{round}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rustix::io::read(&queue, &mut [0; 4096]).unwrap();
                for (path, at) in VERSIONS {
                    let file = std::fs::File::options().write(true).open(scene.at(path)).unwrap();
                    file.write_all_at(&[1], at).unwrap();
                }
            });
            scene.workspace().begin_step(scene.start(&id, &[named]), &Progress::default()).unwrap();
        });
        scene.remove("d/app.db");
        scene.remove("d/app.db-wal");
        scene.workspace().end_step(&id, &Default::default(), &Progress::default()).unwrap();
        let report = scene.undo(&asked());
        assert!(report.is_complete(), "{report:?}");
        let version = |(path, at)| std::fs::read(scene.at(path)).unwrap()[at as usize];
        let versions = VERSIONS.map(version);
        assert_eq!(versions, [1, 1], "{named}");
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(bytes).collect()
}

#[test]
fn disk_use_counts_captures_as_used() {
    let scene = scene();
    scene.workspace().track(&Default::default(), &Progress::default()).unwrap();
    let unused =
        || scene.workspace().maintenance().disk_use(0, &Progress::default()).unwrap().unused_bytes;
    let before = unused();
    scene.write("big", noise(1, 500_000));
    scene.step("1", &["big"], || scene.remove("big"));
    assert!(unused() < before + 100_000, "{} and {before}", unused());
}
