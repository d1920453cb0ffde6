//! The facts of a run in expressions and prompts: the time, the usage, the limits and the trigger.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use graphrun::{
    checkpoint::{Checkpoint, ForkSource, RunInfo, RunJournal as _},
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    engine::{
        Clock, Engine,
        machine::{
            Action, AttemptStats, Breakpoints, FirstStep, Machine, RunSettings, Task, TaskEvent,
        },
    },
    event::{Status, Usage},
    graph::Limits,
    id::{NodeName, RunId},
    models::TokenUsage,
    nodes::{Services, factory},
    registry,
    state::{State, Update},
    storage::InMemoryStorage,
    workflow::parse,
};
use jiff::Timestamp;
use serde_json::{Value, json};

const NOTES: &str = r#"
graphrun: 1
name: notes
types:
  Note: { at: string, by: string, left: int, of_work: int, via: string? }
state: { notes: { type: "[Note]", merge: append, default: [] } }
start: work
limits: { steps: 9, tokens: 5000 }
nodes:
  work:
    set: { notes: 'Note{ at: now(), by: run.name, left: remaining.steps, of_work: usage("work").tokens, via: via.node }' }
    max_visits: 3
    exhausted: last
    then: [{ when: 'remaining.steps > 7 && usage.tokens < 100 && via.reason != "caught"', to: work }, { to: last }]
  last:
    set: { notes: 'Note{ at: now(), by: run.id, left: has(remaining.tokens) ? remaining.tokens : -1, of_work: usage("work").tokens, via: via.node }' }
    then: end
"#;

fn graph(text: &str) -> CompiledGraph {
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text: text.into() });
    let registry = registry();
    let (workflow, warnings) = parse(file, Path::new("."), &registry).unwrap();
    assert!(warnings.is_empty(), "{warnings}");
    let made = workflow.into_graph(&factory(Services::offline(), registry));
    assert!(made.diagnostics.is_empty(), "{}", made.diagnostics);
    compile(made).unwrap()
}

fn second(number: i64) -> Timestamp {
    Timestamp::from_second(number).unwrap()
}

fn notes(state: &State) -> Value {
    state.get("notes").cloned().unwrap_or_default()
}

fn run_id() -> RunId {
    RunId::parse("run-7").unwrap()
}

fn started(actions: Vec<Action>) -> Vec<Task> {
    let task = |it| if let Action::Run(task) = it { Some(*task) } else { None };
    actions.into_iter().filter_map(task).collect()
}

fn committed(actions: &[Action]) -> Option<Checkpoint> {
    actions.iter().find_map(|action| match action {
        Action::Commit(commit) => Some(Checkpoint {
            position: commit.position.clone(),
            state: graph(NOTES).schema().empty(),
        }),
        _ => None,
    })
}

#[test]
fn the_facts_of_a_step_survive_a_new_process() {
    let graph = graph(NOTES);
    let limits = Limits { steps: 9, tokens: Some(5_000), ..Limits::default() };
    let terms =
        |now| RunSettings { limits: limits.clone(), now: second(now), ..RunSettings::default() };
    let FirstStep { mut machine, commit, actions } =
        Machine::start(graph.clone(), terms(100), run_id(), Update::default()).unwrap();
    assert_eq!(commit.position.began, Some(second(100)));
    let task = started(actions).remove(0);
    assert_eq!(task.facts.began, Some(second(100)));
    assert_eq!(task.facts.remaining.steps, 9);
    let tokens =
        TokenUsage { input_tokens: 40, output_tokens: 2, calls: 1, ..TokenUsage::default() };
    let usage = Usage { tokens, cost_usd: None };
    let attempt = AttemptStats { number: 1, ms: 5, usage, ended: second(130) };
    let command = Update::default().into();
    let actions = machine.apply(TaskEvent::Finished { task: task.id, command, attempt });
    let saved = committed(&actions).unwrap();
    assert_eq!(saved.position.began, Some(second(130)));
    let next = started(actions).remove(0);
    assert_eq!(next.facts.usage.total_tokens(), 42);
    assert_eq!(next.facts.node_usage[&task.node].total_tokens(), 42);
    assert_eq!((next.facts.remaining.steps, next.facts.remaining.tokens), (8, Some(4_958)));

    // A later process starts the same step again.
    let saved = Checkpoint { state: machine.state().as_ref().clone(), ..saved };
    let (_, actions) = Machine::restore(graph, terms(9_000), run_id(), saved.into()).unwrap();
    let again = started(actions).remove(0);
    assert_eq!(again.facts, next.facts);
    assert_eq!(again.trigger, next.trigger);
}

