//! Tracking with a watcher: the previous snapshot, with what became dirty since looked at again.
//!
//! Nothing here costs more in a large work tree than in a small one. Beside the log lies a small
//! record: the newest operation and the watcher's moment *before* its scan began. As long as both
//! still fit, what the watcher was told of since then is all that can differ. Whenever anything
//! does not fit — another operation, other rules, options or mounts, a lost pack, a watcher that
//! lost track or does not answer, a record that is too old — everything is scanned, and the moment
//! that the watcher named before the scan starts a new record.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::path::PathText;
use crate::scan::{Dirty, Progress, Token};
use crate::store::{Borrowed, Operation, WorkTree};

use super::ask::{Answer, Question, ask};
use super::partly::{Looked, to_try_again};
use super::track::{StoreKeep, is_for_a_scan};
use super::watcher::{key_of, now_millis};
use super::{Cause, Hold, Options, Snapshot, TrackOptions, Workspace};

/// A file that names come and go around is looked for this often.
const ROUNDS: usize = 3;
/// What failed before or has several names is looked at every time, unless it is more than this.
const MAX_RETRIES: usize = 100;
const MAX_STATE_BYTES: u64 = 4 << 20;

/// What the newest operation has to do with the watcher's counting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WatchState {
    /// Everything up to this moment is in the operation.
    token: Token,
    /// The operation's commit.
    commit: ObjectId,
    /// What paths were judged by.
    judged: String,
    index: Option<IndexSeen>,
    /// Files in the snapshot.
    files: u64,
    /// The packs that were there; if one is missing, so are objects.
    packs: Vec<String>,
    /// Files with more than one name. Through which of them something is written cannot be told,
    /// so they are always looked at.
    linked: Vec<PathText>,
    /// When everything was scanned last.
    scanned_at_millis: u64,
}

/// The user's index as it was seen: the fingerprint holds while the rest stays the same.
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
    /// The record, if there is one that can be read.
    fn load(work_tree: &WorkTree) -> Option<WatchState> {
        let json = read_small(&work_tree.watch_state_path(), MAX_STATE_BYTES).ok()??;
        serde_json::from_slice(&json).ok()
    }

    /// Writes the record. Losing it costs a scan, so failing to write it fails nothing.
    fn save(&self, work_tree: &WorkTree) {
        let json = serde_json::to_vec(self).expect("plain data has a JSON form");
        drop(private::replace(&work_tree.watch_state_path(), &json, Durable::No));
    }

    /// Notes that packs were merged into some of those there are `now`, which loses no object.
    pub(super) fn follow_merge(work_tree: &WorkTree, merged: &[String], now: &[String]) {
        let Some(state) = WatchState::load(work_tree) else { return };
        if state.packs.iter().all(|pack| merged.contains(pack) || now.contains(pack)) {
            WatchState { packs: now.to_vec(), ..state }.save(work_tree);
        }
    }
}

/// What holds before anything is looked at.
struct Ground {
    judged: String,
    entered: String,
    index: Option<IndexSeen>,
}

/// What the watcher says, and what it says it to.
struct Told<'a> {
    ground: &'a Ground,
    state: &'a WatchState,
    token: Token,
    dirty: Vec<Vec<u8>>,
}

