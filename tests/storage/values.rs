//! Every value that a run accepts can be read again; every other value is refused before it is
//! saved.
//!
//! The tests try each way in with a value that is one level too deep, on every storage: a refused
//! value must leave a run that can be loaded, exported and resumed.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{ForkSource, Mapping, Message, RunInfo},
    compile::{CompiledGraph, compile},
    data_limit::DataLimit,
    diagnostic::SourceFile,
    engine::{Answers, Engine, RunEnd, RunError, ShutdownHandle},
    event::{EventSink, Status},
    graph::{
        Command, Dispatch, Goto, GraphBuilder, Node, NodeContext, NodeError, Question, START,
        Target, Transition,
    },
    id::Step,
    nodes::{Services, factory},
    registry,
    state::{Schema, StateError, Update},
    workflow::parse,
};
use proptest::{
    prelude::{Strategy, any, prop_oneof},
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::storage::sample::{Home, channel, node, promises, run};

promises! {
    a_loop_that_nests_a_value_fails_and_its_run_stays_readable
    a_failure_by_a_limit_can_be_caught
    no_way_in_takes_a_value_that_is_too_deep
    people_cannot_give_a_value_that_is_too_deep
    a_changed_run_takes_no_value_that_is_too_deep
    an_entry_that_could_not_be_read_is_not_written
    every_value_that_is_taken_is_read_again
}

/// Returns nested lists of a depth.
fn nested(depth: u64) -> Value {
    (1..depth).fold(json!([]), |inner, _| json!([inner]))
}

fn depth_max() -> u64 {
    DataLimit::ValueDepth.value()
}

/// Returns a graph from a workflow without its first two lines.
fn graph_of(workflow: &str) -> CompiledGraph {
    let text = format!("graphrun: 1\nname: values\n{workflow}");
    let file = Arc::new(SourceFile { name: "values.yaml".into(), text });
    let registry = registry();
    let (workflow, _) = parse(file, Path::new("."), &registry).unwrap_or_else(|it| panic!("{it}"));
    compile(workflow.into_graph(&factory(Services::offline(), registry)))
        .unwrap_or_else(|it| panic!("{it}"))
}

/// A run in a storage that is reopened for each operation.
struct Case<'a> {
    home: &'a Home,
    graph: CompiledGraph,
    id: String,
}

impl<'a> Case<'a> {
    fn new(home: &'a Home, graph: CompiledGraph, id: &str) -> Self {
        Self { home, graph, id: id.to_owned() }
    }

    fn engine(&self) -> Engine {
        Engine::new(self.graph.clone()).with_storage(self.home.open())
    }

    async fn start(&self, input: &Value) -> Result<RunEnd, RunError> {
        let info = RunInfo { id: run(&self.id), ..RunInfo::new("values") };
        let input = Update::of(input).unwrap();
        self.engine().run(input).with_info(info).await
    }

    async fn answer(&self, answer: Value) -> Result<RunEnd, RunError> {
        let by_name = BTreeMap::from([("go".to_owned(), answer)]);
        let answers = Answers { by_name, by: None };
        self.engine().resume(&run(&self.id)).with_answers(answers).await
    }

    /// Reads everything that was saved.
    async fn saved(&self) -> (Status, Map<String, Value>) {
        let storage = self.home.open();
        let saved = storage.load(&run(&self.id)).await.unwrap();
        assert!(!storage.journal(&run(&self.id)).await.unwrap().is_empty());
        let values = saved.values.into_iter().map(|(name, it)| (name.to_string(), it)).collect();
        (saved.summary.status, values)
    }
}

async fn a_loop_that_nests_a_value_fails_and_its_run_stays_readable(home: Home) {
    let graph = graph_of(
        "state: { a: { type: json, default: [] } }\nstart: nest\nnodes:\n  \
         nest: { set: { a: '[a]' }, then: nest, max_visits: 500, exhausted: end }\n",
    );
    let case = Case::new(&home, graph, "R1");
    let end = case.start(&json!({})).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let reason = end.reason.unwrap();
    for part in ["`nest` failed", "`a`", "`value_depth` of 64", "GRAPHRUN_LIMIT_VALUE_DEPTH"] {
        assert!(reason.contains(part), "{reason}");
    }
    let (status, values) = case.saved().await;
    assert_eq!((status, &values["a"]), (Status::Failed, &nested(depth_max())));
}

