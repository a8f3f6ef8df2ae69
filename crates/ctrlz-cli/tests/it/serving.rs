//! `ctrlz serve` and `ctrlz ui` as real processes: files, permissions and memory use.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bench::{Bench, Ran, contents, program};

/// A running server, killed on drop.
struct Served {
    bench: Bench,
    child: Child,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Served {
    fn new() -> Served {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        bench.track();
        Served::start(bench, &["serve", "--port", "0"])
    }

    /// Starts a server and waits until it has published its address.
    fn start(bench: Bench, words: &[&str]) -> Served {
        let mut command = bench.command(words);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ctrlz: "), "{line}");
        let served = Served { bench, child };
        let start = Instant::now();
        while served.file("url").is_empty() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }

    fn file(&self, name: &str) -> String {
        let path = self.bench.data.join("serve").join(name);
        std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    }

    fn address(&self) -> String {
        self.file("url").trim_start_matches("http://").trim_end_matches('/').to_owned()
    }

    /// Sends a GET request over TCP with the token, and returns the status and the body.
    fn get(&self, path: &str) -> (u16, String) {
        let address = self.address();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            self.file("token")
        );
        exchange(TcpStream::connect(address).unwrap(), head.as_bytes())
    }

    /// Posts over TCP with the token, and returns the status and the body.
    fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let (address, body) = (self.address(), body.to_string());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.file("token"),
            body.len()
        );
        exchange(TcpStream::connect(address).unwrap(), request.as_bytes())
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> (u16, String) {
    stream.write_all(bytes).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or(0), body.unwrap_or_default())
}

#[test]
fn serve_publishes_its_address_and_answers_over_tcp_and_socket() {
    let served = Served::new();
    let (status, body) = served.get("/v1/projects");
    assert_eq!(status, 200, "{body}");
    let projects: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(projects["projects"][0]["path"], served.bench.project.to_str().unwrap());
    let socket = served.bench.data.join("serve/socket");
    let request = b"GET /v1/projects HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(UnixStream::connect(socket).unwrap(), request), (200, body));
}

#[test]
fn serve_with_a_directory_serves_only_that_directory() {
    for start in ["/", "around"] {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        bench.track();
        let around = bench.home.join("around");
        std::fs::create_dir_all(around.join(".git")).unwrap();
        let start = if start == "/" { start.into() } else { around };
        let project = bench.project.to_str().unwrap().to_owned();
        let words = ["-C", start.to_str().unwrap(), "serve", "--port", "0", &project];
        let served = Served::start(bench, &words);
        let (status, body) = served.get("/v1/projects");
        assert_eq!(status, 200, "{body}");
        let projects: Value = serde_json::from_str(&body).unwrap();
        let paths: Vec<&Value> =
            projects["projects"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
        assert_eq!(paths, [&Value::from(project)], "started in {}", start.display());
    }
}

#[test]
fn serve_refuses_a_directory_inside_a_work_tree() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("sub/a.txt", "one\n");
    bench.track();
    let inner = bench.project.join("sub");
    let ran = bench.run(&["serve", "--port", "0", inner.to_str().unwrap()]);
    assert!(ran.code == 4 && ran.stderr.contains("is inside a work tree"), "{ran:?}");
}

#[test]
fn serve_takes_a_relative_directory() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    let (above, name) = (bench.project.parent().unwrap(), bench.project.file_name().unwrap());
    let (above, name) = (above.to_str().unwrap().to_owned(), name.to_str().unwrap().to_owned());
    let served = Served::start(bench, &["-C", &above, "serve", "--port", "0", &name]);
    let (status, body) = served.get("/v1/projects");
    assert_eq!(status, 200, "{body}");
    let projects: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(projects["projects"][0]["path"], served.bench.project.to_str().unwrap());
}

/// Two clones of one repository, which share a store. Only the first clone is served.
struct Clones {
    served: Served,
    other: PathBuf,
    project: String,
}

