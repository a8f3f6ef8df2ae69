//! Forks: sessions that continue from an earlier state of another session.

use std::path::{Path, PathBuf};

use crate::error::{Error, RestoreError, SessionError};
use crate::fs::Named;
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{Details, Forked, LogEntry, OperationKind, new_id};
use crate::options::Options;
use crate::outside::check_place;
use crate::restore::{RestoreOptions, RestoreReport};
use crate::scan::Progress;
use crate::workspace::{Point, Workspace};

use super::choose::Lineage;
use super::history::{History, append};
use super::plans::record_present;
use super::steps::check_length;

/// Options for forking a session.
#[derive(Clone, Debug, Default)]
pub struct ForkOptions {
    /// First message that the fork does not share. Default: it shares all messages.
    pub at: Option<String>,
    /// Id of the new session. Default: a generated one.
    pub session: Option<String>,
    /// Empty or new directory to restore the state into. Default: none, no file is written.
    pub into: Option<PathBuf>,
}

/// A session that shares history with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Id of the new session.
    pub session: String,
    /// Origin of the fork.
    pub forked: Forked,
    /// Snapshot that it continues from.
    pub snapshot: ObjectId,
    /// Directory that the files were restored into, if requested.
    pub into: Option<PathBuf>,
    /// Report of that restore.
    pub report: Option<RestoreReport>,
}

impl Workspace {
    /// Creates a session that shares the history of `session` up to a message.
    ///
    /// Undo in the new session extends to the shared history, but never to changes that the other
    /// session made after the fork. No file of this work tree changes.
    pub fn fork(
        &self,
        session: &str,
        options: &ForkOptions,
        progress: &Progress,
    ) -> Result<Fork, Error> {
        check_length("the session", options.session.as_deref())?;
        let hold = self.begin()?;
        record_present(&hold, None, progress)?;
        let mut history = History::with_shared(&hold.store, &hold.work_tree)?;
        let (place, known) = fork_point(&mut history, session, options.at.as_deref())?;
        let (operation, snapshot) = (known.id, known.snapshot);
        let own = hold.work_tree.id().to_owned();
        let log = history.log_of(place).map_or(own, str::to_owned);
        // History in another log belongs to the session there, also for forks of a fork.
        let shared = history.fork_of(place).map(|(_, session)| session);
        let from_there = Forked {
            session: shared.unwrap_or(session).to_owned(),
            message: options.at.clone(),
            operation: operation.clone(),
            log: Some(log),
        };
        let forked = Forked { session: session.to_owned(), log: None, ..from_there.clone() };
        let new_session = options.session.clone().unwrap_or_else(new_id);
        if hold.work_tree.newest_of(&hold.store, &new_session)?.is_some() {
            return Err(Error::Session(SessionError::SessionExists { session: new_session }));
        }
        if let Some(into) = &options.into {
            check_free(into)?;
            self.check_outside(into)?;
        }
        drop(hold);
        let mut fork = Fork { session: new_session, forked, snapshot, into: None, report: None };
        if let Some(into) = &options.into {
            let (there, report) = self.materialise(into, &from_there, progress)?;
            record(&there.begin()?, &fork.session, &from_there)?;
            fork.into = Some(there.root().to_owned());
            fork.report = Some(report);
        }
        // Recorded last, so that a fork whose directory could not be made can be repeated.
        record(&self.begin()?, &fork.session, &fork.forked)?;
        Ok(fork)
    }

    /// Refuses a directory inside this work tree, which would be captured and opened as part of it.
    fn check_outside(&self, into: &Path) -> Result<(), Error> {
        let absolute = std::path::absolute(into).named("tell the place of", into)?;
        let known = absolute.ancestors().find_map(|above| above.canonicalize().ok());
        if known.is_some_and(|known| known.starts_with(self.root())) {
            Err(Error::Restore(RestoreError::InsideWorkTree { path: into.to_owned() }))
        } else {
            Ok(())
        }
    }

    /// Restores a recorded state into another directory, as a work tree of the same project.
    ///
    /// Every file is an independent copy. The next command there finishes an interrupted restore.
    fn materialise(
        &self,
        into: &Path,
        from: &Forked,
        progress: &Progress,
    ) -> Result<(Workspace, RestoreReport), Error> {
        let into = create(into)?;
        let store = self.store_path()?;
        let options = match &self.options().store {
            // Both work trees use the same store.
            Some(_) => Options { store, ..self.options().clone() },
            None => {
                self.registry().adopt_project(self.root(), &into)?;
                self.options().clone()
            }
        };
        let there = Workspace::open(&into, options)?;
        let restore = RestoreOptions::default();
        let (log, id) = (from.log.clone().unwrap_or_default(), from.operation.clone());
        let point = Point::OperationOf { log, id };
        let report = there.restore(point, &restore, progress)?;
        Ok((there, report))
    }
}

/// Records the fork in a work tree's log. No file changes.
fn record(hold: &Hold, session: &str, forked: &Forked) -> Result<(), Error> {
    let Some(last) = hold.work_tree.last_or_salvaged(&hold.store)? else { return Ok(()) };
    let (session, forked) = (Some(session.to_owned()), Some(forked.clone()));
    let details = Details { session, forked, ..Details::default() };
    append(hold, &last, OperationKind::Fork, details)
}

/// Returns the newest operation that a fork shares, with its index in the history.
fn fork_point(
    history: &mut History<'_>,
    session: &str,
    at: Option<&str>,
) -> Result<(usize, LogEntry), Error> {
    let mut found = None;
    let mut known = false;
    let mut place = 0;
    let mut lineage = Lineage::of(Some(session));
    loop {
        history.before(place)?;
        if place >= history.entries.len() {
            break;
        }
        lineage.pass(history, place);
        let entry = &history.entries[place];
        for credit in &entry.details.credits {
            if !lineage.includes(&credit.step) {
                continue;
            }
            known = true;
            if at.is_some() && credit.step.message.as_deref() == at {
                found = Some(credit.begun.clone());
            }
        }
        known |= entry.details.session.as_deref() == Some(session);
        let passed =
            found.is_some()
                && entry.details.credits.iter().any(|credit| {
                    lineage.is_own(&credit.step) && credit.step.message.as_deref() != at
                });
        if passed || (known && at.is_none()) {
            break;
        }
        place += 1;
    }
    if !known {
        return Err(Error::no_such_session(session));
    }
    let operation = match at {
        None => history.entries.first().map(|entry| entry.id.clone()),
        Some(message) => Some(found.ok_or_else(|| Error::no_such_message(message))?),
    };
    let mut place = 0;
    loop {
        history.before(place)?;
        let Some(entry) = history.entries.get(place) else { break };
        if Some(&entry.id) == operation.as_ref() {
            return Ok((place, entry.clone()));
        }
        place += 1;
    }
    Err(Error::unknown_operation(&operation.unwrap_or_default()))
}

/// Creates a directory and its ancestors. Returns its path without symlinks.
pub(super) fn create(into: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(into).named("create the directory", into)?;
    Ok(into.canonicalize().named("open the directory", into)?)
}

/// Refuses a directory that is not empty or lies inside a repository's own directory.
pub(super) fn check_free(into: &Path) -> Result<(), Error> {
    check_place(into)?;
    match std::fs::read_dir(into) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(Error::Restore(RestoreError::NotEmpty { path: into.to_owned() })),
            None => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Ok(Err(error).named("look into", into)?),
    }
}
