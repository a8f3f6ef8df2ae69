//! Tracking with a watcher: the previous snapshot, with what became dirty since looked at again.
//!
//! Nothing here costs more in a large work tree than in a small one. Beside the log lies a small
//! record: the newest operation and the watcher's moment *before* its scan began. As long as both
//! still fit, what the watcher was told of since then is all that can differ. Whenever anything
//! does not fit — another operation, other rules, options or mounts, a lost pack, a watcher that
//! lost track or does not answer, a record that is too old — everything is scanned, and the moment
//! that the watcher named before the scan starts a new record.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::compare::{Trees, changes};
use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::{Kind, ObjectId, hash_object};
use crate::path::{PathText, TreePath, is_within, join, split};
use crate::scan::{
    Content, Dirty, ListInput, Listing, Progress, SkipReason, StatCache, Token, list, read_listing,
};
use crate::store::{Borrowed, Meta, NewOperation, Operation, WorkTree, edit_tree};

use super::ask::{Answer, Question, ask};
use super::quota::Allowance;
use super::track::{Edit, StoreKeep, passed_mark, snapshot};
use super::watcher::{key_of, now_millis};
use super::{Cause, Hold, Options, Snapshot, TrackOptions, Workspace};

/// A file that names come and go around is looked for this often.
const ROUNDS: usize = 3;
/// What failed before or has several names is looked at every time, unless it is more than this.
const MAX_RETRIES: usize = 100;
/// Fewer files are read before a second thread has started.
const MANY_FILES: u64 = 32;
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
                    return Ok(recorded);
                }
                // A scan of everything needs no older object, and puts back what is lost.
                Ok(None) | Err(Error::Damaged { .. } | Error::HostileTree { .. }) => (),
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
        let keep = StoreKeep {
            store,
            pack: &pack,
            lender: None,
            previous: Some(last.snapshot),
            doubt: true,
            rehash: false,
        };
        let named = self.always_listed(hold, cause)?;
        let dirty = told.dirty.iter().cloned().chain(retries).chain(named).collect();
        let looked = self.look_at(hold, cause, told, dirty, &keep, progress)?;
        let Some(Looked { token, dirty, listing, read, room }) = looked else { return Ok(None) };
        let found = listing.dirs.iter().map(|dir| dir.entries.len() as u64).sum::<u64>();
        if told.state.files.saturating_add(found) > self.options.max_files {
            return Ok(None);
        }
        let trees = Trees::new(&store.objects);
        if !rules_hold(&trees, &last, &dirty, &listing)? {
            return Ok(None);
        }
        let edit = edit(&trees, &last, &dirty, &listing, read)?;
        let tree = edit_tree(&store.objects, &pack, last.snapshot, &edit.changes)?;
        let kept =
            self.keep_ignored_dirty(hold, &listing, &dirty, cause, &last, (&keep, room.as_ref()))?;
        let Some(kept) = kept else { return Ok(None) };
        let meta = Meta { companion: kept.same, ..edit.meta };
        let mut state =
            WatchState { token, index: told.ground.index.clone(), ..told.state.clone() };
        let same = kept.new.is_none() && tree == last.snapshot && meta.says_the_same_as(&last.meta);
        if !cause.always && same {
            // Nothing was added that the store did not have.
            let published = pack.publish()?;
            state.save(&hold.work_tree);
            let mut snapshot = snapshot(&last, false, &listing, read, &published, 0);
            (snapshot.files, snapshot.watched) = (state.files, true);
            return Ok(Some((snapshot, last)));
        }
        let before = Some(&last.snapshot);
        let (kind, details, pack) = hold.credited(cause, pack, before, &tree, &kept)?;
        let new = NewOperation { kind, snapshot: tree, meta, details, companion: kept.new };
        let (operation, published) = hold.work_tree.append(store, pack, Some(&last), new)?;
        for change in changes(&store.objects, &last.snapshot, &tree)? {
            state.files += u64::from(change.before.is_none());
            state.files -= u64::from(change.after.is_none()).min(state.files);
        }
        state.commit = operation.commit;
        state.packs = store.objects.pack_names();
        state.save(&hold.work_tree);
        let mut snapshot = snapshot(&operation, true, &listing, read, &published, 0);
        (snapshot.files, snapshot.watched) = (state.files, true);
        snapshot.quota_mark = room.and_then(|room| passed_mark(room.used, published.bytes));
        Ok(Some((snapshot, operation)))
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
        let failed = last.meta.skipped.iter();
        let failed = failed.filter(|skipped| {
            skipped.reason.is_failure() || skipped.reason == SkipReason::Restless
        });
        let linked = state.linked.iter().cloned().map(PathText::into_bytes);
        let failed = failed.map(|skipped| skipped.path.clone());
        let retries: Vec<Vec<u8>> = failed.chain(linked).collect();
        let hopeless =
            last.meta.skipped.iter().any(|skipped| skipped.reason == SkipReason::UnreadableIndex);
        Ok((!hopeless && retries.len() <= MAX_RETRIES).then_some(retries))
    }

    /// Lists and reads what is dirty, and what becomes dirty while something is missing.
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
    ) -> Result<Option<Looked>, Error> {
        let (mut paths, mut token) = (paths, told.token.clone());
        for _ in 0..ROUNDS {
            let dirty = Dirty::new(paths.iter().cloned());
            if dirty.covers(b"") {
                return Ok(None);
            }
            let mut listing = self.list_dirty(hold, &dirty, keep, progress)?;
            let read = self.check_budget(hold, &listing, progress)?;
            let room = self.room_for(hold, cause, &listing)?;
            if room.is_some_and(|room| !room.fits_all(keep, &listing)) {
                // What is left out then is decided over everything.
                return Ok(None);
            }
            let threads = if read < MANY_FILES { 1 } else { self.options.threads.max(1) };
            read_listing(&hold.root, &mut listing, keep, threads, progress)?;
            let settled =
                listing.vanished.is_empty() && dirty.paths().all(|path| is_listed(&listing, path));
            if settled {
                return Ok(Some(Looked { token, dirty, listing, read, room }));
            }
            match self.ask(hold, told.ground, Some(token.clone())) {
                Some((now, Some(more))) if more.is_empty() && listing.vanished.is_empty() => {
                    return Ok(Some(Looked { token: now, dirty, listing, read, room }));
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

    /// Lists what is dirty, by the rules of a scan of everything.
    fn list_dirty(
        &self,
        hold: &Hold,
        dirty: &Dirty,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<Listing, Error> {
        if dirty.paths().next().is_none() {
            return Ok(Listing::default());
        }
        let cache = StatCache::default();
        let rules = self.outer_rules(&hold.store)?.base();
        let input = self.list_input(
            &hold.store,
            &hold.root,
            &cache,
            rules,
            false,
            &TrackOptions::default(),
        )?;
        // A few paths are not worth the threads.
        let input = ListInput { only: Some(dirty), threads: 1, ..input };
        let listing = list(&hold.root, &input, keep, progress)?;
        // The user's index is large. It only matters for what is ignored or new and large.
        let matters = |content: &Content| {
            matches!(content, Content::Ignored | Content::Skipped(SkipReason::TooLarge { .. }))
        };
        let mut entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
        let Some(repo) =
            self.repo.as_ref().filter(|_| entries.any(|entry| matters(&entry.content)))
        else {
            return Ok(listing);
        };
        let (index, _) = repo.index()?;
        list(&hold.root, &ListInput { index: index.as_ref(), ..input }, keep, progress)
    }
}

/// What was looked at, and the moment from which on it has to be looked at again.
struct Looked {
    token: Token,
    dirty: Dirty,
    listing: Listing,
    read: u64,
    room: Option<Allowance>,
}

fn is_listed(listing: &Listing, path: &[u8]) -> bool {
    let (parent, name) = split(path);
    let entries = dir_at(listing, parent).map(|dir| dir.entries.as_slice()).unwrap_or_default();
    entries.iter().any(|entry| *entry.name == *name)
}

fn dir_at<'a>(listing: &'a Listing, path: &[u8]) -> Option<&'a crate::scan::ListedDir> {
    let at = listing.dirs.binary_search_by(|dir| dir.path.as_slice().cmp(path)).ok()?;
    Some(&listing.dirs[at])
}

/// Whether the ignore files on the way to what is dirty are those of the last snapshot.
///
/// The watcher tells of every change to one; this is for one that changed a moment ago.
fn rules_hold(
    trees: &Trees<'_>,
    last: &Operation,
    dirty: &Dirty,
    listing: &Listing,
) -> Result<bool, Error> {
    let hidden: BTreeMap<Vec<u8>, Vec<u8>> = last
        .meta
        .rules
        .hidden
        .iter()
        .map(|(path, text)| (path.clone().into_bytes(), text.clone().into_bytes()))
        .collect();
    for way in dirty.ways().filter(|way| dir_at(listing, way).is_some()) {
        let file = join(way, b".gitignore");
        let now = listing.hidden_rules.iter().find(|(path, _)| *path == file);
        let path = TreePath::from_scan(file.clone());
        let then = trees.find(&last.snapshot, &path)?.filter(|entry| entry.kind.is_file());
        let same = match now {
            Some((_, text)) => {
                let id = hash_object(Kind::Blob, text);
                hidden.get(&file) == Some(text)
                    || (then.is_some() && then.map(|then| then.id) == id)
            }
            None => then.is_none() && !hidden.contains_key(&file),
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The last snapshot with what is dirty replaced by what was found.
fn edit(
    trees: &Trees<'_>,
    last: &Operation,
    dirty: &Dirty,
    listing: &Listing,
    read: u64,
) -> Result<Edit, Error> {
    let mut edit = Edit { changes: BTreeMap::new(), meta: last.meta.clone(), read };
    // A directory on the way that was not listed is none any more, or may not be entered.
    let closed = dirty.ways().filter(|way| dir_at(listing, way).is_none());
    let gone: Vec<Vec<u8>> = dirty.paths().chain(closed).map(<[u8]>::to_vec).collect();
    let gone_set = Dirty::new(gone.iter().cloned());
    let is_way = |path: &[u8]| dirty.names_in(path).is_some();
    let Meta { skipped, modes, empty_dirs, rules, .. } = &mut edit.meta;
    skipped.retain(|skipped| !gone_set.covers(&skipped.path));
    modes.retain(|(path, _)| {
        let path = path.clone().into_bytes();
        !gone_set.covers(&path) && !is_way(&path)
    });
    empty_dirs.retain(|dir| !gone_set.covers(dir.as_bytes()));
    rules.hidden.retain(|(path, _)| !gone_set.covers(&path.clone().into_bytes()));
    edit.changes.extend(gone.into_iter().map(|path| (path, None)));
    let kept = edit.meta.rules.hidden.clone();
    edit.take_listing(listing);
    // Of directories on the way, the ignore files were read but not listed; they are the same.
    let is_new = |(path, _): &&(PathText, PathText)| {
        let path = path.clone().into_bytes();
        !is_way(split(&path).0)
    };
    let hidden: Vec<_> = edit.meta.rules.hidden.iter().filter(is_new).cloned().collect();
    edit.meta.rules.hidden = kept;
    edit.meta.rules.hidden.extend(hidden);
    edit.meta.rules.hidden.sort_by_cached_key(|(path, _)| path.clone().into_bytes());
    edit.meta.rules.hidden.dedup();
    settle_empty_dirs(trees, last, listing, &mut edit)?;
    edit.meta.sort();
    edit.meta.skipped.dedup();
    Ok(edit)
}

/// Finds out which of the directories that were looked at hold no captured file, deepest only.
fn settle_empty_dirs(
    trees: &Trees<'_>,
    last: &Operation,
    listing: &Listing,
    edit: &mut Edit,
) -> Result<(), Error> {
    let mut empty: BTreeSet<Vec<u8>> =
        edit.meta.empty_dirs.iter().map(|dir| dir.as_bytes().to_vec()).collect();
    for dir in listing.dirs.iter().filter(|dir| !dir.path.is_empty()) {
        if holds_files(trees, last, &edit.changes, &dir.path)? {
            empty.remove(&dir.path);
        } else {
            empty.insert(dir.path.clone());
        }
    }
    let parents: BTreeSet<Vec<u8>> = empty
        .iter()
        .flat_map(|dir| super::absence::parents(dir).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    let deepest = empty.into_iter().filter(|dir| !parents.contains(dir));
    edit.meta.empty_dirs = deepest.map(TreePath::from_scan).collect();
    Ok(())
}

type Changes = BTreeMap<Vec<u8>, crate::store::TreeChange>;

/// Whether anything is captured in the directory `dir` after the changes.
fn holds_files(
    trees: &Trees<'_>,
    last: &Operation,
    changes: &Changes,
    dir: &[u8],
) -> Result<bool, Error> {
    let start = join(dir, b"");
    let below = || {
        let after = changes.range(start.clone()..);
        after.take_while(|(path, _)| is_within(path, dir))
    };
    if below().any(|(_, change)| change.is_some()) {
        return Ok(true);
    }
    let is_gone = |path: &[u8]| {
        changes.get(path).is_some_and(Option::is_none)
            || super::absence::parents(path)
                .any(|above| changes.get(above).is_some_and(Option::is_none))
    };
    if is_gone(dir) {
        return Ok(false);
    }
    let path = TreePath::from_scan(dir.to_vec());
    let Some(entry) = trees.find(&last.snapshot, &path)?.filter(|entry| entry.kind.is_tree())
    else {
        return Ok(false);
    };
    // No tree of a snapshot is empty, so one name that stays is enough.
    for (name, kind) in trees.names(&entry.id)? {
        let path = join(dir, &name);
        let next = changes.range(join(&path, b"")..).next();
        let untouched = !changes.contains_key(&path)
            && next.is_none_or(|(changed, _)| !is_within(changed, &path));
        let stays = untouched || (kind.is_tree() && holds_files(trees, last, changes, &path)?);
        if stays {
            return Ok(true);
        }
    }
    Ok(false)
}
