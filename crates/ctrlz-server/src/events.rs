//! Server-sent events: each operation once it is recorded, and the open steps.
//!
//! One task per work tree, which runs only while there are listeners. It sleeps until inotify
//! reports that one of two files was replaced, which the engine does for every operation and every
//! step.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use ctrlz::{Progress, Signs, TimelineQuery, Workspace};
use ctrlz_api::{Access, Host, LogEntry, OpenSteps, Place, WireError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::refusal::Refusal;
use crate::roots::Served;
use crate::state::Shared;

/// Debounce interval before the log is read.
const DEBOUNCE: Duration = Duration::from_millis(25);
/// Polling interval while there is no log yet.
const NO_LOG_YET: Duration = Duration::from_secs(2);
/// Interval between keep-alive comments.
const ALIVE: Duration = Duration::from_secs(15);
/// Number of missed operations at which a listener has to read the log itself.
const CATCH_UP: usize = 256;
/// Upper bound on the files that an event names.
const FILES: usize = 20;

/// First event that a listener receives.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Hello {
    /// Newest operation; `null` if there is none.
    pub(crate) newest: Option<String>,
    /// Open steps.
    pub(crate) open_steps: OpenSteps,
}

/// One event, serialized once for all listeners.
#[derive(Clone)]
struct Event {
    /// Operation id, if the event is about an operation.
    id: Option<String>,
    /// Whether the event describes a state, so that sending the same state again is redundant.
    is_state: bool,
    text: Bytes,
}

impl Event {
    fn new(name: &str, id: Option<String>, data: &impl Serialize) -> Event {
        let data = serde_json::to_string(data).expect("plain data has a JSON form");
        let line = id.as_ref().map(|id| format!("id: {id}\n")).unwrap_or_default();
        let text = format!("event: {name}\n{line}data: {data}\n\n").into();
        Event { id, is_state: false, text }
    }

    fn open_steps(open: &OpenSteps) -> Event {
        Event { is_state: true, ..Event::new("open_steps", None, open) }
    }

    fn operation(entry: &LogEntry) -> Event {
        Event::new("operation", Some(entry.operation.clone()), entry)
    }
}

/// Watching tasks by work tree.
#[derive(Default)]
pub(crate) struct Events {
    watching: Mutex<HashMap<String, Weak<broadcast::Sender<Event>>>>,
    /// Number of times that a log was read.
    pub(crate) looks: AtomicU64,
}

impl Events {
    /// Subscribes to a work tree, and starts watching it if no task does.
    fn listen(&self, state: &Arc<Shared>, project: &str, served: &Served) -> Listener {
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = watching.get(project).and_then(Weak::upgrade) {
            let receiver = sender.subscribe();
            return Listener { receiver, _alive: sender };
        }
        let (sender, receiver) = broadcast::channel(CATCH_UP);
        let sender = Arc::new(sender);
        let weak = Arc::downgrade(&sender);
        watching.insert(project.to_owned(), weak.clone());
        tokio::spawn(watch(Arc::clone(state), served.clone(), weak));
        Listener { receiver, _alive: sender }
    }
}

/// Subscription that keeps the watching task alive.
struct Listener {
    receiver: broadcast::Receiver<Event>,
    _alive: Arc<broadcast::Sender<Event>>,
}

