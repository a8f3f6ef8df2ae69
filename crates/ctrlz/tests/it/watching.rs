//! Snapshots with a watcher, which must equal full scans.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ctrlz::{
    Progress, Refusal, Snapshot, StepInfo, StepStart, TrackOptions, WatchEnd, WatchOptions,
    WatcherStatus, Workspace,
};
use serde_json::Value;

use crate::lab::{Lab, run};

/// Returns the number of repetitions: `few` normally, `many` in slow runs.
pub(crate) fn times(few: usize, many: usize) -> usize {
    xtask::many(few, many)
}

/// A watcher on a thread of the test. It ends when this value is dropped.
pub(crate) struct Watcher {
    workspace: Workspace,
    thread: Option<JoinHandle<Result<WatchEnd, ctrlz::Error>>>,
}

impl Watcher {
    /// Starts a watcher and waits until it is ready or has ended.
    fn start(lab: &Lab, options: WatchOptions) -> Watcher {
        let watched = lab.workspace();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            watched.watcher().run(&options, &mut |_| sender.send(()).unwrap())
        });
        receiver.recv().ok();
        Watcher { workspace: lab.workspace(), thread: Some(thread) }
    }

    /// Waits until the watcher ends and returns the reason.
    #[track_caller]
    fn wait(mut self) -> WatchEnd {
        let thread = self.thread.take().unwrap();
        let start = Instant::now();
        while !thread.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(10), "the watcher did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        thread.join().unwrap().unwrap()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let start = Instant::now();
        while !thread.is_finished() && start.elapsed() < Duration::from_secs(10) {
            // Fails if the test has removed the work tree, which ends the watcher as well.
            self.workspace.watcher().stop().ok();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Lab {
    fn watched(mut self) -> Lab {
        self.options.watch = true;
        self
    }

    pub(crate) fn watcher(&self) -> Watcher {
        Watcher::start(self, WatchOptions::default())
    }

    /// Takes the first snapshot, after which the watcher can be asked for changes since then.
    fn arm(&self) -> Snapshot {
        let armed = self.track();
        self.workspace().copy_borrowed(u64::MAX).unwrap();
        assert!(!armed.watched, "the first snapshot needs a full scan");
        armed
    }

    #[track_caller]
    fn track_watched(&self) -> Snapshot {
        let snapshot = self.track();
        assert!(snapshot.watched, "a full scan was made");
        snapshot
    }

    #[track_caller]
    fn track_scanned(&self) -> Snapshot {
        let snapshot = self.track();
        assert!(!snapshot.watched, "no full scan was made");
        snapshot
    }

    /// Takes a snapshot of the work tree with an empty store.
    pub(crate) fn cold(&self) -> (Snapshot, Lab) {
        let mut cold = Lab::new();
        cold.options = self.options.clone();
        cold.options.data_dir = cold.dir().join("data");
        cold.options.watch = false;
        let workspace = Workspace::open(&self.root(), cold.options.clone()).unwrap();
        (workspace.track(&TrackOptions::default(), &Progress::default()).unwrap(), cold)
    }

    /// Returns the metadata of the newest operation, with permissions listed for every path.
    pub(crate) fn meta(&self, root: &Lab) -> Value {
        let store = Workspace::open(&root.root(), self.options.clone()).unwrap();
        let store = store.store_path().unwrap().unwrap();
        let git = |args: &[&str]| crate::lab::git(&store, args);
        let log = git(&["for-each-ref", "--format=%(objectname)", "refs/ctrlz/*/log"]);
        let commit = git(&["cat-file", "commit", log.trim()]);
        let header = commit.lines().find_map(|line| line.strip_prefix("ctrlz ")).unwrap();
        let header: Value = serde_json::from_str(header).unwrap();
        let mut meta = match header["meta_in"].as_str() {
            Some(spilled) => {
                serde_json::from_str(&git(&["show", &format!("{spilled}:meta.json")])).unwrap()
            }
            None => header["meta"].clone(),
        };
        // Compares which ignored files were stored, but not when or after which commit.
        if let Some(ignored_snapshot) = meta["companion"].as_str() {
            let commit = git(&["cat-file", "commit", ignored_snapshot]);
            let said = commit
                .lines()
                .filter(|line| line.starts_with("tree ") || line.starts_with("ctrlz "));
            meta["companion"] = said.collect::<Vec<_>>().join("; ").into();
        }
        // Which permissions are the common ones is only a matter of encoding.
        let common = meta["common"].take();
        let listed: Vec<(String, u64)> =
            serde_json::from_value(meta["modes"].take()).unwrap_or_default();
        let listed: BTreeMap<String, u64> = listed.into_iter().collect();
        let mut modes = BTreeMap::new();
        for line in git(&["ls-tree", "-r", "-t", log.trim()]).lines() {
            let (what, path) = line.split_once('\t').unwrap();
            let usual = match &what[..6] {
                "040000" => "dir",
                "100644" => "file",
                "100755" => "executable",
                _ => continue,
            };
            let mode = listed.get(path).copied().or(common[usual].as_u64());
            modes.insert(path.to_owned(), mode.unwrap());
        }
        for empty in meta["empty_dirs"].as_array().into_iter().flatten() {
            let path = empty.as_str().unwrap().to_owned();
            let mode = listed.get(&path).copied().or(common["dir"].as_u64());
            modes.insert(path, mode.unwrap());
        }
        meta["modes"] = serde_json::to_value(modes).unwrap();
        meta["common"] = Value::Null;
        meta
    }

    /// Copies the store, to compare with a full scan after the same history.
    pub(crate) fn copy(&self) -> Lab {
        let mut copy = Lab::new();
        copy.options = self.options.clone();
        copy.options.data_dir = copy.dir().join("data");
        copy.options.watch = false;
        let (from, to) = (&self.options.data_dir, &copy.options.data_dir);
        run(self.dir(), "cp", &["-a".as_ref(), from.as_ref(), to.as_ref()]);
        copy
    }

    /// Asserts that the newest snapshot equals a full rehash in a copy of the store made before it.
    #[track_caller]
    pub(crate) fn assert_as_scanned(&self, snapshot: &Snapshot, copy: &Lab, what: &str) {
        let workspace = Workspace::open(&self.root(), copy.options.clone()).unwrap();
        let all = TrackOptions { rehash: true, ..TrackOptions::default() };
        let scanned = workspace.track(&all, &Progress::default()).unwrap();
        assert_eq!(snapshot.hash, scanned.hash, "{what}");
        assert_eq!(snapshot.changed, scanned.changed, "{what}");
        assert_eq!(snapshot.skipped, scanned.skipped, "{what}");
        assert_eq!(snapshot.files, scanned.files, "{what}");
        assert_eq!(self.meta(self), copy.meta(self), "{what}");
    }

    /// Asserts that the newest snapshot equals a cold scan, including all permissions.
    #[track_caller]
    pub(crate) fn assert_as_cold(&self, snapshot: &Snapshot, what: &str) {
        let (scanned, cold) = self.cold();
        assert_eq!(snapshot.hash, scanned.hash, "{what}");
        assert_eq!(snapshot.skipped, scanned.skipped, "{what}");
        assert_eq!(snapshot.files, scanned.files, "{what}");
        assert_eq!(self.meta(self), cold.meta(self), "{what}");
    }
}

pub(crate) fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn with_a_watcher_only_the_changed_file_is_read() {
    let lab = Lab::new().watched();
    for dir in 0..20 {
        lab.write(&format!("d{dir}/a"), "1");
        lab.write(&format!("d{dir}/b"), "2");
    }
    let _watcher = lab.watcher();
    lab.arm();
    lab.write("d3/a", "changed");
    let snapshot = lab.track_watched();
    assert!(snapshot.changed);
    assert_eq!((snapshot.files_read, snapshot.files), (1, 40));
    lab.assert_as_cold(&snapshot, "one file");
    let again = lab.track_watched();
    assert!(!again.changed);
    assert_eq!((again.hash, again.files_read), (snapshot.hash, 0));
}

#[test]
fn writes_before_a_watched_snapshot_are_in_the_snapshot() {
    let lab = Lab::new().watched();
    lab.write("a/b/c/file", "0");
    lab.write("other", "0");
    let _watcher = lab.watcher();
    lab.arm();
    let workspace = lab.workspace();
    let mut row = xtask::Row::of(12, "writes just before a watched track, each in its snapshot");
    let mut missed = 0;
    let mut scanned = 0;
    for round in 0..times(300, 10_000) {
        let text = format!("{round}");
        lab.write("a/b/c/file", &text);
        let snapshot = workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
        scanned += usize::from(!snapshot.watched);
        let file = crate::lab::tree_path("a/b/c/file");
        let stored = workspace.file_at(&snapshot.hash, &file).unwrap();
        missed += usize::from(stored != text.as_bytes());
        row.done();
    }
    assert_eq!((missed, scanned), (0, 0));
}

#[test]
fn watched_snapshots_equal_full_scans_after_any_edits() {
    let mut row = xtask::Row::of(12, "rounds of edits, watched and scanned alike");
    for seed in 0..times(6, 60) as u64 {
        let lab = project(seed).watched();
        let _watcher = lab.watcher();
        lab.arm();
        let mut state = seed;
        let mut fast = 0;
        for round in 0..times(12, 40) {
            let mut done = Vec::new();
            for _ in 0..1 + random(&mut state) % 4 {
                done.push(edit(&lab, &mut state, round));
            }
            let copy = lab.copy();
            let snapshot = lab.track();
            fast += usize::from(snapshot.watched);
            let what = format!("seed {seed}, round {round}: {done:#?}");
            lab.assert_as_scanned(&snapshot, &copy, &what);
            row.done();
        }
        assert!(fast > 3, "seed {seed}: the watcher helped {fast} times");
    }
}

#[test]
fn a_directory_that_stops_being_a_repository_is_captured() {
    let mut lab = Lab::new().watched();
    lab.options.nested_repos = false;
    lab.write("dir/sub/file", "1");
    std::fs::create_dir(lab.path("dir/sub/.git")).unwrap();
    lab.write("other", "1");
    let _watcher = lab.watcher();
    lab.arm();
    assert_eq!(lab.track().skipped.len(), 1);
    std::fs::remove_dir(lab.path("dir/sub/.git")).unwrap();
    let snapshot = lab.track();
    assert_eq!((snapshot.skipped.len(), snapshot.files), (0, 2));
    lab.assert_as_cold(&snapshot, "the repository was removed");
    std::fs::create_dir(lab.path("dir/sub/.git")).unwrap();
    let snapshot = lab.track();
    assert_eq!((snapshot.skipped.len(), snapshot.files), (1, 1));
    lab.assert_as_cold(&snapshot, "the repository was recreated");
}

/// Returns a work tree for [`edit`]. The seed decides whether it has a repository.
pub(crate) fn project(seed: u64) -> Lab {
    let mut lab = match seed % 2 {
        0 => Lab::with_git(&[("src/main", "m"), ("logs/keep.log", "tracked")]),
        _ => Lab::new(),
    };
    lab.write(".gitignore", "*.log\nout/\n");
    lab.options.max_new_file_bytes = 1000;
    lab.options.nested_repos = !seed.is_multiple_of(3);
    for name in ["src/a", "src/deep/er/b", "docs/c"] {
        lab.write(name, name);
    }
    lab
}

/// Applies a random edit to the work tree and returns its description.
pub(crate) fn edit(lab: &Lab, state: &mut u64, round: usize) -> String {
    const DIRS: [&str; 8] =
        ["", "src/", "src/deep/", "src/deep/er/", "docs/", "out/", "new/", "n/m/"];
    const NAMES: [&str; 7] = ["a", "b", "c.log", "sub", "keep.log", "big", "x y"];
    let name = |state: &mut u64| {
        format!("{}{}", DIRS[random(state) % DIRS.len()], NAMES[random(state) % NAMES.len()])
    };
    let path = name(state);
    let full = lab.path(&path);
    let is_dir = full.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let action = random(state) % 12;
    let ok = match action {
        0..=2 => {
            let parent = full.parent().unwrap();
            std::fs::create_dir_all(parent)
                .and_then(|()| std::fs::write(&full, format!("{round} {path}")))
                .is_ok()
        }
        3 if is_dir => std::fs::remove_dir_all(&full).is_ok(),
        3 => std::fs::remove_file(&full).is_ok(),
        4 => std::fs::create_dir_all(&full).is_ok(),
        5 => {
            let dir = lab.path(DIRS[1 + random(state) % (DIRS.len() - 1)]);
            std::fs::rename(dir, &full).is_ok()
        }
        6 => std::fs::rename(lab.path(&name(state)), &full).is_ok(),
        7 => std::os::unix::fs::symlink("a", &full).is_ok(),
        8 => {
            use std::os::unix::fs::PermissionsExt;
            let mode = [0o600, 0o644, 0o755, 0o700, 0o664][random(state) % 5];
            let mode = if is_dir { mode | 0o700 } else { mode };
            std::fs::set_permissions(&full, PermissionsExt::from_mode(mode)).is_ok()
        }
        9 => std::fs::write(&full, vec![b'l'; 999 + random(state) % 3]).is_ok(),
        10 => match random(state) % 4 {
            0 => {
                // The second rule file ignores itself.
                let rules = ["sub\n", "*\n"][random(state) % 2];
                std::fs::write(full.parent().unwrap().join(".gitignore"), rules).is_ok()
            }
            1 => std::fs::remove_file(full.parent().unwrap().join(".gitignore")).is_ok(),
            2 => std::fs::create_dir_all(full.join(".git")).is_ok(),
            _ => std::fs::remove_dir_all(full.join(".git")).is_ok(),
        },
        _ if is_dir => {
            // Moves the directory out, adds a file and moves it back in.
            let away = lab.dir().join(format!("away{round}"));
            std::fs::rename(&full, &away)
                .and_then(|()| std::fs::write(away.join("inside"), "i"))
                .and_then(|()| std::fs::rename(&away, &full))
                .is_ok()
        }
        _ => std::fs::File::options()
            .append(true)
            .open(&full)
            .is_ok_and(|mut file| std::io::Write::write_all(&mut file, b"more").is_ok()),
    };
    format!("action {action} on {path}: {ok}")
}

#[test]
fn a_directory_filled_right_after_its_creation_is_captured_completely() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    lab.arm();
    for round in 0..times(30, 500) {
        lab.write(&format!("n{round}/b/c/d/e"), "deep");
        lab.write(&format!("n{round}/b/f"), "high");
        let snapshot = lab.track_watched();
        assert_eq!(snapshot.files, 3 + round as u64 * 2, "round {round}");
    }
    lab.assert_as_cold(&lab.track_watched(), "all of them");
}

#[test]
fn directories_moved_in_and_out_are_captured_with_their_content() {
    let lab = Lab::new().watched();
    lab.write("a/b/file", "1");
    lab.write("c", "1");
    let _watcher = lab.watcher();
    lab.arm();
    let outside = lab.dir().join("outside");
    std::fs::rename(lab.path("a"), &outside).unwrap();
    lab.assert_as_cold(&lab.track_watched(), "moved out");
    std::fs::write(outside.join("b/other"), "2").unwrap();
    std::fs::rename(&outside, lab.path("d")).unwrap();
    lab.assert_as_cold(&lab.track_watched(), "moved in");
    lab.write("d/b/file", "under the new name");
    lab.assert_as_cold(&lab.track_watched(), "written after the move");
    std::fs::rename(lab.path("d/b"), lab.path("e")).unwrap();
    lab.write("e/file", "again");
    lab.assert_as_cold(&lab.track_watched(), "moved inside");
    lab.write("e/file", "and again");
    lab.assert_as_cold(&lab.track_watched(), "written after that");
}

#[test]
fn exchanged_directories_are_both_watched_afterwards() {
    let lab = Lab::new().watched();
    lab.write("a/one", "1");
    lab.write("b/two", "2");
    let _watcher = lab.watcher();
    lab.arm();
    let exchange = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, lab.path("a"), cwd, lab.path("b"), flags).unwrap();
    };
    for round in 0..4 {
        exchange();
        lab.assert_as_cold(&lab.track_watched(), "exchanged");
        lab.write("a/new", format!("{round}"));
        lab.write("b/new", format!("{round}"));
        lab.assert_as_cold(&lab.track_watched(), "written");
    }
}

