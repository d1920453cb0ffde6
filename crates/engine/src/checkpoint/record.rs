//! Records of tasks.

use std::collections::BTreeMap;

use graphrun_core::{
    event::Usage,
    graph::{Failure, Goto, NESTED_MEMO, Question, Transition},
    id::{NodeName, TaskId},
    state::Update,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EntryHash, TaskUsage};

/// The result of a task, saved before its step commits.
///
/// With the records, a resumed run does not repeat finished tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// Its node.
    pub node: NodeName,
    /// The attempt.
    pub attempt: u32,
    /// The elapsed time of all attempts together.
    pub ms: u64,
    /// The usage of models in all attempts together.
    pub usage: Usage,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a task or an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It finished. This is final, unless its update does not fit beside the others of the step: then a failure follows.
    Finished {
        /// The update.
        update: Update,
        /// The transitions.
        transitions: Vec<Transition>,
    },
    /// It finished, but a route of its node failed. The next process that continues the run decides
    /// again, and the node does not run again.
    Undecided {
        /// The update.
        update: Update,
        /// The choice of the node.
        #[serde(default, skip_serializing_if = "is_edges")]
        goto: Goto,
        /// The failure of the route.
        failure: Failure,
    },
    /// It failed, and a route caught the failure, or it is an item of a map that collects failures. This is
    /// final.
    Caught {
        /// The failure.
        failure: Failure,
        /// The record of the failure for the list of the map; empty if a route caught the failure.
        #[serde(default, skip_serializing_if = "Update::is_empty")]
        update: Update,
        /// Whether it is an item of a map that decides for all items.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        for_all_items: bool,
        /// The transitions of the route.
        transitions: Vec<Transition>,
    },
    /// Its condition was false, so it did not run. This is final.
    Skipped {
        /// The condition.
        condition: String,
        /// The transitions.
        transitions: Vec<Transition>,
    },
    /// It failed and no route caught the failure. The next process that continues the run tries it
    /// again.
    Failed {
        /// The failure.
        failure: Failure,
    },
    /// An attempt failed, and another one follows.
    Retrying {
        /// The failure.
        failure: Failure,
        /// The delay before the next attempt.
        wait_ms: u64,
        /// The time when the delay ends, in any process.
        wake: Timestamp,
    },
    /// Its node waits for a time, after which the same attempt continues.
    TimerSet {
        /// The key of the wait.
        key: String,
        /// The duration of the wait.
        wait_ms: u64,
        /// The time when it ends, in any process.
        wake: Timestamp,
        /// Why the node waits, if its nested run does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An attempt was aborted because a limit of the run was reached. This is not a failure: the
    /// same attempt starts again when the run continues.
    Aborted,
    /// It saved the result of a part of its work and continues. Elapsed time and usage are those up
    /// to this point.
    MemoSaved {
        /// The name of the part.
        name: String,
        /// Its result.
        value: Value,
    },
    /// It waits for an answer.
    Asked {
        /// The question.
        question: Question,
    },
    /// It received an answer and continues.
    Answered {
        /// The key of the question.
        key: String,
        /// The answer.
        answer: Value,
        /// The name of the sender, if given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The hash of the entry that asked; it identifies the history that the answer is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question_hash: Option<EntryHash>,
    },
}

impl TaskRecord {
    pub(crate) fn used(&self) -> TaskUsage {
        TaskUsage { usage: self.usage, elapsed_ms: self.ms }
    }

    /// Returns whether it saves an entry of the journal of a nested run.
    pub(crate) fn is_of_nested_run(&self) -> bool {
        matches!(&self.outcome, Outcome::MemoSaved { name, .. } if name.starts_with(NESTED_MEMO))
    }

    /// Returns why the run cannot continue after this record, if its node or a route failed.
    pub fn failure_reason(&self) -> Option<String> {
        let node = &self.node;
        let Failure { message, .. } = self.final_failure()?;
        Some(match &self.outcome {
            Outcome::Undecided { .. } => {
                format!("`{node}` finished, but its route failed: {message}")
            }
            _ => format!("`{node}` failed: {message}"),
        })
    }

    /// Returns the failure of a task that failed for good, or whose route did.
    pub fn final_failure(&self) -> Option<&Failure> {
        match &self.outcome {
            Outcome::Failed { failure } | Outcome::Undecided { failure, .. } => Some(failure),
            _ => None,
        }
    }
}

