//! The vectors of a task's searches and entries.
//!
//! A model for embeddings that does not answer fails no node: memory ranks by words without it. So the engine does not
//! repeat these calls, and this file does, a few times within seconds.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use graphrun_core::{
    event::{Report, Usage},
    graph::NodeContext,
};
use graphrun_memory::{StoreError, Vector};
use graphrun_models::{
    EmbeddingModel, EmbeddingReply, EmbeddingRequest, ModelError, ModelErrorKind, TokenUsage,
};
use graphrun_workflow::{kind::Services, memory::Embedder};
use tokio::time::sleep;
use tracing::{Instrument, field, info_span};

use crate::call::{answered_by, before_end};

/// The most attempts at one request.
const ATTEMPTS_MAX: u32 = 3;
/// The wait before the second attempt; it doubles with each.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// The longest wait before an attempt. If the provider asks for a longer one, there is no further attempt.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The longest duration of an attempt.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// A text of so many characters is not cut, also if its model finds it too long.
const CHARACTERS_MIN: usize = 256;

/// Makes vectors for a task, and reports their usage.
#[derive(Debug)]
pub(super) struct TaskEmbedder {
    ctx: NodeContext,
    services: Services,
    /// Whether a model has made a vector for the task.
    has_vectors: AtomicBool,
}

/// The vectors of the first texts of a request.
struct MadeVectors {
    vectors: Vec<Option<Vector>>,
    /// Why the request was divided.
    refusal: Option<ModelError>,
}

/// A connected model that makes vectors for a task.
#[derive(Clone, Copy)]
struct WatchedEmbeddings<'a> {
    /// The name of the model in the workflow, which determines its price.
    named: &'a str,
    model: &'a dyn EmbeddingModel,
    task: &'a TaskEmbedder,
}

impl TaskEmbedder {
    pub(super) fn new(ctx: &NodeContext, services: &Services) -> Self {
        let has_vectors = AtomicBool::new(false);
        Self { ctx: ctx.clone(), services: services.clone(), has_vectors }
    }
}

