//! Databases and their sidecar files, which must be of the same moment.

use crate::error::Error;
use crate::fs::Dir;

use super::stable::{Outcome, TRIES, read_entry};
use super::{Content, EntryStat, Keep, ListedDir, ListedEntry, Listing, SkipReason};

/// Suffixes of files that belong to a database beside them.
pub(crate) const SIDECARS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// Returns the names of files that have a sidecar beside them.
pub(crate) fn with_sidecars<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<Vec<u8>> {
    let all = names.clone();
    let main = |name: &'a [u8]| SIDECARS.iter().find_map(|end| name.strip_suffix(*end));
    let mut mains: Vec<Vec<u8>> = names
        .filter_map(main)
        .filter(|main| all.clone().any(|name| name == *main))
        .map(<[u8]>::to_vec)
        .collect();
    mains.dedup();
    mains
}

/// Returns the positions of directories with databases of which a part has to be read, and the
/// names of these databases.
pub(super) fn dirs_with_databases(listing: &Listing) -> Vec<(usize, Vec<Vec<u8>>)> {
    let is_read = |dir: &ListedDir, name: &[u8]| {
        dir.entries.iter().any(|entry| *entry.name == *name && entry.content == Content::ToRead)
    };
    let databases = |dir: &ListedDir| {
        let mut mains = with_sidecars(dir.entries.iter().map(|entry| &*entry.name));
        mains.retain(|main| parts_of(main).any(|part| is_read(dir, &part)));
        mains
    };
    let all = listing.dirs.iter().map(databases).enumerate();
    all.filter(|(_, mains)| !mains.is_empty()).collect()
}

/// Returns the names of a database and of its sidecar files.
pub(crate) fn parts_of(main: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let sidecars = SIDECARS.iter().map(move |end| [main, *end].concat());
    std::iter::once(main.to_vec()).chain(sidecars)
}

/// Reads the databases `mains` and their sidecar files again until none of them changed, appeared
/// or disappeared while the others were read. If that fails, they are skipped: parts from different
/// moments would be a corrupt database. Returns the names of the skipped files.
pub(crate) fn reread_databases(
    dir: &Dir,
    mains: &[impl AsRef<[u8]>],
    entries: &mut Vec<ListedEntry>,
    keep: &dyn Keep,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut skipped = Vec::new();
    let place = |entries: &[ListedEntry], name: &[u8]| {
        let at = entries.iter().position(|entry| *entry.name == *name)?;
        matches!(entries[at].content, Content::Known(_)).then_some(at)
    };
    for main in mains.iter().map(AsRef::as_ref) {
        if place(entries, main).is_none() {
            continue;
        }
        let is_same = |entries: &[ListedEntry], name: &[u8]| match dir.stat(name) {
            Ok(now) => {
                let entry = entries.iter().find(|entry| *entry.name == *name);
                // A part without known content is a directory or was skipped for another reason.
                let is_known = |entry: &ListedEntry| matches!(entry.content, Content::Known(_));
                entry.is_some_and(|entry| !is_known(entry))
                    || now.map(|now| EntryStat::from(&now)) == entry.map(|entry| entry.stat)
            }
            Err(_) => false,
        };
        let is_consistent =
            |entries: &[ListedEntry]| parts_of(main).all(|part| is_same(entries, &part));
        for _ in 1..TRIES {
            if is_consistent(entries) {
                break;
            }
            for name in parts_of(main) {
                let Some(at) = place(entries, &name) else { continue };
                let entry = &mut entries[at];
                match read_entry(dir, &entry.name, entry.stat.kind, keep)? {
                    Outcome::Read { stat, id, racy } => {
                        (entry.stat, entry.content, entry.racy) = (stat, Content::Known(id), racy);
                    }
                    Outcome::Gone => drop(entries.remove(at)),
                    Outcome::Skip(_) => (),
                }
            }
        }
        if is_consistent(entries) {
            continue;
        }
        for name in parts_of(main) {
            let Some(at) = place(entries, &name) else { continue };
            entries[at].content = Content::Skipped(SkipReason::Unstable);
            skipped.push(name);
        }
    }
    Ok(skipped)
}
