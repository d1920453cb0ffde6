//! The limits of one node, over all of its visits.

use std::time::Duration;

use graphrun::{
    checkpoint::{Checkpoint, InboxMessage, Message, Position},
    compile::CompiledGraph,
    engine::machine::{AttemptStats, Machine, RunSettings, TaskEvent},
    event::{Status, Usage},
    graph::{
        Attempts, Backoff, Bounds, ErrorKind, GraphBuilder, IntoNode, Limits, NodeLimits, Policies,
        START, Target, Trigger,
    },
    models::TokenUsage,
    state::Update,
};
use serde_json::{Value, json};

use super::{Decided, Hand, Team, attempt, channel, compiled, name, noting, run_id};

fn looped(limits: NodeLimits, exhausted: Target) -> Hand {
    let mends = exhausted.node().is_some();
    let policies = Policies::from(Bounds {
        max_visits: Some(10),
        limits: Some(limits),
        exhausted: Some(exhausted),
        ..Bounds::default()
    });
    let graph = GraphBuilder::new::<Team>("w")
        .node("work", Decided.with_policies(policies))
        .node("check", Decided)
        .edge(START, "work")
        .edge("work", "check")
        .edge("check", "work");
    let graph = if mends { graph.node("mend", Decided).edge("mend", "end") } else { graph };
    Hand::start(&compiled(graph))
}

/// Runs all open tasks until none is left; each task of `work` uses this many tokens and milliseconds.
fn run(hand: &mut Hand, tokens: u64, ms: u64) -> Vec<(String, Trigger)> {
    let mut ran = Vec::new();
    while let Some(task) = hand.open.pop_front() {
        ran.push((task.node.to_string(), task.trigger.clone()));
        let tokens = TokenUsage { input_tokens: tokens, calls: 1, ..TokenUsage::default() };
        let usage = Usage { tokens, cost_usd: Some(0.25) };
        let attempt = match task.node.as_str() {
            "work" | "flush" => AttemptStats { ms, usage, ..attempt(1) },
            _ => attempt(1),
        };
        let command = super::noting(&task);
        hand.tell(TaskEvent::Finished { task: task.id, command, attempt });
    }
    ran
}

fn nodes(ran: &[(String, Trigger)]) -> Vec<&str> {
    ran.iter().map(|(node, _)| node.as_str()).collect()
}

#[test]
fn a_node_without_tokens_leads_to_its_exhausted_target() {
    let limits = NodeLimits { tokens: Some(250), ..NodeLimits::default() };
    let mut hand = looped(limits, Target::Node(name("mend")));
    let ran = run(&mut hand, 100, 0);
    // After the third visit, 300 of 250 tokens are used.
    assert_eq!(nodes(&ran), ["work", "check", "work", "check", "work", "check", "mend"]);
    let error = "`work` has used 300 of its 250 tokens".to_owned();
    assert_eq!(ran[6].1, Trigger::Limit { error });
    assert_eq!(hand.rest.as_ref().unwrap().0, Status::Done);
}

#[test]
fn each_limit_of_a_node_counts() {
    let calls = NodeLimits { calls: Some(2), ..NodeLimits::default() };
    let usd = NodeLimits { usd: Some(0.5), ..NodeLimits::default() };
    let time = NodeLimits { time: Some(Duration::from_secs(2)), ..NodeLimits::default() };
    for (limits, expected) in [
        (calls, "`work` has made 2 of its 2 model calls"),
        (usd, "`work` has used 0.50 of its 0.50 USD"),
        (time, "`work` has used 2s of its 2s"),
    ] {
        let mut hand = looped(limits, Target::Fail);
        let ran = run(&mut hand, 1, 1_000);
        assert_eq!(nodes(&ran), ["work", "check", "work", "check"]);
        let (status, reason) = hand.rest.clone().unwrap();
        assert_eq!((status, reason.as_deref()), (Status::Failed, Some(expected)));
    }
}

#[test]
fn usage_per_node_survives_a_restart() {
    let limits = NodeLimits { tokens: Some(250), ..NodeLimits::default() };
    let mut hand = looped(limits, Target::Node(name("mend")));
    let first = hand.open.pop_front().unwrap();
    let tokens = TokenUsage { input_tokens: 300, calls: 1, ..TokenUsage::default() };
    let attempt = AttemptStats { usage: Usage { tokens, cost_usd: None }, ..super::attempt(1) };
    hand.tell(TaskEvent::Finished { task: first.id, command: super::noting(&first), attempt });

    let saved = serde_json::to_value(hand.machine.position()).unwrap();
    let graph = hand.machine.graph().clone();
    let goes_on = |saved: Value| {
        let position: Position = serde_json::from_value(saved).unwrap();
        let state = graph.schema().empty();
        let checkpoint = Checkpoint { position, state };
        let (machine, actions) =
            Machine::restore(graph.clone(), RunSettings::default(), run_id(), checkpoint.into())
                .unwrap();
        let mut hand = Hand { machine, ..looped(NodeLimits::default(), Target::Fail) };
        hand.open.clear();
        hand.perform(actions);
        nodes(&run(&mut hand, 300, 0)).join(" ")
    };
    assert_eq!(goes_on(saved), "check mend");
}