impl Clones {
    fn new(prepare: impl FnOnce(&Bench, &str)) -> Clones {
        let bench = Bench::new();
        let other = bench.home.join("other");
        let place = other.to_str().unwrap();
        bench.write("dir/a.txt", "one\n");
        bench.write(".gitignore", ".env\n");
        bench.write(".env", "KEY=1\n");
        bench.git(&["init", "-q"]);
        bench.git(&["add", "."]);
        bench.git(&["-c", "user.name=n", "-c", "user.email=n@n", "commit", "-qm", "first"]);
        bench.git(&["clone", "-q", ".", place]);
        bench.track();
        std::fs::write(other.join("private.txt"), "private\n").unwrap();
        bench.ok(&["-C", place, "track"]);
        prepare(&bench, place);
        let served = Served::start(bench, &["serve", "--port", "0"]);
        let projects: Value = serde_json::from_str(&served.get("/v1/projects").1).unwrap();
        let project = projects["projects"][0]["project"].as_str().unwrap().to_owned();
        Clones { served, other, project }
    }

    fn get(&self, query: &str) -> (u16, String) {
        self.served.get(&format!("/v1/projects/{}/{query}", self.project))
    }

    /// Runs git on the shared store.
    fn git_in_store(&self, words: &[&str]) -> String {
        let status = self.served.bench.json(&["status"]);
        let store = status["store"].as_str().unwrap().to_owned();
        let words = [&["--git-dir", &store], words].concat();
        self.served.bench.git(&words).text().trim().to_owned()
    }
}

#[test]
fn snapshots_of_other_work_trees_are_unknown_over_http() {
    let clones = Clones::new(|_, _| ());
    let bench = &clones.served.bench;
    let own = bench.track();
    let of_other = bench.ok(&["-C", clones.other.to_str().unwrap(), "track"]);
    let ignored_snapshot =
        clones.git_in_store(&["for-each-ref", "--format=%(tree)", "refs/ctrlz-private"]);
    let ignored_snapshot = ignored_snapshot.lines().next().unwrap().to_owned();
    let part = clones.git_in_store(&["rev-parse", &format!("{own}:dir")]);
    assert_eq!(clones.git_in_store(&["cat-file", "-t", of_other.trim()]), "tree", "shared store");
    assert_eq!(clones.get(&format!("show?hash={own}&path=dir/a.txt")).0, 200);
    let missing = "0123456789012345678901234567890123456789";
    for hash in [of_other.trim(), &ignored_snapshot, &part, missing] {
        for query in [
            format!("show?hash={hash}"),
            format!("show?hash={hash}&path=private.txt"),
            format!("get_file_at?hash={hash}&path=private.txt"),
            format!("file_exists_at?hash={hash}&path=private.txt"),
            format!("list_files?hash={hash}"),
            format!("file?hash={hash}&path=private.txt"),
            format!("changes?from={own}&to={hash}"),
            format!("diff?from={hash}&to={own}"),
            format!("diff_full?from={own}&to={hash}"),
            format!("diff.patch?from={own}&to={hash}"),
            format!("diff_full.ndjson?from={hash}&to={own}"),
            format!("patch?hash={own}&to={hash}"),
        ] {
            let (status, body) = clones.get(&query);
            assert_eq!(status, 404, "{query}: {body}");
            assert!(body.contains("\"unknown_snapshot\""), "{query}: {body}");
        }
        for (method, body) in [
            ("patch", json!({ "hash": hash })),
            ("diff", json!({ "from": hash })),
            ("plan_restore", json!({ "hash": hash })),
            ("plan_revert", json!({ "patches": [{ "hash": hash, "files": ["private.txt"] }] })),
        ] {
            let path = format!("/v1/projects/{}/{method}", clones.project);
            let (status, body) = clones.served.post(&path, &body);
            assert_eq!(status, 404, "{method} {hash}: {body}");
            assert!(body.contains("\"unknown_snapshot\""), "{method}: {body}");
        }
    }
}