/// `GET /v1/projects/{project}/events`
pub(crate) async fn get(
    State(state): State<Arc<Shared>>,
    Path(project): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let served = state.roots.served(&project)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    // Subscribes before the log is read, so that no event is missed in between.
    let listener = state.events.listen(&state, &project, &served);
    let beginning = Beginning::read(&state, served, last).await?;
    let (sender, receiver) = channel(16);
    tokio::spawn(forward(listener, beginning, sender));
    let mut response = Response::new(Body::new(Sent(receiver)));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Events that a listener receives at the start.
struct Beginning {
    events: Vec<Event>,
    /// Newest operation that the listener then knows.
    newest: Option<String>,
    open_steps: Bytes,
}

impl Beginning {
    async fn read(
        state: &Shared,
        served: Served,
        last: Option<String>,
    ) -> Result<Beginning, Refusal> {
        let read = move |_: &Progress| {
            let workspace = served.open(&Place::default())?.workspace;
            let newest = newer(&workspace, None, 1, 0)?.pop().map(|entry| entry.operation);
            let hello = Hello { newest: newest.clone(), open_steps: OpenSteps::of(&workspace)? };
            let open_steps = Event::open_steps(&hello.open_steps).text;
            let mut events = vec![Event::new("hello", None, &hello)];
            if let Some(last) = last {
                let missed = newer(&workspace, Some(&last), CATCH_UP, FILES)?;
                if missed.len() == CATCH_UP {
                    events.push(reset());
                } else {
                    events.extend(missed.iter().map(Event::operation));
                }
            }
            let newest = events.last().and_then(|event| event.id.clone()).max(newest);
            Ok(Beginning { events, newest, open_steps })
        };
        state.work.run(Access::Reads, read).await
    }
}

/// Returns the event for a listener that missed too much and has to read the log.
fn reset() -> Event {
    Event::new("reset", None, &serde_json::json!({}))
}

/// Returns the operations after `last`, oldest first; at most the newest `limit` of them.
fn newer(
    workspace: &Workspace,
    last: Option<&str>,
    limit: usize,
    files: usize,
) -> Result<Vec<LogEntry>, WireError> {
    // Ids increase, so usually a few entries are enough.
    const FEW: usize = 8;
    let read = |limit| {
        let query = TimelineQuery { limit, files, ..TimelineQuery::default() };
        workspace.timeline(&query)
    };
    let mut entries = read(limit.min(FEW))?;
    let is_new = |operation: &str| last.is_none_or(|last| operation > last);
    if limit > FEW && entries.len() == FEW && entries.iter().all(|entry| is_new(&entry.operation)) {
        entries = read(limit)?;
    }
    let new = entries.iter().take_while(|entry| is_new(&entry.operation));
    let mut found: Vec<LogEntry> = new.map(LogEntry::from).collect();
    found.reverse();
    Ok(found)
}

async fn forward(mut listener: Listener, beginning: Beginning, sender: Sender<Bytes>) {
    let Beginning { events, mut newest, mut open_steps } = beginning;
    for event in events {
        if sender.send(event.text).await.is_err() {
            return;
        }
    }
    loop {
        let received = tokio::select! {
            received = timeout(ALIVE, listener.receiver.recv()) => received,
            () = sender.closed() => return,
        };
        let text = match received {
            Err(_) => Bytes::from_static(b": alive\n\n"),
            // The listener already has it.
            Ok(Ok(event)) if event.id.is_some() && event.id <= newest => continue,
            Ok(Ok(event)) if event.is_state && event.text == open_steps => continue,
            Ok(Ok(event)) => {
                newest = event.id.or(newest);
                if event.is_state {
                    open_steps = event.text.clone();
                }
                event.text
            }
            Ok(Err(RecvError::Lagged(_))) => reset().text,
            Ok(Err(RecvError::Closed)) => return,
        };
        if sender.send(text).await.is_err() {
            return;
        }
    }
}

/// Sends events until there are no listeners.
async fn watch(state: Arc<Shared>, served: Served, listeners: Weak<broadcast::Sender<Event>>) {
    let mut seen = None;
    while listeners.strong_count() > 0 {
        let signs = find_signs(&state, served.clone()).await;
        let watch = signs.and_then(|signs| Watch::on(&signs, listeners.clone()).ok());
        let Some(mut watch) = watch else {
            seen.get_or_insert_default();
            sleep(NO_LOG_YET).await;
            continue;
        };
        // Read once the watch is in place, because changes in between would be missed.
        loop {
            let (now, found) = look(&state, served.clone(), seen).await;
            seen = now;
            let Some(sender) = listeners.upgrade() else { return };
            for event in found {
                // Fails only if the last listener has just disconnected.
                sender.send(event).ok();
            }
            drop(sender);
            if !watch.changed().await {
                break;
            }
            sleep(DEBOUNCE).await;
        }
        sleep(DEBOUNCE).await;
    }
}

/// State that was sent to listeners.
#[derive(Clone, Default)]
struct Seen {
    newest: Option<String>,
    open_steps: Option<OpenSteps>,
}

async fn find_signs(state: &Shared, served: Served) -> Option<Signs> {
    let read = move |_: &Progress| Ok(served.open(&Place::default())?.workspace.signs()?);
    state.work.run(Access::Reads, read).await.ok().flatten()
}

/// Reads new operations and the open steps. After an error, the next change tries again.
///
/// The first read returns the last few operations, because one of them may have been recorded after
/// a listener read the log. Listeners skip operations that they know.
async fn look(state: &Shared, served: Served, seen: Option<Seen>) -> (Option<Seen>, Vec<Event>) {
    const FIRST: usize = 8;
    state.events.looks.fetch_add(1, Ordering::Relaxed);
    let before = seen.clone();
    let read = move |_: &Progress| {
        let workspace = served.open(&Place::default())?.workspace;
        let limit = if seen.is_some() { CATCH_UP } else { FIRST };
        let seen = seen.unwrap_or_default();
        let entries = newer(&workspace, seen.newest.as_deref(), limit, FILES)?;
        let open = OpenSteps::of(&workspace)?;
        let mut events: Vec<Event> = if entries.len() == CATCH_UP {
            vec![reset()]
        } else {
            entries.iter().map(Event::operation).collect()
        };
        if seen.open_steps.as_ref() != Some(&open) {
            events.push(Event::open_steps(&open));
        }
        let newest = entries.last().map(|entry| entry.operation.clone()).or(seen.newest);
        Ok((Some(Seen { newest, open_steps: Some(open) }), events))
    };
    state.work.run(Access::Reads, read).await.unwrap_or((before, Vec::new()))
}

/// Reports when one of two files is replaced, from a thread that blocks until then.
struct Watch {
    changes: Receiver<()>,
}

impl Watch {
    fn on(signs: &Signs, listeners: Weak<broadcast::Sender<Event>>) -> io::Result<Watch> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        // Watches the directories, because the files are replaced rather than written.
        let flags = WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for path in [&signs.operations, &signs.open_steps] {
            inotify::add_watch(&queue, path.parent().unwrap_or(path), flags)?;
        }
        let (sender, changes) = channel(1);
        let wait = move || while tell(&queue, &listeners, &sender) {};
        std::thread::Builder::new().name("events".into()).spawn(wait)?;
        Ok(Watch { changes })
    }

    /// Waits for a change. Returns `false` when there is nothing left to wait for.
    async fn changed(&mut self) -> bool {
        self.changes.recv().await.is_some()
    }
}

