//! The tables of docs/rpc.md. A test compares them with the file.

use ctrlz_api::{KINDS, METHODS, Method, WireError};

/// Returns the table of methods.
pub(crate) fn methods() -> String {
    let mut table = String::from("| method | what it does | own errors |\n|---|---|---|\n");
    for Method { name, about, errors, .. } in METHODS.iter() {
        let errors: Vec<String> = errors.iter().map(|kind| format!("`{kind}`")).collect();
        table.push_str(&format!("| `{name}` | {about} | {} |\n", errors.join(", ")));
    }
    table
}

/// Returns the table of errors.
pub(crate) fn errors() -> String {
    let mut table = String::from("| kind | fault | code | meaning |\n|---|---|---|---|\n");
    for kind in KINDS.iter() {
        let fault = serde_json::json!(kind.fault);
        let fault = fault.as_str().unwrap_or_default();
        let code = WireError::new(kind.kind, "").code();
        table.push_str(&format!("| `{}` | {fault} | {code} | {} |\n", kind.kind, kind.about));
    }
    table
}
