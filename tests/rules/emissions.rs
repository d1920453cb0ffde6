//! When a run reports that it has reached a node.

use graphrun::{
    checkpoint::{InboxMessage, Message},
    engine::machine::{Breakpoints, FirstStep, RunSettings},
    id::TaskId,
};

use super::*;

fn reported(verb: &str) -> Policies {
    Policies { emits: Some(verb.to_owned()), ..Policies::default() }
}

/// Returns the events that actions report: the task and the name of each.
fn emitted(actions: &[Action]) -> Vec<(TaskId, &str)> {
    let emitted = actions.iter().filter_map(|action| match action {
        Action::Emit { task, name, .. } => Some((*task, name.as_str())),
        _ => None,
    });
    emitted.collect()
}

/// Returns the names of these events, with the nodes that led to theirs.
fn named(actions: &[Action]) -> Vec<(String, Option<String>)> {
    let named = actions.iter().filter_map(|action| match action {
        Action::Emit { name, from, .. } => {
            Some((name.clone(), from.as_ref().map(ToString::to_string)))
        }
        _ => None,
    });
    named.collect()
}

fn finish(machine: &mut Machine, actions: &[Action]) -> Vec<Action> {
    let Some(Action::Run(task)) = actions.last() else { panic!("{actions:?}") };
    let command = Command::default();
    machine.apply(TaskEvent::Finished { task: task.id, command, attempt: attempt(1) })
}

fn message(number: u64, text: &str) -> InboxMessage {
    InboxMessage { number, message: Message::new(channel("notes"), json!(text), None) }
}

/// The commit has reported the nodes that run without the message.
#[test]
fn a_node_that_runs_by_a_late_message_is_reported_once() {
    let graph = compiled(
        GraphBuilder::new::<Team>("reports")
            .node("plan", Decided)
            .node("file", Decided.with_policies(reported("filed")))
            .node("write", Decided.with_policies(reported("handed")))
            .edge(START, "plan")
            .when("write", "a note came", |team: &Team| !team.notes.is_empty())
            .edge("plan", "file")
            .edge("plan", "write")
            .inbox("notes"),
    );
    let FirstStep { mut machine, actions, .. } =
        Machine::start(graph.clone(), RunSettings::default(), run_id(), Update::default()).unwrap();
    let actions = finish(&mut machine, &actions);
    assert_eq!(emitted(&actions).into_iter().map(|it| it.1).collect::<Vec<_>>(), ["filed"]);
    let commit = actions.iter().find_map(|action| match action {
        Action::Commit(commit) => Some(commit.position.clone()),
        _ => None,
    });
    let state = machine.state().as_ref().clone();
    let checkpoint = Checkpoint { position: commit.unwrap(), state };
    let saved = SavedStep { messages: vec![message(1, "go")], ..checkpoint.into() };
    let (_, actions) = Machine::restore(graph, RunSettings::default(), run_id(), saved).unwrap();
    assert_eq!(emitted(&actions).into_iter().map(|it| it.1).collect::<Vec<_>>(), ["handed"]);
}

#[test]
fn a_reached_node_is_reported_unless_it_is_skipped() {
    let graph = compiled(
        GraphBuilder::new::<Team>("reports")
            .node("plan", Decided.with_policies(reported("started")))
            .node("skipped", Decided.with_policies(reported("went")))
            .node("write", Decided.with_policies(reported("handed")))
            .edge(START, "plan")
            .when("skipped", "never", |_: &Team| false)
            .edge("plan", "skipped")
            .edge("plan", "write"),
    );
    let FirstStep { mut machine, actions, .. } =
        Machine::start(graph, RunSettings::default(), run_id(), Update::default()).unwrap();
    assert_eq!(named(&actions), [("started".to_owned(), None)]);
    let actions = finish(&mut machine, &actions);
    assert_eq!(named(&actions), [("handed".to_owned(), Some("plan".to_owned()))]);
}

/// A step of messages follows the commit, so the tasks of the nodes belong to a later step, and a condition may hold.
#[test]
fn a_node_is_reported_after_the_messages_before_it() {
    let graph = compiled(
        GraphBuilder::new::<Team>("reports")
            .node("plan", Decided)
            .node("write", Decided.with_policies(reported("handed")))
            .edge(START, "plan")
            .when("write", "a note came", |team: &Team| !team.notes.is_empty())
            .edge("plan", "write")
            .inbox("notes"),
    );
    let FirstStep { mut machine, actions, .. } =
        Machine::start(graph, RunSettings::default(), run_id(), Update::default()).unwrap();
    machine.queue_messages(vec![message(1, "go")]);
    let actions = finish(&mut machine, &actions);
    let Some(Action::Run(task)) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(emitted(&actions), [(task.id, "handed")]);
}

#[test]
fn a_node_before_a_breakpoint_is_reported_once() {
    let graph = compiled(
        GraphBuilder::new::<Team>("reports")
            .node("plan", Decided.with_policies(reported("started")))
            .node("write", Decided.with_policies(reported("handed")))
            .edge(START, "plan")
            .edge("plan", "write"),
    );
    let before = || [name("plan"), name("write")].into();
    let breakpoints = || Breakpoints { before: before(), ..Breakpoints::default() };
    let terms = || RunSettings { breakpoints: breakpoints(), ..RunSettings::default() };
    let FirstStep { commit, actions, .. } =
        Machine::start(graph.clone(), terms(), run_id(), Update::default()).unwrap();
    let is_paused = |actions: &[Action]| matches!(actions.last(), Some(Action::Stop(_)));
    assert!(is_paused(&actions), "{actions:?}");
    assert_eq!(named(&actions), [("started".to_owned(), None)]);

    let checkpoint = Checkpoint { position: commit.position, state: graph.schema().empty() };
    let (mut machine, actions) =
        Machine::restore(graph, terms(), run_id(), checkpoint.into()).unwrap();
    assert_eq!(named(&actions), []);
    let actions = finish(&mut machine, &actions);
    assert!(is_paused(&actions), "{actions:?}");
    assert_eq!(named(&actions), [("handed".to_owned(), Some("plan".to_owned()))]);
}
