//! Measures a server under load, and prints the table of docs/load.md.
//!
//!     cargo run --release -p ctrlz-server --example load
//!     … -- CLIENTS REQUESTS SLOW          default: 64 1000 1000
//!
//! The server is a separate process of this program, so that its memory can be measured apart from
//! the clients'. A status of 500 or above, or a broken connection, is a failure.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctrlz::{Options, Progress, StepEnd, StepInfo, StepStart, TrackOptions, Workspace};
use ctrlz_api::{Host, Opened, Place, WireError};
use ctrlz_server::{Server, ServerOptions};

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// Number of files in the project.
const FILES: usize = 2000;
/// Number of steps in its log.
const STEPS: usize = 200;

/// Upper bound on the duration of slow connections.
const SLOW_SECONDS: u64 = 15;

fn main() -> Result<(), Anything> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, dir] = words.as_slice()
        && word == "serve"
    {
        return serve(Path::new(dir));
    }
    let number = |at: usize, default| words.get(at).map_or(Ok(default), |word| word.parse());
    let (clients, requests, slow) = (number(0, 64)?, number(1, 1000)?, number(2, 1000)?);
    let dir = std::env::temp_dir().join(format!("ctrlz-load-{}", std::process::id()));
    let outcome = measure(&dir, clients, requests, slow);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

struct PlainHost {
    data_dir: PathBuf,
}

impl Host for PlainHost {
    fn open(&self, place: &Place) -> Result<Opened, WireError> {
        let dir = place.dir.as_ref().map(|dir| dir.as_path().to_owned()).unwrap_or_default();
        Ok(Workspace::open(&dir, Options::new(&self.data_dir))?.into())
    }

    fn owner(&self) -> Option<u32> {
        None
    }
}

/// Serves until standard input ends.
fn serve(dir: &Path) -> Result<(), Anything> {
    let options = ServerOptions {
        dirs: vec![dir.join("project")],
        files: dir.join("data/serve"),
        tcp: Some(([127, 0, 0, 1], 0).into()),
    };
    let server = Server::bind(&options, Arc::new(PlainHost { data_dir: dir.join("data") }))?;
    let stopper = server.stopper();
    std::thread::spawn(move || {
        io::stdin().read_to_end(&mut Vec::new()).ok();
        stopper.stop();
    });
    writeln!(io::stdout(), "{}", server.url().unwrap_or_default())?;
    server.run();
    Ok(())
}

/// Creates a project with a log. Returns its first and its last snapshot.
fn make_project(dir: &Path) -> Result<(String, String), Anything> {
    let root = dir.join("project");
    for number in 0..FILES {
        let file = root.join(format!("src{}/file{number}.txt", number % 50));
        std::fs::create_dir_all(file.parent().unwrap_or(&root))?;
        std::fs::write(file, format!("file {number}\n").repeat(40))?;
    }
    let workspace = Workspace::open(&root, Options::new(dir.join("data")))?;
    let progress = Progress::default();
    let first = workspace.track(&TrackOptions::default(), &progress)?.hash;
    let mut last = first;
    for number in 0..STEPS {
        let (session, message) = (format!("s{}", number % 4), Some(format!("m{number}")));
        let info = StepInfo { session, message, ..StepInfo::default() };
        let start = StepStart { info, ..StepStart::default() };
        let begun = workspace.begin_step(start, &progress)?;
        std::fs::write(root.join("src0/file0.txt"), format!("step {number}\n").repeat(40))?;
        last = workspace.end_step(&begun.step, &StepEnd::default(), &progress)?.after;
    }
    Ok((first.to_string(), last.to_string()))
}

/// A server in a separate process.
struct Running {
    child: Child,
    address: String,
    token: String,
    project: String,
    first: String,
    last: String,
}

#[expect(clippy::disallowed_methods, reason = "the server is measured as a process of its own")]
fn start(dir: &Path) -> Result<Running, Anything> {
    std::fs::create_dir_all(dir)?;
    let (first, last) = make_project(dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut url = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut url)?;
    let address = url.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let token = std::fs::read_to_string(dir.join("data/serve/token"))?.trim().to_owned();
    let mut running = Running { child, address, token, project: String::new(), first, last };
    let (_, body) = Client::new(&running)?.ask("GET", "/v1/projects", "")?;
    let body: serde_json::Value = serde_json::from_slice(&body)?;
    running.project = body["projects"][0]["project"].as_str().unwrap_or_default().to_owned();
    Ok(running)
}

