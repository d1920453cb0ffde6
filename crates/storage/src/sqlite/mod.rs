//! Runs in a SQLite database, which survive a crash and a power failure.
//!
//! `open` decides which files are accepted, `migrate` updates older formats, `database` runs
//! transactions, `run` and `entries` are the SQL, `fault` the errors. The format is that of
//! `storage/journal`. Here, each call of the trait becomes one transaction.

mod create;
mod database;
mod entries;
mod fault;
mod group;
mod head_cache;
mod held_file;
mod identity;
mod lone_run;
mod migrate;
mod no_access;
mod open;
mod payload;
mod reserve;
mod results;
mod run;
mod tools;
mod write;

use std::{fmt, fs::File, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use graphrun_core::id::{RunId, Step};
use graphrun_engine::{
    checkpoint::{
        CheckpointError, Detail, Entry, InboxMessage, JournalEntry, LeaseRequest, LeaseToken,
        Message, RunHistory, RunInbox, RunInfo, RunJournal, RunLeases, RunList, RunListItem,
        RunMaintenance, RunSummary, SavedCheckpoint, SavedRun,
    },
    storage::rules::{check_fence, check_post},
};
use rusqlite::Connection;

pub use self::open::{FileConnection, FileKind, explain};
use self::{
    database::{Database, Mode, verify},
    fault::Fault,
    run::Run,
    write::{NewRun, Write},
};
use super::journal::{self, Codec};

/// Keeps runs in a SQLite database.
///
/// Clones share one connection. Several processes may use one database at the same time; each run
/// has one owner.
#[derive(Clone)]
pub struct SqliteStorage {
    database: Arc<Database>,
    threads: Threads,
}

/// The threads that run transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    /// On a thread for blocking work; the caller awaits it.
    Others,
    /// On the thread of the caller.
    Same,
}

impl SqliteStorage {
    /// Opens a database and creates it if it is missing, whole or not at all. Only its owner can
    /// read the file, and its folder if that is created as well.
    ///
    /// This blocks on file access.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`], and leaves the file unchanged, when something else
    /// is at that path, or a database of a newer format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::open_with(path.as_ref(), |_| ())
    }

    /// Same as `open`, and passes a new file to `announce` before the file gets its name. A process
    /// that dies in between has announced too much, never too little.
    pub fn open_with(path: &Path, announce: impl FnOnce(&File)) -> Result<Self, CheckpointError> {
        Self::new(path, open::RUNS.open(path, announce)?)
    }

    /// Opens a database to look for runs. It never creates one.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStorage::open`], and when there is no file or it is empty.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        Self::new(path, open::RUNS.open_existing(path)?)
    }

    /// Opens a database to look for runs; returns none if there is no file. It never creates one.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStorage::open_existing`], and when only the log of a database is there.
    pub fn find(path: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        let path = path.as_ref();
        open::RUNS.find(path)?.map(|it| Self::new(path, it)).transpose()
    }

    /// Opens a database to read, as `find` does, also one that this user may not write, and on a full disk. Nothing is created
    /// beside it then, and methods that write fail with [`CheckpointError::Unusable`].
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStorage::find`], and for a database of an older format that this user may not write.
    pub fn find_to_read(path: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        let path = path.as_ref();
        open::RUNS.find_to_read(path)?.map(|it| Self::new(path, it)).transpose()
    }

    /// Opens a database to remove runs, as `find` does. On a full disk, the reserved space makes room for what opening needs.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStorage::find`].
    pub fn find_to_remove(path: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        let path = path.as_ref();
        match Self::find(path) {
            Err(_) if path.is_file() && reserve::give_up(path) => Self::find(path),
            found => found,
        }
    }

    /// Runs transactions on the thread of the caller from now on. The default hands a
    /// transaction to another thread and waits for it, unless it saves an entry of the only run and the last ones were
    /// quick; with this setting, a step wakes no other thread.
    ///
    /// Other tasks of that thread wait for the disk. So this is for a runtime with more threads
    /// than runs, such as that of a program with one run.
    #[must_use]
    pub fn on_the_same_thread(self) -> Self {
        Self { threads: Threads::Same, ..self }
    }

    /// Reads the whole database and checks that its tables and indexes agree.
    ///
    /// Reading a damaged value always fails; only this check finds rows that disappeared through
    /// damage. It takes about a millisecond per megabyte of the file, so call it before you resume
    /// a run.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`] when the file is damaged.
    pub async fn verify(&self) -> Result<(), CheckpointError> {
        self.read(format!("check {}", self.database.path().display()), |database, _| {
            verify(database)
        })
        .await
    }

    fn new(path: &Path, connection: FileConnection) -> Result<Self, CheckpointError> {
        let database = Arc::new(Database::new(path, connection)?);
        Ok(Self { database, threads: Threads::Others })
    }

    async fn save(&self, write: Write<'_>) -> Result<LeaseToken, CheckpointError> {
        match self.threads {
            Threads::Same => self.database.save(write),
            Threads::Others => group::save(&self.database, write).await,
        }
    }

    /// Writes in one transaction.
    async fn write<T: Send + 'static>(
        &self,
        action: String,
        work: impl FnOnce(&Connection, &mut Codec) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.transact(Mode::Write, action, work).await
    }

    /// Writes with access to the reserved space, so that a run is not lost.
    async fn write_at_need<T: Send + 'static>(
        &self,
        action: String,
        work: impl Fn(&Connection, &mut Codec) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.ask(move |database| database.write_at_need(&action, work)).await
    }

    /// Reads one snapshot without blocking a writer.
    async fn read<T: Send + 'static>(
        &self,
        action: String,
        work: impl FnOnce(&Connection, &mut Codec) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.transact(Mode::Read, action, work).await
    }

    async fn transact<T: Send + 'static>(
        &self,
        mode: Mode,
        action: String,
        work: impl FnOnce(&Connection, &mut Codec) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.ask(move |database| database.transact(mode, action, work)).await
    }

    /// Runs a closure on the configured thread.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        match self.threads {
            Threads::Same => work(&self.database),
            Threads::Others => {
                let database = Arc::clone(&self.database);
                let asked = tokio::task::spawn_blocking(move || work(&database));
                asked.await.unwrap_or_else(|error| {
                    let action = "finish a transaction".to_owned();
                    Err(CheckpointError::Storage { action, source: error.into() })
                })
            }
        }
    }
}

