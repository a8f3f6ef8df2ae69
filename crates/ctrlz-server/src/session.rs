//! The three addresses that agents already use: get the changes of a session, revert it to a
//! message, and undo the revert.
//!
//! They plan and act in one call. This is safe, because a revert can be undone, and changes that
//! others made meanwhile are kept.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::Uri;
use axum::response::Response;
use ctrlz_api::{Params, Stream, WireError, WirePath, named};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc::channel;

use crate::call::{answer, check_id, idempotency_key, parsed, read_body};
use crate::refusal::{Refusal, json as json_answer};
use crate::roots::Served;
use crate::state::Shared;
use crate::stream::{self, Broken, Pieces};

/// `GET /session/{id}/diff`
pub(crate) async fn diff(
    State(state): State<Arc<Shared>>,
    Path(session): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let served = serving(&state, &session, &uri).await?;
    let params = params(json!({ "of": { "session": session } }));
    let pieces = stream::begin(&state, served, Stream::StepDiffFull, params).await?;
    Ok(json_answer(axum::http::StatusCode::OK, Body::new(list_of(pieces))))
}

/// Converts lines into one list.
fn list_of(mut lines: Pieces) -> Pieces {
    let (sender, receiver) = channel::<Result<Bytes, Broken>>(4);
    tokio::spawn(async move {
        let mut before = "{\"diffs\":[";
        while let Some(line) = lines.next().await {
            let item = line.and_then(|line| listed(before, &line));
            let broken = item.is_err();
            before = ",";
            if sender.send(item).await.is_err() || broken {
                return;
            }
        }
        let end = if before == "," { "]}" } else { "{\"diffs\":[]}" };
        sender.send(Ok(end.into())).await.ok();
    });
    receiver.into()
}

fn listed(before: &str, line: &[u8]) -> Result<Bytes, Broken> {
    let file: SessionFile<'_> = serde_json::from_slice(line).map_err(|_| Broken)?;
    let text = serde_json::to_string(&file).map_err(|_| Broken)?;
    Ok(format!("{before}{text}").into())
}

/// Reads a path as text, because these clients support no other names.
fn path_text<'de, D: Deserializer<'de>>(path: D) -> Result<String, D::Error> {
    let path = WirePath::deserialize(path)?;
    Ok(String::from_utf8_lossy(path.as_bytes()).into_owned())
}

/// Returns the work tree that has the session. If several do, the query must name one as `project`.
async fn serving(state: &Shared, session: &str, uri: &Uri) -> Result<Served, Refusal> {
    check_id("session", session)?;
    let project = project_of(uri)?;
    let mut found: Vec<(String, Served)> = Vec::new();
    for id in project.map_or_else(|| state.roots.ids(), |id| vec![id]) {
        let served = state.roots.served(&id)?;
        let sessions = call(state, &served, "sessions", json!({})).await?;
        let mut known = sessions["sessions"].as_array().into_iter().flatten();
        if known.any(|known| known["session"] == session) {
            found.push((id, served));
        }
    }
    if found.len() > 1 {
        let ids: Vec<String> = found.into_iter().map(|(id, _)| id).collect();
        let why = format!("session {session:?} is in several projects: {}", ids.join(", "));
        let mut error = WireError::invalid_params(why);
        error.hint = Some("name one of them in the query: ?project=ID".into());
        error.details.id = Some(session.to_owned());
        error.details.projects = ids;
        return Err(Refusal(error));
    }
    let unknown = || {
        let why = format!("no session {session:?} is known");
        let mut error = WireError::new("no_such_session", why);
        error.details.id = Some(session.to_owned());
        Refusal(error)
    };
    found.pop().map(|(_, served)| served).ok_or_else(unknown)
}

/// Returns the project that the query names. The query has no other parameter.
fn project_of(uri: &Uri) -> Result<Option<String>, Refusal> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(None) };
    match query.strip_prefix("project=") {
        Some(id) if !id.contains('&') => Ok(Some(id.to_owned())),
        _ => Err(Refusal(WireError::invalid_params("the query takes one `project` and no more"))),
    }
}

/// Response of `GET /session/{id}/diff`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "written piece by piece; this says what comes out")]
pub(crate) struct SessionDiff {
    /// One entry per file.
    diffs: Vec<SessionFile<'static>>,
}

