//! Files outside of the project that an agent's tool was about to change: kept for a while, listed
//! by undo, and put back only when asked for.
//!
//! One directory per step below the data directory holds their content and a manifest: what each
//! was before the tool ran, and what it left. A capture of which nothing changed is removed at once.

use std::collections::BTreeSet;
use std::fs::{self, FileTimes, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::private::{self, fingerprint};

/// What is kept of one tool call.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: u64 = 64 << 20;
/// Captures are kept for so long, and no more of them than this in all.
const MAX_AGE: Duration = Duration::from_secs(60 * 60 * 24 * 7);
const MAX_TOTAL_BYTES: u64 = 1 << 30;
const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// The captures of one work tree.
#[derive(Clone, Debug)]
pub struct Outside {
    dir: PathBuf,
    data_dir: PathBuf,
}

/// What a path was, or is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum What {
    Absent,
    Dir {
        mode: u32,
    },
    File {
        mode: u32,
        bytes: u64,
        mtime: SystemTime,
    },
    Symlink {
        target: Vec<u8>,
    },
    /// A socket, a device: nothing of ours.
    Special,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    path: Vec<u8>,
    before: What,
    /// The file with its content, if it was one.
    content: Option<usize>,
    /// What the tool left; `None` while it runs.
    after: Option<What>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Manifest {
    entries: Vec<Entry>,
    /// Files that did not fit.
    left_out: u64,
}

/// A path outside of the project that a step changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The path.
    pub path: PathBuf,
    /// What putting it back does or did.
    pub deed: Deed,
}

/// What putting a path back does, did or cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is made again.
    Create,
    /// It gets its content back.
    Overwrite,
    /// It goes, because it was not there.
    Remove,
    /// It stays; says why.
    Keep(String),
}

/// Whether to put paths back that were changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// They stay.
    Keep,
    /// They are put back; what was there is kept aside.
    Overwrite,
}

impl Outside {
    /// The captures for the work tree `root`.
    pub fn of(data_dir: &Path, root: &Path) -> Outside {
        let name = fingerprint(&[root.as_os_str().as_bytes()]);
        let all = data_dir.join("agents/outside");
        Outside { dir: all.join(format!("{name:016x}")), data_dir: data_dir.to_owned() }
    }

    /// Keeps what lies at the paths before a step changes it.
    pub fn capture(&self, step: &str, paths: &[PathBuf]) -> io::Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        self.forget_old();
        let dir = self.step_dir(step);
        private::create_dirs(&dir)?;
        // A step may be begun twice, before its tool runs or after: what was there first counts.
        let mut manifest = load(&dir).unwrap_or_default();
        manifest.entries.iter_mut().for_each(|entry| entry.after = None);
        let mut capture = Capture { dir: &dir, manifest, bytes: 0 };
        for path in paths.iter().filter(|path| !path.starts_with(&self.data_dir)) {
            capture.add(path)?;
        }
        save(&dir, &capture.manifest)
    }

    /// Notes what a step left. If that is what was there, nothing is kept.
    pub fn settle(&self, step: &str) -> io::Result<()> {
        let dir = self.step_dir(step);
        let Some(mut manifest) = load(&dir) else { return Ok(()) };
        for entry in manifest.entries.iter_mut().filter(|entry| entry.after.is_none()) {
            entry.after = Some(look(&path_of(entry)));
        }
        match manifest.entries.iter().any(Entry::is_changed) {
            true => save(&dir, &manifest),
            false => fs::remove_dir_all(&dir),
        }
    }

    /// What steps changed out there, and what putting it back would do now.
    pub fn changed(&self, steps: &[String], conflicts: OnConflict) -> Vec<Changed> {
        let mut found = Vec::new();
        for step in steps.iter().rev() {
            let Some(manifest) = load(&self.step_dir(step)) else { continue };
            for entry in manifest.entries.iter().filter(|entry| entry.is_changed()) {
                let deed = entry.deed(conflicts);
                found.extend(deed.map(|deed| Changed { path: path_of(entry), deed }));
            }
        }
        found
    }

    /// Puts back what steps changed out there, newest step first.
    pub fn put_back(&self, steps: &[String], conflicts: OnConflict) -> Vec<Changed> {
        let mut done = Vec::new();
        for step in steps.iter().rev() {
            let dir = self.step_dir(step);
            let Some(manifest) = load(&dir) else { continue };
            // Directories come before what is in them, and go after it.
            let changed = manifest.entries.iter().filter(|entry| entry.is_changed());
            let (gone, back): (Vec<&Entry>, Vec<&Entry>) =
                changed.partition(|entry| entry.before == What::Absent);
            for entry in back.into_iter().chain(gone.into_iter().rev()) {
                let Some(deed) = entry.deed(conflicts) else { continue };
                let failed = match deed {
                    Deed::Keep(_) => Ok(()),
                    Deed::Create | Deed::Overwrite | Deed::Remove => entry.put_back(&dir),
                };
                let deed = failed.map_or_else(|error| Deed::Keep(error.to_string()), |()| deed);
                done.push(Changed { path: path_of(entry), deed });
            }
        }
        done
    }

    fn step_dir(&self, step: &str) -> PathBuf {
        // A step's id may come from anywhere; its number may not.
        self.dir.join(format!("{:016x}", fingerprint(&[step.as_bytes()])))
    }

    /// Removes captures that are too old, and the oldest beyond what all of them may take.
    fn forget_old(&self) {
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let made = entry.metadata().and_then(|meta| meta.modified());
            let made = made.unwrap_or(SystemTime::UNIX_EPOCH);
            kept.push((made, size_of(&entry.path()), entry.path()));
        }
        kept.sort();
        let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (made, bytes, path) in kept {
            let old = SystemTime::now().duration_since(made).is_ok_and(|age| age > MAX_AGE);
            if old || total > MAX_TOTAL_BYTES {
                total = total.saturating_sub(bytes);
                // What cannot be removed is tried again next time.
                fs::remove_dir_all(path).ok();
            }
        }
    }
}

