//! `ask`: asks a person. The run is saved and waits for the answer.

mod read;

use std::collections::BTreeSet;

use async_trait::async_trait;
use graphrun_core::{
    graph::{
        Command, Contract, Node, NodeContext, NodeDescription, NodeError, Question, SideEffects,
    },
    state::{Channel, Type, Update},
};
use graphrun_models::Attachment;
use graphrun_workflow::{ExpressionView, PromptView, kind::file_type};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(super) use self::read::AskKind;
pub use self::read::AskSettings;

/// Asks a person under the name of the node.
#[derive(Debug)]
struct Ask(AskSettings);

impl Ask {
    /// Returns the field that it writes.
    fn channel<'c>(&self, ctx: &'c NodeContext) -> Option<&'c Channel> {
        self.0.writes.as_ref().and_then(|it| ctx.state.schema().channel(it.as_str()))
    }

    /// Returns the schema of an answer: one of the choices, any value of the written field, or an item if that is a list
    /// that grows.
    ///
    /// # Errors
    ///
    /// Fails if the list of choices is empty or has no value.
    fn schema(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        if let Some(list) = &self.0.choice_list {
            let choices = list.evaluate_owned(&ExpressionView::of(ctx))?;
            let mut seen = BTreeSet::new();
            let texts = choices.as_array().into_iter().flatten().filter_map(Value::as_str);
            let texts: Vec<&str> = texts.filter(|it| seen.insert(*it)).collect();
            if texts.is_empty() {
                let message = format!("there is nothing to choose: `{}` is empty", list.source());
                return Err(NodeError::permanent(message));
            }
            return Ok(json!({"enum": texts}));
        }
        if !self.0.choices.is_empty() {
            return Ok(json!({"enum": self.0.choices}));
        }
        Ok(match self.channel(ctx) {
            Some(channel) if channel.reducer().grows_list() => channel.item_schema(),
            Some(channel) => channel.schema().clone(),
            None => Value::Bool(true),
        })
    }
}

/// Returns a value as a person sees it: of a file, what a recording has in place of its content.
fn shown(value: &Value, ty: &Type) -> Value {
    match (ty.required(), value) {
        (ty, value) if *ty == file_type() && !value.is_null() => {
            match Attachment::of_value(value) {
                Ok(file) => json!(file),
                Err(_) => json!({"name": value["name"], "media_type": value["media_type"]}),
            }
        }
        (Type::List(item), Value::Array(items)) => items.iter().map(|it| shown(it, item)).collect(),
        (Type::Map(item), Value::Object(items)) => {
            items.iter().map(|(key, it)| (key.clone(), shown(it, item))).collect()
        }
        (Type::Record(record), Value::Object(fields)) => {
            let of = |(name, value): (&String, &Value)| {
                let field = record.fields.iter().find(|it| it.name == *name);
                (name.clone(), field.map_or_else(|| value.clone(), |it| shown(value, &it.ty)))
            };
            fields.iter().map(of).collect()
        }
        _ => value.clone(),
    }
}

#[async_trait]
impl Node for Ask {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let show: Map<String, Value> = self
            .0
            .show
            .iter()
            .filter_map(|field| {
                let ty = ctx.state.schema().channel(field.as_str())?.ty();
                Some((field.to_string(), shown(ctx.state.get(field.as_str())?, ty)))
            })
            .collect();
        let prompt = self.0.prompt.render(&PromptView::of(&ctx))?;
        let mut question =
            Question::new(ctx.node.as_str(), prompt.trim()).with_schema(self.schema(&ctx)?);
        // The deadline counts from now and is saved with the question: it applies while no process
        // runs.
        question.deadline = self.0.timeout.and_then(|it| Timestamp::now().checked_add(it).ok());
        if !show.is_empty() {
            question.show = Value::Object(show);
        }
        let answer: Value = ctx.ask(question)?;
        Ok(match self.channel(&ctx) {
            // A list, so that an answer that is a list itself is one item.
            Some(channel) if channel.reducer().grows_list() => {
                Update::default().write(channel.name().clone(), vec![answer]).into()
            }
            Some(channel) => Update::default().write(channel.name().clone(), answer).into(),
            None => Command::default(),
        })
    }

    fn describe(&self) -> NodeDescription {
        let AskSettings { prompt, show, choices, choice_list, writes, .. } = &self.0;
        let mut fingerprint = json!({
            "prompt": prompt.text(),
            "show": show,
            "choices": choices,
            "writes": writes,
        });
        if let Some(list) = choice_list {
            fingerprint["choices"] = list.source().into();
        }
        NodeDescription {
            kind: "ask",
            contract: Contract { reads: None, writes: Some(writes.iter().cloned().collect()) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            fingerprint,
            ..NodeDescription::default()
        }
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        let prompt = self.0.prompt.render(&PromptView::of(ctx))?;
        let question = ("question".to_owned(), prompt.trim().into());
        Ok(Map::from_iter([question, ("schema".to_owned(), self.schema(ctx)?)]))
    }
}
