//! A scene: recorded states of a work tree, and a command into which faults are injected.

use crate::checker::{self, Holds as _};
use crate::lab::{Ended, Lab, command, copy_into, copy_tree, empty, noise, remove, run};
use crate::manifest::Manifest;

/// A work tree with a history that can be set up repeatedly.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    /// The command under test.
    pub(crate) args: Vec<String>,
    /// Content of the work tree before the command, and after its success.
    pub(crate) before: Manifest,
    pub(crate) after: Manifest,
    /// Every printed hash, with the state that it stands for.
    pub(crate) acked: Vec<(String, Manifest)>,
    surroundings: Manifest,
}

impl Scene {
    /// The first `track`, which creates the store.
    pub(crate) fn first_track() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        Scene::of(lab, &["track"], Vec::new())
    }

    /// A `track` of changes.
    pub(crate) fn second_track() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let acked = vec![(lab.track(), lab.manifest())];
        second_state(&lab);
        Scene::of(lab, &["track"], acked)
    }

    /// An exact restore with every kind of change.
    pub(crate) fn restore() -> Scene {
        Scene::restore_of(Lab::track)
    }

    fn restore_of(record: fn(&Lab) -> String) -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let first = (record(&lab), lab.manifest());
        second_state(&lab);
        let second = (record(&lab), lab.manifest());
        let args = ["restore", "--exact", "--yes", &first.0.clone()].map(str::to_owned);
        let after = first.1.clone();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Scene { after, ..Scene::of(lab, &args, vec![first, second]) }
    }

    /// A restore of a database that removes the write-ahead log which was created since.
    pub(crate) fn restore_of_database() -> Scene {
        let lab = Lab::new();
        let database = |seed| [&b"SQLite format 3\0"[..], &noise(seed, 9000)].concat();
        lab.write("app.db", database(1));
        lab.write("other", "then");
        let first = (lab.track(), lab.manifest());
        lab.write("app.db", database(2));
        lab.write("app.db-wal", [&[0x37, 0x7f, 0x06, 0x82][..], &noise(3, 4000)].concat());
        lab.write("other", "now");
        let second = (lab.track(), lab.manifest());
        let args = ["restore", "--yes", &first.0.clone()].map(str::to_owned);
        let after = first.1.clone();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Scene { after, ..Scene::of(lab, &args, vec![first, second]) }
    }

    /// A revert of all changes.
    ///
    /// The resulting state has the hash of the first one but other permissions and empty
    /// directories, so the states are identified by their operations.
    pub(crate) fn revert() -> Scene {
        let scene = Scene::restore_of(Lab::track_operation);
        let patches = scene.lab.dir().join("saved-patches");
        let hash = scene.lab.store_git(&["log", "--all", "--reverse", "--format=%T"]).ok().stdout;
        let first = hash.lines().next().unwrap();
        let json = scene.lab.ctrlz(&["patch", "--json", first]).ok().stdout;
        std::fs::write(&patches, json).unwrap();
        let args = ["revert", "--yes", "--patches", patches.to_str().unwrap()].map(str::to_owned);
        let mut scene = Scene { args: args.into(), ..scene };
        // A revert only changes files, so its result is not exactly the first state.
        scene.find_after();
        scene
    }

    /// A step by `ctrlz run`. Its command makes none of the mutating calls, so kills hit only
    /// `ctrlz`.
    pub(crate) fn run_step() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let acked = vec![(lab.track(), lab.manifest())];
        lab.ctrlz(&["run", "--session", "s", "--", "sh", "-c", "echo 1 > keep.txt"]).ok();
        let script = ": > over.txt; : > made";
        let mut scene = Scene::of(lab, &["run", "--session", "s", "--", "sh", "-c", script], acked);
        scene.find_after();
        scene
    }

    /// An undo of a step with every kind of change.
    pub(crate) fn undo() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let first = (lab.track_operation(), lab.manifest());
        let script = "rm -r gone.txt dir_to_file empty_then link; echo new > over.txt; \
                      chmod 755 mode.sh; chmod 644 private.key; mkdir -p made/deep empty_now; \
                      echo y > made/deep/y; echo file > dir_to_file; ln -s over.txt link";
        lab.ctrlz(&["run", "--session", "s", "--", "sh", "-c", script]).ok();
        let mut scene = Scene::of(lab, &["undo", "--yes"], vec![first]);
        scene.find_after();
        scene
    }

    /// A fork of a session into a new directory; the work tree itself does not change.
    pub(crate) fn fork() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let first = (lab.track_operation(), lab.manifest());
        let step = |message: &str, script: &str| {
            let args = ["run", "--session", "s", "--message", message, "--", "sh", "-c", script];
            lab.ctrlz(&args).ok();
        };
        step("1", "echo one > over.txt");
        step("2", "rm gone.txt; echo two > over.txt");
        let into = lab.dir().join("forked");
        let args = ["fork", "s", "--at", "2", "--into", into.to_str().unwrap()].map(str::to_owned);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Scene::of(lab, &args, vec![first])
    }

    /// Returns the scene with packs that are written in chunks.
    pub(crate) fn in_pieces(self) -> Scene {
        Scene { lab: self.lab.in_pieces(64), ..self }
    }

    /// Finds the expected result of the command by a run without faults.
    fn find_after(&mut self) {
        self.run().ok();
        self.after = self.lab.manifest();
        self.reset();
    }

    /// A garbage collection that has packs to merge.
    pub(crate) fn gc() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let first = (lab.track(), lab.manifest());
        for number in 0..3 {
            lab.write("secret/gone.txt", format!("in between {number}"));
            lab.track();
        }
        lab.remove("secret");
        second_state(&lab);
        let second = (lab.track(), lab.manifest());
        Scene::of(lab, &["gc", "--thorough"], vec![first, second])
    }

    /// A garbage collection that drops a whole segment of the log, with its session.
    pub(crate) fn gc_of_expired() -> Scene {
        let lab = Lab::new();
        let config = keep_nothing(&lab);
        lab.write("old", "0");
        lab.ctrlz(&["run", "--session", "old", "--", "sh", "-c", "echo 1 > old"]).ok();
        make_segment(&lab);
        lab.remove("old");
        first_state(&lab);
        let first = (lab.track(), lab.manifest());
        second_state(&lab);
        let second = (lab.track(), lab.manifest());
        Scene::of(lab, &["--config", &config, "gc", "--thorough"], vec![first, second])
    }

    /// A purge of files that only intermediate snapshots have.
    pub(crate) fn purge() -> Scene {
        let args = ["purge", "--yes", "secret"].map(str::to_owned);
        Scene { args: args.into(), ..Scene::gc() }
    }

    /// A repair of a pack with one wrong byte. The files still exist.
    pub(crate) fn repair() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let first = (lab.track(), lab.manifest());
        let packs = crate::lab::find(&lab.store(), &|path| {
            path.extension().is_some_and(|extension| extension == "pack")
        });
        let mut bytes = std::fs::read(&packs[0]).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x41;
        std::fs::write(&packs[0], bytes).unwrap();
        Scene::of(lab, &["verify", "--repair"], vec![first])
    }

    /// Copies the objects that the first snapshot borrowed from the user's repository.
    pub(crate) fn copy_borrowed() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let git = |args: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            run(command("git").args(who).args(args).current_dir(&lab.work)).ok();
        };
        git(&["init", "-q"]);
        // The index is trusted only for files that are older than it.
        std::thread::sleep(std::time::Duration::from_millis(40));
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "x"]);
        std::thread::sleep(std::time::Duration::from_millis(40));
        // `ctrlz track` would copy so few files immediately, so the library makes the snapshot.
        let workspace = ctrlz::Workspace::open(&lab.work, ctrlz::Options::new(&lab.data)).unwrap();
        let first = workspace.track(&Default::default(), &Default::default()).unwrap();
        assert!(first.borrowed > 5, "{first:?}");
        let first = (first.hash.to_string(), lab.manifest());
        Scene::of(lab, &["copy-borrowed"], vec![first])
    }

    /// Returns a scene in which a machine with its own history receives the history of another one,
    /// and the newest state of the other machine.
    fn exchange(give: fn(&Lab) -> String, take: &str) -> (Scene, (String, Manifest)) {
        let other = Lab::new();
        first_state(&other);
        other.track();
        other.write("from", "elsewhere");
        let came = (other.track(), other.manifest());
        let given = give(&other);
        let lab = Lab::new();
        let arrived = lab.dir().join("ctrlz-arrived");
        crate::lab::must("cp", &["-a", &given, arrived.to_str().unwrap()]);
        first_state(&lab);
        second_state(&lab);
        let acked = vec![(lab.track(), lab.manifest())];
        (Scene::of(lab, &[take, arrived.to_str().unwrap()], acked), came)
    }

    /// An import of a bundle that another machine exported.
    pub(crate) fn import() -> (Scene, (String, Manifest)) {
        let export = |other: &Lab| {
            let file = other.dir().join("ctrlz-exported").to_str().unwrap().to_owned();
            other.ctrlz(&["export", &file]).ok();
            file
        };
        Scene::exchange(export, "import")
    }

    /// A pull of a history that another machine pushed.
    pub(crate) fn pull() -> (Scene, (String, Manifest)) {
        let push = |other: &Lab| {
            let server = other.dir().join("ctrlz-server").to_str().unwrap().to_owned();
            crate::lab::must("git", &["init", "-q", "--bare", &server]);
            other.ctrlz(&["push", &server]).ok();
            server
        };
        Scene::exchange(push, "pull")
    }

    /// An export of two states.
    pub(crate) fn export() -> Scene {
        let lab = Lab::new();
        first_state(&lab);
        let first = (lab.track(), lab.manifest());
        second_state(&lab);
        let second = (lab.track(), lab.manifest());
        let file = lab.dir().join("ctrlz-exported").to_str().unwrap().to_owned();
        Scene::of(lab, &["export", &file], vec![first, second])
    }

    pub(crate) fn of(lab: Lab, args: &[&str], acked: Vec<(String, Manifest)>) -> Scene {
        copy_tree(&lab.work, &lab.dir().join("saved-work"));
        if lab.data.exists() {
            copy_tree(&lab.data, &lab.dir().join("saved-data"));
        }
        let (before, surroundings) = (lab.manifest(), lab.surroundings());
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Scene { args, after: before.clone(), before, acked, surroundings, lab }
    }

    /// Restores the state before the command.
    pub(crate) fn reset(&self) {
        // The root directory itself is kept: a new directory would be another project.
        empty(&self.lab.work);
        copy_into(&self.lab.dir().join("saved-work"), &self.lab.work);
        let saved = self.lab.dir().join("saved-data");
        remove(&self.lab.data);
        if saved.exists() {
            copy_tree(&saved, &self.lab.data);
        }
    }

    pub(crate) fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    /// Runs the command without a fault.
    pub(crate) fn run(&self) -> Ended {
        self.lab.ctrlz(&self.args())
    }

    /// Returns the name of the command, without the options before it.
    pub(crate) fn name(&self) -> &str {
        let is_name = |word: &&String| word.bytes().all(|byte| byte.is_ascii_lowercase());
        self.args.iter().find(is_name).map_or("ctrlz", String::as_str)
    }

    pub(crate) fn is_track(&self) -> bool {
        self.args[0] == "track"
    }

    /// Asserts the invariants that hold at any moment: every path has its old or its new version,
    /// and nothing outside of the work tree has changed.
    #[track_caller]
    pub(crate) fn assert_atomic(&self, when: &str) {
        checker::atomic(&self.lab, &self.before, &self.after).holds(when);
        checker::contained(&self.lab, &self.surroundings).holds(when);
    }

    /// Asserts that the whole work tree has its old or its new state.
    #[track_caller]
    pub(crate) fn assert_all_or_nothing(&self, when: &str) {
        let now = self.lab.manifest();
        assert!(
            now == self.before || now == self.after,
            "{when}: neither before nor after; against before:\n{}\nagainst after:\n{}",
            now.difference(&self.before),
            now.difference(&self.after)
        );
    }

    /// Asserts that each session's ref names the newest operation of the session in the log.
    #[track_caller]
    pub(crate) fn assert_sessions_current(&self, when: &str) {
        let git = |args: &[&str]| self.lab.store_git(args).is(&[0], when).stdout;
        let refs = git(&["for-each-ref", "--format=%(refname)", "refs/ctrlz"]);
        let log = refs.lines().find(|name| name.ends_with("/log")).unwrap();
        let newest = refs.lines().filter(|name| name.contains("/session/")).map(|name| {
            let inside = git(&["merge-base", "--is-ancestor", name, log]);
            assert_eq!(inside, "", "{when}");
            git(&["rev-list", "--count", &format!("{name}..{log}")])
        });
        // There is one session. Only an operation of `track` may be newer than its ref.
        for behind in newest {
            assert!(behind.trim().parse::<usize>().unwrap() <= 1, "{when}: {behind} behind");
        }
    }

    /// Asserts that every acknowledged state can be restored, including `more`.
    #[track_caller]
    pub(crate) fn assert_acked(&self, more: Option<(String, Manifest)>, when: &str) {
        self.lab.assert_tidy(when);
        for (hash, manifest) in self.acked.iter().cloned().chain(more) {
            self.lab.assert_restores(&hash, &manifest, when);
        }
        checker::contained(&self.lab, &self.surroundings).holds(when);
    }
}

