//! `ask`: asks a person. The run is saved and waits for the answer.

use async_trait::async_trait;
use graphrun_core::{
    graph::{Command, Contract, Node, NodeContext, NodeError, Question, SideEffects},
    state::Update,
};
use graphrun_workflow::AskNode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::prompt_view;
/// Asks a person under the name of the node.
#[derive(Debug)]
pub(super) struct Ask(AskNode);

impl Ask {
    pub(super) fn new(definition: AskNode) -> Self {
        Self(definition)
    }

    /// Returns the schema of an answer: one of the choices, or any value of the written field.
    fn schema(&self, ctx: &NodeContext) -> Value {
        if !self.0.choices.is_empty() {
            return json!({"enum": self.0.choices});
        }
        let channel = self.0.writes.as_ref().and_then(|it| ctx.state.schema().channel(it.as_str()));
        channel.map_or(Value::Bool(true), |it| it.schema().clone())
    }
}

#[async_trait]
impl Node for Ask {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let show: Map<String, Value> = self
            .0
            .show
            .iter()
            .filter_map(|it| Some((it.to_string(), ctx.state.get(it.as_str())?.clone())))
            .collect();
        let prompt = self.0.prompt.render(&prompt_view(&ctx))?;
        let mut question =
            Question::new(ctx.node.as_str(), prompt.trim()).with_schema(self.schema(&ctx));
        // The deadline counts from now and is saved with the question: it applies while no process
        // runs.
        question.deadline = self.0.timeout.and_then(|it| Timestamp::now().checked_add(it).ok());
        if !show.is_empty() {
            question.show = Value::Object(show);
        }
        let answer: Value = ctx.ask(question)?;
        Ok(match &self.0.writes {
            Some(channel) => Update::default().write(channel.clone(), answer).into(),
            None => Command::default(),
        })
    }

    fn contract(&self) -> Contract {
        Contract { reads: None, writes: Some(self.0.writes.iter().cloned().collect()) }
    }

    fn calls_max(&self) -> Option<u64> {
        Some(0)
    }

    fn fingerprint(&self) -> Value {
        let AskNode { prompt, show, choices, writes, .. } = &self.0;
        json!({"prompt": prompt.text(), "show": show, "choices": choices, "writes": writes})
    }

    fn kind(&self) -> &'static str {
        "ask"
    }

    fn side_effects(&self) -> SideEffects {
        SideEffects::Nothing
    }
}
