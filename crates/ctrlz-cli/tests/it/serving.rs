//! `ctrlz serve` and `ctrlz ui`: processes of their own, other users, and memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bench::{Bench, Ran, program};

/// A running server. Ends it.
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

    /// Starts it, and waits until it says where it is.
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

    /// Asks over TCP with the token, and gives the status and the body.
    fn get(&self, path: &str) -> (u16, String) {
        let address = self.address();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            self.file("token")
        );
        exchange(TcpStream::connect(address).unwrap(), head.as_bytes())
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
fn a_server_says_where_it_is_and_answers_there() {
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
fn the_token_is_where_only_the_user_can_read_it() {
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
    // Everything above the data directory is open, so only its own permissions protect it.
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
fn an_end_takes_everything_away() {
    let mut served = Served::new();
    served.signal(Signal::TERM);
    assert!(served.child.wait().unwrap().success());
    let dir = served.bench.data.join("serve");
    let left: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn a_killed_server_is_in_nobodys_way() {
    let mut served = Served::new();
    let token = served.file("token");
    served.signal(Signal::KILL);
    served.child.wait().unwrap();
    assert_eq!(served.file("token"), token, "it had no time to tidy up");
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
fn a_second_server_and_other_addresses_are_refused() {
    let served = Served::new();
    served.bench.fails(&["serve"], 5, "a server runs already");
    let other = Bench::new();
    other.fails(&["serve", "--listen", "0.0.0.0:0"], 6, "not a loopback address");
    other.fails(&["serve", "--listen", "[::]:0"], 6, "not a loopback address");
    assert!(!other.data.join("serve/socket").exists());
}

#[test]
fn ui_uses_the_server_that_runs() {
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
    assert_eq!(exchange(connect(), login.as_bytes()).0, 401, "once");
}

#[test]
fn ui_tells_a_stranger_on_the_port_nothing() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    // A server was killed, and somebody else has its port now.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let dir = bench.data.join("serve");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("url"), format!("http://{}/\n", stranger.local_addr().unwrap()))
        .unwrap();
    std::fs::write(dir.join("token"), "0".repeat(64)).unwrap();
    let served = Served::start(bench, &["ui", "--no-open"]);
    assert_ne!(served.address(), stranger.local_addr().unwrap().to_string());
    assert_eq!(served.get("/v1/projects").0, 200, "it has a server of its own");
    assert!(stranger.accept().is_err(), "nobody connected");
}

#[test]
fn attacks_cost_no_memory() {
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
fn browsing_needs_a_terminal() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    bench.fails(&["log", "-i"], 2, "no terminal");
}
