//! A run over a drawing: the nodes it reached, the edges it took, and where it is now.
//!
//! A record contains the transitions of its task. It does not contain the effect of a bound or a
//! limit on them. This module computes that effect by counting visits along the run, as the engine
//! did.

mod replay;

use std::collections::{BTreeMap, BTreeSet};

use self::replay::Replay;
use super::{Arrow, Drawing, Reason, arrows, bounds};
use crate::{
    checkpoint::{Outcome, SavedRun, TaskRecord},
    event::Status,
    graph::{Bounds, Policies, Target},
    id::{NodeName, RunId, Step, TaskId},
};

/// The run over a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnRun {
    /// The id of the run.
    pub id: RunId,
    /// The name of the run.
    pub name: String,
    /// The run status.
    pub status: Status,
    /// The reason, if the run is not done or has reached a limit.
    pub reason: Option<String>,
    /// The committed steps.
    pub steps: u64,
    /// The parts of the run that are missing in the drawing, because the workflow has changed
    /// since.
    pub notes: Vec<String>,
}

/// The visits of a run at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// The steps in which it ran.
    pub steps: u64,
    /// The tasks; more than the steps if one step dispatched several to it.
    pub tasks: u64,
    /// The attempts of all tasks.
    pub attempts: u64,
    /// The attempts that failed.
    pub failures: u64,
    /// The tasks that the condition of the node skipped; the other counts exclude them.
    pub skipped: u64,
    /// The state of the run at this node, if the run has not continued from here.
    pub status: Option<NodeStatus>,
}

/// The state of a run at a node from which it has not continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStatus {
    /// The task runs, or would run next.
    Next,
    /// The task waits for an answer.
    Waiting,
    /// The task failed, and no route caught the failure.
    Failed,
}

/// The source, the target and the kind of an edge.
type Between = (Option<NodeName>, Target, SavedEdgeKind);

/// The kinds of edges that the saved data of a run distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SavedEdgeKind {
    Start,
    Onward,
    Exhausted,
    Caught,
}

impl Drawing {
    /// Adds a run to the drawing, from its saved data and all of its records.
    ///
    /// Visits and transitions without a counterpart in the drawing become notes.
    #[must_use]
    pub fn with_run(mut self, saved: &SavedRun, records: &[TaskRecord]) -> Self {
        let mut notes = BTreeSet::new();
        let mut visits = visits(saved, records);
        for node in &mut self.nodes {
            node.visits = visits.remove(&node.name);
            let policies = Policies::from(Bounds {
                max_visits: node.max_visits,
                visits_field: node.visits_field.clone(),
                ..Bounds::default()
            });
            node.max_visits = policies.bounds.max_visits_of(|it| saved.values.get(it));
        }
        arrows::bound_loops(&mut self.arrows, &bounds(&self.nodes));
        notes.extend(
            visits.keys().map(|it| format!("the run reached `{it}`, which the drawing lacks")),
        );

        let mut taken = Replay::new(&self).follow(saved, records);
        for arrow in &mut self.arrows {
            let between = between(arrow);
            arrow.taken = Some(taken.get(&between).copied().unwrap_or(0));
        }
        for arrow in &self.arrows {
            taken.remove(&between(arrow));
        }
        for (from, to, _) in taken.keys() {
            let from = from.as_ref().map_or_else(|| "its start".to_owned(), |it| format!("`{it}`"));
            notes
                .insert(format!("the run went from {from} to `{to}`, and no edge leads there now"));
        }
        let summary = &saved.summary;
        self.run = Some(DrawnRun {
            id: summary.info.id.clone(),
            name: summary.info.name.clone(),
            status: summary.status,
            reason: summary.reason.clone(),
            steps: saved.position.step.0,
            notes: notes.into_iter().collect(),
        });
        self
    }
}

impl DrawnRun {
    /// `calm-otter: failed after 3 steps: the model refused`
    pub(super) fn words(&self) -> String {
        let steps = if self.steps == 1 { "step" } else { "steps" };
        let reason = self.reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
        let status = self.status.as_str();
        super::clean(&format!("{}: {status} after {} {steps}{reason}", self.name, self.steps))
    }
}

