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
    workflow,
};

const WORKFLOW: &str = r#"
graphrun: 1
name: colour
state: { colour: string }
output: colour
models: { m: lab/small }
agents: { painter: { model: m } }
start: paint
nodes:
  paint: { agent: painter, prompt: { text: "Which colour?" }, writes: colour, retry: 2, then: end }
"#;

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
    let services = Services { models: Arc::new(Only(Arc::new(client))), ..Services::offline() };
    let file = Arc::new(SourceFile { name: "colour.yaml".into(), text: WORKFLOW.to_owned() });
    let (workflow, _) = workflow::parse(file, Path::new("."), &registry()).unwrap();
    let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    (engine, storage)
}
