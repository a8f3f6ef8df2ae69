//! Integrations with coding agents: hooks, installers, `ctrlz rpc` and `ctrlz mcp`.

#![forbid(unsafe_code)]

pub mod hook;
pub mod install;
pub mod kept;
pub mod mcp;
mod private;
mod reach;
pub mod rpc;
mod shell;

pub use private::remove_old_captures;
pub use reach::reach_of_words;
