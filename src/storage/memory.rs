//! Runs that live as long as their process: for tests, and for runs nobody needs to resume.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use serde_json::Value;

use super::rules::{ID_PREFIX_LENGTH_MIN, Refusal, ambiguous, apply};
use crate::{
    checkpoint::{
        CheckpointError, Checkpointer, Commit, Position, RunInfo, RunSummary, SavedRun, TaskRecord,
    },
    event::{Stamped, Status},
    id::{ChannelName, RunId, Step, TaskId},
    state::Change,
};

/// Keeps runs in memory.
///
/// It refuses and forgets nothing that [`SqliteStorage`](super::SqliteStorage) would not, except
/// that all is gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    /// In the order in which they were accepted.
    runs: Mutex<Vec<Run>>,
}

#[derive(Debug)]
struct Run {
    info: RunInfo,
    status: Status,
    reason: Option<String>,
    /// Never empty.
    steps: Vec<Commit>,
    records: Vec<TaskRecord>,
    /// The tasks of the step that is not committed yet whose records are final.
    finished: BTreeSet<TaskId>,
    events: BTreeMap<u64, Stamped>,
}

impl MemoryStorage {
    /// The lock is only ever held between two awaits, and every write checks before it changes
    /// anything; so a panic of another holder leaves nothing half-done.
    fn runs(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(
        &self,
        id: &RunId,
        look: impl FnOnce(&Run) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let runs = self.runs();
        let run = runs.iter().find(|it| it.info.id == *id);
        look(run.ok_or_else(|| CheckpointError::UnknownRun(id.to_string()))?)
    }

    fn write(
        &self,
        id: &RunId,
        action: impl FnOnce() -> String,
        change: impl FnOnce(&mut Run) -> Result<(), Refusal>,
    ) -> Result<(), CheckpointError> {
        let mut runs = self.runs();
        let run = runs.iter_mut().find(|it| it.info.id == *id);
        let run = run.ok_or_else(|| CheckpointError::UnknownRun(id.to_string()))?;
        change(run).map_err(|refusal| refusal.explain(action()))
    }
}

#[async_trait]
impl Checkpointer for MemoryStorage {
    async fn create(
        &self,
        info: &RunInfo,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let mut runs = self.runs();
        for taken in runs.iter().map(|it| &it.info) {
            if taken.id == info.id {
                return Err(CheckpointError::Exists(info.id.to_string()));
            }
            if taken.name == info.name {
                return Err(CheckpointError::Exists(info.name.clone()));
            }
        }
        let mut run = Run {
            info: info.clone(),
            status: Status::Running,
            reason: None,
            steps: Vec::new(),
            records: Vec::new(),
            finished: BTreeSet::new(),
            events: BTreeMap::new(),
        };
        check_changes(&commit.changes)
            .and_then(|()| run.check_events(events))
            .map_err(|refusal| refusal.explain(format!("accept run `{}`", info.id)))?;
        run.steps.push(commit.clone());
        run.add_events(events);
        runs.push(run);
        Ok(())
    }

    async fn record(
        &self,
        run: &RunId,
        record: &TaskRecord,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = || format!("save the outcome of task {} of run `{run}`", record.task);
        self.write(run, action, |run| {
            Refusal::unless_next(run.position().step, record.task.step)?;
            if record.outcome.is_final() && run.finished.contains(&record.task) {
                return Err(Refusal::FinishedTwice(record.task));
            }
            run.check_events(events)?;
            if record.outcome.is_final() {
                run.finished.insert(record.task);
            }
            run.records.push(record.clone());
            run.add_events(events);
            Ok(())
        })
    }

    async fn commit(
        &self,
        run: &RunId,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = || format!("save step {} of run `{run}`", commit.position.step);
        self.write(run, action, |run| {
            Refusal::unless_next(run.position().step, commit.position.step)?;
            check_changes(&commit.changes)?;
            run.check_events(events)?;
            run.steps.push(commit.clone());
            run.finished.clear();
            run.add_events(events);
            Ok(())
        })
    }

    async fn set_status(
        &self,
        run: &RunId,
        status: Status,
        reason: Option<&str>,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = || format!("save that run `{run}` is {}", status.as_str());
        self.write(run, action, |run| {
            run.check_events(events)?;
            run.status = status;
            run.reason = reason.map(str::to_owned);
            run.add_events(events);
            Ok(())
        })
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.read(run, |run| {
            let position = run.position().clone();
            let open = |it: &&TaskRecord| it.task.step > position.step;
            Ok(SavedRun {
                summary: run.summary(),
                values: run.values_at(position.step)?,
                records: run.records.iter().filter(open).cloned().collect(),
                last_seq: run.events.keys().last().copied().unwrap_or(0),
                position,
            })
        })
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let runs = self.runs();
        let exact = runs
            .iter()
            .find(|it| it.info.id.as_str() == id_or_name)
            .or_else(|| runs.iter().find(|it| it.info.name == id_or_name));
        if let Some(run) = exact {
            return Ok(run.summary());
        }
        let begins = |it: &&Run| {
            id_or_name.len() >= ID_PREFIX_LENGTH_MIN && it.info.id.as_str().starts_with(id_or_name)
        };
        match runs.iter().filter(begins).collect::<Vec<_>>().as_slice() {
            [] => Err(CheckpointError::UnknownRun(id_or_name.to_owned())),
            [only] => Ok(only.summary()),
            several => {
                let mut ids: Vec<String> =
                    several.iter().map(|it| it.info.id.to_string()).collect();
                ids.sort();
                Err(ambiguous(id_or_name, &ids))
            }
        }
    }

    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        Ok(self.runs().iter().rev().map(Run::summary).collect())
    }

    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError> {
        self.read(run, |run| Ok(run.events.values().filter(|it| it.seq > after).cloned().collect()))
    }

    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        self.read(run, |run| Ok(run.records.clone()))
    }

    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        self.read(run, |run| run.values_at(step))
    }
}

impl Run {
    fn position(&self) -> &Position {
        &self.steps.last().expect("a run is made with its first position").position
    }

    fn summary(&self) -> RunSummary {
        RunSummary {
            info: self.info.clone(),
            status: self.status,
            reason: self.reason.clone(),
            step: self.position().step,
        }
    }

    fn values_at(&self, step: Step) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        if !self.steps.iter().any(|it| it.position.step == step) {
            return Err(CheckpointError::UnknownStep { run: self.info.id.clone(), step });
        }
        let mut values = BTreeMap::new();
        for commit in self.steps.iter().take_while(|it| it.position.step <= step) {
            for change in &commit.changes {
                apply(&mut values, change.clone()).map_err(|error| CheckpointError::Damaged {
                    run: self.info.id.to_string(),
                    what: format!(
                        "the channel `{}` at step {}",
                        change.channel, commit.position.step
                    ),
                    source: error.into(),
                })?;
            }
        }
        Ok(values)
    }

    fn check_events(&self, events: &[Stamped]) -> Result<(), Refusal> {
        let mut new = BTreeSet::new();
        for event in events {
            if self.events.contains_key(&event.seq) || !new.insert(event.seq) {
                return Err(Refusal::EventTwice(event.seq));
            }
        }
        Ok(())
    }

    fn add_events(&mut self, events: &[Stamped]) {
        self.events.extend(events.iter().map(|it| (it.seq, it.clone())));
    }
}

fn check_changes(changes: &[Change]) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    match changes.iter().find(|it| !seen.insert(&it.channel)) {
        Some(again) => Err(Refusal::ChangedTwice(again.channel.clone())),
        None => Ok(()),
    }
}
