//! The journal entry: the unit that is saved at once.

use std::{fmt, str::FromStr, sync::Arc};

use graphrun_core::{
    event::{Event, RunEvent, Status},
    fault::Point,
    graph::{Input, Transition},
    id::RunId,
    state::ChangeKind,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use thiserror::Error;

use super::{Commit, EarlierTurns, Migration, Outcome, TaskRecord, UsedBudget};

/// An entry of the journal of a run. It is saved as a whole or not at all.
///
/// Its parts apply in this order. A step with only one task is one entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The results of tasks of the step that has not committed yet.
    pub records: Vec<TaskRecord>,
    /// The step that these records and earlier ones complete.
    pub commit: Option<Commit>,
    /// The migration of the run to another basis, if the step is one or begins a turn with one. It has no records before
    /// it.
    pub migration: Option<Box<Migration>>,
    /// The new run status, if it changes.
    pub run_status: Option<RunStatus>,
    /// The events that the entry makes true.
    pub events: Vec<RunEvent>,
}

/// The run status, and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatus {
    /// The status.
    pub status: Status,
    /// The reason, if the run is not done or has reached a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RunStatus {
    /// Returns the status of a run that no task continues.
    pub(crate) fn at_end(failure: Option<&String>, used: &UsedBudget) -> Self {
        match failure {
            Some(failure) => Self { status: Status::Failed, reason: Some(failure.clone()) },
            None => Self { status: Status::Done, reason: used.limit.clone() },
        }
    }
}

/// An entry with its position in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    /// Its number. Numbers start at one and have no gaps.
    pub number: u64,
    /// The hash that proves this entry and all before it.
    pub hash: EntryHash,
    /// The content.
    pub entry: Entry,
}

impl JournalEntry {
    /// Returns a copy with nulls in place of updates, memos and dispatched inputs, and with empty changes.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        let null = Arc::new(Value::Null);
        let carried = self.entry.migration.iter_mut().flat_map(|it| &mut it.records);
        for record in self.entry.records.iter_mut().chain(carried) {
            if let Some(update) = record.outcome.update_mut() {
                update.writes.iter_mut().for_each(|(_, value)| *value = Arc::clone(&null));
            }
            if let Outcome::MemoSaved { value, .. } = &mut record.outcome {
                *value = Value::Null;
            }
            let transitions = match &mut record.outcome {
                Outcome::Finished { transitions, .. }
                | Outcome::Skipped { transitions, .. }
                | Outcome::Caught { transitions, .. } => transitions.as_mut_slice(),
                Outcome::Undecided { goto, .. } => goto.chosen_mut(),
                Outcome::Failed { .. }
                | Outcome::Retrying { .. }
                | Outcome::TimerSet { .. }
                | Outcome::Aborted
                | Outcome::MemoSaved { .. }
                | Outcome::Asked { .. }
                | Outcome::Answered { .. } => &mut [],
            };
            for transition in transitions {
                if let Transition::Dispatch(dispatch) = transition {
                    dispatch.input = Arc::clone(&null);
                }
            }
        }
        if let Some(Commit { position, changes }) = &mut self.entry.commit {
            for change in changes {
                match &mut change.kind {
                    ChangeKind::Set(value) => *value = Arc::clone(&null),
                    ChangeKind::Appended(items) => *items = Vec::new(),
                    ChangeKind::Cleared => (),
                }
            }
            for activation in &mut position.frontier {
                if let Input::Value(value) = &mut activation.input {
                    *value = Arc::clone(&null);
                }
            }
        }
        self
    }
}

/// The hash of an entry and of the hash before it. Equal hashes prove equal histories.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryHash(pub [u8; 32]);

/// The text is not the hash of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct InvalidHash;

impl Entry {
    /// Returns whether the entry is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.commit.is_none()
            && self.migration.is_none()
            && self.run_status.is_none()
            && self.events.is_empty()
    }

    /// Returns the number of the turn that begins with the entry, after the first one of a thread.
    pub fn begun_turn(&self) -> Option<u64> {
        let position = &self.commit.as_ref()?.position;
        let EarlierTurns { turns, steps, .. } = position.earlier;
        (turns > 0 && steps == position.step.0).then_some(turns + 1)
    }

    /// Returns the channels that a person wrote or cleared in the step, if the entry completes one by hand.
    pub fn written_by_hand(&self) -> &[String] {
        let written = self.events.iter().find_map(|it| match &it.event {
            Event::StateUpdated { writes, .. } => Some(writes.as_slice()),
            _ => None,
        });
        written.unwrap_or_default()
    }

    /// Returns the records that a migration carries into the open step; empty without a migration.
    pub fn carried(&self) -> &[TaskRecord] {
        self.migration.as_ref().map_or(&[], |it| &it.records)
    }

    /// Returns the failure points within the transaction that adds the entry.
    pub fn points_in_transaction(&self) -> impl Iterator<Item = Point> {
        self.points([
            Point::ApprovalInTransaction,
            Point::TaskInTransaction,
            Point::BarrierInTransaction,
        ])
    }

    /// Returns the failure points after the entry is durable.
    pub(crate) fn points_after_commit(&self) -> impl Iterator<Item = Point> {
        self.points([Point::ApprovalAfterCommit, Point::TaskAfterCommit, Point::BarrierAfterCommit])
    }

    fn points(&self, [approval, task, barrier]: [Point; 3]) -> impl Iterator<Item = Point> {
        let is_answer = |it: &TaskRecord| matches!(it.outcome, Outcome::Answered { .. });
        let approves = self.records.iter().any(is_answer);
        let tasks = !self.records.iter().all(is_answer);
        let points = [(approval, approves), (task, tasks), (barrier, self.commit.is_some())];
        points.into_iter().filter_map(|(point, is_hit)| is_hit.then_some(point))
    }

    /// Returns the name of saving it for messages, such as "save step 3 of run `R1`".
    pub fn action(&self, run: &RunId) -> String {
        match (&self.commit, self.records.as_slice(), &self.run_status) {
            (Some(commit), ..) => format!("save step {} of run `{run}`", commit.position.step),
            (None, [record], _) => {
                format!("save the outcome of task {} of run `{run}`", record.task)
            }
            (None, [first, .., last], _) => {
                format!("save the outcomes of tasks {} to {} of run `{run}`", first.task, last.task)
            }
            (None, [], Some(run_status)) => {
                format!("save run `{run}` as {}", run_status.status.as_str())
            }
            (None, [], None) => format!("save the events of run `{run}`"),
        }
    }
}

impl From<TaskRecord> for Entry {
    fn from(record: TaskRecord) -> Self {
        Self { records: vec![record], ..Self::default() }
    }
}

impl From<Commit> for Entry {
    fn from(commit: Commit) -> Self {
        Self { commit: Some(commit), ..Self::default() }
    }
}

impl From<RunStatus> for Entry {
    fn from(run_status: RunStatus) -> Self {
        Self { run_status: Some(run_status), ..Self::default() }
    }
}

impl fmt::Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|it| write!(f, "{it:02x}"))
    }
}

impl FromStr for EntryHash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(InvalidHash);
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| InvalidHash)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for EntryHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Debug for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_as_it_is_written_and_nothing_else_is() {
        let hash = EntryHash(std::array::from_fn(|at| u8::try_from(at * 7).unwrap()));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for wrong in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<EntryHash>(), Err(InvalidHash), "{wrong}");
        }
    }
}
