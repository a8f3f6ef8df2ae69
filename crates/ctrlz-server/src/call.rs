//! Methods of the schema, each at its own address.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ctrlz::{Progress, Workspace};
use ctrlz_api::{
    Access, Answer, Context, Hash, Host, Method, Params, Place, Precondition, WireError, dispatch,
    schema_hash,
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::guard::single;
use crate::limits;
use crate::refusal::{Refusal, json};
use crate::roots::Served;
use crate::state::Shared;

/// Returns whether a method accepts GET, because it changes nothing.
pub(crate) fn is_readable(state: &crate::query::Queries, method: &Method) -> bool {
    match method.access {
        Access::Reads => true,
        // Comparing two recorded snapshots only reads.
        Access::Records => state.takes(method.name, "to"),
        Access::Writes => false,
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
    check_ids(&params, |name| name != "path")?;
    if method.access == Access::Records && params.get("to").is_none() {
        let why = "`to` is missing: comparing with the present state records it, which takes POST";
        return Err(Refusal(WireError::invalid_params(why)));
    }
    let known = single(request.headers(), &header::IF_NONE_MATCH).map(str::to_owned);
    if method.is_permanent(&params) {
        // The address and the version of the schema determine the response.
        static TAG: LazyLock<String> = LazyLock::new(|| format!("\"{}\"", schema_hash()));
        if known.as_deref() == Some(&*TAG) {
            still_there(&state, served, params).await?;
            return Ok(not_modified(&TAG));
        }
        return Ok(tagged(answer(&state, served, method, params).await?, &TAG));
    }
    let body = answer(&state, served, method, params).await?;
    let tag = content_tag(body.as_bytes());
    if known == Some(tag.clone()) { Ok(not_modified(&tag)) } else { Ok(tagged(body, &tag)) }
}

/// Checks that the snapshots still exist: they may have been purged or dropped since.
async fn still_there(state: &Shared, served: Served, params: Params) -> Result<(), Refusal> {
    let check = move |_: &Progress| {
        let workspace = served.open(&Place::default())?.workspace;
        for key in ["hash", "from", "to"] {
            if let Some(hash) = params.get(key).and_then(text_of) {
                let id = Hash(hash).id().map_err(ctrlz::Error::from)?;
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
    let params = demanded(&state, method, &body)?;
    let key = idempotency_key(&parts.headers)?;
    let run = {
        let state = Arc::clone(&state);
        async move { answer(&state, served, method, params).await }
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

/// Parses the parameters of a method, and checks its precondition and their ids.
fn demanded(state: &Shared, method: &Method, body: &str) -> Result<Params, Refusal> {
    const IDS: [&str; 9] =
        ["session", "message", "part", "step", "id", "operation", "before", "tool", "who"];
    let mut params: Params = match body.trim() {
        "" => Params::default(),
        "null" => return Err(Refusal(WireError::invalid_params("the body is not an object"))),
        _ => parsed(body)?,
    };
    check_ids(&params, |name| IDS.contains(&name))?;
    if let Some(outside) = method.outside.filter(|outside| params.get(outside).is_some()) {
        let why = format!(
            "over HTTP a {} brings no files: `{outside}` names a directory that is not served",
            method.name
        );
        return Err(Refusal::new("forbidden", why));
    }
    match method.precondition {
        Precondition::Plan if params.get("plan").is_none() => {
            let mut error = WireError::new("plan_required", "`plan` is missing");
            let name = method.name;
            error.hint = Some(format!("POST plan_{name} gives it, and shows what would change"));
            return Err(Refusal(error));
        }
        Precondition::Confirmation if params.get("confirm") != Some("true") => {
            let why = "what this removes does not come back";
            let mut error = WireError::new("not_confirmed", why);
            error.hint = Some("pass \"confirm\": true".into());
            return Err(Refusal(error));
        }
        // Some methods demand the confirmation themselves.
        Precondition::Confirmation if !state.queries.takes(method.name, "confirm") => {
            params.remove("confirm");
        }
        Precondition::Nothing | Precondition::Plan | Precondition::Confirmation => (),
    }
    Ok(params)
}

/// Checks the ids among the parameters.
fn check_ids(params: &Params, is_id: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    for (name, value) in params.iter().filter(|(name, _)| is_id(name)) {
        if let Some(text) = text_of(value) {
            check_id(name, &text)?;
        }
    }
    Ok(())
}

/// Returns the text that a parameter contains, if it is a string.
fn text_of(value: &str) -> Option<String> {
    serde_json::from_str(value).ok()
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

/// Calls a method and returns its result as JSON.
pub(crate) async fn answer(
    state: &Shared,
    served: Served,
    method: &'static Method,
    params: Params,
) -> Result<String, Refusal> {
    let access = method.access_of(&params);
    let host = served.clone();
    let call =
        move |progress: &Progress| dispatch(method, params, &Context { host: &host, progress });
    let Answer { result, worked_on, borrowing } = state.work.run(access, call).await?;
    if let Some(workspace) = worked_on {
        rest(served, workspace, borrowing);
    }
    Ok(Box::<str>::from(result).into())
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
            && let Ok(now) = workspace.copy_borrowed(SLICE_BYTES)
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
