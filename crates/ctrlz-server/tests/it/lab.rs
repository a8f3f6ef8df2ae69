//! A project, a server for it, and a client that sends exactly the bytes that a test needs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ctrlz::{Options, Progress, StepInfo, StepStart, TrackOptions, Workspace};
use ctrlz_api::{Host, Opened, Place, WireError};
use ctrlz_server::{Server, ServerOptions, Stopper};
use serde_json::Value;
use tempfile::TempDir;

/// Opens work trees with one data directory, and reads no configuration.
struct PlainHost {
    data_dir: PathBuf,
}

impl Host for PlainHost {
    fn open(&self, place: &Place) -> Result<Opened, WireError> {
        let dir = place.dir.as_ref().map(|dir| dir.as_path().to_owned()).unwrap_or_default();
        let mut options = Options::new(&self.data_dir);
        let patience = place.options.patience_millis.map(Duration::from_millis);
        options.patience = patience.unwrap_or(options.patience);
        Ok(Workspace::open(&dir, options)?.into())
    }

    fn owner(&self) -> Option<u32> {
        Some(std::process::id())
    }
}

pub(crate) struct Lab {
    pub(crate) dir: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) project: String,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn kind(&self) -> String {
        self.json()["error"]["kind"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

impl Lab {
    /// Creates a project with one step: `a.txt` gets a second line, `b.txt` is new.
    pub(crate) fn new() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.txt"), "one\n").unwrap();
        let workspace = Workspace::open(&root, Options::new(dir.path().join("data"))).unwrap();
        workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
        step(&workspace, "s1", "m1", || {
            std::fs::write(root.join("a.txt"), "one\ntwo\n").unwrap();
            std::fs::write(root.join("b.txt"), "new\n").unwrap();
        });
        Lab::serve(dir)
    }

    fn serve(dir: TempDir) -> Lab {
        let options = ServerOptions {
            dirs: vec![dir.path().join("project")],
            files: dir.path().join("data/serve"),
            tcp: Some("127.0.0.1:0".parse().unwrap()),
        };
        let host = Arc::new(PlainHost { data_dir: dir.path().join("data") });
        let server = Server::bind(&options, host).unwrap();
        let url = server.url().unwrap().to_owned();
        let address = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let token = std::fs::read_to_string(server.token_file().unwrap()).unwrap();
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run()));
        let (token, project) = (token.trim().to_owned(), String::new());
        let mut lab = Lab { dir, address, token, project, stopper, thread };
        let projects = lab.get("/v1/projects").json();
        lab.project = projects["projects"][0]["project"].as_str().unwrap().to_owned();
        lab
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.dir.path().join("data/serve")
    }

    pub(crate) fn workspace(&self) -> Workspace {
        Workspace::open(&self.root(), Options::new(self.dir.path().join("data"))).unwrap()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.root().join(name)).unwrap_or_else(|_| "(none)".into())
    }

    /// Returns the length of the log and the files, which a refused request must not change.
    pub(crate) fn state(&self) -> (usize, Vec<(PathBuf, Vec<u8>)>) {
        let log = self.workspace().log(10_000).unwrap().len();
        let mut files: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(self.root())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
            .collect();
        files.sort();
        (log, files)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends these bytes and reads until the server closes the connection.
    pub(crate) fn send(&self, bytes: &[u8]) -> Reply {
        exchange(self.connect(), bytes).unwrap_or_else(|| panic!("no answer"))
    }

    /// Returns the header lines that every authenticated request has.
    pub(crate) fn head(&self) -> String {
        format!("Host: {}\r\nAuthorization: Bearer {}\r\n", self.address, self.token)
    }

    /// Sends a request with these header lines. Adds only a content length and `Connection: close`.
    pub(crate) fn ask(&self, verb: &str, path: &str, lines: &str, body: &str) -> Reply {
        let length = match verb {
            "POST" | "PUT" | "PATCH" => format!("Content-Length: {}\r\n", body.len()),
            _ => String::new(),
        };
        let head = format!("{verb} {path} HTTP/1.1\r\n{lines}{length}Connection: close\r\n\r\n");
        self.send(format!("{head}{body}").as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &self.head(), "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        let lines = format!("{}Content-Type: application/json\r\n", self.head());
        self.ask("POST", path, &lines, &body.to_string())
    }

    /// Returns the path of a method.
    pub(crate) fn at(&self, method: &str) -> String {
        format!("/v1/projects/{}/{method}", self.project)
    }

    pub(crate) fn method(&self, method: &str, body: &Value) -> Reply {
        self.post(&self.at(method), body)
    }
}

/// Records a step of an agent.
pub(crate) fn step(workspace: &Workspace, session: &str, message: &str, work: impl FnOnce()) {
    let info = StepInfo {
        session: session.into(),
        message: Some(message.into()),
        label: Some("<img src=x onerror=alert(1)>".into()),
        ..StepInfo::default()
    };
    let start = StepStart { info, ..StepStart::default() };
    let begun = workspace.begin_step(start, &Progress::default()).unwrap();
    work();
    workspace.end_step(&begun.step, &Default::default(), &Progress::default()).unwrap();
}

/// Sends bytes and reads the response. Returns `None` if the server closes without one.
pub(crate) fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> Option<Reply> {
    // Errors are ignored: a server may refuse a request before it has read everything.
    stream.write_all(bytes).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    parse(&answer)
}

pub(crate) fn parse(answer: &[u8]) -> Option<Reply> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = &answer[end + 4..];
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { dechunked(body) } else { body.to_vec() };
    Some(Reply { status, head, body })
}

fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let chunk = &body[end + 2..];
        if size == 0 || chunk.len() < size {
            break;
        }
        whole.extend_from_slice(&chunk[..size]);
        body = &chunk[size + 2..];
    }
    whole
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&path.symlink_metadata().unwrap().permissions())
        & 0o7777
}