struct Capture<'a> {
    dir: &'a Path,
    manifest: Manifest,
    bytes: u64,
}

impl Capture<'_> {
    /// Keeps a path, and what is below it if it is a directory.
    fn add(&mut self, top: &Path) -> io::Result<()> {
        let known: BTreeSet<PathBuf> = self.manifest.entries.iter().map(path_of).collect();
        let mut paths = vec![top.to_owned()];
        while let Some(path) = paths.pop() {
            let before = look(&path);
            if let What::Dir { .. } = before {
                let below = fs::read_dir(&path).into_iter().flatten().flatten();
                let mut below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
                below.sort_by(|a, b| b.cmp(a));
                paths.extend(below);
            }
            if known.contains(&path) {
                continue;
            }
            let is_file = matches!(before, What::File { .. });
            let bytes = if let What::File { bytes, .. } = before { bytes } else { 0 };
            let fits = self.manifest.entries.len() < MAX_FILES && self.bytes + bytes <= MAX_BYTES;
            if !fits {
                self.manifest.left_out += u64::from(is_file);
                if self.manifest.entries.len() >= MAX_FILES {
                    return Ok(());
                }
                continue;
            }
            let content = match is_file {
                true => match self.copy(&path) {
                    Ok(number) => Some(number),
                    // It cannot be read, so it cannot be put back.
                    Err(_) => continue,
                },
                false => None,
            };
            self.bytes += bytes;
            let path = path.into_os_string().into_vec();
            self.manifest.entries.push(Entry { path, before, content, after: None });
        }
        Ok(())
    }

    fn copy(&self, path: &Path) -> io::Result<usize> {
        let number = self.manifest.entries.len();
        let copy = self.dir.join(number.to_string());
        fs::copy(path, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
        Ok(number)
    }
}

impl Entry {
    fn is_changed(&self) -> bool {
        match (&self.before, &self.after) {
            (before, Some(after)) => before.differs(after),
            (before, None) => before.differs(&look(&path_of(self))),
        }
    }

    /// What putting it back takes; `None` if it is as it was.
    fn deed(&self, conflicts: OnConflict) -> Option<Deed> {
        let now = look(&path_of(self));
        if !self.before.differs(&now) {
            return None;
        }
        let left = self.after.as_ref().unwrap_or(&now);
        if left.differs(&now) && conflicts == OnConflict::Keep {
            return Some(Deed::Keep("it was changed since".into()));
        }
        Some(match (&self.before, &now) {
            (What::Special, _) => Deed::Keep("it is no file".into()),
            (What::Absent, _) => Deed::Remove,
            (_, What::Absent) => Deed::Create,
            _ => Deed::Overwrite,
        })
    }

