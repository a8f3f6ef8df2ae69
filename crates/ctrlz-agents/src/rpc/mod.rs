//! `ctrlz rpc`: JSON-RPC 2.0, one message per line.
//!
//! One thread reads lines and never works; a few threads work; every answer is written whole under
//! one lock. Whatever comes in is answered, also what makes no sense, and nothing but messages goes
//! out. The methods, their types and their errors are those of [`ctrlz_wire`].

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
use ctrlz_wire::{
    Access, Answer, CancelParams, Capabilities, Context, Host, InitializeParams, Initialized,
    METHODS, PROTOCOL, ProgressParams, ShutDown, ShutdownParams, UpTo, WireError, dispatch, find,
    schema_hash,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use lines::{Line, Lines};
use message::{Hints, Id, MAX_BATCH, Message, Refused, Request};
use queue::{Call, Full, MAX_WAITING, Queue, Work};
use reply::{Batch, Output, Reply};

/// Understands a line as the server does, for tests that feed it anything.
#[cfg(any(test, fuzzing))]
pub fn parse_line(line: &[u8]) {
    drop(message::parse(line));
}

/// The longest line that is read; a longer one is passed over and answered with an error.
pub const MAX_LINE_BYTES: usize = 64 << 20;
/// How many calls run at the same time.
const MAX_RUNNING: usize = 8;
/// How long to wait where a stream is not ready: whoever gave it to us may have made it one that
/// never waits by itself.
const RETRY: Duration = Duration::from_millis(2);
/// The name of the notification that cancels a call, and the one that language servers use.
const CANCEL: [&str; 2] = ["cancel", "$/cancelRequest"];

/// What the server reacts to, besides what is asked of it.
enum Event {
    /// No more requests come: finish, and end.
    End,
    /// The same, and then answer this.
    Shutdown(Option<(Id, Reply)>),
    /// End as soon as possible.
    Stop,
    /// Nothing runs any more.
    Drained,
}

/// Ends a server from another thread, as a signal does.
#[derive(Clone)]
pub struct Stopper(Sender<Event>);

impl Stopper {
    /// Cancels what runs, answers everything, and lets [`Server::run`] return.
    pub fn stop(&self) {
        // Nobody listens only if the server has ended already.
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
    /// A server that writes its messages to `output` and opens work trees as `host` says.
    pub fn new(output: impl Write + Send + 'static, host: Arc<dyn Host>) -> Server {
        let (sender, events) = channel();
        let output = Arc::new(Output::new(Box::new(output), sender.clone()));
        Server { host, output, queue: Arc::default(), events, sender }
    }

    /// A way to end the server early.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.sender.clone())
    }

    /// Answers what comes from `input` until it ends, then finishes what runs.
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
        // Never joined: it may wait for input that never comes.
        Builder::new().name("rpc reader".into()).spawn(move || reader.read(input))?;
        wait(&events, &queue);
        Ok(())
    }
}

/// Waits until everything is done.
fn wait(events: &Receiver<Event>, queue: &Queue) {
    /// How long a call that was told to stop may take. One that waits for somebody else's lock does
    /// not hear it; ending it there does no harm, as a restore that is cut off is finished later.
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

/// Answers a call that is not done.
fn refuse(call: Call, error: &WireError) {
    if let Some(id) = &call.id {
        call.reply.give(message::failure(id, error));
    }
}

/// Reads lines and puts calls into the queue. What takes no time is answered on the spot.
struct Reader {
    output: Arc<Output>,
    queue: Arc<Queue>,
    sender: Sender<Event>,
}

/// Whether to go on reading.
#[derive(PartialEq, Eq)]
enum Then {
    ReadOn,
    Finish,
}

impl Reader {
    fn read(self, input: impl Read) {
        let mut lines = Lines::new(input, MAX_LINE_BYTES);
        // Input that cannot be read has ended as far as we are concerned.
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
        // Whatever is wrong with the parameters is said by whoever reads all of them.
        let hints: Hints<'_> = serde_json::from_str(request.params).unwrap_or_default();
        let up_to = if hints.to.is_some() { UpTo::Snapshot } else { UpTo::Now };
        let call = Box::new(Call {
            id: request.id,
            // An unknown method is answered by whoever looks for it.
            access: find(&request.method).map_or(Access::Reads, |method| method.access(up_to)),
            method: request.method,
            params: request.params.to_owned(),
            lane: hints.dir.map(|dir| dir.get().to_owned()).unwrap_or_default(),
            wants_progress: hints.progress,
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

/// The parameters of a method of the server's own; none is as good as empty ones.
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

/// Does one thing after the other.
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
                Work::Absorb { workspace, lane, left } => self.absorb(workspace, lane, left),
            }
        }
    }

    fn answer(&self, call: Call) {
        let outcome = self.watched(&call, || {
            let context = Context { host: self.host.as_ref(), progress: &call.progress };
            let run = || dispatch(&call.method, &call.params, &context);
            // A defect must not take the other calls down with it.
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                Err(WireError::new("internal_error", "the call failed in a way it should not"))
            })
        });
        let Call { id, lane, access, progress, reply, .. } = call;
        // Before the answer: whoever reads it may use the same id again at once.
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
        // Nobody waits for this, and no defect in it takes the calls down.
        drop(catch_unwind(AssertUnwindSafe(|| self.host.rest(&workspace))));
        if borrowing {
            let workspace = Box::new(workspace);
            self.queue.push_quietly(Work::Absorb { workspace, lane, left: u64::MAX });
        }
    }

    /// Copies some of what a store borrows, then lets others have their turn.
    fn absorb(&self, workspace: Box<Workspace>, lane: String, left: u64) {
        /// What is copied in one go: calls on the work tree wait meanwhile.
        const SLICE_BYTES: u64 = 32 << 20;
        let now = catch_unwind(AssertUnwindSafe(|| workspace.absorb(SLICE_BYTES)));
        self.queue.done(Some(&lane), None);
        // What fails or does not get on is left to the next snapshot.
        if let Ok(Ok(now)) = now
            && now > 0
            && now < left
        {
            self.queue.push_quietly(Work::Absorb { workspace, lane, left: now });
        }
    }

    /// Does `work`, and tells how far it has come if that was asked for.
    fn watched<T>(&self, call: &Call, work: impl FnOnce() -> T) -> T {
        let Some(id) = call.id.as_ref().filter(|_| call.wants_progress) else { return work() };
        std::thread::scope(|scope| {
            let (working, finished) = channel::<()>();
            let watcher = move || self.tell(id, &call.progress, &finished);
            // Without a second thread the work is done all the same, only unseen.
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
