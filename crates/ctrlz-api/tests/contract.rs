//! Checks that the checked-in schema and documentation match the code.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../examples/schema/tables.rs"]
mod tables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ctrlz_api::{KINDS, METHODS, schema, schema_text};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_checked_in_schema_is_up_to_date() {
    let path = in_repository("schema/ctrlz.schema.json");
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(
        found == schema_text(),
        "stale; run: cargo run -p ctrlz-api --example schema > schema/ctrlz.schema.json"
    );
}

#[test]
fn the_documentation_lists_every_method_and_error() {
    let text = std::fs::read_to_string(in_repository("docs/rpc.md")).unwrap();
    let command = "cargo run -p ctrlz-api --example schema tables";
    assert!(text.contains(&tables::methods()), "the table of methods is stale; run: {command}");
    assert!(text.contains(&tables::errors()), "the table of errors is stale; run: {command}");
}

#[test]
fn method_and_error_names_are_unique_and_known() {
    let kinds: BTreeSet<&str> = KINDS.iter().map(|kind| kind.kind).collect();
    assert_eq!(kinds.len(), KINDS.len());
    let names: BTreeSet<&str> = METHODS.iter().map(|method| method.name).collect();
    assert_eq!(names.len(), METHODS.len());
    for method in METHODS.iter() {
        for error in &method.errors {
            assert!(kinds.contains(error), "{} names {error}", method.name);
        }
    }
}

#[test]
fn the_schema_has_no_dangling_references() {
    let schema = schema();
    let text = schema.to_string();
    let mut found = 0;
    for part in text.split("\"$ref\":\"#/$defs/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schema["$defs"].get(name).is_some(), "{name}");
        found += 1;
    }
    assert!(found > 100, "{found}");
}
