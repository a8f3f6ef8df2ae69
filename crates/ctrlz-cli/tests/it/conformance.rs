//! The suite that every client passes, against `ctrlz rpc` itself.

use serde_json::Value;

use crate::bench::Bench;
use crate::rpc_client::Client;

#[path = "../../../../clients/conformance/runner.rs"]
mod runner;

/// A server of its own for every vector, with the home that belongs to it.
struct Rpc {
    client: Client,
    _home: Bench,
}

impl runner::Server for Rpc {
    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = self.client.ask(method, params);
        let answer = self.client.answer(id);
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(answer["error"]["data"].clone()),
        }
    }
}

#[test]
fn every_vector_gives_what_is_expected() {
    runner::check_all(|_| {
        let home = Bench::new();
        Rpc { client: Client::start(&home), _home: home }
    });
}
