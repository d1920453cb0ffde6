//! Nodes that are skipped, deferred nodes, nodes that wait for each other, and used workflows that are left
//! before they finish.

use graphrun::{
    checkpoint::Outcome,
    graph::{Condition, Defer, Schedule, condition_fn},
};

use super::*;

fn deferred() -> Policies {
    Policies::from(Schedule { defer: Some(Defer::Siblings), ..Schedule::default() })
}

fn end_of(scope: &str) -> Policies {
    Policies::from(Schedule { defer: Some(Defer::Scope(name(scope))), ..Schedule::default() })
}

fn path(path: &str) -> NodeName {
    NodeName::parse_path(path).unwrap()
}

fn to_end(kind: ErrorKind) -> Failure {
    Failure::new(kind, "broken")
}

#[test]
fn a_node_with_a_false_condition_is_skipped() {
    let graph = compiled(
        GraphBuilder::new::<Team>("skip")
            .node("plan", Decided)
            .node("research", Decided)
            .node("write", Decided)
            .edge(START, "plan")
            .when("research", "ready == false", |team: &Team| team.ready == Some(false))
            .edge("plan", "research")
            .edge("research", "write"),
    );
    let run = |ready: bool| {
        let write = move |task: &Task| {
            let mut command = noting(task);
            if task.node.as_str() == "plan" {
                command.update = command.update.write(channel("ready"), json!(ready));
            }
            Ok(command)
        };
        let hand = Hand::start(&graph);
        let (state, rest) = hand.run(|_| 0, write);
        assert_eq!(rest, (Status::Done, None));
        notes(&state)
    };
    assert_eq!(run(false), ["plan", "research", "write"]);
    assert_eq!(run(true), ["plan", "write"]);
}

#[test]
fn a_skipped_node_arrives_at_joins() {
    let graph = compiled(
        GraphBuilder::new::<Team>("skip")
            .node("qc", Decided)
            .node("ta", Decided)
            .node("sse", Decided)
            .edge(START, "qc")
            .edge(START, "ta")
            .when("ta", "round > 0", |team: &Team| team.round > 0)
            .edge(["qc", "ta"], "sse"),
    );
    let mut hand = Hand::start(&graph);
    assert_eq!(hand.open.len(), 1, "only `qc` runs");
    let skipped: Vec<_> = hand.records.iter().map(|it| it.outcome.clone()).collect();
    let transitions = vec![Transition::Join(name("sse"))];
    assert_eq!(skipped, [Outcome::Skipped { condition: "round > 0".into(), transitions }]);

    let task = hand.open.pop_front().unwrap();
    hand.finish(&task, noting(&task));
    assert_eq!(hand.machine.position().frontier[0].node, name("sse"));
    assert_eq!(hand.machine.position().visits[&name("ta")], 1, "it was come to");
}

#[test]
fn a_step_with_only_skipped_tasks_is_committed() {
    let graph = compiled(
        GraphBuilder::new::<Team>("skip")
            .node("one", Decided)
            .node("two", Decided)
            .node("three", Decided)
            .edge(START, "one")
            .when("one", "never", |_: &Team| false)
            .when("two", "never", |_: &Team| false)
            .edge("one", "two")
            .edge("two", "three"),
    );
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!((notes(&state), rest), (vec!["three".to_owned()], (Status::Done, None)));
}

/// Such a loop ends within one event, so its steps must not be nested calls.
#[test]
fn a_long_loop_of_skipped_nodes_needs_no_stack() {
    let graph = compiled(
        GraphBuilder::new::<Team>("skip")
            .node("one", Decided.with_policies(bounded(100_000, "last")))
            .node("last", Decided)
            .edge(START, "one")
            .when("one", "never", |_: &Team| false)
            .edge("one", "one")
            .limits(Limits { steps: 200_000, ..Limits::default() }),
    );
    let hand = Hand::start(&graph);
    let open: Vec<&NodeName> = hand.open.iter().map(|it| &it.node).collect();
    assert_eq!((open, hand.saved.position.step.0), (vec![&name("last")], 100_000));
}

