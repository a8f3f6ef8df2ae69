//! The rules for undo, redo, revert and unrevert.

use std::collections::BTreeSet;

use crate::manifest::{Entry, Manifest};

use super::merge::{Content, take_out};
use super::oracle::{
    Author, Change, Checked, Oracle, Segment, Taken, all_tokens, check, is_within, tokens_in,
};
use super::report::Report;
use super::world::MAX_NEW_FILE_BYTES;

impl Oracle {
    /// Checks an undo, redo, revert or unrevert against the record.
    pub(crate) fn judge(
        &self,
        taken: &Taken,
        report: &Report,
        after: &Manifest,
        is_forced: bool,
    ) -> Checked {
        if !is_forced {
            self.nothing_lost(taken, after)?;
        }
        self.losses_are_reported(taken, report)?;
        for (path, reason) in &report.conflicts {
            self.confirm(path, reason.as_deref(), taken, after, report)?;
        }
        if taken.redone.is_empty() {
            self.nothing_left(taken, report, after)?;
            self.content_is_merged(taken, report, after)?;
        }
        Ok(())
    }

    /// Checks that a path that a step removed is reported if it is in no snapshot.
    fn losses_are_reported(&self, taken: &Taken, report: &Report) -> Checked {
        for (at, segment) in self.segments.iter().enumerate() {
            for (path, changes) in &segment.changes {
                let by_step = |change: &Change| match change.actor {
                    Author::Step(step) => {
                        taken.undone.contains(&step) && change.candidates == [step].into()
                    }
                    Author::User | Author::Ctrlz => false,
                };
                let is_gone = !segment.after.0.contains_key(path)
                    && !taken.before.0.contains_key(path)
                    && segment.before.0.get(path).is_some_and(is_large);
                let step = changes.iter().all(by_step).then(|| changes.first()).flatten();
                let is_taken = step.is_some_and(|change| {
                    change.candidates.iter().all(|step| !self.was_taken(*step, at, path))
                });
                if !is_gone || !is_taken || self.was_captured(path, at) || !report.covers(path) {
                    continue;
                }
                // Losing a file that the same steps had created is not a loss.
                let earlier = self.segments[..at].iter().rev();
                let made = earlier.filter_map(|one| Some((one, one.changes.get(path)?))).next();
                if made.is_some_and(|(one, changes)| {
                    !one.before.0.contains_key(path) && changes.iter().all(by_step)
                }) {
                    continue;
                }
                // If a tool named the file, it was captured and is restored.
                let is_back = self.seen.0.contains_key(path);
                let in_the_way = |known: &String| is_within(path, known) || is_within(known, path);
                let reported = is_back
                    || report.uncaptured.iter().any(|lost| is_within(path, lost))
                    || report.reported().iter().any(in_the_way);
                check("a loss is not reported", reported || self.is_ignored(path), || {
                    format!("{path} was large and is gone")
                })?;
            }
        }
        Ok(())
    }

    /// Returns whether a path was small at any recorded time up to a segment. Such a path is
    /// captured regardless of its later size.
    fn was_captured(&self, path: &str, segment: usize) -> bool {
        self.segments[..=segment].iter().any(|segment| {
            let small = |tree: &Manifest| tree.0.get(path).is_some_and(|entry| !is_large(entry));
            small(&segment.before) || small(&segment.after)
        })
    }

    /// Returns whether a version of a path may be in no snapshot because of its size.
    pub(super) fn was_large(&self, path: &str) -> bool {
        let is_large = |tree: &Manifest| tree.0.get(path).is_some_and(is_large);
        is_large(&self.seen) || self.segments.iter().any(|segment| is_large(&segment.before))
    }

