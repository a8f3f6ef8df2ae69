//! Responses of any length, sent while they are produced. Only a few pieces are in memory at a
//! time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use ctrlz::Progress;
use ctrlz_api::{Context, Params, Stream, Wanted, WireError};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits;
use crate::refusal::Refusal;
use crate::roots::Served;
use crate::state::Shared;

/// Address of a stream.
pub(crate) struct StreamRoute {
    /// Last component of the address.
    pub(crate) name: &'static str,
    pub(crate) stream: Stream,
    /// Content type.
    pub(crate) kind: &'static str,
    pub(crate) about: &'static str,
}

/// All streams, in the order of the documentation.
pub(crate) static STREAMS: [StreamRoute; 7] = [
    StreamRoute {
        name: "diff.patch",
        stream: Stream::Diff,
        kind: "text/x-diff; charset=utf-8",
        about: "What `diff` gives, whole, as text.",
    },
    StreamRoute {
        name: "diff_full.ndjson",
        stream: Stream::DiffFull,
        kind: "application/x-ndjson",
        about: "What `diff_full` gives, whole, one file per line.",
    },
    StreamRoute {
        name: "step_diff.patch",
        stream: Stream::StepDiff,
        kind: "text/x-diff; charset=utf-8",
        about: "What `step_diff` gives, whole, as text.",
    },
    StreamRoute {
        name: "step_diff_full.ndjson",
        stream: Stream::StepDiffFull,
        kind: "application/x-ndjson",
        about: "What `step_diff_full` gives, whole, one file per line.",
    },
    StreamRoute {
        name: "deeds.patch",
        stream: Stream::StepDiff,
        kind: "text/x-diff; charset=utf-8",
        about: "Deprecated alias of `step_diff.patch`.",
    },
    StreamRoute {
        name: "deeds_full.ndjson",
        stream: Stream::StepDiffFull,
        kind: "application/x-ndjson",
        about: "Deprecated alias of `step_diff_full.ndjson`.",
    },
    StreamRoute {
        name: "file",
        stream: Stream::File,
        kind: "application/octet-stream",
        about: "The bytes of a file of a snapshot.",
    },
];

/// `GET /v1/projects/{project}/diff.patch` and the other streams.
pub(crate) async fn get(
    route: &'static StreamRoute,
    State(state): State<Arc<Shared>>,
    Path(project): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let served = state.roots.served(&project)?;
    let query = request.uri().query().unwrap_or_default();
    let params = state.queries.read(route.stream.method(), query)?;
    let pieces = begin(&state, served, route.stream, params).await?;
    let mut response = Response::new(Body::new(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(route.kind));
    // Makes browsers save the content instead of displaying it, because a file may hold anything.
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

/// Starts a stream. An invalid request is refused before anything is sent.
pub(crate) async fn begin(
    state: &Shared,
    served: Served,
    stream: Stream,
    params: Params,
) -> Result<Pieces, Refusal> {
    const AHEAD: usize = 4;
    let place = state.work.stream().await?;
    let (sender, receiver) = channel::<Result<Bytes, Broken>>(AHEAD);
    let (started, start) = oneshot::channel::<Result<(), WireError>>();
    let progress: Arc<Progress> = Arc::default();
    let cancel = Arc::clone(&progress);
    let handle = Handle::current();
    let work = move || {
        let _place = place;
        let mut started = Some(started);
        let context = Context { host: &served, progress: &progress };
        let outcome = stream.give(params, &context, &mut |piece| {
            if let Some(started) = started.take() {
                // Fails only if the client is gone, which sending the next piece detects.
                started.send(Ok(())).ok();
            }
            push(&handle, &sender, Ok(piece.into()))
        });
        match (outcome, started) {
            (Ok(()), _) => (),
            (Err(error), Some(started)) => drop(started.send(Err(error))),
            // Breaks the connection, because otherwise the partial response would look complete.
            (Err(_), None) => drop(push(&handle, &sender, Err(Broken))),
        }
    };
    drop(tokio::task::spawn_blocking(work));
    let defect = |_| Refusal::new("internal_error", "the call failed in a way it should not");
    start.await.map_err(defect)??;
    Ok(Pieces { receiver, cancel: Some(cancel) })
}

fn push(
    handle: &Handle,
    sender: &Sender<Result<Bytes, Broken>>,
    piece: Result<Bytes, Broken>,
) -> Wanted {
    if piece.as_ref().is_ok_and(Bytes::is_empty) {
        return Wanted::More;
    }
    match handle.block_on(timeout(limits::READER_TIME, sender.send(piece))) {
        Ok(Ok(())) => Wanted::More,
        _ => Wanted::NoMore,
    }
}

/// Error of a stream that cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("the stream broke off")]
pub(crate) struct Broken;

/// Pieces of a response.
pub(crate) struct Pieces {
    receiver: Receiver<Result<Bytes, Broken>>,
    /// Progress of the call that produces them, to cancel it.
    cancel: Option<Arc<Progress>>,
}

impl From<Receiver<Result<Bytes, Broken>>> for Pieces {
    fn from(receiver: Receiver<Result<Bytes, Broken>>) -> Pieces {
        Pieces { receiver, cancel: None }
    }
}

impl Pieces {
    /// Returns the next piece.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        self.receiver.recv().await
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if let Some(progress) = &self.cancel {
            progress.cancelled.store(true, Ordering::Relaxed);
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Broken>>> {
        let piece = self.receiver.poll_recv(context);
        piece.map(|piece| piece.map(|piece| piece.map(hyper::body::Frame::data)))
    }
}
