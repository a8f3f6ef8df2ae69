//! Checkpoints: named states that plain git can read through refs.
//!
//! ```text
//! <prefix>/<work tree>/latest                                 newest checkpoint
//! <prefix>/<work tree>/resume                                 newest checkpoint of kind `resume`
//! <prefix>/<work tree>/checkpoint-<kind>-<time>-<operation>   newest and pinned checkpoints
//! ```

use crate::error::{Error, LookupError};
use crate::git::ObjectId;
use crate::log::{Details, Operation, OperationKind, WorkTree, read_operation, ref_part};
use crate::record::Cause;
use crate::scan::{Progress, Skipped};
use crate::store::Store;
use crate::workspace::Workspace;

use super::steps::check_length;

/// Options for a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointOptions {
    /// Label for users. Default: none.
    pub label: Option<String>,
    /// Purpose: `manual`, `turn`, `resume`, …; part of the ref name. Default: `manual`.
    pub kind: String,
    /// Whether pruning and retention must keep it. Default: no.
    pub pinned: bool,
    /// Session that it belongs to. Default: none.
    pub session: Option<String>,
    /// Number of checkpoints to keep, not counting pinned ones. Default: 100.
    pub keep: usize,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions {
            label: None,
            kind: "manual".into(),
            pinned: false,
            session: None,
            keep: 100,
        }
    }
}

/// A named state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of its ref in the store.
    pub name: String,
    /// Label for users.
    pub label: Option<String>,
    /// Whether pruning and retention must keep it.
    pub pinned: bool,
    /// Session that it belongs to.
    pub session: Option<String>,
    /// Recorded snapshot.
    pub snapshot: ObjectId,
    /// Operation that recorded it.
    pub operation: String,
    /// Time of the operation, in milliseconds since 1970.
    pub at_millis: u64,
    /// Paths that the snapshot does not hold. Empty in a listing.
    pub skipped: Vec<Skipped>,
}

impl Workspace {
    /// Records the present state and creates a ref for it.
    pub fn checkpoint(
        &self,
        options: &CheckpointOptions,
        progress: &Progress,
    ) -> Result<Checkpoint, Error> {
        self.context().check_enabled()?;
        check_length("the label", options.label.as_deref())?;
        check_length("the session", options.session.as_deref())?;
        let hold = self.begin()?;
        // Records pending changes first, so that the checkpoint itself changes nothing.
        hold.record_listed(&Cause::outside(), progress)?;
        let details = Details {
            label: options.label.clone(),
            pinned: options.pinned,
            session: options.session.clone(),
            ..Details::default()
        };
        let kind = OperationKind::Checkpoint;
        let cause = Cause { kind, details, always: true, ..Cause::outside() };
        let tracked = hold.record_listed(&cause, progress)?;
        let operation = tracked.operation;
        let dir = checkpoint_dir(&hold.store, &hold.work_tree);
        let kind = ref_part(&options.kind);
        // The time is for users; the operation id separates checkpoints of the same second.
        let name = format!("{dir}/checkpoint-{kind}-{}-{}", stamp(&operation), operation.id);
        hold.work_tree.set_ref(&hold.store, &name, &operation.commit)?;
        hold.work_tree.set_ref(&hold.store, &format!("{dir}/latest"), &operation.commit)?;
        if options.kind == "resume" {
            hold.work_tree.set_ref(&hold.store, &format!("{dir}/resume"), &operation.commit)?;
        }
        prune(&hold.store, &dir, options.keep)?;
        let skipped = tracked.snapshot.skipped;
        Ok(Checkpoint { skipped, ..of_operation(name, &operation) })
    }

    /// Returns the checkpoints of the work tree, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (name, commit) in listed(&store, &checkpoint_dir(&store, &work_tree))? {
            // An unreadable checkpoint must not hide the others.
            if let Ok(operation) = read_operation(&store.objects, &commit) {
                found.push(of_operation(name, &operation));
            }
        }
        found.sort_by(|one, other| one.operation.cmp(&other.operation));
        Ok(found)
    }

    /// Returns the checkpoint with a name: its ref or the end of that, `latest`, `resume`, its
    /// operation id, or its label. If several match, the newest is returned.
    pub fn find_checkpoint(&self, name: &str) -> Result<Checkpoint, Error> {
        let unknown = || Error::Lookup(LookupError::NoSuchCheckpoint { name: name.to_owned() });
        let (store, work_tree) = self.existing()?.ok_or_else(unknown)?;
        let dir = checkpoint_dir(&store, &work_tree);
        if ["latest", "resume"].contains(&name)
            && let Some(commit) = store.refs.read(&format!("{dir}/{name}"))?
        {
            let operation = read_operation(&store.objects, &commit)?;
            return Ok(of_operation(format!("{dir}/{name}"), &operation));
        }
        let is_meant = |checkpoint: &Checkpoint| {
            checkpoint.label.as_deref() == Some(name)
                || checkpoint.operation == name
                || checkpoint.name == name
                || checkpoint.name.strip_prefix(&format!("{dir}/")) == Some(name)
        };
        self.checkpoints()?.into_iter().rev().find(is_meant).ok_or_else(unknown)
    }
}

fn checkpoint_dir(store: &Store, work_tree: &WorkTree) -> String {
    format!("{}/{}", store.ref_prefix(), work_tree.id())
}

fn listed(store: &Store, dir: &str) -> Result<Vec<(String, ObjectId)>, Error> {
    let start = format!("{dir}/checkpoint-");
    let all = store.refs.list(dir)?;
    Ok(all.into_iter().filter(|(name, _)| name.starts_with(&start)).collect())
}

/// Removes the refs of old checkpoints. Their operations stay as long as the log keeps them.
fn prune(store: &Store, dir: &str, keep: usize) -> Result<(), Error> {
    let mut loose = Vec::new();
    for (name, commit) in listed(store, dir)? {
        let Ok(operation) = read_operation(&store.objects, &commit) else { continue };
        if !operation.details.pinned {
            loose.push((operation.id, name));
        }
    }
    loose.sort();
    let surplus = loose.len().saturating_sub(keep);
    loose.iter().take(surplus).try_for_each(|(_, name)| store.refs.delete(name))
}

fn of_operation(name: String, operation: &Operation) -> Checkpoint {
    Checkpoint {
        name,
        label: operation.details.label.clone(),
        pinned: operation.details.pinned,
        session: operation.details.session.clone(),
        snapshot: operation.snapshot,
        operation: operation.id.clone(),
        at_millis: operation.at_millis,
        skipped: Vec::new(),
    }
}

/// Returns the time of an operation as `20260131T235959Z`.
fn stamp(operation: &Operation) -> String {
    date_of(operation.at_millis)
}

/// Formats milliseconds since 1970 as `20260131T235959Z`.
pub(crate) fn date_of(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that a leap day is the last day of a year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
    }
}
