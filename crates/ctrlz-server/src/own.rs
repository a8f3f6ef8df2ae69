//! Table of the addresses that are neither methods of the schema nor files of the page.

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, SchemaGenerator};

use crate::page::{self, Code, LoggedIn, LoginBody};
use crate::roots::{AddProject, Project, Projects};
use crate::routes::{self, ServerInfo};
use crate::session::{self, SessionDiff, SessionRevert, SessionReverted, SessionUnreverted};
use crate::state::Shared;
use crate::{events, guard};

/// An address, for the router and for its documentation.
pub(crate) struct Own {
    /// `GET` or `POST`.
    pub(crate) verb: &'static str,
    pub(crate) path: &'static str,
    pub(crate) about: &'static str,
    /// Schema of the request body.
    pub(crate) takes: Option<Schema>,
    pub(crate) gives: Gives,
    /// Creates the handler.
    pub(crate) serve: fn() -> MethodRouter<Arc<Shared>>,
}

type Schema = fn(&mut SchemaGenerator) -> schemars::Schema;

/// Response of an address.
pub(crate) enum Gives {
    Json(Schema),
    AnyJson,
    Events,
    Nothing,
}

const fn json<T: JsonSchema>() -> Gives {
    Gives::Json(|schemas| schemas.subschema_for::<T>())
}

/// Builds the table. An entry is written like a function: verb, address, handler (request body),
/// response, description.
macro_rules! own {
    ($($verb:ident $path:literal $handler:path $([$body:ty])? => $gives:expr, $about:literal;)*) => {
        /// All of them, in the order of the documentation.
        pub(crate) static OWN: &[Own] = &[$(Own {
            verb: own!(@ $verb),
            path: $path,
            about: $about,
            takes: own!(@ body $($body)?),
            gives: $gives,
            serve: || $verb($handler),
        }),*];
    };
    (@ get) => { "GET" };
    (@ post) => { "POST" };
    (@ body) => { None };
    (@ body $body:ty) => { Some(|schemas| schemas.subschema_for::<$body>()) };
}

own! {
    get "/session/{id}/diff" session::diff => json::<SessionDiff>(),
        "What a session changed in all, unless it is taken back.";
    post "/session/{id}/revert" session::revert [SessionRevert] => json::<SessionReverted>(),
        "Takes a session back to before a message or a part of it. Plans and acts at once.";
    post "/session/{id}/unrevert" session::unrevert => json::<SessionUnreverted>(),
        "Takes the session's revert back. Plans and acts at once.";
    get "/v1/server" routes::server => json::<ServerInfo>(),
        "What the server is.";
    get "/v1/openapi.json" routes::openapi_document => Gives::AnyJson,
        "This document.";
    get "/v1/schema.json" routes::schema_document => Gives::AnyJson,
        "The schema of all methods and types.";
    get "/v1/projects" routes::projects => json::<Projects>(),
        "The work trees that are served.";
    post "/v1/projects" routes::add_project [AddProject] => json::<Project>(),
        "Serves another work tree. Only through the socket.";
    get "/v1/projects/{project}" routes::project => json::<Project>(),
        "One work tree.";
    get "/v1/projects/{project}/events" events::get => Gives::Events,
        "Each operation once it is recorded.";
    post "/v1/codes" page::new_code => json::<Code>(),
        "Makes a code that signs a page in.";
    post "/v1/login" page::login [LoginBody] => json::<LoggedIn>(),
        "Takes a code for a token; needs no token itself.";
    post "/v1/logout" page::logout => Gives::Nothing,
        "Makes the page's token worthless.";
    get "/healthz" guard::healthz => Gives::Nothing,
        "204 and nothing else; needs no token.";
}
