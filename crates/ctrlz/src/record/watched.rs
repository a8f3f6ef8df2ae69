//! Snapshots with a watcher: the previous one, with the dirty paths rescanned.
//!
//! The cost does not depend on the size of the work tree. A record in the store names the newest
//! operation and the watcher's cursor *before* its scan. While both match, only the paths that the
//! watcher reports can differ. Any mismatch (another operation, other rules, options or mounts, a
//! lost pack, a watcher that lost events or does not respond, an old record) leads to a full scan,
//! and the cursor before that scan starts a new record.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::clock::now_millis;
use crate::compare::Extent;
use crate::error::Error;
use crate::fs::Dir;
use crate::fs::private::{self, Durable};
use crate::git::{Hasher, ObjectId, TrackedDirs};
use crate::hold::{Context, Hold};
use crate::log::{Operation, WorkTree};
use crate::options::Options;
use crate::path::PathText;
use crate::scan::{Dirty, Progress};
use crate::store::{Borrowed, Store};
use crate::watch::{Cursor, Scope, changes_since};

use super::draft::{Recorded, Snapshot};
use super::part::{Part, Unfit, lacks_something, or_whole, to_try_again};
use super::recording::{Recording, Scanned};
use super::request::{Cause, Need, TrackOptions};

/// The maximum number of scans if names keep changing.
const ROUNDS: usize = 3;
/// The maximum number of paths that are rescanned every time: failed ones and hard links.
const MAX_RETRIES: usize = 100;
const MAX_STATE_BYTES: u64 = 4 << 20;

/// The record of the newest operation and the watcher's cursor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WatchState {
    /// The operation covers all changes up to this cursor.
    token: Cursor,
    /// The operation's commit.
    commit: ObjectId,
    /// Identifies the rules and options of the scan.
    judged: String,
    index: Option<IndexSeen>,
    /// The number of files in the snapshot.
    files: u64,
    /// The packs at that time. If one is missing, objects are.
    packs: Vec<String>,
    /// Hard-linked files, which are always rescanned: an event names only one of the links.
    linked: Vec<PathText>,
    /// The time of the last full scan.
    scanned_at_millis: u64,
}

/// The metadata of the user's index. The fingerprint is valid while the rest is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IndexSeen {
    device: u64,
    inode: u64,
    bytes: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    fingerprint: u64,
}

impl WatchState {
    /// Returns the record, or `None` if it is missing or unreadable.
    fn load(work_tree: &WorkTree) -> Option<WatchState> {
        private::load_json(&work_tree.watch_state_path(), MAX_STATE_BYTES).ok()?
    }

    /// Writes the record. Errors are ignored: the next snapshot uses a full scan.
    fn save(&self, work_tree: &WorkTree) {
        drop(private::save_json(&work_tree.watch_state_path(), self, Durable::No));
    }

    /// Updates the record after packs were merged.
    pub(super) fn follow_merge(work_tree: &WorkTree, merged: &[String], now: &[String]) {
        let Some(state) = WatchState::load(work_tree) else { return };
        if state.packs.iter().all(|pack| merged.contains(pack) || now.contains(pack)) {
            WatchState { packs: now.to_vec(), ..state }.save(work_tree);
        }
    }
}

/// The rules and options of a scan.
struct Ground {
    judged: String,
    entered: String,
    index: Option<IndexSeen>,
}

/// The watcher's response, with the record that it refers to.
struct Told<'a> {
    ground: &'a Ground,
    state: &'a WatchState,
    token: Cursor,
    dirty: Vec<Vec<u8>>,
}

