//! Prints the schema, or with `tables` the two tables of docs/rpc.md.

mod tables;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let tables = std::env::args().nth(1).as_deref() == Some("tables");
    let text = if tables {
        format!("{}\n{}", tables::methods(), tables::errors())
    } else {
        ctrlz_api::schema_text()
    };
    std::io::stdout().write_all(text.as_bytes())
}
