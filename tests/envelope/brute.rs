//! The worst case of small random graphs beside the true one, which is found by trying every run.

use graphrun::{
    compile::{CompiledGraph, Envelope},
    engine::superstep::{Attempt, Event, Task},
    event::Usage,
    graph::{Command, ErrorKind, Failure},
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::{
    Taken,
    random::{Dice, small},
    run_by,
};

/// A graph with more runs than this is left out.
const RUNS_MAX: usize = 400;
const GRAPHS: usize = 160;

/// Every way in which a task can end: it succeeds, or it fails in a way that its node catches.
fn outcome(graph: &CompiledGraph, task: &Task, dice: &Dice) -> Event {
    let attempt = Attempt {
        number: task.attempt,
        ms: 0,
        usage: Usage::default(),
        ended: jiff::Timestamp::UNIX_EPOCH,
    };
    let caught = &graph.node(&task.node).unwrap().policies.catch;
    let chosen = if caught.is_empty() { 0 } else { dice.below(caught.len() + 1) };
    match chosen.checked_sub(1) {
        None => Event::Finished { task: task.id, command: Command::default(), attempt },
        Some(at) => {
            let kind = caught[at].kind.unwrap_or(ErrorKind::Other);
            Event::Failed { task: task.id, failure: Failure::new(kind, "no luck"), attempt }
        }
    }
}

/// The most steps, and the most tasks together, of all runs; `None` if there are too many runs.
fn truth(graph: &CompiledGraph, envelope: &Envelope, dice: &Dice) -> Option<(u64, u64)> {
    let (mut steps, mut tasks) = (0, 0);
    dice.begin_every();
    for _ in 0..RUNS_MAX {
        let taken: Taken = run_by(graph, |_| 0, |task| outcome(graph, task, dice));
        taken.fits(envelope).unwrap();
        steps = steps.max(taken.steps);
        tasks = tasks.max(taken.visits.values().sum());
        if !dice.next() {
            return Some((steps, tasks));
        }
    }
    None
}

#[test]
fn the_worst_case_is_near_the_true_one() {
    let mut runner = TestRunner::deterministic();
    let dice = Dice::default();
    let (mut graphs, mut steps, mut visits) = (0_u32, 0.0, 0.0);
    for _ in 0..GRAPHS {
        let graph = small().new_tree(&mut runner).unwrap().current().compiled(&dice);
        let envelope = Envelope::of(&graph);
        let Some((most_steps, most_tasks)) = truth(&graph, &envelope, &dice) else { continue };
        let total = envelope.most(|_, it| Some(it.visits_max));
        assert!(total >= most_tasks && envelope.steps_max >= most_steps);
        graphs += 1;
        let ratio = |bound: u64, truth: u64| bound as f64 / truth as f64;
        steps += ratio(envelope.steps_max, most_steps);
        visits += ratio(total, most_tasks);
    }
    let (steps, visits) = (steps / f64::from(graphs), visits / f64::from(graphs));
    println!("{graphs} graphs: {steps:.3} times the true steps, {visits:.3} times the true visits");
    assert!(graphs >= 80, "only {graphs} graphs were tried in every way");
    assert!(steps <= 1.3 && visits <= 1.3, "{steps:.3} times the steps, {visits:.3} the visits");
}
