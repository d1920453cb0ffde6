//! The rules that all storages share: which entries they refuse, and how changes become values.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::{
    event::Status,
    id::{ChannelName, RunId, Step, TaskId},
    state::{Change, ChangeKind, reserve},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::checkpoint::{
    CheckpointError, Commit, Entry, EntryHash, LeaseInfo, Message, Outcome, RunInbox, RunJournal,
    RunList, RunStatus, TaskRecord, Turns,
};

/// The minimum length of a prefix that stands for an id; all runs of one second share a longer
/// prefix.
pub const ID_PREFIX_LENGTH_MIN: usize = 6;

/// An entry that no correct owner of a run writes. It is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another process owns the run.
    #[error("the run was taken over by {0}")]
    TakenOver(String),
    /// The owner has given up its lease.
    #[error("the run was released")]
    Released,
    /// The entry has the wrong step.
    #[error("expected step {next}, got step {given}")]
    OutOfTurn {
        /// The step that follows.
        next: Step,
        /// The step of the entry.
        given: Step,
    },
    /// A task has a second result.
    #[error("task {0} has finished already")]
    FinishedTwice(TaskId),
    /// An event has the wrong number.
    #[error("expected event {next}, got event {given}")]
    EventOutOfTurn {
        /// The number that follows.
        next: u64,
        /// The number of the event.
        given: u64,
    },
    /// A step has two changes of one channel.
    #[error("one step changes the channel `{0}` twice")]
    ChangedTwice(ChannelName),
    /// The first entry is not that of step 0, or a later one is.
    #[error("only the first entry of a run may contain step 0")]
    NoBeginning,
    /// An entry mixes a migration with other content.
    #[error("a migration is a separate step, followed only by its records")]
    Migration,
}

/// Items were appended to a value that is not a list.
#[derive(Debug, Error)]
#[error("items were appended to `{0}`, which is not a list")]
pub struct NoList(ChannelName);

/// The state of a run that the next entry must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of entries.
    pub number: u64,
    /// The committed steps.
    pub step: Step,
    /// The number of the last event.
    pub seq: u64,
    /// The status of the run.
    pub run_status: RunStatus,
    /// The time of the last event, in RFC 3339; empty before the first one.
    pub updated: String,
    /// The turns, which are one if the run is no thread.
    pub turns: Turns,
}

/// The status of a run, the time of its last event and its turns, as databases store them.
#[derive(Serialize, Deserialize)]
struct StoredStatus<'a> {
    #[serde(flatten)]
    run_status: Cow<'a, RunStatus>,
    #[serde(default)]
    updated: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Turns::is_default")]
    turns: Turns,
}

impl Refusal {
    /// Returns the error for the caller that tried `action`.
    pub fn explain(self, action: String) -> CheckpointError {
        match self {
            Self::ChangedTwice(_) | Self::NoBeginning | Self::Migration => {
                CheckpointError::Storage { action, source: self.into() }
            }
            Self::TakenOver(_)
            | Self::Released
            | Self::OutOfTurn { .. }
            | Self::FinishedTwice(_)
            | Self::EventOutOfTurn { .. } => {
                CheckpointError::Overtaken { action, source: self.into() }
            }
        }
    }
}

impl Head {
    /// Returns the stored form of the parts without a column: the status, the time of the last event and the turns.
    ///
    /// # Errors
    ///
    /// Fails as `serde_json` does.
    pub fn stored_status(&self) -> serde_json::Result<String> {
        let (run_status, updated) =
            (Cow::Borrowed(&self.run_status), Cow::Borrowed(self.updated.as_str()));
        serde_json::to_string(&StoredStatus { run_status, updated, turns: self.turns })
    }

    /// Returns a head whose status is in its stored form.
    ///
    /// # Errors
    ///
    /// Fails when it is not this form.
    pub fn of_stored(
        number: u64,
        step: Step,
        seq: u64,
        stored_status: &str,
    ) -> serde_json::Result<Self> {
        let StoredStatus { run_status, updated, turns } = serde_json::from_str(stored_status)?;
        let run_status = run_status.into_owned();
        let updated = updated.into_owned();
        Ok(Self { number, step, seq, run_status, updated, turns })
    }

    /// Returns the head after the first entry of a run.
    pub fn first(entry: &Entry) -> Result<Self, Refusal> {
        let begins = |it: &Commit| it.position.step == Step(0);
        let has_more = !entry.records.is_empty() || entry.migration.is_some();
        if has_more || !entry.commit.as_ref().is_some_and(begins) {
            return Err(Refusal::NoBeginning);
        }
        let run_status = RunStatus { status: Status::Running, reason: None };
        let updated = String::new();
        let turns = Turns::default();
        let blank = Self { number: 0, step: Step(0), seq: 0, run_status, updated, turns };
        blank.with(entry)
    }

    /// Returns the head after one more entry. `finished` returns whether a task of the open step
    /// has a final record.
    pub fn after(&self, entry: &Entry, finished: impl Fn(TaskId) -> bool) -> Result<Self, Refusal> {
        let next = self.step.next();
        let mut new = BTreeMap::new();
        for record in &entry.records {
            let task = record.task;
            if task.step != next {
                return Err(Refusal::OutOfTurn { next, given: task.step });
            }
            let has_finished = || new.get(&task).copied().unwrap_or_else(|| finished(task));
            if is_result(record) && has_finished() {
                return Err(Refusal::FinishedTwice(task));
            }
            if let Some(finishes) = finishes(record) {
                new.insert(task, finishes);
            }
        }
        if let Some(given) = entry.commit.as_ref().map(|it| it.position.step)
            && given != next
        {
            return Err(Refusal::OutOfTurn { next, given });
        }
        if entry.migration.is_some() && (entry.commit.is_none() || !entry.records.is_empty()) {
            return Err(Refusal::Migration);
        }
        let mut carried = BTreeSet::new();
        for record in entry.carried() {
            let is_again = is_result(record) && carried.contains(&record.task);
            if record.task.step != next.next() || is_again {
                return Err(Refusal::Migration);
            }
            note_finished(&mut carried, [record]);
        }
        self.with(entry)
    }

