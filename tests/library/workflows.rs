//! Workflows whose nodes and models are those of a program.

use std::path::Path;

use async_trait::async_trait;
use graphrun::{
    compile::compile,
    diagnostic::SourceFile,
    graph::NodeFn,
    models::{ChatModel, ChatReply, ChatRequest, ModelError, TokenUsage},
    nodes::{ModelSource, Services, factory},
    registry,
    workflow::parse,
};

use super::*;

/// A model that counts the tokens of its answers, and nothing else.
#[derive(Debug)]
struct Counts;

#[async_trait]
impl ChatModel for Counts {
    async fn chat(&self, _: &ChatRequest) -> Result<ChatReply, ModelError> {
        let usage = TokenUsage { input_tokens: 10, output_tokens: 5, ..TokenUsage::default() };
        Ok(ChatReply { text: "blue".to_owned(), usage, ..ChatReply::default() })
    }

    fn name(&self) -> &'static str {
        "counts"
    }
}

impl ModelSource for Counts {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(Self))
    }
}

fn file(text: &str) -> Arc<SourceFile> {
    Arc::new(SourceFile { name: "w.yaml".into(), text: text.to_owned() })
}

#[tokio::test]
async fn an_answer_is_a_call_whatever_its_model_counts() {
    let text = "graphrun: 1
name: colours
state: { colour: string, other: string }
models: { m: own/model }
agents: { painter: { model: m } }
limits: { calls: 1 }
start: first
nodes:
  first: { agent: painter, prompt: { text: A colour }, writes: colour, then: second }
  second: { agent: painter, prompt: { text: Another one }, writes: other, then: end }
";
    let (workflow, _) = parse(file(text), Path::new("."), &registry()).unwrap();
    let services = Services { models: Arc::new(Counts), ..Services::offline() };
    let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
    let end = Engine::new(graph).run(&()).await.unwrap();
    assert_eq!((end.status, end.state.get("colour")), (Status::Limit, Some(&"blue".into())));
}

#[test]
fn the_items_of_a_map_have_the_type_of_their_node() {
    async fn reads(_: Item<String>) -> Result<(), NodeError> {
        Ok(())
    }
    let registry = registry().node("reads", Arc::new(NodeFn::new(reads)));
    let compiled = |ty: &str| {
        let text = format!(
            "graphrun: 1\nname: items\nstate: {{ items: \"[{ty}]\" }}\ninput: items\nstart: each\nnodes:\n  \
             each: {{ map: {{ over: items, do: read }}, then: end }}\n  read: {{ node: reads }}\n"
        );
        let (workflow, _) = parse(file(&text), Path::new("."), &registry).unwrap();
        compile(workflow.into_graph(&factory(Services::offline(), registry.clone())))
    };
    assert!(compiled("string").is_ok());
    let found = compiled("int").unwrap_err().to_string();
    assert!(
        found.contains("GR022: `each` dispatches `int` to `read`, which takes `string`"),
        "{found}"
    );
}
