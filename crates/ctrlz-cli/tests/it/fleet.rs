//! `relink`, `export`, `import`, `push` and `pull`, through a real git server on loopback.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::bench::{Bench, Ran, contents, finish, program};
use crate::git_http::GitHttp;

/// A bare repository and the process that serves it.
struct Server {
    serving: Serving,
    dir: tempfile::TempDir,
}

enum Serving {
    Daemon { daemon: Child, port: u16 },
    Http(GitHttp),
}

impl Server {
    /// Starts `git daemon`.
    fn start() -> Server {
        let dir = Server::new_bare_repository();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut daemon = git();
        daemon.args(["daemon", "--reuseaddr", "--export-all", "--enable=receive-pack"]);
        daemon.args(["--listen=127.0.0.1", &format!("--port={port}")]);
        daemon.arg(format!("--base-path={}", dir.path().display())).arg(dir.path());
        daemon.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let daemon = daemon.spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "the server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { serving: Serving::Daemon { daemon, port }, dir }
    }

    /// Starts a web server that runs `git http-backend`.
    fn start_http() -> Server {
        let dir = Server::new_bare_repository();
        Server { serving: Serving::Http(GitHttp::serve(dir.path())), dir }
    }

    fn new_bare_repository() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        finish(git().args(["init", "-q", "--bare"]).arg(dir.path().join("p.git")));
        dir
    }

    fn address(&self) -> String {
        match &self.serving {
            Serving::Daemon { port, .. } => format!("git://127.0.0.1:{port}/p.git"),
            Serving::Http(http) => format!("http://127.0.0.1:{}/p.git", http.port),
        }
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("p.git")
    }

    fn logs(&self) -> usize {
        let ran = self.git(&["for-each-ref", "--format=%(refname)", "refs/ctrlz"]);
        ran.text().lines().filter(|name| name.ends_with("/log")).count()
    }

    fn git(&self, words: &[&str]) -> Ran {
        finish(git().args(words).current_dir(self.repository()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Serving::Daemon { daemon, .. } = &mut self.serving {
            // Kills the whole process group, because the daemon has children.
            kill_process_group(Pid::from_child(daemon), Signal::KILL).ok();
            daemon.wait().ok();
        }
    }
}

fn git() -> Command {
    let mut git = program("git");
    git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    git.env("HOME", "/nonexistent").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git
}

impl Bench {
    /// Returns a command that finds git in `PATH`.
    fn net_command(&self, words: &[&str]) -> Command {
        let mut command = self.command(words);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        command
    }

    fn net(&self, words: &[&str]) -> Ran {
        finish(&mut self.net_command(words))
    }

    #[track_caller]
    fn net_ok(&self, words: &[&str]) -> String {
        let ran = self.net(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
        ran.text()
    }

    fn session(&self, name: &str, script: &str) {
        let ran = self.run(&["run", "--session", name, "--", "/bin/sh", "-c", script]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

fn copy(from: &Path, to: &Path) {
    finish(program("/bin/cp").arg("-a").arg(from).arg(to));
}

#[test]
fn a_fresh_machine_pulls_and_restores() {
    check_two_machines(&Server::start());
}

#[test]
fn a_fresh_machine_pulls_over_http_and_restores() {
    check_two_machines(&Server::start_http());
}

fn check_two_machines(server: &Server) {
    let (one, two) = (Bench::new(), Bench::new());
    one.write("a.txt", "one\n");
    one.write(".gitignore", "*.env\n");
    one.write("x.env", "CANARY-IGNORED\n");
    one.session("agent", "echo two > a.txt; mkdir -p d; echo deep > d/e.txt");
    one.net_ok(&["push", &server.address()]);
    let there = one.net_ok(&["push", &server.address()]);
    assert!(there.contains("the server has everything"), "{there}");
    let private = server.git(&["for-each-ref", "refs/ctrlz-private"]);
    assert_eq!(private.text(), "");

    two.net_ok(&["pull", &server.address()]);
    assert_eq!(two.net_ok(&["pull", &server.address()]).trim(), "nothing new");
    two.ok(&["restore"]);
    let mut wanted = contents(&one.project);
    wanted.retain(|(path, _)| !path.ends_with("x.env"));
    let bytes = |files: Vec<(PathBuf, Vec<u8>)>| -> Vec<Vec<u8>> {
        files.into_iter().map(|(_, bytes)| bytes).collect()
    };
    assert_eq!(bytes(contents(&two.project)), bytes(wanted));
    let sessions = two.ok(&["sessions"]);
    assert!(sessions.contains("://127.0.0.1") && sessions.contains("agent"), "{sessions}");
    let log = two.json(&["sessions"])["elsewhere"][0]["log"].as_str().unwrap().to_owned();
    assert!(two.ok(&["log", "--from", &log]).contains("step"));
    two.fails(&["restore"], 4, "without naming it");

    // Only new operations are transferred, in both directions.
    one.session("agent", "echo three > a.txt");
    one.net_ok(&["push", &server.address()]);
    let news = two.net_ok(&["pull", &server.address()]);
    assert!(news.contains("log ") && !news.contains("nothing new"), "{news}");
    two.session("other", "echo from two > b.txt");
    two.net_ok(&["push", &server.address()]);
    one.net_ok(&["pull", &server.address()]);
    assert!(one.ok(&["sessions"]).contains("other"));
    let hash = one.json(&["sessions"])["elsewhere"][0]["snapshot"].clone();
    let hash = hash.as_str().unwrap().to_owned();
    assert_eq!(one.ok(&["show", &format!("{hash}:b.txt")]), "from two");
    assert_eq!(server.logs(), 2);
    assert_eq!(server.git(&["fsck", "--strict"]).code, 0);
}

#[test]
fn a_push_holds_no_private_ignore_rules() {
    let server = Server::start();
    let (one, two) = (Bench::new(), Bench::new());
    one.write_home(".config/git/ignore", "canary-global*\n");
    one.git(&["init", "-q"]);
    one.write(".git/info/exclude", "canary-info*\n");
    one.write("a.txt", "one\n");
    one.write("canary-global.txt", "mine\n");
    one.write("canary-info.txt", "mine\n");
    one.session("agent", "echo two > a.txt");
    one.net_ok(&["push", &server.address()]);
    let objects = server.git(&["cat-file", "--batch-all-objects", "--batch", "--buffer"]).text();
    assert!(objects.contains("ctrlz") && objects.contains("meta"), "the objects hold operations");
    assert!(!objects.contains("canary"), "{objects}");
    let hidden = one.json(&["status"])["store"].as_str().map(PathBuf::from).unwrap().join("ctrlz");
    let texts = contents(&hidden).into_iter().map(|(_, bytes)| bytes);
    let texts: String = texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    assert!(texts.contains("canary-info") && texts.contains("canary-global"), "kept locally");

    two.net_ok(&["pull", &server.address()]);
    two.ok(&["restore"]);
    two.write("canary-info.txt", "theirs\n");
    let log = one.json(&["log"]);
    let hash = log["operations"][0]["after"].as_str().unwrap();
    let exact = two.run(&["restore", "--exact", hash]);
    assert_eq!(exact.code, 3, "{exact:?}");
    assert_eq!(two.read("canary-info.txt").as_deref(), Some("theirs\n"));
    assert_eq!(two.read("a.txt").as_deref(), Some("two\n"));
}

#[test]
fn a_pull_that_brings_purged_content_back_is_refused_and_changes_nothing() {
    let server = Server::start();
    let (one, two) = (Bench::new(), Bench::new());
    let secret = "SECRET-91 and a line";
    one.session("agent", &format!("mkdir d; echo {secret} > d/key"));
    one.net_ok(&["push", &server.address()]);
    two.session("other", &format!("mkdir d; echo {secret} > d/key"));
    two.net_ok(&["push", &server.address()]);
    one.shell("rm -r d");
    one.ok(&["purge", "d", "--yes"]);
    let store = PathBuf::from(one.json(&["status"])["store"].as_str().unwrap());
    let packs = || contents(&store.join("objects/pack")).len();
    let before = (packs(), one.json(&["sessions"]));
    let refused = one.net(&["pull", &server.address()]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("d/key") && refused.stderr.contains("--allow-purged"));
    assert!(!refused.stderr.contains("SECRET"), "{}", refused.stderr);
    assert_eq!((packs(), one.json(&["sessions"])), before);
    // After both sides have purged and pushed, the pull succeeds.
    two.shell("rm -r d");
    two.ok(&["purge", "d", "--yes"]);
    two.net_ok(&["push", &server.address()]);
    assert_eq!(one.net(&["pull", &server.address()]).code, 6, "this machine's own log has it");
    one.net_ok(&["push", &server.address()]);
    one.net_ok(&["pull", &server.address()]);
    assert!(one.ok(&["sessions"]).contains("other"));
    let three = Bench::new();
    three.session("third", &format!("mkdir d; echo {secret} > d/key"));
    three.net_ok(&["push", &server.address()]);
    assert_eq!(one.net(&["pull", &server.address()]).code, 6);
    one.net_ok(&["pull", "--allow-purged", &server.address()]);
    assert!(one.ok(&["sessions"]).contains("third"));
}

#[test]
fn pulling_a_log_again_after_a_purge_here_is_refused() {
    let server = Server::start();
    let (one, two) = (Bench::new(), Bench::new());
    one.session("agent", "mkdir d; echo SECRET-92 > d/key");
    one.net_ok(&["push", &server.address()]);
    two.session("other", "echo 1 > f");
    two.net_ok(&["pull", &server.address()]);
    two.ok(&["purge", "d", "--yes"]);
    let store = PathBuf::from(two.json(&["status"])["store"].as_str().unwrap());
    let state = || (contents(&store.join("objects/pack")).len(), two.json(&["sessions"]));
    let before = state();
    let refused = two.net(&["pull", &server.address()]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("d/key") && refused.stderr.contains("--allow-purged"));
    assert_eq!(state(), before);
    // The log of this machine is on the server too until the next push.
    one.shell("rm -r d");
    one.ok(&["purge", "d", "--yes"]);
    assert_eq!(one.net(&["pull", &server.address()]).code, 6);
    one.net_ok(&["push", &server.address()]);
    one.net_ok(&["pull", &server.address()]);
}

#[test]
fn many_sandboxes_push_at_once() {
    check_many_sandboxes(&Server::start());
}

#[test]
fn many_sandboxes_push_at_once_over_http() {
    check_many_sandboxes(&Server::start_http());
}

fn check_many_sandboxes(server: &Server) {
    let benches: Vec<Bench> = (0..4).map(|_| Bench::new()).collect();
    std::thread::scope(|scope| {
        for (number, bench) in benches.iter().enumerate() {
            let address = server.address();
            scope.spawn(move || {
                for round in 0..3 {
                    bench.session(&format!("s{number}"), &format!("echo {round} > f{number}"));
                    bench.net_ok(&["push", &address]);
                }
            });
        }
    });
    assert_eq!(server.logs(), benches.len());
    assert_eq!(server.git(&["fsck", "--strict"]).code, 0);
    benches[0].net_ok(&["pull", &server.address()]);
    assert_eq!(benches[0].json(&["sessions"])["elsewhere"].as_array().unwrap().len(), 3);
}

/// Kills the client together with its git at many different moments. The server keeps running.
#[test]
fn a_killed_push_or_pull_leaves_both_sides_intact() {
    let rounds: u64 = if std::env::var_os("RUN_SLOW_TESTS").is_some() { 120 } else { 16 };
    let server = Server::start_http();
    let (one, two) = (Bench::new(), Bench::new());
    one.write("large", &"text that is pushed\n".repeat(9_000));
    let kill = |bench: &Bench, words: &[&str], round: u64| {
        let mut command = bench.net_command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_micros(2_000 + round * 7_919 % 90_000));
        kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
        child.wait().unwrap().success()
    };
    let mut survivors = 0;
    for round in 0..rounds {
        one.session("agent", &format!("echo {round} > a.txt; echo {round} >> large"));
        survivors += u64::from(kill(&one, &["push", &server.address()], round));
        one.net_ok(&["push", &server.address()]);
        assert_eq!(server.git(&["fsck", "--strict"]).code, 0);
        survivors += u64::from(kill(&two, &["pull", &server.address()], round));
        two.net_ok(&["pull", &server.address()]);
        let newest = two.json(&["sessions"])["elsewhere"][0]["snapshot"].clone();
        let shown = two.ok(&["show", &format!("{}:a.txt", newest.as_str().unwrap())]);
        assert_eq!(shown, round.to_string());
    }
    assert!(survivors < rounds, "{survivors} of {} were not killed", rounds * 2);
    // A killed git may still write while its directory is being removed; the next command removes
    // it again.
    one.net_ok(&["push", &server.address()]);
    two.net_ok(&["pull", &server.address()]);
    for bench in [&one, &two] {
        assert_eq!(bench.run(&["verify"]).code, 0);
        let left = contents(&bench.data);
        let unfinished = |path: &PathBuf| path.to_string_lossy().contains(".ctrlz-store-");
        let unfinished: Vec<&PathBuf> =
            left.iter().map(|(path, _)| path).filter(|path| unfinished(path)).collect();
        assert!(unfinished.is_empty(), "{unfinished:?}");
    }
    two.ok(&["restore"]);
    assert_eq!(two.read("a.txt"), one.read("a.txt"));
}

#[test]
fn remote_names_work_in_linked_work_trees() {
    let server = Server::start();
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.git(&["init", "-q"]);
    bench.git(&["add", "a.txt"]);
    bench.git(&["commit", "-q", "-m", "one"]);
    bench.git(&["remote", "add", "fleet", &server.address()]);
    let linked = bench.home.join("linked");
    bench.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    for dir in [&bench.project, &linked, &bench.project.join("sub")] {
        std::fs::create_dir_all(dir).unwrap();
        let dir = dir.to_str().unwrap();
        bench.ok(&["-C", dir, "track"]);
        bench.net_ok(&["-C", dir, "push", "fleet"]);
    }
    assert_eq!(server.logs(), 2);
}

#[test]
fn pushing_from_a_copied_data_directory_requires_as_new() {
    let server = Server::start();
    let bench = Bench::new();
    bench.session("s", "echo 1 > a");
    bench.net_ok(&["push", &server.address()]);
    // Simulates two machines that were created from one image.
    let image = bench.data.with_extension("image");
    copy(&bench.data, &image);
    bench.session("s", "echo 2 > a");
    bench.net_ok(&["push", &server.address()]);
    std::fs::rename(&bench.data, bench.data.with_extension("first")).unwrap();
    std::fs::rename(&image, &bench.data).unwrap();
    bench.session("s", "echo 3 > a");
    let before = server.git(&["for-each-ref"]).text();
    let refused = bench.net(&["push", &server.address()]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("have parted"), "{refused:?}");
    assert_eq!(server.git(&["for-each-ref"]).text(), before);
    bench.net_ok(&["push", "--as-new", &server.address()]);
    assert_eq!(server.logs(), 2);
    bench.ok(&["undo"]);
    bench.net_ok(&["push", &server.address()]);
    assert_eq!(server.logs(), 2);
}

#[test]
fn a_push_across_segments_needs_no_force() {
    let server = Server::start();
    let bench = Bench::new();
    bench.session("s", "echo 0 > a");
    bench.net_ok(&["push", &server.address()]);
    let script = "i=0; while [ $i -lt 260 ]; do echo $i > a; $CTRLZ track >/dev/null || exit 1; \
                  i=$((i+1)); done";
    assert_eq!(bench.shell(script).code, 0);
    let pushed = bench.net_ok(&["push", &server.address()]);
    assert!(pushed.contains("259 new operations"), "{pushed}");
    let fresh = Bench::new();
    fresh.net_ok(&["pull", &server.address()]);
    fresh.ok(&["restore"]);
    assert_eq!(fresh.read("a").unwrap(), "259\n");
    // Pulled operations expire like local ones, and the next pull does not bring them back.
    let log = fresh.json(&["sessions"])["elsewhere"][0]["log"].as_str().unwrap().to_owned();
    let pulled = || {
        let shown = fresh.json(&["log", "--from", &log, "-n", "1000"]);
        shown["operations"].as_array().unwrap().len()
    };
    assert_eq!(pulled(), 261);
    fresh.write_home(".config/ctrlz/config.toml", "keep_days = 0\n");
    let report = fresh.json(&["gc"]);
    assert_eq!(report["dropped_operations"], 256, "{report}");
    assert_eq!(pulled(), 5);
    bench.session("s", "echo more > a");
    bench.net_ok(&["push", &server.address()]);
    let news = fresh.net_ok(&["pull", &server.address()]);
    assert!(news.contains("1 new operations"), "{news}");
    assert_eq!(pulled(), 6);
    assert_eq!(fresh.run(&["verify"]).code, 0);
}

#[test]
fn an_unreachable_server_leaves_no_temporary_files() {
    let bench = Bench::new();
    bench.session("s", "echo 1 > a");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("git://127.0.0.1:{port}/p.git");
    assert_eq!(bench.net(&["push", &address]).code, 1);
    assert_eq!(bench.net(&["pull", &address]).code, 1);
    let left = contents(&bench.data);
    assert!(!left.iter().any(|(path, _)| path.to_string_lossy().contains(".ctrlz-store-")));
    bench.ok(&["undo"]);
}

#[test]
fn an_export_is_imported_elsewhere_and_undone_there() {
    let (one, two) = (Bench::new(), Bench::new());
    one.write("a.txt", "one\n");
    one.session("agent", "echo two > a.txt");
    let exported = one.json(&["export", "../out.bundle"]);
    let file = one.home.join("out.bundle");
    let imported = two.json(&["import", file.to_str().unwrap()]);
    assert_eq!(imported["snapshot"], exported["snapshot"]);
    two.ok(&["restore"]);
    assert_eq!(two.read("a.txt").unwrap(), "two\n");
    two.ok(&["undo", "--last-step"]);
    assert_eq!(two.read("a.txt").unwrap(), "one\n");
    std::fs::write(&file, "nothing of the kind").unwrap();
    two.fails(&["import", file.to_str().unwrap()], 1, "cannot be imported");
}

#[test]
fn a_moved_project_is_relinked() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.session("agent", "echo two > a.txt");
    let (old, new) = (bench.project.clone(), bench.home.join("other/project"));
    std::fs::create_dir_all(new.parent().unwrap()).unwrap();
    copy(&old, &new);
    std::fs::remove_dir_all(&old).unwrap();
    std::fs::create_dir(&old).unwrap();
    let (from, to) = (old.to_str().unwrap(), new.to_str().unwrap());
    bench.ok(&["relink", from, to]);
    bench.ok(&["-C", to, "undo"]);
    assert_eq!(std::fs::read_to_string(new.join("a.txt")).unwrap(), "one\n");
    // A renamed project needs no `relink`. The next command reports the rename once.
    let renamed = bench.home.join("renamed");
    std::fs::rename(&new, &renamed).unwrap();
    let redone = bench.run(&["-C", renamed.to_str().unwrap(), "redo"]);
    assert_eq!(redone.code, 0, "{redone:?}");
    assert!(redone.stderr.contains("its history has followed it"), "{redone:?}");
    let log = bench.run(&["-C", renamed.to_str().unwrap(), "log"]);
    assert!(!log.stderr.contains("followed"), "{log:?}");
    bench.fails(&["relink", "/nonexistent/x", from], 4, "nothing was recorded");
}

/// Creates a program that creates a marker file when it runs. Returns both paths.
fn mark(bench: &Bench) -> (std::path::PathBuf, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let (program, mark) = (bench.home.join("prog.sh"), bench.home.join("ran"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}

#[test]
fn git_never_reads_a_configuration_or_hook_of_the_store() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let store = ["--store", ".agent/snapshots"];
    let with = |words: &[&'static str]| [&store[..], words].concat();
    bench.ok(&with(&["track"]));
    let (program, mark) = mark(&bench);
    let remote = bench.home.join("remote.git");
    bench.git(&["init", "-q", "--bare", remote.to_str().unwrap()]);
    let dir = bench.project.join(".agent/snapshots");
    let mut config = std::fs::read_to_string(dir.join("config")).unwrap();
    let (remote, program) = (remote.to_str().unwrap(), program.to_str().unwrap());
    config += &format!(
        "[protocol \"ext\"]\n\tallow = always\n[url \"ext::{program} \"]\n\tinsteadOf = {remote}\n\
         [core]\n\tsshCommand = {program}\n\thooksPath = hooks\n\tfsmonitor = {program}\n\
         [pack]\n\tpackSizeLimit = 1m\n[credential]\n\thelper = {program}\n\
         [core]\n\talternateRefsCommand = {program}\n[include]\n\tpath = {program}\n"
    );
    std::fs::write(dir.join("config"), config).unwrap();
    std::fs::create_dir_all(dir.join("hooks")).unwrap();
    for hook in ["pre-push", "reference-transaction", "post-checkout", "pre-auto-gc"] {
        std::fs::copy(program, dir.join("hooks").join(hook)).unwrap();
    }
    bench.ok(&[&store[..], &["push", remote]].concat());
    bench.ok(&[&store[..], &["pull", remote]].concat());
    bench.ok(&with(&["gc", "--deep"]));
    bench.run(&with(&["push", "ssh://localhost/x"]));
    assert!(!mark.exists(), "something of the store's configuration ran");
    assert!(bench.ok(&with(&["verify"])).contains("have the right hash"));
}

#[test]
fn a_repository_that_a_project_names_as_its_remote_runs_no_hook() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.track();
    let (program, mark) = mark(&bench);
    bench.git(&["init", "-q", "--bare", "evil.git"]);
    for hook in ["pre-receive", "update", "post-receive", "post-update", "reference-transaction"] {
        std::fs::copy(&program, bench.project.join("evil.git/hooks").join(hook)).unwrap();
    }
    for address in ["./evil.git", &format!("file://{}/evil.git", bench.project.display())] {
        bench.git(&["config", "remote.local.url", address]);
        let refused = bench.run(&["push", "local"]);
        assert_ne!(refused.code, 0, "{refused:?}");
        assert_ne!(bench.run(&["pull", "local"]).code, 0);
        assert!(!mark.exists(), "a hook of {address} ran");
    }
    bench.git(&["config", "remote.local.url", &format!("ext::{} x", program.display())]);
    assert_ne!(bench.run(&["push", "local"]).code, 0);
    assert!(!mark.exists(), "ext:: ran");
}

/// Git would take the name for a directory of the project.
#[test]
fn a_remote_name_that_is_not_configured_is_refused() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.track();
    let (program, mark) = mark(&bench);
    for dir in ["origin", "team/origin"] {
        bench.git(&["init", "-q", "--bare", dir]);
        std::fs::copy(&program, bench.project.join(dir).join("hooks/pre-receive")).unwrap();
        for command in ["push", "pull"] {
            bench.fails(&[command, dir], 2, "no remote of this name");
        }
    }
    assert!(!mark.exists(), "a hook ran");
    // A remote of the user's own configuration is one that the user chose.
    bench.git(&["init", "-q", "--bare", "../server.git"]);
    let server = bench.home.join("server.git");
    bench.write_home(".gitconfig", &format!("[remote \"mine\"]\n\turl = {}\n", server.display()));
    let mut push = bench.net_command(&["push", "mine"]);
    assert_eq!(finish(push.env_remove("GIT_CONFIG_GLOBAL")).code, 0);
    bench.net_ok(&["push", "../server.git"]);
}

/// Git starts a program for each other kind of address; `fd` waits for a file descriptor.
#[test]
fn a_project_cannot_name_a_remote_of_an_unknown_transport() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.track();
    for address in ["fd::0", "fd::17", "x::https://localhost/a", "rsync://localhost/a"] {
        bench.git(&["config", "remote.odd.url", address]);
        for command in ["push", "pull"] {
            bench.fails(&[command, "odd"], 2, "of no known kind");
        }
    }
}

/// An export replaces its file by a rename, which would also replace a device.
#[test]
fn an_export_does_not_replace_a_file_of_another_kind() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    let socket = bench.home.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let link = bench.home.join("link");
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    for path in [&socket, &link] {
        bench.fails(&["export", path.to_str().unwrap()], 1, "not a regular file");
    }
    assert!(!socket.symlink_metadata().unwrap().is_file());
    assert!(link.symlink_metadata().unwrap().is_symlink());
}
