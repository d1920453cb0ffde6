//! Calls that failed: a longer request and a fallback build on them, and a resumed run does not pay for either again.

use std::{future::pending, path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{Checkpointer, RunInfo},
    compile::compile,
    diagnostic::SourceFile,
    engine::{Engine, RunEnd, ShutdownHandle},
    event::Status,
    models::{ChatModel, ChatReply, ChatRequest, ModelError, TokenUsage},
    nodes::{ModelSource, Services, factory},
    registry,
    state::Update,
    storage::InMemoryStorage,
    workflow::parse,
};
use serde_json::json;

use super::{
    fallback::{Asked, Models, Reply, models, says},
    services,
};

fn paid() -> TokenUsage {
    TokenUsage { input_tokens: 5_000, output_tokens: 1_000, calls: 1, ..TokenUsage::default() }
}

/// A model that stops its process at one of its requests, counted from 1.
#[derive(Debug)]
struct Dying {
    model: Arc<dyn ChatModel>,
    at: usize,
    asked: Asked,
    stop: ShutdownHandle,
}

#[async_trait]
impl ChatModel for Dying {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let replied = self.model.chat(request).await;
        if self.asked.lock().unwrap().len() == self.at {
            self.stop.abort();
            pending::<()>().await;
        }
        replied
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

/// The models of a process that dies.
#[derive(Debug)]
struct DyingModels {
    models: Models,
    at: usize,
    stop: ShutdownHandle,
}

impl ModelSource for DyingModels {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let model = self.models.model(name)?;
        let asked = Arc::clone(&self.models.asked);
        let stop = self.stop.clone();
        Ok(Arc::new(Dying { model, at: self.at, asked, stop }))
    }
}

/// A process that makes at most this many requests, and the storage that outlives it.
struct Process {
    engine: Engine,
    stop: ShutdownHandle,
}

impl Process {
    fn start(models: Models, dies_at: usize, storage: &Arc<InMemoryStorage>) -> Self {
        let text = "graphrun: 1\nname: w\nstate: { text: string }\nmodels: { m: [lab/a, lab/b] }\nagents: { a: { \
                    model: m, max_tokens: 100 } }\nstart: a\nlimits: { tokens: 20000 }\nnodes:\n  a: { agent: a, prompt: { \
                    text: What? }, writes: text, retry: { attempts: 3, initial: 1ms }, then: end }\n";
        let stop = ShutdownHandle::default();
        let models = DyingModels { models, at: dies_at, stop: stop.clone() };
        let services = Services { models: Arc::new(models), ..services() };
        let file = Arc::new(SourceFile { name: "w.yaml".into(), text: text.to_owned() });
        let (workflow, _) = parse(file, Path::new("."), &registry()).unwrap();
        let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
        let storage = Arc::clone(storage) as Arc<dyn Checkpointer>;
        Self { engine: Engine::new(graph).with_storage(storage), stop }
    }
}

