//! The rules without a driver: events of tasks are delivered in any order, again much later, or never; then
//! another process restores the saved data.

use graphrun::{
    checkpoint::{Checkpoint, Commit, RunStatus, TaskRecord},
    compile::CompiledGraph,
    engine::machine::{
        Action, AttemptStats, FirstStep, Machine, RunSettings, SavedStep, Task, TaskEvent,
    },
    event::{Status, Usage},
    graph::{Command, ErrorKind, Failure, Question},
    id::{ChannelName, RunId},
    state::{State, Update},
};
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

use crate::simulation::{
    parts::{self, Items, Part, Temper},
    world::World,
};

/// After this many events a run should have ended.
const EVENTS_MAX: usize = 10_000;

/// The events of a run, counted.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    pub(crate) repeated: usize,
    pub(crate) crashes: usize,
    /// The runs that stopped because a route failed.
    pub(crate) strayed: usize,
}

/// Compares a run whose rules get each event at once with one whose rules do not.
pub(crate) fn check(seed: u64) -> Happened {
    let mut random = StdRng::seed_from_u64(seed);
    let parts = parts::random(&mut random);
    let graph = parts::graph(&parts, &World::default());
    let disturbed = parts::graph(&parts, &World::disturbed(seed));
    let mut calm = Process::start(&graph, &parts);
    while !calm.pending.is_empty() {
        calm.tell(0);
    }
    let mut process = Process::start(&disturbed, &parts);
    let mut happened = Happened::default();
    for told in 0.. {
        assert!(told < EVENTS_MAX, "{parts:?}: it never comes to its end");
        if process.pending.is_empty() && process.has_strayed() {
            process = process.dies();
            happened.strayed += 1;
            continue;
        }
        let Some(last) = process.pending.len().checked_sub(1) else { break };
        match random.random_range(0..8) {
            0 | 1 if !process.told.is_empty() => {
                let again = process.told[random.random_range(0..process.told.len())].clone();
                let actions = process.machine.apply(again.clone());
                assert_eq!(actions, [], "{parts:?}: {again:?} was emitted again");
                happened.repeated += 1;
            }
            2 if random.random_bool(0.6) => {
                process = process.dies();
                happened.crashes += 1;
            }
            _ => process.tell(random.random_range(0..=last)),
        }
    }
    assert_eq!(process.rest, calm.rest, "{parts:?}");
    assert_eq!(calm.rest, Some((Status::Done, None)), "{parts:?}");
    assert_eq!(process.machine.state(), calm.machine.state(), "{parts:?}");
    assert_eq!(process.machine.position(), calm.machine.position(), "{parts:?}");
    assert_eq!(process.settled(), calm.settled(), "{parts:?}");
    check_maps(&process, &parts);
    happened
}

/// Each map has ended exactly once, and its failed items are data or have led elsewhere.
fn check_maps(process: &Process, parts: &[Part]) {
    let notes = format!("{:?}", process.machine.state().get("notes"));
    let mut lost = 0;
    for (at, part) in parts.iter().enumerate() {
        let Part::Map(count, _, items) = part else { continue };
        let failed = (0..*count).filter(|it| items.fails(&json!(it))).count();
        let after = usize::from(failed == 0 || *items == Items::Collected);
        assert_eq!(notes.matches(&format!("\"j{at} ")).count(), after, "{parts:?}: {notes}");
        lost += if *items == Items::Collected { failed } else { 0 };
    }
    let list = process.machine.state().get("lost").and_then(|it| it.as_array()).map_or(0, Vec::len);
    assert_eq!(list, lost, "{parts:?}");
}

/// A driver of the rules, with its saved data.
struct Process {
    graph: CompiledGraph,
    parts: Vec<Part>,
    machine: Machine,
    /// The events that are not delivered yet.
    pending: Vec<TaskEvent>,
    /// The events delivered in this process.
    told: Vec<TaskEvent>,
    saved: (Commit, State),
    /// The records of the step that is not committed.
    records: Vec<TaskRecord>,
    /// The records of all steps.
    history: Vec<TaskRecord>,
    rest: Option<(Status, Option<String>)>,
}

impl Process {
    fn start(graph: &CompiledGraph, parts: &[Part]) -> Self {
        let run = RunId::parse("r").unwrap();
        let FirstStep { machine, commit, actions } =
            Machine::start(graph.clone(), RunSettings::default(), run, Update::default()).unwrap();
        let saved = (commit, machine.state().as_ref().clone());
        let mut process = Self {
            graph: graph.clone(),
            parts: parts.to_vec(),
            machine,
            pending: Vec::new(),
            told: Vec::new(),
            saved,
            records: Vec::new(),
            history: Vec::new(),
            rest: None,
        };
        process.perform(actions);
        process
    }