#[test]
fn a_restored_run_skips_the_same_tasks() {
    let graph = compiled(
        GraphBuilder::new::<Team>("skip")
            .node("qc", Decided)
            .node("ta", Decided)
            .edge(START, "qc")
            .edge(START, "ta")
            .when("ta", "never", |_: &Team| false),
    );
    let hand = Hand::start(&graph);
    let state = hand.machine.state().as_ref().clone();
    let checkpoint = || Checkpoint { position: hand.saved.position.clone(), state: state.clone() };
    for records in [Vec::new(), hand.records.clone()] {
        let settings = RunSettings::default();
        let (_, actions) = Machine::restore(
            graph.clone(),
            settings,
            run_id(),
            SavedStep::new(checkpoint(), records),
        )
        .unwrap();
        let run: Vec<_> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Run(task) => Some(task.node.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(run, ["qc"]);
    }
}

#[test]
fn a_condition_error_fails_its_node() {
    #[derive(Deserialize, JsonSchema)]
    struct Maybe {
        ready: Option<bool>,
    }
    /// Its schema does not show that the field must be written.
    #[derive(Deserialize, JsonSchema)]
    #[serde(try_from = "Maybe")]
    struct Missing {
        ready: bool,
    }
    impl TryFrom<Maybe> for Missing {
        type Error = &'static str;

        fn try_from(maybe: Maybe) -> Result<Self, &'static str> {
            Ok(Self { ready: maybe.ready.ok_or("it is unknown")? })
        }
    }
    let catch = vec![Catch { kind: None, to: Target::Node(name("mend")) }];
    let graph = compiled(
        GraphBuilder::new::<Team>("skip")
            .node("one", Decided.with_policies(Policies { catch, ..Policies::default() }))
            .node("mend", Decided)
            .edge(START, "one")
            .when("one", "ready", |it: &Missing| it.ready)
            .edge("one", "end"),
    );
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!((notes(&state), rest.0), (vec!["mend".to_owned()], Status::Done));
    let condition = condition_fn("ready", |it: &Missing| it.ready);
    assert_eq!((condition.text(), condition.reads()), ("ready", Some(&[channel("ready")][..])));
}

/// Like `defer=True` of `LangGraph`: `report` is reached in step 2 and runs once nothing else is left.
#[test]
fn a_deferred_node_runs_once_after_everything_else() {
    let graph = compiled(
        GraphBuilder::new::<Team>("defer")
            .node("plan", Decided)
            .node("quick", Decided)
            .node("slow1", Decided)
            .node("slow2", Decided)
            .node("report", Decided.with_policies(deferred()))
            .edge(START, "plan")
            .edge("plan", "quick")
            .edge("plan", "slow1")
            .edge("slow1", "slow2")
            .edge("quick", "report")
            .edge("slow2", "report")
            .edge("report", "end"),
    );
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state), ["plan", "quick", "slow1", "slow2", "report"]);
    assert_eq!(rest, (Status::Done, None));
}

#[test]
fn a_deferred_first_node_waits_for_the_others() {
    let graph = compiled(
        GraphBuilder::new::<Team>("defer")
            .node("count", Decided.with_policies(deferred()))
            .node("write", Decided)
            .node("again", Decided)
            .edge(START, "count")
            .edge(START, "write")
            .edge("write", "again")
            .edge("again", "count")
            .edge("count", "end"),
    );
    let hand = Hand::start(&graph);
    let saved = hand.saved.position.clone();
    assert_eq!(saved.deferred.keys().collect::<Vec<_>>(), [&name("count")], "it is saved");
    let (state, rest) = hand.run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state), ["write", "again", "count"]);
    assert_eq!(rest, (Status::Done, None));
}

#[test]
fn deferred_first_nodes_run_at_once_if_there_are_no_others() {
    let graph = compiled(
        GraphBuilder::new::<Team>("defer")
            .node("left", Decided.with_policies(deferred()))
            .node("right", Decided.with_policies(deferred()))
            .edge(START, "left")
            .edge(START, "right"),
    );
    let hand = Hand::start(&graph);
    assert_eq!(hand.open.len(), 2);
}