#[tokio::test]
async fn expressions_read_the_facts_of_their_step() {
    let clock = Arc::new(AtomicI64::new(50));
    let ticking = Arc::clone(&clock);
    let clock = Clock::new(move || second(ticking.fetch_add(10, Ordering::Relaxed)));
    let engine = Engine::new(graph(NOTES)).with_clock(clock);
    let end = engine.run(&json!({})).await.unwrap();
    assert_eq!(end.status, Status::Done, "{end:?}");
    let notes = notes(&end.state);
    let field = |name: &str| -> Vec<Value> {
        notes.as_array().unwrap().iter().map(|it| it[name].clone()).collect()
    };
    assert_eq!(field("left"), [json!(9), json!(8), json!(7), json!(5_000)]);
    assert_eq!(field("via"), [json!(null), json!("work"), json!("work"), json!("work")]);
    assert_eq!(field("of_work"), [0, 0, 0, 0]);
    assert_eq!(field("by")[..3], ["notes", "notes", "notes"]);
    let times: Vec<Timestamp> =
        field("at").iter().map(|it| it.as_str().unwrap().parse().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
}

/// The step that follows has not begun before: a person made its beginning.
#[tokio::test]
async fn the_step_after_a_fork_or_an_update_begins_then() {
    let storage = Arc::new(InMemoryStorage::default());
    let engine = |now| {
        let breakpoints = Breakpoints {
            before: BTreeSet::from([NodeName::parse("last").unwrap()]),
            ..Breakpoints::default()
        };
        let engine = Engine::new(graph(NOTES)).with_clock(Clock::new(move || second(now)));
        engine.with_storage(Arc::clone(&storage) as _).with_breakpoints(breakpoints)
    };
    let end = engine(100).run(&json!({})).await.unwrap();
    assert_eq!(end.status, Status::Paused, "{end:?}");
    let info = storage.load(&end.run).await.unwrap().summary.info;
    assert_eq!(info.created, second(100).to_string());

    let step = end.position.step;
    let (info, from) =
        (RunInfo::new("notes"), ForkSource { run: end.run.clone(), name: "old".into(), step });
    let fork = info.id.clone();
    engine(200).fork(info, from, BTreeMap::new()).await.unwrap();
    assert_eq!(storage.load(&fork).await.unwrap().position.began, Some(second(200)));
    let forked = engine(300).resume(&fork).await.unwrap();
    assert_eq!(
        notes(&forked.state).as_array().unwrap().last().unwrap()["at"],
        "1970-01-01T00:03:20Z"
    );

    let update = Update::default();
    let position = engine(400).update(&end.run, update, None).await.unwrap();
    assert_eq!(position.began, Some(second(400)));
}

#[tokio::test]
async fn a_used_workflow_reads_the_facts_of_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("notes.yaml"),
        NOTES.replacen("state:", "output: notes\nstate:", 1),
    )
    .unwrap();
    let text = "graphrun: 1\nname: outer\nstate: { all: json }\nstart: team\nnodes:\n  \
                team: { use: { workflow: notes.yaml, nested: false, out: { all: notes } }, then: end }\n";
    let file = Arc::new(SourceFile { name: "outer.yaml".into(), text: text.into() });
    let registry = registry();
    let (workflow, _) = parse(file, folder.path(), &registry).unwrap();
    let made = workflow.into_graph(&factory(Services::offline(), registry));
    assert!(made.diagnostics.is_empty(), "{}", made.diagnostics);
    let graph = made.graph;
    let needed: Vec<&str> = graph.facts.usage_of.iter().map(NodeName::as_str).collect();
    assert_eq!((graph.facts.time, &needed[..]), (true, &["team.work"][..]));
    let engine = Engine::new(compile(graph.into()).unwrap());
    let end = engine.run(&json!({})).await.unwrap();
    assert_eq!(end.status, Status::Done, "{end:?}");
    let all = end.state.get("all").unwrap();
    assert_eq!(all[0]["by"], "outer");
    assert_ne!(all[0]["at"], "1970-01-01T00:00:00Z");
}

