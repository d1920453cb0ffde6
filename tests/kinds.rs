//! Kinds of nodes: one that a program adds is read, checked, drawn and run like the built-in ones.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    compile::compile,
    diagnostic::{Diagnostic, Diagnostics, SourceFile},
    draw::Details,
    engine::Engine,
    event::Status,
    graph::{Command, Contract, Graph, Node, NodeContext, NodeDescription, NodeError, SideEffects},
    id::ChannelName,
    nodes::{Services, factory},
    registry,
    state::{Type, Update},
    workflow::{
        Expression, ExpressionView, Registry, Workflow, json_schema,
        kind::{
            CacheRefusal, Computation, Keys, Kind, MakeContext, NodeReader, NodeSettings,
            RegisteredKind, Yaml, values,
        },
        parse,
    },
};
use schemars::JsonSchema;
use serde_json::{Value, json};

/// The kind `echo`, as a program would write it.
#[derive(Debug)]
struct Echo;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct EchoKeys {
    /// Writes a text again.
    echo: EchoParts,
    /// The field that receives the echo.
    writes: values::FieldName,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct EchoParts {
    /// The text.
    text: values::Expression,
}

#[derive(Clone, Debug)]
struct EchoNode {
    text: Expression,
    writes: ChannelName,
}

impl Kind for Echo {
    fn key(&self) -> &'static str {
        "echo"
    }

    fn keys(&self) -> Keys {
        Keys::of::<EchoKeys>()
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let text = parts.require(reader.report(), "text", "write `text: brief`");
        let text = text.and_then(|yaml| {
            let text = reader.expression(yaml)?;
            reader.expect_type(yaml, text.ty(), &Type::String, "the text of an `echo`");
            Some(text)
        });
        let writes = reader.require("writes", "name the field that receives the text");
        let writes = writes.and_then(|it| reader.channels(it, "`writes`").pop());
        Some(Arc::new(EchoNode { text: text?, writes: writes? }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: an echo is quick"))
    }
}

impl NodeSettings for EchoNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn computes(&self) -> Option<Vec<Computation>> {
        Some(vec![Computation::of(&self.writes, &self.text)])
    }

    fn detail(&self) -> Option<String> {
        Some(format!("of {}", self.text.source()))
    }
}

#[async_trait]
impl Node for EchoNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let text = self.text.evaluate(&ExpressionView::of(&ctx))?;
        Ok(Update::default().write(self.writes.clone(), Value::clone(&text)).into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "echo",
            contract: Contract { reads: None, writes: Some(vec![self.writes.clone()]) },
            side_effects: SideEffects::Nothing,
            ..NodeDescription::default()
        }
    }
}

fn with_echo() -> Registry {
    registry().kind(Arc::new(Echo))
}

fn parsed(node: &str) -> Result<(Workflow, Diagnostics), Diagnostics> {
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ brief: string, number: int, answer: string }}\n\
         input: [brief, number]\nstart: first\nnodes:\n  first: {node}\n"
    );
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
    parse(file, Path::new("tests/workflow"), &with_echo())
}

fn graph(workflow: Workflow) -> Graph {
    let made = workflow.into_graph(&factory(Services::offline(), with_echo()));
    assert!(made.diagnostics.is_empty(), "{}", made.diagnostics);
    made.graph
}

const RIGHT: &str = "{ echo: { text: brief }, writes: answer, then: end }";

#[tokio::test]
async fn a_kind_of_a_program_runs() {
    let (workflow, warnings) = parsed(RIGHT).unwrap();
    assert!(warnings.is_empty(), "{warnings}");
    let graph = compile(graph(workflow).into()).unwrap();
    let engine = Engine::new(graph);
    let end = engine.run(&json!({"brief": "hello", "number": 1})).await.unwrap();
    assert_eq!(end.status, Status::Done);
    assert_eq!(end.state.get("answer"), Some(&json!("hello")));
}