async fn a_failure_by_a_limit_can_be_caught(home: Home) {
    let graph = graph_of(
        "state: { a: { type: json, default: [] }, caught: { type: bool, default: false } }\nstart: nest\nnodes:\n  \
         nest: { set: { a: '[a]' }, then: nest, max_visits: 500, exhausted: end, catch: { any: mend } }\n  \
         mend: { set: { caught: 'true' }, then: end }\n",
    );
    let case = Case::new(&home, graph, "R1");
    let end = case.start(&json!({})).await.unwrap();
    assert_eq!((end.status, end.state.get("caught")), (Status::Done, Some(&json!(true))));
    assert_eq!(case.saved().await.1["a"], nested(depth_max()));
}

/// A state that holds anything.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Anything {
    #[serde(default)]
    a: Value,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<Value>,
}

/// The ways in which a node of a library user passes a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Write,
    Append,
    Dispatch,
    Show,
    Schema,
    Memo,
}

const WAYS: [Way; 6] = [Way::Write, Way::Append, Way::Dispatch, Way::Show, Way::Schema, Way::Memo];

/// Passes a value.
struct Gives {
    way: Way,
    value: Value,
}

#[async_trait]
impl Node for Gives {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let update = Update::default();
        let value = self.value.clone();
        match self.way {
            Way::Write => return Ok(update.write(channel("a"), value).into()),
            Way::Append => return Ok(update.write(channel("log"), json!([value])).into()),
            Way::Dispatch => {
                let transition = Transition::Dispatch(Dispatch::new(node("last"), value));
                return Ok(Command { update, goto: Goto::Instead(vec![transition]) });
            }
            Way::Show => {
                let mut question = Question::new("go", "Go on?");
                question.show = value;
                let _: Value = ctx.ask(question)?;
            }
            Way::Schema => {
                let question = Question::new("go", "Go on?");
                let _: Value = ctx.ask(question.with_schema(json!({"enum": [value, true]})))?;
            }
            Way::Memo => {
                let part = async { Ok::<Value, NodeError>(value) };
                let _: Value = ctx.memo("part", part).await?;
            }
        }
        Ok(Command { update, goto: Goto::Instead(vec![Transition::To(Target::End)]) })
    }
}

/// Does nothing.
struct Ends;

#[async_trait]
impl Node for Ends {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        Ok(Update::default().into())
    }
}

fn graph_by(way: Way, value: &Value) -> CompiledGraph {
    let builder = GraphBuilder::new::<Anything>("values")
        .node("first", Gives { way, value: value.clone() })
        .node("last", Ends)
        .edge(START, "first")
        .goto("first", ["end"])
        .dispatches("first", ["last"])
        .edge("last", "end");
    builder.compile().unwrap()
}

async fn no_way_in_takes_a_value_that_is_too_deep(home: Home) {
    for (at, way) in (0..).zip(WAYS) {
        // The surroundings of the value are two or three levels deep.
        let around = match way {
            Way::Schema => 2,
            Way::Append => 1,
            _ => 0,
        };
        let case =
            Case::new(&home, graph_by(way, &nested(depth_max() - around)), &format!("R{at}"));
        let end = case.start(&json!({})).await.unwrap();
        assert_ne!(end.status, Status::Failed, "{way:?}: {:?}", end.reason);
        case.saved().await;

        let deep = nested(depth_max() - around + 1);
        let case = Case::new(&home, graph_by(way, &deep), &format!("D{at}"));
        let end = case.start(&json!({})).await.unwrap();
        let reason = end.reason.unwrap_or_default();
        assert_eq!(end.status, Status::Failed, "{way:?}: {reason}");
        assert!(reason.contains("GRAPHRUN_LIMIT_VALUE_DEPTH"), "{way:?}: {reason}");
        assert_eq!(case.saved().await.0, Status::Failed);
    }
    let case = Case::new(&home, graph_by(Way::Write, &json!(1)), "I1");
    let refused = case.start(&json!({"a": nested(depth_max() + 1)})).await.unwrap_err();
    assert!(matches!(refused, RunError::Input(StateError::Value { .. })), "{refused}");
    assert!(home.open().find("I1").await.is_err(), "nothing was started");
}

