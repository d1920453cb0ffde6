//! Runs in a SQLite database, which survive the process and the power.
//!
//! `open` decides what a file may be, `read` and `write` are the SQL, `payload` the form of what is written,
//! `fault` the errors. Here a call of the trait becomes one transaction.

mod fault;
mod open;
mod payload;
mod read;
mod write;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::Value;

use self::{
    fault::Fault,
    read::Run,
    write::{NewEvents, NewRecord, NewRun, NewStanding, NewStep},
};
use super::rules::Refusal;
use crate::{
    checkpoint::{
        CheckpointError, Checkpointer, Commit, RunInfo, RunSummary, SavedRun, TaskRecord,
    },
    event::{Stamped, Status},
    id::{ChannelName, RunId, Step},
};

/// Keeps runs in a SQLite database.
///
/// Clones share one connection. Several processes may use one database at the same time, each with
/// runs of its own.
#[derive(Clone)]
pub struct SqliteStorage(Arc<Database>);

struct Database {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl SqliteStorage {
    /// Opens a database, and makes it if there is none: the file for its owner's eyes only, in a
    /// folder that, if it is made as well, is too.
    ///
    /// This reads and writes files and does not wait for them in the `async` way.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`], and leaves the file as it is, when there is
    /// something else at that path, or a database of a newer format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        Ok(Self::new(path, open::open(path)?))
    }

    /// Opens a database to look for runs in it. It never makes one.
    ///
    /// # Errors
    ///
    /// As [`SqliteStorage::open`], and also when there is no file or it is empty.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        Ok(Self::new(path, open::open_existing(path)?))
    }

    fn new(path: &Path, connection: Connection) -> Self {
        Self(Arc::new(Database { path: path.to_owned(), connection: Mutex::new(connection) }))
    }

    /// Writes in one transaction.
    ///
    /// Only `IMMEDIATE` ones wait for other writers: a transaction that starts with reading and
    /// finds its snapshot outdated when it comes to write fails at once.
    async fn write<T: Send + 'static>(
        &self,
        action: String,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.transact(TransactionBehavior::Immediate, action, work).await
    }

    /// Reads one snapshot, without keeping a writer waiting.
    async fn read<T: Send + 'static>(
        &self,
        action: String,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.transact(TransactionBehavior::Deferred, action, work).await
    }

    async fn transact<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        action: String,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let database = Arc::clone(&self.0);
        let task = tokio::task::spawn_blocking(move || {
            // A panic while the lock was held rolled its transaction back; there is nothing to fear.
            let mut connection = database.connection.lock().unwrap_or_else(PoisonError::into_inner);
            let work = || -> Result<T, Fault> {
                let transaction = connection.transaction_with_behavior(behavior)?;
                let made = work(&transaction)?;
                transaction.commit()?;
                Ok(made)
            };
            work().map_err(|fault| fault.explain(&database.path, action))
        });
        task.await.unwrap_or_else(|error| {
            Err(CheckpointError::Storage {
                action: "finish a transaction".to_owned(),
                source: error.into(),
            })
        })
    }

    /// The error for what could not be written down before there was a transaction.
    fn unprepared(&self, action: &str) -> impl Fn(Fault) -> CheckpointError {
        |fault| fault.explain(&self.0.path, action.to_owned())
    }
}

#[async_trait]
impl Checkpointer for SqliteStorage {
    async fn create(
        &self,
        info: &RunInfo,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = format!("accept run `{}`", info.id);
        let prepare = || {
            Ok((
                NewRun::of(info)?,
                NewStep::of(&info.id, commit)?,
                NewEvents::of(&info.id, events)?,
            ))
        };
        let (run, step, events) = prepare().map_err(self.unprepared(&action))?;
        self.write(action, move |transaction| {
            let run = run.insert(transaction)?;
            step.insert(transaction, run)?;
            events.insert(transaction, run)
        })
        .await
    }

    async fn record(
        &self,
        run: &RunId,
        record: &TaskRecord,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = format!("save the outcome of task {} of run `{run}`", record.task);
        let prepare = || Ok((NewRecord::of(run, record)?, NewEvents::of(run, events)?));
        let (record, events) = prepare().map_err(self.unprepared(&action))?;
        let run = run.clone();
        self.write(action, move |transaction| {
            let run = Run::find(transaction, &run)?;
            Refusal::unless_next(run.last_step(transaction)?, record.step())?;
            record.insert(transaction, run.key)?;
            events.insert(transaction, run.key)
        })
        .await
    }

    async fn commit(
        &self,
        run: &RunId,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = format!("save step {} of run `{run}`", commit.position.step);
        let prepare = || Ok((NewStep::of(run, commit)?, NewEvents::of(run, events)?));
        let (step, events) = prepare().map_err(self.unprepared(&action))?;
        let run = run.clone();
        self.write(action, move |transaction| {
            let run = Run::find(transaction, &run)?;
            Refusal::unless_next(run.last_step(transaction)?, step.step())?;
            step.insert(transaction, run.key)?;
            events.insert(transaction, run.key)
        })
        .await
    }

    async fn set_status(
        &self,
        run: &RunId,
        status: Status,
        reason: Option<&str>,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        let action = format!("save that run `{run}` is {}", status.as_str());
        let prepare = || Ok((NewStanding::of(run, status, reason)?, NewEvents::of(run, events)?));
        let (standing, events) = prepare().map_err(self.unprepared(&action))?;
        let run = run.clone();
        self.write(action, move |transaction| {
            let run = Run::find(transaction, &run)?;
            standing.update(transaction, run.key)?;
            events.insert(transaction, run.key)
        })
        .await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        let run = run.clone();
        self.read(format!("load run `{run}`"), move |transaction| {
            let run = Run::find(transaction, &run)?;
            let position = run.position(transaction)?;
            Ok(SavedRun {
                summary: run.summary(transaction)?,
                values: run.values_at(transaction, position.step)?,
                records: run.records_from(transaction, position.step.next())?,
                last_seq: run.last_seq(transaction)?,
                position,
            })
        })
        .await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let id_or_name = id_or_name.to_owned();
        self.read(format!("look for run `{id_or_name}`"), move |transaction| {
            Run::search(transaction, &id_or_name)?.summary(transaction)
        })
        .await
    }

    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        self.read("list the runs".to_owned(), |transaction| {
            Run::all(transaction)?.iter().map(|it| it.summary(transaction)).collect()
        })
        .await
    }

    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read the events of run `{run}`"), move |transaction| {
            Run::find(transaction, &run)?.events_after(transaction, after)
        })
        .await
    }

    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read the records of run `{run}`"), move |transaction| {
            Run::find(transaction, &run)?.records_from(transaction, Step(0))
        })
        .await
    }

    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read step {step} of run `{run}`"), move |transaction| {
            let run = Run::find(transaction, &run)?;
            run.require_step(transaction, step)?;
            run.values_at(transaction, step)
        })
        .await
    }
}

impl fmt::Debug for SqliteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStorage({})", self.0.path.display())
    }
}
