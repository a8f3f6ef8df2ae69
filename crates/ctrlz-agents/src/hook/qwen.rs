//! Events of Qwen Code: the format of Claude Code, with the tools of Gemini CLI.
//!
//! A prompt is also reported for every tool result, with the id of the turn that it belongs to.

use super::event::{Event, What};
use super::gemini::only_reads;
use super::{Client, claude_code};

pub(super) fn read(input: &[u8]) -> Result<Event, serde_json::Error> {
    let mut event = claude_code::event(serde_json::from_slice(input)?);
    event.client = Client::Qwen;
    match &mut event.what {
        What::ToolBefore(call) => call.only_reads = only_reads(&call.tool),
        What::ToolAfter(calls) | What::BatchEnd(calls) => {
            calls.iter_mut().for_each(|call| call.only_reads = only_reads(&call.tool));
        }
        _ => (),
    }
    Ok(event)
}