/// Runs an agent with the models `lab/a` and `lab/b`; its process dies at the second request. Returns the end of the
/// resumed run, and the models that were asked by both processes.
async fn killed_at_the_second_request(
    first: &[(&'static str, Reply)],
    second: &[(&'static str, Reply)],
) -> (RunEnd, Vec<(&'static str, Option<u32>)>) {
    let storage = Arc::new(InMemoryStorage::default());
    let info = RunInfo::new("w");
    let id = info.id.clone();
    let mut seen = Vec::new();
    let mut ended = None;
    for (replies, dies_at) in [(first, 2), (second, usize::MAX)] {
        let models = models(["lab/a", "lab/b"].map(|name| {
            let own = replies.iter().filter(|it| it.0 == name).map(|it| it.1.clone());
            (name, own.chain([says("asked too often")]).collect())
        }));
        let asked = Arc::clone(&models.asked);
        let Process { engine, stop } = Process::start(models, dies_at, &storage);
        let end = if ended.is_none() {
            engine.run(Update::default()).with_info(info.clone()).with_shutdown(&stop).await
        } else {
            engine.resume(&id).with_shutdown(&stop).await
        };
        let asked = asked.lock().unwrap();
        seen.extend(asked.iter().map(|(name, request)| (*name, request.settings.max_tokens)));
        ended = Some(end.unwrap());
    }
    (ended.unwrap(), seen)
}

fn truncated() -> Reply {
    Err(ModelError::Truncated { text: "Te".into(), usage: paid(), tokens_max: None })
}

#[tokio::test]
async fn a_truncated_answer_is_paid_for_once() {
    let answer = says("teal");
    let first = [("lab/a", truncated()), ("lab/a", answer.clone())];
    let (end, asked) = killed_at_the_second_request(&first, &[("lab/a", answer)]).await;
    assert_eq!((end.status, end.state.get("text")), (Status::Done, Some(&json!("teal"))));
    assert_eq!(asked, [("lab/a", Some(100)), ("lab/a", Some(200)), ("lab/a", Some(200))]);
    assert_eq!(end.position.used.usage.tokens.total_tokens(), 6_000, "paid once, and counted");
}

#[tokio::test]
async fn a_paid_failure_before_a_fallback_is_paid_for_once() {
    let finish = "error".to_owned();
    let text = String::new();
    let broken = || ModelError::Transient { after: None, message: "up".into() };
    for failure in [
        ModelError::Incomplete { finish, text, usage: paid() },
        ModelError::EmptyResponse { usage: paid() },
        ModelError::StreamTruncated { text: "z".repeat(5_000), usage: paid() },
        broken().charged(paid(), Some(0.3)),
    ] {
        let answer = says("teal");
        let first = [("lab/a", Err(failure.clone())), ("lab/b", answer.clone())];
        let (end, asked) = killed_at_the_second_request(&first, &[("lab/b", answer)]).await;
        assert_eq!(end.state.get("text"), Some(&json!("teal")), "{failure:?}");
        let names: Vec<&str> = asked.iter().map(|it| it.0).collect();
        assert_eq!(names, ["lab/a", "lab/b", "lab/b"], "{failure:?}");
        assert_eq!(end.position.used.usage.tokens.total_tokens(), 6_000, "{failure:?}");
    }
}

/// Otherwise the first model could answer now, and the paid answers of the second one would be lost.
#[tokio::test]
async fn a_resumed_fallback_does_not_ask_the_first_model_again() {
    let broken = Err(ModelError::Transient { after: None, message: "up".into() });
    let answer = says("teal");
    let first = [("lab/a", broken), ("lab/b", answer.clone())];
    let second = [("lab/a", says("red")), ("lab/b", answer)];
    let (end, asked) = killed_at_the_second_request(&first, &second).await;
    let names: Vec<&str> = asked.iter().map(|it| it.0).collect();
    assert_eq!(
        (end.state.get("text"), names),
        (Some(&json!("teal")), vec!["lab/a", "lab/b", "lab/b"])
    );
}

#[tokio::test]
async fn the_next_attempt_repeats_paid_failures_that_may_pass() {
    let limited = || Err(ModelError::RateLimited { after: None, message: "slow down".into() });
    let storage = Arc::new(InMemoryStorage::default());
    for (failure, expected) in [
        // It may pass, and so the next attempt asks the model again.
        (Err(ModelError::EmptyResponse { usage: paid() }), vec!["lab/a", "lab/b", "lab/a"]),
        // The same request would be truncated again.
        (truncated(), vec!["lab/a", "lab/a", "lab/b", "lab/a"]),
    ] {
        let replies = [("lab/a", vec![failure.clone(), limited(), says("teal")])];
        let replies = match &failure {
            Err(ModelError::Truncated { .. }) => replies,
            _ => [("lab/a", vec![failure.clone(), says("teal")])],
        };
        let models = models(replies.into_iter().chain([("lab/b", vec![limited()])]));
        let asked = Arc::clone(&models.asked);
        let process = Process::start(models, usize::MAX, &storage);
        let end = process.engine.run(Update::default()).await.unwrap();
        let asked: Vec<_> = asked.lock().unwrap().iter().map(|it| it.0).collect();
        assert_eq!((end.state.get("text"), asked), (Some(&json!("teal")), expected), "{failure:?}");
    }
}