async fn people_cannot_give_a_value_that_is_too_deep(home: Home) {
    let case = Case::new(&home, graph_by(Way::Show, &json!("look")), "R1");
    assert_eq!(case.start(&json!({})).await.unwrap().status, Status::Paused);
    let refused = case.answer(nested(depth_max() + 1)).await.unwrap_err();
    assert!(matches!(refused, RunError::WrongAnswer { .. }), "{refused}");
    let message = Message::new(channel("log"), nested(depth_max() + 1), None);
    home.open().post(&run("R1"), &message).await.unwrap_err();
    assert!(home.open().inbox(&run("R1"), 0).await.unwrap().is_empty());
    let message = Message::new(channel("log"), nested(depth_max()), None);
    home.open().post(&run("R1"), &message).await.unwrap();
    assert_eq!(home.open().inbox(&run("R1"), 0).await.unwrap().len(), 1);
    assert_eq!(case.answer(nested(depth_max())).await.unwrap().status, Status::Done);
    case.saved().await;
}

async fn a_changed_run_takes_no_value_that_is_too_deep(home: Home) {
    let case = Case::new(&home, graph_by(Way::Show, &json!("look")), "R1");
    case.start(&json!({})).await.unwrap();
    let engine = case.engine();
    let deep = nested(depth_max() + 1);
    let update = Update::default().write(channel("a"), deep.clone());
    let refused = engine.update(&run("R1"), update, None).await.unwrap_err();
    assert!(matches!(refused, RunError::Revise(_)), "{refused}");

    let from = || ForkSource { run: run("R1"), name: "R1".into(), step: Step(0) };
    let fork = |id: &str| RunInfo { id: run(id), name: id.into(), ..RunInfo::new("values") };
    let set = BTreeMap::from([(channel("a"), Some(deep.clone()))]);
    let refused = engine.fork(fork("F1"), from(), set).await.unwrap_err();
    assert!(matches!(refused, RunError::Revise(_)), "{refused}");

    let mapping = Mapping::default().set(channel("a"), deep);
    let refused = engine.migrate(&run("R1"), &mapping, None).await.unwrap_err();
    assert!(matches!(refused, RunError::Revise(_)), "{refused}");

    let held = json!({ "it": nested(depth_max() - 1) });
    let update = Update::default().write(channel("log"), held.clone());
    engine.update(&run("R1"), update, None).await.unwrap();
    // Existing values are not measured again, though the list is one level deeper.
    let set = BTreeMap::from([(channel("a"), Some(json!(1)))]);
    engine.fork(fork("F2"), ForkSource { step: Step(1), ..from() }, set).await.unwrap();
    let forked = home.open().load(&run("F2")).await.unwrap();
    assert_eq!(forked.values[&channel("log")], json!([held]));
}

async fn an_entry_that_could_not_be_read_is_not_written(home: Home) {
    use graphrun::{
        checkpoint::{Commit, Position},
        state::{Change, ChangeKind},
    };

    let storage = home.open();
    let set = |value: Value| {
        let kind = ChangeKind::Set(value.into());
        let changes = vec![Change { channel: channel("a"), kind }];
        Commit { position: Position { step: Step(0), ..Position::default() }, changes }.into()
    };
    let (info, request) =
        (crate::storage::sample::info("R1", "one"), crate::storage::sample::request());
    if storage.create(&info, &request, &set(nested(200))).await.is_ok() {
        // A storage that writes no JSON can read it again.
        assert_eq!(storage.load(&run("R1")).await.unwrap().values[&channel("a")], nested(200));
    } else {
        storage.create(&info, &request, &set(nested(100))).await.unwrap();
        assert_eq!(home.open().load(&run("R1")).await.unwrap().values[&channel("a")], nested(100));
    }
}