impl WatchedEmbeddings<'_> {
    /// Asks for the vectors of a request. If the model refuses it because of one text, half as many of its first texts are sent, until
    /// an answer arrives: so each request has one answer at most, as the plan of the workflow has it. A later search asks for the
    /// others.
    async fn accepted_vectors(self, request: EmbeddingRequest) -> Result<MadeVectors, ModelError> {
        let part = |texts: &[String]| EmbeddingRequest { texts: texts.to_vec(), ..request.clone() };
        let refusal = match self.vectors(request.clone()).await {
            Ok(vectors) => return Ok(MadeVectors { vectors, refusal: None }),
            Err(error) if may_be_of_one_text(&error) => error,
            Err(error) => return Err(error),
        };
        let mut count = request.texts.len();
        while count > 1 {
            count /= 2;
            match self.vectors(part(&request.texts[..count])).await {
                Ok(vectors) => return Ok(MadeVectors { vectors, refusal: Some(refusal) }),
                Err(error) if may_be_of_one_text(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut vectors = vec![Some(Vector::of_refused_text())];
        // A model that has made no vector may refuse all texts.
        if !self.task.has_vectors.load(Ordering::Relaxed) {
            let Some(next) = request.texts.get(1..2) else { return Err(refusal) };
            match self.vectors(part(next)).await {
                Ok(next) => vectors.extend(next),
                Err(error) if may_be_of_one_text(&error) => return Err(refusal),
                Err(error) => return Err(error),
            }
        }
        Ok(MadeVectors { vectors, refusal: Some(refusal) })
    }

    /// Asks for the vectors of a request, with shorter texts if they are too long for the model.
    async fn vectors(
        self,
        mut request: EmbeddingRequest,
    ) -> Result<Vec<Option<Vector>>, ModelError> {
        loop {
            match self.reply(&request).await {
                Ok(reply) => {
                    self.task.has_vectors.store(true, Ordering::Relaxed);
                    return Ok(reply.vectors.iter().map(|it| Vector::of(it)).collect());
                }
                Err(error @ ModelError::ContextOverflow { .. }) => {
                    let longest = request.texts.iter().map(|it| it.chars().count()).max();
                    let half = longest.unwrap_or_default() / 2;
                    if half < CHARACTERS_MIN {
                        return Err(error);
                    }
                    for text in &mut request.texts {
                        *text = text.chars().take(half).collect();
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request until it is answered, or another attempt makes no sense.
    async fn reply(self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError> {
        let ctx = &self.task.ctx;
        let mut attempt = 1;
        let mut wait = WAIT_FIRST;
        loop {
            let left = ctx.time_left().map(before_end);
            let timeout = left.map_or(REQUEST_TIME_MAX, |it| it.min(REQUEST_TIME_MAX));
            let is_repeat = attempt > 1 || ctx.attempt > 1;
            let request = EmbeddingRequest { is_repeat, timeout: Some(timeout), ..request.clone() };
            let error = match self.attempt(&request).await {
                Err(error) if attempt < ATTEMPTS_MAX && error.is_retryable() => error,
                outcome => return outcome,
            };
            let asked = error.retry_after().unwrap_or(wait);
            // A provider that was silent for a minute has had its time.
            if asked > WAIT_MAX || matches!(error, ModelError::Timeout { .. }) {
                return Err(error);
            }
            sleep(asked).await;
            (attempt, wait) = (attempt + 1, wait * 2);
        }
    }

    /// Makes one attempt, within the limits of the run, and reports its usage.
    async fn attempt(self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError> {
        let Self { named, model, task: TaskEmbedder { ctx, .. } } = self;
        let _permit = ctx.within_budget_for(self.usage(request.estimate(), None)).await;
        let span = info_span!(
            "embeddings",
            model = named,
            texts = request.texts.len(),
            answered_by = field::Empty,
            input_tokens = field::Empty,
            error = field::Empty
        );
        let started = Instant::now();
        let replied = model.embed(request).instrument(span.clone()).await;
        let (model, tokens, cost_usd) = match &replied {
            Ok(reply) => (answered_by(named, &reply.model), reply.usage, reply.cost_usd),
            Err(error) => (model.name().to_owned(), error.usage(), error.cost_usd()),
        };
        span.record("input_tokens", tokens.input_tokens);
        match &replied {
            Ok(reply) => span.record("answered_by", &reply.model),
            Err(error) => span.record("error", error.kind().as_str()),
        };
        if tokens != TokenUsage::default() {
            let usage = self.usage(tokens, cost_usd);
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            ctx.report(Report::ModelCall { model, usage, ms }).await;
        }
        let warning = replied.as_ref().ok().and_then(|it| it.stated.warning(named));
        if let Some(message) = warning {
            ctx.report(Report::Warning { message }).await;
        }
        replied
    }

    fn usage(self, tokens: TokenUsage, cost_usd: Option<f64>) -> Usage {
        let prices = &self.task.services.prices;
        Usage { tokens, cost_usd: cost_usd.or_else(|| prices.cost(self.named, tokens)) }
    }
}

#[async_trait]
impl Embedder for TaskEmbedder {
    async fn embed(
        &self,
        model: &str,
        texts: &[String],
        consequence: &str,
    ) -> Result<Vec<Option<Vector>>, StoreError> {
        let mut vectors = Vec::new();
        let mut is_reported = false;
        let connected = self.services.models.embeddings(model);
        for request in EmbeddingRequest::batches(self.ctx.node.as_str(), texts) {
            let end = vectors.len() + request.texts.len();
            let made = match &connected {
                Ok(connected) => {
                    let model = WatchedEmbeddings { named: model, model: &**connected, task: self };
                    model.accepted_vectors(request).await
                }
                Err(error) => Err(error.clone()),
            };
            match made {
                Ok(MadeVectors { vectors: made, refusal }) => {
                    vectors.extend(made);
                    vectors.resize(end, None);
                    if let Some(error) = refusal.filter(|_| !is_reported) {
                        is_reported = true;
                        let message = format!(
                            "`{model}` refuses the text of an entry: {error}; {consequence}"
                        );
                        self.ctx.report(Report::Warning { message }).await;
                    }
                }
                Err(error) if error.kind() == ModelErrorKind::Recording => {
                    return Err(StoreError::Recording(error.to_string()));
                }
                Err(error) => {
                    let message = format!("`{model}` makes no vectors: {error}; {consequence}");
                    self.ctx.report(Report::Warning { message }).await;
                    break;
                }
            }
        }
        vectors.resize(texts.len(), None);
        Ok(vectors)
    }
}

/// Returns whether a request may fail because of one of its texts.
fn may_be_of_one_text(error: &ModelError) -> bool {
    matches!(
        error.reason(),
        ModelError::BadRequest { status: 400 | 413 | 422, .. }
            | ModelError::Refused { .. }
            | ModelError::ContextOverflow { .. }
    )
}
