//! See `crates/ctrlz/src/parsers.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ctrlz::parsers::pack(bytes));
