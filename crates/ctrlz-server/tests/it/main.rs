//! Tests of the server through its clients: real sockets, a real engine and real files.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod calling;
mod contract;
mod doors;
mod events;
mod lab;
mod limits;
mod local;
mod sessions;
