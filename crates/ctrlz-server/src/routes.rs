//! All addresses. The router and the tests of its guard are made from one list.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Path, Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use ctrlz::Progress;
use ctrlz_api::{Access, METHODS, Method, PROTOCOL, schema_hash, schema_text};
use schemars::JsonSchema;
use serde::Serialize;

use crate::own::OWN;
use crate::refusal::{Refusal, json, json_of};
use crate::roots::AddProject;
use crate::state::{Peer, Shared};
use crate::stream::{self, STREAMS};
use crate::{call, guard, openapi, page};

/// Information about the server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ServerInfo {
    /// Always `ctrlz`.
    pub(crate) name: &'static str,
    /// The version of ctrlz.
    pub(crate) version: &'static str,
    /// The version of the protocol.
    pub(crate) protocol: u32,
    /// Hash of the schema that the server follows.
    pub(crate) schema_hash: String,
    /// Process id of the server.
    pub(crate) pid: u32,
    /// Number of requests answered since the server started.
    pub(crate) answered: u64,
    /// Number of times that a log was read for listeners.
    pub(crate) looks: u64,
}

/// One verb at one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// `GET` or `POST`.
    pub verb: &'static str,
    /// The address; parts in braces are placeholders.
    pub path: String,
}

/// Prefix of the methods of a work tree.
pub(crate) const METHOD_PREFIX: &str = "/v1/projects/{project}/";

/// Returns all routes, in the order of the documentation.
pub fn routes() -> Vec<Route> {
    let queries = crate::query::Queries::new();
    let route = |verb, path: &str| Route { verb, path: path.into() };
    let mut routes: Vec<Route> = Vec::new();
    for own in OWN {
        routes.push(route(own.verb, own.path));
    }
    for stream in &STREAMS {
        routes.push(route("GET", &format!("{METHOD_PREFIX}{}", stream.name)));
    }
    for method in METHODS.iter() {
        let path = format!("{METHOD_PREFIX}{}", method.name);
        if call::is_readable(&queries, method) {
            routes.push(route("GET", &path));
        }
        routes.push(route("POST", &path));
    }
    routes.extend(page::addresses().map(|path| route("GET", &path)));
    routes
}

/// Returns the router of the whole server, without its sockets.
pub(crate) fn app(state: &Arc<Shared>) -> Router {
    let mut router = Router::new();
    for own in OWN {
        router = router.route(own.path, (own.serve)());
    }
    for stream in &STREAMS {
        let handler = move |state, project, request| stream::get(stream, state, project, request);
        router = router.route(&format!("{METHOD_PREFIX}{}", stream.name), get(handler));
    }
    for method in METHODS.iter() {
        let path = format!("{METHOD_PREFIX}{}", method.name);
        router = router.route(&path, method_routes(state, method));
    }
    for path in page::addresses() {
        router = router.route(&path, get(page::get));
    }
    router
        .fallback(guard::no_such_route)
        .method_not_allowed_fallback(guard::wrong_verb)
        // Outermost, so that it covers all routes, including future ones.
        .layer(from_fn_with_state(Arc::clone(state), guard::watch))
        .with_state(Arc::clone(state))
}

fn method_routes(state: &Shared, method: &'static Method) -> MethodRouter<Arc<Shared>> {
    let posted = post(move |state, project, request| call::post(method, state, project, request));
    if call::is_readable(&state.queries, method) {
        posted.get(move |state, project, request| call::get(method, state, project, request))
    } else {
        posted
    }
}

fn text(json_text: String) -> Response {
    json(axum::http::StatusCode::OK, json_text)
}

pub(crate) async fn openapi_document() -> Response {
    text(openapi::openapi_text())
}

pub(crate) async fn schema_document() -> Response {
    text(schema_text())
}

pub(crate) async fn server(State(state): State<Arc<Shared>>) -> Response {
    json_of(&ServerInfo {
        name: "ctrlz",
        version: env!("CARGO_PKG_VERSION"),
        protocol: PROTOCOL,
        schema_hash: schema_hash(),
        pid: std::process::id(),
        answered: state.answered.load(Ordering::Relaxed),
        looks: state.events.looks.load(Ordering::Relaxed),
    })
}

pub(crate) async fn projects(State(state): State<Arc<Shared>>) -> Response {
    json_of(&state.roots.list())
}

/// `POST /v1/projects`: only processes of this user may choose the directories to serve.
pub(crate) async fn add_project(
    State(state): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    if peer != Peer::Socket {
        return Err(Refusal::new("forbidden", "work trees are added through the socket only"));
    }
    let body = call::read_body(request.into_body()).await?;
    let add: AddProject = call::parsed(&body)?;
    let adding = Arc::clone(&state);
    let added = move |_: &Progress| adding.roots.add(add.path.as_path());
    Ok(json_of(&state.work.run(Access::Reads, added).await?))
}

pub(crate) async fn project(
    State(state): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    Ok(json_of(&state.roots.describe(&id)?))
}