fn first_state(lab: &Lab) {
    for (path, text) in [
        ("keep.txt", "the same"),
        ("over.txt", "old"),
        ("gone.txt", "only then"),
        ("mode.sh", "#!/bin/sh"),
        ("private.key", "secret"),
        ("file_to_dir", "a file"),
        ("file_to_link", "a file"),
        ("dir_to_file/a", "1"),
        ("dir_to_file/sub/b", "2"),
        ("dir_to_link/a", "3"),
        ("sub/deep/x", "deep and old"),
        ("sub/deep/same", "deep and the same"),
    ] {
        lab.write(path, text);
    }
    for (target, path) in
        [("keep.txt", "link"), ("keep.txt", "link_to_file"), ("keep.txt", "link_to_dir")]
    {
        lab.link(target, path);
    }
    lab.chmod("private.key", 0o600);
    std::fs::create_dir(lab.work.join("empty_then")).unwrap();
    std::fs::create_dir(lab.work.join("restyled")).unwrap();
    lab.write("restyled/in", "x");
}

fn second_state(lab: &Lab) {
    for path in
        ["gone.txt", "file_to_dir", "file_to_link", "dir_to_file", "dir_to_link", "empty_then"]
    {
        lab.remove(path);
    }
    for path in ["link", "link_to_file", "link_to_dir"] {
        lab.remove(path);
    }
    for (path, text) in [
        ("over.txt", "new"),
        ("file_to_dir/a", "4"),
        ("file_to_dir/sub/b", "5"),
        ("dir_to_file", "now a file"),
        ("link_to_file", "now a file"),
        ("link_to_dir/a", "6"),
        ("sub/deep/x", "deep and new"),
        ("sub/made", "created since"),
        ("made/deep/y", "created since"),
    ] {
        lab.write(path, text);
    }
    for (target, path) in
        [("over.txt", "link"), ("keep.txt", "file_to_link"), ("keep.txt", "dir_to_link")]
    {
        lab.link(target, path);
    }
    lab.chmod("mode.sh", 0o755);
    lab.chmod("private.key", 0o644);
    lab.chmod("restyled", 0o700);
    std::fs::create_dir(lab.work.join("empty_now")).unwrap();
}

/// Returns the path of a configuration with which everything but the newest log segment has
/// expired.
pub(crate) fn keep_nothing(lab: &Lab) -> String {
    let config = lab.dir().join("ctrlz-config.toml");
    std::fs::write(&config, "keep_days = 0\n").unwrap();
    config.to_str().unwrap().to_owned()
}

/// Fills a log segment, which ends after 256 operations.
pub(crate) fn make_segment(lab: &Lab) {
    for number in 0..258 {
        lab.write("old", number.to_string());
        lab.track();
    }
}
