//! Answers that never end: the part that has arrived counts.

use std::{future::pending, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    event::{Event, MessagePart, Status},
    models::{ChatModel, ChatReply, ChatRequest, ModelError, TokenUsage},
    nodes::{ModelSource, Services},
    registry,
};
use serde_json::json;

use super::{Ended, run_with};

const TEXT: &str = "
graphrun: 1
name: w
state: { text: string }
agents: { a: { model: lab/a } }
start: a
nodes:
  a: { agent: a, prompt: { text: 'Tell me a very long story, please.' }, writes: text, timeout: 1s, retry: 1, then: end }
";

/// Sends a part of an answer, and then breaks off or stalls.
#[derive(Clone, Debug)]
enum Broken {
    /// The connection ends. The provider has stated this usage so far.
    Off(TokenUsage),
    /// The provider reports an error in place of the rest.
    Error,
    Stalls,
}

#[async_trait]
impl ChatModel for Broken {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        request.deltas.send(MessagePart::Text, &"word ".repeat(70));
        request.deltas.end();
        match self {
            Self::Off(usage) => {
                Err(ModelError::StreamTruncated { text: "word".into(), usage: *usage })
            }
            Self::Error => Err(ModelError::Transient { after: None, message: "broken".into() }),
            Self::Stalls => pending().await,
        }
    }

    fn name(&self) -> &'static str {
        "lab/a"
    }
}

impl ModelSource for Broken {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(self.clone()))
    }
}

async fn run(model: Broken) -> Ended {
    let services = Services { models: Arc::new(model), ..super::services() };
    run_with(TEXT, json!({}), services, registry()).await
}

/// The usage of the failed task.
fn usage_of(ended: &Ended) -> TokenUsage {
    let failed = ended.events.iter().find_map(|event| match &event.event {
        Event::TaskFailed { usage, .. } => Some(usage.tokens),
        _ => None,
    });
    failed.unwrap_or_else(|| panic!("{}", ended.reason()))
}

#[tokio::test(start_paused = true)]
async fn the_part_of_an_answer_that_has_arrived_counts() {
    // An early count of the provider is no count of the whole.
    let early =
        TokenUsage { input_tokens: 12, output_tokens: 1, calls: 1, ..TokenUsage::default() };
    for (model, input_tokens) in
        [(Broken::Off(early), 12), (Broken::Error, 10), (Broken::Stalls, 10)]
    {
        let ended = run(model.clone()).await;
        let usage = usage_of(&ended);
        assert_eq!(ended.end.status, Status::Failed, "{model:?}");
        // Of 34 and 350 characters.
        let counted = (usage.input_tokens, usage.output_tokens, usage.calls, usage.estimated);
        assert_eq!(counted, (input_tokens, 100, 1, true), "{model:?}: {}", ended.reason());
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_of_the_provider_that_is_larger_stays() {
    let counted =
        TokenUsage { input_tokens: 12, output_tokens: 120, calls: 1, ..TokenUsage::default() };
    let usage = usage_of(&run(Broken::Off(counted)).await);
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.estimated), (12, 120, false));
}
