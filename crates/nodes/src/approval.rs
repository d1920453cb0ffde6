//! The approval of a person before something is done: the call of a tool, or, in `host_approval`, a command.

use graphrun_core::graph::{NodeContext, NodeError, Question};
use graphrun_workflow::{Approval, tool::Tool};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
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

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallPermission {
    /// It is made with the arguments of the model or the workflow.
    Approved,
    /// It is made with the arguments of the person.
    Changed(Value),
    /// It is not made, for a reason that the person may give.
    Rejected(Option<String>),
}

/// An answer to the question for an approval.
pub(crate) trait ApprovalAnswer: DeserializeOwned + JsonSchema {
    /// Returns whether it approves the rest of the run, too.
    fn is_for_run(&self, approval: Approval) -> bool;
}

/// The answer of a person about a call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallAnswer {
    decision: Decision,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    comment: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Approve,
    ApproveForRun,
    Reject,
}

impl AskedCall<'_> {
    /// Asks a person, if the tool needs it, and the input fits. The key of the question contains a hash of the whole call, so an answer
    /// never approves another one.
    ///
    /// # Errors
    ///
    /// Returns the question as an error while there is no answer.
    pub(crate) async fn ask(self, ctx: &NodeContext) -> Result<CallPermission, NodeError> {
        if self.tool.check_input(self.input).is_err() {
            // The call fails before it does anything.
            return Ok(CallPermission::Approved);
        }
        let approval = self.tool.approve;
        let question = || self.question(ctx, approval);
        let answer = ask_for_approval(ctx, approval, Some(&self.grant()), question).await?;
        Ok(match answer {
            Some(CallAnswer { decision: Decision::Reject, comment, .. }) => {
                CallPermission::Rejected(comment)
            }
            Some(CallAnswer { input: Some(input), .. }) if input != *self.input => {
                CallPermission::Changed(input)
            }
            _ => CallPermission::Approved,
        })
    }

    fn question(self, ctx: &NodeContext, approval: Approval) -> Question {
        let tool = self.tool.tool.name();
        let mut show = json!({ "tool": tool, "input": self.input });
        if let Some(folder) = self.folder {
            show["folder"] = folder.into();
        }
        let key = question_key(ctx, &json!([show, self.name]));
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

/// Asks a person, unless nothing needs an approval, or `grant` is one for the rest of the run. Returns the answer, if there was
/// a question.
///
/// # Errors
///
/// Returns the question as an error while there is no answer.
pub(crate) async fn ask_for_approval<A: ApprovalAnswer>(
    ctx: &NodeContext,
    approval: Approval,
    grant: Option<&str>,
    question: impl FnOnce() -> Question,
) -> Result<Option<A>, NodeError> {
    if approval == Approval::Never || grant.is_some_and(|it| ctx.is_granted(it)) {
        return Ok(None);
    }
    let answer: A = ctx.ask(question())?;
    if let Some(grant) = grant.filter(|_| answer.is_for_run(approval)) {
        ctx.grant(grant).await?;
    }
    Ok(Some(answer))
}

/// Returns the key of a question. It has a hash of everything that is asked about, so an answer never approves anything else.
pub(crate) fn question_key(ctx: &NodeContext, whole: &Value) -> String {
    format!("{}-{}", ctx.node, &blake3::hash(whole.to_string().as_bytes()).to_hex()[..12])
}

impl ApprovalAnswer for CallAnswer {
    fn is_for_run(&self, approval: Approval) -> bool {
        match self.decision {
            Decision::Reject => false,
            Decision::ApproveForRun => true,
            Decision::Approve => approval == Approval::Once,
        }
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
