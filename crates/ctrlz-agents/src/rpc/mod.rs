//! `ctrlz rpc`: JSON-RPC 2.0, one message per line.
//!
//! One thread only reads lines, and a fixed number of worker threads run the calls. Each response
//! is written as a whole under one lock. Every request is answered, including malformed ones, and
//! only messages are written to the output. The methods, their types and their errors are those of
//! [`ctrlz_api`].

mod lines;
mod message;
mod queue;
mod reply;

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread::Builder;
use std::time::Duration;

use ctrlz::{Progress, Workspace};
use ctrlz_api::{
    Access, Answer, CancelParams, Capabilities, Context, Host, InitializeParams, Initialized,
    METHODS, PROTOCOL, Params, ProgressParams, ShutDown, ShutdownParams, WireError, dispatch,
    named, schema_hash,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use lines::{Line, Lines};
use message::{Id, MAX_BATCH, Message, Refused, Request};
use queue::{Call, Full, MAX_WAITING, Queue, Work};
use reply::{Batch, Output, Reply};

/// Parses a line like the server does, for tests with arbitrary input.
#[cfg(any(test, fuzzing))]
pub fn parse_line(line: &[u8]) {
    drop(message::parse(line));
}

/// Upper bound on the length of a line. A longer line is skipped and answered with an error.
pub const MAX_LINE_BYTES: usize = 64 << 20;
/// Number of worker threads, and so of calls that run at the same time.
const MAX_RUNNING: usize = 8;
/// Delay before retrying on a stream that is not ready: the parent process may have made our
/// streams non-blocking.
const RETRY: Duration = Duration::from_millis(2);
/// Names of the notification that cancels a call: ours, and the one of language servers.
const CANCEL: [&str; 2] = ["cancel", "$/cancelRequest"];

/// Events that lead to the end of the server.
enum Event {
    /// No more requests will arrive: finish the calls, then end.
    End,
    /// Like `End`, and then send this response.
    Shutdown(Option<(Id, Reply)>),
    /// Cancel all calls and end as soon as possible.
    Stop,
    /// All workers have finished.
    Drained,
}

/// Handle that stops a server from another thread, such as one that handles signals.
#[derive(Clone)]
pub struct Stopper(Sender<Event>);

impl Stopper {
    /// Cancels running calls, answers all calls, and lets [`Server::run`] return.
    pub fn stop(&self) {
        // Fails only if the server has already ended.
        self.0.send(Event::Stop).ok();
    }
}

/// A server for one client.
pub struct Server {
    host: Arc<dyn Host>,
    output: Arc<Output>,
    queue: Arc<Queue>,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl Server {
    /// Creates a server that writes its messages to `output` and opens work trees through `host`.
    pub fn new(output: impl Write + Send + 'static, host: Arc<dyn Host>) -> Server {
        let (sender, events) = channel();
        let output = Arc::new(Output::new(Box::new(output), sender.clone()));
        Server { host, output, queue: Arc::default(), events, sender }
    }

    /// Returns a handle that stops the server early.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.sender.clone())
    }

    /// Answers requests from `input` until it ends, then finishes the calls that are left.
    pub fn run(self, input: impl Read + Send + 'static) -> io::Result<()> {
        let Server { host, output, queue, events, sender } = self;
        let left = Arc::new(AtomicUsize::new(MAX_RUNNING));
        for _ in 0..MAX_RUNNING {
            let worker = Worker {
                host: Arc::clone(&host),
                output: Arc::clone(&output),
                queue: Arc::clone(&queue),
            };
            let (left, sender) = (Arc::clone(&left), sender.clone());
            Builder::new().name("rpc call".into()).spawn(move || {
                worker.work();
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    sender.send(Event::Drained).ok();
                }
            })?;
        }
        let reader = Reader { output: Arc::clone(&output), queue: Arc::clone(&queue), sender };
        // Never joined: it may block on input that never arrives.
        Builder::new().name("rpc reader".into()).spawn(move || reader.read(input))?;
        wait(&events, &queue);
        Ok(())
    }
}