#[test]
fn changed_ignore_rules_index_and_options_force_a_full_scan() {
    let lab = Lab::with_git(&[("a", "1"), (".gitignore", "out/\n")]).watched();
    lab.write("out/made", "1");
    let _watcher = lab.watcher();
    lab.arm();
    lab.write("a", "2");
    lab.track_watched();
    // Files that git tracks are captured even if ignored, so the directory must be watched now.
    lab.git(&["add", "-f", "out/made"]);
    lab.assert_as_cold(&lab.track_scanned(), "added");
    lab.write("out/made", "changed");
    lab.assert_as_cold(&lab.track_watched(), "changed");
    lab.write(".gitignore", "");
    lab.write("out/other", "no longer ignored");
    lab.assert_as_cold(&lab.track_scanned(), "rules");
    lab.write("out/other", "watched now");
    lab.assert_as_cold(&lab.track_watched(), "after the rules");
    // An index with the same files and other stat data counts as unchanged.
    lab.write("a", "3");
    lab.git(&["add", "a"]);
    lab.assert_as_cold(&lab.track_watched(), "refreshed");
    let mut other = lab;
    other.options.exclude = vec!["a".into()];
    other.assert_as_cold(&other.track_scanned(), "other options");
}

#[test]
fn a_restore_forces_a_full_scan_in_the_next_snapshot() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    let first = lab.arm();
    lab.write("a", "2");
    lab.track_watched();
    lab.restore(first.hash);
    lab.write("b", "1");
    let scanned = lab.track_scanned();
    lab.assert_as_cold(&scanned, "after a restore");
    lab.write("b", "2");
    lab.track_watched();
}

