//! The YAML format: accepted files, refused files, and the messages.
//!
//! Each file in `tests/workflow/wrong` has a snapshot of its diagnostics beside it, each file in
//! `tests/workflow/right` loads without any. A new case is a new file.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    diagnostic::{CODES, Code, Diagnostics, SourceFile},
    graph::{
        Command, Contract, Edge, Input, Node, NodeContext, NodeDescription, NodeError, Route,
        RouteView, RunFacts, Target, Transition, Trigger,
    },
    id::{ChannelName, NodeName},
    nodes::{AgentSettings, AskSettings, RunTestsSettings, TestOutput},
    state::{Fold, Schema, State, Update},
    tool::{Tool, ToolContext, ToolError},
    workflow::{self, LoadError, NodeDefinition, NodeFactory, Registry, Workflow, load, parse},
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new("tests/workflow").join(folder);
    let files = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path());
    let mut cases: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    cases.sort();
    cases
}

/// Keeps the longer of two texts.
#[derive(Debug)]
struct Longest;

impl Fold for Longest {
    fn name(&self) -> &'static str {
        "longest"
    }

    fn fold(&self, current: Option<Value>, written: Value) -> Result<Value, String> {
        let length = |it: &Value| it.as_str().map_or(0, str::len);
        Ok(match current {
            Some(before) if length(&written) <= length(&before) => before,
            _ => written,
        })
    }
}

/// A node that writes `plan` and does nothing.
struct Planner;

#[async_trait]
impl Node for Planner {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            contract: Contract { reads: Some(Vec::new()), writes: Some(vec![channel("plan")]) },
            ..NodeDescription::default()
        }
    }
}

/// A tool whose schema says more than a type does.
struct FindTickets;

static TICKETS_INPUT: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "type": "object", "required": ["project"], "additionalProperties": false,
        "$defs": {"Label": {"type": "string", "minLength": 2}},
        "properties": {
            "project": {"type": "string", "pattern": "^[A-Z]+$", "maxLength": 8},
            "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}, "maxItems": 2},
            "page": {"type": "integer", "multipleOf": 10},
        },
    })
});

static TICKETS_OUTPUT: LazyLock<Value> = LazyLock::new(|| json!({"type": "string"}));

#[async_trait]
impl Tool for FindTickets {
    fn name(&self) -> &'static str {
        "tickets.find"
    }

    fn description(&self) -> &'static str {
        "Finds tickets."
    }

    fn input_schema(&self) -> &Value {
        &TICKETS_INPUT
    }

    fn output_schema(&self) -> &Value {
        &TICKETS_OUTPUT
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        Ok(json!(""))
    }
}

#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is of interest")]
struct Notes {
    brief: Option<String>,
    plan: Option<String>,
}

#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is of interest")]
struct Reserved {
    brief: Option<String>,
    visit: Option<u32>,
}