#[tokio::test]
async fn visits_and_usage_of_inner_nodes_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = "graphrun: 1\nname: inner\nstate: { n: { type: int, merge: sum, default: 0 } }\noutput: n\nstart: add\nnodes:\n  \
                 add: { set: { n: 1 }, max_visits: 3, exhausted: end, then: add }\n";
    std::fs::write(folder.path().join("inner.yaml"), inner).unwrap();
    let text = r#"
graphrun: 1
name: outer
state: { n: int, seen: "[int]" }
start: part
nodes:
  part: { use: { workflow: inner.yaml, out: { n: n } }, then: look }
  look: { set: { seen: '[visits("part.add"), visits("part.end"), usage("part.add").calls, n]' }, then: end }
"#;
    let load = |text: &str| {
        let file = Arc::new(SourceFile { name: "outer.yaml".into(), text: text.into() });
        parse(file, folder.path(), &registry())
    };
    let (workflow, warnings) = load(text).unwrap();
    assert!(warnings.is_empty(), "{warnings}");
    let graph = workflow.into_graph(&factory(Services::offline(), registry())).graph;
    assert!(graph.facts.usage_of.contains("part.add"));
    let engine = Engine::new(compile(graph.into()).unwrap());
    let end = engine.run(&json!({})).await.unwrap();
    assert_eq!(end.state.get("seen"), Some(&json!([3, 1, 0, 3])), "{end:?}");

    let error = load(&text.replace("visits(\"part.add\")", "visits(\"part.ad\")")).unwrap_err();
    assert!(error.to_string().contains("did you mean `part.add`?"), "{error}");
    // A nested run counts its own visits.
    let nested = text.replace("workflow: inner.yaml,", "workflow: inner.yaml, nested: true,");
    assert!(load(&nested).unwrap_err().to_string().contains("part.add"));
}

const FAILS: &str = r#"
graphrun: 1
name: fails
types: { Plan: { next: polish | why | end, at: "[int]" } }
state: { plan: Plan, reason: string, log: { type: "[string]", merge: append } }
start: plan
nodes:
  plan: { set: { plan: 'Plan{ next: "NEXT", at: [1] }', log: '["planned"]' }, then: { match: plan.next } }
  polish:
    set: { log: '[string(1 / (plan.at.size() - 1))]' }
    catch: { any: polish }
    max_visits: 2
    exhausted: why
    then: end
  why: { set: { reason: '"gave up after " + log.join(", ")' }, then: { fail: reason } }
"#;

async fn ended(next: &str) -> (Status, Option<String>) {
    let graph = graph(&FAILS.replace("NEXT", next));
    let end = Engine::new(graph).run(&json!({})).await.unwrap();
    (end.status, end.reason)
}

#[tokio::test]
async fn a_run_fails_with_the_reason_of_its_node() {
    let (status, reason) = ended("why").await;
    assert_eq!(status, Status::Failed);
    assert_eq!(reason.unwrap(), "`why` ended the run: gave up after planned");
    assert_eq!(ended("end").await, (Status::Done, None));
}

#[tokio::test]
async fn a_used_up_bound_keeps_the_last_error() {
    let (status, reason) = ended("polish").await;
    assert_eq!(status, Status::Failed);
    let reason = reason.unwrap();
    let start = "`why` ended the run: gave up after planned; the last error: `polish` used up its 2 visits; the last error: ";
    assert!(reason.starts_with(start), "{reason}");
    assert!(reason.contains("division by zero"), "{reason}");
}

