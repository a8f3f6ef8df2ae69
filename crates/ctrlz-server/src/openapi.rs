//! Generates the OpenAPI document and the table of routes from the schema and the router.

use ctrlz_api::{Access, METHODS, Method, Precondition, WireError, find, schema};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::call::is_readable;
use crate::events::Hello;
use crate::limits;
use crate::own::{Gives, OWN, Own};
use crate::query::{Queries, Shape, own_parameters, shape};
use crate::routes::METHOD_PREFIX;
use crate::stream::{STREAMS, StreamRoute};

/// Returns the OpenAPI document.
pub fn openapi() -> Value {
    let schema = schema();
    let mut schemas = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut paths = Map::new();
    for own in OWN {
        let item = paths.entry(own.path).or_insert_with(|| json!({}));
        item[own.verb.to_ascii_lowercase()] = own_operation(own, &mut schemas);
    }
    for route in &STREAMS {
        let operation = stream_operation(&schema, route);
        paths.insert(format!("{METHOD_PREFIX}{}", route.name), json!({ "get": operation }));
    }
    let queries = Queries::new();
    for method in METHODS.iter() {
        let mut item = json!({ "post": post_operation(&schema, method) });
        if is_readable(&queries, method) {
            item["get"] = get_operation(&schema, method);
        }
        paths.insert(format!("{METHOD_PREFIX}{}", method.name), item);
    }
    // Only the documentation refers to these types.
    drop((schemas.subschema_for::<Hello>(), schemas.subschema_for::<WireError>()));
    let mut components = schema["$defs"].as_object().cloned().unwrap_or_default();
    components.insert("HttpOptions".into(), http_options(&schema));
    for (name, definition) in schemas.take_definitions(true) {
        let known = components.insert(name.clone(), definition.clone());
        // Two types with the same name would overwrite each other. A test generates the document.
        debug_assert!(known.is_none_or(|known| known == definition), "two types are called {name}");
    }
    let error = json!({
        "type": "object",
        "properties": { "error": { "$ref": "#/$defs/Error" } },
        "required": ["error"],
    });
    components.insert("Failure".into(), error);
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ctrlz",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "ctrlz over HTTP; docs/http.md has the rules. Generated: cargo run -p ctrlz-server --example openapi",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": components,
        },
    });
    with_references(document)
}

/// Returns the document as it is checked in.
pub fn openapi_text() -> String {
    let mut text = serde_json::to_string_pretty(&openapi()).expect("JSON has a JSON form");
    text.push('\n');
    text
}

/// Rewrites references to where schemas are in an OpenAPI document.
fn with_references(value: Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("#/$defs/") {
            Some(name) => format!("#/components/schemas/{name}").into(),
            None => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(with_references).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key, with_references(value))).collect()
        }
        other => other,
    }
}

fn json_content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn responses(status: &str, content: Option<Value>) -> Value {
    let failure = json!({
        "description": "A failure, with its kind.",
        "content": json_content(&json!({ "$ref": "#/$defs/Failure" })),
    });
    let mut done = json!({ "description": "Done." });
    if let Some(content) = content {
        done["content"] = content;
    }
    json!({ status: done, "4XX": failure, "5XX": failure })
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let parameter = |name: &str| {
        let schema = match name {
            "project" => project_id(),
            _ => json!({ "type": "string", "minLength": 1, "maxLength": limits::ID_BYTES }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    };
    names.map(parameter).collect()
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Sent again with the same key, the request is answered again and done once.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$" },
    })
}

fn project_of_session() -> Value {
    json!({
        "name": "project",
        "in": "query",
        "description": "The project of the session. Needed where several projects have a session with this id.",
        "schema": project_id(),
    })
}

fn project_id() -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" })
}

fn own_operation(own: &Own, schemas: &mut SchemaGenerator) -> Value {
    let (status, content) = match &own.gives {
        Gives::Json(schema) => ("200", Some(json_content(&json!(schema(schemas))))),
        Gives::AnyJson => ("200", Some(json_content(&json!({ "type": "object" })))),
        Gives::Events => {
            ("200", Some(json!({ "text/event-stream": { "schema": { "type": "string" } } })))
        }
        Gives::Nothing => ("204", None),
    };
    let mut parameters = path_parameters(own.path);
    if own.path.starts_with("/session/") {
        parameters.push(project_of_session());
        if own.verb == "POST" {
            parameters.push(idempotency_key());
        }
    }
    let mut operation = json!({
        "summary": own.about,
        "operationId": operation_id(&own.verb.to_ascii_lowercase(), own.path),
        "parameters": parameters,
        "responses": responses(status, content),
    });
    if own.verb == "POST" {
        let empty = json!({ "type": "object", "maxProperties": 0 });
        let schema = own.takes.map_or(empty, |schema| json!(schema(schemas)));
        operation["requestBody"] = json!({ "required": true, "content": json_content(&schema) });
    }
    if matches!(own.path, "/healthz" | "/v1/login") {
        operation["security"] = json!([]);
    }
    operation
}

fn operation_id(verb: &str, path: &str) -> String {
    let name: String =
        path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{verb}_{}", name.trim_matches('_'))
}

fn method_path(name: &str) -> String {
    format!("{METHOD_PREFIX}{name}")
}

