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
use rusqlite::{Connection, TransactionBehavior};
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

    /// Reads all of the database and checks that its tables and indexes agree.
    ///
    /// A damaged value is found whenever it is read; only this finds a row that damage made
    /// disappear. It takes time in proportion to the size of the file, about a millisecond a
    /// megabyte, so it is for the one who is about to go on with a run.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`] when the file is damaged.
    pub async fn verify(&self) -> Result<(), CheckpointError> {
        self.read(format!("check {}", self.0.path.display()), read::verify).await
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
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.transact(TransactionBehavior::Immediate, action, work).await
    }

    /// Reads one snapshot, without keeping a writer waiting.
    async fn read<T: Send + 'static>(
        &self,
        action: String,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.transact(TransactionBehavior::Deferred, action, work).await
    }

    async fn transact<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        action: String,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
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
        self.write(action, move |database| {
            let run = run.insert(database)?;
            step.insert(database, run)?;
            events.insert(database, run)
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
        self.write(action, move |database| {
            let run = Run::find(database, &run)?;
            Refusal::unless_next(run.last_step(database)?, record.step())?;
            record.insert(database, run.key)?;
            events.insert(database, run.key)
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
        self.write(action, move |database| {
            let run = Run::find(database, &run)?;
            Refusal::unless_next(run.last_step(database)?, step.step())?;
            step.insert(database, run.key)?;
            events.insert(database, run.key)
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
        self.write(action, move |database| {
            let run = Run::find(database, &run)?;
            standing.update(database, run.key)?;
            events.insert(database, run.key)
        })
        .await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        let run = run.clone();
        self.read(format!("load run `{run}`"), move |database| {
            let run = Run::find(database, &run)?;
            let position = run.position(database)?;
            Ok(SavedRun {
                summary: run.summary(database)?,
                values: run.values_at(database, position.step)?,
                records: run.records_from(database, position.step.next())?,
                last_seq: run.last_seq(database)?,
                position,
            })
        })
        .await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let id_or_name = id_or_name.to_owned();
        self.read(format!("look for run `{id_or_name}`"), move |database| {
            Run::search(database, &id_or_name)?.summary(database)
        })
        .await
    }

    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        self.read("list the runs".to_owned(), |database| {
            Run::all(database)?.iter().map(|it| it.summary(database)).collect()
        })
        .await
    }

    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read the events of run `{run}`"), move |database| {
            Run::find(database, &run)?.events_after(database, after)
        })
        .await
    }

    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read the records of run `{run}`"), move |database| {
            Run::find(database, &run)?.records_from(database, Step(0))
        })
        .await
    }

    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read step {step} of run `{run}`"), move |database| {
            let run = Run::find(database, &run)?;
            run.require_step(database, step)?;
            run.values_at(database, step)
        })
        .await
    }
}

impl fmt::Debug for SqliteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStorage({})", self.0.path.display())
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, time::Duration};

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::{
        checkpoint::Position,
        state::{Change, ChangeKind},
    };

    fn id() -> RunId {
        RunId::parse("R1").unwrap()
    }

    fn commit(step: u64, text: &str) -> Commit {
        let channel = ChannelName::parse("text").unwrap();
        let position = Position { step: Step(step), ..Position::default() };
        Commit { position, changes: vec![Change { channel, kind: ChangeKind::Set(json!(text)) }] }
    }

    async fn storage_with_a_run(folder: &TempDir) -> SqliteStorage {
        let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
        let info = RunInfo {
            id: id(),
            name: "calm-otter".into(),
            workflow: "dev_team".into(),
            created: "2025-06-01T12:00:00Z".into(),
            origin: Value::Null,
        };
        storage.create(&info, &commit(0, "first"), &[]).await.unwrap();
        storage
    }

    fn with_connection<T>(storage: &SqliteStorage, work: impl FnOnce(&Connection) -> T) -> T {
        work(&storage.0.connection.lock().unwrap())
    }

    #[tokio::test]
    async fn on_a_full_disk_a_step_is_saved_not_at_all_and_later_as_a_whole() {
        let folder = TempDir::new().unwrap();
        let storage = storage_with_a_run(&folder).await;
        let limit_pages = |pages: u32| {
            with_connection(&storage, |it| {
                it.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
            });
        };
        limit_pages(20);
        let large = commit(1, &"x".repeat(100_000));
        let error = storage.commit(&id(), &large, &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "could not save step 1 of run `R1`");
        assert_eq!(error.source().unwrap().to_string(), "database or disk is full");
        assert_eq!(storage.load(&id()).await.unwrap().position, commit(0, "").position);

        limit_pages(1_000_000);
        storage.commit(&id(), &large, &[]).await.unwrap();
        assert_eq!(storage.load(&id()).await.unwrap().position, large.position);
    }

    #[tokio::test]
    async fn a_database_that_stays_locked_is_an_error_that_says_so() {
        let folder = TempDir::new().unwrap();
        let storage = storage_with_a_run(&folder).await;
        with_connection(&storage, |it| it.busy_timeout(Duration::ZERO).unwrap());
        let other = Connection::open(folder.path().join("runs.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = storage.commit(&id(), &commit(1, "x"), &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "could not save step 1 of run `R1`");
        let cause = error.source().unwrap().to_string();
        assert!(cause.ends_with("runs.db locked for too long"), "{cause}");
        // Whoever only reads is not kept waiting.
        assert_eq!(storage.load(&id()).await.unwrap().summary.step, Step(0));
        other.execute_batch("ROLLBACK").unwrap();
        storage.commit(&id(), &commit(1, "x"), &[]).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_in_a_transaction_leaves_nothing_and_stops_nobody() {
        let folder = TempDir::new().unwrap();
        let storage = storage_with_a_run(&folder).await;
        let died: Result<(), _> = storage
            .write("try".to_owned(), |database| {
                database.execute_batch("DELETE FROM positions").unwrap();
                panic!("on purpose")
            })
            .await;
        assert_eq!(died.unwrap_err().to_string(), "could not finish a transaction");
        storage.commit(&id(), &commit(1, "x"), &[]).await.unwrap();
        assert_eq!(storage.load(&id()).await.unwrap().summary.step, Step(1));
    }

    #[tokio::test]
    async fn a_connection_is_set_up_to_keep_what_it_commits() {
        let folder = TempDir::new().unwrap();
        drop(storage_with_a_run(&folder).await);
        let path = folder.path().join("runs.db");
        for storage in [SqliteStorage::open(&path), SqliteStorage::open_existing(&path)] {
            let pragma = |name: &str| -> String {
                let storage = storage.as_ref().unwrap();
                let text = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
                with_connection(storage, |it| it.query_row(&text, [], |row| row.get(0)).unwrap())
            };
            assert_eq!(pragma("journal_mode"), "wal");
            assert_eq!(pragma("synchronous"), "2", "FULL");
            assert_eq!(pragma("foreign_keys"), "1");
            assert_eq!(pragma("trusted_schema"), "0");
            assert_eq!(pragma("cell_size_check"), "1");
            assert_eq!(pragma("application_id"), u32::from_be_bytes(*b"grun").to_string());
            assert_eq!(pragma("user_version"), "1");
            let timeout = |it: &Connection| {
                it.query_row("PRAGMA busy_timeout", [], |row| row.get::<_, u32>(0)).unwrap()
            };
            assert_eq!(with_connection(storage.as_ref().unwrap(), timeout), 5000);
        }
    }
}
