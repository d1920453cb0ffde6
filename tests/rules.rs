//! The rules of a super-step, driven by hand: no runtime, no clock, no storage.

mod emissions;
mod items;
mod limits;
mod messages;
mod misfits;
mod partial;
mod undecided;
mod waiting;

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use graphrun::{
    checkpoint::{Checkpoint, Commit, RunStatus, TaskRecord},
    compile::{CompiledGraph, compile},
    engine::machine::{
        Action, AttemptStats, FirstStep, Machine, RunSettings, SavedStep, Task, TaskEvent,
    },
    event::{Status, Usage},
    graph::{
        Attempts, Backoff, Bounds, Catch, Command, Dispatch, Edge, ErrorKind, Failure, Goto,
        GraphBuilder, Input, IntoNode, Limits, Node, NodeContext, NodeError, OnFinish, Policies,
        Question, Route, RouteError, RouteTarget, RouteView, START, Spread, Target, Transition,
        Trigger, Visits,
    },
    id::{ChannelName, NodeName, RunId},
    models::TokenUsage,
    state::{State, Update},
};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A node whose result the test decides.
struct Decided;

#[async_trait::async_trait]
impl Node for Decided {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        unreachable!("these tests run no node")
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Team {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
    #[serde(default)]
    round: u32,
    ready: Option<bool>,
}

fn name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn bounded(max_visits: u32, exhausted: &str) -> Policies {
    let exhausted = match exhausted {
        "fail" => Target::Fail,
        node => Target::Node(name(node)),
    };
    Policies::from(Bounds {
        max_visits: Some(max_visits),
        exhausted: Some(exhausted),
        ..Bounds::default()
    })
}

fn compiled(builder: GraphBuilder) -> CompiledGraph {
    builder.compile().unwrap()
}

fn attempt(number: u32) -> AttemptStats {
    AttemptStats { number, ms: 0, usage: Usage::default(), ended: jiff::Timestamp::UNIX_EPOCH }
}

fn run_id() -> RunId {
    RunId::parse("r").unwrap()
}

/// Notes which node ran, so that the state shows the order of updates.
fn noting(task: &Task) -> Command {
    let note = match &task.input {
        Input::State => task.node.to_string(),
        Input::Value(value) => format!("{}({value})", task.node),
    };
    Update::default().write(channel("notes"), note).into()
}

/// A driver in memory: the data it would save, and its remaining actions.
struct Hand {
    machine: Machine,
    open: VecDeque<Task>,
    records: Vec<TaskRecord>,
    saved: Commit,
    rest: Option<(Status, Option<String>)>,
}

impl Hand {
    fn start(graph: &CompiledGraph) -> Self {
        let limits = graph.definition().limits.clone();
        let settings = RunSettings { limits, ..RunSettings::default() };
        let FirstStep { machine, commit: saved, actions } =
            Machine::start(graph.clone(), settings, run_id(), Update::default()).unwrap();
        let mut hand =
            Self { machine, open: VecDeque::new(), records: Vec::new(), saved, rest: None };
        hand.perform(actions);
        hand
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Record(record) => self.records.push(Arc::unwrap_or_clone(record)),
                Action::Emit { .. } | Action::PublishMessages(_) | Action::EndStep(_) => (),
                Action::Commit(commit) => {
                    self.records.clear();
                    self.saved = *commit;
                }
                Action::Run(task) => self.open.push_back(*task),
                Action::Sleep { task, wait } => {
                    let actions = self.machine.apply(TaskEvent::Woke { task, wake: wait.wake });
                    self.perform(actions);
                }
                Action::Stop(RunStatus { status, reason }) => self.rest = Some((status, reason)),
            }
        }
    }

    fn tell(&mut self, event: TaskEvent) {
        let actions = self.machine.apply(event);
        self.perform(actions);
    }

    fn finish(&mut self, task: &Task, command: Command) {
        self.tell(TaskEvent::Finished { task: task.id, command, attempt: attempt(task.attempt) });
    }

    /// Runs until the run stops; `pick` chooses which open task ends next.
    fn run(
        mut self,
        mut pick: impl FnMut(usize) -> usize,
        node: impl Fn(&Task) -> Result<Command, Failure>,
    ) -> (State, (Status, Option<String>)) {
        while self.rest.is_none() {
            let at = pick(self.open.len());
            let task = self.open.remove(at).expect("a run that does not rest has open tasks");
            let attempt = attempt(task.attempt);
            let event = match node(&task) {
                Ok(command) => TaskEvent::Finished { task: task.id, command, attempt },
                Err(failure) => TaskEvent::Failed { task: task.id, failure, attempt },
            };
            let again = event.clone();
            self.tell(event);
            let told_twice = self.machine.apply(again);
            assert!(told_twice.is_empty(), "an event told twice changed the run: {told_twice:?}");
        }
        (self.machine.state().as_ref().clone(), self.rest.unwrap())
    }
}

