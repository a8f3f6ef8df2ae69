//! Undo, redo, revert and unrevert, each with a dry run before and checks after it.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use xtask::Random;

use crate::lab::{Ended, ended, start};
use crate::manifest::Manifest;

use super::actions::{Scope, Then, Victim};
use super::edits::Editor;
use super::oracle::{Author, Checked, Op, Step, Taken, Violation, check, is_within};
use super::report::Report;
use super::world::World;

impl World {
    pub(super) fn undo(&mut self, scope: Scope, then: Then, random: &mut Random) -> Checked {
        let known: Vec<usize> =
            (0..self.oracle.steps.len()).filter(|at| self.oracle.steps[*at].id.is_some()).collect();
        let step = (!known.is_empty()).then(|| self.oracle.steps[*random.pick(&known)].clone());
        let own = |text: &str| text.to_owned();
        let mut limit = Vec::new();
        let args: Vec<String> = match (scope, step) {
            (Scope::SessionTurn, Some(step)) => vec![own("--session"), step.turn.0],
            (Scope::LastStep, _) => vec![own("--last-step")],
            (Scope::Step, Some(step)) => vec![own("--step"), step.id.unwrap_or_default()],
            (Scope::Message, Some(step)) => {
                vec![own("--message"), step.turn.1, own("--session"), step.turn.0]
            }
            (Scope::Session, Some(step)) => vec![own("--all"), own("--session"), step.turn.0],
            (Scope::Force, _) => vec![own("--force")],
            (Scope::Ignored, _) => vec![own("--ignored")],
            (Scope::Path, _) => {
                let path = Editor::pick_path(&self.oracle.seen, random);
                limit.push(path.split('/').next().unwrap_or_default().to_owned());
                Vec::new()
            }
            (
                Scope::Turn | Scope::SessionTurn | Scope::Step | Scope::Message | Scope::Session,
                _,
            ) => Vec::new(),
        };
        let before = Arc::clone(&self.oracle.seen);
        let Some(report) = self.take_back("undo", &args, &limit)? else { return Ok(()) };
        let exact = |world: &World, rule, how: &str| {
            let now = &world.oracle.seen;
            check(rule, **now == *before, || {
                format!("after {how}: now / before the undo\n{}", now.difference(&before))
            })
        };
        match (then, &report.safety) {
            (Then::Redo, Some(_)) if report.has_changed => {
                self.take_back("redo", &[], &[])?;
                exact(self, "undo and redo are not the identity", "redo")
            }
            // The snapshot of the safety operation has no ignored files. Only redo restores those.
            (Then::RestoreSafety, Some(safety))
                if report.has_changed && !self.touches_ignored(&report, &before) =>
            {
                self.say(format!("ctrlz restore --exact --yes {safety}"));
                let ended = self.ctrlz(&["restore", "--exact", "--yes", safety]);
                self.look(Author::Ctrlz);
                self.cut();
                let log = self.read_log();
                if let Some(restore) = log.first().filter(|newest| newest["kind"] == "restore") {
                    self.oracle.add_op(restore, BTreeSet::new(), None);
                }
                check("the safety operation is not restored", ended.code() == Some(0), || {
                    format!("{ended:?}")
                })?;
                exact(self, "the safety operation is another state", "restore")
            }
            _ => Ok(()),
        }
    }

    /// Returns whether an undo wrote or removed ignored files, or a path above or below one.
    fn touches_ignored(&self, report: &Report, before: &Manifest) -> bool {
        let all = before.0.keys().chain(self.oracle.seen.0.keys());
        let ignored: Vec<&String> = all.filter(|path| self.oracle.is_ignored(path)).collect();
        // Large files that a tool named are also kept outside of the snapshot.
        report.done_paths().any(|done| {
            if self.oracle.was_large(done) {
                return true;
            }
            let is_near = |path: &&&String| is_within(path, done) || is_within(done, path);
            self.oracle.is_ignored(done) || ignored.iter().any(|path| is_near(&path))
        })
    }

    pub(super) fn revert(&mut self, random: &mut Random) -> Checked {
        let known: Vec<usize> =
            (0..self.oracle.steps.len()).filter(|at| self.oracle.steps[*at].id.is_some()).collect();
        if known.is_empty() {
            return Ok(());
        }
        let turn = self.oracle.steps[*random.pick(&known)].turn.clone();
        let args = ["--message", &turn.1, "--session", &turn.0].map(str::to_owned);
        self.take_back("revert", &args, &[]).map(drop)
    }

