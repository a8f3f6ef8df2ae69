//! Push and pull: what goes to a git server and what comes from one. Git itself carries it, started
//! by whoever calls; here is decided what goes, and checked what came.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::log::WorkTree;
use crate::scan::Progress;
use crate::store::{Incoming, Lock, Sharing, Store};
use crate::workspace::{Point, Workspace};

use super::arrival::{
    Fate, From, OnPurged, PRIVATE, SHARED, adopt, arrivals, check_all, has_news, known_commits,
    publish,
};
use super::import::note_from;

/// As many heads that were pushed are remembered.
const MAX_PUSHED: usize = 64;

/// One ref to be set on the server, if it still is what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefUpdate {
    /// The ref's name in the store.
    pub local: String,
    /// Its name on the server.
    pub remote: String,
    /// What the server has now; `None` for nothing.
    pub expected: Option<ObjectId>,
    /// What it shall have.
    pub new: ObjectId,
}

/// What a push has to do. The store's packs stay while this lives.
pub struct Push {
    /// The log's name on the server.
    pub log: String,
    /// The refs to be set; none if the server has everything.
    pub updates: Vec<RefUpdate>,
    /// Operations that the server does not have.
    pub operations: u64,
    _shared: Lock,
}

/// A fresh repository for git to push from or fetch into, with a configuration of ours and nothing of
/// the store's or the project's but the store's objects. Dropped, it leaves nothing.
pub struct Exchange {
    store: Store,
    incoming: Incoming,
    /// The log of the work tree that exchanges.
    into: String,
    _shared: Lock,
}

impl Exchange {
    /// The repository. It borrows from the store, so only what is new has to travel.
    pub fn git_dir(&self) -> &Path {
        self.incoming.path()
    }
}

/// A log that came from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PulledLog {
    /// Its name.
    pub log: String,
    /// Operations that were not here before.
    pub operations: u64,
    /// Its newest snapshot, if there is news.
    pub snapshot: Option<ObjectId>,
}

/// What a pull brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// The logs with news.
    pub logs: Vec<PulledLog>,
    /// Logs that are here under the same name and have parted; they were left alone.
    pub diverged: Vec<String>,
}

/// A log in the store that is not this work tree's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    /// Its name.
    pub name: String,
    /// The server or file it came from.
    pub from: String,
    /// Its newest snapshot.
    pub snapshot: ObjectId,
    /// Its newest operation.
    pub operation: String,
    /// When that was recorded, in milliseconds since 1970.
    pub at_millis: u64,
}

impl Workspace {
    /// The name of this work tree's log, here and on every server; `None` before the first
    /// snapshot.
    pub fn log_name(&self) -> Result<Option<String>, Error> {
        Ok(self.claimed()?.map(|claim| claim.work_tree))
    }

    /// Decides what to push to a server that has the refs `there`.
    ///
    /// Only this work tree's own refs are ever set. If the server's log is not an earlier state of
    /// the one here, somebody else writes under the same name, and that is an error.
    pub fn plan_push(&self, there: &[(String, ObjectId)], ignored: bool) -> Result<Push, Error> {
        let nothing = || Error::NoHistory { path: self.root().to_owned() };
        let (store, work_tree) = self.existing()?.ok_or_else(nothing)?;
        let patience = self.options().patience;
        let _lock = work_tree.lock(&store, patience)?;
        let shared = Lock::take(&store.lock_path(), Sharing::Shared, patience)?;
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
            return Err(Error::Diverged { log });
        }
        let mut updates = Vec::new();
        let own = work_tree.own_refs(&store)?.into_iter();
        let own = own.map(|(rest, new)| {
            let local = format!("{}/{log}/{rest}", store.ref_prefix());
            (local, format!("{SHARED}{log}/{rest}"), new)
        });
        let private = match ignored {
            true => store.refs.list(&format!("{PRIVATE}{log}/"))?,
            false => Vec::new(),
        };
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