impl Workspace {
    /// Takes a snapshot, with the help of a watcher if there is one.
    ///
    /// Everybody who needs no listing comes this way.
    pub(crate) fn record_locked(
        &self,
        hold: &Hold,
        options: &TrackOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<(Snapshot, Operation), Error> {
        let whole = options.paths.is_empty() && !options.rehash;
        if !self.options.watch || !whole {
            let noted = self.note_locked(hold, options, cause, progress)?;
            return Ok((noted.snapshot, noted.operation));
        }
        let state = WatchState::load(&hold.work_tree);
        let ground = self.ground(hold, state.as_ref())?;
        let token = state.as_ref().map(|state| state.token.clone());
        let answer = ground.as_ref().and_then(|ground| self.ask(hold, ground, token));
        // Before anything is looked at: what happens from here on belongs to the next snapshot.
        let began = now_millis();
        if let (Some(ground), Some(state), Some((token, Some(dirty)))) = (&ground, &state, &answer)
        {
            let told = Told { ground, state, token: token.clone(), dirty: dirty.clone() };
            match self.record_dirty(hold, cause, &told, progress) {
                Ok(Some(recorded)) => {
                    hold.drop_abandoned()?;
                    hold.close_gap();
                    return Ok(recorded);
                }
                Ok(None) => (),
                // A scan of everything needs no older object, and puts back what is lost.
                Err(error) if is_for_a_scan(&error) => (),
                Err(error) => return Err(error),
            }
        }
        let tracked = self.track_locked(hold, options, cause, progress)?;
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
                packs: hold.store.objects.pack_names(),
                linked: linked.iter().map(|path| PathText::from_bytes(path)).collect(),
                scanned_at_millis: began,
            };
            state.save(&hold.work_tree);
        }
        Ok((tracked.snapshot, tracked.operation))
    }

    /// What a scan would be judged by; `None` where no watcher can help.
    fn ground(&self, hold: &Hold, state: Option<&WatchState>) -> Result<Option<Ground>, Error> {
        let trust = hold.root.trust()?;
        if !trust.notices {
            return Ok(None);
        }
        let known = state.and_then(|state| state.index.as_ref());
        let Some(index) = self.index_seen(known)? else { return Ok(None) };
        let fingerprint = index.as_ref().map_or(0, |index| index.fingerprint);
        let entered = self.entered_key(&hold.store, &hold.root, fingerprint)?;
        let Options { max_new_file_bytes, nested_repos, ignored, max_ignored_bytes, .. } =
            &self.options;
        let limits = (max_new_file_bytes, nested_repos, ignored, max_ignored_bytes);
        Ok(Some(Ground { judged: key_of(&(&entered, limits)), entered, index }))
    }

    /// The user's index, read only if it is not the known one. The outer `None`: unreadable.
    #[expect(clippy::option_option, reason = "no index and one that cannot be read differ")]
    fn index_seen(&self, known: Option<&IndexSeen>) -> Result<Option<Option<IndexSeen>>, Error> {
        use std::os::unix::fs::MetadataExt;
        let Some(repo) = &self.repo else { return Ok(Some(None)) };
        // Before it is read: one that changes meanwhile is read again next time.
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

    /// What the watcher says: the present moment, and where something may have changed.
    fn ask(
        &self,
        hold: &Hold,
        ground: &Ground,
        token: Option<Token>,
    ) -> Option<(Token, Option<Vec<Vec<u8>>>)> {
        let question = Question::Since { entered: ground.entered.clone(), token };
        match ask(&hold.work_tree.watch_dir(), &question)? {
            Answer::Changes { now, dirty } => {
                let paths = |dirty: Vec<PathText>| {
                    dirty.into_iter().map(PathText::into_bytes).collect::<Vec<_>>()
                };
                Some((now, dirty.map(paths)))
            }
            Answer::Elsewhere | Answer::Status { .. } | Answer::Stopping => None,
        }
    }

    /// Looks at what is dirty and records it; `None` if that would not be the whole truth.
    fn record_dirty(
        &self,
        hold: &Hold,
        cause: &Cause,
        told: &Told<'_>,
        progress: &Progress,
    ) -> Result<Option<(Snapshot, Operation)>, Error> {
        let store = &hold.store;
        let Some(last) = hold.work_tree.last_or_salvaged(store)? else { return Ok(None) };
        let Some(retries) = self.still_fits(hold, told, &last)? else { return Ok(None) };
        let pack = self.pack_writer(store);
        let keep = StoreKeep { log: Some(&hold.work_tree), ..StoreKeep::new(store, &pack) };
        let named = self.always_listed(hold, cause)?;
        let dirty = told.dirty.iter().cloned().chain(retries).chain(named).collect();
        let looked = self.look_at(hold, cause, told, dirty, &keep, progress)?;
        let Some((token, looked)) = looked else { return Ok(None) };
        // The other names of a new hard link are not known to be watched every time.
        let known = |path: &Vec<u8>| told.state.linked.contains(&PathText::from_bytes(path));
        if !looked.listing.linked.iter().all(known) {
            return Ok(None);
        }
        let files = told.state.files;
        let Some(edited) = self.edited(hold, &last, files, &looked, &pack)? else {
            return Ok(None);
        };
        let Looked { dirty, listing, room, .. } = &looked;
        let room = (&keep, room.as_ref());
        let kept = self.keep_ignored_dirty(hold, listing, dirty, cause, &last, room)?;
        let Some(kept) = kept else { return Ok(None) };
        let index = told.ground.index.clone();
        let mut state = WatchState { token, index, ..told.state.clone() };
        let recorded = self.record_edited(hold, cause, &last, edited, kept, pack)?;
        if recorded.is_new {
            state.commit = recorded.operation.commit;
            state.packs = store.objects.pack_names();
            state.files = recorded.files_after(files);
        }
        state.save(&hold.work_tree);
        let mut snapshot = recorded.snapshot(&looked, 0);
        (snapshot.files, snapshot.watched) = (state.files, true);
        Ok(Some((snapshot, recorded.operation)))
    }

    /// Whether the record still belongs to `last`; gives what has to be tried again anyhow.
    fn still_fits(
        &self,
        hold: &Hold,
        told: &Told<'_>,
        last: &Operation,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Told { state, ground, .. } = told;
        let age = now_millis().checked_sub(state.scanned_at_millis);
        let fresh = age.is_some_and(|age| u128::from(age) < self.options.watch_trust.as_millis());
        if state.commit != last.commit || state.judged != ground.judged || !fresh {
            return Ok(None);
        }
        let packs: BTreeSet<String> = hold.store.objects.pack_names().into_iter().collect();
        if !state.packs.iter().all(|pack| packs.contains(pack))
            || !Borrowed::load(&hold.work_tree.borrowed_path())?.is_empty()
        {
            return Ok(None);
        }
        let mut outer = last.meta.rules.clone();
        outer.hidden.clear();
        if outer != self.outer_rules(&hold.store)? {
            return Ok(None);
        }
        let linked = state.linked.iter().cloned().map(PathText::into_bytes);
        let Some(failed) = to_try_again(last) else { return Ok(None) };
        let retries: Vec<Vec<u8>> = failed.chain(linked).collect();
        Ok((retries.len() <= MAX_RETRIES).then_some(retries))
    }

    /// Lists and reads what is dirty, and what becomes dirty while something is missing; also gives
    /// the moment from which on it has to be looked at again.
    ///
    /// A path that is gone may have been renamed to where nobody looked; the watcher knows.
    fn look_at(
        &self,
        hold: &Hold,
        cause: &Cause,
        told: &Told<'_>,
        paths: BTreeSet<Vec<u8>>,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<Option<(Token, Looked)>, Error> {
        let (mut paths, mut token) = (paths, told.token.clone());
        for _ in 0..ROUNDS {
            let dirty = Dirty::new(paths.iter().cloned());
            let Some(looked) = self.look_at_dirty(hold, cause, dirty, keep, progress)? else {
                return Ok(None);
            };
            if !looked.lacks_something() {
                return Ok(Some((token, looked)));
            }
            match self.ask(hold, told.ground, Some(token.clone())) {
                Some((now, Some(more)))
                    if more.is_empty() && looked.listing.vanished.is_empty() =>
                {
                    return Ok(Some((now, looked)));
                }
                Some((now, Some(more))) => {
                    paths.extend(more);
                    token = now;
                }
                Some((_, None)) | None => return Ok(None),
            }
        }
        Ok(None)
    }
}
