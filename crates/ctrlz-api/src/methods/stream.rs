//! Streamed responses of any length. Nothing is truncated, and little is held in memory.

use ctrlz::Diffs;
use serde_json::to_vec;

use super::history::StepChangesParams;
use super::reading::FileParams;
use super::recording::CompareParams;
use crate::error::{MethodError, WireError};
use crate::method::{Call, Context, Params, with_call};
use crate::snapshot::FileDiff;

/// A result that can be streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The result of `diff`, as a patch that `git apply` accepts.
    Diff,
    /// The result of `diff_full`, one file as JSON per line.
    DiffFull,
    /// The result of `step_diff`, as a patch.
    StepDiff,
    /// The result of `step_diff_full`, one file as JSON per line.
    StepDiffFull,
    /// The bytes of a file of a snapshot.
    File,
}

/// Whether the reader wants more data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The reader wants the next piece.
    More,
    /// The reader is gone.
    NoMore,
}

/// Receives the pieces in order.
pub type Sink<'a> = &'a mut dyn FnMut(Vec<u8>) -> Wanted;

impl Stream {
    /// Returns the method whose parameters the stream takes. `to` is required, and the parameters
    /// that limit the size of a page are ignored.
    pub fn method(self) -> &'static str {
        match self {
            Stream::Diff => "diff",
            Stream::DiffFull => "diff_full",
            Stream::StepDiff => "step_diff",
            Stream::StepDiffFull => "step_diff_full",
            Stream::File => "get_file_at",
        }
    }

    /// Sends the whole result to `sink`. The first piece is empty and sent once the request is
    /// valid.
    pub fn give(
        self,
        params: Params,
        context: &Context<'_>,
        sink: Sink<'_>,
    ) -> Result<(), WireError> {
        match self {
            Stream::Diff => {
                with_call(params, context, |call, params| texts(call, between(call, params)?, sink))
            }
            Stream::DiffFull => {
                with_call(params, context, |call, params| lines(call, between(call, params)?, sink))
            }
            Stream::StepDiff => with_call(params, context, |call, params: &StepChangesParams| {
                texts(call, call.workspace.step_diff_full(&params.of())?, sink)
            }),
            Stream::StepDiffFull => {
                with_call(params, context, |call, params: &StepChangesParams| {
                    lines(call, call.workspace.step_diff_full(&params.of())?, sink)
                })
            }
            Stream::File => with_call(params, context, |call, params: &FileParams| {
                let path = call.file(&params.path)?;
                let bytes = call.workspace.file_at(&call.snapshot(&params.hash)?, &path)?;
                if sink(Vec::new()) == Wanted::More {
                    sink(bytes);
                }
                Ok(())
            }),
        }
    }
}

fn between(call: &Call<'_>, params: &CompareParams) -> Result<Diffs, MethodError> {
    let to = params.to.as_ref().ok_or_else(|| WireError::invalid_params("`to` is missing"))?;
    let paths = call.paths(&params.paths)?;
    Ok(call.workspace.diff_full(&call.snapshot(&params.from)?, &call.snapshot(to)?, &paths)?)
}

fn texts(call: &Call<'_>, mut diffs: Diffs, sink: Sink<'_>) -> Result<(), MethodError> {
    let mut wanted = sink(Vec::new());
    while wanted == Wanted::More {
        call.check()?;
        let Some(text) = diffs.next_unified() else { break };
        wanted = sink(text?);
    }
    Ok(())
}

fn lines(call: &Call<'_>, diffs: Diffs, sink: Sink<'_>) -> Result<(), MethodError> {
    if sink(Vec::new()) == Wanted::NoMore {
        return Ok(());
    }
    for file in diffs {
        call.check()?;
        let mut line = to_vec(&FileDiff::from(file?)).expect("plain data has a JSON form");
        line.push(b'\n');
        if sink(line) == Wanted::NoMore {
            break;
        }
    }
    Ok(())
}
