//! Captures the ignored files that are kept.

use std::collections::BTreeMap;

use crate::compare::{Now, NowAt, entry_kind};
use crate::error::Error;
use crate::fs::{MODE_BITS, Time};
use crate::log::IgnoredData;
use crate::path::{PathText, split};
use crate::scan::{EntryStat, Listing, ReadOutcome, SIDECARS, is_racy};
use crate::store::TreeChange;

use super::super::file::capture;
use super::super::keep::StoreKeep;
use super::super::recording::Recording;
use super::super::remembered::Remembered;

/// The captured files.
pub(super) struct Gathered<'a> {
    recording: &'a Recording<'a>,
    known: &'a BTreeMap<Vec<u8>, Remembered>,
    pub(super) entries: BTreeMap<Vec<u8>, TreeChange>,
    pub(super) data: IgnoredData,
    seen: Vec<Remembered>,
}

impl<'a> Gathered<'a> {
    /// Returns no files yet. Those that are `known` are read only if they changed.
    pub(super) fn new(
        recording: &'a Recording<'a>,
        known: &'a BTreeMap<Vec<u8>, Remembered>,
        data: IgnoredData,
    ) -> Gathered<'a> {
        Gathered { recording, known, entries: BTreeMap::new(), data, seen: Vec::new() }
    }

    /// Captures one file, unless it does not exist.
    pub(super) fn add(&mut self, path: &[u8], named: bool) -> Result<(), Error> {
        let Recording { hold, pack, .. } = self.recording;
        let before = Time::now();
        let (parent, name) = split(path);
        let Ok(dir) = hold.root.open_below(parent) else { return Ok(()) };
        let Ok(Some(stat)) = dir.stat(name) else { return Ok(()) };
        let trust = hold.root.trust()?;
        let remembered =
            self.known.get(path).and_then(|known| known.holds(&EntryStat::from(&stat), trust));
        let (stat, id) = match remembered.filter(|id| hold.store.objects.holds(id)) {
            Some(id) => (EntryStat::from(&stat), id),
            None => {
                let keep = StoreKeep::new(&hold.store, pack);
                match capture(&hold.root, path, stat.kind, &keep)? {
                    ReadOutcome::Read { stat, id, .. } => (stat, id),
                    ReadOutcome::Gone => return Ok(()),
                    // It is unreadable or keeps changing.
                    ReadOutcome::Skip(_) => {
                        self.data.unknown.push(PathText::from_bytes(path));
                        return Ok(());
                    }
                }
            }
        };
        let Some(kind) = entry_kind(&stat) else { return Ok(()) };
        let mode = stat.mode & MODE_BITS;
        let usual = if mode & 0o100 != 0 { 0o755 } else { 0o644 };
        if kind.is_file() && mode != usual {
            self.data.modes.push((PathText::from_bytes(path), mode));
        }
        self.entries.insert(path.to_vec(), Some((kind, id)));
        let trusted = !is_racy(stat.ctime, before);
        self.seen.push(Remembered::of(path, named, &stat, trusted.then_some(id)));
        Ok(())
    }

    /// Keeps a database and its sidecar files only if they are consistent. Otherwise they are
    /// listed as unknown.
    pub(super) fn check_databases(&mut self, listing: &Listing) -> Result<(), Error> {
        const TRIES: usize = 4;
        let now = Now::of(listing);
        let sidecar = |path: &&Vec<u8>| SIDECARS.iter().any(|end| path.ends_with(end));
        let sidecars: Vec<Vec<u8>> = self.entries.keys().filter(sidecar).cloned().collect();
        for path in sidecars {
            let main = SIDECARS.iter().find_map(|end| path.strip_suffix(*end)).unwrap_or(&path);
            let parts: Vec<Vec<u8>> = SIDECARS
                .iter()
                .map(|end| [main, *end].concat())
                .chain([main.to_vec()])
                .filter(|part| self.entries.contains_key(part))
                .collect();
            // A main file in the snapshot itself was read before.
            let held = match now.at(main) {
                NowAt::File { stat, .. } => Some(stat),
                _ => None,
            };
            let held_is_same = |made: &Gathered<'_>| {
                held.is_none_or(|held| made.stat(main).is_some_and(|now| now == held))
            };
            let mut unchanged = held_is_same(self) && self.are_unchanged(&parts);
            for _ in 1..TRIES {
                if unchanged || held.is_some() {
                    break;
                }
                for part in &parts {
                    let named = self.is_named(part);
                    self.forget(part);
                    self.add(part, named)?;
                }
                unchanged = self.are_unchanged(&parts);
            }
            for part in parts.iter().filter(|_| !unchanged) {
                self.forget(part);
                self.data.unknown.push(PathText::from_bytes(part));
            }
        }
        Ok(())
    }

    /// Returns whether the files among `paths` are the same as when they were captured.
    fn are_unchanged(&self, paths: &[Vec<u8>]) -> bool {
        self.seen.iter().all(|seen| {
            let path = seen.path.clone().into_bytes();
            !paths.contains(&path) || self.stat(&path).is_some_and(|now| seen.is_same(&now))
        })
    }

    fn is_named(&self, path: &[u8]) -> bool {
        self.seen.iter().any(|seen| seen.named && seen.path.clone().into_bytes() == path)
    }

    fn stat(&self, path: &[u8]) -> Option<EntryStat> {
        self.recording.hold.root.glimpse_stat(path).map(|stat| EntryStat::from(&stat))
    }

    fn forget(&mut self, path: &[u8]) {
        self.entries.remove(path);
        self.seen.retain(|seen| seen.path.clone().into_bytes() != path);
        self.data.modes.retain(|(known, _)| known.clone().into_bytes() != path);
    }

    /// Returns the metadata of the captured files, as it is saved.
    pub(super) fn remembered(&self) -> Vec<u8> {
        serde_json::to_vec(&self.seen).expect("plain data has a JSON form")
    }
}