    /// Returns another process that continues from the saved data; undelivered events are lost.
    fn dies(self) -> Self {
        let (Commit { position, .. }, state) = self.saved.clone();
        let checkpoint = Checkpoint { position, state };
        let run = self.machine.run().clone();
        let records = self.records.clone();
        let (machine, actions) = Machine::restore(
            self.graph.clone(),
            RunSettings::default(),
            run,
            SavedStep::new(checkpoint, records),
        )
        .unwrap();
        let mut next = Self { machine, pending: Vec::new(), told: Vec::new(), rest: None, ..self };
        next.ask_people();
        next.perform(actions);
        next
    }

    /// Delivers one of the events.
    fn tell(&mut self, at: usize) {
        let event = self.pending.remove(at);
        // A question that is asked again is a different question.
        if !matches!(event, TaskEvent::Asked { .. }) {
            self.told.push(event.clone());
        }
        let actions = self.machine.apply(event);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Record(record) => {
                    self.history.push(TaskRecord::clone(&record));
                    self.records.push(TaskRecord::clone(&record));
                    self.ask_people();
                }
                Action::Commit(commit) => {
                    self.records.clear();
                    self.saved = (*commit, self.machine.state().as_ref().clone());
                }
                Action::Run(task) => {
                    let has_result =
                        |it: &TaskRecord| it.task == task.id && it.outcome.update().is_some();
                    assert!(!self.records.iter().any(has_result), "{} ran again", task.id);
                    self.pending.push(self.end_of(&task));
                }
                Action::Sleep { task, wait } => {
                    self.pending.push(TaskEvent::Woke { task, wake: wait.wake });
                }
                Action::Stop(RunStatus { status, reason }) => self.rest = Some((status, reason)),
                Action::Emit { .. } | Action::EndStep(_) => (),
                Action::PublishMessages(messages) => {
                    assert_eq!(messages, [], "there are no messages");
                }
            }
        }
    }

    /// Answers the open questions without a pending answer.
    fn ask_people(&mut self) {
        for open in self.machine.open_questions() {
            let task = open.task;
            let key = open.question.key;
            let on_its_way = |event: &TaskEvent| matches!(event, TaskEvent::Answered { task: of, .. } if *of == task);
            if !self.pending.iter().any(on_its_way) {
                let answer = json!(task.step.0);
                self.pending.push(TaskEvent::Answered {
                    task,
                    key,
                    answer,
                    by: None,
                    question_hash: None,
                });
            }
        }
    }

    /// Returns how an attempt ends.
    fn end_of(&self, task: &Task) -> TaskEvent {
        let id = task.id;
        let ended = Timestamp::UNIX_EPOCH;
        let attempt = AttemptStats { number: task.attempt, ms: 7, usage: Usage::default(), ended };
        let failed = |kind, transient| {
            let failure = Failure { transient, ..Failure::new(kind, "no") };
            TaskEvent::Failed { task: id, failure, attempt }
        };
        let key = format!("q{id}");
        match self.temper_of(task) {
            Temper::Fails(times) if task.attempt <= times => failed(ErrorKind::Provider, true),
            Temper::Hangs if task.attempt == 1 => failed(ErrorKind::Timeout, true),
            Temper::Panics => failed(ErrorKind::Panic, false),
            Temper::Of(items) if task.input.item().is_some_and(|it| items.fails(it)) => {
                failed(ErrorKind::Tool, false)
            }
            Temper::Asks if task.answers.get(&key).is_none() => {
                let question = Question::new(key, "how many?");
                TaskEvent::Asked { task: id, question, attempt }
            }
            _ => TaskEvent::Finished { task: id, command: noting(task), attempt },
        }
    }

    /// Returns the temper of a node, by its name.
    fn temper_of(&self, task: &Task) -> Temper {
        let (word, rest) = task.node.as_str().split_at(1);
        let (part, branch) = rest.split_once('_').unwrap_or((rest, "0"));
        let (part, branch): (usize, usize) = (part.parse().unwrap(), branch.parse().unwrap());
        match (word, self.parts.get(part)) {
            ("n", Some(Part::One(temper))) => *temper,
            ("i", Some(Part::Fan(tempers))) => tempers[branch],
            ("i", Some(Part::Map(_, _, items))) => Temper::Of(*items),
            _ => Temper::Steady,
        }
    }

    /// Returns whether the run has failed because of a route.
    fn has_strayed(&self) -> bool {
        matches!(&self.rest, Some((Status::Failed, Some(reason))) if reason.contains("its route failed"))
    }

    /// Returns the final record of every task, in task order.
    fn settled(&self) -> Vec<&TaskRecord> {
        let mut settled: Vec<&TaskRecord> =
            self.history.iter().filter(|it| it.outcome.is_final()).collect();
        settled.sort_by_key(|it| it.task);
        settled
    }
}

/// Notes the task, the attempt and the answers.
fn noting(task: &Task) -> Command {
    let note = format!("{} {} {} {:?}", task.node, task.id, task.attempt, task.answers);
    Update::default().write(ChannelName::parse("notes").unwrap(), note).into()
}
