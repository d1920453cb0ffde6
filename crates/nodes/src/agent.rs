//! `agent`: asks a model and writes its answer to the fields of the state.

mod answer;
mod attach;
mod attempt;
mod by_value;
mod compaction;
mod cut;
mod history;
mod program;
mod read;
mod result;
mod session;
mod tools;

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::graph::{
    Command, Contract, Node, NodeContext, NodeDescription, NodeError, SideEffects,
};
use graphrun_models::{ChatRequest, Message, RequestSettings, ToolChoice, ToolSpec};
use graphrun_workflow::{
    OnOverflow, Prompt, PromptView,
    kind::{NodeSettings as _, Services},
    tool::ToolContext,
};
use serde_json::{Map, Value, json};
use tracing::Span;

use self::{
    answer::AnswerForm, attempt::AgentAttempt, compaction::CompactedHistory, history::History,
    program::ProgramRunner, tools::Toolbox,
};
pub use self::{by_value::AgentMatchSettings, compaction::Compaction, read::AgentSettings};
pub(super) use self::{
    compaction::{Summariser, check_replaceable, refuse_program},
    history::check as check_history,
    read::AgentKind,
};
use super::{call::Calls, in_folder::tools_folder, memory::task_memory};

/// Asks a model for the fields that the node writes.
#[derive(Debug)]
struct Agent {
    definition: AgentSettings,
    services: Services,
    toolbox: Toolbox,
    /// The program that it asks in place of a model.
    program: Option<Arc<ProgramRunner>>,
}

impl Agent {
    /// Returns the messages of the first request, with the compacted conversation if there is one.
    fn messages(
        &self,
        ctx: &NodeContext,
        compacted: Option<&CompactedHistory>,
    ) -> Result<Vec<Message>, NodeError> {
        let AgentSettings { system, prompt, prompt_again, .. } = &self.definition;
        let view = PromptView::of(ctx);
        let prompt = prompt_again.as_ref().filter(|_| ctx.visit() > 1).unwrap_or(prompt);
        let mut messages = Vec::new();
        if let Some(system) = system {
            messages.push(Message::system(system.render(&view)?));
        }
        if let Some(history) = &self.definition.history {
            messages.extend(match compacted {
                Some(compacted) => history.sent(&compacted.messages)?,
                None => history.messages(&ctx.state)?,
            });
        }
        let attachments = attach::attachments(&self.definition.attached, ctx)?;
        messages.push(Message { attachments, ..Message::user(prompt.render(&view)?) });
        Ok(messages)
    }

    fn request(
        &self,
        ctx: &NodeContext,
        compacted: Option<&CompactedHistory>,
    ) -> Result<ChatRequest, NodeError> {
        Ok(ChatRequest {
            caller: ctx.full_name().to_string(),
            key: ctx.idempotency_key(),
            timeout: ctx.timeout,
            messages: self.messages(ctx, compacted)?,
            settings: self.definition.settings.clone(),
            tools: self.toolbox.specs(),
            tool_choice: self.definition.tool_choice.clone(),
            ..ChatRequest::default()
        })
    }

    /// Returns the worst case: each model is asked, and its last repair fails, so that the next one is asked.
    fn calls_max(&self) -> Option<u64> {
        let models = &self.definition.models;
        // A program counts as one model.
        let models = models.len().max(usize::from(self.program.is_some()));
        let models = u64::try_from(models).unwrap_or(u64::MAX);
        let calls = models.saturating_mul(self.definition.calls_max());
        let embeddings = self.definition.embeddings().map_or(0, |it| it.calls_max);
        let calls = calls.saturating_add(embeddings);
        // A tool in Rust does not declare whether it asks a model.
        self.toolbox.ask_no_model().then_some(calls)
    }

