//! One attempt of an agent: its models are asked in their order until one answers, or its program is.

use std::sync::{Arc, Mutex, PoisonError};

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
    state::Update,
};
use graphrun_models::{
    ChatModel, ChatRequest, ModelError, StructuredChat, StructuredError, with_doubled_max_tokens,
};
use graphrun_workflow::{OnOverflow, tool::ToolContext};
use serde_json::Value;

use super::{
    Agent, AgentSettings,
    answer::AnswerForm,
    compaction::{CompactedHistory, Summariser},
    cut::FittingModel,
    history::History,
    tools::WithTools,
};
use crate::call::{Calls, Candidate, Candidates, WatchedModel, with_model};

/// An attempt of an agent.
#[derive(Debug)]
pub(super) struct AgentAttempt<'a> {
    pub(super) agent: &'a Agent,
    pub(super) ctx: &'a NodeContext,
    /// The form of its answer.
    pub(super) answer: &'a AnswerForm<'a>,
    pub(super) calls: Calls,
    /// The context of its tools.
    pub(super) tools: &'a ToolContext,
    pub(super) end: Arc<AttemptEnd>,
}

/// Why an attempt ends within a call of a model, if it does: a person has to answer first. The failure of a model has no
/// place for a question.
#[derive(Debug, Default)]
pub(super) struct AttemptEnd(Mutex<Option<NodeError>>);

impl AttemptEnd {
    /// Ends the attempt once the call has returned. The failure that it returns has no effect.
    pub(super) fn set(&self, end: NodeError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    fn take(&self) -> Option<NodeError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The reason why one model gave no answer.
pub(super) enum NoAnswer {
    /// The model did not answer.
    Model(ModelError),
    /// The model answered, but the answer cannot be read.
    Unreadable(Failure),
    /// The attempt ends: a person has to answer first.
    End(NodeError),
}

impl AgentAttempt<'_> {
    /// Asks the models in their order until one answers.
    pub(super) async fn ask(&self) -> Result<Update, NodeError> {
        let Self { agent, ctx, .. } = self;
        // A program has no models that could summarise.
        let compacted = if agent.program.is_some() { None } else { self.compact_history().await? };
        let request = agent.request(ctx, compacted.as_ref())?;
        if let Some(program) = &agent.program {
            return self.ask_program(program, &request).await;
        }
        let mut candidates = Candidates::new(&agent.definition.models, &agent.services);
        while let Some(candidate) = candidates.next(ctx).await {
            let name = candidate.name;
            match self.ask_model(candidate, &request).await {
                Err(NoAnswer::Model(error)) => candidates.failed(name, error)?,
                Err(NoAnswer::Unreadable(failure)) => return Err(failure.into()),
                Err(NoAnswer::End(end)) => return Err(end),
                Ok(update) => return Ok(self.with_history(&request, compacted, update)),
            }
        }
        Err(candidates.failure())
    }

    /// Compacts the conversation that the agent continues, if it is too long.
    async fn compact_history(&self) -> Result<Option<CompactedHistory>, NodeError> {
        let AgentSettings { history, models, settings, .. } = &self.agent.definition;
        let Some(History { field, compaction: Some(compaction), .. }) = history else {
            return Ok(None);
        };
        let summariser = Summariser { models, settings, services: &self.agent.services };
        compaction.apply(self.ctx, field, summariser, &self.calls).await
    }

    /// Adds the prompt and the answer to the conversation that the agent continues.
    pub(super) fn with_history(
        &self,
        request: &ChatRequest,
        compacted: Option<CompactedHistory>,
        answer: Update,
    ) -> Update {
        match (&self.agent.definition.history, request.messages.last()) {
            (Some(history), Some(prompt)) => {
                let changes = compacted.map(|it| it.changes).unwrap_or_default();
                history.extend(changes, &prompt.content, answer)
            }
            _ => answer,
        }
    }

    /// Returns what happens to a request that is too long for a model: a later model of the list takes it whole.
    fn on_overflow(&self, name: &str) -> OnOverflow {
        let Agent { definition, services, .. } = self.agent;
        let mut later = definition.models.iter().skip_while(|it| *it != name).skip(1);
        if later.any(|it| services.models.model(it).is_ok()) {
            OnOverflow::Fail
        } else {
            definition.on_overflow
        }
    }

    async fn ask_model(
        &self,
        candidate: Candidate<'_>,
        request: &ChatRequest,
    ) -> Result<Update, NoAnswer> {
        let Self { agent, ctx, calls, .. } = self;
        let name = candidate.name;
        // Two models of one provider must not get each other's answer.
        let key = match request.key.as_str() {
            "" => String::new(),
            key => format!("{key}/{name}"),
        };
        let request = &ChatRequest { key, ..request.clone() };
        let watched = WatchedModel::new(candidate, ctx, &agent.services, calls);
        let fitted = FittingModel::new(&watched, ctx, self.on_overflow(name), request);
        let with_tools = WithTools::new(&fitted, self);
        let model: &dyn ChatModel = if agent.toolbox.is_empty() { &fitted } else { &with_tools };
        self.answer_of(name, model, request).await
    }

    /// Asks a model for the fields of the answer, unless a call ends the attempt.
    pub(super) async fn answer_of(
        &self,
        name: &str,
        model: &dyn ChatModel,
        request: &ChatRequest,
    ) -> Result<Update, NoAnswer> {
        let answered = self.read_answer_of(name, model, request).await;
        self.end.take().map_or(answered, |end| Err(NoAnswer::End(end)))
    }

    /// Asks a model, and reads its answer. The failure of an answer and its warnings name the model.
    async fn read_answer_of(
        &self,
        name: &str,
        model: &dyn ChatModel,
        request: &ChatRequest,
    ) -> Result<Update, NoAnswer> {
        if let Some(channel) = self.answer.as_text() {
            let text = text_answer(model, request).await.map_err(NoAnswer::Model)?;
            return Ok(Update::default().write(channel.clone(), Value::String(text)));
        }
        let chat = StructuredChat {
            model,
            schema: &self.answer.schema(self.ctx.node.as_str()),
            check: &|value| self.answer.read(value),
            repairs_max: self.agent.definition.repairs_max,
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
                    self.ctx.report(Report::Warning { message }).await;
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
}

/// Asks a model for a text, once more with twice the tokens if they did not suffice.
async fn text_answer(model: &dyn ChatModel, request: &ChatRequest) -> Result<String, ModelError> {
    let mut replied = model.chat(request).await;
    let longer = replied.as_ref().err().and_then(|it| with_doubled_max_tokens(request, it));
    if let Some(longer) = longer {
        replied = model.chat(&longer).await;
    }
    let reply = replied?;
    // A custom model may call tools it was not offered.
    if let (true, Some(call)) = (reply.text.trim().is_empty(), reply.tool_calls.first()) {
        let name = call.name.clone();
        let arguments = call.arguments.clone();
        return Err(ModelError::UnknownTool { name, arguments, usage: reply.usage });
    }
    Ok(reply.text)
}
