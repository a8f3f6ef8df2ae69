//! How coding agents and their authors talk to ctrlz.

#![forbid(unsafe_code)]

pub mod hook;
mod private;
pub mod rpc;