#[test]
fn snapshots_of_forks_and_imports_are_readable_over_http() {
    let elsewhere = Bench::new();
    elsewhere.write("from.txt", "elsewhere\n");
    let imported = elsewhere.track();
    elsewhere.write("from.txt", "again\n");
    let hidden = elsewhere.track();
    let second = Bench::new();
    second.write("second.txt", "second\n");
    let of_other = second.track();
    second.ok(&["export", "../second.bundle"]);
    let bundle = second.project.join("../second.bundle");
    elsewhere.ok(&["export", "../first.bundle"]);
    let mut forked = String::new();
    let clones = Clones::new(|bench, other| {
        bench.ok(&["import", elsewhere.project.join("../first.bundle").to_str().unwrap()]);
        bench.ok(&["-C", other, "import", bundle.to_str().unwrap()]);
        bench.ok(&["run", "--", "sh", "-c", "echo two > dir/a.txt"]);
        let session = bench.json(&["sessions"])["sessions"][0]["session"].clone();
        let into = bench.home.join("fork");
        bench.ok(&["fork", session.as_str().unwrap(), "--into", into.to_str().unwrap()]);
        std::fs::write(into.join("fork.txt"), "fork\n").unwrap();
        forked = bench.ok(&["-C", into.to_str().unwrap(), "track"]).trim().to_owned();
    });
    for (hash, path) in [(&imported, "from.txt"), (&hidden, "from.txt"), (&forked, "fork.txt")] {
        let (status, body) = clones.get(&format!("show?hash={hash}&path={path}"));
        assert_eq!(status, 200, "{path}: {body}");
    }
    let (status, body) = clones.get(&format!("show?hash={of_other}&path=second.txt"));
    assert_eq!(status, 404, "it was imported into the clone that is not served: {body}");
}

