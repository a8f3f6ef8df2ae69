//! Outermost layer, which every request to any route has to pass.
//!
//! It checks in this order: the destination of the request (`Host`), its origin (`Origin`), its
//! sender (the token), and only then its form (verb, address, type and size of the body).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::entry::Pass;
use crate::limits;
use crate::lobby::Admission;
use crate::page;
use crate::refusal::Refusal;
use crate::state::{Peer, Shared};

/// Name of the cookie.
pub(crate) const COOKIE: &str = "ctrlz_page";

/// Credentials that an address requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// None: the response reveals nothing.
    Open,
    /// A code, which the route itself checks.
    SignIn,
    /// A signed-in page.
    Page,
    /// A token, of a program or a page.
    Locked,
}

impl Door {
    /// Returns the requirement of an address. Unknown addresses are locked.
    pub(crate) fn of(path: &str) -> Door {
        match path {
            "/healthz" => Door::Open,
            "/v1/login" => Door::SignIn,
            path if page::is_page(path) => Door::Page,
            _ => Door::Locked,
        }
    }
}

/// Passes a request on, or answers it with an error.
pub(crate) async fn watch(
    State(state): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let admission: Option<Arc<Admission>> = request.extensions().get().cloned();
    let door = Door::of(request.uri().path());
    let (mut response, is_sound) = match check(&state, &request, admission.as_deref()) {
        Ok(()) => (next.run(request).await, true),
        // After a malformed request, further bytes cannot be trusted to be separate requests.
        Err(refused) => {
            let is_sound = refused.status() != StatusCode::BAD_REQUEST;
            (*refused, is_sound)
        }
    };
    let is_signed_in = door == Door::SignIn && response.status().is_success();
    let is_known = admission
        .is_some_and(|admission| admission.is_granted() || (is_signed_in && admission.grant()));
    // The first request of a connection has to authenticate.
    if !is_sound || !is_known {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    add_headers(response.headers_mut());
    response
}

fn check(
    state: &Shared,
    request: &Request,
    admission: Option<&Admission>,
) -> Result<(), Box<Response>> {
    let refuse = |refusal: Refusal| Box::new(refusal.into_response());
    check_head(request).map_err(|status| Box::new(status.into_response()))?;
    check_target(request).map_err(refuse)?;
    check_origin(request).map_err(refuse)?;
    check_pass(state, request)?;
    let is_open = matches!(Door::of(request.uri().path()), Door::Open | Door::SignIn);
    if !is_open && !admission.is_some_and(Admission::grant) {
        return Err(refuse(Refusal::new("overloaded", "too many connections")));
    }
    check_form(request).map_err(refuse)
}

/// Enforces the limit on the head, because hyper sometimes accepts a longer one.
fn check_head(request: &Request) -> Result<(), StatusCode> {
    let line = request.uri().to_string().len() + request.method().as_str().len() + 12;
    let headers = request.headers().iter();
    let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if line + headers <= limits::HEAD_BYTES {
        Ok(())
    } else {
        Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    }
}

fn peer(request: &Request) -> Peer {
    // Without a peer, all checks fail.
    request.extensions().get().copied().unwrap_or(Peer::Nobody)
}

/// Checks that the request names this host. This prevents DNS rebinding: a page of another site
/// whose name resolves to this address still sends its own name.
fn check_target(request: &Request) -> Result<(), Refusal> {
    let refuse = |why: &str| Refusal::new("forbidden", why);
    let headers = request.headers();
    let host = single(headers, &header::HOST).ok_or_else(|| refuse("there is not one Host"))?;
    let hosts = peer(request).hosts();
    let is_ours = |host: &str| hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host));
    let authority = request.uri().authority().map(|authority| authority.as_str());
    if !is_ours(host) || authority.is_some_and(|authority| !is_ours(authority)) {
        return Err(refuse("this is not the host that was asked for"));
    }
    let is_forwarded = |name: &HeaderName| {
        name.as_str() == "forwarded" || name.as_str().starts_with("x-forwarded")
    };
    if headers.keys().any(is_forwarded) {
        Err(refuse("requests are not taken from others"))
    } else {
        Ok(())
    }
}

/// Refuses browser requests that are not from our own page.
fn check_origin(request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let refuse = || Err(Refusal::new("forbidden", "requests of other pages are refused"));
    if headers.contains_key(header::ORIGIN) {
        let host = single(headers, &header::HOST).unwrap_or_default();
        let own = format!("http://{host}");
        if single(headers, &header::ORIGIN).is_none_or(|origin| !origin.eq_ignore_ascii_case(&own))
        {
            return refuse();
        }
    }
    // Browsers send each header once. A duplicate is ambiguous, so it is refused.
    let fetch = |name: &'static str| {
        let value = single(headers, &HeaderName::from_static(name));
        headers.contains_key(name).then(|| value.unwrap_or("?"))
    };
    match fetch("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        // A link to the page may be followed from any site, because it reveals nothing without
        // credentials. `ctrlz ui` opens the page this way.
        Some(_)
            if request.uri().path() == "/"
                && request.method() == Method::GET
                && fetch("sec-fetch-mode") == Some("navigate")
                && fetch("sec-fetch-dest") == Some("document") =>
        {
            Ok(())
        }
        Some(_) => refuse(),
    }
}

