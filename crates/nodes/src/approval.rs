//! The approval of a person before a tool is called.

use graphrun_core::graph::{NodeContext, NodeError, Question};
use graphrun_workflow::{Approval, tool::Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::checked::CheckedTool;

/// A call that a person is asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedCall<'a> {
    pub(crate) tool: &'a CheckedTool,
    pub(crate) input: &'a Value,
    /// The name of the call in its task, which no other call of the task has.
    pub(crate) name: &'a str,
    /// The folder of the run in which the tool works.
    pub(crate) folder: Option<&'a str>,
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// It is made with the arguments of the model or the workflow.
    Approved,
    /// It is made with the arguments of the person.
    Changed(Value),
    /// It is not made, for a reason that the person may give.
    Rejected(Option<String>),
}

/// The answer of a person.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Answer {
    decision: Choice,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    comment: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Choice {
    Approve,
    ApproveForRun,
    Reject,
}

impl AskedCall<'_> {
    /// Asks a person, if the tool needs it. The key of the question contains a hash of the whole call, so an answer
    /// never approves another one.
    ///
    /// # Errors
    ///
    /// Returns the question as an error while there is no answer.
    pub(crate) async fn ask(self, ctx: &NodeContext) -> Result<Decision, NodeError> {
        let approval = self.tool.approve;
        let grant = self.grant();
        if approval == Approval::Never || ctx.is_granted(&grant) {
            return Ok(Decision::Approved);
        }
        let Answer { decision, input, comment } = ctx.ask(self.question(ctx, approval))?;
        if decision == Choice::Reject {
            return Ok(Decision::Rejected(comment));
        }
        if approval == Approval::Once || decision == Choice::ApproveForRun {
            ctx.grant(&grant).await?;
        }
        Ok(match input {
            Some(input) if input != *self.input => Decision::Changed(input),
            _ => Decision::Approved,
        })
    }

    fn question(self, ctx: &NodeContext, approval: Approval) -> Question {
        let tool = self.tool.tool.name();
        let mut show = json!({ "tool": tool, "input": self.input });
        if let Some(folder) = self.folder {
            show["folder"] = folder.into();
        }
        let whole = json!([show, self.name]).to_string();
        let key = format!("{}-{}", ctx.node, &blake3::hash(whole.as_bytes()).to_hex()[..12]);
        let prompt = match approval {
            Approval::Once => {
                format!("Call `{tool}` with this input, and later in this run without a question?")
            }
            Approval::Each | Approval::Never => format!("Call `{tool}` with this input?"),
        };
        let question =
            Question::new(key, prompt).with_schema(schema(self.tool.tool.as_ref(), approval));
        Question { show, ..question }
    }

    /// Returns the name of an approval for the rest of a run. A changed tool has another one, and each folder.
    fn grant(self) -> String {
        let CheckedTool { tool, fingerprint, .. } = self.tool;
        let whole = json!([fingerprint, tool.input_schema(), self.folder]).to_string();
        format!("tool {} {}", tool.name(), &blake3::hash(whole.as_bytes()).to_hex()[..12])
    }
}

/// Returns the schema of an answer.
fn schema(tool: &dyn Tool, approval: Approval) -> Value {
    let decisions = match approval {
        Approval::Once => json!(["approve", "reject"]),
        Approval::Each | Approval::Never => json!(["approve", "approve_for_run", "reject"]),
    };
    let mut input = tool.input_schema().clone();
    let definitions = input.as_object_mut().and_then(|it| it.shift_remove("$defs"));
    let mut schema = json!({
        "type": "object",
        "required": ["decision"],
        "properties": {
            "decision": {"enum": decisions},
            "input": input,
            "comment": {"type": "string", "description": "why it is not called, for the model"},
        },
        "additionalProperties": false,
    });
    // References begin at the root of a schema.
    if let Some(definitions) = definitions {
        schema["$defs"] = definitions;
    }
    schema
}
