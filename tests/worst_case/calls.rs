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
    compile::{NodeWorstCase, WorstCase, compile},
    engine::Engine,
    event::Status,
    id::NodeName,
    models::{ChatModel, ChatReply, ChatRequest, ModelError, ToolCall},
    nodes::{ModelSource, Services, factory},
    registry, workflow,
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

/// Models that call tools and answer nonsense as often as they are allowed to, and are broken down
/// from then on.
#[derive(Debug, Default)]
struct Worst {
    calls: Arc<AtomicU64>,
    tool_rounds: u32,
    models: Mutex<BTreeMap<String, Arc<Nonsense>>>,
}

#[derive(Debug)]
struct Nonsense {
    name: String,
    calls: Arc<AtomicU64>,
    tool_rounds: u32,
    rounds: AtomicU32,
}

impl ModelSource for Worst {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let new = || {
            let name = name.to_owned();
            let calls = Arc::clone(&self.calls);
            let rounds = AtomicU32::new(0);
            Arc::new(Nonsense { name, calls, tool_rounds: self.tool_rounds, rounds })
        };
        let mut models = self.models.lock().unwrap();
        Ok(Arc::clone(models.entry(name.to_owned()).or_insert_with(new)) as Arc<dyn ChatModel>)
    }
}

#[async_trait]
impl ChatModel for Nonsense {
    async fn chat(&self, _: &ChatRequest) -> Result<ChatReply, ModelError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let round = self.rounds.fetch_add(1, Ordering::SeqCst);
        if round < self.tool_rounds {
            // Each time another one, for who makes the same call again and again is stopped sooner.
            let arguments = format!(r#"{{"path": "folder-{round}"}}"#);
            let id = String::new();
            let name = "fs.list".to_owned();
            let tool_calls = vec![ToolCall { id, name, arguments, extra: None }];
            return Ok(ChatReply { tool_calls, ..ChatReply::default() });
        }
        if round >= self.tool_rounds + 2 {
            return Err(ModelError::Transient { after: None, message: "it fell over".into() });
        }
        Ok(ChatReply { text: "no number".into(), model: "worst".into(), ..ChatReply::default() })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// What one agent is said to take at most, and the calls that it made.
async fn at_worst(workflow: &str, tool_rounds: u32) -> (NodeWorstCase, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.yaml");
    std::fs::write(&path, workflow).unwrap();
    let (workflow, _) = workflow::load(&path, &registry()).unwrap();
    let worst = Worst { tool_rounds, ..Worst::default() };
    let calls = Arc::clone(&worst.calls);
    let services = Services { models: Arc::new(worst), ..Services::offline() };
    let graph = workflow.into_graph(&factory(services, registry()));
    let graph = compile(graph).unwrap();

    let worst_case = WorstCase::of(&graph).nodes[&NodeName::parse("count").unwrap()].clone();
    let engine = Engine::new(graph);
    let end = engine.run(&BTreeMap::<String, String>::new()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    (worst_case, calls.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn the_worst_models_stay_within_the_planned_calls() {
    let (worst_case, calls) = at_worst(WORKFLOW, 0).await;
    // Three attempts, each with two models that may mend their answers twice.
    assert_eq!((worst_case.attempts_max, worst_case.calls_max), (3, Some(3 * 2 * (1 + 2))));
    // Saved answers are not requested again: each model answers twice in all, and breaks down
    // in each attempt.
    assert_eq!(calls, 2 * 2 + 3 * 2);
}

#[tokio::test(start_paused = true)]
async fn rounds_of_calls_to_tools_are_in_the_worst_case() {
    let tools = "{ model: both, tools: fs.list, max_tool_rounds: 3 }";
    let workflow = WORKFLOW.replace("{ model: both }", tools);
    let (worst_case, calls) = at_worst(&workflow, 3).await;
    assert_eq!(worst_case.calls_max, Some(3 * 2 * (1 + 3 + 2)));
    assert_eq!(calls, 2 * (3 + 2) + 3 * 2);
}
