//! Accepts connections, and limits their number, duration and origin.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;
use tower_service::Service;

use crate::limits;
use crate::lobby::{Admission, Lobby};
use crate::state::{Peer, Shared};
use crate::strict::Strict;

/// Delay after a connection could not be accepted, for example because too many files are open.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// State that every connection needs.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) app: Router,
    pub(crate) state: Arc<Shared>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Returns the upper bound on concurrent connections for each kind of listener.
fn places() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let files = files.saturating_sub(limits::OTHER_FILES + limits::UNKNOWN as u64) / 2;
    limits::CONNECTIONS.min(usize::try_from(files).unwrap_or(usize::MAX)).max(8)
}

/// Accepts connections from processes of the same user.
pub(crate) async fn accept_local(listener: UnixListener, service: Serving) {
    let places = Arc::new(Semaphore::new(places()));
    let own = rustix::process::geteuid().as_raw();
    while let Some((place, accepted)) = next(&places, &service, listener.accept()).await {
        match accepted {
            // Connections of other users are closed without a response.
            Ok((stream, _)) => {
                if stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
                    let service = service.clone();
                    tokio::spawn(async move {
                        serve(stream, Peer::Socket, service, Admission::granted()).await;
                        drop(place);
                    });
                }
            }
            Err(_) => sleep(AFTER_FAILURE).await,
        }
    }
}

/// Accepts connections over TCP.
pub(crate) async fn accept_tcp(listener: TcpListener, service: Serving) {
    let lobby = Lobby::new(places());
    let Ok(here) = listener.local_addr() else { return };
    let mut stop = service.stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                // Best effort: without it, responses are only slower.
                stream.set_nodelay(true).ok();
                let admission = lobby.enter();
                tokio::spawn(serve(stream, Peer::Tcp { here }, service.clone(), admission));
            }
            Err(_) => sleep(AFTER_FAILURE).await,
        }
    }
}

/// Waits for a free slot and then for a connection. Returns `None` when the server stops.
async fn next<T>(
    places: &Arc<Semaphore>,
    service: &Serving,
    accept: impl Future<Output = io::Result<T>>,
) -> Option<(OwnedSemaphorePermit, io::Result<T>)> {
    let mut stop = service.stop.clone();
    tokio::select! {
        accepted = async {
            let place = Arc::clone(places).acquire_owned().await.ok()?;
            Some((place, accept.await))
        } => accepted,
        () = stopped(&mut stop) => None,
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    service: Serving,
    admission: Arc<Admission>,
) {
    let Serving { app, state, mut stop } = service;
    let own = Arc::clone(&admission);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        state.answered.fetch_add(1, Ordering::Relaxed);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&own));
        // A router is always ready.
        app.clone().call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIME)
        .max_buf_size(limits::HEAD_BYTES)
        .max_headers(limits::HEADERS)
        .serve_connection(TokioIo::new(Strict::new(stream)), answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // Errors are ignored, because a client may disconnect at any time.
        ended = connection.as_mut() => drop(ended),
        () = admission.refused() => (),
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
    admission.end();
}

/// Waits until the server is stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Fails only if the sender is dropped, which happens when the server has ended.
    drop(stop.wait_for(|stop| *stop).await);
}