#[async_trait]
impl RunJournal for SqliteStorage {
    async fn create(
        &self,
        info: &RunInfo,
        request: &LeaseRequest,
        first: &Entry,
    ) -> Result<LeaseToken, CheckpointError> {
        let json = journal::info(info)?;
        let write = Write::Run(NewRun { info, json: &json, request, first });
        self.save(write).await.inspect(|_| reserve::keep(self.database.path()))
    }

    async fn append(&self, token: &LeaseToken, entry: &Entry) -> Result<(), CheckpointError> {
        self.save(Write::Entry(token, entry)).await.map(drop)
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        let run = run.clone();
        self.read(format!("load run `{run}`"), move |database, codec| {
            let run = Run::find(database, &run)?;
            let stored = run.stored_head(database)?;
            let journal = run.journal(database).up_to_step(codec, stored.head.step)?;
            let SavedCheckpoint { position, values } =
                journal.checkpoint_at(codec, stored.head.step)?;
            Ok(SavedRun {
                summary: run.summary(database)?,
                position,
                values,
                records: journal.open_records(codec)?,
                last_seq: stored.head.seq,
                last_entry: stored.head.number,
                entries_read: journal.len() as u64,
            })
        })
        .await
    }

    async fn keep_values(
        &self,
        token: &LeaseToken,
        saved: &SavedRun,
    ) -> Result<(), CheckpointError> {
        let action = format!("keep the values of run `{}`", token.run);
        let token = token.clone();
        let saved = saved.clone();
        self.write(action, move |database, codec| {
            let run = Run::find(database, &token.run)?;
            let stored = run.stored_head(database)?;
            check_fence(stored.lease.info().as_ref(), token.fence)?;
            run.journal(database).keep_values(codec, &saved)
        })
        .await
    }
}