    /// Runs an undo, redo, revert or unrevert after a dry run of it, and checks both. Returns
    /// `None` if it was refused.
    pub(super) fn take_back(
        &mut self,
        name: &str,
        args: &[String],
        limit: &[String],
    ) -> Result<Option<Report>, Violation> {
        let mut line: Vec<&str> = vec![name, "--json", "--yes"];
        line.extend(args.iter().map(String::as_str));
        let paths = (!limit.is_empty()).then_some("--");
        let tail = paths.into_iter().chain(limit.iter().map(String::as_str));
        let dry: Vec<&str> =
            line.iter().copied().chain(["--dry-run"]).chain(tail.clone()).collect();
        let real: Vec<&str> = line.iter().copied().chain(tail).collect();
        self.say(format!("ctrlz {}", real.join(" ")));
        self.cut_for_undo();
        let planned = self.ctrlz(&dry);
        self.unchanged("dry run")?;
        let before = Arc::clone(&self.oracle.seen);
        self.note_linked();
        let ended = self.ctrlz(&real);
        self.look(Author::Ctrlz);
        self.say(format!("  -> {:?} {}", ended.code(), brief(&ended)));
        check("the dry run has another exit code", planned.code() == ended.code(), || {
            format!("dry run {:?}, then {:?}\n{}", planned.code(), ended.code(), ended.stdout)
        })?;
        let after = Arc::clone(&self.oracle.seen);
        let report = Report::read(&ended.stdout, limit);
        let (Some(report), Some(0 | 3)) = (report, ended.code()) else {
            check("a failed command changed files", before == after, || {
                format!("{ended:?}\n{}", after.difference(&before))
            })?;
            return self.refused(name, args, limit, &ended).map(|()| None);
        };
        self.counts.undos += 1;
        self.counts.conflicted += u64::from(!report.is_complete);
        let code = if report.is_complete { 0 } else { 3 };
        check("the exit code contradicts the report", ended.code() == Some(code), || {
            format!("{:?}: {}", ended.code(), ended.stdout)
        })?;
        if let Some(plan) = Report::read(&planned.stdout, limit) {
            report.equals_plan(&plan)?;
        }
        report.equals_difference(&before, &after, &self.lab.work)?;
        self.cut();
        let log = self.read_log();
        // A plain undo reverses a restore or revert if that was the last operation.
        let reverses = report.takes_back.is_some();
        let name = if reverses { "redo" } else { name };
        let taken = self.taken(name, before, &report, &log)?;
        let is_forced = args.iter().any(|arg| arg == "--force");
        self.files_in_use_stay(&report, is_forced)?;
        self.oracle.judge(&taken, &report, &after, is_forced)?;
        if name == "undo" && args.is_empty() && limit.is_empty() {
            self.oracle.is_newest_turn(&taken)?;
        }
        if !report.has_changed && name == "undo" {
            let segments = self.oracle.segments.len();
            self.oracle.tried.extend(taken.undone.iter().map(|step| (*step, segments)));
        }
        // Undoing a revert of the user is recorded as an unrevert, which redo reverses.
        if matches!(name, "redo" | "unrevert") && report.has_changed && !report.conflicts.is_empty()
        {
            for op in taken.redone.clone() {
                self.oracle.narrow(op, &report.conflicts);
            }
        }
        let is_undo = log
            .first()
            .is_some_and(|newest| ["undo", "unrevert"].iter().any(|kind| newest["kind"] == *kind));
        if report.has_changed && (matches!(name, "undo" | "revert") || (reverses && is_undo)) {
            self.oracle.add_op(&log[0], taken.undone, Some(&report));
        }
        Ok(Some(report))
    }

    /// Checks that files opened by a process were neither replaced nor removed, and that every path
    /// reported as in use is such a file.
    fn files_in_use_stay(&self, report: &Report, is_forced: bool) -> Checked {
        for path in &report.in_use {
            let meta = self.lab.work.join(path).metadata().ok();
            let is_same = |file: &File| {
                let (Ok(file), Some(meta)) = (file.metadata(), &meta) else { return false };
                file.ino() == meta.ino()
            };
            check("a file is not in use", self.held.iter().any(is_same), || path.clone())?;
        }
        for file in &self.held {
            let is_unlinked = file.metadata().is_ok_and(|meta| meta.nlink() == 0);
            let by_us = is_unlinked && report.done_paths().next().is_some() && !is_forced;
            let was_linked = self.linked.contains(&file.metadata().map_or(0, |meta| meta.ino()));
            check("a file in use was replaced", !(by_us && was_linked), || format!("{report:?}"))?;
        }
        Ok(())
    }

