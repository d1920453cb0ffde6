//! Calling a model from a node: what it took is told at once, and failures get their kind.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;

use crate::{
    event::{Report, Spent},
    graph::{ErrorKind, Failure, Reporter},
    llm::{self, ChatModel, ChatReply, ChatRequest, ModelError, Prices, Usage},
};

/// A model whose calls are told to the watchers of a run.
///
/// Failed calls count as well, and each call as soon as it ends: a node that is dropped half-way
/// has still spent what it spent.
#[derive(Debug)]
pub(super) struct Watched<'a> {
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) reporter: &'a Reporter,
    pub(super) prices: &'a Prices,
}

#[async_trait]
impl ChatModel for Watched<'_> {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let started = Instant::now();
        let replied = self.model.chat(request).await;
        let (model, usage) = match &replied {
            Ok(reply) => (reply.model.clone(), reply.usage),
            Err(error) => (self.model.name().to_owned(), error.usage()),
        };
        if usage != Usage::default() {
            let cost_usd = self.prices.cost(self.model.name(), usage);
            let spent = Spent { usage, cost_usd };
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.reporter.report(Report::ModelCalled { model, spent, ms }).await;
        }
        replied
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

/// The failure of a node whose model did not answer.
pub(super) fn failure_of(error: &ModelError) -> Failure {
    let kind = match error.kind() {
        llm::ErrorKind::Timeout => ErrorKind::Timeout,
        llm::ErrorKind::RateLimit => ErrorKind::RateLimit,
        llm::ErrorKind::Auth | llm::ErrorKind::Quota => ErrorKind::Credentials,
        llm::ErrorKind::Refused => ErrorKind::Refused,
        llm::ErrorKind::InvalidOutput => ErrorKind::InvalidOutput,
        llm::ErrorKind::Recording => ErrorKind::Recording,
        llm::ErrorKind::Provider | llm::ErrorKind::ContextOverflow | llm::ErrorKind::BadRequest => {
            ErrorKind::Provider
        }
    };
    let after = error.retry_after().and_then(|it| u64::try_from(it.as_millis()).ok());
    let raw = match error {
        ModelError::Truncated { text, .. } | ModelError::Refused { text, .. } => Some(text.clone()),
        _ => None,
    };
    Failure {
        transient: error.is_retryable(),
        retry_after_ms: after,
        raw,
        ..Failure::of(kind, error)
    }
}

/// Whether another model may do what this one could not.
pub(super) fn may_fall_back(error: &ModelError) -> bool {
    match error.kind() {
        llm::ErrorKind::Timeout
        | llm::ErrorKind::RateLimit
        | llm::ErrorKind::Provider
        | llm::ErrorKind::Auth
        | llm::ErrorKind::Quota
        | llm::ErrorKind::ContextOverflow => true,
        // Asking elsewhere what one model refused is not ours to decide, and a request that is
        // wrong stays wrong.
        llm::ErrorKind::BadRequest
        | llm::ErrorKind::Refused
        | llm::ErrorKind::InvalidOutput
        | llm::ErrorKind::Recording => false,
    }
}
