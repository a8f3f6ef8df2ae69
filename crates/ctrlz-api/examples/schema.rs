//! Prints the schema, or with `tables` the two tables of docs/rpc.md.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let tables = std::env::args().nth(1).as_deref() == Some("tables");
    let text = if tables {
        format!("{}\n{}", ctrlz_api::methods_table(), ctrlz_api::errors_table())
    } else {
        ctrlz_api::schema_text()
    };
    std::io::stdout().write_all(text.as_bytes())
}
