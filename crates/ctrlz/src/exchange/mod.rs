//! Exchange with other machines and other stores: push, pull, export, import, and adoption of a
//! store that is not trusted.
//!
//! ```text
//! remote         what a push sends and a pull accepts; git itself runs in the command line
//! arrival        received logs, as their refs name them
//! checker        checks of received logs and objects, before a ref names them
//! acceptance     makes checked logs part of the store
//! rejected       why received data is not imported
//! export         snapshots and logs in one file
//! import         reads such a file
//! redact         leaves paths out of an export
//! bundle         reads git bundles
//! entries        reads the entries of a bundle's pack
//! deltas         resolves the deltas of a bundle's pack
//! bundle_writer  writes git bundles
//! replacement    puts a new store in the place of one that is not trusted
//! adoption       imports the history of such a store
//! reading        which snapshots a work tree may read when several share a store
//! ```

mod acceptance;
mod adoption;
mod arrival;
mod bundle;
mod bundle_writer;
mod checker;
mod deltas;
mod entries;
mod export;
mod import;
mod reading;
mod redact;
mod rejected;
mod remote;
mod replacement;

use crate::workspace::Workspace;

pub use adoption::Adopted;
pub use arrival::OnPurged;
pub use export::{ExportOptions, Exported};
pub use import::Imported;
pub use remote::{Exchange, Log, Pulled, PulledLog, Push, RefUpdate};

#[cfg(any(test, fuzzing))]
pub(crate) use bundle::Bundle;

/// Exchange of a work tree's history with servers, files and other stores.
pub struct Transfer<'a>(&'a Workspace);

impl Workspace {
    /// Returns a handle to push, pull, export, import and adoption.
    pub fn transfer(&self) -> Transfer<'_> {
        Transfer(self)
    }
}