/// A run that a limit of three steps has routed to `flush`, which then loops for twenty visits.
fn flushing() -> Hand {
    let exhausted = Some(Target::Node(name("flush")));
    let limits = Limits { steps: 3, tokens: Some(1_000), exhausted, ..Limits::default() };
    let bound = |max| {
        Policies::from(Bounds {
            max_visits: Some(max),
            exhausted: Some(Target::End),
            ..Bounds::default()
        })
    };
    let graph = GraphBuilder::new::<Team>("flushing")
        .node("work", Decided.with_policies(bound(9)))
        .node("flush", Decided.with_policies(bound(20)))
        .edge(START, "work")
        .edge("work", "work")
        .edge("flush", "flush")
        .limits(limits);
    Hand::start(&compiled(graph))
}

/// Resumes a run with changed limits until it stops.
fn go_on(hand: &Hand, change: impl FnOnce(&mut Limits)) -> (u64, Status, Option<String>) {
    let graph = hand.machine.graph().clone();
    let mut limits = graph.definition().limits.clone();
    change(&mut limits);
    let saved = serde_json::to_value(hand.machine.position()).unwrap();
    let position: Position = serde_json::from_value(saved).unwrap();
    let checkpoint = Checkpoint { position, state: hand.machine.state().as_ref().clone() };
    let settings = RunSettings { limits, ..RunSettings::default() };
    let (machine, actions) =
        Machine::restore(graph, settings, run_id(), checkpoint.into()).unwrap();
    let mut hand = Hand { machine, ..flushing() };
    hand.open.clear();
    hand.perform(actions);
    run(&mut hand, 100, 0);
    let (status, reason) = hand.rest.unwrap();
    (hand.machine.position().step.0, status, reason)
}

#[test]
fn replaced_limits_apply_again() {
    let mut hand = flushing();
    while hand.machine.position().step.0 < 6 {
        let task = hand.open.pop_front().unwrap();
        hand.finish(&task, super::noting(&task));
    }
    // Neither the limit that led here nor the other limits stop the tasks after `flush`.
    let routed = Some("the limit of 3 steps is reached".to_owned());
    assert_eq!(go_on(&hand, |_| ()), (23, Status::Done, routed));
    // A higher limit gives the run more, and then stops it: a limit is routed once.
    let steps = "the limit of 10 steps is reached".to_owned();
    assert_eq!(go_on(&hand, |it| it.steps = 10), (10, Status::Limit, Some(steps.clone())));
    let time = |it: &mut Limits| it.time = Some(Duration::from_nanos(1));
    let (at, status, _) = go_on(&hand, time);
    assert_eq!((at, status), (23, Status::Done), "no time has passed");
    let tokens = "the limit of 500 tokens is reached: 500 are used".to_owned();
    let stopped = (11, Status::Limit, Some(tokens));
    assert_eq!(go_on(&hand, |it| it.tokens = Some(500)), stopped);
}

/// A step of messages counts as any other one, so the limit may be reached between it and the next node.
#[test]
fn a_step_of_messages_at_the_limit_leads_to_its_target() {
    let exhausted = Some(Target::Node(name("flush")));
    let limits = Limits { steps: 2, exhausted, ..Limits::default() };
    let graph = GraphBuilder::new::<Team>("messages")
        .node("plan", Decided)
        .node("work", Decided)
        .node("flush", Decided)
        .edge(START, "plan")
        .edge("plan", "work")
        .edge("work", "end")
        .edge("flush", "end")
        .inbox("notes")
        .limits(limits);
    let mut hand = Hand::start(&compiled(graph));
    let message = Message::new(channel("notes"), json!("a note"), None);
    hand.machine.queue_messages(vec![InboxMessage { number: 1, message }]);
    let ran = run(&mut hand, 0, 0);
    assert_eq!(nodes(&ran), ["plan", "flush"]);
    let reason = Some("the limit of 2 steps is reached".to_owned());
    assert_eq!(hand.rest, Some((Status::Done, reason)));
}