#[tokio::test]
async fn a_limit_of_the_run_keeps_the_error_that_the_run_handled() {
    let text = FAILS.replace("NEXT", "polish").replace("max_visits: 2", "max_visits: 9");
    for (target, start) in
        [("fail", ""), ("why", "`why` ended the run: gave up after planned; the last error: ")]
    {
        let text = text.replace(
            "start: plan",
            &format!("limits: {{ steps: 4, exhausted: {target} }}\nstart: plan"),
        );
        let end = Engine::new(graph(&text)).run(&json!({})).await.unwrap();
        assert_eq!(end.status, Status::Failed);
        let reason = end.reason.unwrap();
        let start = format!("{start}the limit of 4 steps is reached; the last error: ");
        assert!(reason.starts_with(&start), "{reason}");
        assert_eq!(reason.matches("division by zero").count(), 1, "{reason}");
    }
}

#[tokio::test]
async fn a_reason_that_holds_the_error_is_not_followed_by_it() {
    let text =
        FAILS.replace("NEXT", "polish").replace("catch: { any: polish }", "catch: { any: why }");
    let text = text.replace(
        "set: { reason: '\"gave up after \" + log.join(\", \")' }",
        "set: { reason: 'has(via.error) ? \"gave up: \" + via.error.message : \"?\"' }",
    );
    let reason = Engine::new(graph(&text)).run(&json!({})).await.unwrap().reason.unwrap();
    assert!(reason.starts_with("`why` ended the run: gave up: "), "{reason}");
    assert_eq!(reason.matches("division by zero").count(), 1, "{reason}");
}

#[test]
fn mistakes_in_failures_and_routes_by_name_are_found() {
    let cases = [
        ("then: { fail: reason }", "then: { fail: reasons }", "GR021", "did you mean `reason`?"),
        (
            "then: { fail: reason }",
            "then: { fail: log }",
            "GR022",
            "name a field of the type `string`, which `set` can compute",
        ),
        (
            r#"set: { reason: '"gave up after " + log.join(", ")' }"#,
            "set: { log: log }",
            "GR035",
            "make `reason` an input, give it a default, or let an earlier node write it",
        ),
        (
            "polish | why | end",
            "polish | wyh | end",
            "GR024",
            "give each value a target: `to: { wyh: … }`",
        ),
        (
            "then: { match: plan.next }",
            "then: { match: plan.next, to: { polish: polish, why: why, end: end }, fail: reason }",
            "GR009",
            "write `then: { fail: FIELD }`, or route to a node that does",
        ),
        (
            "then: { match: plan.next }",
            "then: { match: plan.at }",
            "GR006",
            "give each value a target; only an enum whose values are nodes needs none",
        ),
    ];
    for (from, to, code, help) in cases {
        let text = FAILS.replace("NEXT", "end").replacen(from, to, 1);
        assert_ne!(text, FAILS.replace("NEXT", "end"), "{from}");
        let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
        let diagnostics = match parse(file, Path::new("."), &registry()) {
            Ok((_, diagnostics)) | Err(diagnostics) => diagnostics,
        };
        let found = diagnostics.clone().into_iter().find(|it| it.code == code);
        let found = found.unwrap_or_else(|| panic!("{to}: {diagnostics}"));
        assert_eq!(found.help.as_deref(), Some(help), "{to}: {diagnostics}");
    }
}

#[test]
fn a_growing_list_begins_empty_unless_it_is_an_input() {
    let text = "graphrun: 1\nname: w\nstate: { log: { type: \"[string]\", merge: append }, given: { type: \"[string]\", merge: append } }\n\
                input: given\nstart: first\nnodes:\n  first: { set: { log: given }, then: end }\n";
    let graph = graph(text);
    let channel = |name: &str| graph.schema().channel(name).unwrap().is_needed_as_input();
    assert_eq!((channel("log"), channel("given")), (false, true));
}