#[test]
fn mistakes_in_a_kind_of_a_program_are_reported_together() {
    let check = |node: &str, codes: &[&str], helps: &[&str]| {
        let (Ok((_, diagnostics)) | Err(diagnostics)) = parsed(node);
        let mut found: Vec<&str> = diagnostics.clone().into_iter().map(|it| it.code).collect();
        found.sort_unstable();
        assert_eq!(found, codes, "{diagnostics}");
        let text = diagnostics.to_string();
        assert!(helps.iter().all(|it| text.contains(it)), "{diagnostics}");
    };
    check(
        "{ echo: { txt: brief }, writes: answers, show: brief, cache: true, then: end }",
        &["GR003", "GR003", "GR021", "GR049"],
        &["did you mean `text`", "did you mean `answer`", "belongs to `ask`", "an echo is quick"],
    );
    check("{ echo: { text: number }, then: end }", &["GR006", "GR022"], &["the text of an `echo`"]);
    let beside = "{ echo: { text: brief }, writes: answer, text: brief, then: end }";
    check(beside, &["GR003"], &["`echo: { … }`"]);
    let misspelt = "{ ecco: { text: brief }, then: end }";
    check(misspelt, &["GR003", "GR007"], &["parallel, echo", "did you mean `echo`"]);
}

#[test]
fn a_kind_of_a_program_is_part_of_drawings_and_data_flow() {
    let (workflow, _) = parsed(RIGHT).unwrap();
    let details = Details::of(&workflow);
    let graph = graph(workflow.clone());
    let drawing = graphrun::draw::Drawing::of(&graph).with_details(&details);
    assert_eq!(drawing.nodes[0].detail.as_deref(), Some("of brief"));
    let computed = graphrun_workflow::case_file::computed(&workflow, &graph);
    assert_eq!(computed[0].to.as_str(), "answer");
    assert_eq!(computed[0].from.fields[0].channel.as_str(), "brief");
}

#[test]
fn the_schema_has_the_keys_of_every_kind() {
    let schema = json_schema(&with_echo());
    let node = schema.pointer("/properties/nodes/additionalProperties").unwrap();
    let about = |key: &str| node["properties"][key]["description"].as_str().unwrap().to_owned();
    assert_eq!(about("echo"), "Kind: writes a text again.");
    assert!(about("in").starts_with("For `run` and `run_tests`: one of"), "{}", about("in"));
    assert!(about("writes").ends_with("For `echo`: the field that receives the echo."));
    assert!(node["description"].as_str().unwrap().contains("`parallel`, `echo`)"));
    assert_eq!(node["properties"]["echo"]["additionalProperties"], json!(false));
    for (key, value) in described(&schema) {
        let about = value["description"].as_str().unwrap_or_default();
        assert!(about.ends_with('.'), "`{key}`: {about:?}");
    }
}

/// Every key of the schema with its own one.
fn described(schema: &Value) -> Vec<(&str, &Value)> {
    let mut found = Vec::new();
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            found.push((key.as_str(), value));
            open.push(value);
        }
        for keyword in ["items", "additionalProperties", "then"] {
            open.extend(schema.get(keyword));
        }
    }
    assert!(found.len() > 100, "only {}", found.len());
    found
}

/// With `oneOf` by kind of node, a language server marks the wrong key.
#[test]
fn the_schema_of_all_kinds_is_flat() {
    let text = json_schema(&with_echo()).to_string();
    for word in ["oneOf", "anyOf", "allOf", "$ref", "null"] {
        assert!(!text.contains(&format!("\"{word}\"")), "{word}");
    }
}

#[test]
fn a_registry_without_more_kinds_has_those_that_run_other_nodes() {
    let registry = Registry::new();
    let kinds: Vec<&str> = registry.kinds().iter().map(RegisteredKind::key).collect();
    assert_eq!(kinds, ["map", "use", "node", "parallel"]);
}
