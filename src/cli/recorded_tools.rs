//! The tools of the agents of a replayed run: a recorded result takes the place of its call.
//!
//! The built-in tools are called: they work on the files and the memory of the run, which later nodes read.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    cases::recorded_result,
    models::Replay,
    nodes::ToolSource,
    tool::{Tool, ToolContext, ToolError},
};

/// The results of a recording.
#[derive(Debug)]
struct RecordedTools(Arc<Replay>);

/// A tool that is called only if the recording has no result of a call.
struct RecordedTool {
    tool: Arc<dyn Tool>,
    recording: Arc<Replay>,
}

/// Returns the recorded results.
pub(super) fn replayed(recording: Replay) -> Arc<dyn ToolSource> {
    Arc::new(RecordedTools(Arc::new(recording)))
}

impl ToolSource for RecordedTools {
    fn in_place_of(&self, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        Arc::new(RecordedTool { tool, recording: Arc::clone(&self.0) })
    }

    fn keeps_built_in(&self) -> bool {
        true
    }
}

#[async_trait]
impl Tool for RecordedTool {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    fn input_schema(&self) -> &Value {
        self.tool.input_schema()
    }

    fn output_schema(&self) -> &Value {
        self.tool.output_schema()
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<Value, ToolError> {
        match recorded_result(&self.recording, self.tool.as_ref(), &input, &ctx.caller) {
            Some(result) => result,
            None => self.tool.call(input, ctx).await,
        }
    }
}
