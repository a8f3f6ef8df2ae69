//! Exchange with other machines and other stores: push, pull, export, import, and adoption of a
//! store that is not trusted.
//!
//! ```text
//! remote         what a push sends and a pull accepts; git itself runs in the command line
//! arrival        checks of received logs and objects, before a ref names them
//! rejected       why received data is not imported
//! export         snapshots and logs in one file
//! import         reads such a file
//! redact         leaves paths out of an export
//! bundle         reads git bundles
//! bundle_writer  writes git bundles
//! adoption       imports the history of a store that is not trusted
//! reading        which snapshots a work tree may read when several share a store
//! ```

mod adoption;
mod arrival;
mod bundle;
mod bundle_writer;
mod export;
mod import;
mod reading;
mod redact;
mod rejected;
mod remote;

pub use adoption::Adopted;
pub use arrival::OnPurged;
pub use export::{ExportOptions, Exported};
pub use import::Imported;
pub use remote::{Exchange, Log, Pulled, PulledLog, Push, RefUpdate};

#[cfg(any(test, fuzzing))]
pub(crate) use bundle::Bundle;
