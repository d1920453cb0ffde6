//! The calls of an agent, made by the agent itself.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use graphrun::{
    compile::{Envelope, compile},
    engine::Engine,
    event::Status,
    id::NodeName,
    llm::{ChatModel, ChatReply, ChatRequest, Finish, ModelError, Usage},
    nodes::{ModelSource, Services, factory, registry},
    storage::MemoryStorage,
    workflow,
};

const WORKFLOW: &str = "
graphrun: 1
name: calls
state: { brief: string?, number: int }
input: [brief]
output: [number]
models: { both: [openai/first, openai/second] }
agents: { counter: { model: both } }
start: count
nodes:
  count:
    agent: counter
    prompt: { text: count }
    writes: number
    repair: 2
    retry: 3
    then: end
";

/// Models that answer nonsense as often as they are allowed to, and are broken down from then on.
#[derive(Debug, Default)]
struct Worst {
    calls: Arc<AtomicU64>,
    models: Mutex<BTreeMap<String, Arc<Nonsense>>>,
}

#[derive(Debug)]
struct Nonsense {
    name: String,
    calls: Arc<AtomicU64>,
    rounds: AtomicU32,
}

impl ModelSource for Worst {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let new = || {
            let (name, calls) = (name.to_owned(), Arc::clone(&self.calls));
            Arc::new(Nonsense { name, calls, rounds: AtomicU32::new(0) })
        };
        let mut models = self.models.lock().unwrap();
        Ok(Arc::clone(models.entry(name.to_owned()).or_insert_with(new)) as Arc<dyn ChatModel>)
    }
}

#[async_trait]
impl ChatModel for Nonsense {
    async fn chat(&self, _: &ChatRequest) -> Result<ChatReply, ModelError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.rounds.fetch_add(1, Ordering::SeqCst) >= 2 {
            return Err(ModelError::Transient { message: "it fell over".into() });
        }
        Ok(ChatReply {
            text: "no number".into(),
            reasoning: None,
            usage: Usage::default(),
            finish: Finish::Stop,
            model: "worst".into(),
        })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_models_do_their_worst_makes_no_more_calls_than_the_worst_case_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.yaml");
    std::fs::write(&path, WORKFLOW).unwrap();
    let (workflow, _) = workflow::load(&path, &registry()).unwrap();
    let worst = Worst::default();
    let calls = Arc::clone(&worst.calls);
    let services = Services { models: Arc::new(worst), ..Services::offline() };
    let graph = workflow.into_graph(&factory(services, registry()));
    let (graph, _) = compile(graph).unwrap();

    let envelope = Envelope::of(&graph).nodes[&NodeName::parse("count").unwrap()].clone();
    let engine = Engine::new(graph, Arc::new(MemoryStorage::default()));
    let end = engine.run(&BTreeMap::<String, String>::new()).await.unwrap();

    assert_eq!(end.status, Status::Failed);
    // Three attempts, each with two models that may mend their answers twice.
    assert_eq!((envelope.attempts_max, envelope.calls_max), (3, Some(3 * 2 * (1 + 2))));
    // Of these, what was answered is not asked again: each model answers twice in all, and breaks down
    // in each attempt.
    assert_eq!(calls.load(Ordering::SeqCst), 2 * 2 + 3 * 2);
}
