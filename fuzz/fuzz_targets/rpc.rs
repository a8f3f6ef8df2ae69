//! A line of `ctrlz rpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ctrlz_agents::rpc::parse_line(bytes));