fn notes(state: &State) -> Vec<String> {
    state.read::<Team>().unwrap().notes
}

fn diamond() -> CompiledGraph {
    compiled(
        GraphBuilder::new::<Team>("diamond")
            .node("plan", Decided)
            .node("qc", Decided)
            .node("ta", Decided)
            .node("ux", Decided)
            .node("sse", Decided)
            .edge(START, "plan")
            .edge("plan", "ta")
            .edge("plan", "ux")
            .edge("plan", "qc")
            .edge(["ta", "qc", "ux"], "sse")
            .edge("sse", "end"),
    )
}

#[test]
fn updates_apply_in_task_order_not_in_finish_order() {
    let ordered = ["plan", "qc", "ta", "ux", "sse"];
    let (first, _) = Hand::start(&diamond()).run(|_| 0, |task| Ok(noting(task)));
    let (last, rest) = Hand::start(&diamond()).run(|open| open - 1, |task| Ok(noting(task)));
    assert_eq!(notes(&first), ordered);
    assert_eq!(notes(&last), ordered);
    assert_eq!(rest, (Status::Done, None));
}

#[test]
fn a_node_reached_twice_has_the_first_trigger_in_task_order() {
    let graph = compiled(
        GraphBuilder::new::<Team>("twice")
            .node("ba", Decided)
            .node("pm", Decided)
            .node("sse", Decided)
            .edge(START, "pm")
            .edge(START, "ba")
            .edge("pm", "sse")
            .edge("ba", "sse")
            .edge("sse", "end"),
    );
    let mut hand = Hand::start(&graph);
    while let Some(task) = hand.open.pop_back().filter(|it| it.node != name("sse")) {
        hand.finish(&task, Command::default());
    }
    let frontier = &hand.saved.position.frontier;
    let triggers: Vec<_> =
        frontier.iter().map(|it| (it.node.as_str(), it.trigger.node())).collect();
    assert_eq!(triggers, [("sse", Some(&name("ba")))]);
}

#[test]
fn dispatches_run_in_order_after_nodes_reached_by_edges() {
    let graph = compiled(
        GraphBuilder::new::<Team>("map")
            .node("plan", Decided)
            .node("write", Decided)
            .node("zoo", Decided)
            .edge(START, "plan")
            .edge("plan", "zoo")
            .route("plan", ["write"], |_: &Team| {
                let send = |topic: &str| Dispatch::new(name("write"), json!(topic));
                vec![send("bees"), send("ants")]
            }),
    );
    let (state, _) = Hand::start(&graph).run(|open| open - 1, |task| Ok(noting(task)));
    assert_eq!(notes(&state), ["plan", "zoo", "write(\"bees\")", "write(\"ants\")"]);
}

