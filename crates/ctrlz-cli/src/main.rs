//! The `ctrlz` command.
fn main() {}
