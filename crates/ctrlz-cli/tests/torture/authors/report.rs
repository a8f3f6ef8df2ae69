//! The report of an undo or redo, and its comparison with the changes of the files.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::Value;

use crate::manifest::{Entry, Manifest};

use super::oracle::{Checked, check, is_within};

/// The report of an undo, redo, revert or unrevert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) is_complete: bool,
    pub(crate) steps: Vec<String>,
    done: BTreeSet<(String, String)>,
    /// Paths that were left unchanged, with the machine-readable reason if there is one.
    pub(crate) conflicts: Vec<(String, Option<String>)>,
    ignored: BTreeSet<String>,
    kept: BTreeSet<String>,
    left: BTreeSet<String>,
    /// Paths that the steps removed or changed and that are in no snapshot.
    pub(crate) uncaptured: BTreeSet<String>,
    /// Paths that were left unchanged because a process has them open.
    pub(crate) in_use: BTreeSet<String>,
    /// The restore or revert that a plain undo reversed.
    pub(crate) takes_back: Option<String>,
    /// The paths that the command was limited to; empty for all paths.
    pub(crate) limit: Vec<String>,
    pub(crate) safety: Option<String>,
    pub(crate) has_changed: bool,
}

impl Report {
    /// Parses the output of `--json`. Returns `None` for an error.
    pub(crate) fn read(stdout: &str, limit: &[String]) -> Option<Report> {
        let json: Value = serde_json::from_str(stdout).ok()?;
        let text = |value: &Value| value.as_str().map(|text| text.trim_end_matches('/').to_owned());
        let each = |name: &str| json[name].as_array().cloned().unwrap_or_default();
        let paths =
            |name: &str| each(name).iter().filter_map(|entry| text(&entry["path"])).collect();
        let done = each("done");
        let done = done.iter().filter_map(|act| Some((text(&act["action"])?, text(&act["path"])?)));
        let conflicts = each("conflicts");
        let conflicts = conflicts
            .iter()
            .filter_map(|entry| Some((text(&entry["path"])?, text(&entry["reason"]))));
        Some(Report {
            is_complete: json["complete"].as_bool()?,
            steps: each("steps").iter().filter_map(text).collect(),
            done: done.collect(),
            conflicts: conflicts.collect(),
            ignored: paths("ignored"),
            kept: paths("kept"),
            uncaptured: paths("uncaptured"),
            in_use: each("kept")
                .iter()
                .filter(|entry| entry["reason"] == "in_use")
                .filter_map(|entry| text(&entry["path"]))
                .collect(),
            takes_back: text(&json["takes_back"]),
            left: each("left").iter().filter_map(text).collect(),
            limit: limit.to_vec(),
            safety: text(&json["safety_operation"]),
            has_changed: json["after"].is_string(),
        })
    }

    /// Returns every path that is reported as left unchanged.
    pub(crate) fn reported(&self) -> BTreeSet<String> {
        let conflicts = self.conflicts.iter().map(|(path, _)| path);
        let others = [&self.ignored, &self.kept, &self.left, &self.uncaptured];
        conflicts.chain(others.into_iter().flatten()).cloned().collect()
    }

    /// Returns the paths that the command changed.
    pub(crate) fn done_paths(&self) -> impl Iterator<Item = &String> {
        self.done.iter().map(|(_, path)| path)
    }

    /// Returns whether the command was asked to reverse the changes of a path.
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.limit.is_empty() || self.limit.iter().any(|limit| is_within(path, limit))
    }

    /// Checks that the report equals the plan of the dry run before it.
    pub(crate) fn equals_plan(&self, plan: &Report) -> Checked {
        let comparable = |report: &Report| {
            let Report { is_complete, steps, done, conflicts, ignored, kept, .. } = report.clone();
            (is_complete, steps, done, conflicts, ignored, kept)
        };
        check("the dry run and the report differ", comparable(self) == comparable(plan), || {
            format!("planned {plan:?}\n  done {self:?}")
        })
    }

    /// Checks that every reported action happened, and nothing else. `top` is the work tree, which
    /// shows hard links.
    pub(crate) fn equals_difference(
        &self,
        before: &Manifest,
        after: &Manifest,
        top: &Path,
    ) -> Checked {
        for (action, path) in &self.done {
            let (old, new) = (before.0.get(path), after.0.get(path));
            let is_dir = |entry: Option<&Entry>| matches!(entry, Some(Entry::Dir { .. }));
            let happened = match action.as_str() {
                "create" => (old.is_none() || is_dir(old)) && new.is_some() && !is_dir(new),
                "remove" => old.is_some() && (new.is_none() || is_dir(new)),
                "create_directory" => !is_dir(old) && is_dir(new),
                "overwrite" | "set_mode" => old.is_some() && new.is_some() && old != new,
                _ => old != new,
            };
            check("a reported action did not happen", happened, || {
                format!("{action} {path}: {old:?} -> {new:?}")
            })?;
        }
        let paths: BTreeSet<&String> = before.0.keys().chain(after.0.keys()).collect();
        for path in paths {
            let (old, new) = (before.0.get(path), after.0.get(path));
            if old == new {
                continue;
            }
            let is_done = self.done.iter().any(|(_, done)| done == path);
            let above_done = self.done.iter().any(|(_, done)| is_within(done, path));
            // Directories appear and disappear with their files. The report does not list the
            // removal of an empty directory.
            let is_implied = match (old, new) {
                (None, Some(Entry::Dir { .. })) => above_done,
                (Some(Entry::Dir { .. }), None) => true,
                // The names of a file share its permissions. Ignored names are not in the report.
                (Some(Entry::File { bytes: old, .. }), Some(Entry::File { bytes: new, .. })) => {
                    old == new && self.set_mode_of_link(path, top)
                }
                _ => false,
            };
            check("a change is not in the report", is_done || is_implied, || {
                format!("{path}: {old:?} -> {new:?}")
            })?;
        }
        Ok(())
    }

    /// Returns whether the command set the permissions of a file by another of its names.
    fn set_mode_of_link(&self, path: &str, top: &Path) -> bool {
        let inode = |path: &str| top.join(path).symlink_metadata().ok().map(|meta| meta.ino());
        let mut set = self.done.iter().filter(|(action, _)| action == "set_mode");
        set.any(|(_, other)| inode(path).is_some() && inode(other) == inode(path))
    }
}