#[test]
fn steps_over_http_name_only_paths_of_served_projects() {
    let served = Served::new();
    let project = served.bench.project.clone();
    let secret = served.bench.home.join("secret.txt");
    std::fs::write(&secret, "secret\n").unwrap();
    std::os::unix::fs::symlink(&served.bench.home, project.join("link")).unwrap();
    let secret = secret.to_str().unwrap();
    let steps: Value = serde_json::from_str(&served.get("/v1/projects").1).unwrap();
    let id = steps["projects"][0]["project"].as_str().unwrap();
    let begin = |more: Value| {
        let mut body = json!({ "session": "s1" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post(&format!("/v1/projects/{id}/begin_step"), &body)
    };
    for refused in [
        json!({ "files": [secret] }),
        json!({ "files": ["../secret.txt"] }),
        json!({ "files": ["link/secret.txt"] }),
        json!({ "files": ["missing/../../secret.txt"] }),
        json!({ "cwd": served.bench.home }),
        json!({ "cwd": "/" }),
        json!({ "cwd": "/does/not/exist" }),
        json!({ "cwd": "link" }),
        json!({ "commands": [format!("rm -f {secret}")] }),
    ] {
        let (status, body) = begin(refused.clone());
        assert_eq!(status, 400, "{refused}: {body}");
        assert!(body.contains("paths of served projects"), "{refused}: {body}");
    }
    let captured = served.bench.data.join("agents/outside");
    assert!(!captured.exists() || contents(&captured).is_empty(), "nothing was captured");
    let inside = project.join("a.txt");
    let allowed = json!({ "files": [inside, "new.txt"], "commands": ["rm a.txt"], "cwd": project });
    let (status, body) = begin(allowed);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn the_token_is_readable_only_by_the_user() {
    let served = Served::new();
    let token = served.file("token");
    assert_eq!(token.len(), 64);
    for name in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{}/{name}", served.child.id())).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(&token), "{name}");
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Makes all parent directories accessible, so that only the mode of the data directory counts.
    for dir in served.bench.data.ancestors().skip(1).take_while(|dir| *dir != std::env::temp_dir())
    {
        std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    for name in ["token", "url", "socket"] {
        let mut command = program("/usr/bin/setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "/bin/cat"]);
        command.arg(served.bench.data.join("serve").join(name));
        let refused: Ran = command.output().unwrap().into();
        assert!(refused.stderr.contains("Permission denied"), "{name}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{name}");
    }
}

#[test]
fn sigterm_removes_all_server_files_except_the_lock() {
    let mut served = Served::new();
    served.signal(Signal::TERM);
    assert!(served.child.wait().unwrap().success());
    let dir = served.bench.data.join("serve");
    let left: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn a_new_server_starts_after_the_previous_one_was_killed() {
    let mut served = Served::new();
    let token = served.file("token");
    served.signal(Signal::KILL);
    served.child.wait().unwrap();
    assert_eq!(served.file("token"), token, "a killed server leaves its files");
    let next = {
        let mut command = served.bench.command(&["serve", "--port", "0"]);
        command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    };
    served.child = next;
    let start = Instant::now();
    while served.file("token") == token || served.file("url").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(served.get("/v1/projects").0, 200);
}

#[test]
fn a_second_server_and_non_loopback_addresses_are_refused() {
    let served = Served::new();
    served.bench.fails(&["serve"], 5, "a server runs already");
    let other = Bench::new();
    other.fails(&["serve", "--listen", "0.0.0.0:0"], 6, "not a loopback address");
    other.fails(&["serve", "--listen", "[::]:0"], 6, "not a loopback address");
    assert!(!other.data.join("serve/socket").exists());
}

#[test]
fn ui_uses_the_running_server() {
    let served = Served::new();
    let other = served.bench.home.join("other");
    std::fs::create_dir(&other).unwrap();
    let ran = served.bench.run(&["-C", other.to_str().unwrap(), "ui", "--no-open"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let link = ran.stderr.trim().trim_start_matches("ctrlz: ");
    let (url, code) = link.split_once("#code=").unwrap();
    assert_eq!(url, served.file("url"));
    assert_eq!(code.len(), 64);
    assert!(served.get("/v1/projects").1.contains("other"), "its work tree is served too");
    let address = served.address();
    let body = format!("{{\"code\":\"{code}\"}}");
    let login = format!(
        "POST /v1/login HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let connect = || TcpStream::connect(&address).unwrap();
    assert_eq!(exchange(connect(), login.as_bytes()).0, 200);
    assert_eq!(exchange(connect(), login.as_bytes()).0, 401, "a code works once");
}

#[test]
fn ui_never_connects_to_another_process_on_a_stale_port() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    // A server was killed, and another process listens on its port now.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let dir = bench.data.join("serve");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("url"), format!("http://{}/\n", stranger.local_addr().unwrap()))
        .unwrap();
    std::fs::write(dir.join("token"), "0".repeat(64)).unwrap();
    let served = Served::start(bench, &["ui", "--no-open"]);
    assert_ne!(served.address(), stranger.local_addr().unwrap().to_string());
    assert_eq!(served.get("/v1/projects").0, 200, "a new server was started");
    assert!(stranger.accept().is_err(), "no connection was made");
}

#[test]
fn hostile_requests_do_not_grow_memory() {
    const AT_MOST: u64 = 50 << 20;
    let served = Served::new();
    assert_eq!(served.get("/v1/projects").0, 200);
    let before = served.resident_bytes();
    let address = served.address();
    let head = format!(
        "Host: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
        served.file("token")
    );
    let project: Value = serde_json::from_str(&served.get("/v1/projects").1).unwrap();
    let project = project["projects"][0]["project"].as_str().unwrap();
    let path = format!("/v1/projects/{project}/track");
    let send = |request: &[&[u8]]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let sent = request.iter().try_for_each(|piece| stream.write_all(piece));
        drop(sent);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
    };
    let start = format!("POST {path} HTTP/1.1\r\n{head}");
    let chunk = [b"100000\r\n".as_slice(), &[b'x'; 1 << 20], b"\r\n"].concat();
    let chunked = format!("{start}Transfer-Encoding: chunked\r\n\r\n");
    send(&[&[chunked.as_bytes()], vec![chunk.as_slice(); 64].as_slice()].concat());
    let long = format!("{start}Content-Length: 10000000000\r\n\r\n");
    send(&[&[long.as_bytes()], vec![chunk.as_slice(); 64].as_slice()].concat());
    let many = "X: y\r\n".repeat(1_000_000);
    send(&[start.as_bytes(), many.as_bytes()]);
    let deep = "[".repeat(7 << 20);
    let nested =
        format!("{start}Content-Length: {}\r\nConnection: close\r\n\r\n{deep}", deep.len());
    for _ in 0..4 {
        send(&[nested.as_bytes()]);
    }
    assert_eq!(served.get("/v1/projects").0, 200);
    let grown = served.resident_bytes().saturating_sub(before);
    assert!(grown < AT_MOST, "{} MB more", grown >> 20);
}

#[test]
fn interactive_log_requires_a_terminal() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    bench.fails(&["log", "-i"], 2, "no terminal");
}
