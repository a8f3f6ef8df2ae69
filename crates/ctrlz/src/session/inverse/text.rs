//! Three-way merge of one path.

use std::collections::HashMap;

use crate::compare::{Change, Entry, merge_lines};
use crate::error::Error;
use crate::git::{Kind, ObjectId};
use crate::workspace::is_binary;

use super::Inverter;

impl Inverter<'_> {
    /// Returns `ours` without the change, or `None` if they do not merge.
    pub(super) fn merge(
        &mut self,
        ours: Option<Entry>,
        change: &Change,
    ) -> Result<Option<Option<Entry>>, Error> {
        let (base, theirs) = (change.after, change.before);
        if ours == base {
            return Ok(Some(theirs));
        }
        if ours == theirs || base == theirs {
            return Ok(Some(ours));
        }
        let (Some(ours), Some(base), Some(theirs)) = (ours, base, theirs) else {
            return Ok(None);
        };
        let all_files = ours.kind.is_file() && base.kind.is_file() && theirs.kind.is_file();
        if !all_files {
            return Ok(None);
        }
        let kind = if ours.kind == base.kind { theirs.kind } else { ours.kind };
        let id = if ours.id == base.id {
            Some(theirs.id)
        } else if theirs.id == base.id || ours.id == theirs.id {
            Some(ours.id)
        } else {
            self.merge_texts(&base.id, &ours.id, &theirs.id)?
        };
        Ok(id.map(|id| Some(Entry { kind, id })))
    }

    /// Returns whether lines that the change added to `ours` are still in the merged file, because
    /// they were moved to another place.
    pub(super) fn keeps_lines(
        &self,
        (ours, merged): (Option<Entry>, Option<Entry>),
        change: &Change,
    ) -> Result<bool, Error> {
        let (Some(ours), Some(merged), Some(base), Some(theirs)) =
            (ours, merged, change.after, change.before)
        else {
            return Ok(false);
        };
        let is_exact = merged.id == theirs.id || base.id == theirs.id;
        let files = [ours, merged, base, theirs].iter().all(|entry| entry.kind.is_file());
        // A merged text is in memory; other content is read only if it can matter.
        let Some(text) = self.merged.get(&merged.id).cloned().or_else(|| {
            let is_text = !is_exact && files && self.store.objects.holds(&merged.id);
            is_text.then(|| self.store.objects.blob(&merged.id).ok()).flatten()
        }) else {
            return Ok(false);
        };
        if is_exact || is_binary(&text) {
            return Ok(false);
        }
        let (ours, base) = (self.text(&ours.id)?, self.text(&base.id)?);
        let (theirs, ours, left) = (self.text(&theirs.id)?, lines(&ours), lines(&text));
        let theirs = lines(&theirs);
        let of = |lines: &HashMap<&[u8], i64>, line: &[u8]| lines.get(line).copied().unwrap_or(0);
        // Copies of the line that the user added do not count.
        let is_left = |(line, count): (&&[u8], &i64)| {
            let before = of(&theirs, line);
            let users = (of(&ours, line) - count).max(0);
            *count > before && of(&left, line) > before + users
        };
        Ok(lines(&base).iter().any(is_left))
    }

    /// Returns a recorded text, or one that was merged here and is not readable yet.
    pub(super) fn text(&self, id: &ObjectId) -> Result<Vec<u8>, Error> {
        match self.merged.get(id) {
            Some(text) => Ok(text.clone()),
            None => self.store.objects.blob(id),
        }
    }

    fn merge_texts(
        &mut self,
        base: &ObjectId,
        ours: &ObjectId,
        theirs: &ObjectId,
    ) -> Result<Option<ObjectId>, Error> {
        let (base, ours, theirs) = (self.text(base)?, self.text(ours)?, self.text(theirs)?);
        if [&base, &ours, &theirs].into_iter().any(|bytes| is_binary(bytes)) {
            return Ok(None);
        }
        match merge_lines(&base, &ours, &theirs) {
            Some(merged) => {
                let known = |id: &ObjectId| self.store.objects.holds(id);
                let id = self.pack.add(Kind::Blob, &merged, known)?;
                self.merged.extend(id.map(|id| (id, merged)));
                Ok(id)
            }
            None => Ok(None),
        }
    }
}

/// Returns the number of copies of each line, ignoring indentation and empty lines.
fn lines(text: &[u8]) -> HashMap<&[u8], i64> {
    let mut counts = HashMap::new();
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).for_each(|line| *counts.entry(line).or_default() += 1);
    counts
}