    /// Remembers that a push arrived, so that its state is known as ours even when it has expired.
    pub fn note_pushed(&self, push: &Push) -> Result<(), Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(()) };
        let _lock = work_tree.lock(&store, self.options().patience)?;
        let head = push.updates.iter().find(|update| update.remote.ends_with("/log"));
        let Some(head) = head else { return Ok(()) };
        let mut all = pushed(&work_tree)?;
        all.retain(|known| *known != head.new);
        all.push(head.new);
        let newest = &all[all.len().saturating_sub(MAX_PUSHED)..];
        let bytes = serde_json::to_vec(newest).expect("plain data has a JSON form");
        Ok(private::replace(&work_tree.pushed_path(), &bytes, Durable::Yes)?)
    }

    /// Goes on under another name, as nobody else does, with the same history.
    ///
    /// For a data directory that was copied: two must not write under one name.
    pub fn go_on_as_new(&self) -> Result<String, Error> {
        let hold = self.begin()?;
        let nothing = || Error::NoHistory { path: self.root().to_owned() };
        let claim = self.claimed()?.ok_or_else(nothing)?;
        let new_claim = self.registry().another(self.root(), &claim)?;
        let new = WorkTree::named(&hold.store, &new_claim.work_tree);
        new.create(self.root())?;
        let _lock = new.lock(&hold.store, self.options().patience)?;
        new.go_on_from(&hold.store, &hold.work_tree)?;
        self.registry().hand_over(self.root(), self.root(), &new_claim)?;
        Ok(new_claim.work_tree)
    }

    /// Makes room for git to push from. Nothing that is reachable from this work tree's refs then
    /// holds texts of the user's private ignore lists.
    pub fn begin_push(&self) -> Result<Exchange, Error> {
        self.withhold_private_lists()?;
        self.begin_exchange()
    }

    /// Makes room for what a server sends.
    pub fn begin_exchange(&self) -> Result<Exchange, Error> {
        self.context().check_enabled()?;
        let (store, work_tree) = self.for_writing()?;
        let patience = self.options().patience;
        let shared = Lock::take(&store.lock_path(), Sharing::Shared, patience)?;
        let incoming = Incoming::create(&store)?;
        let into = work_tree.id().to_owned();
        Ok(Exchange { store, incoming, into, _shared: shared })
    }

    /// Checks what git fetched, and takes it over if all of it is sound.
    ///
    /// The work tree's own log is taken from the server only where it is lost here. A log with
    /// content that was purged here is refused unless `on_purged` allows it. `from` is for people.
    pub fn finish_pull(
        &self,
        pull: &Exchange,
        from: &str,
        on_purged: OnPurged,
        progress: &Progress,
    ) -> Result<Pulled, Error> {
        let Exchange { store, incoming, .. } = pull;
        store.objects.refresh()?;
        let own = self.claimed()?.map(|claim| claim.work_tree);
        let objects = incoming.objects()?;
        let arrivals = arrivals(&incoming.refs()?);
        let bad = |why: String| Error::BadImport { path: from.into(), why };
        let (checked, checker) = check_all(store, &objects, arrivals, progress)?.map_err(bad)?;
        if on_purged == OnPurged::Refuse && has_news(&checked) {
            checker.refuse_purged(Path::new(from))?;
        }
        publish(store, incoming, &checked)?;
        let mut pulled = Pulled::default();
        let (into, patience) = (pull.into.as_str(), self.options().patience);
        for found in checked {
            let log = found.arrival.name.clone();
            let is_own = own.as_ref() == Some(&log);
            let here = WorkTree::named(store, &log);
            match found.fate {
                Fate::Known if is_own || From::of(&here).is_none() => (),
                Fate::Known => drop(note_from(store, &here, from, into, patience)?),
                Fate::Diverged if is_own => (),
                Fate::Diverged => pulled.diverged.push(log),
                Fate::News(_) if is_own && here.last(store)?.is_some() => (),
                Fate::News(operations) => {
                    let _lock = match is_own {
                        true => here.lock(store, patience)?,
                        false => note_from(store, &here, from, into, patience)?,
                    };
                    adopt(store, &here, &found.arrival, &checker)?;
                    let snapshot = found.newest.map(|newest| newest.snapshot);
                    pulled.logs.push(PulledLog { log, operations, snapshot });
                }
            }
        }
        Ok(pulled)
    }

    /// The logs in the store that came from elsewhere, the one that was written last at the end.
    pub fn logs_from_elsewhere(&self) -> Result<Vec<Log>, Error> {
        let Some((store, _)) = self.existing()? else { return Ok(Vec::new()) };
        let mut logs = Vec::new();
        for name in store.logs()? {
            let work_tree = WorkTree::named(&store, &name);
            let Some(From { from, .. }) = From::of(&work_tree) else { continue };
            // One that cannot be read must not hide the others.
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

    /// What there is to bring back in a work tree that has recorded nothing of its own yet: the
    /// newest state of the history that was imported, else the newest that was pulled.
    pub fn newest_from_elsewhere(&self) -> Result<Point, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Err(Error::NothingPulled) };
        if let Some(last) = work_tree.last(&store)? {
            return match last.work_tree == work_tree.id() {
                true => Err(Error::NothingPulled),
                false => Ok(Point::Operation(last.id)),
            };
        }
        let newest = self.logs_from_elsewhere()?.pop().ok_or(Error::NothingPulled)?;
        Ok(Point::OperationOf { log: newest.name, id: newest.operation })
    }
}

fn pushed(work_tree: &WorkTree) -> Result<Vec<ObjectId>, Error> {
    let bytes = read_small(&work_tree.pushed_path(), 1 << 16)?.unwrap_or_default();
    let known: Vec<ObjectId> = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut seen = HashSet::new();
    Ok(known.into_iter().filter(|id| seen.insert(*id)).collect())
}
