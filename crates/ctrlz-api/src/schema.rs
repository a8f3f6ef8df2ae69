//! The JSON schema of the interface, generated from its types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::care::Doctor;
use crate::error::{KINDS, WireError, code};
use crate::exchange::{Adopted, Exported, Imported, Installation, Pulled, Pushed, Relinked};
use crate::method::{Access, METHODS, Method};
use crate::place::Place;
use crate::server::{
    CancelParams, InitializeParams, Initialized, PROTOCOL, ProgressParams, ShutDown, ShutdownParams,
};
use crate::snapshot::Disabled;
use crate::status::Watcher;

/// A value that the schema describes. Interfaces print no other JSON.
pub trait Described: serde::Serialize + JsonSchema {}

impl<T: serde::Serialize + JsonSchema> Described for T {}

/// Returns the whole schema: methods, notifications, results of commands that no method returns,
/// errors, and shared types.
pub fn schema() -> Value {
    // Parameters and results need separate generators: in a result, every field that is always
    // written is required.
    let mut params = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut results = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut methods = server_methods(&mut params, &mut results);
    for method in METHODS.iter() {
        methods.insert(method.name.into(), method_schema(method, &mut params, &mut results));
    }
    let notifications = json!({
        "cancel": {
            "description": "To the server: stops a call that waits or runs.",
            "params": params.subschema_for::<CancelParams>(),
        },
        "progress": {
            "description": "To the client: how far a call with `\"progress\": true` has come.",
            "params": results.subschema_for::<ProgressParams>(),
        },
    });
    let commands = json!({
        "adopt": results.subschema_for::<Adopted>(),
        "doctor": results.subschema_for::<Doctor>(),
        "export": results.subschema_for::<Exported>(),
        "import": results.subschema_for::<Imported>(),
        "install": results.subschema_for::<Installation>(),
        "pull": results.subschema_for::<Pulled>(),
        "push": results.subschema_for::<Pushed>(),
        "relink": results.subschema_for::<Relinked>(),
        "uninstall": results.subschema_for::<Installation>(),
        "watch": results.subschema_for::<Watcher>(),
    });
    let error = results.subschema_for::<WireError>();
    let mut definitions = params.take_definitions(true);
    definitions.extend(results.take_definitions(true));
    open_parts(&mut definitions, &methods);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ctrlz",
        "description": "What `ctrlz rpc` takes and gives. The same types are printed by the command line with --json. Generated: cargo run -p ctrlz-api --example schema",
        "protocol": PROTOCOL,
        "methods": methods,
        "notifications": notifications,
        "commands": commands,
        "error": error,
        "errors": errors(),
        "$defs": definitions,
    })
}

/// Returns the text of the schema file.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).expect("a schema has a JSON form");
    text.push('\n');
    text
}

/// Returns the FNV-1a hash of the schema's text. It distinguishes versions and is not secure.
pub fn schema_hash() -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = schema_text().bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    format!("{hash:016x}")
}

fn server_methods(
    params: &mut SchemaGenerator,
    results: &mut SchemaGenerator,
) -> Map<String, Value> {
    let initialize = json!({
        "description": "Returns the name, version and capabilities of the server. Optional.",
        "access": "server",
        "params": InitializeParams::json_schema(params),
        "result": results.subschema_for::<Initialized>(),
        "errors": [],
    });
    let shutdown = json!({
        "description": "Finishes all pending calls, answers, and ends the process.",
        "access": "server",
        "params": ShutdownParams::json_schema(params),
        "result": results.subschema_for::<ShutDown>(),
        "errors": [],
    });
    Map::from_iter([("initialize".into(), initialize), ("shutdown".into(), shutdown)])
}

fn method_schema(
    method: &Method,
    params: &mut SchemaGenerator,
    results: &mut SchemaGenerator,
) -> Value {
    let access = match method.access {
        Access::Reads => "reads",
        Access::Records => "records",
        Access::Writes => "writes",
    };
    let own = (method.params)(params);
    let result = (method.result)(results);
    // Methods that record may be disabled. An empty hash comes from a call that was.
    let result = if method.access == Access::Records || takes_hash(&own, params) {
        json!({ "anyOf": [result, results.subschema_for::<Disabled>()] })
    } else {
        result.to_value()
    };
    json!({
        "description": method.about,
        "access": access,
        "params": with_place(&own, params),
        "result": result,
        "errors": method.errors,
    })
}

/// Returns whether parameters, given as a reference to their definition, include a snapshot.
fn takes_hash(own: &Schema, generator: &SchemaGenerator) -> bool {
    let name = own.get("$ref").and_then(Value::as_str).unwrap_or_default();
    let definition = generator.definitions().get(name.trim_start_matches("#/$defs/"));
    let properties = definition.and_then(|definition| definition["properties"].as_object());
    properties.is_some_and(|properties| properties.contains_key("hash"))
}

/// Combines the parameters of a method with those that all methods share.
fn with_place(own: &Schema, generator: &mut SchemaGenerator) -> Value {
    let place = generator.subschema_for::<Place>();
    json!({ "allOf": [place, own], "unevaluatedProperties": false })
}

/// Allows additional properties in each part: the combined schema refuses unknown ones.
fn open_parts(definitions: &mut Map<String, Value>, methods: &Map<String, Value>) {
    let parts = methods.values().filter_map(|method| method["params"]["allOf"].as_array());
    for part in parts.flatten().filter_map(|part| part["$ref"].as_str()) {
        let name = part.trim_start_matches("#/$defs/");
        if let Some(Value::Object(definition)) = definitions.get_mut(name) {
            drop(definition.remove("additionalProperties"));
        }
    }
}

fn errors() -> Vec<Value> {
    let entry = |kind: &crate::error::Kind| {
        json!({
            "kind": kind.kind,
            "fault": kind.fault,
            "code": code(kind.kind, kind.fault),
            "description": kind.about,
        })
    };
    KINDS.iter().map(entry).collect()
}
