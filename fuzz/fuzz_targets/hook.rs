//! Events that clients send to `ctrlz hook`.
#![no_main]

use ctrlz_agents::hook::{Client, read};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for client in Client::ALL {
        drop(read(client, bytes));
    }
});