#[test]
fn changes_invisible_to_the_watcher_are_found_by_the_next_full_scan() {
    let mut lab = Lab::new().watched();
    lab.write("a", "aaaa");
    let _watcher = lab.watcher();
    lab.arm();
    // No event reports a write through a hard link outside the work tree, or through a memory
    // mapping.
    std::fs::hard_link(lab.path("a"), lab.dir().join("alias")).unwrap();
    lab.track_watched();
    std::fs::write(lab.dir().join("alias"), "bbbb").unwrap();
    let blind = lab.track_watched();
    lab.options.watch_trust = Duration::ZERO;
    let scanned = lab.track_scanned();
    assert_ne!(blind.hash, scanned.hash);
    lab.assert_as_cold(&scanned, "scanned");
}

#[test]
fn a_write_through_another_hard_link_is_captured() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    lab.write("sub/c", "1");
    std::fs::hard_link(lab.path("a"), lab.path("b")).unwrap();
    std::fs::hard_link(lab.path("sub/c"), lab.dir().join("alias")).unwrap();
    let _watcher = lab.watcher();
    lab.arm();
    lab.write("b", "2");
    lab.assert_as_cold(&lab.track_watched(), "inside");
    lab.write("b", "3");
    lab.remove("b");
    lab.assert_as_cold(&lab.track_watched(), "inside, and gone");
    std::fs::write(lab.dir().join("alias"), "2").unwrap();
    lab.assert_as_cold(&lab.track_watched(), "outside");
    // A scan that proves most of the tree unchanged still knows of the other hard link.
    lab.write("more/file", "1");
    let trust = lab.options.watch_trust;
    let mut lab = lab;
    std::thread::sleep(Duration::from_millis(50));
    lab.options.watch_trust = Duration::ZERO;
    lab.track_scanned();
    lab.track_scanned();
    lab.options.watch_trust = trust;
    std::fs::write(lab.dir().join("alias"), "3").unwrap();
    lab.assert_as_cold(&lab.track_watched(), "outside, after a proof");
}

