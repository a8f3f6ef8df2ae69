//! Methods of the schema, each at its own address.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ctrlz::{Progress, Workspace};
use ctrlz_api::{
    Access, Answer, Context, Hash, Host, Method, Place, UpTo, WireError, dispatch, schema_hash,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::guard::single;
use crate::limits;
use crate::refusal::{Refusal, json};
use crate::roots::Served;
use crate::state::Shared;

/// Precondition of a method over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// None: the method changes no file and removes nothing.
    Nothing,
    /// A plan that the user has seen.
    Plan,
    /// An explicit confirmation, because the removal is permanent.
    Confirmation,
}

/// Returns the precondition of a method.
pub(crate) fn demand(method: &str) -> Demand {
    match method {
        "restore" | "revert" | "recover" | "undo" | "redo" | "apply" | "revert_to" | "unrevert" => {
            Demand::Plan
        }
        "gc" | "release_session" | "purge" => Demand::Confirmation,
        _ => Demand::Nothing,
    }
}

/// Returns whether a method accepts GET, because it changes nothing.
pub(crate) fn is_readable(state: &crate::query::Queries, method: &Method) -> bool {
    match method.access(UpTo::Now) {
        Access::Reads => true,
        // Comparing two recorded snapshots only reads.
        Access::Records => state.takes(method.name, "to"),
        Access::Writes => false,
    }
}

/// Returns whether a response never changes, because it depends only on immutable snapshots.
fn is_immutable(method: &str, params: &Value) -> bool {
    match method {
        "patch" | "changes" | "diff" | "diff_full" | "list_files" => true,
        "show" => !params["path"].is_null(),
        _ => false,
    }
}

/// `GET /v1/projects/{project}/METHOD?…`
pub(crate) async fn get(
    method: &'static Method,
    State(state): State<Arc<Shared>>,
    Path(project): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let served = state.roots.served(&project)?;
    let params = state.queries.read(method.name, request.uri().query().unwrap_or_default())?;
    check_ids(&params)?;
    if method.access(UpTo::Now) == Access::Records && params["to"].is_null() {
        let why = "`to` is missing: comparing with the present state records it, which takes POST";
        return Err(Refusal(WireError::invalid_params(why)));
    }
    let known = single(request.headers(), &header::IF_NONE_MATCH).map(str::to_owned);
    if is_immutable(method.name, &params) {
        // The address and the version of the schema determine the response.
        static TAG: LazyLock<String> = LazyLock::new(|| format!("\"{}\"", schema_hash()));
        if known.as_deref() == Some(&*TAG) {
            still_there(&state, served, params).await?;
            return Ok(not_modified(&TAG));
        }
        let body = answer(&state, served, method, params.to_string()).await?;
        return Ok(tagged(body.get().to_owned(), &TAG));
    }
    let body = answer(&state, served, method, params.to_string()).await?.get().to_owned();
    let tag = content_tag(body.as_bytes());
    if known == Some(tag.clone()) { Ok(not_modified(&tag)) } else { Ok(tagged(body, &tag)) }
}

/// Checks that the snapshots still exist: they may have been purged or dropped since.
async fn still_there(state: &Shared, served: Served, params: Value) -> Result<(), Refusal> {
    let check = move |_: &Progress| {
        let workspace = served.open(&Place::default())?.workspace;
        for key in ["hash", "from", "to"] {
            if let Some(hash) = params[key].as_str() {
                let id = Hash(hash.to_owned()).id().map_err(ctrlz::Error::from)?;
                served.check_snapshot(&workspace, &id)?;
                workspace.check_snapshot(&id)?;
            }
        }
        Ok(())
    };
    state.work.run(Access::Reads, check).await
}

/// Returns an entity tag: the FNV-1a hash of the content. It distinguishes versions of one address,
/// but is not collision-resistant.
fn content_tag(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("\"{:016x}\"", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

fn tagged(body: String, tag: &str) -> Response {
    let mut response = json(StatusCode::OK, body);
    add_tag(&mut response, tag);
    response
}

fn not_modified(tag: &str) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    add_tag(&mut response, tag);
    response
}

fn add_tag(response: &mut Response, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
}

/// `POST /v1/projects/{project}/METHOD`
pub(crate) async fn post(
    method: &'static Method,
    State(state): State<Arc<Shared>>,
    Path(project): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let served = state.roots.served(&project)?;
    let (parts, body) = request.into_parts();
    let body = read_body(body).await?;
    let params = demanded(method.name, &body)?;
    let key = idempotency_key(&parts.headers)?;
    let run = {
        let state = Arc::clone(&state);
        async move { answer(&state, served, method, params).await.map(|body| body.get().to_owned()) }
    };
    let outcome = match key {
        None => run.await,
        Some(key) => {
            let scope = format!("{} {key}", parts.uri.path());
            state.remembered.once(scope, &body, run).await
        }
    };
    Ok(json(StatusCode::OK, outcome?))
}

/// Returns the key under which a client may repeat a request.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    const NAME: header::HeaderName = header::HeaderName::from_static("idempotency-key");
    const MAX_BYTES: usize = 200;
    if !headers.contains_key(&NAME) {
        return Ok(None);
    }
    let key = single(headers, &NAME).filter(|key| !key.is_empty() && key.len() <= MAX_BYTES);
    let wrong = || Refusal::new("invalid_request", "an idempotency key has 1 to 200 characters");
    key.map(|key| Some(key.to_owned())).ok_or_else(wrong)
}

