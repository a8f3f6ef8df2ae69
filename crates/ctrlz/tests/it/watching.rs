//! Snapshots with the help of a watcher: the same as a scan of everything would give.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ctrlz::{
    Progress, Refusal, Snapshot, StepInfo, StepStart, TrackOptions, WatchEnd, WatchOptions,
    Watcher, WatcherStatus, Workspace,
};
use serde_json::Value;

use crate::lab::{Lab, run};

/// How often something is tried: more where there is time.
pub(crate) fn times(few: usize, many: usize) -> usize {
    xtask::many(few, many)
}

impl Lab {
    fn watched(mut self) -> Lab {
        self.options.watch = true;
        self
    }

    fn watcher(&self) -> Watcher {
        self.workspace().watch_in_background(&WatchOptions::default()).unwrap()
    }

    /// Tracks until the watcher is asked for changes and not for the present moment only.
    fn arm(&self) -> Snapshot {
        let armed = self.track();
        self.workspace().absorb(u64::MAX).unwrap();
        assert!(!armed.watched, "the first one has nothing to go by");
        armed
    }

    #[track_caller]
    fn track_watched(&self) -> Snapshot {
        let snapshot = self.track();
        assert!(snapshot.watched, "everything was scanned");
        snapshot
    }

    #[track_caller]
    fn track_scanned(&self) -> Snapshot {
        let snapshot = self.track();
        assert!(!snapshot.watched, "nothing was scanned");
        snapshot
    }

    /// What a store that knows nothing makes of the work tree.
    pub(crate) fn cold(&self) -> (Snapshot, Lab) {
        let mut cold = Lab::new();
        cold.options = self.options.clone();
        cold.options.data_dir = cold.dir().join("data");
        cold.options.watch = false;
        let workspace = Workspace::open(&self.root(), cold.options.clone()).unwrap();
        (workspace.track(&TrackOptions::default(), &Progress::default()).unwrap(), cold)
    }

    /// Everything the newest operation says beside its tree, with permissions spelled out.
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
        // When the ignored files were kept, and after what, is another matter than which.
        if let Some(companion) = meta["companion"].as_str() {
            let commit = git(&["cat-file", "commit", companion]);
            let said = commit
                .lines()
                .filter(|line| line.starts_with("tree ") || line.starts_with("ctrlz "));
            meta["companion"] = said.collect::<Vec<_>>().join("; ").into();
        }
        // Which permissions are the usual ones is a matter of spelling.
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

    /// A copy of the store, to see what a scan of everything would have made of the same history.
    pub(crate) fn copy(&self) -> Lab {
        let mut copy = Lab::new();
        copy.options = self.options.clone();
        copy.options.data_dir = copy.dir().join("data");
        copy.options.watch = false;
        let (from, to) = (&self.options.data_dir, &copy.options.data_dir);
        run(self.dir(), "cp", &["-a".as_ref(), from.as_ref(), to.as_ref()]);
        copy
    }

    /// The newest snapshot is what reading every file gives in a copy made before it.
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