#[test]
fn deferred_nodes_are_saved_and_count_as_one_visit() {
    let graph = compiled(
        GraphBuilder::new::<Team>("defer")
            .node("a", Decided)
            .node("b", Decided)
            .node("report", Decided.with_policies(deferred()))
            .edge(START, "a")
            .edge("a", "report")
            .edge("a", "b")
            .edge("b", "report"),
    );
    let mut hand = Hand::start(&graph);
    let task = hand.open.pop_front().unwrap();
    hand.finish(&task, noting(&task));
    let position = hand.machine.position().clone();
    assert_eq!(position.deferred.keys().collect::<Vec<_>>(), [&name("report")]);
    assert_eq!(position.visits.get(&name("report")), None);
    assert_eq!(hand.saved.position, position, "a resumed run knows of it");

    let task = hand.open.pop_front().unwrap();
    hand.finish(&task, noting(&task));
    let position = hand.machine.position();
    assert!(position.deferred.is_empty());
    assert_eq!(position.visits[&name("report")], 1);
    let Trigger::Then { node } = &position.frontier[0].trigger else { panic!("an edge led to it") };
    assert_eq!(node, &name("a"), "the first way that led to it is the one it sees");
}

/// Dispatches do not wait, and must not use up the bound of a deferred node.
#[test]
fn dispatches_leave_one_visit_for_a_deferred_node() {
    for max_visits in [1, 2] {
        let late = Policies {
            bounds: Bounds {
                max_visits: Some(max_visits),
                exhausted: Some(Target::Node(name("late"))),
                ..Bounds::default()
            },
            ..deferred()
        };
        let graph = compiled(
            GraphBuilder::new::<Team>("defer")
                .node("plan", Decided)
                .node("send", Decided)
                .node("slow1", Decided)
                .node("slow2", Decided)
                .node("report", Decided.with_policies(late))
                .node("late", Decided.with_policies(deferred()))
                .edge(START, "plan")
                .edge("plan", "report")
                .edge("plan", "send")
                .edge("plan", "slow1")
                .edge("slow1", "slow2")
                .edge("slow2", "end")
                .dispatches("send", ["report"])
                .edge("report", "end")
                .edge("late", "end"),
        );
        let (state, rest) = Hand::start(&graph).run(
            |_| 0,
            |task| {
                let item = Transition::Dispatch(Dispatch::new(name("report"), json!(1)));
                let goto = match task.node.as_str() {
                    "send" => Goto::Instead(vec![item]),
                    _ => Goto::default(),
                };
                Ok(Command { goto, ..noting(task) })
            },
        );
        let first = if max_visits == 1 { "late" } else { "report(1)" };
        let mut ran = notes(&state);
        assert_eq!(ran.pop().as_deref(), Some("report"));
        ran.sort();
        let mut expected = [first, "plan", "send", "slow1", "slow2"];
        expected.sort_unstable();
        assert_eq!(ran, expected);
        assert_eq!(rest, (Status::Done, None));
    }
}

#[test]
fn a_limit_or_a_failure_drops_deferred_nodes() {
    let graph = compiled(
        GraphBuilder::new::<Team>("defer")
            .node("a", Decided)
            .node("b", Decided)
            .node("report", Decided.with_policies(deferred()))
            .edge(START, "a")
            .edge("a", "report")
            .edge("a", "b")
            .edge("b", "fail"),
    );
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!((notes(&state), rest.0), (vec!["a".to_owned(), "b".to_owned()], Status::Failed));
}

#[test]
fn a_route_decides_whether_its_node_arrives_at_a_join() {
    let graph = compiled(
        GraphBuilder::new::<Team>("join")
            .node("start", Decided)
            .node("draft", Decided.with_policies(bounded(2, "fail")))
            .node("facts", Decided)
            .node("merge", Decided)
            .edge(START, "start")
            .edge("start", "draft")
            .edge("start", "facts")
            .edge(["draft", "facts"], "merge")
            .route("draft", ["draft", "merge"], |team: &Team| {
                if team.notes.iter().filter(|it| *it == "draft").count() < 2 {
                    "draft"
                } else {
                    "merge"
                }
            }),
    );
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(notes(&state), ["start", "draft", "facts", "draft", "merge"]);
    assert_eq!(rest, (Status::Done, None));
}