/// A file that a session changed.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionFile<'a> {
    /// Path relative to the work tree.
    #[serde(deserialize_with = "path_text")]
    #[schemars(with = "String")]
    file: String,
    /// Earlier text; empty if the file did not exist or is binary.
    #[serde(borrow)]
    #[schemars(with = "String")]
    before: &'a RawValue,
    /// Later text, like `before`.
    #[serde(borrow)]
    #[schemars(with = "String")]
    after: &'a RawValue,
    /// Number of lines that only the later text has.
    additions: u64,
    /// Number of lines that only the earlier text has.
    deletions: u64,
}

/// Request body of `POST /session/{id}/revert`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRevert {
    /// First message to revert. Everything that the session did after it is reverted too.
    #[serde(rename = "messageID")]
    message: String,
    /// Part of the message to start from.
    #[serde(rename = "partID")]
    part: Option<String>,
}

/// Response of `POST /session/{id}/revert`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionReverted {
    /// First message that was reverted.
    #[serde(rename = "messageID")]
    message: String,
    /// Part of the message that the revert started from.
    #[serde(rename = "partID")]
    part: Option<String>,
    /// Snapshot before the revert; `null` if no file changed.
    snapshot: Value,
    /// Changes made by the revert, as text that `git apply` accepts.
    diff: Value,
    /// Result for each path, including paths that stay because others changed them.
    #[schemars(with = "ctrlz_api::UndoReport")]
    report: Value,
}

/// Response of `POST /session/{id}/unrevert`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionUnreverted {
    /// Result for each path, including paths that stay because others changed them.
    #[schemars(with = "ctrlz_api::UndoReport")]
    report: Value,
}

/// `POST /session/{id}/revert`
pub(crate) async fn revert(
    State(state): State<Arc<Shared>>,
    Path(session): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let body = read_body(body).await?;
    let asked: SessionRevert = parsed(&body)?;
    check_id("messageID", &asked.message)?;
    check_id("partID", asked.part.as_deref().unwrap_or_default())?;
    let served = serving(&state, &session, &parts.uri).await?;
    let run = {
        let state = Arc::clone(&state);
        async move { reverted(&state, &served, &session, asked).await }
    };
    once(&state, &parts, &body, run).await
}

async fn reverted(
    state: &Shared,
    served: &Served,
    session: &str,
    asked: SessionRevert,
) -> Result<String, Refusal> {
    let SessionRevert { message, part } = asked;
    let params = json!({ "session": session, "message": message, "part": part });
    let report = call(state, served, "revert_to", params).await?;
    let now = call(state, served, "revert_state", json!({ "session": session })).await?;
    let now = &now["reverted"];
    let diff = match (now["before"].as_str(), now["after"].as_str()) {
        (Some(from), Some(to)) => {
            call(state, served, "diff", json!({ "from": from, "to": to })).await?["text"].clone()
        }
        _ => Value::Null,
    };
    let info = SessionReverted { message, part, snapshot: now["before"].clone(), diff, report };
    Ok(serde_json::to_string(&info).expect("plain data has a JSON form"))
}

/// `POST /session/{id}/unrevert`
pub(crate) async fn unrevert(
    State(state): State<Arc<Shared>>,
    Path(session): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    let (parts, body) = request.into_parts();
    let body = read_body(body).await?;
    let Nothing {} = parsed(if body.is_empty() { "{}" } else { &body })?;
    let served = serving(&state, &session, &parts.uri).await?;
    let run = {
        let state = Arc::clone(&state);
        async move {
            let report = call(&state, &served, "unrevert", json!({ "session": session })).await?;
            Ok(serde_json::to_string(&SessionUnreverted { report })
                .expect("plain data has a JSON form"))
        }
    };
    once(&state, &parts, &body, run).await
}

async fn once(
    state: &Shared,
    parts: &axum::http::request::Parts,
    body: &str,
    run: impl Future<Output = Result<String, Refusal>> + Send + 'static,
) -> Result<Response, Refusal> {
    let outcome = match idempotency_key(&parts.headers)? {
        None => run.await,
        Some(key) => state.remembered.once(format!("{} {key}", parts.uri), body, run).await,
    };
    Ok(json_answer(axum::http::StatusCode::OK, outcome?))
}

async fn call(
    state: &Shared,
    served: &Served,
    method: &str,
    given: Value,
) -> Result<Value, Refusal> {
    let result = answer(state, served.clone(), named(method)?, params(given)).await?;
    Ok(serde_json::from_str(&result).unwrap_or_default())
}

fn params(given: Value) -> Params {
    match given {
        Value::Object(fields) => fields.into(),
        _ => Params::default(),
    }
}
