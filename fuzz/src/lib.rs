//! What the fuzz targets do with an input: load it as part of a workflow, and continue with what
//! loads. None of it may panic, hang or overflow the stack, for any input.
//!
//! The targets in `fuzz_targets` hand inputs to these functions, and so does `tests/fuzz.rs`.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use graphrun::{
    compile::{WorstCase, compile},
    diagnostic::SourceFile,
    graph::{Edge, Graph, Input, RouteView, RunFacts, Trigger, Visits},
    nodes::{Services, factory},
    registry,
    workflow::{FileKind, NodeFactory, Registry, Workflow, case_file::Draft, format_text, parse},
};

/// Loads a text as a workflow file.
pub fn yaml(text: &str) {
    load(text);
}

/// Loads a workflow with a text as a condition, and asks the condition if it loads.
pub fn expression(source: &str) {
    let source = serde_json::Value::from(source);
    load(&format!(
        "graphrun: 1\nname: e\ntypes: {{ Part: {{ kind: a | b | c, size: int?, day: date }} }}\n\
         state: {{ text: string, number: int, rate: float, yes: bool, level: low | mid | high, \
         parts: [Part], part: Part, note: string? }}\n\
         input: [text, number, rate, yes, level, parts, part, note]\nstart: n\nnodes:\n  \
         n: {{ set: {{ text: text }}, max_visits: 2, exhausted: end, then: [{{ when: {source}, to: n }}, {{ to: end }}] }}\n"
    ));
}

/// Loads a workflow with a text as a prompt.
pub fn prompt(source: &str) {
    let source = serde_json::Value::from(source);
    load(&format!(
        "graphrun: 1\nname: p\nstate: {{ brief: string, level: low | high, plan: {{ title: string, steps: [string] }}, \
         tasks: [{{ id: int, done: bool, note: string? }}], later: string }}\n\
         input: [brief, level, plan, tasks]\nmodels: {{ m: a/b }}\nagents: {{ x: {{ model: m }} }}\nstart: a\nnodes:\n  \
         a: {{ agent: x, prompt: {{ text: {source} }}, writes: later, max_visits: 3, exhausted: end, then: a }}\n"
    ));
}

/// Loads a text as the type of a field, and as a named type. The type is shown as a text that stands for the same type.
pub fn types(text: &str) {
    let Some(shown) = shown_type(text) else { return };
    assert_eq!(shown_type(&shown).as_ref(), Some(&shown), "{text:?}");
}

/// Returns the type of a field in the short notation, as it is shown; `None` if it is refused.
fn shown_type(text: &str) -> Option<String> {
    let ty = serde_json::Value::from(text);
    let workflow = format!(
        "graphrun: 1\nname: t\ntypes: {{ Part: {{ kind: a | b, size: int? }}, Other: {ty} }}\n\
         state: {{ field: {ty}, part: Part, other: Other, n: int }}\ninput: [field, part, other]\noutput: [n]\n\
         start: n\nnodes:\n  n: {{ set: {{ n: '1' }}, then: end }}\n"
    );
    load(&workflow);
    let file = SourceFile { name: "fuzz.yaml".into(), text: workflow };
    let (workflow, _) = parse(Arc::new(file), Path::new("no/such/folder"), &built_in().0).ok()?;
    Some(workflow.schema.channel("field")?.ty().to_string())
}

/// Loads a text as a file of test cases for a workflow.
pub fn cases(text: &str) {
    static TESTED: OnceLock<(Workflow, Graph)> = OnceLock::new();
    let (workflow, graph) = TESTED.get_or_init(|| {
        let file = SourceFile { name: "fuzz.yaml".into(), text: WORKFLOWS[1].to_owned() };
        let (registry, factory) = built_in();
        let (workflow, _) = parse(Arc::new(file), Path::new("no/such/folder"), registry)
            .unwrap_or_else(|it| panic!("{it}"));
        let graph = workflow.clone().into_graph(factory.as_ref()).graph;
        (workflow, graph)
    });
    let file = Arc::new(SourceFile { name: "fuzz.test.yaml".into(), text: text.to_owned() });
    let checked =
        Draft::of(Path::new("no/such/folder/fuzz.test.yaml"), file).check(workflow, graph);
    let findings = checked.map_or_else(|it| it, |(_, warnings)| warnings);
    drop(findings.to_string());
}

