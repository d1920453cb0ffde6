//! The tools of the agents of a replayed run: a recorded result takes the place of its call.
//!
//! The built-in tools are called: they work on the files and the memory of the run, which later nodes read.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    cases::recorded_result,
    models::Replay,
    nodes::ToolResults,
    tool::{Tool, ToolContext, ToolError},
};

/// The results of a recording. A call without one is made.
#[derive(Debug)]
struct RecordedTools(Replay);

/// Returns the recorded results.
pub(crate) fn replayed(recording: Replay) -> Arc<dyn ToolResults> {
    Arc::new(RecordedTools(recording))
}

impl ToolResults for RecordedTools {
    fn result(
        &self,
        tool: &dyn Tool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Option<Result<Value, ToolError>> {
        recorded_result(&self.0, tool, input, ctx)
    }

    fn keeps_built_in(&self) -> bool {
        true
    }
}
