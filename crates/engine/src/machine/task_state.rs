//! The state of one task of the step: its phase, its attempts and its usage.

use std::{sync::Arc, time::Duration};

use graphrun_core::{
    graph::{Failure, Goto, NESTED_MEMO, Question, SavedValues, TIMER_MEMO},
    id::{NodeName, TaskId},
    state::Update,
};
use jiff::Timestamp;

use super::backoff::Wait;
use crate::checkpoint::{Outcome, TaskRecord, TaskUsage};

/// The state of one task of the step.
#[derive(Clone, Debug)]
pub(super) struct TaskState {
    pub(super) node: NodeName,
    /// Its position among the tasks that are dispatched to its node, from zero.
    pub(super) item: Option<u64>,
    /// Its place among the items of a map, if they depend on each other.
    pub(super) dependencies: Option<Box<ItemDependencies>>,
    pub(super) phase: Phase,
    pub(super) attempt: u32,
    /// The usage of its attempts together.
    pub(super) used: TaskUsage,
    pub(super) retries: Retries,
    pub(super) answers: SavedValues,
    /// The memos of the task: saved results of parts of its work.
    pub(super) memos: SavedValues,
    /// The keys of the questions it has asked.
    pub(super) question_keys: Vec<String>,
    /// The result of its node, if the node finished and its targets are not decided.
    pub(super) undecided: Option<Box<(Update, Goto)>>,
    /// Its record, if the record is final or the task was aborted.
    pub(super) record: Option<Arc<TaskRecord>>,
}

/// The place of a task among the items of a map that depend on each other.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemDependencies {
    pub(super) key: String,
    /// The tasks that need this one.
    pub(super) dependents: Vec<usize>,
    /// The number of tasks that it needs and that are not settled.
    pub(super) unmet: usize,
    /// The first task that it needs and that failed.
    pub(super) failed_need: Option<usize>,
    /// The elapsed time of the step before it could begin.
    pub(super) before_ms: u64,
    /// The reason why the order of the items is not known.
    pub(super) failure: Option<Box<Failure>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// The driver runs it, or will.
    Running,
    /// It is an item of a map and waits for others.
    Blocked,
    /// It waits for its next attempt, after a failure, or for a time. The reason is the failure, or that of a nested run.
    Sleeping { wait: Wait, reason: Option<String> },
    /// It waits for a person.
    AwaitingAnswer(Box<Question>),
    /// It was aborted because a limit of the run is reached.
    Aborted,
    /// It failed, and no route caught the failure; or its node finished, and a route failed.
    Failed(Box<FinalFailure>),
    /// Its record is final.
    Settled,
}

/// The time of a task after its first attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries {
    /// The duration of the first attempt, if another one has followed.
    first_ms: Option<u64>,
    /// The waits that count towards the time limit of `retry`.
    waited_ms: u64,
    /// The attempts that do not count: they ended without a request.
    uncounted: u32,
}

/// A wait that a provider asked for counts towards the time limit of `retry` only if it is no longer than this. The
/// provider knows when a longer one ends.
const COUNTED_PROVIDER_WAIT_MAX_MS: u64 = 30_000;

impl TaskState {
    pub(super) fn new(node: NodeName) -> Self {
        Self {
            node,
            item: None,
            dependencies: None,
            phase: Phase::Running,
            attempt: 1,
            used: TaskUsage::default(),
            retries: Retries::default(),
            answers: SavedValues::default(),
            memos: SavedValues::default(),
            question_keys: Vec::new(),
            undecided: None,
            record: None,
        }
    }

    /// Restores the task from its record. Returns its phase, and the size of the result that it adds to the step. If a
    /// node is named, failed tasks of other nodes do not run again.
    pub(super) fn restore(&mut self, record: TaskRecord, only: Option<&NodeName>) -> (Phase, u64) {
        let mut result_bytes = 0;
        if !matches!(record.outcome, Outcome::Answered { .. }) {
            self.used = record.used();
        }
        self.attempt = record.attempt;
        let phase = match &record.outcome {
            Outcome::Finished { .. } | Outcome::Caught { .. } | Outcome::Skipped { .. } => {
                // The size of a result that was decided later is counted already.
                if self.undecided.take().is_none() {
                    result_bytes = record.outcome.update().map_or(0, Update::size);
                }
                self.record = Some(Arc::new(record));
                Phase::Settled
            }
            Outcome::Undecided { update, goto, .. } => {
                if self.undecided.is_none() {
                    result_bytes = update.size();
                }
                self.undecided = Some(Box::new((update.clone(), goto.clone())));
                if only.is_some_and(|it| *it != record.node) {
                    Phase::failed(&record)
                } else {
                    Phase::Running
                }
            }
            Outcome::Failed { .. } if only.is_some_and(|it| *it != record.node) => {
                Phase::failed(&record)
            }
            Outcome::Failed { .. } => {
                // Retrying a failed run restarts the number of attempts and drops the memos: a memo may have
                // caused the failure. A nested run retries only its failed tasks.
                self.attempt = 1;
                self.memos.retain(|name| name.starts_with(NESTED_MEMO));
                self.retries = Retries::default();
                Phase::Running
            }
            Outcome::Retrying { failure, wait_ms, wake } => {
                self.attempt = record.attempt.saturating_add(1);
                self.retries.add(failure, *wait_ms, record.ms);
                let reason = Some(failure.message.clone());
                let wait = Wait { wake: *wake, duration_ms: *wait_ms };
                Phase::Sleeping { wait, reason }
            }
            Outcome::TimerSet { key, wait_ms, wake, reason } => {
                let wait = Wait { wake: *wake, duration_ms: *wait_ms };
                self.keep_timer(key, wait);
                Phase::Sleeping { wait, reason: reason.clone() }
            }
            Outcome::Aborted | Outcome::MemoSaved { .. } => Phase::Running,
            Outcome::Asked { question } => {
                self.question_keys.push(question.key.clone());
                Phase::AwaitingAnswer(Box::new(question.clone()))
            }
            Outcome::Answered { key, answer, .. } => {
                self.answers.insert(key.clone(), answer.clone());
                Phase::Running
            }
        };
        (phase, result_bytes)
    }