#[test]
fn a_used_up_bound_is_routed_and_a_reset_allows_new_visits() {
    let lead = Policies {
        on_finish: OnFinish { resets: vec![name("code")], ..OnFinish::default() },
        ..bounded(2, "fail")
    };
    let graph = compiled(
        GraphBuilder::new::<Team>("retry")
            .node("code", Decided.with_policies(bounded(3, "lead")))
            .node("test", Decided)
            .node("lead", Decided.with_policies(lead))
            .edge(START, "code")
            .edge("code", "test")
            .edge("test", "code")
            .edge("lead", "code"),
    );
    let mut vias = Vec::new();
    let mut hand = Hand::start(&graph);
    while hand.rest.is_none() {
        let task = hand.open.pop_front().unwrap();
        if task.node == name("lead") {
            vias.push(task.trigger.clone());
        }
        hand.finish(&task, noting(&task));
    }
    let ran = notes(hand.machine.state());
    let count = |node: &str| ran.iter().filter(|it| *it == node).count();
    assert_eq!((count("code"), count("test"), count("lead")), (9, 9, 2));
    assert_eq!(vias[0], Trigger::Exhausted { node: name("code"), max_visits: 3, cause: None });
    let (status, reason) = hand.rest.unwrap();
    assert_eq!(status, Status::Failed);
    assert_eq!(reason.unwrap(), "`lead` used up its 2 visits");
}

fn flaky() -> CompiledGraph {
    let retry = Backoff { attempts_max: Some(3), ..Backoff::default() };
    let catch = vec![
        Catch { kind: Some(ErrorKind::Timeout), to: Target::Node(name("late")) },
        Catch { kind: None, to: Target::Node(name("help")) },
    ];
    compiled(
        GraphBuilder::new::<Team>("flaky")
            .node(
                "call",
                Decided.with_policies(Policies {
                    attempts: Attempts { retry, ..Attempts::default() },
                    catch,
                    ..Policies::default()
                }),
            )
            .node("late", Decided)
            .node("help", Decided)
            .edge(START, "call")
            .edge("call", "end"),
    )
}

#[test]
fn transient_failures_are_retried_then_caught_by_kind() {
    let failing = |kind: ErrorKind, transient: bool, until: u32| {
        Hand::start(&flaky()).run(
            |_| 0,
            move |task: &Task| {
                if task.node == name("call") && task.attempt <= until {
                    Err(Failure { transient, ..Failure::new(kind, "no luck") })
                } else {
                    let told = task.trigger.error().unwrap_or_default();
                    let note = format!("{} {} {told}", task.node, task.attempt);
                    Ok(Update::default().write(channel("notes"), note).into())
                }
            },
        )
    };
    assert_eq!(notes(&failing(ErrorKind::Other, true, 2).0), ["call 3 "]);
    assert_eq!(notes(&failing(ErrorKind::Timeout, true, 3).0), ["late 1 no luck"]);
    assert_eq!(notes(&failing(ErrorKind::Panic, false, 1).0), ["help 1 no luck"]);

    // A failure that only the operator can fix stops the run, so that it can continue later.
    let (state, rest) = failing(ErrorKind::Credentials, false, 1);
    assert_eq!((notes(&state).len(), rest.0), (0, Status::Failed));
}

#[test]
fn only_the_named_kinds_and_outages_are_retried() {
    let retry = Backoff { attempts_max: Some(3), ..Backoff::default() };
    let retry = retry.on([ErrorKind::Timeout, ErrorKind::Sandbox]);
    let graph = compiled(
        GraphBuilder::new::<Team>("named")
            .node("call", Decided.backoff(retry))
            .edge(START, "call")
            .edge("call", "end"),
    );
    let attempts = |kind: ErrorKind, transient: bool, is_nested: bool| {
        let attempts = Cell::new(0);
        let failing = |task: &Task| {
            attempts.set(task.attempt);
            Err(Failure { transient, is_nested, ..Failure::new(kind, "no luck") })
        };
        let (_, (status, _)) = Hand::start(&graph).run(|_| 0, failing);
        (status, attempts.get())
    };
    for kind in ErrorKind::ALL {
        let is_named = matches!(kind, ErrorKind::Timeout | ErrorKind::Sandbox);
        let is_of_a_provider = matches!(kind, ErrorKind::RateLimit | ErrorKind::Provider);
        let permanent = if is_named { 3 } else { 1 };
        let transient = if is_of_a_provider { 6 } else { permanent };
        assert_eq!(attempts(kind, false, false), (Status::Failed, permanent), "{kind}");
        assert_eq!(attempts(kind, true, false), (Status::Failed, transient), "{kind}");
        // A nested run has used up the policy for outages.
        assert_eq!(attempts(kind, true, true), (Status::Failed, permanent), "{kind}");
    }
}