#[test]
fn a_watcher_refuses_too_many_directories_with_a_reason() {
    let lab = Lab::new().watched();
    for dir in 0..20 {
        lab.write(&format!("d{dir}/a"), "1");
    }
    lab.track();
    let few = WatchOptions { max_dirs: 10, ..WatchOptions::default() };
    let end = lab.workspace().watcher().run(&few, &mut |_| ()).unwrap();
    assert_eq!(end, WatchEnd::Refused(Refusal::TooManyDirectories));
    let why = Refusal::TooManyDirectories;
    // A process that another test starts holds inherited locks for a moment, until its exec.
    let start = Instant::now();
    while lab.workspace().watcher().status().unwrap() == WatcherStatus::Silent {
        assert!(start.elapsed() < Duration::from_secs(10), "the lock of the watcher is still held");
    }
    assert_eq!(lab.workspace().watcher().status().unwrap(), WatcherStatus::Refused { why });
    assert!(!lab.workspace().watcher().is_wanted().unwrap(), "not retried immediately");
    lab.write("d3/a", "2");
    lab.assert_as_cold(&lab.track_scanned(), "scanned");
    // A running watcher also gives up when there are too many directories.
    let some = WatchOptions { max_dirs: 25, ..WatchOptions::default() };
    let watcher = Watcher::start(&lab, some);
    lab.arm();
    for dir in 0..20 {
        lab.write(&format!("e{dir}/a"), "1");
    }
    lab.assert_as_cold(&lab.track_scanned(), "scanned");
    assert_eq!(watcher.wait(), WatchEnd::Refused(why));
}

