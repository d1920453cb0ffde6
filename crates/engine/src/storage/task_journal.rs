//! The journal of a nested run, saved in memos of the task that runs it.
//!
//! Each entry is one memo, so it is durable with the journal of the outer run and ends with the outer step. If a run
//! cannot be continued, because a route ended it as failed, the task begins another one: its memos have the next
//! number in front.
//!
//! A task of a nested run may have a nested run itself. Its memos would then stand within the memos of the outer task, a
//! few levels deeper with each run around them, and values have a largest depth. So a memo is a flat list: an entry, and
//! behind it the memos in its records, in whose place the records hold the number of parts to take from the list.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering},
};

use graphrun_core::{
    graph::{NESTED_MEMO, NodeContext, NodeError, SavedValues},
    state::Change,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checkpoint::{
    CheckpointError, Commit, Entry, Outcome, Position, RunInfo, RunStatus, TaskRecord,
};

/// Saves the entries of one nested run.
#[derive(Debug)]
pub(crate) struct TaskJournal {
    ctx: NodeContext,
    /// The number of the run among those of the task.
    number: u64,
    /// The number of its next entry.
    next: AtomicU64,
}

/// A nested run that a task has begun.
#[derive(Debug)]
pub(crate) struct SavedNestedRun {
    pub(crate) info: RunInfo,
    /// Its entries, without events.
    pub(crate) entries: Vec<Entry>,
}

/// The properties of a nested run, and its first entry.
#[derive(Debug, Serialize, Deserialize)]
struct SavedBeginning {
    info: RunInfo,
    first: SavedEntry,
}

/// An entry without its events, which the outer run has as reports of the task.
#[derive(Debug, Serialize, Deserialize)]
struct SavedEntry {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    records: Vec<TaskRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<(Position, Vec<Change>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_status: Option<RunStatus>,
}

impl TaskJournal {
    /// Finds the journal of the last nested run of a task, with its saved entries.
    ///
    /// # Errors
    ///
    /// Fails if the saved entries cannot be read.
    pub(crate) fn find(ctx: &NodeContext) -> Result<(Self, Option<SavedNestedRun>), NodeError> {
        let (number, saved) = SavedNestedRun::find(&ctx.memos).map_err(|error| {
            NodeError::permanent(format!("its saved nested run cannot be read: {error}"))
        })?;
        let next = saved.as_ref().map_or(0, |it| it.entries.len() as u64);
        Ok((Self::of(ctx, number, next), saved))
    }

    /// Returns the journal of the next nested run of the task.
    pub(crate) fn next_run(&self) -> Self {
        Self::of(&self.ctx, self.number + 1, 0)
    }

    /// Returns the number of the run among those of the task.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn of(ctx: &NodeContext, number: u64, next: u64) -> Self {
        Self { ctx: ctx.clone(), number, next: AtomicU64::new(next) }
    }

    /// Saves the first entry.
    pub(super) async fn save_first(
        &self,
        info: &RunInfo,
        first: &Entry,
    ) -> Result<(), CheckpointError> {
        let beginning = SavedBeginning { info: info.clone(), first: first.into() };
        self.save_parts(&beginning, Vec::new()).await
    }

    /// Saves an entry, unless it has nothing but events.
    pub(super) async fn save(&self, entry: &Entry) -> Result<(), CheckpointError> {
        let mut saved = SavedEntry::from(entry);
        let is_empty =
            saved.records.is_empty() && saved.commit.is_none() && saved.run_status.is_none();
        if is_empty {
            return Ok(());
        }
        let parts = saved.take_nested();
        self.save_parts(&saved, parts).await
    }

    /// Saves a memo of this value and the parts behind it.
    async fn save_parts(
        &self,
        value: &(impl Serialize + Sync),
        parts: Vec<Value>,
    ) -> Result<(), CheckpointError> {
        let Self { ctx, number: run, next } = self;
        let action = || format!("save the nested run of task {} of run `{}`", ctx.task, ctx.run);
        let json = serde_json::to_value(value);
        let value = json
            .map_err(|error| CheckpointError::Storage { action: action(), source: error.into() })?;
        let value = joined(iter::once(value).chain(parts).collect());
        let number = next.load(Ordering::Relaxed);
        let saved = ctx.save_nested(&format!("{run}/{number}"), value).await;
        saved.map_err(|error| {
            let text = match error {
                NodeError::Failed(failure) => failure.message,
                NodeError::Ask(question) => question.prompt,
                NodeError::Wait(timer) => timer.key,
            };
            CheckpointError::Storage { action: action(), source: text.into() }
        })?;
        next.store(number + 1, Ordering::Relaxed);
        Ok(())
    }
}

impl SavedNestedRun {
    /// Finds the last nested run of a task in its memos, with the number of that run.
    ///
    /// # Errors
    ///
    /// Fails if its entries cannot be read.
    pub(crate) fn find(memos: &SavedValues) -> serde_json::Result<(u64, Option<Self>)> {
        let mut number = 0;
        while memo(memos, number + 1, 0).is_some() {
            number += 1;
        }
        let Some(beginning) = memo(memos, number, 0) else { return Ok((number, None)) };
        let SavedBeginning { info, first } = SavedBeginning::deserialize(beginning)?;
        let mut entries = vec![Entry::from(first)];
        while let Some(saved) = memo(memos, number, entries.len() as u64) {
            entries.push(read_entry(saved)?.into());
        }
        Ok((number, Some(Self { info, entries })))
    }
}

fn memo(memos: &SavedValues, run: u64, number: u64) -> Option<&Value> {
    memos.get(&format!("{NESTED_MEMO}{run}/{number}"))
}

/// Returns a memo of these parts.
fn joined(mut parts: Vec<Value>) -> Value {
    if parts.len() == 1 { parts.remove(0) } else { Value::Array(parts) }
}

/// Returns the parts of a memo.
fn parts(memo: Value) -> Vec<Value> {
    match memo {
        Value::Array(parts) => parts,
        only => vec![only],
    }
}

/// Reads an entry, with the memos in its records.
fn read_entry(saved: &Value) -> serde_json::Result<SavedEntry> {
    let (first, mut rest) = match saved.as_array().map(Vec::as_slice) {
        Some([first, rest @ ..]) => (first, rest),
        _ => (saved, &[][..]),
    };
    let mut entry = SavedEntry::deserialize(first)?;
    for memo in entry.nested_memos() {
        let count = memo.as_u64().and_then(|it| usize::try_from(it).ok());
        if let Some((own, others)) = count.and_then(|it| rest.split_at_checked(it)) {
            *memo = joined(own.to_vec());
            rest = others;
        }
    }
    Ok(entry)
}

impl SavedEntry {
    /// Takes the memos of nested runs out of its records. Returns their parts, and leaves their numbers.
    fn take_nested(&mut self) -> Vec<Value> {
        let mut taken = Vec::new();
        for memo in self.nested_memos() {
            let own = parts(memo.take());
            *memo = own.len().into();
            taken.extend(own);
        }
        taken
    }

    /// Returns the memos in its records that hold entries of nested runs.
    fn nested_memos(&mut self) -> impl Iterator<Item = &mut Value> {
        let of_nested_run = self.records.iter_mut().filter(|it| it.is_of_nested_run());
        of_nested_run.filter_map(|record| match &mut record.outcome {
            Outcome::MemoSaved { value, .. } => Some(value),
            _ => None,
        })
    }
}

impl From<&Entry> for SavedEntry {
    fn from(entry: &Entry) -> Self {
        let Entry { records, commit, run_status, .. } = entry;
        let commit = commit.as_ref().map(|it| (it.position.clone(), it.changes.clone()));
        Self { records: records.clone(), commit, run_status: run_status.clone() }
    }
}

impl From<SavedEntry> for Entry {
    fn from(saved: SavedEntry) -> Self {
        let SavedEntry { records, commit, run_status } = saved;
        let commit = commit.map(|(position, changes)| Commit { position, changes });
        Self { records, commit, run_status, ..Self::default() }
    }
}
