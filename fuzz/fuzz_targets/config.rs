//! The user's configuration file. Its source is included, because the program is not a library.
#![no_main]

#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../crates/ctrlz-cli/src/config_file.rs"]
mod config_file;

use std::path::Path;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let home = Path::new("/home/someone");
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(file) = config_file::ConfigFile::parse(text, Some(home))
    {
        drop(file.for_project(Path::new("/p"), Some(home)));
    }
});