/// The lock may be held by a status query, or by a killed watcher that has not exited yet.
#[test]
fn a_new_watcher_waits_for_a_lock_that_is_held_without_watching() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    drop(lab.watcher());
    let work_tree = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap();
    let lock = std::fs::File::open(work_tree.unwrap().path().join("watch/lock")).unwrap();
    lock.lock_shared().unwrap();
    let watcher = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(400));
            lock.unlock().unwrap();
        });
        lab.watcher()
    });
    lab.arm();
    lab.write("a", "2");
    lab.assert_as_cold(&lab.track_watched(), "it watches");
    assert_eq!(lab.watcher().wait(), WatchEnd::AlreadyThere);
    drop(watcher);
}

#[test]
fn too_many_dirty_paths_force_a_full_scan() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    lab.arm();
    std::fs::create_dir(lab.path("many")).unwrap();
    lab.track_watched();
    for file in 0..20_010 {
        std::fs::write(lab.path(&format!("many/{file}")), "").unwrap();
        if file % 4_000 == 0 {
            // Gives the watcher time to read its events, so that the queue does not overflow.
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    lab.assert_as_cold(&lab.track_scanned(), "many");
    lab.write("many/7", "1");
    lab.assert_as_cold(&lab.track_watched(), "one more");
}

#[test]
fn only_one_watcher_runs_and_it_ends_when_idle_or_the_work_tree_is_removed() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    assert_eq!(lab.workspace().watcher().status().unwrap(), WatcherStatus::None);
    let watcher = lab.watcher();
    let second = lab.workspace().watcher().run(&WatchOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(second, WatchEnd::AlreadyThere);
    let process = std::process::id();
    assert_eq!(
        lab.workspace().watcher().status().unwrap(),
        WatcherStatus::Watching { process, dirs: 1 }
    );
    assert!(!lab.workspace().watcher().is_wanted().unwrap());
    assert!(lab.workspace().watcher().stop().unwrap());
    assert_eq!(watcher.wait(), WatchEnd::Stopped);
    // A child process of another test may hold an inherited lock until its exec.
    let start = Instant::now();
    while !lab.workspace().watcher().is_wanted().unwrap() {
        assert!(start.elapsed() < Duration::from_secs(10), "a watcher should be wanted");
    }

    let short = WatchOptions { idle: Duration::from_millis(50), ..WatchOptions::default() };
    let start = Instant::now();
    assert_eq!(lab.workspace().watcher().run(&short, &mut |_| ()).unwrap(), WatchEnd::Idle);
    assert!(start.elapsed() < Duration::from_secs(5));

    let watcher = lab.watcher();
    std::fs::remove_dir_all(lab.root()).unwrap();
    assert_eq!(watcher.wait(), WatchEnd::Gone);
}

#[test]
fn a_new_directory_at_the_path_of_the_work_tree_is_fully_scanned() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let watcher = lab.watcher();
    lab.arm();
    std::fs::rename(lab.root(), lab.dir().join("elsewhere")).unwrap();
    std::fs::create_dir(lab.root()).unwrap();
    lab.write("b", "1");
    lab.assert_as_cold(&lab.track_scanned(), "another directory");
    assert_eq!(watcher.wait(), WatchEnd::Gone);
}