/// Blocks until a file changes and reports it. Returns `false` when the thread should end.
fn tell(queue: &OwnedFd, listeners: &Weak<broadcast::Sender<Event>>, sender: &Sender<()>) -> bool {
    const LOOK_UP: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
    let mut waiting = [PollFd::new(queue, PollFlags::IN)];
    let polled = poll(&mut waiting, Some(&LOOK_UP));
    if listeners.strong_count() == 0 || polled.is_err_and(|error| error != Errno::INTR) {
        return false;
    }
    match drain(queue) {
        Drained::Nothing => !sender.is_closed(),
        // A pending notification also covers this change.
        Drained::Something => !matches!(sender.try_send(()), Err(TrySendError::Closed(()))),
        Drained::Gone => false,
    }
}

/// Reads all pending inotify events.
fn drain(queue: &OwnedFd) -> Drained {
    const GONE: ReadFlags = ReadFlags::DELETE_SELF
        .union(ReadFlags::MOVE_SELF)
        .union(ReadFlags::IGNORED)
        .union(ReadFlags::UNMOUNT);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(queue, &mut buffer);
    let mut drained = Drained::Nothing;
    while let Ok(notice) = reader.next() {
        if notice.events().intersects(GONE) {
            return Drained::Gone;
        }
        let name = notice.file_name().map(std::ffi::CStr::to_bytes);
        let is_sign = matches!(name, Some(b"log" | b"steps"));
        if is_sign || notice.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            drained = Drained::Something;
        }
    }
    drained
}

/// Result of reading inotify events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    Nothing,
    Something,
    /// A directory is gone, so no more events will arrive.
    Gone,
}

/// A body that is received from a channel.
struct Sent(Receiver<Bytes>);

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let piece = self.0.poll_recv(context);
        piece.map(|piece| piece.map(|piece| Ok(hyper::body::Frame::data(piece))))
    }
}