#[async_trait]
impl RunLeases for SqliteStorage {
    async fn acquire(
        &self,
        run: &RunId,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, CheckpointError> {
        let action = format!("acquire run `{run}`");
        let run = run.clone();
        let request = request.clone();
        self.write_at_need(action, move |database, _| {
            Run::find(database, &run)?.acquire(database, &request)
        })
        .await
        .inspect(|_| reserve::keep(self.database.path()))
    }

    async fn renew(&self, token: &LeaseToken, ttl: Duration) -> Result<(), CheckpointError> {
        self.save(Write::Renewal(token, ttl)).await.map(drop)
    }

    async fn release(&self, token: &LeaseToken) -> Result<(), CheckpointError> {
        let action = format!("release run `{}`", token.run);
        let token = token.clone();
        self.write_at_need(action, move |database, _| {
            Run::find(database, &token.run)?.take_back(database, token.fence)
        })
        .await
    }
}

#[async_trait]
impl RunInbox for SqliteStorage {
    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        message.check(run)?;
        if let Some(number) = check_post(self, run, message).await? {
            return Ok(number);
        }
        let run = run.clone();
        let message = message.clone();
        self.write(format!("send a message to run `{run}`"), move |database, _| {
            Run::find(database, &run)?.post(database, &message)
        })
        .await
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<InboxMessage>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read the messages to run `{run}`"), move |database, _| {
            Run::find(database, &run)?.inbox(database, after)
        })
        .await
    }
}

#[async_trait]
impl RunList for SqliteStorage {
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let id_or_name = id_or_name.to_owned();
        self.read(format!("find run `{id_or_name}`"), move |database, _| {
            Run::search(database, &id_or_name)?.summary(database)
        })
        .await
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunListItem>, CheckpointError> {
        let before = before.cloned();
        self.read("list the runs".to_owned(), move |database, _| {
            let runs = Run::newest(database, before.as_ref(), limit)?;
            let listed =
                runs.into_iter().map(|run| match run.and_then(|it| it.summary(database)) {
                    Ok(summary) => Ok(Ok(summary)),
                    Err(Fault::Known(damaged @ CheckpointError::Damaged { .. })) => {
                        Ok(Err(damaged))
                    }
                    // The whole database failed, not one run.
                    Err(fault) => Err(fault),
                });
            listed.collect()
        })
        .await
    }

    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError> {
        self.read("list the runs".to_owned(), |database, _| {
            let runs = Run::newest(database, None, usize::MAX)?;
            runs.into_iter().map(|it| Ok(it?.id)).collect()
        })
        .await
    }
}

#[async_trait]
impl RunHistory for SqliteStorage {
    async fn entries(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        let run = run.clone();
        self.read(format!("read the journal of run `{run}`"), move |database, codec| {
            let run = Run::find(database, &run)?;
            let mut logged =
                run.journal(database).after(after, limit)?.entries(codec, after, detail)?;
            logged.truncate(limit);
            Ok(logged)
        })
        .await
    }

    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<SavedCheckpoint, CheckpointError> {
        let run = run.clone();
        self.read(format!("read step {step} of run `{run}`"), move |database, codec| {
            let run = Run::find(database, &run)?;
            Ok(run.journal(database).up_to_step(codec, step)?.checkpoint_at(codec, step)?)
        })
        .await
    }
}

#[async_trait]
impl RunMaintenance for SqliteStorage {
    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        let run = run.clone();
        // A full disk must not keep a run from being removed.
        self.write_at_need(format!("remove run `{run}`"), move |database, _| {
            let run = Run::find(database, &run)?;
            run.require_free(database)?;
            database.execute("DELETE FROM runs WHERE key = ?", [run.key])?;
            Ok(())
        })
        .await
    }

    async fn check(&self) -> Result<(), CheckpointError> {
        self.verify().await
    }

    async fn compact(&self) -> Result<(), CheckpointError> {
        let database = Arc::clone(&self.database);
        let task = tokio::task::spawn_blocking(move || database.compact());
        task.await.unwrap_or_else(|error| {
            let action = "make the database smaller".to_owned();
            Err(CheckpointError::Storage { action, source: error.into() })
        })
    }
}

impl fmt::Debug for SqliteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStorage({})", self.database.path().display())
    }
}

#[cfg(test)]
mod tests;