    fn with(&self, entry: &Entry) -> Result<Self, Refusal> {
        let mut seq = self.seq;
        for event in &entry.events {
            if event.seq != seq + 1 {
                return Err(Refusal::EventOutOfTurn { next: seq + 1, given: event.seq });
            }
            seq += 1;
        }
        if let Some(commit) = &entry.commit {
            let mut seen = BTreeSet::new();
            if let Some(again) = commit.changes.iter().find(|it| !seen.insert(&it.channel)) {
                return Err(Refusal::ChangedTwice(again.channel.clone()));
            }
        }
        Ok(Self {
            number: self.number + 1,
            step: entry.commit.as_ref().map_or(self.step, |it| it.position.step),
            seq,
            run_status: entry.run_status.as_ref().unwrap_or(&self.run_status).clone(),
            updated: entry.events.last().map_or_else(|| self.updated.clone(), |it| it.ts.clone()),
            turns: entry.commit.as_ref().map_or(self.turns, |it| Turns::at(&it.position)),
        })
    }
}

/// Returns the number of a message that was posted before. Refuses a message to a run that has ended: done, or failed
/// without a task that could be retried.
pub async fn check_post<S>(
    storage: &S,
    run: &RunId,
    message: &Message,
) -> Result<Option<u64>, CheckpointError>
where
    S: RunJournal + RunInbox + RunList,
{
    let status = storage.find(run.as_str()).await?.status;
    let has_ended = match status {
        Status::Done => true,
        Status::Failed => storage.load(run).await?.position.frontier.is_empty(),
        Status::Running | Status::Paused | Status::Limit | Status::Interrupted => false,
    };
    if !has_ended {
        return Ok(None);
    }
    let posted = storage.inbox(run, 0).await?.into_iter().find(|it| it.message.id == message.id);
    let ended = CheckpointError::Ended { run: run.clone(), status };
    posted.map(|it| Some(it.number)).ok_or(ended)
}

/// Returns the tasks of the open step that never run again once the entry is saved. `before` are those before it.
pub fn finished_after(mut before: BTreeSet<TaskId>, entry: &Entry) -> BTreeSet<TaskId> {
    if entry.commit.is_some() {
        // These belong to the step before.
        before.clear();
        note_finished(&mut before, entry.carried());
    } else {
        note_finished(&mut before, &entry.records);
    }
    before
}

/// Adds the tasks that finish by these records, and removes those that fail after all.
pub fn note_finished<'r>(
    finished: &mut BTreeSet<TaskId>,
    records: impl IntoIterator<Item = &'r TaskRecord>,
) {
    for record in records {
        match finishes(record) {
            Some(true) => drop(finished.insert(record.task)),
            Some(false) => drop(finished.remove(&record.task)),
            None => (),
        }
    }
}

/// Returns whether a task never runs again after a record; `None` if the record does not decide that.
fn finishes(record: &TaskRecord) -> Option<bool> {
    match record.outcome {
        Outcome::Failed { .. } => Some(false),
        _ => record.outcome.is_final().then_some(true),
    }
}

/// Returns whether a record has the result of a task, of which there is only one. A failure may follow it: at the end of a
/// step, an update may not fit beside the others.
fn is_result(record: &TaskRecord) -> bool {
    record.outcome.is_final() && !matches!(record.outcome, Outcome::Caught { .. })
}

/// Returns the hash before the first entry of a run: that of its id and its info.
pub fn beginning(run: &RunId, info: &[u8]) -> EntryHash {
    let mut hasher = blake3::Hasher::new();
    for part in [run.as_str().as_bytes(), info] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    EntryHash(hasher.finalize().into())
}

/// Checks that the fencing token `fence` is the current one.
pub fn check_fence(lease: Option<&LeaseInfo>, fence: u64) -> Result<(), Refusal> {
    match lease {
        Some(lease) if lease.fence == fence => Ok(()),
        Some(lease) => Err(Refusal::TakenOver(lease.owner.to_string())),
        None => Err(Refusal::Released),
    }
}

/// Returns whether an entry stops or suspends its run, so that the lease can be released.
pub fn stops_run(entry: &Entry) -> bool {
    entry.run_status.as_ref().is_some_and(|it| it.status != Status::Running)
}

/// Applies a change to values. Appending an empty list to a missing value creates an empty list.
pub fn apply(values: &mut BTreeMap<ChannelName, Value>, change: Change) -> Result<(), NoList> {
    let Change { channel, kind } = change;
    match kind {
        ChangeKind::Set(value) => {
            values.insert(channel, Arc::unwrap_or_clone(value));
        }
        ChangeKind::Cleared => {
            values.remove(&channel);
        }
        ChangeKind::Appended(items) => {
            let list = values.entry(channel.clone()).or_insert_with(|| Value::Array(Vec::new()));
            let list = list.as_array_mut().ok_or(NoList(channel))?;
            reserve(list, items.len());
            list.extend(items);
        }
    }
    Ok(())
}

/// Returns the error for a change that does not fit the value.
pub fn misfit(run: &RunId, channel: &ChannelName, step: Step, error: NoList) -> CheckpointError {
    let what = format!("the channel `{channel}` at step {step}");
    CheckpointError::Damaged { run: run.to_string(), what, source: error.into() }
}