impl Running {
    /// Returns a memory figure from `/proc/PID/status` in MiB, or 0 if it is missing.
    fn memory(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib =
            line.and_then(|line| line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    }
}

/// A persistent HTTP connection.
struct Client {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Client {
    fn new(running: &Running) -> io::Result<Client> {
        let stream = TcpStream::connect(&running.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let Running { address, token, .. } = running;
        let head = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
        Ok(Client { stream: BufReader::new(stream), head })
    }

    fn ask(&mut self, verb: &str, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
        let json = "Content-Type: application/json\r\nContent-Length:";
        let about =
            if verb == "POST" { format!("{json} {}\r\n", body.len()) } else { String::new() };
        let request = format!("{verb} {path} HTTP/1.1\r\n{}{about}\r\n{body}", self.head);
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length) = (0, None);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).and_then(|text| text.parse().ok()).unwrap_or(0);
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.trim().parse().ok();
            }
        }
        let body = match length {
            Some(length) => self.take(length)?,
            None => self.take_pieces()?,
        };
        Ok((status, body))
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Reads a body with chunked encoding.
    fn take_pieces(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16);
            let length = length.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            body.extend(self.take(length)?);
            self.take(2)?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
}

/// Returns the name, the verb and the path of a request. Ten consecutive numbers make up the mix.
fn request(running: &Running, number: usize) -> (&'static str, &'static str, String) {
    let Running { project, first, last, .. } = running;
    let at = |rest: String| format!("/v1/projects/{project}/{rest}");
    match number % 10 {
        0 | 1 => ("timeline", "GET", at("timeline?limit=20".into())),
        2 => ("sessions", "GET", at("sessions".into())),
        3 => ("diff", "GET", at(format!("diff?from={first}&to={last}"))),
        4 => ("show", "GET", at(format!("show?hash={last}&path=src0/file0.txt"))),
        5 => ("list_files", "GET", at(format!("list_files?hash={last}&limit=100"))),
        6 => ("status", "GET", at("status".into())),
        7 => ("step_changes", "GET", at("step_changes?of=%7B%22session%22%3A%22s1%22%7D".into())),
        8 => ("plan_undo", "POST", at("plan_undo".into())),
        _ => ("track", "POST", at("track".into())),
    }
}

#[derive(Default)]
struct Results {
    times: BTreeMap<&'static str, Vec<Duration>>,
    statuses: BTreeMap<u16, usize>,
    broken: usize,
}

impl Results {
    fn add(&mut self, what: &'static str, took: Duration, status: &io::Result<u16>) {
        self.times.entry(what).or_default().push(took);
        match status {
            Ok(status) => *self.statuses.entry(*status).or_default() += 1,
            Err(_) => self.broken += 1,
        }
    }