/// A migration may carry messages that no turn has read.
#[test]
fn messages_from_before_a_migration_reach_the_next_turn() {
    let graph = GraphBuilder::new::<Team>("messages")
        .node("plan", Decided)
        .node("work", Decided)
        .edge(START, "plan")
        .edge("plan", "work")
        .edge("work", "end")
        .inbox("notes");
    let graph = compiled(graph);
    let mut hand = Hand::start(&graph);
    run(&mut hand, 0, 0);
    let message = Message::new(channel("notes"), json!("a note"), None);
    let mut position = hand.saved.position.clone();
    position.people.last_message = 1;
    position.people.pending_messages = vec![InboxMessage { number: 1, message }];
    let ended = Checkpoint { position, state: hand.machine.state().as_ref().clone() };
    let settings = RunSettings::default();
    let turn = Machine::turn(graph, settings, run_id(), ended, &Update::default()).unwrap();
    hand.machine = turn.machine;
    hand.perform(turn.actions);
    assert_eq!(nodes(&run(&mut hand, 0, 0)), ["plan", "work"]);
    let notes = hand.machine.state().get("notes").unwrap().clone();
    assert_eq!(notes, json!(["plan", "work", "plan", "a note", "work"]));
}

/// The nodes `a` and `b` side by side, with `flush` for a reached limit.
fn beside(limits: Limits) -> CompiledGraph {
    let exhausted = Some(Target::Node(name("flush")));
    compiled(
        GraphBuilder::new::<Team>("beside")
            .node("a", Decided)
            .node("b", Decided)
            .node("after", Decided)
            .node("flush", Decided)
            .edge(START, "a")
            .edge(START, "b")
            .edge("a", "after")
            .edge("b", "end")
            .edge("after", "end")
            .edge("flush", "end")
            .limits(Limits { exhausted, ..limits }),
    )
}

/// A driver that ends a step early knows that a limit is reached, also if the times of the tasks do not add up to it.
#[test]
fn a_step_that_ends_early_leads_to_the_target_of_the_limit() {
    let graph = beside(Limits { time: Some(Duration::from_secs(5)), ..Limits::default() });
    let mut hand = Hand::start(&graph);
    let first = hand.open.pop_front().unwrap();
    hand.finish(&first, super::noting(&first));
    let second = hand.open.pop_front().unwrap();
    hand.tell(TaskEvent::Aborted {
        task: second.id,
        attempt: AttemptStats { ms: 4_500, ..attempt(1) },
    });
    let actions = hand.machine.end_step_at_limit(Usage::default());
    hand.perform(actions);
    let ran = run(&mut hand, 0, 0);
    assert_eq!(nodes(&ran), ["flush"], "no other node runs beside it");
    let reason = Some("the limit of 5s is reached: a task of the run had no time left".to_owned());
    assert_eq!(hand.rest, Some((Status::Done, reason)));
}

/// The limit may be lower than before, or a call of the step may have reached it before a crash.
#[test]
fn a_limit_that_is_reached_before_a_resumed_step_leads_to_its_target() {
    let graph = beside(Limits::default());
    let mut hand = Hand::start(&graph);
    for _ in 0..2 {
        let task = hand.open.pop_front().unwrap();
        hand.finish(&task, super::noting(&task));
    }
    let Hand { saved, .. } = &hand;
    let checkpoint = Checkpoint {
        position: saved.position.clone(),
        state: hand.machine.state().as_ref().clone(),
    };
    let limits = Limits { steps: 1, ..graph.definition().limits.clone() };
    let settings = RunSettings { limits, ..RunSettings::default() };
    let (machine, actions) =
        Machine::restore(graph.clone(), settings, run_id(), checkpoint.into()).unwrap();
    let mut hand = Hand { machine, ..Hand::start(&graph) };
    hand.open.clear();
    hand.perform(actions);
    let ran = run(&mut hand, 0, 0);
    assert_eq!(nodes(&ran), ["flush"]);
    let reason = Some("the limit of 1 step is reached".to_owned());
    assert_eq!(hand.rest, Some((Status::Done, reason)));
}

/// The update of a node is refused, so its attempt has failed as any other one.
#[test]
fn a_refused_update_is_tried_again() {
    let retry = Backoff { attempts_max: Some(2), ..Backoff::default() }.on([ErrorKind::Other]);
    let policies =
        Policies { attempts: Attempts { retry, ..Attempts::default() }, ..Policies::default() };
    let graph = GraphBuilder::new::<Team>("refused")
        .node("work", Decided.with_policies(policies))
        .edge(START, "work")
        .edge("work", "end");
    let mut hand = Hand::start(&compiled(graph));
    let task = hand.open.pop_front().unwrap();
    let command = Update::default().write(channel("round"), "not a number").into();
    hand.tell(TaskEvent::Finished { task: task.id, command, attempt: attempt(1) });
    assert_eq!(hand.rest, None);
    let again = hand.open.pop_front().unwrap();
    assert_eq!(again.attempt, 2);
    hand.finish(&again, noting(&again));
    assert_eq!(hand.rest.unwrap().0, Status::Done);
}