#[test]
fn a_failed_task_stops_the_run_after_its_siblings() {
    let graph = diamond();
    let mut hand = Hand::start(&graph);
    let plan = hand.open.pop_front().unwrap();
    hand.finish(&plan, noting(&plan));
    let qc = hand.open[0].clone();
    let ta = hand.open[1].clone();
    let ux = hand.open[2].clone();
    let failure = Failure::new(ErrorKind::Other, "boom");
    hand.tell(TaskEvent::Failed { task: ta.id, failure, attempt: attempt(1) });
    assert_eq!(hand.rest, None, "siblings are still at work");
    hand.finish(&ux, noting(&ux));
    hand.finish(&qc, noting(&qc));
    assert_eq!(hand.rest, Some((Status::Failed, Some("`ta` failed: boom".into()))));

    let checkpoint = Checkpoint {
        position: hand.saved.position.clone(),
        state: hand.machine.state().as_ref().clone(),
    };
    let limits = graph.definition().limits.clone();
    let settings = RunSettings { limits, ..RunSettings::default() };
    let (_, actions) =
        Machine::restore(graph, settings, run_id(), SavedStep::new(checkpoint, hand.records))
            .unwrap();
    let again: Vec<&NodeName> = actions
        .iter()
        .map(|action| match action {
            Action::Run(task) => &task.node,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(again, [&name("ta")]);
}

#[test]
fn a_question_suspends_the_run_until_its_answer() {
    let graph =
        compiled(GraphBuilder::new::<Team>("ask").node("review", Decided).edge(START, "review"));
    let mut hand = Hand::start(&graph);
    let task = hand.open.pop_front().unwrap();
    let question = Question::new("ship", "ship it?");
    hand.tell(TaskEvent::Asked { task: task.id, question, attempt: attempt(1) });
    assert_eq!(hand.rest.take().unwrap().0, Status::Paused);

    let answered = |key: &str| TaskEvent::Answered {
        task: task.id,
        key: key.into(),
        answer: json!(null),
        by: None,
        question_hash: None,
    };
    hand.tell(answered("sink"));
    assert!(hand.open.is_empty(), "an answer to another question was used");
    hand.tell(answered("ship"));
    let again = hand.open.pop_front().unwrap();
    assert_eq!(again.answers.get("ship"), Some(&json!(null)));
    hand.tell(answered("ship"));
    assert!(hand.open.is_empty(), "a stale answer was used");
    hand.finish(&again, noting(&again));
    assert_eq!(hand.rest, Some((Status::Done, None)));
}

/// Returns the error of a graph that did not save this run, which stopped in the middle of a step.
fn restored_by(hand: &Hand, graph: CompiledGraph) -> String {
    let position = hand.saved.position.clone();
    let checkpoint = Checkpoint { position, state: hand.machine.state().as_ref().clone() };
    let records = hand.records.clone();
    let restored = Machine::restore(
        graph,
        RunSettings::default(),
        run_id(),
        SavedStep::new(checkpoint, records),
    );
    restored.map(drop).expect_err("the graph has changed").to_string()
}

#[test]
fn saved_decisions_for_removed_nodes_are_refused() {
    let graph = |last: &str| {
        compiled(
            GraphBuilder::new::<Team>("changed")
                .node("a", Decided)
                .node("b", Decided)
                .node(last, Decided)
                .edge(START, "a")
                .edge(START, "b")
                .edge("a", last)
                .edge("b", "end"),
        )
    };
    let mut hand = Hand::start(&graph("report"));
    let a = hand.open.pop_front().unwrap();
    hand.finish(&a, noting(&a));
    let refused = restored_by(&hand, graph("summary"));
    assert_eq!(refused, "node `report` runs next, but the workflow has no such node");
}

#[test]
fn an_arrival_at_a_removed_join_is_refused() {
    let graph = |joins: &str| {
        compiled(
            GraphBuilder::new::<Team>("changed")
                .node("a", Decided)
                .node("b", Decided)
                .node("slow", Decided)
                .node(joins, Decided)
                .edge(START, "a")
                .edge(START, "b")
                .edge("b", "slow")
                .edge(["a", "slow"], joins),
        )
    };
    // In the open step the arrival is in a record, later in the position.
    let mut hand = Hand::start(&graph("sse"));
    for _ in 0..2 {
        let task = hand.open.pop_front().unwrap();
        hand.finish(&task, noting(&task));
        let refused = restored_by(&hand, graph("dev"));
        assert_eq!(refused, "`a` has arrived at `sse`, which does not wait for it");
    }
}

#[test]
fn a_limit_is_routed_once_or_stops_the_run() {
    let counting = |limits: Limits| {
        compiled(
            GraphBuilder::new::<Team>("count")
                .node("count", Decided.with_policies(bounded(50, "fail")))
                .node("flush", Decided)
                .edge(START, "count")
                .edge("count", "count")
                .edge("flush", "fail")
                .goto("count", ["flush"])
                .limits(limits),
        )
    };
    let limits = Limits { steps: 5, ..Limits::default() };
    let (state, rest) = Hand::start(&counting(limits)).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state).len(), 5);
    assert_eq!(rest, (Status::Limit, Some("the limit of 5 steps is reached".into())));

    let exhausted = Some(Target::Node(name("flush")));
    let limits = Limits { steps: 5, exhausted, ..Limits::default() };
    let (state, rest) = Hand::start(&counting(limits)).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state)[4..], ["count", "flush"]);
    let reason = "`flush` ended the run: the limit of 5 steps is reached";
    assert_eq!(rest, (Status::Failed, Some(reason.into())));
}