    /// The newest snapshot is what a cold scan gives, to the last permission.
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
fn one_changed_file_is_all_that_is_looked_at() {
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
fn what_was_written_before_the_question_is_in_the_answer() {
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
fn any_edits_give_what_a_scan_of_everything_gives() {
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
fn a_directory_that_is_no_repository_any_more_is_seen() {
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
    lab.assert_as_cold(&snapshot, "it went");
    std::fs::create_dir(lab.path("dir/sub/.git")).unwrap();
    let snapshot = lab.track();
    assert_eq!((snapshot.skipped.len(), snapshot.files), (1, 1));
    lab.assert_as_cold(&snapshot, "it came again");
}

/// A work tree for [`edit`], with and without a repository of the user's.
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

/// Does something to the work tree, and says what.
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
                // The second one ignores itself.
                let rules = ["sub\n", "*\n"][random(state) % 2];
                std::fs::write(full.parent().unwrap().join(".gitignore"), rules).is_ok()
            }
            1 => std::fs::remove_file(full.parent().unwrap().join(".gitignore")).is_ok(),
            2 => std::fs::create_dir_all(full.join(".git")).is_ok(),
            _ => std::fs::remove_dir_all(full.join(".git")).is_ok(),
        },
        _ if is_dir => {
            // Comes from outside with content.
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
fn a_directory_that_is_filled_at_once_is_seen_whole() {
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
fn directories_come_and_go_with_their_content() {
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
fn changed_rules_and_a_changed_index_make_everything_be_scanned() {
    let lab = Lab::with_git(&[("a", "1"), (".gitignore", "out/\n")]).watched();
    lab.write("out/made", "1");
    let _watcher = lab.watcher();
    lab.arm();
    lab.write("a", "2");
    lab.track_watched();
    // What git tracks counts even if it is ignored, so the directory has to be watched from now on.
    lab.git(&["add", "-f", "out/made"]);
    lab.assert_as_cold(&lab.track_scanned(), "added");
    lab.write("out/made", "changed");
    lab.assert_as_cold(&lab.track_watched(), "changed");
    lab.write(".gitignore", "");
    lab.write("out/other", "no longer ignored");
    lab.assert_as_cold(&lab.track_scanned(), "rules");
    lab.write("out/other", "watched now");
    lab.assert_as_cold(&lab.track_watched(), "after the rules");
    // The same files with other stamps are the same index.
    lab.write("a", "3");
    lab.git(&["add", "a"]);
    lab.assert_as_cold(&lab.track_watched(), "refreshed");
    let mut other = lab;
    other.options.exclude = vec!["a".into()];
    other.assert_as_cold(&other.track_scanned(), "other options");
}

#[test]
fn an_operation_by_somebody_else_makes_everything_be_scanned() {
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
fn what_no_watcher_sees_is_found_by_the_next_scan_of_everything() {
    let mut lab = Lab::new().watched();
    lab.write("a", "aaaa");
    let _watcher = lab.watcher();
    lab.arm();
    // Through another name outside the work tree, as through a mapping, nobody is told.
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
fn a_write_through_another_name_of_a_file_is_seen() {
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
    // A scan that proves most of it unchanged still knows of the other name.
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
fn too_many_directories_are_refused_with_a_reason_and_scanned() {
    let lab = Lab::new().watched();
    for dir in 0..20 {
        lab.write(&format!("d{dir}/a"), "1");
    }
    lab.track();
    let few = WatchOptions { max_dirs: 10, ..WatchOptions::default() };
    let end = lab.workspace().watch(&few, &mut |_| ()).unwrap();
    assert_eq!(end, WatchEnd::Refused(Refusal::TooManyDirectories));
    let why = Refusal::TooManyDirectories;
    // Other tests start programs, and one that is not quite started holds all locks for a moment.
    let start = Instant::now();
    while lab.workspace().watcher().unwrap() == WatcherStatus::Silent {
        assert!(start.elapsed() < Duration::from_secs(10), "who holds its lock?");
    }
    assert_eq!(lab.workspace().watcher().unwrap(), WatcherStatus::Refused { why });
    assert!(!lab.workspace().wants_watcher().unwrap(), "not again at once");
    lab.write("d3/a", "2");
    lab.assert_as_cold(&lab.track_scanned(), "scanned");
    // One that gets too many later gives up too.
    let some = WatchOptions { max_dirs: 25, ..WatchOptions::default() };
    let watcher = lab.workspace().watch_in_background(&some).unwrap();
    lab.arm();
    for dir in 0..20 {
        lab.write(&format!("e{dir}/a"), "1");
    }
    lab.assert_as_cold(&lab.track_scanned(), "scanned");
    assert_eq!(watcher.stop().unwrap(), WatchEnd::Refused(why));
}

/// Somebody who only looks, or a watcher that was killed and is not dead yet.
#[test]
fn who_holds_the_lock_and_does_not_watch_is_waited_for() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    lab.watcher().stop().unwrap();
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
    assert_eq!(lab.watcher().stop().unwrap(), WatchEnd::AlreadyThere);
    drop(watcher);
}

#[test]
fn more_dirty_paths_than_are_worth_it_are_scanned() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    lab.arm();
    std::fs::create_dir(lab.path("many")).unwrap();
    lab.track_watched();
    for file in 0..20_010 {
        std::fs::write(lab.path(&format!("many/{file}")), "").unwrap();
        if file % 4_000 == 0 {
            // Time to take them in, so that the queue does not overflow instead.
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    lab.assert_as_cold(&lab.track_scanned(), "many");
    lab.write("many/7", "1");
    lab.assert_as_cold(&lab.track_watched(), "one more");
}

#[test]
fn there_is_one_watcher_and_it_ends_when_nobody_asks_or_the_work_tree_goes() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    assert_eq!(lab.workspace().watcher().unwrap(), WatcherStatus::None);
    let watcher = lab.watcher();
    let second = lab.workspace().watch(&WatchOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(second, WatchEnd::AlreadyThere);
    let process = std::process::id();
    assert_eq!(lab.workspace().watcher().unwrap(), WatcherStatus::Watching { process, dirs: 1 });
    assert!(!lab.workspace().wants_watcher().unwrap());
    assert!(lab.workspace().stop_watcher().unwrap());
    assert_eq!(watcher.stop().unwrap(), WatchEnd::Stopped);
    // A child of another test may hold a copy of the lock until it becomes its program.
    let start = Instant::now();
    while !lab.workspace().wants_watcher().unwrap() {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody watches");
    }

    let short = WatchOptions { idle: Duration::from_millis(50), ..WatchOptions::default() };
    let start = Instant::now();
    assert_eq!(lab.workspace().watch(&short, &mut |_| ()).unwrap(), WatchEnd::Idle);
    assert!(start.elapsed() < Duration::from_secs(5));

    let watcher = lab.watcher();
    std::fs::remove_dir_all(lab.root()).unwrap();
    let start = Instant::now();
    while !watcher.is_over() {
        assert!(start.elapsed() < Duration::from_secs(10), "it watches what is gone");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watcher.stop().unwrap(), WatchEnd::Gone);
}

#[test]
fn another_directory_in_the_work_trees_place_is_scanned() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let watcher = lab.watcher();
    lab.arm();
    std::fs::rename(lab.root(), lab.dir().join("elsewhere")).unwrap();
    std::fs::create_dir(lab.root()).unwrap();
    lab.write("b", "1");
    lab.assert_as_cold(&lab.track_scanned(), "another one");
    assert_eq!(watcher.stop().unwrap(), WatchEnd::Gone);
}

#[test]
fn a_lost_pack_is_noticed_and_its_content_put_back() {
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
    // The oldest pack has what nothing but a scan of everything would find missing.
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
fn merged_packs_are_not_taken_for_lost_ones() {
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
fn steps_take_what_the_watcher_says() {
    let lab = Lab::new().watched();
    lab.write("a", "1");
    let _watcher = lab.watcher();
    lab.arm();
    let workspace = lab.workspace();
    let info = StepInfo { session: "s".into(), ..StepInfo::default() };
    let start = StepStart { info, ..StepStart::default() };
    let begun = workspace.begin_step(start, &Progress::default()).unwrap();
    lab.write("b", "2");
    let ended = workspace.end_step(&begun.step, &Progress::default()).unwrap();
    assert_eq!(ended.files, [crate::lab::tree_path("b")]);
    let after = lab.track_watched();
    assert!(!after.changed);
    assert_eq!(after.hash, ended.after);
    lab.assert_as_cold(&after, "after the step");
}

#[test]
fn a_directory_that_moves_into_a_new_one_is_still_watched() {
    let lab = Lab::new().watched();
    for round in 0..times(20, 200) {
        lab.write(&format!("d{round}/sub/file"), "one\n");
    }
    let _watcher = lab.watcher();
    lab.arm();
    for round in 0..times(20, 200) {
        // The watcher finds the moved directory when it lists the new one, before it is told that the
        // directory left its old place.
        let new = lab.path(&format!("new{round}"));
        std::fs::create_dir(&new).unwrap();
        std::fs::rename(lab.path(&format!("d{round}")), new.join("d")).unwrap();
        lab.track_watched();
        lab.write(&format!("new{round}/d/sub/file"), "two\n");
        lab.track_watched();
        assert_eq!(lab.track().hash, lab.cold().0.hash, "round {round}");
    }
}