    /// Records the inodes of the held files that still have a name.
    fn note_linked(&mut self) {
        let meta = self.held.iter().filter_map(|file| file.metadata().ok());
        self.linked = meta.filter(|meta| meta.nlink() > 0).map(|meta| meta.ino()).collect();
    }

    /// Checks a command that found nothing to do or was refused.
    fn refused(&mut self, name: &str, args: &[String], limit: &[String], ended: &Ended) -> Checked {
        let is_open = self.oracle.steps.iter().any(|step| step.is_open);
        let expected = match ended.code() {
            Some(4) => true,
            // A revert is refused while the session has open steps.
            Some(5) => is_open && matches!(name, "revert" | "unrevert"),
            _ => false,
        };
        let rule = match ended.code() {
            Some(5) => "a command found the files changed meanwhile",
            _ => "a command failed",
        };
        check(rule, expected, || format!("{name} {args:?}: {ended:?}"))?;
        let all_sessions = name == "undo" && args.is_empty() && limit.is_empty();
        match self.oracle.live_line(&self.oracle.seen, |_, _| all_sessions) {
            Some(line) if ended.code() == Some(4) => {
                check("there is something to undo", false, || format!("{line}: {ended:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the steps and undos that a command reversed, according to its report and the log.
    fn taken(
        &mut self,
        name: &str,
        before: Arc<Manifest>,
        report: &Report,
        log: &[Value],
    ) -> Result<Taken, Violation> {
        let mut undone = BTreeSet::new();
        for id in &report.steps {
            let found = self.oracle.steps.iter().position(|step| step.id.as_ref() == Some(id));
            let Some(found) = found else {
                return Err(Violation {
                    rule: "an unknown step",
                    what: format!("{id}: {report:?}"),
                });
            };
            undone.insert(found);
        }
        let newest = log.first().filter(|_| report.has_changed);
        let took = newest.and_then(|newest| newest["takes_back"].as_str());
        let took = took.or(report.takes_back.as_deref());
        let ops = &self.oracle.ops;
        let mut redone: Vec<usize> = Vec::new();
        let mut next = match took {
            Some(id) => ops.iter().position(|op| op.id == id),
            // A revert may replace another one.
            None if name == "redo"
                || name == "unrevert"
                || (name == "revert" && !report.has_changed) =>
            {
                // Nothing was restored, so the log does not name the operation. Picks the newest
                // one that changed a path in conflict.
                let changes = &self.oracle.segments;
                let is_about = |op: &&Op| {
                    let changed = &changes[op.segment].changes;
                    report.conflicts.iter().any(|(path, _)| changed.contains_key(path))
                };
                let in_force = |op: &Op| op.is_in_force && !op.is_restore;
                let about = ops.iter().rposition(|op| in_force(op) && is_about(&op));
                about.or_else(|| ops.iter().rposition(in_force))
            }
            None => None,
        };
        while let Some(at) = next {
            redone.push(at);
            next =
                ops[at].moved_from.as_ref().and_then(|id| ops.iter().position(|op| op.id == *id));
        }
        if name == "redo" || name == "unrevert" {
            undone.clear();
        }
        Ok(Taken { undone, before, redone, named: report.limit.clone() })
    }

    /// Returns the log, newest first, and updates the oracle with it.
    fn read_log(&mut self) -> Vec<Value> {
        let ended = self.ctrlz(&["log", "--json", "-n", "500"]);
        let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let log = json["operations"].as_array().cloned().unwrap_or_default();
        for step in log.iter().flat_map(|entry| entry["steps"].as_array().into_iter().flatten()) {
            let known =
                self.oracle.steps.iter_mut().find(|known| step["part"] == known.part.as_str());
            if let (Some(known), Some(id)) = (known, step["step"].as_str()) {
                known.id = Some(id.to_owned());
            }
        }
        for entry in &log {
            let known = self.oracle.ops.iter_mut().find(|op| entry["operation"] == op.id.as_str());
            if let Some(op) = known {
                op.is_in_force = entry["taken_back"] == false;
            }
        }
        log
    }

    /// Checks that a dry run after a kill changes nothing. It is refused if a killed command has to
    /// be finished first.
    fn dry_run_changes_nothing(&mut self) -> Checked {
        let before = self.tree();
        let planned = self.ctrlz(&["undo", "--json", "--yes", "--dry-run"]);
        let is_refused = planned.stdout.contains("recovery_pending");
        let is_fine = matches!(planned.code(), Some(0 | 3 | 4)) || is_refused;
        check("a command failed", is_fine, || format!("dry run after a kill: {planned:?}"))?;
        let after = self.tree();
        check("a dry run after a kill changed files", before == after, || {
            format!("{planned:?}\n{}", after.difference(&before))
        })
    }

    /// Records the steps whose undo met only conflicts before it could be killed. An undo that was
    /// killed may have marked any step.
    fn note_tried(&mut self, killed: &Ended) {
        let report = killed.code().and_then(|_| Report::read(&killed.stdout, &[]));
        let is_tried = |step: &Step| match (&report, &step.id) {
            (Some(report), Some(id)) => report.steps.contains(id),
            (Some(_), None) => false,
            (None, _) => killed.code().is_none(),
        };
        let segments = self.oracle.segments.len();
        let steps = self.oracle.steps.iter().enumerate();
        let tried = steps.filter(|(_, step)| is_tried(step)).map(|(at, _)| (at, segments));
        self.oracle.tried.extend(tried.collect::<Vec<_>>());
    }

    /// Kills a command at a random moment, and runs another one to recover.
    pub(super) fn kill(&mut self, victim: Victim, random: &mut Random) -> Checked {
        let args: &[&str] = match victim {
            Victim::Undo => &["undo", "--json", "--yes"],
            Victim::Redo => &["redo", "--json", "--yes"],
            Victim::Track => &["track"],
            Victim::Gc => &["gc"],
            Victim::EndOfStep => return self.kill_end_of_step(random),
        };
        match victim {
            Victim::Undo | Victim::Redo => self.cut_for_undo(),
            // If the command is killed early, the dry run below records the changes.
            _ => {
                self.cut();
                self.oracle.mark_perhaps_idle();
            }
        }
        let before = Arc::clone(&self.oracle.seen);
        let mut child = start(&mut self.lab.command(args));
        std::thread::sleep(Duration::from_micros(random.below(25_000) as u64));
        // The process may have exited already.
        drop(child.kill());
        let killed = ended(child);
        self.say(format!("ctrlz {} (kill -9) -> {}", args.join(" "), killed.status));
        self.dry_run_changes_nothing()?;
        let recovered = self.ctrlz(&["track"]);
        check("a command failed", recovered.code() == Some(0), || format!("track: {recovered:?}"))?;
        self.look(Author::Ctrlz);
        self.cut();
        if !matches!(victim, Victim::Undo | Victim::Redo) {
            return check("files changed without a reason", before == self.oracle.seen, || {
                self.oracle.seen.difference(&before)
            });
        }
        let log = self.read_log();
        let known = |id: &Value| self.oracle.ops.iter().any(|op| *id == op.id.as_str());
        let is_kind =
            |entry: &&Value| ["undo", "redo", "unrevert"].iter().any(|kind| entry["kind"] == *kind);
        let newest =
            log.iter().find(is_kind).filter(|newest| !known(&newest["operation"])).cloned();
        // The command may have ended before it could be killed.
        let report = killed.code().and_then(|_| Report::read(&killed.stdout, &[]));
        if newest.is_none() || report.as_ref().is_some_and(|report| !report.has_changed) {
            self.note_tried(&killed);
        }
        let Some(newest) = newest else {
            return check("an undo that is not in the log", before == self.oracle.seen, || {
                self.oracle.seen.difference(&before)
            });
        };
        let ids: Vec<&str> =
            newest["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is_subject =
            |at: &usize| self.oracle.steps[*at].id.as_deref().is_some_and(|id| ids.contains(&id));
        let undone: BTreeSet<usize> = (0..self.oracle.steps.len()).filter(is_subject).collect();
        // A redo restores a state that was checked before.
        if newest["kind"] == "undo" {
            let took = newest["takes_back"].as_str();
            let restore = self.oracle.ops.iter().position(|op| Some(op.id.as_str()) == took);
            let redone = restore.into_iter().collect();
            let taken = Taken { undone: undone.clone(), before, redone, named: Vec::new() };
            self.oracle.nothing_lost(&taken, &self.oracle.seen)?;
            self.oracle.add_op(&newest, undone, report.as_ref());
        }
        Ok(())
    }
}

/// Returns the relevant part of the output of a command, for the history.
fn brief(ended: &Ended) -> String {
    let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    let mut parts = Vec::new();
    for name in ["steps", "done", "conflicts", "ignored", "kept", "left", "error"] {
        let value = &json[name];
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !is_empty {
            parts.push(format!("{name} {value}"));
        }
    }
    parts.join(" ")
}
