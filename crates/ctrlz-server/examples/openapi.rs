//! Prints the OpenAPI document, or with `table` the table of docs/http.md.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let table = std::env::args().nth(1).as_deref() == Some("table");
    let text = if table { ctrlz_server::routes_table() } else { ctrlz_server::openapi_text() };
    std::io::stdout().write_all(text.as_bytes())
}