    fn put_back(&self, dir: &Path) -> io::Result<()> {
        let path = path_of(self);
        check_parent(&path)?;
        let now = look(&path);
        if !matches!(now, What::Absent | What::Dir { .. }) {
            self.set_aside(dir, &path)?;
        }
        match &self.before {
            What::Absent => match now {
                What::Dir { .. } => fs::remove_dir(&path),
                _ => fs::remove_file(&path),
            },
            What::Dir { mode } => {
                fs::create_dir_all(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
            }
            What::File { mode, mtime, .. } => {
                let number = self.content.ok_or(io::ErrorKind::NotFound)?;
                let staged = staged(&path);
                fs::copy(dir.join(number.to_string()), &staged)?;
                let file = fs::OpenOptions::new().append(true).open(&staged)?;
                file.set_times(FileTimes::new().set_modified(*mtime))?;
                file.set_permissions(fs::Permissions::from_mode(*mode))?;
                file.sync_all()?;
                fs::rename(&staged, &path)
            }
            What::Symlink { target } => {
                let staged = staged(&path);
                symlink(Path::new(std::ffi::OsStr::from_bytes(target)), &staged)?;
                fs::rename(&staged, &path)
            }
            What::Special => Ok(()),
        }
    }

    /// Keeps what is about to be replaced, so that nothing is lost by putting something back.
    fn set_aside(&self, dir: &Path, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_file() {
            let number = fingerprint(&[&self.path]);
            fs::copy(path, dir.join(format!("replaced-{number:016x}")))?;
        }
        Ok(())
    }
}

impl What {
    /// Whether two looks at a path saw different things. A directory is the same while it is one.
    fn differs(&self, other: &What) -> bool {
        match (self, other) {
            (What::Dir { .. }, What::Dir { .. }) => false,
            (one, other) => one != other,
        }
    }
}

fn look(path: &Path) -> What {
    match fs::symlink_metadata(path) {
        Err(_) => What::Absent,
        Ok(meta) if meta.is_dir() => What::Dir { mode: meta.mode() & 0o7777 },
        Ok(meta) if meta.is_symlink() => match fs::read_link(path) {
            Ok(target) => What::Symlink { target: target.into_os_string().into_vec() },
            Err(_) => What::Special,
        },
        Ok(meta) if meta.is_file() => file(&meta),
        Ok(_) => What::Special,
    }
}

fn file(meta: &Metadata) -> What {
    let mtime = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    What::File { mode: meta.mode() & 0o7777, bytes: meta.len(), mtime }
}

/// Refuses to write through a symlink that was not there when the path was kept.
fn check_parent(path: &Path) -> io::Result<()> {
    let existing = path.ancestors().skip(1).find(|dir| dir.symlink_metadata().is_ok());
    match existing {
        Some(dir) if dir.canonicalize()? == dir => fs::create_dir_all(path.parent().unwrap_or(dir)),
        Some(_) => Err(io::Error::other("a symlink leads there now")),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

fn staged(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.ctrlz-{}", std::process::id()))
}

fn path_of(entry: &Entry) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(entry.path.clone()))
}

fn size_of(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
}

fn load(dir: &Path) -> Option<Manifest> {
    let bytes = private::read(&dir.join("manifest"), MAX_MANIFEST_BYTES).ok()??;
    serde_json::from_slice(&bytes).ok()
}

fn save(dir: &Path, manifest: &Manifest) -> io::Result<()> {
    let bytes = serde_json::to_vec(manifest).expect("plain data has a JSON form");
    private::replace(&dir.join("manifest"), &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lab {
        temp: tempfile::TempDir,
        outside: Outside,
    }

    fn lab() -> Lab {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let outside = Outside::of(&top.join("data"), &top.join("project"));
        Lab { temp, outside }
    }

    impl Lab {
        fn at(&self, name: &str) -> PathBuf {
            self.temp.path().canonicalize().unwrap().join(name)
        }

        fn steps(&self) -> Vec<String> {
            vec!["step".to_owned()]
        }

        fn run(&self, names: &[&str], tool: impl FnOnce()) {
            let paths: Vec<PathBuf> = names.iter().map(|name| self.at(name)).collect();
            self.outside.capture("step", &paths).unwrap();
            tool();
            self.outside.settle("step").unwrap();
        }
    }

    #[test]
    fn deleted_and_changed_files_come_back_and_new_ones_go() {
        let lab = lab();
        fs::create_dir_all(lab.at("photos/deep")).unwrap();
        fs::write(lab.at("photos/deep/1.jpg"), "one").unwrap();
        fs::set_permissions(lab.at("photos/deep/1.jpg"), fs::Permissions::from_mode(0o600))
            .unwrap();
        symlink("deep/1.jpg", lab.at("photos/link")).unwrap();
        fs::write(lab.at("notes"), "mine").unwrap();
        lab.run(&["photos", "notes", "new"], || {
            fs::remove_dir_all(lab.at("photos")).unwrap();
            fs::write(lab.at("notes"), "the agent's text").unwrap();
            fs::write(lab.at("new"), "x").unwrap();
        });
        assert_eq!(lab.outside.changed(&lab.steps(), OnConflict::Keep).len(), 6);
        assert!(!lab.at("photos").exists(), "listing writes nothing");
        let done = lab.outside.put_back(&lab.steps(), OnConflict::Keep);
        assert!(done.iter().all(|done| !matches!(done.deed, Deed::Keep(_))), "{done:?}");
        assert_eq!(fs::read_to_string(lab.at("photos/link")).unwrap(), "one");
        let mode = fs::metadata(lab.at("photos/deep/1.jpg")).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(fs::read_to_string(lab.at("notes")).unwrap(), "mine");
        assert!(!lab.at("new").exists());
        assert_eq!(lab.outside.changed(&lab.steps(), OnConflict::Keep), []);
    }

    #[test]
    fn what_was_there_before_the_first_of_two_begins_counts() {
        let lab = lab();
        fs::create_dir_all(lab.at("photos")).unwrap();
        fs::write(lab.at("photos/1"), "one").unwrap();
        lab.run(&["photos"], || fs::remove_dir_all(lab.at("photos")).unwrap());
        lab.run(&["photos", "more"], || fs::write(lab.at("more"), "x").unwrap());
        lab.outside.put_back(&lab.steps(), OnConflict::Keep);
        assert_eq!(fs::read_to_string(lab.at("photos/1")).unwrap(), "one");
        assert!(!lab.at("more").exists());
    }

    #[test]
    fn what_was_changed_since_stays_unless_forced() {
        let lab = lab();
        fs::write(lab.at("notes"), "mine").unwrap();
        lab.run(&["notes"], || fs::write(lab.at("notes"), "the agent's text").unwrap());
        fs::write(lab.at("notes"), "mine again, and longer").unwrap();
        let done = lab.outside.put_back(&lab.steps(), OnConflict::Keep);
        assert!(matches!(done[0].deed, Deed::Keep(_)), "{done:?}");
        assert_eq!(fs::read_to_string(lab.at("notes")).unwrap(), "mine again, and longer");
        lab.outside.put_back(&lab.steps(), OnConflict::Overwrite);
        assert_eq!(fs::read_to_string(lab.at("notes")).unwrap(), "mine");
    }

    #[test]
    fn what_was_not_changed_is_not_kept() {
        let lab = lab();
        fs::write(lab.at("notes"), "mine").unwrap();
        lab.run(&["notes"], || ());
        assert!(!lab.outside.step_dir("step").exists());
    }

    #[test]
    fn what_is_kept_is_bounded_and_private() {
        let lab = lab();
        fs::create_dir_all(lab.at("many")).unwrap();
        for number in 0..MAX_FILES + 50 {
            fs::write(lab.at(&format!("many/{number}")), "x").unwrap();
        }
        lab.run(&["many"], || fs::remove_dir_all(lab.at("many")).unwrap());
        assert_eq!(lab.outside.changed(&lab.steps(), OnConflict::Keep).len(), MAX_FILES);
        for entry in fs::read_dir(lab.outside.step_dir("step")).unwrap().flatten() {
            assert_eq!(entry.metadata().unwrap().mode() & 0o077, 0, "{:?}", entry.path());
        }
    }

    #[test]
    fn nothing_is_written_through_a_symlink_that_came_since() {
        let lab = lab();
        fs::create_dir_all(lab.at("photos")).unwrap();
        fs::create_dir_all(lab.at("elsewhere")).unwrap();
        fs::write(lab.at("photos/1"), "one").unwrap();
        lab.run(&["photos"], || {
            fs::remove_dir_all(lab.at("photos")).unwrap();
            symlink(lab.at("elsewhere"), lab.at("photos")).unwrap();
        });
        lab.outside.put_back(&lab.steps(), OnConflict::Overwrite);
        assert_eq!(fs::read_dir(lab.at("elsewhere")).unwrap().count(), 0);
    }
}
