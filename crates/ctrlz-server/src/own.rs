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

fn schema_of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> schemars::Schema {
    schemas.subschema_for::<T>()
}

/// All of them, in the order of the documentation.
pub(crate) static OWN: [Own; 14] = [
    Own {
        verb: "GET",
        path: "/session/{id}/diff",
        about: "What a session changed in all, unless it is taken back.",
        takes: None,
        gives: Gives::Json(schema_of::<SessionDiff>),
        serve: || get(session::diff),
    },
    Own {
        verb: "POST",
        path: "/session/{id}/revert",
        about: "Takes a session back to before a message or a part of it. Plans and acts at once.",
        takes: Some(schema_of::<SessionRevert>),
        gives: Gives::Json(schema_of::<SessionReverted>),
        serve: || post(session::revert),
    },
    Own {
        verb: "POST",
        path: "/session/{id}/unrevert",
        about: "Takes the session's revert back. Plans and acts at once.",
        takes: None,
        gives: Gives::Json(schema_of::<SessionUnreverted>),
        serve: || post(session::unrevert),
    },
    Own {
        verb: "GET",
        path: "/v1/server",
        about: "What the server is.",
        takes: None,
        gives: Gives::Json(schema_of::<ServerInfo>),
        serve: || get(routes::server),
    },
    Own {
        verb: "GET",
        path: "/v1/openapi.json",
        about: "This document.",
        takes: None,
        gives: Gives::AnyJson,
        serve: || get(routes::openapi_document),
    },
    Own {
        verb: "GET",
        path: "/v1/schema.json",
        about: "The schema of all methods and types.",
        takes: None,
        gives: Gives::AnyJson,
        serve: || get(routes::schema_document),
    },
    Own {
        verb: "GET",
        path: "/v1/projects",
        about: "The work trees that are served.",
        takes: None,
        gives: Gives::Json(schema_of::<Projects>),
        serve: || get(routes::projects),
    },
    Own {
        verb: "POST",
        path: "/v1/projects",
        about: "Serves another work tree. Only through the socket.",
        takes: Some(schema_of::<AddProject>),
        gives: Gives::Json(schema_of::<Project>),
        serve: || post(routes::add_project),
    },
    Own {
        verb: "GET",
        path: "/v1/projects/{project}",
        about: "One work tree.",
        takes: None,
        gives: Gives::Json(schema_of::<Project>),
        serve: || get(routes::project),
    },
    Own {
        verb: "GET",
        path: "/v1/projects/{project}/events",
        about: "Each operation once it is recorded.",
        takes: None,
        gives: Gives::Events,
        serve: || get(events::get),
    },
    Own {
        verb: "POST",
        path: "/v1/codes",
        about: "Makes a code that signs a page in.",
        takes: None,
        gives: Gives::Json(schema_of::<Code>),
        serve: || post(page::new_code),
    },
    Own {
        verb: "POST",
        path: "/v1/login",
        about: "Takes a code for a token; needs no token itself.",
        takes: Some(schema_of::<LoginBody>),
        gives: Gives::Json(schema_of::<LoggedIn>),
        serve: || post(page::login),
    },
    Own {
        verb: "POST",
        path: "/v1/logout",
        about: "Makes the page's token worthless.",
        takes: None,
        gives: Gives::Nothing,
        serve: || post(page::logout),
    },
    Own {
        verb: "GET",
        path: "/healthz",
        about: "204 and nothing else; needs no token.",
        takes: None,
        gives: Gives::Nothing,
        serve: || get(guard::healthz),
    },
];