impl Visits {
    /// `ran 3 times, 4 attempts, 1 failed, waiting`
    pub(super) fn words(&self) -> String {
        let mut words = Vec::new();
        match self.steps {
            0 => (),
            1 => words.push("ran once".to_owned()),
            more => words.push(format!("ran {more} times")),
        }
        if self.tasks > self.steps {
            words.push(format!("{} tasks", self.tasks));
        }
        if self.attempts > self.tasks {
            words.push(format!("{} attempts", self.attempts));
        }
        if self.failures > 0 {
            words.push(format!("{} failed", self.failures));
        }
        match self.skipped {
            0 => (),
            1 => words.push("skipped once".to_owned()),
            more => words.push(format!("skipped {more} times")),
        }
        words.extend(self.status.map(|it| it.as_str().to_owned()));
        words.join(", ")
    }
}

impl NodeStatus {
    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

fn between(arrow: &Arrow) -> Between {
    let kind = match (&arrow.from, &arrow.reason) {
        (None, Reason::Always) => SavedEdgeKind::Start,
        (_, Reason::Exhausted) => SavedEdgeKind::Exhausted,
        (_, Reason::Catch(_) | Reason::Failures { .. }) => SavedEdgeKind::Caught,
        (_, Reason::Always | Reason::Join { .. } | Reason::Route(_) | Reason::Goto) => {
            SavedEdgeKind::Onward
        }
    };
    (arrow.from.clone(), arrow.to.clone(), kind)
}

/// Returns the visits of a run at each node it reached.
fn visits(saved: &SavedRun, records: &[TaskRecord]) -> BTreeMap<NodeName, Visits> {
    let mut nodes: BTreeMap<NodeName, Visits> = BTreeMap::new();
    let mut steps: BTreeMap<&NodeName, BTreeSet<Step>> = BTreeMap::new();
    let mut tasks: BTreeMap<TaskId, &TaskRecord> = BTreeMap::new();
    for record in records {
        let visits = nodes.entry(record.node.clone()).or_default();
        let (attempts, failed) = match &record.outcome {
            // The node had finished before; only its route was tried again.
            Outcome::Finished { .. } | Outcome::Undecided { .. }
                if tasks
                    .get(&record.task)
                    .is_some_and(|it| matches!(it.outcome, Outcome::Undecided { .. })) =>
            {
                (0, 0)
            }
            Outcome::Finished { .. } | Outcome::Undecided { .. } => {
                (record.attempt, record.attempt - 1)
            }
            // Its result did not fit beside the others of the step. The attempts are counted already.
            Outcome::Caught { .. } | Outcome::Failed { .. }
                if tasks.get(&record.task).is_some_and(|it| it.outcome.is_final()) =>
            {
                (0, 1)
            }
            Outcome::Caught { .. } | Outcome::Failed { .. } => (record.attempt, record.attempt),
            Outcome::Skipped { .. } => {
                visits.skipped += 1;
                tasks.insert(record.task, record);
                continue;
            }
            // The attempt continues after the answer; an earlier failed one is counted with the
            // last record.
            Outcome::Retrying { .. }
            | Outcome::TimerSet { .. }
            | Outcome::Aborted
            | Outcome::MemoSaved { .. }
            | Outcome::Asked { .. }
            | Outcome::Answered { .. } => (0, 0),
        };
        visits.attempts += u64::from(attempts);
        visits.failures += u64::from(failed);
        steps.entry(&record.node).or_default().insert(record.task.step);
        if tasks.insert(record.task, record).is_none() {
            visits.tasks += 1;
        }
    }
    for (node, steps) in steps {
        let visits = nodes.entry(node.clone()).or_default();
        visits.steps = u64::try_from(steps.len()).unwrap_or(u64::MAX);
    }
    let step = saved.position.step.next();
    for (index, activation) in (0..).zip(&saved.position.frontier) {
        let status = match tasks.get(&TaskId { step, index }).map(|it| &it.outcome) {
            Some(Outcome::Finished { .. } | Outcome::Caught { .. } | Outcome::Skipped { .. }) => {
                None
            }
            Some(Outcome::Asked { .. } | Outcome::TimerSet { .. }) => Some(NodeStatus::Waiting),
            Some(Outcome::Failed { .. } | Outcome::Undecided { .. }) => Some(NodeStatus::Failed),
            Some(
                Outcome::Retrying { .. }
                | Outcome::Aborted
                | Outcome::MemoSaved { .. }
                | Outcome::Answered { .. },
            )
            | None => Some(NodeStatus::Next),
        };
        let visits = nodes.entry(activation.node.clone()).or_default();
        visits.status = visits.status.max(status);
    }
    nodes
}
