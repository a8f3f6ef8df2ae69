//! End-to-end tests of the `ctrlz` command: output, exit codes and side effects.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod care;
mod compatibility;
mod conformance;
mod environment;
mod fleet;
mod git_http;
mod git_ignores;
mod hooks;
mod install_plans;
mod installing;
mod mcp;
mod output;
mod reading;
mod received_stores;
mod restoring;
mod rpc;
mod rpc_client;
mod serving;
mod session_commands;
mod sessions;
mod tracking;
mod undoing_restores;
mod watching;