/// Waits until all calls are finished or the grace period is over.
fn wait(events: &Receiver<Event>, queue: &Queue) {
    /// Time limit for cancelled calls. A call that waits for the lock of another process does not
    /// notice its cancellation. Exiting then is safe, because the next command finishes an
    /// interrupted restore.
    const GRACE: Duration = Duration::from_secs(10);
    let mut last_words = None;
    let mut patience = Duration::MAX;
    while let Ok(event) = events.recv_timeout(patience) {
        match event {
            Event::End => queue.close(),
            Event::Shutdown(reply) => {
                last_words = reply;
                queue.close();
            }
            Event::Stop => {
                patience = GRACE;
                for call in queue.abandon() {
                    refuse(call, &ctrlz::Error::Cancelled.into());
                }
            }
            Event::Drained => break,
        }
    }
    if let Some((id, reply)) = last_words {
        reply.give(message::success(&id, &json(&ShutDown { shut_down: true })));
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data has a JSON form")
}

/// Answers a call with an error instead of running it.
fn refuse(call: Call, error: &WireError) {
    if let Some(id) = &call.id {
        call.reply.give(message::failure(id, error));
    }
}

/// Reads lines and enqueues calls. Requests that need no work are answered immediately.
struct Reader {
    output: Arc<Output>,
    queue: Arc<Queue>,
    sender: Sender<Event>,
}

/// Whether the reader continues.
#[derive(PartialEq, Eq)]
enum Then {
    ReadOn,
    Finish,
}

impl Reader {
    fn read(self, input: impl Read) {
        let mut lines = Lines::new(input, MAX_LINE_BYTES);
        // A read error is treated as the end of input.
        while let Ok(Some(line)) = lines.next() {
            let then = match line {
                Line::Whole(line) => self.take_line(&line),
                Line::TooLong => {
                    let why = format!("a line has at most {MAX_LINE_BYTES} bytes");
                    let error = WireError::new("too_large", why);
                    self.output.send(message::failure(&Id::null(), &error));
                    Then::ReadOn
                }
            };
            if then == Then::Finish {
                return;
            }
        }
        self.sender.send(Event::End).ok();
    }

    fn take_line(&self, line: &[u8]) -> Then {
        match message::parse(line) {
            Message::Empty => Then::ReadOn,
            Message::Single(item) => {
                let reply = |output: &Arc<Output>| Reply::Line(Arc::clone(output));
                self.take(item, || reply(&self.output))
            }
            Message::Batch(items) => {
                let is_answered = |item: &&Result<Request<'_>, Refused>| match item {
                    Ok(request) => request.id.is_some(),
                    Err(_) => true,
                };
                let answers = items.iter().filter(is_answered).count();
                let batch = Batch::new(Arc::clone(&self.output), answers);
                let mut then = Then::ReadOn;
                for item in items {
                    if self.take(item, || Reply::Batch(Arc::clone(&batch))) == Then::Finish {
                        then = Then::Finish;
                    }
                }
                then
            }
        }
    }

    fn take(&self, item: Result<Request<'_>, Refused>, reply: impl Fn() -> Reply) -> Then {
        let request = match item {
            Ok(request) => request,
            Err(Refused { id, error }) => {
                reply().give(message::failure(&id, &error));
                return Then::ReadOn;
            }
        };
        let give = |outcome: Result<String, WireError>| {
            if let Some(id) = &request.id {
                reply().give(match outcome {
                    Ok(result) => message::success(id, &result),
                    Err(error) => message::failure(id, &error),
                });
            }
        };
        match request.method.as_str() {
            "initialize" => {
                give(params::<InitializeParams>(request.params).map(|_| json(&initialized())));
            }
            "shutdown" => match params::<ShutdownParams>(request.params) {
                Ok(ShutdownParams {}) => {
                    let answer = request.id.map(|id| (id, reply()));
                    self.sender.send(Event::Shutdown(answer)).ok();
                    return Then::Finish;
                }
                Err(error) => give(Err(error)),
            },
            method if CANCEL.contains(&method) => {
                let cancelled = params::<CancelParams>(request.params).map(|params| {
                    if let Some(call) = self.queue.cancel(&params.id) {
                        refuse(call, &ctrlz::Error::Cancelled.into());
                    }
                });
                give(cancelled.map(|()| "null".into()));
            }
            _ => self.queue_call(request, reply),
        }
        Then::ReadOn
    }

    fn queue_call(&self, request: Request<'_>, reply: impl Fn() -> Reply) {
        let reply = if request.id.is_some() { reply() } else { Reply::Nobody };
        let asked =
            named(&request.method).and_then(|method| Ok((method, Params::parse(request.params)?)));
        let given = |name: &str| asked.as_ref().ok().and_then(|(_, params)| params.get(name));
        let call = Box::new(Call {
            id: request.id,
            access: asked
                .as_ref()
                .map_or(Access::Reads, |(method, params)| method.access_of(params)),
            lane: given("dir").unwrap_or_default().to_owned(),
            wants_progress: given("progress") == Some("true"),
            bytes: request.params.len(),
            asked,
            progress: Arc::default(),
            reply,
        });
        if let Err((call, full)) = self.queue.push(call) {
            let error = match full {
                Full::Overloaded => WireError::new("overloaded", "too many calls are waiting"),
                Full::Closed => ctrlz::Error::Cancelled.into(),
                Full::IdInUse => {
                    WireError::new("invalid_request", "a call with this id is not answered yet")
                }
            };
            refuse(*call, &error);
        }
    }
}

