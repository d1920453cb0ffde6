//! A run laid over a drawing: where it came, which ways it took, and where it stands.
//!
//! A record says where its task led. What became of that when a bound or a limit stood there is
//! not saved; it is found by counting visits along with the run, as the engine did.

mod replay;

use std::collections::{BTreeMap, BTreeSet};

use self::replay::Replay;
use super::{Arrow, Drawing, Reason};
use crate::{
    checkpoint::{Outcome, SavedRun, TaskRecord},
    event::Status,
    graph::Target,
    id::{NodeName, RunId, Step, TaskId},
};

/// The run that is laid over a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnRun {
    /// The identity.
    pub id: RunId,
    /// The name people call it by.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// Why, if it is not done.
    pub reason: Option<String>,
    /// The committed steps.
    pub steps: u64,
    /// What of the run is not in the drawing, because the workflow has changed since.
    pub notes: Vec<String>,
}

/// What a run did at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// The steps in which it ran.
    pub steps: u64,
    /// The tasks; more than the steps where several were dispatched to it in one.
    pub tasks: u64,
    /// The attempts of all tasks.
    pub attempts: u64,
    /// The attempts that failed.
    pub failures: u64,
    /// The tasks that were not to run, by the condition of the node; they are among no others.
    pub skipped: u64,
    /// How the run stands here, if it has not gone on.
    pub standing: Option<Standing>,
}

/// How a run stands at a node that it has not gone on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The task runs, or would run next.
    Next,
    /// The task waits for an answer.
    Waiting,
    /// The task failed, and nothing caught the failure.
    Failed,
}

/// From where to where a way leads, and whether because something went wrong.
type Between = (Option<NodeName>, Target, Kind);

/// What is saved of a run tells these kinds of ways apart, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Start,
    Onward,
    Exhausted,
    Caught,
}

impl Drawing {
    /// Lays a run over the drawing: what was saved of it, and all of its records.
    ///
    /// What the run did at nodes and ways that are not in the drawing becomes a note.
    #[must_use]
    pub fn with_run(mut self, saved: &SavedRun, records: &[TaskRecord]) -> Self {
        let mut notes = BTreeSet::new();
        let mut visits = visits(saved, records);
        for node in &mut self.nodes {
            node.visits = visits.remove(&node.name);
        }
        notes.extend(visits.keys().map(|it| format!("the run came to `{it}`, which is not here")));

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
            notes.insert(format!("the run went from {from} to `{to}`, and no way leads there now"));
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
        words.extend(self.standing.map(|it| it.as_str().to_owned()));
        words.join(", ")
    }
}

impl Standing {
    /// The word for it.
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
        (None, Reason::Always) => Kind::Start,
        (_, Reason::Exhausted) => Kind::Exhausted,
        (_, Reason::Catch(_) | Reason::Failures { .. }) => Kind::Caught,
        (_, Reason::Always | Reason::Join(_) | Reason::Route(_) | Reason::Goto) => Kind::Onward,
    };
    (arrow.from.clone(), arrow.to.clone(), kind)
}

/// What a run did at each node it came to.
fn visits(saved: &SavedRun, records: &[TaskRecord]) -> BTreeMap<NodeName, Visits> {
    let mut nodes: BTreeMap<NodeName, Visits> = BTreeMap::new();
    let mut steps: BTreeMap<&NodeName, BTreeSet<Step>> = BTreeMap::new();
    let mut tasks: BTreeMap<TaskId, &TaskRecord> = BTreeMap::new();
    for record in records {
        let visits = nodes.entry(record.node.clone()).or_default();
        let (attempts, failed) = match &record.outcome {
            Outcome::Finished { .. } => (record.attempt, record.attempt - 1),
            Outcome::Caught { .. } | Outcome::Failed { .. } => (record.attempt, record.attempt),
            Outcome::Skipped { .. } => {
                visits.skipped += 1;
                tasks.insert(record.task, record);
                continue;
            }
            // The attempt goes on once there is an answer; one that failed is counted with the last.
            Outcome::Retrying { .. }
            | Outcome::CutOff
            | Outcome::Noted { .. }
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
        let standing = match tasks.get(&TaskId { step, index }).map(|it| &it.outcome) {
            Some(Outcome::Finished { .. } | Outcome::Caught { .. } | Outcome::Skipped { .. }) => {
                None
            }
            Some(Outcome::Asked { .. }) => Some(Standing::Waiting),
            Some(Outcome::Failed { .. }) => Some(Standing::Failed),
            Some(
                Outcome::Retrying { .. }
                | Outcome::CutOff
                | Outcome::Noted { .. }
                | Outcome::Answered { .. },
            )
            | None => Some(Standing::Next),
        };
        let visits = nodes.entry(activation.node.clone()).or_default();
        visits.standing = visits.standing.max(standing);
    }
    nodes
}