#[test]
fn a_limit_takes_back_one_visit_per_dropped_node() {
    let limits =
        Limits { steps: 3, exhausted: Some(Target::Node(name("flush"))), ..Limits::default() };
    let graph = compiled(
        GraphBuilder::new::<Team>("map")
            .node("split", Decided.with_policies(bounded(9, "fail")))
            .node("work", Decided)
            .node("flush", Decided)
            .edge(START, "split")
            .route("split", ["work"], |_: &Team| {
                let to = |input: u32| Dispatch::new(name("work"), json!(input));
                vec![to(1), to(2), to(3)]
            })
            .edge("work", "split")
            .edge("flush", "end")
            .limits(limits),
    );
    let visits = std::cell::RefCell::new(Visits::default());
    Hand::start(&graph).run(
        |_| 0,
        |task| {
            visits.replace(task.visits.as_ref().clone());
            Ok(noting(task))
        },
    );
    // The second round of `work` was due when the limit was reached.
    assert_eq!(visits.into_inner().get("work"), Some(1));
}

#[test]
fn a_reducer_refusal_fails_the_node_and_can_be_caught() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Book {
        #[serde(default)]
        #[schemars(extend("x-merge" = "merge"))]
        facts: BTreeMap<String, u32>,
        #[serde(default)]
        #[schemars(extend("x-merge" = "sum"))]
        total: u8,
    }
    let catch = vec![Catch { kind: None, to: Target::Node(name("repair")) }];
    let graph = compiled(
        GraphBuilder::new::<Book>("book")
            .node("write", Decided.with_policies(Policies { catch, ..Policies::default() }))
            .node("repair", Decided)
            .edge(START, "write"),
    );
    for (field, value) in
        [("facts", json!([1])), ("facts", json!({"a": "b"})), ("total", json!(200))]
    {
        let (state, (status, reason)) = Hand::start(&graph).run(
            |_| 0,
            |task| {
                let update = Update::default();
                Ok(match task.node.as_str() {
                    // Two writes, because no single write of a sum is too large.
                    "write" => update
                        .write(channel(field), value.clone())
                        .write(channel(field), value.clone())
                        .into(),
                    _ => update.write(channel("facts"), json!({"repaired": 1})).into(),
                })
            },
        );
        assert_eq!((status, reason), (Status::Done, None), "{field}: {value}");
        assert_eq!(state.get("facts"), Some(&json!({"repaired": 1})), "{field}: {value}");
    }
}