impl Outcome {
    /// Returns the update of a task that has one, even if its targets are not decided yet.
    pub fn update(&self) -> Option<&Update> {
        match self {
            Self::Finished { update, .. } | Self::Undecided { update, .. } => Some(update),
            Self::Caught { update, .. } => Some(update).filter(|it| !it.is_empty()),
            Self::Skipped { .. }
            | Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::TimerSet { .. }
            | Self::Aborted
            | Self::MemoSaved { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => None,
        }
    }

    /// Returns the update of a task, to change it.
    pub fn update_mut(&mut self) -> Option<&mut Update> {
        match self {
            Self::Finished { update, .. }
            | Self::Undecided { update, .. }
            | Self::Caught { update, .. } => Some(update),
            _ => None,
        }
    }

    /// Returns whether it is a failed item of a map that collects failures.
    pub fn is_collected(&self) -> bool {
        matches!(self, Self::Caught { .. }) && self.update().is_some()
    }

    /// Returns the transitions of a final outcome.
    pub fn transitions(&self) -> &[Transition] {
        match self {
            Self::Finished { transitions, .. }
            | Self::Caught { transitions, .. }
            | Self::Skipped { transitions, .. } => transitions,
            Self::Undecided { .. }
            | Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::TimerSet { .. }
            | Self::Aborted
            | Self::MemoSaved { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => &[],
        }
    }

    /// Returns when the wait of its task ends, if the task waits for a time.
    fn wake(&self) -> Option<Timestamp> {
        match self {
            Self::Retrying { wake, .. } | Self::TimerSet { wake, .. } => Some(*wake),
            _ => None,
        }
    }

    /// Returns whether the task never runs again.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Finished { .. } | Self::Caught { .. } | Self::Skipped { .. } => true,
            Self::Undecided { .. }
            | Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::TimerSet { .. }
            | Self::Aborted
            | Self::MemoSaved { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => false,
        }
    }
}

/// Returns the last record of each task, in task order. One with a final outcome settles its task: a final record that is
/// not the last one had an update that did not fit beside the others of its step.
pub fn last_records<'r>(
    records: impl IntoIterator<Item = &'r TaskRecord>,
) -> impl DoubleEndedIterator<Item = &'r TaskRecord> {
    let last: BTreeMap<TaskId, &TaskRecord> = records.into_iter().map(|it| (it.task, it)).collect();
    last.into_values()
}

/// Returns when a suspended run can continue by itself: the first end of a wait, or the first deadline of a
/// question. `records` are those of the step after its position, oldest first.
pub fn next_due(records: &[TaskRecord]) -> Option<Timestamp> {
    let due = last_records(records).filter_map(|record| match &record.outcome {
        Outcome::Asked { question } => question.due(),
        outcome => outcome.wake(),
    });
    due.min()
}

/// Returns the first end of a wait of the step. Deadlines of questions do not matter.
pub(crate) fn next_wake(records: &[TaskRecord]) -> Option<Timestamp> {
    last_records(records).filter_map(|it| it.outcome.wake()).min()
}

/// Returns whether a dispatched task's transitions are followed. In a map, if one item decides for all, only that item's
/// are. `records` are those of all dispatched tasks of its step.
pub fn is_followed<'r>(
    records: impl IntoIterator<Item = &'r TaskRecord>,
) -> impl Fn(&TaskRecord) -> bool {
    // Hardly any step has one, and a step without one then makes no map.
    let mut deciding: Option<BTreeMap<&NodeName, TaskId>> = None;
    for record in records {
        if matches!(record.outcome, Outcome::Caught { for_all_items: true, .. }) {
            let first = deciding.get_or_insert_default().entry(&record.node).or_insert(record.task);
            *first = record.task.min(*first);
        }
    }
    move |record| {
        let first = deciding.as_ref().and_then(|all| all.get(&record.node));
        first.is_none_or(|task| *task == record.task)
    }
}

fn is_edges(goto: &Goto) -> bool {
    *goto == Goto::Edges
}

#[cfg(test)]
mod tests {
    use graphrun_core::{
        event::Usage,
        graph::{ErrorKind, Failure},
        id::{NodeName, Step, TaskId},
        state::Update,
    };

    use super::{Outcome, TaskRecord, is_followed};

    #[test]
    fn the_first_item_that_decides_for_all_is_the_only_one() {
        let finished = Outcome::Finished { update: Update::default(), transitions: Vec::new() };
        let caught = |for_all_items| Outcome::Caught {
            failure: Failure::new(ErrorKind::Other, "broken"),
            update: Update::default(),
            for_all_items,
            transitions: Vec::new(),
        };
        let outcomes = [
            ("read", finished.clone()),
            ("read", caught(true)),
            ("read", caught(true)),
            ("write", caught(false)),
            ("write", finished),
        ];
        let record = |(index, (node, outcome)): (u32, (&str, Outcome))| TaskRecord {
            task: TaskId { step: Step::default(), index },
            node: NodeName::parse(node).unwrap(),
            attempt: 1,
            ms: 0,
            usage: Usage::default(),
            outcome,
        };
        let records: Vec<TaskRecord> = (0..).zip(outcomes).map(record).collect();
        // The records of a step are in the order in which the tasks ended.
        let followed = is_followed(records.iter().rev());
        let followed: Vec<bool> = records.iter().map(followed).collect();
        assert_eq!(followed, [false, true, false, true, true]);
    }
}