    pub(super) fn dependencies_mut(&mut self) -> &mut ItemDependencies {
        self.dependencies.get_or_insert_default()
    }

    /// Returns the key of the item, if it is one whose order counts.
    pub(super) fn item_key(&self) -> &str {
        self.dependencies.as_ref().map_or("", |it| &it.key)
    }

    /// Returns the elapsed time of the step until the end of its last attempt.
    pub(super) fn end_ms(&self) -> u64 {
        let before_ms = self.dependencies.as_ref().map_or(0, |it| it.before_ms);
        before_ms.saturating_add(self.used.elapsed_ms)
    }

    /// Notes when a wait of the node ends. The node finds it by its key.
    pub(super) fn keep_timer(&mut self, key: &str, wait: Wait) {
        self.memos.insert(format!("{TIMER_MEMO}{key}"), wait.wake.to_string().into());
    }

    /// Returns the wait of the task and its reason, if it waits for its next attempt or for a time.
    pub(super) fn wait(&self) -> Option<(Wait, Option<&str>)> {
        match &self.phase {
            Phase::Sleeping { wait, reason } => Some((*wait, reason.as_deref())),
            _ => None,
        }
    }

    /// Returns the number of attempts that count, with the current one: those that ended without a request do not.
    pub(super) fn counted_attempts(&self) -> u32 {
        self.attempt.saturating_sub(self.retries.uncounted)
    }

    /// Returns how long the task has been retried: its attempts after the first one, and the waits between them.
    pub(super) fn retried_for(&self) -> Duration {
        let Retries { first_ms, waited_ms, .. } = self.retries;
        let worked_ms = first_ms.map_or(0, |it| self.used.elapsed_ms.saturating_sub(it));
        Duration::from_millis(worked_ms.saturating_add(waited_ms))
    }

    /// Returns whether the next attempt continues an earlier one, which has an answer, or has worked and was no failed one.
    pub(super) fn continues_attempt(&self) -> bool {
        let has_worked = self.used != TaskUsage::default() || !self.memos.is_empty();
        !self.answers.is_empty() || (has_worked && self.counted_attempts() == 1)
    }

    /// Returns whether the next attempt calls the node anew, with its memos if it has any.
    pub(super) fn is_at_beginning(&self) -> bool {
        self.phase == Phase::Running && self.answers.is_empty() && self.undecided.is_none()
    }

    /// Returns the open question.
    pub(super) fn question(&self) -> Option<&Question> {
        match &self.phase {
            Phase::AwaitingAnswer(question) => Some(question),
            _ => None,
        }
    }

    /// Returns when the task continues without an answer to its open question, if it has one that does not wait for ever.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.question().and_then(Question::due)
    }

    pub(super) fn make_record(&self, task: TaskId, outcome: Outcome) -> TaskRecord {
        let TaskUsage { usage, elapsed_ms: ms } = self.used;
        TaskRecord { task, node: self.node.clone(), attempt: self.attempt, ms, usage, outcome }
    }

    /// Returns the failure of a task that failed for good.
    pub(super) fn final_failure(&self) -> Option<&FinalFailure> {
        if let Phase::Failed(failure) = &self.phase { Some(failure) } else { None }
    }
}

/// The failure of a task that is not tried again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FinalFailure {
    /// The failure with the node, as the reason of a failed run.
    pub(super) reason: String,
    pub(super) failure: Failure,
}

impl Phase {
    pub(super) fn failed(record: &TaskRecord) -> Self {
        let reason = record.failure_reason().expect("it is the record of a failure");
        let failure = record.final_failure().expect("it is the record of a failure").clone();
        Self::Failed(Box::new(FinalFailure { reason, failure }))
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Running | Self::Sleeping { .. } | Self::Aborted)
    }
}

impl Retries {
    /// Adds the wait after a failure. `total_ms` is the duration of all attempts so far.
    pub(super) fn add(&mut self, failure: &Failure, wait_ms: u64, total_ms: u64) {
        if is_uncounted(failure) {
            self.uncounted = self.uncounted.saturating_add(1);
        }
        self.first_ms.get_or_insert(total_ms);
        if has_counted_wait(failure) {
            self.waited_ms = self.waited_ms.saturating_add(wait_ms);
        }
    }
}

/// Returns whether an attempt with this failure does not count as one: it has sent nothing. Either its wait counts or the
/// attempt does, so that there is always an end.
pub(super) fn is_uncounted(failure: &Failure) -> bool {
    failure.is_unsent && has_counted_wait(failure)
}

fn has_counted_wait(failure: &Failure) -> bool {
    failure.retry_after_ms.is_none_or(|it| it <= COUNTED_PROVIDER_WAIT_MAX_MS)
}
