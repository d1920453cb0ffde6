//! `agent`: asks a model and writes its answer to the fields of the state.

mod answer;
mod attach;
mod by_value;
mod compaction;
mod cut;
mod history;
mod program;
mod read;
mod session;
mod tools;

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{
        Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError,
        SideEffects,
    },
    state::Update,
};
use graphrun_models::{
    ChatModel, ChatRequest, Message, ModelError, RequestSettings, StructuredChat, StructuredError,
    ToolChoice, ToolSpec, with_doubled_max_tokens,
};
use graphrun_workflow::{
    OnOverflow, Prompt, PromptView,
    kind::{NodeSettings as _, Services},
    tool::ToolContext,
};
use serde_json::{Map, Value, json};
use tracing::Span;

use self::history::History;
use self::{
    answer::AnswerForm,
    compaction::CompactedHistory,
    cut::FittingModel,
    program::ProgramRunner,
    tools::{ToolUse, Toolbox, WithTools},
};
pub use self::{by_value::AgentMatchSettings, compaction::Compaction, read::AgentSettings};
pub(super) use self::{
    compaction::{Summariser, check_replaceable, refuse_program},
    history::check as check_history,
    read::AgentKind,
};
use super::{
    call::{Calls, Candidates, WatchedModel, with_model},
    in_folder::tools_folder,
    memory::task_memory,
};

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

    /// Asks the models in their order until one answers.
    async fn ask(
        &self,
        ctx: &NodeContext,
        answer: &AnswerForm<'_>,
        tool_ctx: &ToolContext,
    ) -> Result<Update, NodeError> {
        let calls = Calls::default();
        let compacted = self.compact_history(ctx, &calls).await?;
        let request = self.request(ctx, compacted.as_ref())?;
        if let Some(program) = &self.program {
            return self.ask_program(ctx, program, (&request, answer)).await;
        }
        let mut candidates = Candidates::new(&self.definition.models, &self.services);
        while let Some((name, model)) = candidates.next(ctx).await {
            match self
                .ask_one(ctx, (name, model, &candidates), (&request, answer), (&calls, tool_ctx))
                .await
            {
                Err(NoAnswer::Model(error)) => candidates.failed(name, error)?,
                Err(NoAnswer::Unreadable(failure)) => return Err(failure.into()),
                Err(NoAnswer::End(end)) => return Err(end),
                Ok(update) => return Ok(self.with_history(&request, compacted, update)),
            }
        }
        Err(candidates.failure())
    }

    /// Compacts the conversation that the agent continues, if it is too long.
    async fn compact_history(
        &self,
        ctx: &NodeContext,
        calls: &Calls,
    ) -> Result<Option<CompactedHistory>, NodeError> {
        let Some(History { field, compaction: Some(compaction), .. }) = &self.definition.history
        else {
            return Ok(None);
        };
        let AgentSettings { models, settings, .. } = &self.definition;
        let summariser = Summariser { models, settings, services: &self.services };
        compaction.apply(ctx, field, summariser, calls).await
    }

    /// Adds the prompt and the answer to the conversation that the agent continues.
    fn with_history(
        &self,
        request: &ChatRequest,
        compacted: Option<CompactedHistory>,
        answer: Update,
    ) -> Update {
        match (&self.definition.history, request.messages.last()) {
            (Some(history), Some(prompt)) => {
                let changes = compacted.map(|it| it.changes).unwrap_or_default();
                history.extend(changes, &prompt.content, answer)
            }
            _ => answer,
        }
    }

    /// Returns what happens to a request that is too long for a model: a later model of the list takes it whole.
    fn on_overflow(&self, name: &str) -> OnOverflow {
        let mut later = self.definition.models.iter().skip_while(|it| *it != name).skip(1);
        if later.any(|it| self.services.models.model(it).is_ok()) {
            OnOverflow::Fail
        } else {
            self.definition.on_overflow
        }
    }

    async fn ask_one(
        &self,
        ctx: &NodeContext,
        (name, model, candidates): (&str, Arc<dyn ChatModel>, &Candidates<'_>),
        (request, answer): (&ChatRequest, &AnswerForm<'_>),
        (calls, tool_ctx): (&Calls, &ToolContext),
    ) -> Result<Update, NoAnswer> {
        // Two models of one provider must not get each other's answer.
        let key = match request.key.as_str() {
            "" => String::new(),
            key => format!("{key}/{name}"),
        };
        let request = &ChatRequest { key, ..request.clone() };
        let watched = WatchedModel::new((name, model), ctx, &self.services, calls);
        let watched = watched.among(candidates);
        let use_of_tools = ToolUse {
            toolbox: &self.toolbox,
            rounds_max: self.definition.tool_rounds_max,
            context: tool_ctx,
        };
        let fitted = FittingModel::new(&watched, ctx, self.on_overflow(name), request);
        let with_tools = WithTools::new(&fitted, ctx, calls, use_of_tools);
        let model: &dyn ChatModel = if self.toolbox.is_empty() { &fitted } else { &with_tools };
        let answered = self.answer_of(ctx, (name, model), (request, answer)).await;
        match with_tools.take_end() {
            Some(end) => Err(NoAnswer::End(end)),
            None => answered,
        }
    }

    /// Asks a model for the fields of the answer. The failure of an answer and its warnings name the model.
    async fn answer_of(
        &self,
        ctx: &NodeContext,
        (name, model): (&str, &dyn ChatModel),
        (request, answer): (&ChatRequest, &AnswerForm<'_>),
    ) -> Result<Update, NoAnswer> {
        if let Some(channel) = answer.as_text() {
            let mut replied = model.chat(request).await;
            let longer = replied.as_ref().err().and_then(|it| with_doubled_max_tokens(request, it));
            if let Some(longer) = longer {
                replied = model.chat(&longer).await;
            }
            let reply = replied.map_err(NoAnswer::Model)?;
            // A custom model may call tools it was not offered.
            if let (true, Some(call)) = (reply.text.trim().is_empty(), reply.tool_calls.first()) {
                let (name, arguments) = (call.name.clone(), call.arguments.clone());
                let usage = reply.usage;
                return Err(NoAnswer::Model(ModelError::UnknownTool { name, arguments, usage }));
            }
            return Ok(Update::default().write(channel.clone(), Value::String(reply.text)));
        }
        let chat = StructuredChat {
            model,
            schema: &answer.schema(ctx.node.as_str()),
            check: &|value| answer.read(value),
            repairs_max: self.definition.repairs_max,
        };
        // `WatchedModel` has already reported each call.
        let asked = chat.ask(request.clone()).await;
        match asked {
            Ok(structured) => {
                let (update, read) = structured.value;
                // A lenient reader says how it read each deviation.
                let deviations = if read.is_empty() { structured.deviations } else { read };
                for warning in structured.warnings.into_iter().chain(deviations) {
                    let message = format!("{name}: {warning}");
                    ctx.report(Report::Warning { message }).await;
                }
                Ok(update)
            }
            Err(StructuredError::Model { error, .. }) => Err(NoAnswer::Model(error)),
            Err(error @ StructuredError::InvalidOutput { .. }) => {
                let failure = with_model(name, Failure::of(ErrorKind::InvalidOutput, &error));
                let StructuredError::InvalidOutput { raw, .. } = error else {
                    return Err(NoAnswer::Unreadable(failure));
                };
                Err(NoAnswer::Unreadable(Failure { raw: Some(raw), ..failure }))
            }
        }
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

/// The reason why one model gave no answer.
enum NoAnswer {
    /// The model did not answer.
    Model(ModelError),
    /// The model answered, but the answer cannot be read.
    Unreadable(Failure),
    /// The attempt ends: a person has to answer first.
    End(NodeError),
}

#[async_trait]
impl Node for Agent {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        // The engine has made the span of the attempt, and has no name of an agent.
        Span::current().record("agent", &self.definition.agent);
        let answer = self.answer_form(&ctx)?;
        // Tools that others take the place of need no folder, and a program opens its own.
        let has_tools = self.services.tools.is_none() && self.program.is_none();
        let folder = self.definition.folder.as_ref().filter(|_| has_tools);
        let tool_ctx = ToolContext {
            cancel: ctx.cancel.token(),
            folder: tools_folder(&ctx, folder).await?,
            caller: ctx.full_name().to_string(),
            memory: task_memory(&ctx, &self.services, &self.definition.tiers),
            node: Some(ctx.clone()),
            ..ToolContext::default()
        };
        Ok(self.ask(&ctx, &answer, &tool_ctx).await?.into())
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
            let tool = |it: ToolSpec| json!({"name": it.name, "description": it.description, "schema": it.schema});
            preview
                .insert("tools".to_owned(), self.toolbox.specs().into_iter().map(tool).collect());
        }
        Ok(preview)
    }
}
