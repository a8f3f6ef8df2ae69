//! Changes of permissions.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::fs::{Dir, FileKind, MODE_BITS, Named, set_mode};
use crate::path::{PathText, split};

use super::journal::Journal;
use super::place::{Near, place};
use super::plan::ModeChange;

/// Returns this user's read-only directories in which entries change. Root can write anyway.
pub(super) fn read_only_dirs(root: &Dir, journal: &Journal) -> Vec<ModeChange> {
    const WRITABLE: u32 = 0o300;
    let me = rustix::process::geteuid();
    if me.is_root() {
        return Vec::new();
    }
    let units = journal.units.iter().map(|unit| unit.path.as_slice());
    let paths = units.chain(journal.emptied.iter().map(PathText::as_bytes));
    let dirs: BTreeSet<&[u8]> = paths.map(|path| split(path).0).collect();
    let read_only = dirs.into_iter().filter_map(|dir| {
        let stat = root.open_below(dir).ok()?.stat_self().ok()?;
        let is_read_only = stat.mode & WRITABLE != WRITABLE && stat.uid == me.as_raw();
        let from = stat.mode & MODE_BITS;
        is_read_only.then(|| ModeChange::of_dir(dir.to_vec(), from, from | WRITABLE))
    });
    read_only.collect()
}

/// Makes the read-only directories of a journal writable.
pub(super) fn open_dirs(root: &Dir, journal: &Journal) -> Result<(), Error> {
    for change in &journal.opened {
        let dir = root.open_below(&change.path)?;
        if dir.stat_self()?.mode & MODE_BITS == change.from {
            dir.set_exact_mode_of_dir(change.to)?;
        }
    }
    Ok(())
}

/// Makes the directories of a journal read-only again. Best effort: directories that were removed
/// or changed meanwhile are left alone.
pub(super) fn close_dirs(root: &Dir, journal: &Journal) {
    for change in journal.opened.iter().rev() {
        let Ok(dir) = root.open_below(&change.path) else { continue };
        if dir.stat_self().is_ok_and(|stat| stat.mode & MODE_BITS == change.to) {
            drop(dir.set_exact_mode_of_dir(change.from));
        }
    }
}

/// Fails if the permissions of a directory that the restore will change were changed meanwhile.
pub(super) fn check_dir_modes(root: &Dir, journal: &Journal) -> Result<(), Error> {
    for change in journal.modes.iter().filter(|change| change.is_dir) {
        let mode = root.open_below(&change.path)?.stat_self()?.mode & MODE_BITS;
        let opened = journal.opened.iter().find(|opened| opened.path == change.path);
        let expected = opened.map_or(change.from, |opened| opened.to);
        if mode != expected && mode != change.to {
            return Err(Error::moved(&change.path));
        }
    }
    Ok(())
}

pub(super) fn change_mode(
    root: &Dir,
    change: &ModeChange,
    from: u32,
    to: u32,
) -> Result<(), Error> {
    let mut near = Near::of(root);
    let (dir, name) = place(&mut near, &change.path)?;
    let current = dir.stat(name)?;
    let expected = if change.is_dir { FileKind::Dir } else { FileKind::File };
    match current {
        Some(stat) if stat.kind == expected && stat.mode & MODE_BITS == to => return Ok(()),
        Some(stat) if stat.kind == expected && stat.mode & MODE_BITS == from => (),
        _ => return Err(Error::moved(&change.path)),
    }
    if change.is_dir {
        return Ok(dir.open_below(name)?.set_exact_mode_of_dir(to)?);
    }
    let file = dir.open_file(name)?;
    Ok(set_mode(&file, to).named("set the permissions of", &dir.path_of(name))?)
}