#[test]
fn a_refused_commit_keeps_the_usage_of_its_step() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Sum {
        #[serde(default)]
        #[schemars(extend("x-merge" = "sum"))]
        total: u8,
    }
    let graph = compiled(
        GraphBuilder::new::<Sum>("sum")
            .node("left", Decided)
            .node("right", Decided)
            .edge(START, "left")
            .edge(START, "right"),
    );
    let mut hand = Hand::start(&graph);
    while let Some(task) = hand.open.pop_front() {
        let tokens = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
        let usage = Usage { tokens, cost_usd: None };
        let attempt = AttemptStats { ms: 5, usage, ..attempt(1) };
        // Each update fits, but not both.
        let command = Update::default().write(channel("total"), 200).into();
        hand.tell(TaskEvent::Finished { task: task.id, command, attempt });
    }
    let (status, reason) = hand.rest.unwrap();
    assert_eq!(status, Status::Failed, "{reason:?}");
    let position = hand.machine.position();
    let committed = (position.used.usage.total_tokens(), position.used.elapsed_ms);
    assert_eq!((hand.machine.usage().total_tokens(), committed), (20, (0, 0)));
}

#[test]
fn a_route_reads_only_the_writes_of_its_own_task() {
    #[derive(Deserialize, JsonSchema)]
    struct Ready {
        ready: Option<bool>,
    }
    let choose = |it: &Ready| if it.ready == Some(true) { "yes" } else { "no" };
    let graph = compiled(
        GraphBuilder::new::<Team>("own")
            .node("writer", Decided)
            .node("sibling", Decided)
            .node("yes", Decided)
            .node("no", Decided)
            .edge(START, "writer")
            .edge(START, "sibling")
            .route("writer", ["yes", "no"], choose)
            .route("sibling", ["yes", "no"], choose),
    );
    let (state, _) = Hand::start(&graph).run(
        |_| 0,
        |task| {
            Ok(match task.node.as_str() {
                "writer" => Update::default().write(channel("ready"), true).into(),
                "sibling" => Command::default(),
                _ => noting(task),
            })
        },
    );
    assert_eq!(notes(&state), ["no", "yes"]);
}

#[test]
fn an_entry_node_named_twice_runs_once() {
    let graph = compiled(
        GraphBuilder::new::<Team>("twice")
            .node("start", Decided)
            .edge(START, "start")
            .edge(START, "start"),
    );
    let (state, _) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state), ["start"]);
}

#[test]
fn a_limit_drops_waiting_joins_as_well() {
    let limits =
        Limits { steps: 1, exhausted: Some(Target::Node(name("flush"))), ..Limits::default() };
    let graph = compiled(
        GraphBuilder::new::<Team>("limit")
            .node("qc", Decided)
            .node("ta", Decided)
            .node("check", Decided)
            .node("sse", Decided)
            .node("flush", Decided)
            .edge(START, "qc")
            .edge(START, "ta")
            .edge("ta", "check")
            .edge(["qc", "check"], "sse")
            .limits(limits),
    );
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state), ["qc", "ta", "flush"]);
    let reason = Some("the limit of 1 step is reached".to_owned());
    assert_eq!(rest, (Status::Done, reason), "`sse` waits for what will never come");
}