fn post_operation(schema: &Value, method: &Method) -> Value {
    let described = &schema["methods"][method.name];
    let place = json!({
        "type": "object",
        "properties": {
            "profile": { "$ref": "#/$defs/Profile" },
            "options": { "$ref": "#/$defs/HttpOptions" },
        },
    });
    let mut parts = vec![place, described["params"]["allOf"][1].clone()];
    match method.precondition {
        Precondition::Nothing => (),
        Precondition::Plan => parts.push(json!({
            "type": "object",
            "properties": { "plan": { "$ref": "#/$defs/Hash" } },
            "required": ["plan"],
        })),
        Precondition::Confirmation => parts.push(json!({
            "type": "object",
            "properties": { "confirm": { "const": true } },
            "required": ["confirm"],
        })),
    }
    let body = json!({ "allOf": parts, "unevaluatedProperties": false });
    let path = method_path(method.name);
    let mut parameters = path_parameters(&path);
    parameters.push(idempotency_key());
    json!({
        "summary": method.about,
        "operationId": format!("post_{}", method.name),
        "parameters": parameters,
        "requestBody": { "required": true, "content": json_content(&body) },
        "responses": responses("200", Some(json_content(&described["result"]))),
    })
}

fn get_operation(schema: &Value, method: &Method) -> Value {
    let described = &schema["methods"][method.name];
    let mut responses = responses("200", Some(json_content(&described["result"])));
    responses["304"] = json!({ "description": "The same as what has the tag of If-None-Match." });
    let mut parameters = path_parameters(&method_path(method.name));
    parameters.extend(query_parameters(schema, method.name, &[]));
    json!({
        "summary": method.about,
        "operationId": format!("get_{}", method.name),
        "parameters": parameters,
        "responses": responses,
    })
}

fn stream_operation(schema: &Value, route: &StreamRoute) -> Value {
    let paging = ["offset", "limit", "max_bytes"];
    let mut parameters = path_parameters(METHOD_PREFIX);
    let method = route.stream.method();
    parameters.extend(query_parameters(schema, method, &paging));
    let kind = route.kind.split(';').next().unwrap_or(route.kind);
    let content = json!({ kind: { "schema": { "type": "string" } } });
    json!({
        "summary": route.about,
        "operationId": format!("stream_{}", route.name.split('.').next().unwrap_or_default()),
        "parameters": parameters,
        "responses": responses("200", Some(content)),
    })
}

/// Returns the parameters of a method as they appear in a query.
fn query_parameters(schema: &Value, method: &str, without: &[&str]) -> Vec<Value> {
    let params = &schema["methods"][method]["params"]["allOf"][1];
    let definition = crate::query::resolved(schema, params);
    let required = definition["required"].as_array().cloned().unwrap_or_default();
    // Without `to` the current state is meant, which GET cannot record.
    let records = find(method).is_some_and(|method| method.access == Access::Records);
    let parameter = |(name, parameter): (&String, &Value)| {
        let shape = shape(schema, parameter);
        let mut described = json!({
            "name": name,
            "in": "query",
            "required": required.contains(&json!(name)) || (records && name == "to"),
            "description": parameter["description"],
        });
        let text = json!({ "type": "string" });
        match shape {
            Shape::Text => described["schema"] = text,
            Shape::Number => {
                described["schema"] =
                    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
            }
            Shape::Truth => described["schema"] = json!({ "type": "boolean" }),
            Shape::Texts => described["schema"] = json!({ "type": "array", "items": text }),
            Shape::Json => {
                let mut schema = parameter.clone();
                if let Some(fields) = schema.as_object_mut() {
                    drop(fields.remove("description"));
                }
                described["content"] = json_content(&schema);
            }
        }
        described
    };
    let own = own_parameters(schema, method).iter();
    own.filter(|(name, _)| !without.contains(&name.as_str())).map(parameter).collect()
}

/// Returns the options that are accepted over HTTP.
fn http_options(schema: &Value) -> Value {
    let mut options = schema["$defs"]["CallOptions"].clone();
    if let Some(properties) = options["properties"].as_object_mut() {
        for name in ["allow_dangerous_root", "ref_prefix", "threads"] {
            drop(properties.remove(name));
        }
    }
    options
}

/// Returns the table of routes, as in the documentation.
pub fn routes_table() -> String {
    let mut table = String::from("| verb | address | what it does |\n|---|---|---|\n");
    for own in OWN {
        table.push_str(&format!("| {} | `{}` | {} |\n", own.verb, own.path, own.about));
    }
    let short = |name: &str| format!("`/v1/projects/{{project}}/{name}`");
    for StreamRoute { name, about, .. } in &STREAMS {
        table.push_str(&format!("| GET | {} | {about} |\n", short(name)));
    }
    let queries = Queries::new();
    for method in METHODS.iter() {
        let verbs = if is_readable(&queries, method) { "GET POST" } else { "POST" };
        let needs = match method.precondition {
            Precondition::Nothing => "",
            Precondition::Plan => " Needs `plan`.",
            Precondition::Confirmation => " Needs `\"confirm\": true`.",
        };
        table.push_str(&format!(
            "| {verbs} | {} | {}{needs} |\n",
            short(method.name),
            method.about
        ));
    }
    table
}