    fn answer_form<'c>(&self, ctx: &'c NodeContext) -> Result<AnswerForm<'c>, NodeError> {
        let AgentSettings { writes, writes_one, .. } = &self.definition;
        AnswerForm::of(writes, writes_one, ctx.state.schema())
    }

    fn fingerprint(&self) -> Value {
        let AgentSettings { models, system, prompt, prompt_again, settings, .. } = &self.definition;
        let mut fingerprint = json!({
            "models": models,
            "system": system.as_ref().map(Prompt::text),
            "prompt": prompt.text(),
            "again": prompt_again.as_ref().map(Prompt::text),
            "temperature": settings.temperature,
            "writes": self.definition.writes,
        });
        if let Some(History { field, last, compaction }) = &self.definition.history {
            fingerprint["history"] = json!([field, last]);
            if let Some(compaction) = compaction {
                fingerprint["compact"] = compaction.fingerprint();
            }
        }
        if !self.definition.writes_one.is_empty() {
            fingerprint["writes_one"] = json!(self.definition.writes_one);
        }
        if !self.definition.attached.is_empty() {
            fingerprint["attach"] = attach::fingerprint(&self.definition.attached);
        }
        if let Some(session) = &self.definition.session {
            fingerprint["session"] = json!(session);
        }
        let others = RequestSettings { temperature: None, ..settings.clone() };
        if others != RequestSettings::default() {
            fingerprint["settings"] = json!(others);
        }
        if self.definition.on_overflow != OnOverflow::Fail {
            fingerprint["on_overflow"] = self.definition.on_overflow.as_str().into();
        }
        if let Some(program) = &self.program {
            fingerprint["program"] = program.fingerprint();
        }
        if let Some(embeddings) = self.definition.embeddings() {
            fingerprint["embeddings"] = json!(embeddings.models);
        }
        if !self.toolbox.is_empty() {
            fingerprint["tools"] = self.toolbox.fingerprint();
            let declared = self.definition.declared.iter().map(|it| it.fingerprint());
            let declared: Vec<Value> = declared.collect();
            if !declared.is_empty() {
                fingerprint["declared"] = declared.into();
            }
            fingerprint["tool_rounds"] = self.definition.tool_rounds_max.into();
            let choice = &self.definition.tool_choice;
            if *choice != ToolChoice::default() {
                fingerprint["tool_choice"] = json!(choice);
            }
            if !self.definition.approvals.is_empty() {
                let approvals = self.definition.approvals.iter();
                let approvals = approvals.map(|(tool, it)| (tool.clone(), it.as_str().into()));
                fingerprint["approvals"] = Value::Object(approvals.collect());
            }
        }
        fingerprint
    }
}

#[async_trait]
impl Node for Agent {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        // The engine has made the span of the attempt, and has no name of an agent.
        Span::current().record("agent", &self.definition.agent);
        let answer = self.answer_form(&ctx)?;
        // Tools that are not called need no folder, and a program opens its own.
        let results = self.services.tool_results.as_ref();
        let is_replaced = results.is_some_and(|it| !it.keeps_built_in());
        let needs_folder = !is_replaced && self.program.is_none();
        let folder = self.definition.folder.as_ref().filter(|_| needs_folder);
        let tools = ToolContext {
            cancel: ctx.cancel.token(),
            folder: tools_folder(&ctx, folder).await?,
            caller: ctx.full_name().to_string(),
            memory: task_memory(&ctx, &self.services, &self.definition.tiers),
            node: Some(ctx.clone()),
            ..ToolContext::default()
        };
        let ctx = &ctx;
        let calls = Calls::default();
        let end = Arc::default();
        let attempt = AgentAttempt { agent: self, ctx, answer: &answer, calls, tools: &tools, end };
        Ok(attempt.ask().await?.into())
    }

    fn describe(&self) -> NodeDescription {
        let history = self.definition.history.as_ref().map(|it| it.field.clone());
        let also = history.into_iter().chain(self.definition.session.clone());
        let writes = self.definition.writes.iter().cloned().chain(also).collect();
        NodeDescription {
            kind: "agent",
            contract: Contract { reads: None, writes: Some(writes) },
            writes_one: self.definition.writes_one.clone(),
            calls_max: self.calls_max(),
            side_effects: if self.toolbox.is_empty() && self.program.is_none() {
                SideEffects::Models
            } else {
                SideEffects::World
            },
            fingerprint: self.fingerprint(),
            ..NodeDescription::default()
        }
    }

    /// Returns the rendered prompts.
    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        Ok(serde_json::to_value(self.messages(ctx, None)?)?)
    }

    /// Returns the messages of the first request. The tools and the schema of the answer are as in that request.
    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        let answer = self.answer_form(ctx)?;
        let mut preview = Map::new();
        let mut messages = self.messages(ctx, None)?;
        let prompt = messages.pop();
        if self.definition.system.is_some() {
            preview.insert("system".to_owned(), messages.remove(0).content.into());
        }
        if self.definition.history.is_some() {
            let messages =
                messages.iter().map(|it| json!({"role": it.role, "content": it.content}));
            preview.insert("history".to_owned(), messages.collect());
        }
        if let Some(Message { content, attachments, .. }) = prompt {
            if !attachments.is_empty() {
                preview.insert("attachments".to_owned(), json!(attachments));
            }
            preview.insert("prompt".to_owned(), content.into());
        }
        if answer.as_text().is_none() {
            preview.insert("schema".to_owned(), answer.schema(ctx.node.as_str()).schema);
        }
        if !self.toolbox.is_empty() {
            let tool = |tool: ToolSpec| json!({"name": tool.name, "description": tool.description, "schema": tool.schema});
            preview
                .insert("tools".to_owned(), self.toolbox.specs().into_iter().map(tool).collect());
        }
        Ok(preview)
    }
}