fn registry() -> Registry {
    graphrun::registry()
        .state("Notes", || Schema::of::<Notes>().unwrap())
        .state("Reserved", || Schema::of::<Reserved>().unwrap())
        .node("planner", Arc::new(Planner))
        .tool(Arc::new(FindTickets))
        .reducer(Arc::new(Longest))
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn diagnostics(path: &Path) -> Diagnostics {
    match load(path, &registry()) {
        Ok((_, warnings)) => warnings,
        Err(LoadError::Invalid(diagnostics)) => diagnostics,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn loaded(path: &str) -> Workflow {
    match load(Path::new(path), &registry()) {
        Ok((workflow, warnings)) => {
            assert!(warnings.is_empty(), "{path}:\n{warnings}");
            workflow
        }
        Err(LoadError::Invalid(diagnostics)) => panic!("{path}:\n{diagnostics}"),
        Err(error) => panic!("{error}"),
    }
}

fn parsed(text: &str) -> Result<(Workflow, Diagnostics), Diagnostics> {
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text: text.to_owned() });
    parse(file, Path::new("tests/workflow"), &registry())
}

#[test]
fn every_mistake_is_found_at_its_place_with_help() {
    let cases = cases("wrong");
    assert!(cases.len() >= 45, "only {} files", cases.len());
    for path in cases {
        let diagnostics = diagnostics(&path);
        assert!(!diagnostics.is_empty(), "nothing was found in {}", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap();
        insta::with_settings!({
            snapshot_path => "workflow/wrong",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!(name, diagnostics);
        });
    }
}

#[test]
fn an_unreached_case_is_shown_with_the_cases_that_cover_it() {
    let diagnostics = diagnostics(Path::new("tests/workflow/wrong/case_taken.yaml"));
    let shown: Vec<String> = diagnostics
        .in_order()
        .iter()
        .map(|diagnostic| {
            let labels = diagnostic.labels.iter().map(|it| (it.span.line_and_column().0, &it.text));
            format!("{:?}: {:?}", diagnostic.severity, labels.collect::<Vec<_>>())
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    Error: [(11, "never reached"), (10, "taken here")]
    Error: [(14, "never reached"), (12, "taken here"), (13, "taken here")]
    Warning: [(23, "never reached")]
    Warning: [(29, "never reached")]
    "#);
}

#[test]
fn every_code_of_loading_has_a_file_that_shows_it() {
    // Found when a graph is compiled, not when it is loaded.
    let compiled = [
        "GR030", "GR031", "GR032", "GR033", "GR034", "GR036", "GR037", "GR038", "GR131", "GR132",
        "GR133", "GR136", "GR139",
    ];
    let shown: Vec<&'static str> = cases("wrong")
        .iter()
        .flat_map(|text| diagnostics(text).in_order().iter().map(|it| it.code).collect::<Vec<_>>())
        .collect();
    // Codes of cases are shown in tests/cases/wrong.
    let elsewhere = |it: &&str| compiled.contains(it) || it.starts_with("GR08");
    for code in CODES.iter().map(Code::as_str).filter(|it| !elsewhere(it)) {
        assert!(shown.contains(&code), "no file in tests/workflow/wrong shows {code}");
    }
    for code in shown {
        assert!(Code::find(code).is_some(), "{code} is not in the table");
    }
}

#[test]
fn the_path_that_leaves_a_field_unwritten_is_marked() {
    let marked = |file: &str| {
        let diagnostics = diagnostics(&Path::new("tests/workflow/wrong").join(file));
        let marked =
            diagnostics.in_order().into_iter().filter(|it| it.code == "GR130").map(|diagnostic| {
                let line = |at: usize| diagnostic.labels[at].span.line_and_column().0;
                format!("line {}: see line {}: {}", line(0), line(1), diagnostic.labels[1].text)
            });
        marked.collect::<Vec<String>>().join("\n")
    };
    insta::assert_snapshot!(marked("unwritten_on_some_way.yaml"), @r"
    line 11: see line 8: the input may omit it
    line 18: see line 12: not written when the run reaches `fork` from `caught`
    line 21: see line 18: not written when the run reaches `loop` from `joined`
    line 23: see line 18: not written when the run reaches `loop` from `joined`
    line 25: see line 7: a limit may lead to `late` before that
    ");
    insta::assert_snapshot!(marked("unwritten_after_trouble.yaml"), @r"
    line 10: see line 9: not written when the run reaches `b` from `a` by `catch`
    line 15: see line 13: cleared here
    line 16: see line 12: not written when the run reaches `merge` from `d`, with `c` used up
    ");
}

#[test]
fn valid_cases_have_no_diagnostics() {
    let cases = cases("right");
    assert!(cases.len() >= 5, "only {} files", cases.len());
    for path in cases {
        loaded(path.to_str().unwrap());
    }
}

fn dev_team() -> Workflow {
    loaded("tests/workflow/right/dev_team.yaml")
}

fn node<'a>(workflow: &'a Workflow, name: &str) -> &'a NodeDefinition {
    &workflow.nodes[&NodeName::parse(name).unwrap()]
}

#[test]
fn an_agent_may_name_a_model_and_write_its_system_prompt_itself() {
    let workflow = loaded("tests/workflow/right/inline.yaml");
    let agent: &AgentSettings = node(&workflow, "write").settings.downcast_ref().expect("an agent");
    assert_eq!(agent.models, ["openai/gpt-5-mini"]);
    let system = agent.system.as_ref().expect("it has a system prompt");
    assert_eq!(system.text(), "You write in a {{ tone }} tone.");
}

#[test]
fn a_parallel_becomes_edges_to_its_branches_and_a_join() {
    let workflow = dev_team();
    assert!(!workflow.nodes.contains_key("design"), "a parallel is no node of a run");
    assert_eq!(
        workflow.groups["design"].iter().map(NodeName::as_str).collect::<Vec<_>>(),
        ["qc", "ta"]
    );
    let shown: Vec<String> = workflow
        .edges
        .iter()
        .filter_map(|edge| match edge {
            Edge::Then { from, to, .. } => Some(format!("{from} → {to}")),
            Edge::Join { from, to, count, .. } => {
                assert_eq!(*count, from.len(), "a parallel waits for all of its branches");
                let from: Vec<&str> = from.iter().map(NodeName::as_str).collect();
                Some(format!("{} ⇒ {to}", from.join(" + ")))
            }
            Edge::Route { .. } | Edge::May { .. } => None,
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    ba → qc
    ba → ta
    qc + ta ⇒ sse
    sse → unit_tests
    architect → sse
    publish → end
    flush → fail
    ");
}

#[test]
fn the_nodes_of_the_team_match_the_file() {
    let workflow = dev_team();
    let sse: &AgentSettings = node(&workflow, "sse").settings.downcast_ref().expect("an agent");
    assert_eq!(sse.models, ["openai/gpt-4.1", "anthropic/claude-opus-4-5"]);
    assert!(sse.prompt_again.is_some() && sse.system.is_some());
    assert_eq!(sse.writes, [channel("candidate")]);
    assert_eq!(sse.repairs_max, 2);
    let tests = node(&workflow, "unit_tests").settings.downcast_ref::<RunTestsSettings>();
    let tests = tests.expect("run_tests");
    assert_eq!(tests.sandbox.memory_bytes, 2 << 30);
    assert_eq!(tests.sandbox.requirements, ["pytest", "pydantic"]);
    assert_eq!(tests.writes[2], (channel("sse_status"), TestOutput::Status));
    let policies = &node(&workflow, "sse").policies;
    assert_eq!(
        (policies.bounds.max_visits, policies.attempts.retry.attempts_max),
        (Some(3), Some(3))
    );
    assert_eq!(policies.attempts.timeout, Some(Duration::from_secs(600)));
    assert_eq!(policies.bounds.exhausted.as_ref().unwrap().to_string(), "tl");
    let caught: Vec<String> = policies.catch.iter().map(|it| it.to.to_string()).collect();
    assert_eq!(caught, ["sse", "flush"], "its own first, then the default");
    assert!(node(&workflow, "flush").policies.catch.is_empty(), "flush is not caught by itself");
    assert_eq!(node(&workflow, "help").policies.attempts.timeout, None, "a person is not hurried");
    assert_eq!(workflow.limits.tokens, Some(200_000));
    assert_eq!(workflow.limits.exhausted.as_ref().unwrap().to_string(), "flush");
}

#[test]
fn a_named_type_is_the_same_as_the_type_written_out() {
    let workflow = loaded("tests/workflow/right/types.yaml");
    let shown: Vec<String> =
        workflow.schema.channels().iter().map(|it| format!("{it:?}")).collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    ticket: Ticket (replace)
    seen: [Person] (append)
    deadline: date (replace)
    patience: duration (replace)
    note: string (replace)
    draft: string (replace)
    best: Attempt (best(result.passed_count))
    worst: Attempt? (best(result.passed_count))
    late: bool (replace)
    ");
    let ticket = workflow.schema.channel("ticket").unwrap();
    let ty = |path: &[&str]| path.iter().try_fold(ticket.ty(), |it, name| it.field(name)).cloned();
    assert_eq!(ty(&["reporter"]).unwrap().to_string(), "Person");
    assert_eq!(ty(&["reporter", "joined"]).unwrap().to_string(), "date?");
    assert_eq!(ty(&["severity"]).unwrap().to_string(), "minor | major | blocker");
    let fits = |due: &str, severity: &str, effort: &str| {
        let ticket = json!({
            "title": "x", "severity": severity, "reporter": {"name": "Ada"}, "due": due,
            "effort": effort, "watchers": [],
        });
        let update = Update::default().write(channel("ticket"), ticket);
        workflow.schema.check(&update).map_err(|error| error.to_string())
    };
    assert_eq!(fits("2026-02-28", "major", "PT4H"), Ok(()));
    let misfit = |it: Result<(), String>| it.unwrap_err();
    insta::assert_snapshot!(misfit(fits("2026-02-30", "major", "PT4H")), @r#"the value does not fit `ticket`: /due: "2026-02-30" is not a "date""#);
    insta::assert_snapshot!(misfit(fits("2026-02-28", "majr", "PT4H")), @r#"the value does not fit `ticket`: /severity: "majr" is not one of "minor", "major" or "blocker"; did you mean "major"?"#);
    insta::assert_snapshot!(misfit(fits("2026-02-28", "major", "P1M")), @r#"the value does not fit `ticket`: /effort: "P1M" is not a "duration""#);
}

#[test]
fn a_field_may_have_a_reducer_that_the_program_registers() {
    let (workflow, _) = parsed(
        "graphrun: 1\nname: x\nstate: { note: { type: string, merge: longest } }\nstart: a\n\
         nodes:\n  a: { set: { note: '\"long enough\"' }, then: end }\n",
    )
    .unwrap();
    let write = |text: &str| Update::default().write(channel("note"), text);
    let schema = &workflow.schema;
    let (state, _) = schema.apply(schema.empty(), &[write("longer"), write("short")]).unwrap();
    assert_eq!(state.get("note"), Some(&json!("longer")));
}

#[test]
fn a_state_may_be_a_json_schema_beside_the_workflow() {
    let workflow = loaded("tests/workflow/right/schema_file.yaml");
    let shown: Vec<String> =
        workflow.schema.channels().iter().map(|it| format!("{it:?}")).collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    product: string (replace)
    reviews: [Review] (append)
    secret: string (replace)
    ");
    let schema = &workflow.schema;
    assert!(schema.channel("secret").unwrap().is_private());
    let review = |stars: i64| Update::default().write(channel("reviews"), json!({"stars": stars}));
    assert!(schema.check(&review(5)).is_ok());
    assert!(schema.check(&review(6)).is_err(), "what the notation cannot say is checked as well");
}

#[test]
fn types_of_types_of_types_do_not_fill_the_memory() {
    let mut text = "graphrun: 1\nname: x\ntypes:\n  t0: { a: string, b: string }\n".to_owned();
    for at in 1..40 {
        let below = at - 1;
        writeln!(text, "  t{at}: {{ a: t{below}, b: t{below}, c: [t{below}] }}").unwrap();
    }
    text += "state: { a: t39 }\nstart: n\nnodes:\n  n: { set: {}, then: end }\n";
    let diagnostics = parsed(&text).unwrap_err().to_string();
    assert!(
        diagnostics.contains("limit `schema_nodes`") && diagnostics.lines().count() < 10,
        "{diagnostics}"
    );
}

fn reference() -> String {
    ["docs/workflow.md", "docs/expressions.md"].map(|it| fs::read_to_string(it).unwrap()).concat()
}

/// Every name of a property in a schema, at any depth.
fn properties<'s>(schema: &'s Value, found: &mut BTreeSet<&'s str>) {
    if let Some(object) = schema.get("properties").and_then(Value::as_object) {
        found.extend(object.keys().map(String::as_str));
    }
    match schema {
        Value::Object(object) => object.values().for_each(|it| properties(it, found)),
        Value::Array(items) => items.iter().for_each(|it| properties(it, found)),
        _ => (),
    }
}

#[test]
fn the_reference_describes_every_key() {
    let pages = reference();
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let schema = workflow::json_schema(&registry());
    let mut keys = BTreeSet::new();
    properties(&schema, &mut keys);
    assert!(keys.len() > 60, "only {}", keys.len());
    // Every second part stands in backticks, be it a word or an example.
    let code = pages.split('`').skip(1).step_by(2);
    let told: BTreeSet<&str> = code.flat_map(|text| text.split(|it| !is_word(it))).collect();
    let missing: Vec<&&str> = keys.iter().filter(|it| !told.contains(**it)).collect();
    assert!(missing.is_empty(), "nothing is said of {missing:?}");
    for key in graphrun::graph::ErrorKind::ALL {
        assert!(pages.contains(&format!("`{key}`")), "nothing is said of the failure `{key}`");
    }
}

fn route_of(workflow: &Workflow, node: &str) -> Arc<dyn Route> {
    let found = workflow.edges.iter().find_map(|edge| match edge {
        Edge::Route { from, route, .. } if from.as_str() == node => Some(Arc::clone(route)),
        _ => None,
    });
    found.unwrap()
}

fn state_with(workflow: &Workflow, fields: &[(&str, Value)]) -> State {
    let write =
        |update: Update, (name, value): &(&str, Value)| update.write(channel(name), value.clone());
    let update = fields.iter().fold(Update::default(), write);
    workflow.schema.check(&update).unwrap();
    workflow.schema.apply(workflow.schema.empty(), [&update]).unwrap().0
}

#[test]
fn routes_are_labelled_and_decide_by_the_state() {
    let workflow = dev_team();
    let visits = graphrun::graph::Visits::default();
    let decide = |node: &str, field: &str, value: Value| {
        let state = state_with(&workflow, &[(field, value)]);
        let input = &Input::State;
        let trigger = &Trigger::Start;
        let facts = &RunFacts::default();
        let view = RouteView { state: &state, visits: &visits, input, trigger, facts };
        route_of(&workflow, node).decide(&view).map_err(|error| error.to_string())
    };
    let to = |name: &str| Ok(vec![Transition::To(Target::Node(NodeName::parse(name).unwrap()))]);
    let result = |passed: bool| json!({"passed": passed, "total_tests": 2, "passed_count": 1, "failed_count": 1, "error_output": ""});
    assert_eq!(decide("unit_tests", "test_result", result(true)), to("tl"));
    assert_eq!(decide("unit_tests", "test_result", result(false)), to("sse"));
    let review = json!({"verdict": "stuck", "blocking_issues": []});
    assert_eq!(decide("tl", "review", review), to("help"));
    let missing = decide("tl", "brief", json!("x")).unwrap_err();
    assert_eq!(missing, "`review` is not there (in `review.verdict`)");
    let labels = |node: &str| -> Vec<String> {
        let route = route_of(&workflow, node);
        route
            .targets()
            .iter()
            .map(|it| format!("{} → {}", it.label.as_ref().unwrap(), it.to))
            .collect()
    };
    assert_eq!(labels("unit_tests"), ["test_result.passed → tl", "else → sse"]);
    assert_eq!(labels("tl"), ["approved → qa", "rework → sse", "stuck → help"]);
    assert_eq!(route_of(&workflow, "tl").reads().unwrap(), [channel("review")]);
}

/// Makes nothing but planners, and misses something for every person asked.
struct Planners;

impl NodeFactory for Planners {
    fn make(
        &self,
        name: &NodeName,
        definition: &NodeDefinition,
    ) -> Result<Arc<dyn Node>, graphrun::diagnostic::Diagnostic> {
        if definition.settings.downcast_ref::<AskSettings>().is_some() {
            let message = format!("no node for {name}");
            return Err(graphrun::diagnostic::Diagnostic::error("GR009", message));
        }
        Ok(Arc::new(Planner))
    }

    fn make_nested(
        &self,
        name: &NodeName,
        _: &workflow::NestedUse,
        _: graphrun::graph::UncheckedGraph,
    ) -> Result<(Arc<dyn Node>, Diagnostics), Diagnostics> {
        panic!("`{name}` is no node of this workflow");
    }
}

#[test]
fn a_workflow_becomes_a_graph_with_places() {
    let made = dev_team().into_graph(&Planners);
    assert_eq!(made.diagnostics.to_string(), "GR009: no node for help");
    let graph = made.graph;
    assert_eq!(graph.nodes.len(), 10);
    assert!(graph.nodes.values().all(|it| it.span.is_some()));
    assert_eq!(graph.entry[0].as_str(), "ba");
    assert_eq!(graph.input[0].as_str(), "brief");
}

#[test]
fn a_missing_file_is_a_distinct_error() {
    let error = load(Path::new("tests/workflow/nowhere.yaml"), &registry()).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the workflow `tests/workflow/nowhere.yaml`");
}

#[test]
fn brackets_without_end_are_refused_not_followed() {
    let texts = [
        "[".repeat(100_000),
        "{".repeat(100_000),
        "a: ".repeat(30_000),
        "- ".repeat(50_000),
        format!("a: &a [x]\n{}", "b: [*a, *a]\n".repeat(5_000)),
        format!("graphrun: 1\nname: {}", "(".repeat(100_000)),
        laughs(),
    ];
    for text in texts {
        assert!(parsed(&text).is_err(), "{}… was taken", &text[..20]);
    }
}

/// Aliases of aliases, ten times ten times ten.
fn laughs() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..12 {
        let before = format!("*a{}", at - 1);
        let items = [before.as_str(); 10].join(", ");
        writeln!(text, "a{at}: &a{at} [{items}]").unwrap();
    }
    text
}

#[test]
fn deep_expressions_and_prompts_are_refused_not_followed() {
    let expressions = ["(", "!", "-", "[", "a.exists(x, ", "true ? ", "true ? true : "];
    for part in expressions {
        let source = format!("{}true", part.repeat(300));
        let text = small(&format!("{{ when: '{source}', to: end }}"), "x");
        let diagnostics = parsed(&text).unwrap_err().to_string();
        assert!(diagnostics.contains("GR020"), "{part}: {diagnostics}");
    }
    let long = format!("brief == \"\"{}", " && true".repeat(180));
    assert!(parsed(&small(&format!("{{ when: '{long}', to: end }}"), "x")).is_ok());
    let prompt = format!("{}1{}", "{{ ".to_owned() + &"(".repeat(5_000), ")".repeat(5_000) + " }}");
    assert!(parsed(&small("{ when: 'brief == \"\"', to: end }", &prompt)).is_err());
}

/// A small workflow with a case and a prompt of the caller's.
fn small(case: &str, prompt: &str) -> String {
    let prompt = serde_json::to_string(prompt).unwrap();
    format!(
        "graphrun: 1\nname: small\nstate: {{ brief: string }}\ninput: brief\nmodels: {{ m: a/b }}\n\
         agents: {{ x: {{ model: m }} }}\nstart: a\nnodes:\n  a:\n    agent: x\n    \
         prompt: {{ text: {prompt} }}\n    writes: brief\n    then: [{case}, {{ to: end }}]\n"
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        drop(parsed(&text));
    }

    #[test]
    fn no_mangled_workflow_makes_the_loader_panic(at in any::<prop::sample::Index>(), with in "[-:{}\\[\\]&*!|>'\"\n a-z?.é]{0,6}") {
        let text = fs::read_to_string("tests/workflow/right/dev_team.yaml").unwrap();
        let at = at.index(text.len());
        let at = (0..=at).rev().find(|it| text.is_char_boundary(*it)).unwrap();
        let end = (at + with.len()..=text.len()).find(|it| text.is_char_boundary(*it)).unwrap_or(text.len());
        drop(parsed(&format!("{}{with}{}", &text[..at], &text[end..])));
    }

    #[test]
    fn no_expression_makes_the_loader_panic(source in "[a-z0-9.()&|!<>=?:+*/%'\\[\\], -]{0,60}") {
        let source = source.replace('\'', "''");
        drop(parsed(&small(&format!("{{ when: '{source}', to: end }}"), "{{ brief }}")));
    }

    #[test]
    fn no_prompt_makes_the_loader_panic(prompt in "[a-z0-9.(){}%|'\\[\\], =-]{0,60}") {
        drop(parsed(&small("{ when: 'brief == \"\"', to: end }", &prompt)));
    }
}
