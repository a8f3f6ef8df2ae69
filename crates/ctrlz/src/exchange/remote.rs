//! Push and pull to and from a git server. The caller runs git for the transfer; this module
//! decides which refs to push and checks what was fetched.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::error::{Error, ExchangeError};
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;
use crate::log::{Source, WorkTree};
use crate::scan::Progress;
use crate::store::{Incoming, Lock, Store};
use crate::workspace::Point;

use super::Transfer;
use super::acceptance::{Origin, adopt, publish};
use super::arrival::{OnPurged, PRIVATE, SHARED, arrivals};
use super::checker::{Fate, check_all, known_commits};

/// Number of pushed heads to remember.
const MAX_PUSHED: usize = 64;

/// A ref to set on the server if it still has the expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    /// Name of the ref in the store.
    pub local: String,
    /// Name of the ref on the server.
    pub remote: String,
    /// Current value on the server; `None` if the ref does not exist.
    pub expected: Option<ObjectId>,
    /// Value to set.
    pub new: ObjectId,
}

/// Plan of a push. No pack of the store is removed while this value exists.
pub struct Push {
    /// Name of the log on the server.
    pub log: String,
    /// Refs to set; empty if the server is up to date.
    pub updates: Vec<RefUpdate>,
    /// Number of operations that the server does not have.
    pub operations: u64,
    _shared: Lock,
}

/// A temporary repository for git to push from or fetch into. It has its own configuration and
/// borrows the store's objects, and nothing else of the store or the project. Removed on drop.
pub struct Exchange {
    store: Store,
    incoming: Incoming,
    /// Log of the work tree that pushes or pulls.
    into: String,
    _shared: Lock,
}

impl Exchange {
    /// Returns the repository. It borrows from the store, so only new objects are transferred.
    pub fn git_dir(&self) -> &Path {
        self.incoming.path()
    }
}

/// A log that was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledLog {
    /// Name of the log.
    pub log: String,
    /// Number of operations that are new here.
    pub operations: u64,
    /// Newest snapshot of the log.
    pub snapshot: Option<ObjectId>,
}

/// Result of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Logs with new operations.
    pub logs: Vec<PulledLog>,
    /// Logs that have diverged from the local logs of the same name; they were left unchanged.
    pub diverged: Vec<String>,
}

/// A log in the store that was pulled or imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Name of the log.
    pub name: String,
    /// Server or file that it came from.
    pub from: String,
    /// Newest snapshot of the log.
    pub snapshot: ObjectId,
    /// Id of the newest operation of the log.
    pub operation: String,
    /// Time of that operation, in milliseconds since 1970.
    pub at_millis: u64,
}

