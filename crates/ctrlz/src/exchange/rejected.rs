//! Outcome of a failed check of received data.

use std::path::Path;

use crate::error::{Error, ExchangeError, StoreError};
use crate::fs::FileError;

/// Reason why received data is not imported.
pub(crate) enum Rejected {
    /// The data is invalid, for this reason.
    Refused(String),
    /// The data could not be checked.
    Failed(Error),
}

impl Rejected {
    /// Names the part of the data that is refused.
    pub(super) fn within(self, part: &str) -> Rejected {
        match self {
            Rejected::Refused(why) => Rejected::Refused(format!("{part}: {why}")),
            failed @ Rejected::Failed(_) => failed,
        }
    }

    /// Returns the error for an import of data from `path`.
    pub(super) fn into_error(self, path: &Path) -> Error {
        match self {
            Rejected::Refused(why) => {
                Error::Exchange(ExchangeError::BadImport { path: path.to_owned(), why })
            }
            Rejected::Failed(error) => error,
        }
    }
}

impl From<String> for Rejected {
    fn from(why: String) -> Rejected {
        Rejected::Refused(why)
    }
}

impl From<&str> for Rejected {
    fn from(why: &str) -> Rejected {
        Rejected::Refused(why.to_owned())
    }
}

impl From<Error> for Rejected {
    fn from(error: Error) -> Rejected {
        Rejected::Failed(error)
    }
}

impl From<FileError> for Rejected {
    fn from(error: FileError) -> Rejected {
        Rejected::Failed(error.into())
    }
}

/// Separates faults of the received objects, which are refusals, from errors of this machine.
pub(super) fn refused<T>(outcome: Result<T, Error>) -> Result<T, Rejected> {
    outcome.map_err(|error| {
        if error.is_damage() || matches!(error, Error::Store(StoreError::Bomb { .. })) {
            Rejected::Refused(error.to_string())
        } else {
            Rejected::Failed(error)
        }
    })
}