#[test]
fn a_lost_pack_is_detected_and_its_content_restored() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    lab.write("b", "1");
    let _watcher = lab.watcher();
    lab.arm();
    lab.write("a", "2");
    lab.track_watched();
    lab.write("b", "2");
    let newest = lab.track_watched();
    let packs = lab.store().join("objects/pack");
    // Only a full scan finds the content of an old pack missing.
    let mut found: Vec<_> =
        std::fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "idx"));
    found.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
    for path in [&found[1], &found[1].with_extension("pack")] {
        std::fs::remove_file(path).unwrap();
    }
    let mended = lab.track_scanned();
    assert_eq!(mended.hash, newest.hash);
    assert!(lab.workspace().file_at(&newest.hash, &crate::lab::tree_path("a")).is_ok());
}

#[test]
fn merged_packs_are_not_mistaken_for_lost_ones() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    lab.arm();
    for round in 0..120 {
        lab.write("a", format!("{round}"));
        lab.track_watched();
    }
    let packs = std::fs::read_dir(lab.store().join("objects/pack")).unwrap().count();
    assert!(packs < 120, "{packs} files");
}

#[test]
fn steps_use_the_watcher() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    lab.arm();
    let workspace = lab.workspace();
    let info = StepInfo { session: "s".into(), ..StepInfo::default() };
    let start = StepStart { info, ..StepStart::default() };
    let begun = workspace.begin_step(start, &Progress::default()).unwrap();
    lab.write("b", "2");
    let ended = workspace.end_step(&begun.step, &Default::default(), &Progress::default()).unwrap();
    assert_eq!(ended.files, [crate::lab::tree_path("b")]);
    let after = lab.track_watched();
    assert!(!after.changed);
    assert_eq!(after.hash, ended.after);
    lab.assert_as_cold(&after, "after the step");
}

#[test]
fn a_directory_moved_into_a_new_one_is_still_watched() {
    let lab = Lab::new().watched();
    for round in 0..times(20, 200) {
        lab.write(&format!("d{round}/sub/file"), "one\n");
    }
    let _watcher = lab.watcher();
    lab.arm();
    for round in 0..times(20, 200) {
        // The watcher finds the moved directory when it lists the new one, before it receives the
        // event that the directory left its old place.
        let new = lab.path(&format!("new{round}"));
        std::fs::create_dir(&new).unwrap();
        std::fs::rename(lab.path(&format!("d{round}")), new.join("d")).unwrap();
        lab.track_watched();
        lab.write(&format!("new{round}/d/sub/file"), "two\n");
        lab.track_watched();
        assert_eq!(lab.track().hash, lab.cold().0.hash, "round {round}");
    }
}