fn check_pass(state: &Shared, request: &Request) -> Result<(), Box<Response>> {
    let door = Door::of(request.uri().path());
    let pass = match peer(request) {
        Peer::Socket => Pass::Everything,
        Peer::Tcp { .. } => pass(state, request.headers()),
        Peer::Nobody => Pass::None,
    };
    match (door, pass) {
        (Door::Open | Door::SignIn, _) => return Ok(()),
        (Door::Page | Door::Locked, Pass::Everything) | (Door::Page, Pass::Page) => return Ok(()),
        (Door::Page, Pass::None) | (Door::Locked, Pass::Page | Pass::None) => (),
    }
    let refused = if door == Door::Page && request.method() == Method::GET {
        page::sign_in()
    } else {
        let mut error = Refusal::new("unauthorized", "a token is needed");
        error.0.hint = Some("it is in the token file of `ctrlz serve`, or run `ctrlz ui`".into());
        error.into_response()
    };
    Err(Box::new(refused))
}

fn pass(state: &Shared, headers: &HeaderMap) -> Pass {
    let bearer = match headers.get_all(header::AUTHORIZATION).iter().count() {
        0 => None,
        // A duplicate header is ambiguous, so it counts as a wrong token.
        _ => Some(single(headers, &header::AUTHORIZATION).and_then(bearer).unwrap_or_default()),
    };
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = cookies
        .flat_map(|line| line.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    state.entry.pass(bearer.map(str::as_bytes), cookie.map(str::as_bytes))
}

/// Returns the token of an `Authorization` header.
pub(crate) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Returns the value of a header that occurs exactly once.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(())?;
    value.to_str().ok()
}

/// Checks the form of a request.
fn check_form(request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let invalid = |why: &str| Err(Refusal::new("invalid_request", why));
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return invalid("a body has a Content-Length and no Transfer-Encoding");
    }
    if headers.contains_key(header::UPGRADE) {
        return invalid("there is no other protocol");
    }
    if !is_plain(request.uri().path()) {
        return invalid("the address is not plain");
    }
    let length = if headers.contains_key(header::CONTENT_LENGTH) {
        match single(headers, &header::CONTENT_LENGTH).map(str::parse::<u64>) {
            Some(Ok(length)) => length,
            _ => return invalid("the Content-Length is no number"),
        }
    } else {
        0
    };
    let most = match Door::of(request.uri().path()) {
        Door::Open | Door::SignIn => limits::UNKNOWN_BODY_BYTES,
        Door::Page | Door::Locked => limits::BODY_BYTES,
    };
    if length > most {
        return Err(Refusal::new("too_large", format!("a body has at most {most} bytes")));
    }
    if *request.method() != Method::POST {
        return if length > 0 { invalid("only POST has a body") } else { Ok(()) };
    }
    if is_json(headers) {
        Ok(())
    } else {
        Err(Refusal::new("not_json", "a body is application/json, and not encoded"))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = single(headers, &header::CONTENT_TYPE).unwrap_or_default();
    let (kind, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let parameters = parameters.trim();
    kind.trim().eq_ignore_ascii_case("application/json")
        && (parameters.is_empty() || parameters.eq_ignore_ascii_case("charset=utf-8"))
        && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Returns whether an address is unambiguous: it has no `..`, and no escape that becomes a
/// separator or the end of a text only when it is decoded.
fn is_plain(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let hidden = ["%00", "%25", "%2e", "%2f", "%5c", "\\", "//"];
    !hidden.iter().any(|part| lower.contains(part))
        && !path.split('/').any(|part| part == "." || part == "..")
}

/// Adds security headers, except those that the route has already set.
fn add_headers(headers: &mut HeaderMap) {
    const NOTHING: &str =
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    let always = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, NOTHING),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in always {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Answers requests that match no route.
pub(crate) async fn no_such_route() -> Response {
    Refusal::new("no_such_route", "there is nothing at this address").into_response()
}

/// Answers requests with a verb that the route does not accept.
pub(crate) async fn wrong_verb() -> Response {
    Refusal::new("wrong_verb", "the address does not take this verb").into_response()
}

/// Reports only that the server is running.
pub(crate) async fn healthz() -> StatusCode {
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_traversal_or_encoded_separators_are_not_plain() {
        for path in ["/", "/v1/projects/0123/log", "/session/ses_1.2-x/diff", "/a%20b"] {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "/..",
            "/a/../b",
            "/./a",
            "/%2e%2e%2fetc",
            "/a%2Fb",
            "/a%5Cb",
            "/a\\b",
            "/a%00",
            "/%252e%252e/",
            "//etc",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn unknown_paths_are_locked() {
        for path in ["/v1", "/v1/server", "/v1/nothing", "/session/x/diff", "/metrics", "/V1/login"]
        {
            assert_eq!(Door::of(path), Door::Locked, "{path}");
        }
        assert_eq!(Door::of("/"), Door::Page);
    }
}