/// Reads the body of a request as text.
pub(crate) async fn read_body(body: Body) -> Result<String, Refusal> {
    let limit = usize::try_from(limits::BODY_BYTES).unwrap_or(usize::MAX);
    let late = |_| Refusal::new("timed_out", "the body took too long");
    let broken = |_| Refusal::new("invalid_request", "the body is cut off or too large");
    let bytes = timeout(limits::BODY_TIME, to_bytes(body, limit)).await.map_err(late)?;
    let text = String::from_utf8(bytes.map_err(broken)?.into());
    text.map_err(|_| Refusal::new("parse_error", "the body is not UTF-8"))
}

/// Checks the precondition and the ids of a method. Returns its parameters.
fn demanded(method: &str, body: &str) -> Result<String, Refusal> {
    let text = if body.trim().is_empty() { "{}" } else { body };
    let mut fields: BTreeMap<String, Box<RawValue>> = parsed(text)?;
    let ids = ["session", "message", "part", "step", "id", "operation", "before", "tool", "who"];
    for (key, value) in fields.iter().filter(|(key, _)| ids.contains(&key.as_str())) {
        if let Ok(text) = serde_json::from_str::<String>(value.get()) {
            check_id(key, &text)?;
        }
    }
    if method == "fork" && fields.get("into").is_some_and(|into| into.get() != "null") {
        let why = "over HTTP a fork brings no files: `into` names a directory that is not served";
        return Err(Refusal::new("forbidden", why));
    }
    match demand(method) {
        Demand::Nothing => (),
        Demand::Plan => {
            if fields.get("plan").is_none_or(|plan| plan.get() == "null") {
                let mut error = WireError::new("plan_required", "`plan` is missing");
                error.hint =
                    Some(format!("POST plan_{method} gives it, and shows what would change"));
                return Err(Refusal(error));
            }
        }
        Demand::Confirmation => {
            let confirm = fields.get("confirm").map(|confirm| confirm.get().to_owned());
            if confirm.as_deref() != Some("true") {
                let why = "what this removes does not come back";
                let mut error = WireError::new("not_confirmed", why);
                error.hint = Some("pass \"confirm\": true".into());
                return Err(Refusal(error));
            }
            if method != "purge" {
                drop(fields.remove("confirm"));
            }
        }
    }
    Ok(serde_json::to_string(&fields).expect("JSON has a JSON form"))
}

fn check_ids(params: &Value) -> Result<(), Refusal> {
    for (key, value) in params.as_object().into_iter().flatten() {
        if let Some(text) = value.as_str().filter(|_| key != "path") {
            check_id(key, text)?;
        }
    }
    Ok(())
}

/// Checks an id. Clients choose their ids, so any text without NUL of bounded length is allowed.
pub(crate) fn check_id(what: &str, id: &str) -> Result<(), Refusal> {
    let is_plain = id.len() <= limits::ID_BYTES && !id.contains('\0');
    if is_plain {
        Ok(())
    } else {
        let why = format!("{what:?} has at most {} bytes, and none is zero", limits::ID_BYTES);
        Err(Refusal(WireError::invalid_params(why)))
    }
}

/// Calls a method and returns its result.
pub(crate) async fn answer(
    state: &Shared,
    served: Served,
    method: &'static Method,
    params: String,
) -> Result<Box<RawValue>, Refusal> {
    let has_to = serde_json::from_str::<Value>(&params).is_ok_and(|params| !params["to"].is_null());
    let access = method.access(if has_to { UpTo::Snapshot } else { UpTo::Now });
    let name = method.name;
    let host = served.clone();
    let call =
        move |progress: &Progress| dispatch(name, &params, &Context { host: &host, progress });
    let Answer { result, worked_on, borrowing } = state.work.run(access, call).await?;
    if let Some(workspace) = worked_on {
        rest(served, workspace, borrowing);
    }
    Ok(result)
}

/// Runs deferred work and copies borrowed blobs in the background, in slices so that other calls
/// can run.
fn rest(host: Served, workspace: Workspace, borrowing: bool) {
    /// Upper bound on the bytes copied at a time: calls on the work tree wait meanwhile.
    const SLICE_BYTES: u64 = 32 << 20;
    let work = move || {
        host.rest(&workspace);
        let mut left = if borrowing { u64::MAX } else { 0 };
        // After an error or without progress, the rest is left to the next snapshot.
        while left > 0
            && let Ok(now) = workspace.absorb(SLICE_BYTES)
            && now < left
        {
            left = now;
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    drop(tokio::task::spawn_blocking(work));
}

/// Parses a body.
pub(crate) fn parsed<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, Refusal> {
    serde_json::from_str(body).map_err(|error| {
        if error.is_data() {
            Refusal(WireError::invalid_params(error.to_string()))
        } else {
            Refusal::new("parse_error", error.to_string())
        }
    })
}