impl Transfer<'_> {
    /// Returns the name of this work tree's log, here and on servers; `None` before the first
    /// snapshot.
    pub fn log_name(&self) -> Result<Option<String>, Error> {
        Ok(self.0.claimed()?.map(|claim| claim.work_tree))
    }

    /// Plans a push to a server that has the refs `there`.
    ///
    /// Only this work tree's own refs are set. Fails with [`ExchangeError::Diverged`] if the server's
    /// log is not an earlier state of the local one: another data directory uses the same name.
    pub fn plan_push(&self, there: &[(String, ObjectId)], ignored: bool) -> Result<Push, Error> {
        let nothing = || Error::no_history(self.0.root());
        let (store, work_tree) = self.0.existing()?.ok_or_else(nothing)?;
        let _lock = work_tree.lock(&store, self.0.options().patience)?;
        let shared = self.0.lock_shared(&store)?;
        store.objects.refresh()?;
        let last = work_tree.last_or_salvaged(&store)?.ok_or_else(nothing)?;
        let log = work_tree.id().to_owned();
        let there: BTreeMap<&str, ObjectId> =
            there.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let head = there.get(format!("{SHARED}{log}/log").as_str()).copied();
        let is_ours = match head {
            None => true,
            Some(head) => {
                known_commits(&store, &work_tree)?.contains(&head)
                    || pushed(&work_tree)?.contains(&head)
            }
        };
        if !is_ours {
            return Err(Error::Exchange(ExchangeError::Diverged { log }));
        }
        let mut updates = Vec::new();
        let own = work_tree.own_refs(&store)?.into_iter();
        let own = own.map(|(rest, new)| {
            let local = format!("{}/{log}/{rest}", store.ref_prefix());
            (local, format!("{SHARED}{log}/{rest}"), new)
        });
        let private =
            if ignored { store.refs.list(&format!("{PRIVATE}{log}/"))? } else { Vec::new() };
        let private = private.into_iter().map(|(name, new)| (name.clone(), name, new));
        for (local, remote, new) in own.chain(private) {
            let expected = there.get(remote.as_str()).copied();
            if expected != Some(new) {
                updates.push(RefUpdate { local, remote, expected, new });
            }
        }
        let is_news = |operation: &Result<crate::Operation, Error>| {
            operation.as_ref().is_ok_and(|operation| Some(operation.commit) != head)
        };
        let news = store.history(&log, last.commit).take_while(is_news).count() as u64;
        Ok(Push { log, updates, operations: news, _shared: shared })
    }

    /// Remembers the head of a successful push, so that it is known as ours even after it has
    /// expired.
    pub fn note_pushed(&self, push: &Push) -> Result<(), Error> {
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(()) };
        let _lock = work_tree.lock(&store, self.0.options().patience)?;
        let head = push.updates.iter().find(|update| update.remote.ends_with("/log"));
        let Some(head) = head else { return Ok(()) };
        let mut all = pushed(&work_tree)?;
        all.retain(|known| *known != head.new);
        all.push(head.new);
        let newest = &all[all.len().saturating_sub(MAX_PUSHED)..];
        Ok(private::save_json(&work_tree.pushed_path(), newest, Durable::Yes)?)
    }

    /// Continues the history under a new, unique log name. Returns that name.
    ///
    /// For a copied data directory: two copies must not push under the same name.
    pub fn continue_as_new(&self) -> Result<String, Error> {
        let hold = self.0.begin()?;
        let nothing = || Error::no_history(self.0.root());
        let claim = self.0.claimed()?.ok_or_else(nothing)?;
        let new_claim = self.0.registry().another(self.0.root(), &claim)?;
        let new = WorkTree::named(&hold.store, &new_claim.work_tree);
        new.create(self.0.root())?;
        let _lock = new.lock(&hold.store, self.0.options().patience)?;
        new.go_on_from(&hold.store, &hold.work_tree)?;
        self.0.registry().hand_over(self.0.root(), self.0.root(), &new_claim)?;
        Ok(new_claim.work_tree)
    }

    /// Creates a repository for git to push from. Afterwards nothing reachable from this work
    /// tree's refs contains the text of the user's private ignore lists.
    pub fn begin_push(&self) -> Result<Exchange, Error> {
        self.0.maintenance().withhold_private_lists()?;
        self.begin_pull()
    }

    /// Creates a repository for git to fetch into.
    pub fn begin_pull(&self) -> Result<Exchange, Error> {
        self.0.context().check_enabled()?;
        let (store, work_tree) = self.0.for_writing()?;
        let shared = self.0.lock_shared(&store)?;
        let incoming = Incoming::create(&store)?;
        let into = work_tree.id().to_owned();
        Ok(Exchange { store, incoming, into, _shared: shared })
    }

    /// Checks what git fetched, and imports it if all of it is valid.
    ///
    /// The work tree's own log is taken from the server only if it was lost here. A log with
    /// content that was purged here is refused unless `on_purged` allows it. `from` is a label for
    /// users.
    pub fn finish_pull(
        &self,
        pull: &Exchange,
        from: &str,
        on_purged: OnPurged,
        progress: &Progress,
    ) -> Result<Pulled, Error> {
        let Exchange { store, incoming, .. } = pull;
        store.objects.refresh()?;
        let own = self.0.claimed()?.map(|claim| claim.work_tree);
        let objects = incoming.objects()?;
        let arrivals = arrivals(&incoming.refs()?);
        let (checked, checker) = check_all(store, &objects, arrivals, progress)
            .map_err(|rejected| rejected.into_error(Path::new(from)))?;
        // A purge rewrites the log, which then diverges from the one on the server.
        if on_purged == OnPurged::Refuse && checked.iter().any(|found| found.fate != Fate::Known) {
            checker.refuse_purged(Path::new(from))?;
        }
        publish(store, incoming, &checked)?;
        let mut pulled = Pulled::default();
        let origin = Origin { from, into: &pull.into, patience: self.0.options().patience };
        for found in checked {
            let log = found.arrival.name.clone();
            let is_own = own.as_ref() == Some(&log);
            let here = WorkTree::named(store, &log);
            match found.fate {
                Fate::Known if is_own || Source::of(&here).is_none() => (),
                Fate::Known => drop(origin.note(store, &here)?),
                Fate::Diverged if is_own => (),
                Fate::Diverged => pulled.diverged.push(log),
                Fate::News(operations) => {
                    let _lock = if is_own {
                        here.lock(store, origin.patience)?
                    } else {
                        origin.note(store, &here)?
                    };
                    // A command may have recorded since the log was checked.
                    if is_own && here.last(store)?.is_some() {
                        continue;
                    }
                    adopt(store, &here, &found.arrival, &checker)?;
                    let snapshot = found.newest.map(|newest| newest.snapshot);
                    pulled.logs.push(PulledLog { log, operations, snapshot });
                }
            }
        }
        Ok(pulled)
    }

    /// Returns the pulled and imported logs of the store, sorted by their newest operation.
    pub fn received_logs(&self) -> Result<Vec<Log>, Error> {
        let Some((store, _)) = self.0.existing()? else { return Ok(Vec::new()) };
        let mut logs = Vec::new();
        for name in store.logs()? {
            let work_tree = WorkTree::named(&store, &name);
            let Some(Source { from, .. }) = Source::of(&work_tree) else { continue };
            // An unreadable log must not hide the others.
            let Ok(Some(last)) = work_tree.last(&store) else { continue };
            logs.push(Log {
                name,
                from,
                snapshot: last.snapshot,
                operation: last.id,
                at_millis: last.at_millis,
            });
        }
        logs.sort_by(|one, other| one.operation.cmp(&other.operation));
        Ok(logs)
    }

    /// Returns the state to restore in a work tree that has recorded nothing itself: the newest
    /// operation of an imported history, otherwise the newest of the pulled logs.
    pub fn newest_received(&self) -> Result<Point, Error> {
        let Some((store, work_tree)) = self.0.existing()? else {
            return Err(Error::Exchange(ExchangeError::NothingPulled));
        };
        if let Some(last) = work_tree.last(&store)? {
            return if last.work_tree == work_tree.id() {
                Err(Error::Exchange(ExchangeError::NothingPulled))
            } else {
                Ok(Point::Operation(last.id))
            };
        }
        let newest =
            self.received_logs()?.pop().ok_or(Error::Exchange(ExchangeError::NothingPulled))?;
        Ok(Point::OperationOf { log: newest.name, id: newest.operation })
    }
}

fn pushed(work_tree: &WorkTree) -> Result<Vec<ObjectId>, Error> {
    let known: Option<Vec<ObjectId>> = private::load_json(&work_tree.pushed_path(), 1 << 16)?;
    let mut seen = HashSet::new();
    Ok(known.into_iter().flatten().filter(|id| seen.insert(*id)).collect())
}
