//! Pages of differences, limited in files and bytes.

use ctrlz::Diffs;

use super::{DEFAULT_LIMIT, DEFAULT_MAX_BYTES};
use crate::error::MethodError;
use crate::method::Call;
use crate::snapshot::{FileDiff, StepDiff, StepDiffFull};

/// The requested page of the changed files.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Number of files to skip.
    pub(super) offset: u64,
    /// Maximum number of files to return.
    pub(super) limit: Option<u64>,
    /// Maximum size of the text to return in bytes, in whole files.
    pub(super) max_bytes: Option<u64>,
}

impl Part {
    fn limit(self) -> u64 {
        self.limit.unwrap_or(DEFAULT_LIMIT).max(1)
    }

    fn max_bytes(self) -> u64 {
        self.max_bytes.unwrap_or(DEFAULT_MAX_BYTES)
    }

    /// Skips the files of earlier pages. Returns the total number of files.
    fn start(self, diffs: &mut Diffs) -> u64 {
        let total = diffs.remaining() as u64;
        diffs.pass_over(usize::try_from(self.offset).unwrap_or(usize::MAX));
        total
    }

    /// Returns the offset of the next page after `given` files, or `None` on the last page.
    fn next(self, given: u64, total: u64) -> Option<u64> {
        let next = self.offset.saturating_add(given);
        (next < total).then_some(next)
    }

    /// Returns the page as a patch that `git apply` accepts.
    pub(super) fn text_of(
        self,
        call: &Call<'_>,
        mut diffs: Diffs,
    ) -> Result<StepDiff, MethodError> {
        let total = self.start(&mut diffs);
        let mut bytes: Vec<u8> = Vec::new();
        let mut given = 0;
        while given < self.limit() {
            call.check()?;
            let Some(text) = diffs.next_unified() else { break };
            let text = text?;
            let size = bytes.len() as u64 + text.len() as u64;
            // The first file is returned regardless of its size, so that a reader always makes
            // progress.
            if given > 0 && size > self.max_bytes() {
                break;
            }
            bytes.extend(text);
            given += 1;
        }
        let next = self.next(given, total);
        let (text, text_base64) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.as_bytes();
                (String::from_utf8_lossy(bytes).into_owned(), Some(ctrlz::base64(bytes)))
            }
        };
        Ok(StepDiff { text, text_base64, truncated: next.is_some(), next, total })
    }

    /// Returns the page with both texts of every file.
    pub(super) fn texts_of(
        self,
        call: &Call<'_>,
        mut diffs: Diffs,
    ) -> Result<StepDiffFull, MethodError> {
        let total = self.start(&mut diffs);
        let mut files: Vec<FileDiff> = Vec::new();
        let mut size = 0;
        while (files.len() as u64) < self.limit() {
            call.check()?;
            let Some(file) = diffs.next() else { break };
            let file = FileDiff::from(file?);
            let text_bytes = file.text_bytes();
            if text_bytes > self.max_bytes() {
                files.push(file.without_texts());
                continue;
            }
            if !files.is_empty() && size + text_bytes > self.max_bytes() {
                break;
            }
            size += text_bytes;
            files.push(file);
        }
        let next = self.next(files.len() as u64, total);
        Ok(StepDiffFull { files, truncated: next.is_some(), next, total })
    }
}
