//! Messages that a stopped or killed run takes in when it continues.

use graphrun::{
    checkpoint::{InboxMessage, Message},
    engine::machine::RunSettings,
    id::{Step, TaskId},
};

use super::*;

fn message(number: u64) -> InboxMessage {
    InboxMessage { number, message: Message::new(channel("notes"), json!("go"), None) }
}

/// Without a record, the tasks may have begun before the process was killed: a service that knows their keys must not
/// perform an effect twice.
#[test]
fn messages_after_a_kill_keep_the_names_of_the_tasks() {
    let graph = compiled(
        GraphBuilder::new::<Team>("kill")
            .node("left", Decided)
            .node("right", Decided)
            .node("sum", Decided)
            .edge(START, "left")
            .edge(START, "right")
            .edge(["left", "right"], "sum")
            .inbox("notes"),
    );
    let mut hand = Hand::start(&graph);
    for number in 1..=2 {
        let state = hand.machine.state().as_ref().clone();
        let checkpoint = Checkpoint { position: hand.saved.position.clone(), state };
        let saved = SavedStep { messages: vec![message(number)], ..checkpoint.into() };
        let restored = Machine::restore(graph.clone(), RunSettings::default(), run_id(), saved);
        let (machine, actions) = restored.unwrap();
        hand = Hand { machine, open: VecDeque::new(), ..hand };
        hand.perform(actions);
        let step = Step(number + 1);
        let of_task = |it: &Task| {
            let original = it.original.as_ref().map(|it| (it.node.to_string(), it.task));
            (it.id, original)
        };
        let named = |index, node: &str| {
            let original = TaskId { step: Step(1), index };
            (TaskId { step, index }, Some((node.to_owned(), original)))
        };
        let tasks: Vec<_> = hand.open.iter().map(of_task).collect();
        assert_eq!(tasks, [named(0, "left"), named(1, "right")], "after {number} messages");
    }
    while let Some(task) = hand.open.pop_front() {
        assert_eq!(task.original.is_some(), task.node != name("sum"), "only in that step");
        hand.finish(&task, noting(&task));
    }
    assert_eq!(notes(hand.machine.state()), ["go", "go", "left", "right", "sum"]);
}