impl Hold {
    /// Records the paths that a watcher reports, or everything if a full scan is required.
    pub(super) fn record_watched(
        &self,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let state = WatchState::load(&self.work_tree);
        let ground = self.ground(state.as_ref())?;
        let token = state.as_ref().map(|state| state.token.clone());
        let answer = ground.as_ref().and_then(|ground| self.ask(ground, token));
        // Before the scan: later changes belong to the next snapshot.
        let began = now_millis();
        if let (Some(ground), Some(state), Some((token, Some(dirty)))) = (&ground, &state, &answer)
        {
            let told = Told { ground, state, token: token.clone(), dirty: dirty.clone() };
            let recording = Recording::new(self, cause, progress, Extent::Part);
            if let Some(recorded) = or_whole(recording.reported(&told))? {
                self.drop_abandoned()?;
                self.close_gap();
                return Ok(recorded);
            }
        }
        let options = TrackOptions::default();
        let tracked = self.record_by_scan(Need::Listing, &options, cause, progress)?;
        let linked = &tracked.listing.linked;
        if let (Some(ground), Some((token, _))) = (ground, answer)
            && linked.len() <= MAX_RETRIES
        {
            let state = WatchState {
                token,
                commit: tracked.operation.commit,
                judged: ground.judged,
                index: ground.index,
                files: tracked.snapshot.files,
                packs: self.store.objects.pack_names(),
                linked: linked.iter().map(|path| PathText::from_bytes(path)).collect(),
                scanned_at_millis: began,
            };
            state.save(&self.work_tree);
        }
        Ok(tracked)
    }

    /// Returns the rules and options of a scan, or `None` if the file system cannot be watched.
    fn ground(&self, state: Option<&WatchState>) -> Result<Option<Ground>, Error> {
        let trust = self.root.trust()?;
        if !trust.notices {
            return Ok(None);
        }
        let known = state.and_then(|state| state.index.as_ref());
        let Some(index) = self.index_seen(known)? else { return Ok(None) };
        let fingerprint = index.as_ref().map_or(0, |index| index.fingerprint);
        let entered = self.context.scope_key(&self.store, &self.root, fingerprint)?;
        let Options { max_new_file_bytes, nested_repos, ignored, max_ignored_bytes, .. } =
            &self.context.options;
        let limits = (max_new_file_bytes, nested_repos, ignored, max_ignored_bytes);
        Ok(Some(Ground { judged: key_of(&(&entered, limits)), entered, index }))
    }

    /// Returns the state of the user's index. It is read only if it changed. The outer `None` means
    /// that it is unreadable.
    #[expect(clippy::option_option, reason = "no index and one that cannot be read differ")]
    fn index_seen(&self, known: Option<&IndexSeen>) -> Result<Option<Option<IndexSeen>>, Error> {
        use std::os::unix::fs::MetadataExt;
        let Some(repo) = &self.context.repo else { return Ok(Some(None)) };
        // Before it is read, so that a concurrent change is noticed next time.
        let Ok(meta) = repo.index_path().symlink_metadata() else { return Ok(Some(None)) };
        let fingerprint = known.map_or(0, |known| known.fingerprint);
        let seen = IndexSeen {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            ctime: (meta.ctime(), meta.ctime_nsec()),
            fingerprint,
        };
        if known == Some(&seen) {
            return Ok(Some(Some(seen)));
        }
        Ok(match repo.index()? {
            (_, false) => None,
            (None, true) => Some(Some(IndexSeen { fingerprint: 0, ..seen })),
            (Some(index), true) => {
                Some(Some(IndexSeen { fingerprint: index.fingerprint(), ..seen }))
            }
        })
    }

    /// Asks the watcher for the present cursor and the dirty paths.
    fn ask(
        &self,
        ground: &Ground,
        cursor: Option<Cursor>,
    ) -> Option<(Cursor, Option<Vec<Vec<u8>>>)> {
        changes_since(&self.work_tree.watch_dir(), &ground.entered, cursor)
    }

    /// Returns the paths to rescan in any case, if the record matches `last`.
    fn retries(&self, told: &Told<'_>, last: &Operation) -> Result<Vec<Vec<u8>>, Unfit> {
        let Told { state, ground, .. } = told;
        let age = now_millis().checked_sub(state.scanned_at_millis);
        let fresh =
            age.is_some_and(|age| u128::from(age) < self.context.options.watch_trust.as_millis());
        if state.commit != last.commit || state.judged != ground.judged || !fresh {
            return Err(Unfit::NeedsWhole);
        }
        let packs: BTreeSet<String> = self.store.objects.pack_names().into_iter().collect();
        if !state.packs.iter().all(|pack| packs.contains(pack))
            || !Borrowed::load(&self.work_tree.borrowed_path())?.is_empty()
            || !self.outer_rules_are_of(last)?
        {
            return Err(Unfit::NeedsWhole);
        }
        let linked = state.linked.iter().cloned().map(PathText::into_bytes);
        let failed = to_try_again(last).ok_or(Unfit::NeedsWhole)?;
        let retries: Vec<Vec<u8>> = failed.chain(linked).collect();
        if retries.len() <= MAX_RETRIES { Ok(retries) } else { Err(Unfit::NeedsWhole) }
    }
}