#[test]
fn several_dispatches_of_a_node_arrive_at_a_join_once() {
    let graph = compiled(
        GraphBuilder::new::<Team>("rounds")
            .node(
                "plan",
                Decided.with_policies(Bounds {
                    exhausted: Some(Target::End),
                    ..bounded(2, "fail").bounds
                }),
            )
            .node("lint", Decided)
            .node("write", Decided)
            .node("gather", Decided)
            .edge(START, "plan")
            .edge("plan", "lint")
            .route("plan", ["write"], |_: &Team| {
                let send = |it: u32| Dispatch::new(name("write"), json!(it));
                (0..3).map(send).collect::<Vec<_>>()
            })
            .edge(["lint", "write"], "gather")
            .edge("gather", "plan"),
    );
    let mut hand = Hand::start(&graph);
    while hand.rest.is_none() {
        let task = hand.open.pop_front().unwrap();
        hand.finish(&task, noting(&task));
        let left = hand.machine.position().joins.values().flatten().count();
        assert_eq!(left, 0, "an arrival of this round would count for the next");
    }
    assert_eq!(hand.rest.unwrap(), (Status::Done, None));
    assert_eq!(notes(hand.machine.state()).iter().filter(|it| *it == "gather").count(), 2);
}

#[test]
fn a_join_that_can_never_complete_fails_the_run() {
    // The engine cannot check what a node chooses in Rust. `compile` refuses any other path that bypasses the
    // join.
    let graph = compiled(
        GraphBuilder::new::<Team>("starved")
            .node("qc", Decided)
            .node("ta", Decided)
            .node("sse", Decided)
            .edge(START, "qc")
            .edge(START, "ta")
            .goto("ta", ["end"])
            .edge(["qc", "ta"], "sse"),
    );
    let (state, (status, reason)) = Hand::start(&graph).run(
        |_| 0,
        |task| match task.node.as_str() {
            "ta" => Ok(Command { goto: Goto::Instead(Vec::new()), ..Command::default() }),
            _ => Ok(noting(task)),
        },
    );
    assert_eq!((notes(&state), status), (vec!["qc".to_owned()], Status::Failed));
    assert_eq!(reason.unwrap(), "`sse` waits for `ta`, and nothing is left to run");
}

#[test]
fn an_invalid_write_fails_its_node() {
    let graph = compiled(GraphBuilder::new::<Team>("bad").node("bad", Decided).edge(START, "bad"));
    let (_, (status, reason)) = Hand::start(&graph)
        .run(|_| 0, |_| Ok(Update::default().write(channel("round"), "three").into()));
    assert_eq!(status, Status::Failed);
    let reason = reason.unwrap();
    assert!(reason.starts_with("`bad` failed: the value does not fit `round`"), "{reason}");
}

#[test]
fn tasks_dropped_by_a_limit_do_not_count_as_visits() {
    let exhausted = Some(Target::Node(name("flush")));
    let graph = compiled(
        GraphBuilder::new::<Team>("spread")
            .node("work", Decided.with_policies(bounded(9, "fail")))
            .node("flush", Decided)
            .edge(START, "work")
            .route("work", ["work", "end"], |_: &Team| {
                vec![Dispatch::new(name("work"), json!(1)); 2]
            })
            .edge("flush", "fail")
            .limits(Limits { steps: 3, exhausted, ..Limits::default() }),
    );
    let mut hand = Hand::start(&graph);
    while let Some(task) = hand.open.pop_front() {
        hand.finish(&task, noting(&task));
    }
    assert_eq!(hand.machine.position().visits[&name("work")], 3);
}

#[test]
fn only_edges_arrive_at_a_join() {
    let graph = compiled(
        GraphBuilder::new::<Team>("early")
            .node("a", Decided)
            .node("b", Decided)
            .node("both", Decided)
            .edge(START, "a")
            .edge(START, "b")
            .edge(["a", "b"], "both")
            .goto("a", ["both"]),
    );
    let twice = Command {
        update: Update::default(),
        goto: Goto::Also(vec![Transition::Join(name("both"))]),
    };
    let (_, (status, reason)) = Hand::start(&graph).run(|_| 0, |_| Ok(twice.clone()));
    let expected = "`a` failed: `a` chose to go to `both`, which is not declared with `goto`";
    assert_eq!((status, reason.as_deref()), (Status::Failed, Some(expected)));
}

