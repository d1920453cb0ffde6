//! A workflow with one agent, whose model is a client of a test's server.

use std::{path::Path, sync::Arc};

use graphrun::{
    checkpoint::Checkpointer,
    compile::compile,
    diagnostic::SourceFile,
    engine::Engine,
    models::{ChatModel, ModelError, ProviderClient},
    nodes::{ModelSource, Services, factory},
    registry,
    storage::InMemoryStorage,
    tool::{ToolContext, tool_fn},
    workflow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The workflow, with a type for the answer and further keys of the agent.
fn workflow_text(answer: &str, agent: &str) -> String {
    format!(
        "graphrun: 1\nname: colour\ntypes: {{ Paint: {{ name: teal | dark_red, depth: int }} }}\n\
         state: {{ colour: {answer} }}\noutput: colour\nmodels: {{ m: lab/small }}\n\
         agents: {{ painter: {{ model: m{agent} }} }}\nstart: paint\nnodes:\n  \
         paint: {{ agent: painter, prompt: {{ text: \"Which colour?\" }}, writes: colour, retry: 2, then: end }}\n"
    )
}

/// A model under every name.
#[derive(Debug)]
struct Only(Arc<ProviderClient>);

impl ModelSource for Only {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}

/// Returns an engine of the workflow, and its storage. A failure that may pass has one more attempt.
pub(crate) fn engine(client: ProviderClient) -> (Engine, Arc<InMemoryStorage>) {
    engine_of(client, workflow_text("string", ""))
}

/// Returns an engine whose agent may call the tools `look` and `now`.
pub(crate) fn engine_with_tools(client: ProviderClient) -> (Engine, Arc<InMemoryStorage>) {
    engine_of(client, workflow_text("string", ", tools: [look, now]"))
}

/// Returns an engine whose agent answers with an object of a name and a depth.
pub(crate) fn engine_with_type(client: ProviderClient) -> (Engine, Arc<InMemoryStorage>) {
    engine_of(client, workflow_text("Paint", ""))
}

/// Returns an engine whose agent answers with an object of a name and a depth, and repairs no answer.
pub(crate) fn engine_without_repairs(client: ProviderClient) -> (Engine, Arc<InMemoryStorage>) {
    engine_of(client, workflow_text("Paint", "").replace("retry: 2", "retry: 2, repair: 0"))
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    #[serde(default)]
    at: Value,
}

#[derive(Serialize, JsonSchema)]
struct View {
    at: Value,
}

fn engine_of(client: ProviderClient, text: String) -> (Engine, Arc<InMemoryStorage>) {
    let look = |place: Place, _: ToolContext| async move { Ok(View { at: place.at }) };
    let tools = ["look", "now"].map(|name| Arc::new(tool_fn(name, "Looks.", look)));
    let registry = tools.into_iter().fold(registry(), |known, tool| known.tool(tool));
    let services = Services { models: Arc::new(Only(Arc::new(client))), ..Services::offline() };
    let file = Arc::new(SourceFile { name: "colour.yaml".into(), text });
    let (workflow, _) = workflow::parse(file, Path::new("."), &registry).unwrap();
    let graph = compile(workflow.into_graph(&factory(services, registry))).unwrap();
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    (engine, storage)
}
