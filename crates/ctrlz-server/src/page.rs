//! The web page: files embedded in the program, and the response to a browser that is not signed
//! in.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::read_body;
use crate::guard::{COOKIE, bearer, single};
use crate::refusal::{Refusal, json_of};
use crate::secret::Secret;
use crate::state::Shared;

/// All files of the page, by name.
const ASSETS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Content security policy of the page: it may load its own files and send requests to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; worker-src 'self'; frame-ancestors 'none'; \
    base-uri 'none'; form-action 'none'";

/// Returns whether an address is one of the page's files.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/" || file(path).is_some()
}

/// Returns the addresses of the page.
pub(crate) fn addresses() -> impl Iterator<Item = String> {
    ASSETS.iter().map(|(name, _)| format!("/{name}")).chain(["/".into()])
}

fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    let name = path.strip_prefix('/')?;
    let name = if name.is_empty() { "index.html" } else { name };
    ASSETS.iter().find(|(known, _)| *known == name).copied()
}

/// Returns a file of the page.
pub(crate) async fn get(uri: Uri) -> Response {
    let Some((name, bytes)) = file(uri.path()) else {
        return crate::guard::no_such_route().await;
    };
    let mut response = Response::new(Body::from(Bytes::from_static(bytes)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("json" | "webmanifest") => "application/json",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Returns the response to a browser that is not signed in: 401, with a script that uses the code
/// that `ctrlz ui` puts after the `#`.
pub(crate) fn sign_in() -> Response {
    let Ok(nonce) = Secret::new() else {
        return Refusal::new("internal_error", "the kernel gives no random bytes").into_response();
    };
    let nonce = nonce.reveal();
    let html = include_str!("sign_in.html").replace("NONCE", nonce);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    );
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Request body of `POST /v1/login`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginBody {
    /// Code that `ctrlz ui` made.
    pub(crate) code: String,
}

/// Response of `POST /v1/login`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoggedIn {
    /// Token for the `Authorization: Bearer` header of every request.
    pub(crate) token: String,
}

/// `POST /v1/login`: exchanges a code for a token, and for the cookie that grants access to the
/// page's files.
pub(crate) async fn login(
    State(state): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let body = read_body(request.into_body()).await?;
    let wrong = || Refusal::new("unauthorized", "the code is wrong, too old, or used");
    let LoginBody { code } = serde_json::from_str(&body).map_err(|_| wrong())?;
    let page = state.entry.sign_in(&code).map_err(no_random)?;
    let page = page.ok_or_else(wrong)?;
    let mut response = json_of(&LoggedIn { token: page.token.reveal().to_owned() });
    let cookie = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict", page.cookie.reveal());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `POST /v1/logout`: invalidates the page's token.
pub(crate) async fn logout(State(state): State<Arc<Shared>>, request: Request) -> StatusCode {
    let token = single(request.headers(), &header::AUTHORIZATION).and_then(bearer);
    state.entry.sign_out(token.unwrap_or_default().as_bytes());
    StatusCode::NO_CONTENT
}

/// A code that signs in a page.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Code {
    /// The code, which is valid once and for two minutes.
    pub(crate) code: String,
    /// The page's address without the code; `null` if the server listens on no port.
    pub(crate) url: Option<String>,
}

/// `POST /v1/codes`: makes a code, for `ctrlz ui` if a server is already running.
pub(crate) async fn new_code(State(state): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let code = state.entry.new_code().map_err(no_random)?;
    Ok(json_of(&Code { code: code.reveal().to_owned(), url: state.url.get().cloned() }))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn no_random(error: std::io::Error) -> Refusal {
    Refusal::new("internal_error", format!("the kernel gives no random bytes: {error}"))
}