/// Parses the parameters of a method of the server itself. Missing parameters count as empty.
fn params<P: DeserializeOwned>(params: &str) -> Result<P, WireError> {
    let text = if params == "null" { "{}" } else { params };
    serde_json::from_str(text).map_err(|error| WireError::invalid_params(error.to_string()))
}

fn initialized() -> Initialized {
    static SCHEMA_HASH: LazyLock<String> = LazyLock::new(schema_hash);
    let own = ["initialize", "shutdown"];
    Initialized {
        name: "ctrlz",
        version: env!("CARGO_PKG_VERSION"),
        protocol: PROTOCOL,
        schema_hash: SCHEMA_HASH.clone(),
        pid: std::process::id(),
        capabilities: Capabilities {
            methods: own.into_iter().chain(METHODS.iter().map(|method| method.name)).collect(),
            cancel: CANCEL[0],
            progress: true,
            batch: true,
            max_line_bytes: MAX_LINE_BYTES as u64,
            max_batch: MAX_BATCH as u64,
            max_running: MAX_RUNNING as u64,
            max_waiting: MAX_WAITING as u64,
        },
    }
}

/// Thread that runs queued work, one item at a time.
struct Worker {
    host: Arc<dyn Host>,
    output: Arc<Output>,
    queue: Arc<Queue>,
}

impl Worker {
    fn work(&self) {
        while let Some(work) = self.queue.take() {
            match work {
                Work::Call(call) => self.answer(*call),
                Work::CopyBorrowed { workspace, lane, left } => {
                    self.copy_borrowed(workspace, lane, left);
                }
            }
        }
    }

    fn answer(&self, call: Call) {
        let Call { id, asked, lane, access, wants_progress, progress, reply, .. } = call;
        let listener = id.as_ref().filter(|_| wants_progress);
        let outcome = self.watched(listener, &progress, || {
            let context = Context { host: self.host.as_ref(), progress: &progress };
            let run = || asked.and_then(|(method, params)| dispatch(method, params, &context));
            // A panic in one call must not end the others.
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                Err(WireError::new("internal_error", "the call failed in a way it should not"))
            })
        });
        // Released before the response is sent, because the client may reuse the id at once.
        let held = (access != Access::Reads).then_some(lane.as_str());
        self.queue.done(held, Some(&progress));
        let (answer, worked_on, borrowing) = match outcome {
            Ok(Answer { result, worked_on, borrowing }) => (Ok(result), worked_on, borrowing),
            Err(error) => (Err(error), None, false),
        };
        if let Some(id) = &id {
            reply.give(match answer {
                Ok(result) => message::success(id, result.get()),
                Err(error) => message::failure(id, &error),
            });
        }
        let Some(workspace) = worked_on else { return };
        // Runs after the response, so no client waits. A panic must not end other calls.
        drop(catch_unwind(AssertUnwindSafe(|| self.host.rest(&workspace))));
        if borrowing {
            let workspace = Box::new(workspace);
            self.queue.push_quietly(Work::CopyBorrowed { workspace, lane, left: u64::MAX });
        }
    }

    /// Copies some of the borrowed blobs, then requeues the rest so that other calls can run.
    fn copy_borrowed(&self, workspace: Box<Workspace>, lane: String, left: u64) {
        /// Upper bound on the bytes copied at a time: calls on the work tree wait meanwhile.
        const SLICE_BYTES: u64 = 32 << 20;
        let now = catch_unwind(AssertUnwindSafe(|| workspace.copy_borrowed(SLICE_BYTES)));
        self.queue.done(Some(&lane), None);
        // After an error or without progress, the rest is left to the next snapshot.
        if let Ok(Ok(now)) = now
            && now > 0
            && now < left
        {
            self.queue.push_quietly(Work::CopyBorrowed { workspace, lane, left: now });
        }
    }

    /// Runs `work`, and sends progress notifications for a request whose client wants them.
    fn watched<T>(&self, id: Option<&Id>, progress: &Progress, work: impl FnOnce() -> T) -> T {
        let Some(id) = id else { return work() };
        std::thread::scope(|scope| {
            let (working, finished) = channel::<()>();
            let watcher = move || self.tell(id, progress, &finished);
            // If no thread can be started, the work runs without progress notifications.
            drop(Builder::new().spawn_scoped(scope, watcher));
            let outcome = work();
            drop(working);
            outcome
        })
    }

    fn tell(&self, id: &Id, progress: &Progress, finished: &Receiver<()>) {
        const EVERY: Duration = Duration::from_millis(100);
        while finished.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            let params = ProgressParams {
                id: id.value.clone(),
                files: count(&progress.files),
                files_to_read: count(&progress.files_to_read),
                files_read: count(&progress.files_read),
            };
            self.output.send(message::notification("progress", &params));
        }
    }
}
