//! A web server on loopback that passes every request to `git http-backend`, like Apache.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::bench::program;

/// Serves the repositories below a directory until it is dropped.
pub(crate) struct GitHttp {
    pub(crate) port: u16,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl GitHttp {
    pub(crate) fn serve(dir: &Path) -> GitHttp {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, dir) = (Arc::clone(&is_over), dir.to_owned());
        let listening = std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let dir = dir.clone();
                // Errors are ignored: the client may disconnect at any time.
                std::thread::spawn(move || answer(connection, &dir).ok());
            }
        });
        GitHttp { port, is_over, listening: Some(listening) }
    }
}

impl Drop for GitHttp {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes up the listening thread.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.listening.take().map(JoinHandle::join);
    }
}

/// A request: its first line, headers and body.
struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(connection: &TcpStream) -> std::io::Result<Request> {
        let mut input = BufReader::new(connection);
        let line = line(&mut input)?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut headers = Vec::new();
        loop {
            let line = self::line(&mut input)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let (path, query) = (path.to_owned(), query.to_owned());
        let mut request = Request { method, path, query, headers, body: Vec::new() };
        if request.header("expect").is_some() {
            (&*connection).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = request.read_body(&mut input)?;
        Ok(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reads the body. Git sends a content length, or chunks for large bodies.
    fn read_body(&self, input: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_none() {
            let length = self.header("content-length").and_then(|text| text.parse().ok());
            input.take(length.unwrap_or(0)).read_to_end(&mut body)?;
            return Ok(body);
        }
        loop {
            let length = u64::from_str_radix(line(input)?.trim(), 16).unwrap_or(0);
            input.take(length).read_to_end(&mut body)?;
            line(input)?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
}

fn line(input: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Passes a request to git and writes its response to the connection.
fn answer(mut connection: TcpStream, dir: &Path) -> std::io::Result<()> {
    let request = Request::read(&connection)?;
    let root: PathBuf = dir.to_owned();
    let mut git = program("git");
    git.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_PROJECT_ROOT", root);
    git.env("GIT_HTTP_EXPORT_ALL", "1").env("REMOTE_USER", "somebody");
    git.env("REQUEST_METHOD", &request.method).env("PATH_INFO", &request.path);
    git.env("QUERY_STRING", &request.query).env("CONTENT_LENGTH", request.body.len().to_string());
    for (name, variable) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "HTTP_GIT_PROTOCOL"),
    ] {
        git.envs(request.header(name).map(|value| (variable, value)));
    }
    let mut child = git.spawn()?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let body = request.body;
    let feeding = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output()?;
    feeding.join().ok();
    let end = output.stdout.windows(4).position(|part| part == b"\r\n\r\n").unwrap_or(0);
    let headers = String::from_utf8_lossy(&output.stdout[..end]).into_owned();
    let status = headers.lines().find_map(|line| line.strip_prefix("Status: "));
    let body = output.stdout.get(end + 4..).unwrap_or_default();
    write!(connection, "HTTP/1.1 {}\r\n", status.unwrap_or("200 OK"))?;
    write!(connection, "{headers}\r\nContent-Length: {}\r\n", body.len())?;
    connection.write_all(b"Connection: close\r\n\r\n")?;
    connection.write_all(body)
}
