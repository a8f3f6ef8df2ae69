//! Checks that the checked-in documents match the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ctrlz_server::{openapi, openapi_text, routes, routes_table};
use serde_json::Value;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_checked_in_openapi_document_is_up_to_date() {
    let found = std::fs::read_to_string(in_repository("schema/openapi.json")).unwrap();
    assert!(found == openapi_text(), "stale; run: ctrlz serve --openapi > schema/openapi.json");
}

#[test]
fn the_documentation_lists_every_route() {
    let text = std::fs::read_to_string(in_repository("docs/http.md")).unwrap();
    let command = "cargo run -p ctrlz-server --example openapi table";
    assert!(text.contains(&routes_table()), "the table of addresses is stale; run: {command}");
}

#[test]
fn the_openapi_document_has_exactly_the_routes_of_the_router() {
    let document = openapi();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            let verbs = item.as_object().unwrap().keys();
            verbs.map(|verb| (verb.to_uppercase(), path.clone())).collect::<Vec<_>>()
        })
        .collect();
    let served: BTreeSet<(String, String)> = routes()
        .into_iter()
        .map(|route| (route.verb.to_owned(), route.path))
        // The web page is not part of the interface for programs.
        .filter(|(_, path)| {
            path.starts_with("/v1") || path.starts_with("/session") || path == "/healthz"
        })
        .collect();
    assert_eq!(described, served);
}

#[test]
fn the_openapi_document_has_no_dangling_references() {
    let document = openapi();
    let schemas = &document["components"]["schemas"];
    let mut found = 0;
    visit(&document, &mut |reference| {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.get(name).is_some(), "{name}");
        found += 1;
    });
    assert!(found > 200, "{found}");
}

fn visit(value: &Value, seen: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("$ref", Value::String(reference)) => seen(reference),
                    _ => visit(value, seen),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit(item, seen)),
        _ => (),
    }
}