/// Lays a text out. The result is laid out already, and is the same kind of file.
pub fn layout(text: &str) {
    let Ok(laid_out) = format_text("fuzz.yaml", text) else { return };
    let again = format_text("fuzz.yaml", &laid_out);
    assert_eq!(again.as_deref().ok(), Some(laid_out.as_str()), "{text:?}");
    assert_eq!(FileKind::of(text), FileKind::of(&laid_out), "{text:?}");
}

/// Takes a right workflow apart and puts it together in another way: every two bytes are a step.
///
/// Words are exchanged for other words of the file and lines moved, so that most of what comes
/// out is still YAML, with names in wrong places.
pub fn workflow(steps: &[u8]) {
    let Some((first, steps)) = steps.split_first() else { return };
    let base = WORKFLOWS[usize::from(*first) % WORKFLOWS.len()];
    let mut lines: Vec<String> = base.lines().map(str::to_owned).collect();
    let words: Vec<&str> =
        base.split(|it: char| !is_word(it)).filter(|it| !it.is_empty()).collect();
    for step in steps.chunks_exact(2).take(64) {
        let (what, with) = (usize::from(step[0]), usize::from(step[1]));
        let at = what / 6 * lines.len() / 43;
        let Some(line) = lines.get(at).cloned() else { continue };
        let other = with % lines.len();
        match what % 6 {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, line),
            2 => lines.swap(at, other),
            3 | 4 => {
                let word = words[with * (what % 6) % words.len()];
                lines[at] = line.replacen(with_word(&line, with), word, 1);
            }
            _ => lines[at] = line.clone() + line.trim_start(),
        }
        if lines.is_empty() {
            return;
        }
    }
    load(&lines.join("\n"));
}

const WORKFLOWS: &[&str] = &[
    include_str!("../../tests/mutants/team/workflow.yaml"),
    include_str!("../../tests/mutants/research/workflow.yaml"),
    include_str!("../../tests/mutants/approval/workflow.yaml"),
    include_str!("../../tests/corpus/arithmetic_cases.yaml"),
    include_str!("../../tests/corpus/resets.yaml"),
    include_str!("../../tests/corpus/maps_in_branches.yaml"),
];

fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_' || it == '.'
}

fn with_word(line: &str, which: usize) -> &str {
    let words: Vec<&str> = line.split(|it| !is_word(it)).filter(|it| !it.is_empty()).collect();
    words.get(which % words.len().max(1)).copied().unwrap_or(line)
}

/// Loads a text; what loads is compiled, its worst case computed, and its routes asked.
pub fn load(text: &str) {
    let file = Arc::new(SourceFile { name: "fuzz.yaml".into(), text: text.to_owned() });
    let (registry, factory) = built_in();
    // Prompt files are not there, so that nothing depends on where this runs.
    let folder = Path::new("no/such/folder");
    let findings = match parse(file, folder, registry) {
        Ok((workflow, warnings)) => {
            ask_routes(&workflow);
            match compile(workflow.into_graph(factory.as_ref())) {
                Ok(graph) => {
                    WorstCase::of(&graph);
                    warnings
                }
                Err(findings) => findings,
            }
        }
        Err(findings) => findings,
    };
    // Every finding can be shown.
    drop(findings.to_string());
}

fn built_in() -> &'static (Registry, Box<dyn NodeFactory + Send + Sync>) {
    static BUILT_IN: OnceLock<(Registry, Box<dyn NodeFactory + Send + Sync>)> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        let factory = factory(Services::offline(), registry());
        (registry(), Box::new(factory))
    })
}

/// Asks every route where it leads; on a state with nothing in it most of them cannot say.
fn ask_routes(workflow: &Workflow) {
    let (state, visits) = (workflow.schema.empty(), Visits::default());
    for edge in &workflow.edges {
        if let Edge::Route { route, .. } = edge {
            let (input, trigger, facts) = (&Input::State, &Trigger::Start, &RunFacts::default());
            let view = RouteView { state: &state, visits: &visits, input, trigger, facts };
            drop(route.decide(&view));
        }
    }
}
