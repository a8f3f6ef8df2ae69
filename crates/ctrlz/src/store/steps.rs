//! Steps that have begun and not ended: a small file of the work tree's, written under its lock.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::path::TreePath;

use super::log::StepInfo;

/// A step in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenStep {
    #[serde(flatten)]
    pub(crate) info: StepInfo,
    /// Paths the tool says it will change.
    #[serde(default)]
    pub(crate) paths: Vec<TreePath>,
    /// The snapshot when it began.
    pub(crate) before: ObjectId,
    /// The operation that recorded it.
    pub(crate) before_operation: String,
    /// Nobody will close it any more.
    #[serde(default)]
    pub(crate) abandoned: bool,
}

/// Reads the open steps; a torn file means none.
pub(crate) fn load(path: &Path) -> Result<Vec<OpenStep>, Error> {
    let bytes = read_small(path, 64 << 20)?.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Replaces the open steps, durably.
pub(crate) fn save(path: &Path, steps: &[OpenStep]) -> Result<(), Error> {
    let bytes = serde_json::to_vec(steps).expect("plain data has a JSON form");
    Ok(private::replace(path, &bytes, Durable::Yes)?)
}
