//! Errors as HTTP responses: a status code, and the common JSON form of an error as the body.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ctrlz_api::{Fault, WireError};
use serde::Serialize;

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) WireError);

impl Refusal {
    pub(crate) fn new(kind: &'static str, why: impl Into<String>) -> Refusal {
        Refusal(WireError::new(kind, why))
    }

    pub(crate) fn status(&self) -> StatusCode {
        status(self.0.kind, self.0.fault)
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Refusal {
        Refusal(error)
    }
}

/// Returns the status of a kind of error: 4xx if the client can do something about it.
pub(crate) fn status(kind: &str, fault: Fault) -> StatusCode {
    match kind {
        "unauthorized" => return StatusCode::UNAUTHORIZED,
        "forbidden" => return StatusCode::FORBIDDEN,
        "no_such_route" | "method_not_found" => return StatusCode::NOT_FOUND,
        "wrong_verb" => return StatusCode::METHOD_NOT_ALLOWED,
        "not_json" => return StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "too_large" => return StatusCode::PAYLOAD_TOO_LARGE,
        "plan_required" | "not_confirmed" => return StatusCode::PRECONDITION_REQUIRED,
        "overloaded" => return StatusCode::TOO_MANY_REQUESTS,
        "timed_out" | "cancelled" => return StatusCode::SERVICE_UNAVAILABLE,
        "purged" => return StatusCode::GONE,
        "not_a_hash" | "not_a_tree_path" | "too_long" => return StatusCode::BAD_REQUEST,
        "binary" | "key_reused" | "not_a_snapshot" | "configuration" => {
            return StatusCode::UNPROCESSABLE_ENTITY;
        }
        "no_space" => return StatusCode::INSUFFICIENT_STORAGE,
        _ => (),
    }
    match fault {
        Fault::Protocol => StatusCode::BAD_REQUEST,
        Fault::Caller => StatusCode::NOT_FOUND,
        Fault::Conflict | Fault::Disabled => StatusCode::CONFLICT,
        Fault::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        Fault::Machine => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a WireError,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&ErrorBody { error: &self.0 })
            .expect("plain data has a JSON form");
        let mut response = json(self.status(), body);
        if matches!(self.0.kind, "overloaded" | "timed_out" | "busy") {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Returns a response whose body is already JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns a response with the value as JSON.
pub(crate) fn json_of(value: &impl Serialize) -> Response {
    let body = serde_json::to_string(value).expect("plain data has a JSON form");
    json(StatusCode::OK, body)
}