/// `review` uses a workflow with two branches; `review.end` is reached when both are done.
fn used(inner: impl FnOnce(GraphBuilder) -> GraphBuilder) -> CompiledGraph {
    let catch = vec![Catch { kind: None, to: Target::Node(name("mend")) }];
    let caught = || Policies { catch: catch.clone(), ..Policies::default() };
    let builder = GraphBuilder::new::<Team>("use")
        .node("review", Decided)
        .node("review.lint", Decided.with_policies(caught()))
        .node("review.read", Decided.with_policies(caught()))
        .node("review.sum", Decided)
        .node("review.end", Decided.with_policies(end_of("review")))
        .node("publish", Decided)
        .node("mend", Decided)
        .edge(START, "review")
        .edge("review", "review.lint")
        .edge("review", "review.read")
        .edge("review.read", "review.sum")
        .edge("review.sum", "review.end")
        .edge("review.lint", "review.end")
        .edge("review.end", "publish");
    compiled(inner(builder))
}

#[test]
fn the_end_of_a_used_workflow_waits_only_for_its_nodes() {
    let graph = used(|graph| {
        graph
            .node("other1", Decided)
            .node("other2", Decided)
            .node("other3", Decided)
            .node("other4", Decided)
            .edge(START, "other1")
            .edge("other1", "other2")
            .edge("other2", "other3")
            .edge("other3", "other4")
    });
    let (state, rest) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    let steps = [
        &["other1", "review"][..],
        &["other2", "review.lint", "review.read"],
        &["other3", "review.sum"],
        &["other4", "review.end"],
        &["publish"],
    ];
    assert_eq!(notes(&state), steps.concat());
    assert_eq!(rest, (Status::Done, None));
}

#[test]
fn deferred_nodes_run_from_the_inner_workflow_outwards() {
    let graph = used(|graph| {
        graph
            .node("review.last", Decided.with_policies(deferred()))
            .node("report", Decided.with_policies(deferred()))
            .edge("review", "review.last")
            .edge("review", "report")
    });
    let (state, _) = Hand::start(&graph).run(|_| 0, |task| Ok(noting(task)));
    let order = [
        "review",
        "review.lint",
        "review.read",
        "review.sum",
        "review.last",
        "review.end",
        "publish",
        "report",
    ];
    assert_eq!(notes(&state), order);
}

#[test]
fn a_failure_that_leaves_a_used_workflow_drops_its_tasks() {
    let graph = used(|it| it);
    let (state, rest) = Hand::start(&graph).run(
        |_| 0,
        |task| match task.node.as_str() {
            "review.lint" => Err(to_end(ErrorKind::Other)),
            _ => Ok(noting(task)),
        },
    );
    assert_eq!(notes(&state), ["review", "review.read", "mend"], "`review.sum` was to follow");
    assert_eq!(rest, (Status::Done, None));
}

#[test]
fn abandoned_arrivals_and_deferred_nodes_are_dropped() {
    let graph = used(|graph| {
        graph
            .node("review.both", Decided)
            .node("review.slow", Decided)
            .edge("review", "review.slow")
            .edge(["review.read", "review.slow"], "review.both")
    });
    let mut hand = Hand::start(&graph);
    let mut failed = false;
    while let Some(task) = hand.open.pop_front() {
        if task.node == path("review.lint") {
            failed = true;
            let attempt = attempt(task.attempt);
            let failure = to_end(ErrorKind::Other);
            hand.tell(TaskEvent::Failed { task: task.id, failure, attempt });
        } else {
            hand.finish(&task, noting(&task));
        }
        if failed && hand.machine.position().step.0 == 2 {
            let position = hand.machine.position();
            assert!(position.joins.is_empty() && position.deferred.is_empty(), "{position:?}");
            assert_eq!(position.frontier.len(), 1);
        }
    }
    assert_eq!(hand.rest, Some((Status::Done, None)));
}