/// A route that declares fewer targets than it chooses.
#[derive(Debug)]
struct Sly {
    spread: Spread,
    ways: Vec<RouteTarget>,
    takes: Vec<Transition>,
}

impl Route for Sly {
    fn targets(&self) -> &[RouteTarget] {
        &self.ways
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(&[])
    }

    fn spread(&self) -> Spread {
        self.spread
    }

    fn decide(&self, _: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        Ok(self.takes.clone())
    }
}

#[test]
fn a_route_cannot_choose_undeclared_targets() {
    let (a, b) =
        (|| Transition::To(Target::Node(name("a"))), || Transition::To(Target::Node(name("b"))));
    let item = || Transition::Dispatch(Dispatch::new(name("a"), json!(1)));
    let ends = |spread, takes: &[Transition]| {
        let mut made = GraphBuilder::new::<Team>("sly")
            .node("start", Decided)
            .node("a", Decided)
            .node("b", Decided)
            .node("c", Decided)
            .edge(START, "start")
            .edge(START, "c")
            .build();
        let way = |to: &str| RouteTarget { to: Target::Node(name(to)), label: None };
        let route = Sly { spread, ways: vec![way("a"), way("b")], takes: takes.to_vec() };
        let from = name("start");
        made.graph.edges.push(Edge::Route { from, route: Arc::new(route), span: None });
        let graph = compile(made).unwrap();
        Hand::start(&graph).run(|_| 0, |task| Ok(noting(task))).1
    };
    let done = (Status::Done, None);
    assert_eq!(ends(Spread::One, &[b()]), done);
    assert_eq!(ends(Spread::Several, &[a(), b()]), done);
    assert_eq!(ends(Spread::Items, &[item(), item(), b()]), done);
    let c = Transition::To(Target::Node(name("c")));
    let undeclared = |it: &str| format!("the route chose `{it}`, which it does not declare");
    let beyond = |it: &str, spread: Spread| {
        format!("the choice of `{it}` is beyond the spread of the route, `{spread:?}`")
    };
    for (spread, takes, problem) in [
        (Spread::One, vec![a(), b()], beyond("b", Spread::One)),
        (Spread::One, vec![item()], beyond("a", Spread::One)),
        (Spread::Several, vec![b(), item()], beyond("a", Spread::Several)),
        (Spread::Items, vec![c], undeclared("c")),
        (Spread::Items, vec![Transition::Join(name("b"))], undeclared("b")),
    ] {
        let (status, reason) = ends(spread, &takes);
        let expected = format!("`start` finished, but its route failed: {problem}");
        assert_eq!((status, reason), (Status::Failed, Some(expected)));
    }
}

proptest! {
    /// A loop with fan-out, retries and joins ends in one state, independent of the order of results.
    #[test]
    fn the_order_of_results_makes_no_difference(choices in prop::collection::vec(any::<usize>(), 64)) {
        let retry = Backoff { attempts_max: Some(3), ..Backoff::default() };
        let graph = compiled(
            GraphBuilder::new::<Team>("mesh")
                .node("start", Decided.with_policies(bounded(3, "done")))
                .node("a", Decided.backoff(retry))
                .node("b", Decided)
                .node("c", Decided)
                .node("done", Decided)
                .edge(START, "start")
                .edge("start", "a")
                .edge("start", "b")
                .edge("start", "c")
                .edge(["a", "b", "c"], "start")
                .edge("done", "end"),
        );
        let node = |task: &Task| {
            if task.node == name("a") && task.attempt == 1 {
                Err(Failure { transient: true, ..Failure::new(ErrorKind::Other, "again") })
            } else {
                Ok(noting(task))
            }
        };
        let (expected, _) = Hand::start(&graph).run(|_| 0, node);
        let mut at = 0;
        let pick = |open: usize| { at += 1; choices[at % choices.len()] % open };
        let (state, _) = Hand::start(&graph).run(pick, node);
        prop_assert_eq!(state, expected);
    }
}
