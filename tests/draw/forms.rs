//! Each form of a drawing, of the flagship and of a small workflow with every kind of way.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use graphrun::{
    compile::compile,
    draw::{Charset, Details, Drawing, DrawingDocument},
    models::{ChatModel, ModelError, Replay},
    nodes::{ModelSource, Services, factory},
    registry, workflow,
};
use serde_json::{Value, json};

use super::{dev_team, fork_and_join, odd_names};

const FORMS: [&str; 2] = ["graphs/dev_team.yaml", "tests/cli/workflows/everything.yaml"];

/// Models that are never called.
#[derive(Debug)]
struct Unasked;

impl ModelSource for Unasked {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(Replay::load("tests/recordings/dev_team/retry.jsonl").unwrap()))
    }
}

/// The drawing of a workflow in a file.
pub(super) fn load(path: &str) -> Drawing {
    let (workflow, _) = workflow::load(Path::new(path), &registry()).unwrap();
    let details = Details::of(&workflow);
    let services = Services {
        models: Arc::new(Unasked),
        cache_dir: "unused".into(),
        output_dir: "unused".into(),
        ..Services::offline()
    };
    let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
    Drawing::of(graph.definition()).with_details(&details)
}

fn name(path: &str) -> &str {
    Path::new(path).file_stem().unwrap().to_str().unwrap()
}

#[test]
fn every_form_of_the_flagship_and_of_every_edge() {
    for path in FORMS {
        let name = name(path);
        let drawing = load(path);
        insta::assert_snapshot!(format!("{name}_listing"), drawing.to_listing(Charset::Unicode));
        insta::assert_snapshot!(format!("{name}_mermaid"), drawing.to_mermaid());
        insta::assert_snapshot!(format!("{name}_dot"), drawing.to_dot());
        insta::assert_snapshot!(format!("{name}_svg"), drawing.to_svg());
        let document = serde_json::to_string_pretty(&drawing.to_document()).unwrap();
        insta::assert_snapshot!(format!("{name}_json"), document);
    }
}

#[test]
fn printed_events_fit_their_schema() {
    let schema = Value::from(schemars::schema_for!(DrawingDocument));
    let validator = jsonschema::validator_for(&schema).unwrap();
    for drawing in FORMS.map(load).into_iter().chain([odd_names(), fork_and_join()]) {
        let document = serde_json::to_value(drawing.to_document()).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        // The schema knows every key.
        let keys = |object: &Value| -> BTreeSet<String> {
            object.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&document), keys(&schema["properties"]));
        assert_eq!(
            keys(&document["nodes"][0]),
            keys(&schema["$defs"]["NodeDocument"]["properties"])
        );
        assert_eq!(
            keys(&document["edges"][0]),
            keys(&schema["$defs"]["EdgeDocument"]["properties"])
        );
    }
    let broken = json!({"v": 1, "workflow": 3});
    assert!(!validator.is_valid(&broken));
}

#[test]
fn json_lists_every_edge_and_pictures_merge_common_ones() {
    let drawing = load("graphs/dev_team.yaml");
    let caught = |it: &&graphrun::draw::EdgeDocument| it.to == "flush" && it.label.is_none();
    let document = drawing.to_document();
    let all = document
        .edges
        .iter()
        .filter(caught)
        .filter(|it| it.kind == graphrun::draw::EdgeKind::Catch);
    assert_eq!(all.count(), 11);
    assert!(!drawing.to_dot().contains("catch any\\n"));
    assert_eq!(drawing.to_dot().matches("any other failure").count(), 2);
}

#[test]
fn the_dot_output_declares_every_node() {
    let drawings = FORMS.map(load).into_iter().chain([dev_team(), odd_names(), fork_and_join()]);
    for drawing in drawings {
        let dot = Dot::read(&drawing.to_dot());
        let expected: BTreeSet<String> = drawing
            .nodes
            .iter()
            .map(|it| it.name.to_string())
            .chain(["(start)".to_owned()])
            .chain(
                dot.nodes.iter().filter(|it| ["(end)", "(fail)"].contains(&it.as_str())).cloned(),
            )
            .collect();
        assert_eq!(dot.nodes, expected);
        for (from, to) in &dot.edges {
            assert!(dot.nodes.contains(from) && dot.nodes.contains(to), "{from} -> {to}");
        }
        assert!(dot.edges.len() >= drawing.nodes.len() - 2, "{:?}", dot.edges);
        assert_eq!(dot.clusters, drawing.groups.len());
    }
}

/// What a small reader of Graphviz's language finds, which knows strings, braces and arrows only.
#[derive(Debug, Default)]
struct Dot {
    nodes: BTreeSet<String>,
    edges: Vec<(String, String)>,
    clusters: usize,
}

impl Dot {
    fn read(text: &str) -> Self {
        let mut dot = Self::default();
        let mut depth = 0;
        let mut words: Vec<String> = Vec::new();
        let mut attributes = 0;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '"' => {
                    let mut word = String::from("\"");
                    loop {
                        match characters.next().expect("a string ends") {
                            '"' => break,
                            '\\' => word.extend(characters.next()),
                            '\n' => panic!("a line ends in a string: {text}"),
                            other => word.push(other),
                        }
                    }
                    let next = characters.peek().copied().unwrap_or(' ');
                    assert!(",]; \n".contains(next), "`{next}` after {word}: {text}");
                    if attributes == 0 {
                        words.push(word);
                    }
                }
                '[' => attributes += 1,
                ']' => attributes -= 1,
                '{' => {
                    depth += 1;
                    dot.clusters +=
                        usize::from(words.iter().any(|it| it.starts_with("\"cluster_")));
                    words.clear();
                }
                ';' | '}' if attributes == 0 => {
                    dot.statement(&std::mem::take(&mut words));
                    depth -= i32::from(character == '}');
                    assert!(depth >= 0, "{text}");
                }
                other if attributes == 0 && !other.is_whitespace() => {
                    match words.last_mut().filter(|it| !it.starts_with('"') && *it != "->") {
                        Some(word) => word.push(other),
                        None => words.push(other.to_string()),
                    }
                }
                _ => (),
            }
        }
        assert_eq!((depth, attributes), (0, 0), "{text}");
        dot
    }

    fn statement(&mut self, words: &[String]) {
        let name = |it: &String| it.strip_prefix('"').map(str::to_owned);
        match words {
            [from, arrow, to] if arrow == "->" => {
                self.edges.push((name(from).unwrap(), name(to).unwrap()));
            }
            [one] => self.nodes.extend(name(one)),
            _ => (),
        }
    }
}
