//! The steps of a run, from its journal: tasks, writers of changes, and next nodes.

use serde::Serialize;

use crate::{
    checkpoint::{EntryHash, JournalEntry, Outcome, TaskRecord},
    id::{NodeName, Step, TaskId},
    state::ChangeKind,
};

/// A committed step.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryStep {
    pub(crate) step: Step,
    /// The number of the entry that committed it.
    pub(crate) entry: u64,
    pub(crate) hash: EntryHash,
    /// When it was committed.
    pub(crate) ts: Option<String>,
    pub(crate) tasks: Vec<HistoryTask>,
    pub(crate) changes: Vec<ChangedField>,
    /// The fields that a person wrote or cleared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) by_hand: Vec<String>,
    /// The next nodes.
    pub(crate) next: Vec<NodeName>,
    /// The number of the turn that begins with the step, after the first one of a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<u64>,
    /// The workflow after a migration, if the step is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) migrated_to: Option<String>,
}

/// A task whose result is part of a step.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryTask {
    pub(crate) task: TaskId,
    pub(crate) node: NodeName,
    pub(crate) attempt: u32,
    pub(crate) outcome: &'static str,
    pub(crate) writes: Vec<String>,
}

/// A field that a step changed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedField {
    pub(crate) field: String,
    /// `set`, `appended` or `cleared`.
    pub(crate) kind: &'static str,
}

/// The writer of a field in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Writer {
    pub(crate) step: Step,
    /// The node; none for the input and for changes by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<NodeName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<TaskId>,
    /// Whether a migration wrote the field.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_migration: bool,
    /// The turn of a thread whose input is the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<u64>,
}

/// Reads the committed steps of a journal, including the first one.
pub(crate) fn steps(journal: Vec<JournalEntry>) -> Vec<HistoryStep> {
    let mut steps = Vec::new();
    let mut tasks = Vec::new();
    let mut still_open = Vec::new();
    for JournalEntry { number, hash, entry } in journal {
        tasks.append(&mut still_open);
        tasks.extend(entry.records.iter().filter_map(HistoryTask::of));
        let turn = entry.begun_turn();
        let by_hand = entry.written_by_hand().to_vec();
        let Some(commit) = entry.commit else { continue };
        let mut tasks = std::mem::take(&mut tasks);
        tasks.sort_by_key(|it: &HistoryTask| it.task);
        // The turn is listed, and not its other options.
        let migration = entry.migration.filter(|_| turn.is_none());
        let migrated_to = migration.map(|migration| {
            // The next step takes in the results that tasks had before the migration.
            still_open = migration.records.iter().filter_map(HistoryTask::of).collect();
            tasks.clear();
            migration.to.workflow
        });
        let changes = commit.changes.iter().map(|change| ChangedField {
            field: change.channel.to_string(),
            kind: match change.kind {
                ChangeKind::Set(_) => "set",
                ChangeKind::Appended(_) => "appended",
                ChangeKind::Cleared => "cleared",
            },
        });
        steps.push(HistoryStep {
            step: commit.position.step,
            entry: number,
            hash,
            ts: entry.events.last().map(|it| it.ts.clone()),
            tasks,
            changes: changes.collect(),
            by_hand,
            turn,
            next: commit.position.frontier.into_iter().map(|it| it.node).collect(),
            migrated_to,
        });
    }
    steps
}

impl HistoryTask {
    /// Returns the task of a record; none if it failed and ran again, or asked a question.
    fn of(record: &TaskRecord) -> Option<Self> {
        let (outcome, writes) = match &record.outcome {
            Outcome::Finished { update, .. } => {
                let written = update.writes.iter().map(|(name, _)| name);
                let mut writes: Vec<String> =
                    update.clears.iter().chain(written).map(ToString::to_string).collect();
                writes.dedup();
                ("finished", writes)
            }
            Outcome::Caught { .. } => ("caught", Vec::new()),
            Outcome::Skipped { .. } => ("skipped", Vec::new()),
            _ => return None,
        };
        let task = record.task;
        let node = record.node.clone();
        let attempt = record.attempt;
        Some(Self { task, node, attempt, outcome, writes })
    }
}

impl HistoryStep {
    /// Returns the writers of a field in this step: the tasks in the order of their updates, then a person, or a
    /// writer without a task if no task changed it.
    pub(crate) fn writers(&self, field: &str) -> Vec<Writer> {
        let mut writers: Vec<Writer> = self
            .tasks
            .iter()
            .filter(|task| task.writes.iter().any(|it| it == field))
            .map(|task| {
                let node = Some(task.node.clone());
                let task = Some(task.task);
                Writer { node, task, ..Writer::without_task(self.step) }
            })
            .collect();
        let is_by_hand = self.by_hand.iter().any(|it| it == field);
        let is_changed = self.changes.iter().any(|it| it.field == field);
        if is_by_hand || writers.is_empty() && is_changed {
            let is_migration = self.migrated_to.is_some();
            writers.push(Writer {
                is_migration,
                turn: self.turn,
                ..Writer::without_task(self.step)
            });
        }
        writers
    }
}

impl Writer {
    /// A person, or the input, unless more is known.
    pub(crate) fn without_task(step: Step) -> Self {
        Self { step, node: None, task: None, is_migration: false, turn: None }
    }

    /// Returns the writer as text for people.
    pub(crate) fn describe(&self) -> String {
        let who = match (&self.node, self.turn) {
            (Some(node), _) => node.to_string(),
            (None, Some(turn)) => format!("the input of turn {turn}"),
            (None, None) if self.step == Step(0) => return "the beginning".to_owned(),
            (None, None) if self.is_migration => "the migration".to_owned(),
            (None, None) => "by hand".to_owned(),
        };
        format!("{who} (step {})", self.step)
    }
}