    fn merge(&mut self, other: Results) {
        for (what, times) in other.times {
            self.times.entry(what).or_default().extend(times);
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.broken += other.broken;
    }

    /// Returns the number of requests without a response or with a server error.
    fn failed(&self) -> usize {
        let faults = self.statuses.iter().filter(|(status, _)| **status >= 500);
        faults.map(|(_, count)| count).sum::<usize>() + self.broken
    }
}

/// Sends requests from several clients, each over its own connection.
fn ask(running: &Running, clients: usize, requests: usize) -> Result<Results, Anything> {
    let mut all = Results::default();
    std::thread::scope(|scope| -> Result<(), Anything> {
        let client = |number: usize| {
            scope.spawn(move || -> Result<Results, Anything> {
                let mut client = Client::new(running)?;
                let mut results = Results::default();
                for at in 0..requests {
                    let (what, verb, path) = request(running, number + at);
                    let start = Instant::now();
                    let body = if verb == "POST" { "{}" } else { "" };
                    let answer = client.ask(verb, &path, body).map(|(status, _)| status);
                    results.add(what, start.elapsed(), &answer);
                }
                Ok(results)
            })
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        for thread in threads {
            all.merge(thread.join().map_err(|_| "a client failed")??);
        }
        Ok(())
    })?;
    Ok(all)
}

fn measure(dir: &Path, clients: usize, requests: usize, slow: usize) -> Result<(), Anything> {
    let mut running = start(dir)?;
    let idle = running.memory("VmRSS");
    let alone = ask(&running, 1, 200)?;
    let begin = Instant::now();
    let crowd = ask(&running, clients, requests)?;
    let took = begin.elapsed().as_secs_f64();
    let peak = running.memory("VmHWM");
    let (beside, closed) = beside_slow_ones(&running, slow)?;
    let total = clients * requests;
    let mut out = io::stdout().lock();
    writeln!(out, "{}\n", machine())?;
    writeln!(
        out,
        "{FILES} files, {STEPS} steps. {total} requests of {clients} clients in {took:.1} s: {:.0} per second. \
         Memory of the server: {idle} MiB at rest, {peak} MiB at most, {} MiB with {slow} slow connections.\n",
        total as f64 / took,
        running.memory("VmRSS")
    )?;
    writeln!(out, "| | requests | p50 | p99 | longest | answers |\n|---|--:|--:|--:|--:|---|")?;
    row(&mut out, "one client", &alone)?;
    row(&mut out, &format!("{clients} clients"), &crowd)?;
    row(&mut out, &format!("4 clients beside {slow} slow connections"), &beside)?;
    writeln!(
        out,
        "\nOf {slow} slow connections the server closed {closed} within {SLOW_SECONDS} s.\n"
    )?;
    writeln!(
        out,
        "| with {clients} clients | requests | p50 | p99 | longest |\n|---|--:|--:|--:|--:|"
    )?;
    for (what, times) in &crowd.times {
        let (p50, p99, longest) = quantiles(times.clone());
        writeln!(out, "| `{what}` | {} | {p50} | {p99} | {longest} |", times.len())?;
    }
    drop(running.child.stdin.take());
    running.child.wait()?;
    match alone.failed() + crowd.failed() + beside.failed() {
        0 => Ok(()),
        count => Err(format!("{count} requests failed").into()),
    }
}

/// Describes the machine and its load.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown", |(_, name)| name);
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let load: Vec<&str> = load.split(' ').take(3).collect();
    format!(
        "{cores} cores ({model}), Linux {}, load average {} at the end, clients and server on the same machine.",
        kernel.trim(),
        load.join(" ")
    )
}

fn row(out: &mut impl Write, name: &str, results: &Results) -> io::Result<()> {
    let times: Vec<Duration> = results.times.values().flatten().copied().collect();
    let count = times.len();
    let (p50, p99, longest) = quantiles(times);
    let mut answers: Vec<String> =
        results.statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    if results.broken > 0 {
        answers.push(format!("{} broken", results.broken));
    }
    writeln!(out, "| {name} | {count} | {p50} | {p99} | {longest} | {} |", answers.join(", "))
}

fn quantiles(mut times: Vec<Duration>) -> (String, String, String) {
    times.sort();
    let at = |share: f64| {
        let place = ((times.len() as f64 - 1.0) * share).round() as usize;
        let time = times.get(place).copied().unwrap_or_default();
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    };
    (at(0.5), at(0.99), at(1.0))
}

/// Sends requests while `slow` other connections send one byte per second. Also returns the number
/// of those that the server closed.
fn beside_slow_ones(running: &Running, slow: usize) -> Result<(Results, usize), Anything> {
    let head = b"GET /v1/projects HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    let mut streams = Vec::new();
    for _ in 0..slow {
        let mut stream = TcpStream::connect(&running.address)?;
        stream.write_all(head)?;
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    std::thread::scope(|scope| {
        let drip = scope.spawn(|| {
            let start = Instant::now();
            let mut closed = 0;
            while start.elapsed() < Duration::from_secs(SLOW_SECONDS) && !streams.is_empty() {
                std::thread::sleep(Duration::from_secs(1));
                streams.retain_mut(|stream| {
                    let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
                    let ended = !stream.read(&mut [0; 512]).is_err_and(waits);
                    let open = !ended && stream.write_all(b"x").is_ok();
                    closed += usize::from(!open);
                    open
                });
            }
            closed
        });
        let results = ask(running, 4, 250);
        let closed = drip.join().map_err(|_| "the slow clients failed")?;
        Ok((results?, closed))
    })
}