    /// Checks that all lines of authors other than the undone steps still exist.
    pub(crate) fn nothing_lost(&self, taken: &Taken, after: &Manifest) -> Checked {
        let still = all_tokens(after);
        for (token, paths) in all_tokens(&taken.before) {
            let author = self.tokens.author(token);
            let is_undone = matches!(author, Author::Step(step) if taken.undone.contains(&step));
            if still.contains_key(&token) || is_undone {
                continue;
            }
            // A redo removes the lines that the undo restored.
            let was_there = |op: &usize, path: &str| {
                let before = &self.segments[self.ops[*op].segment].before;
                before.0.get(path).is_some_and(|entry| tokens_in(entry).contains(&token))
            };
            let brought = |path: &String| taken.redone.iter().any(|op| !was_there(op, path));
            if paths.iter().all(brought) {
                continue;
            }
            let is_unclear = paths.iter().any(|path| self.may_be_theirs(path, token, taken));
            check(self.rule_of_lost(&paths, token, taken), is_unclear, || {
                format!("{} was in {paths:?} and is in no file", self.tokens.show(token))
            })?;
        }
        Ok(())
    }

    /// Returns the rule that a lost line violates. The rule names the evidence that the line does
    /// not belong to the undone steps.
    fn rule_of_lost(&self, paths: &BTreeSet<String>, token: usize, taken: &Taken) -> &'static str {
        let intros = paths.iter().filter_map(|path| self.intros.get(&(path.clone(), token)));
        let open = |intro: &Change| intro.open.intersection(&taken.undone).next().copied();
        let Some((intro, step)) = intros.clone().find_map(|intro| Some((intro, open(intro)?)))
        else {
            return "a line of another author is lost";
        };
        if self.steps[step].is_interrupted {
            "a line written in an interrupted step is lost"
        } else if intro.waiting.contains(&step) {
            "a line written before the tool ran is lost"
        } else if self.steps[step].only_waits {
            "a line written beside a waiting call is lost"
        } else if self.steps[step].only_named {
            "a line written beside a tool that names other files is lost"
        } else {
            "a line of another author is lost"
        }
    }

    /// Returns whether no evidence distinguishes the author of a line from the undone steps.
    fn may_be_theirs(&self, path: &str, token: usize, taken: &Taken) -> bool {
        let Some(intro) = self.intros.get(&(path.to_owned(), token)) else { return false };
        let in_segment = self.segments.get(intro.segment).and_then(|s| s.changes.get(path));
        let touched =
            |step: usize| in_segment.into_iter().flatten().any(|c| c.actor == Author::Step(step));
        intro.candidates.iter().any(|step| {
            let info = &self.steps[*step];
            let names = info.names(path);
            // The start time of a tool is known only from the end of its call.
            let started_later = intro.waiting.contains(step) && !info.is_open;
            let is_idle = self.segments.get(intro.segment).is_some_and(|s| s.idle.contains(step));
            let is_named = taken.named.iter().any(|named| named == path);
            let is_ended = info.is_interrupted && !info.end_is_lost;
            let excluded = started_later || is_ended || is_idle;
            taken.undone.contains(step) && (!excluded || names || touched(*step) || is_named)
        })
    }

    /// Checks that the lines that only the undone steps wrote are gone, or that their path is
    /// reported.
    fn nothing_left(&self, taken: &Taken, report: &Report, after: &Manifest) -> Checked {
        let reported = report.reported();
        for (token, paths) in all_tokens(after) {
            let Author::Step(author) = self.tokens.author(token) else { continue };
            if !taken.undone.contains(&author) {
                continue;
            }
            for path in paths {
                let Some(intro) = self.intros.get(&(path.clone(), token)) else { continue };
                // A line in a file that another open step names is attributed to that step.
                let own = intro.actor == Author::Step(author) && intro.candidates.contains(&author);
                let done = self.was_taken(author, intro.segment, &path);
                let is_apart = self.is_below_ignored(&path) || self.was_large(&path);
                // A step whose end was not recorded owns the files that it names.
                let is_named = |step: &usize| {
                    let info = &self.steps[*step];
                    *step != author && info.end_is_lost && info.names(&path)
                };
                let is_apart = is_apart || intro.candidates.iter().any(is_named);
                // No evidence shows whether an interrupted step changed an ignored file.
                let idle = self.segments.get(intro.segment).map(|segment| &segment.idle);
                let is_idle = idle.is_some_and(|idle| idle.contains(&author));
                let has_no_end = self.steps[author].is_open || self.steps[author].is_interrupted;
                let is_apart = is_apart || ((is_idle || has_no_end) && self.is_ignored(&path));
                if !own || done || is_apart || !report.covers(&path) {
                    continue;
                }
                let is_reported = reported.iter().any(|known| is_within(&path, known));
                check("a line of an undone step is left and not reported", is_reported, || {
                    format!("{} is still in {path}", self.tokens.show(token))
                })?;
            }
        }
        Ok(())
    }

    /// Returns whether an earlier undo reversed a step's change of a path, or reported the path.
    fn was_taken(&self, step: usize, segment: usize, path: &str) -> bool {
        self.ops.iter().any(|op| {
            let is_later = op.segment > segment;
            op.is_in_force && is_later && op.steps.contains(&step) && op.covers(path)
        })
    }

    /// Checks that a path holds the merged text if only the undone steps changed it or its changes
    /// merge.
    fn content_is_merged(&self, taken: &Taken, report: &Report, after: &Manifest) -> Checked {
        // Which edits follow a rename depends on whether the killed hook recorded the end of its
        // step.
        if taken.undone.iter().any(|step| self.steps[*step].end_is_lost) {
            return Ok(());
        }
        let reported = report.reported();
        let mut expected: Vec<(&String, Option<Content>)> = Vec::new();
        let paths: BTreeSet<&String> =
            self.segments.iter().flat_map(|segment| segment.changes.keys()).collect();
        for path in paths {
            let mut segments = self.segments_of(path, taken).peekable();
            if segments.peek().is_none() || !report.covers(path) {
                continue;
            }
            let is_sure = |change: &Change| match change.actor {
                Author::Step(step) => {
                    taken.undone.contains(&step) && change.candidates == [step].into()
                }
                Author::User | Author::Ctrlz => false,
            };
            let all_sure = segments.all(|segment| segment.changes[path].iter().all(is_sure));
            let is_reported =
                reported.iter().any(|known| is_within(path, known) || is_within(known, path));
            let ours = Content::of(taken.before.0.get(path));
            match take_out(ours, &self.pieces(path, taken)) {
                // An edit of a renamed file may follow the file to another path.
                None => return Ok(()),
                Some(_) if !all_sure || is_reported || self.is_ignored(path) => (),
                Some(_) if self.was_large(path) => (),
                Some(wanted) => expected.push((path, wanted)),
            }
        }
        for (path, wanted) in expected {
            let found = Content::of(after.0.get(path));
            check("a file is not the merged one", found == wanted, || {
                format!("{path} is {found:?}, not {wanted:?}")
            })?;
            self.mode_is_merged(path, taken, after)?;
        }
        Ok(())
    }

    /// Checks that the permissions of a file or directory are those without the undone steps.
    fn mode_is_merged(&self, path: &str, taken: &Taken, after: &Manifest) -> Checked {
        let mut wanted = mode_of(&taken.before, path);
        for segment in self.segments_of(path, taken) {
            let (then, left) = (mode_of(&segment.before, path), mode_of(&segment.after, path));
            if wanted == left {
                wanted = then;
            } else if then.is_none() {
                // Another author changed the permissions of a path that the step created.
                return Ok(());
            }
        }
        let found = mode_of(after, path);
        let is_empty = !after.0.keys().any(|other| other != path && is_within(other, path));
        match (wanted, found) {
            (Some((true, _)), None) => check("a directory is missing", false, || path.to_owned()),
            (None, Some((true, _))) => {
                let is_kept = !is_empty || self.was_users_dir(path, taken);
                check("a directory is left", is_kept, || path.to_owned())
            }
            // The permissions of a directory are not applied to a file.
            (Some((was_dir, _)), Some((is_dir, _))) if was_dir != is_dir => Ok(()),
            (Some((is_dir, wanted)), Some((_, found))) => {
                let rule = if is_dir {
                    "a directory has other permissions"
                } else {
                    "a file has other permissions"
                };
                check(rule, wanted == found, || format!("{path}: {found:o}, not {wanted:o}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a directory appeared together with a file that the user wrote during the
    /// same step. In that case the user created it, and the tool may have moved it.
    fn was_users_dir(&self, path: &str, taken: &Taken) -> bool {
        let first =
            |segment: &Segment| self.segments.iter().position(|one| std::ptr::eq(one, segment));
        self.segments_of(path, taken).any(|segment| {
            let at = first(segment);
            let mut inside = segment.after.0.iter().filter(|(other, _)| is_within(other, path));
            inside.any(|(_, entry)| {
                tokens_in(entry).iter().any(|token| {
                    let mut intros = self.intros.iter().filter(|((_, known), _)| known == token);
                    intros
                        .any(|(_, intro)| intro.actor == Author::User && Some(intro.segment) == at)
                })
            })
        })
    }

    /// Checks that the record confirms the reason of a conflict.
    fn confirm(
        &self,
        path: &str,
        reason: Option<&str>,
        taken: &Taken,
        after: &Manifest,
        report: &Report,
    ) -> Checked {
        let ours = Content::of(taken.before.0.get(path));
        let pieces = self.pieces(path, taken);
        let changes: Vec<&Change> = self
            .segments_of(path, taken)
            .flat_map(|segment| segment.changes.get(path).into_iter().flatten())
            .collect();
        let merge = || {
            let in_the_way = |(other, _): (&String, &Entry)| {
                other != path && (is_within(other, path) || is_within(path, other))
            };
            let kinds_differ = matches!(taken.before.0.get(path), Some(Entry::Dir { .. }))
                || taken.before.0.iter().any(|entry| {
                    in_the_way(entry)
                        && (!matches!(entry.1, Entry::Dir { .. }) || entry.0.len() > path.len())
                });
            // Changes of ignored files that no tool named are left, and may obstruct other changes.
            let stays = |change: &&Change| !self.names(change.actor, path);
            let is_left = self.is_ignored(path) && changes.iter().any(stays);
            // The same applies to a version that was too large to be captured.
            let is_left = is_left || self.was_large(path);
            // A change after a killed hook may belong to the step or not.
            let is_lost = |step: &usize| self.steps[*step].end_is_lost;
            let is_left = is_left || changes.iter().any(|one| one.candidates.iter().any(is_lost));
            let sure = self.sure_pieces(path, taken);
            take_out(ours.clone(), &pieces).is_none()
                || take_out(ours.clone(), &sure).is_none()
                || kinds_differ
                || is_left
                || self.is_renamed(path, taken)
        };
        let shared = || {
            changes.iter().any(|change| {
                change.candidates.len() > 1 && !change.candidates.is_subset(&taken.undone)
            })
        };
        let unclear = || changes.iter().any(|change| self.is_unclear(path, change));
        let in_use = || self.held.contains(path);
        // The ignored files of a renamed directory are not all recorded.
        let other_half = || {
            self.is_ignored(path)
                || self.is_only_copy(path, taken, after)
                || self.is_copy_of_left(path, taken, report, after)
                || self.came_from_unrecorded(path, taken)
                || self.was_moved_here(path, taken)
        };
        let not_captured = || {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            self.is_ignored(path) || above.chain([path]).any(|path| self.was_large(path))
        };
        let confirmed = match reason {
            Some("merge") => merge() || self.has_other_mode(path, taken),
            Some("shared") => shared(),
            // The permissions of a directory do not show which author changed them.
            Some("unclear") => unclear() || self.was_dir(path),
            Some("in_use") => in_use(),
            Some("other_half") => other_half(),
            Some("not_captured" | "not_proven") => not_captured(),
            Some(_) => false,
            None => merge() || shared() || unclear() || in_use() || other_half() || not_captured(),
        };
        check("a conflict without a reason", confirmed, || {
            format!(
                "{path} ({}) is kept; {} changes by {:?}; before {:?}",
                reason.unwrap_or("no reason given"),
                pieces.len(),
                changes.iter().map(|change| change.actor).collect::<Vec<_>>(),
                taken.before.0.get(path)
            )
        })
    }

    /// Returns whether the permissions of a path are neither those before nor those after an undone
    /// change of them.
    fn has_other_mode(&self, path: &str, taken: &Taken) -> bool {
        let now = mode_of(&taken.before, path);
        self.segments_of(path, taken).any(|segment| {
            let (then, left) = (mode_of(&segment.before, path), mode_of(&segment.after, path));
            then != left && now.is_some() && now != then && now != left
        })
    }

    /// Returns whether a path was a directory at the end of any segment.
    fn was_dir(&self, path: &str) -> bool {
        let is_dir = |tree: &Manifest| matches!(tree.0.get(path), Some(Entry::Dir { .. }));
        self.segments.iter().any(|segment| is_dir(&segment.after))
    }

    /// Returns whether a path has the content of another path that is not restored. Content is
    /// compared because empty files hold no token.
    fn is_copy_of_left(
        &self,
        path: &str,
        taken: &Taken,
        report: &Report,
        after: &Manifest,
    ) -> bool {
        let here = Content::of(taken.before.0.get(path));
        let held = |other: &str| {
            let mut segments = self.segments_of(other, taken);
            segments.any(|segment| Content::of(segment.before.0.get(other)) == here)
        };
        // A path outside of the requested paths is not restored either.
        let left_out = |other: &str| {
            !report.limit.is_empty()
                && !report.limit.iter().any(|limit| is_within(other, limit))
                && Content::of(after.0.get(other)) != here
        };
        let changed = self.segments.iter().flat_map(|segment| segment.changes.keys());
        report.reported().iter().any(|other| other != path && held(other))
            || changed.into_iter().any(|other| left_out(other) && held(other))
    }

    /// Returns whether an undone step moved a file here from a path that snapshots do not include.
    fn came_from_unrecorded(&self, path: &str, taken: &Taken) -> bool {
        let is_unrecorded = |other: &str| self.is_below_ignored(other) || self.was_large(other);
        self.segments_of(path, taken).any(|segment| {
            let here = segment.after.0.get(path).map(tokens_in).unwrap_or_default();
            let mut others = segment.before.0.iter().filter(|(other, _)| is_unrecorded(other));
            let there = Content::of(segment.after.0.get(path));
            others.any(|(_, entry)| {
                !tokens_in(entry).is_disjoint(&here) || Content::of(Some(entry)) == there
            })
        })
    }

    /// Returns whether any author moved a file here while an undone step ran.
    fn was_moved_here(&self, path: &str, taken: &Taken) -> bool {
        self.segments_of(path, taken).any(|segment| {
            let here = segment.after.0.get(path).map(tokens_in).unwrap_or_default();
            let is_gone = |other: &str| !segment.after.0.contains_key(other);
            let mut others = segment.before.0.iter().filter(|(other, _)| is_gone(other));
            !segment.before.0.contains_key(path)
                && others.any(|(_, entry)| !tokens_in(entry).is_disjoint(&here))
        })
    }

    /// Returns whether a path has the content that an undone step left at another path that no
    /// longer exists.
    fn is_renamed(&self, path: &str, taken: &Taken) -> bool {
        let here = Content::of(taken.before.0.get(path));
        let changed: BTreeSet<&String> =
            self.segments.iter().flat_map(|segment| segment.changes.keys()).collect();
        let is_gone = |other: &str| !taken.before.0.contains_key(other);
        let mut others = changed.into_iter().filter(|other| is_gone(other));
        others.any(|other| {
            let redone = taken.redone.iter().map(|op| &self.segments[self.ops[*op].segment]);
            let mut segments = self.segments_of(other, taken).chain(redone);
            segments.any(|segment| Content::of(segment.after.0.get(other)) == here)
        })
    }

    /// Returns whether the author is a step whose tool names a path.
    fn names(&self, author: Author, path: &str) -> bool {
        let Author::Step(step) = author else { return false };
        self.steps[step].names(path)
    }

    /// Returns whether a path holds, or held before the steps, lines of other authors that no other
    /// file has.
    fn is_only_copy(&self, path: &str, taken: &Taken, after: &Manifest) -> bool {
        let all = all_tokens(after);
        let here = after.0.get(path).map(tokens_in).unwrap_or_default();
        let alone = |token: &usize| {
            let is_taken = matches!(self.tokens.author(*token), Author::Step(step) if taken.undone.contains(&step));
            !is_taken && all.get(token).is_none_or(|paths| paths.len() == 1)
        };
        let earlier = self.segments_of(path, taken);
        let mut earlier = earlier.filter_map(|segment| segment.before.0.get(path)).map(tokens_in);
        here.iter().any(alone)
            || earlier.any(|tokens| {
                tokens.iter().any(|token| !here.contains(token) && all.contains_key(token))
            })
    }

    /// Checks that a plain undo reverses exactly one complete turn, and that this is the newest
    /// one.
    pub(crate) fn is_newest_turn(&self, taken: &Taken) -> Checked {
        let turns: BTreeSet<&(String, String)> =
            taken.undone.iter().map(|step| &self.steps[*step].turn).collect();
        check("an undo takes back several turns", turns.len() == 1, || format!("{turns:?}"))?;
        let of_turn = |step: usize| turns.contains(&self.steps[step].turn);
        let missed =
            self.live_line(&taken.before, |step, _| of_turn(step) && !taken.undone.contains(&step));
        check("an undo leaves out a step of its turn", missed.is_none(), || format!("{missed:?}"))?;
        let is_taken = |changes: &Vec<Change>| {
            changes.iter().any(|change| !change.candidates.is_disjoint(&taken.undone))
        };
        let newest = self.segments.iter().rposition(|s| s.changes.values().any(is_taken));
        let newer = self.live_line(&taken.before, |step, segment| {
            !of_turn(step) && newest.is_some_and(|newest| segment > newest)
        });
        check("an undo passes over a newer turn", newer.is_none(), || format!("{newer:?}"))
    }

    /// Returns a line that an undo would have to remove, among the steps and segments accepted by
    /// `wanted`.
    pub(crate) fn live_line(
        &self,
        tree: &Manifest,
        wanted: impl Fn(usize, usize) -> bool,
    ) -> Option<String> {
        for (token, paths) in all_tokens(tree) {
            let Author::Step(step) = self.tokens.author(token) else { continue };
            if self.steps[step].is_interrupted {
                continue;
            }
            for path in paths {
                let Some(intro) = self.intros.get(&(path.clone(), token)) else { continue };
                let is_sure =
                    intro.actor == Author::Step(step) && intro.candidates == [step].into();
                let is_taken = self.was_taken(step, intro.segment, &path);
                let is_wanted = wanted(step, intro.segment);
                let was_tried = |(tried, segments): &(usize, usize)| {
                    *tried == step && *segments > intro.segment
                };
                let is_taken = is_taken || self.tried.iter().any(was_tried);
                let is_recorded = !self.is_ignored(&path) && !self.was_large(&path);
                if is_sure && is_wanted && !is_taken && is_recorded {
                    return Some(format!("{} in {path}", self.tokens.show(token)));
                }
            }
        }
        None
    }
}

/// Returns whether a new file is too large to be captured.
fn is_large(entry: &Entry) -> bool {
    matches!(entry, Entry::File { bytes, .. } if bytes.len() > MAX_NEW_FILE_BYTES)
}

/// Returns whether a path is a directory, and its permissions. Returns `None` for symlinks and
/// missing paths.
fn mode_of(tree: &Manifest, path: &str) -> Option<(bool, u32)> {
    match tree.0.get(path)? {
        Entry::File { mode, .. } => Some((false, *mode)),
        Entry::Dir { mode } => Some((true, *mode)),
        Entry::Link { .. } | Entry::Special => None,
    }
}