/// Generates a value up to the maximum depth, with numbers and texts that parsers often get wrong.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        proptest::sample::select(vec![
            json!(null),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(-0.0),
            json!(f64::MAX),
            json!(f64::MIN_POSITIVE),
            json!(5e-324),
            json!(0.1),
            json!(1e23),
            json!("\u{0}\u{1f}\u{7f}\u{feff}\u{2028}\u{10ffff}\"\\/"),
            json!("$serde_json::private::Number"),
            json!({}),
            json!([]),
        ]),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    (inner, 0..56_u64, any::<bool>()).prop_map(|(inner, deeper, is_record)| {
        (0..deeper).fold(inner, |it, _| if is_record { json!({ "": it }) } else { json!([it]) })
    })
}

async fn every_value_that_is_taken_is_read_again(home: Home) {
    let mut runner = TestRunner::deterministic();
    for at in 0..6 {
        let value = any_value().new_tree(&mut runner).unwrap().current();
        for way in WAYS {
            let id = format!("R{at}-{way:?}");
            let case = Case::new(&home, graph_by(way, &value), &id);
            let end = case.start(&json!({"a": value})).await.unwrap();
            assert_ne!(end.status, Status::Failed, "{way:?} {value}: {:?}", end.reason);
            let (_, values) = case.saved().await;
            assert_same(&values, &Value::Object(end.state.to_json()));
            if end.status == Status::Paused {
                let events = EventSink::default();
                let stop = ShutdownHandle::default();
                let again =
                    case.engine().resume(&run(&id)).with_events(events).with_shutdown(&stop).await;
                assert_eq!(again.unwrap().questions, end.questions);
                let answer = if way == Way::Show { value.clone() } else { json!(true) };
                let end = case.answer(answer).await.unwrap();
                assert_eq!(end.status, Status::Done, "{way:?} {value}: {:?}", end.reason);
                assert_same(&case.saved().await.1, &Value::Object(end.state.to_json()));
            }
        }
    }
}

/// Fails unless both are equal byte for byte, since equal numbers may differ in text.
fn assert_same(saved: &Map<String, Value>, state: &Value) {
    let sorted = |it: &Map<String, Value>| it.clone().into_iter().collect::<BTreeMap<_, _>>();
    let state = state.as_object().unwrap();
    assert_eq!(json!(sorted(saved)).to_string(), json!(sorted(state)).to_string());
}

#[tokio::test]
async fn a_state_that_doubles_fails_at_its_limit() {
    let home = Home::memory();
    let graph = graph_of(
        "state: { a: { type: string, default: '0123456789abcdef' } }\nstart: double\nnodes:\n  \
         double: { set: { a: 'a + a' }, then: double, max_visits: 50, exhausted: end }\n",
    );
    let case = Case::new(&home, graph, "R1");
    let end = case.start(&json!({})).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let reason = end.reason.unwrap();
    assert!(reason.contains("GRAPHRUN_LIMIT_"), "{reason}");
    let length = case.saved().await.1["a"].as_str().unwrap().len() as u64;
    // A text counts four times its length, and a small constant.
    assert!(4 * length < DataLimit::ExpressionMemory.value());
    assert!(9 * length > DataLimit::ExpressionMemory.value());
}

#[test]
fn a_state_of_many_values_has_a_separate_limit() {
    let fields = ["a", "b", "c", "d", "e", "f"];
    let properties: Map<String, Value> =
        fields.iter().map(|it| ((*it).to_owned(), json!({"type": "string"}))).collect();
    let schema =
        Schema::of_json_schema(&json!({"type": "object", "properties": properties}), &[]).unwrap();
    // A text counts four times its length, so five of these exceed the limit.
    let part = usize::try_from(DataLimit::StateMemory.value() / 20).unwrap();
    let text = Value::from("x".repeat(part));
    let mut state = schema.empty();
    for (at, field) in (1..).zip(fields) {
        let update = Update::default().write(channel(field), text.clone());
        match schema.apply(state, [&update]) {
            Ok((next, _)) => state = next,
            Err(refused) => {
                assert_eq!(at, 5, "{refused}");
                assert!(matches!(refused, StateError::Limit { .. }), "{refused}");
                assert_eq!(refused.channel().as_str(), field);
                return;
            }
        }
    }
    panic!("the state takes any amount");
}