impl Recording<'_> {
    /// Rescans the paths that the watcher reports and records a snapshot.
    fn reported(self, told: &Told<'_>) -> Result<Recorded, Unfit> {
        let Hold { store, work_tree, .. } = self.hold;
        let Told { state, ground, .. } = told;
        let last = work_tree.last_or_salvaged(store)?.ok_or(Unfit::NeedsWhole)?;
        let retries = self.hold.retries(told, &last)?;
        let named = self.hold.always_listed(self.cause)?;
        let paths = told.dirty.iter().cloned().chain(retries).chain(named).collect();
        let (token, dirty, scanned) = self.rescan_until_complete(told, paths)?;
        // The other links of a new hard link are not in the record.
        let known = |path: &Vec<u8>| state.linked.contains(&PathText::from_bytes(path));
        if !scanned.listing.linked.iter().all(known) {
            return Err(Unfit::NeedsWhole);
        }
        let part = Part { last: &last, files: state.files, cache: None, dirty, scanned };
        let recorded = self.part(part, |recording, part| recording.keep_ignored_of(part))?;
        let Recorded { snapshot, operation, .. } = &recorded;
        let mut state = WatchState { token, index: ground.index.clone(), ..(*state).clone() };
        if snapshot.changed {
            state.commit = operation.commit;
            state.packs = store.objects.pack_names();
            state.files = snapshot.files;
        }
        state.save(work_tree);
        let snapshot = Snapshot { watched: true, ..recorded.snapshot };
        Ok(Recorded { snapshot, ..recorded })
    }

    /// Rescans paths. If one is missing, it may have been renamed, so that the watcher is asked
    /// again. Also returns the rescanned paths and the cursor that the result covers.
    fn rescan_until_complete(
        &self,
        told: &Told<'_>,
        mut paths: BTreeSet<Vec<u8>>,
    ) -> Result<(Cursor, Dirty, Scanned), Unfit> {
        let mut token = told.token.clone();
        for _ in 0..ROUNDS {
            let dirty = Dirty::new(paths.iter().cloned());
            let scanned = self.rescan(&dirty)?;
            if !lacks_something(&scanned.listing, &dirty) {
                return Ok((token, dirty, scanned));
            }
            let answer = self.hold.ask(told.ground, Some(token));
            let Some((now, Some(more))) = answer else { return Err(Unfit::NeedsWhole) };
            if more.is_empty() && scanned.listing.vanished.is_empty() {
                return Ok((now, dirty, scanned));
            }
            paths.extend(more);
            token = now;
        }
        Err(Unfit::NeedsWhole)
    }
}

impl Context {
    /// Returns the directories that a scan enters, and the key that identifies them.
    pub(crate) fn watch_scope(&self, store: &Store) -> Result<(Scope, String), Error> {
        let index = match &self.repo {
            Some(repo) => repo.index()?.0,
            None => None,
        };
        let (tracked, fingerprint): (TrackedDirs, u64) =
            index.map_or_else(Default::default, |index| (index.dirs(), index.fingerprint()));
        let key = self.scope_key(store, &Dir::open(&self.root)?, fingerprint)?;
        let rules = self.outer_rules(store)?.base(store);
        Ok((Scope { rules, forbidden: self.forbidden(store), tracked }, key))
    }

    /// Returns the key of the directories that a scan enters. `index` is the fingerprint of the
    /// paths that the user's git tracks.
    fn scope_key(&self, store: &Store, root: &Dir, index: u64) -> Result<String, Error> {
        let stat = root.stat_self()?;
        let rules = self.outer_rules(store)?;
        Ok(key_of(&(rules, self.forbidden(store), stat.device, stat.inode, index)))
    }
}

/// Returns a hash of some data.
fn key_of(parts: &impl Serialize) -> String {
    let json = serde_json::to_vec(parts).expect("plain data has a JSON form");
    let mut hasher = Hasher::raw();
    hasher.update(&json);
    hasher.finish().map_or_else(String::new, |id| id.to_string())
}
