//! Runs in a PostgreSQL database, which many processes on many machines may share.
//!
//! `place` and `tls` describe the connection; `open` checks and creates the tables, `migrate`
//! updates older formats; `session` runs transactions, `fault` has their errors. The memory across
//! runs uses these, too. `work` has one type for each transaction of a run, and `statements` those that are one
//! statement; `run` and `entries` are the SQL, and `run_server` keeps what a process need not read again. The format is that
//! of `storage/journal`. Here, each call of the trait becomes one transaction, or a part of one: `group` saves entries together, and
//! `renewals` renews leases together.

mod cached_heads;
mod entries;
mod fault;
mod group;
mod inbox;
mod migrate;
mod open;
mod place;
mod renewals;
mod results;
mod run;
mod run_server;
mod session;
mod statements;
mod tables;
mod tls;
mod work;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use graphrun_core::id::{RunId, Step};
use graphrun_engine::{
    checkpoint::{
        CheckpointError, Detail, Entry, InboxMessage, JournalEntry, LeaseRequest, LeaseToken,
        Message, RunHistory, RunInbox, RunInfo, RunJournal, RunLeases, RunList, RunListItem,
        RunMaintenance, RunSummary, SavedCheckpoint, SavedRun,
    },
    storage::rules::check_post,
};

use self::{
    entries::Begin,
    group::GroupedWrite,
    inbox::{Inbox, Post},
    place::DatabaseAddress,
    run_server::RunServer,
    tables::OwnedRunQueries,
    work::{
        Acquire, Append, Check, Create, Entries, Ids, KeepValues, Newest, Release, Remove, Search,
        UpToStep,
    },
};
pub use self::{
    fault::Fault,
    open::{Missing, Traits},
    session::{Mode, Server, Session, Work, get},
    tables::Tables,
};
use super::{
    journal::{self, Codec, KeptValues},
    migrations::Migrations,
};

/// The tables of runs, in their first format.
const TABLES: Tables = Tables {
    schema: "graphrun",
    format_table: "graphrun_format",
    names: &["runs", "heads", "journal", "kept_values", "inbox", "results"],
    sql: include_str!("schema.sql"),
    migrations: Migrations(&[]),
    owned: Some(OwnedRunQueries {
        lock: "LOCK TABLE heads IN EXCLUSIVE MODE",
        run: "SELECT r.id FROM heads h JOIN runs r ON r.key = h.run
              WHERE h.owner IS NOT NULL
                  AND h.until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
              LIMIT 1",
    }),
};

/// Keeps runs in a PostgreSQL database.
///
/// Clones share their connections: a few, opened on demand, one of them reserved for leases.
/// Several processes on several machines may use one database at the same time; each run has one
/// owner. The clock of the server decides when leases end.
///
/// A saved entry is on the disk of the server, and of the standbys in its
/// `synchronous_standby_names`.
#[derive(Clone)]
pub struct PostgresStorage {
    runs: Arc<RunServer>,
    traits: Arc<Traits>,
}

impl PostgresStorage {
    /// Opens the database of a libpq URL, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, and
    /// creates missing tables.
    ///
    /// The tables are in the schema `graphrun`, or in that of the URL parameter `schema=NAME`.
    /// `sslmode` is one of `disable`, `prefer`, `require` and `verify-full`. Only the last one
    /// verifies the identity of the server, with the authorities of this system or those in the
    /// file of `sslrootcert`.
    ///
    /// This call blocks until the server answers.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`] when the server does not answer or rejects this
    /// user, when the tables cannot be created or have a newer format, or when another program uses
    /// the schema. No error shows the password.
    pub fn open(url: &str) -> Result<Self, CheckpointError> {
        let (server, traits) = Server::open(url, &TABLES, Missing::Make)?;
        Self::new(server, traits.expect("missing tables are created"))
    }

    /// Opens a database to look for runs. Returns none if it has no tables, and creates none.
    ///
    /// # Errors
    ///
    /// Same as [`PostgresStorage::open`].
    pub fn open_existing(url: &str) -> Result<Option<Self>, CheckpointError> {
        let (server, traits) = Server::open(url, &TABLES, Missing::Leave)?;
        traits.map(|traits| Self::new(server, traits)).transpose()
    }

    /// Opens a database as [`open_existing`](Self::open_existing) does, and checks that this user could create the tables.
    ///
    /// # Errors
    ///
    /// Same as [`PostgresStorage::open`].
    pub fn check(url: &str) -> Result<Option<Self>, CheckpointError> {
        let (server, traits) = Server::open(url, &TABLES, Missing::Check)?;
        traits.map(|traits| Self::new(server, traits)).transpose()
    }

    fn new(server: Arc<Server>, traits: Traits) -> Result<Self, CheckpointError> {
        Ok(Self { runs: Arc::new(RunServer::new(server)?), traits: Arc::new(traits) })
    }

    /// Returns a URL without its password; none if it cannot be parsed.
    pub fn shown(url: &str) -> Option<String> {
        DatabaseAddress::parse(url, TABLES.schema).ok().map(|it| it.to_string())
    }

    /// Returns a short description of the server.
    pub fn server(&self) -> String {
        let version = &self.traits.version;
        let fsync = if self.traits.fsync {
            ""
        } else {
            "; its `fsync` is off: no run survives a power cut"
        };
        format!("PostgreSQL {version}{fsync}")
    }

    async fn transact<W: Work>(
        &self,
        action: String,
        work: W,
    ) -> Result<W::Output, CheckpointError> {
        self.runs.server.run(action, work).await
    }

    /// Reads a run up to a step, or up to its last one, and computes a value from it.
    async fn read<T: Send + 'static>(
        &self,
        action: String,
        work: UpToStep,
        make: impl FnOnce(
            &run::StoredRun,
            journal::Reader<'_>,
            &mut Codec,
        ) -> Result<T, CheckpointError>
        + Send
        + 'static,
    ) -> Result<T, CheckpointError> {
        let (found, pages) = self.transact(action.clone(), work.clone()).await?;
        let made = self.runs.compute(move |codec| match pages.unpack_kept(codec) {
            Ok(kept) => make(&found, pages.reader(&found.run.id, kept)?, codec).map(Ok),
            Err(_) => Ok(Err(make)),
        });
        let make = match made.await? {
            Ok(made) => return Ok(made),
            Err(make) => make,
        };
        // Damaged values cost the time that they would have saved.
        let work = UpToStep { begin: Begin::FirstEntry, ..work };
        let (found, pages) = self.transact(action, work).await?;
        let made = move |codec: &mut Codec| make(&found, pages.reader(&found.run.id, None)?, codec);
        self.runs.compute(made).await
    }
}

#[async_trait]
impl RunJournal for PostgresStorage {
    async fn create(
        &self,
        info: &RunInfo,
        request: &LeaseRequest,
        first: &Entry,
    ) -> Result<LeaseToken, CheckpointError> {
        let json = journal::info(info)?;
        let info = info.clone();
        let request = request.clone();
        let first = first.clone();
        let server = Arc::clone(&self.runs);
        let create = Create { info, json, request, first, server };
        group::save(&self.runs, GroupedWrite::Run(Box::new(create))).await
    }

    async fn append(&self, token: &LeaseToken, entry: &Entry) -> Result<(), CheckpointError> {
        let append = Append::new(token.clone(), entry.clone(), Arc::clone(&self.runs));
        group::save(&self.runs, GroupedWrite::Entry(Box::new(append))).await.map(drop)
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        let work = UpToStep { run: run.clone(), step: None, begin: Begin::KeptValues };
        self.read(format!("load run `{run}`"), work, |found, journal, codec| {
            let SavedCheckpoint { position, values } =
                journal.checkpoint_at(codec, found.stored.head.step)?;
            Ok(SavedRun {
                summary: found.summary()?,
                position,
                values,
                records: journal.open_records(codec)?,
                last_seq: found.stored.head.seq,
                last_entry: found.stored.head.number,
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
        let packed = self.runs.with_codec(|codec| KeptValues::pack(codec, &saved.values));
        let content = packed.map_err(|error| CheckpointError::Storage {
            action: action.clone(),
            source: error.into(),
        })?;
        let work = KeepValues { token: token.clone(), step: saved.position.step, content };
        self.transact(action, work).await
    }
}

#[async_trait]
impl RunLeases for PostgresStorage {
    async fn acquire(
        &self,
        run: &RunId,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, CheckpointError> {
        let work = Acquire { run: run.clone(), request: request.clone() };
        self.transact(format!("acquire run `{run}`"), work).await
    }

    async fn renew(&self, token: &LeaseToken, ttl: Duration) -> Result<(), CheckpointError> {
        renewals::renew(&self.runs, token.clone(), ttl).await
    }

    async fn release(&self, token: &LeaseToken) -> Result<(), CheckpointError> {
        self.transact(format!("release run `{}`", token.run), Release(token.clone())).await
    }
}

#[async_trait]
impl RunInbox for PostgresStorage {
    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        message.check(run)?;
        if let Some(number) = check_post(self, run, message).await? {
            return Ok(number);
        }
        let work = Post { run: run.clone(), message: message.clone() };
        self.transact(format!("send a message to run `{run}`"), work).await
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<InboxMessage>, CheckpointError> {
        let work = Inbox { run: run.clone(), after };
        self.transact(format!("read the messages to run `{run}`"), work).await
    }
}

#[async_trait]
impl RunList for PostgresStorage {
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let action = format!("find run `{id_or_name}`");
        self.transact(action, Search(id_or_name.to_owned())).await?.summary()
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunListItem>, CheckpointError> {
        let work = Newest { before: before.cloned(), limit };
        let found = self.transact("list the runs".to_owned(), work).await?;
        Ok(found.into_iter().map(|run| run.and_then(|it| it.summary())).collect())
    }

    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError> {
        self.transact("list the runs".to_owned(), Ids).await
    }
}

#[async_trait]
impl RunHistory for PostgresStorage {
    async fn entries(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        let action = format!("read the journal of run `{run}`");
        let work = Entries { run: run.clone(), after, limit };
        let (found, pages) = self.transact(action, work).await?;
        self.runs
            .compute(move |codec| {
                let mut logged =
                    pages.reader(&found.run.id, None)?.entries(codec, after, detail)?;
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
        let action = format!("read step {step} of run `{run}`");
        let work = UpToStep { run: run.clone(), step: Some(step), begin: Begin::KeptValues };
        self.read(action, work, move |_, journal, codec| journal.checkpoint_at(codec, step)).await
    }
}

#[async_trait]
impl RunMaintenance for PostgresStorage {
    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        self.transact(format!("remove run `{run}`"), Remove(run.clone())).await
    }

    async fn check(&self) -> Result<(), CheckpointError> {
        self.transact(format!("check {}", self.runs.server.place), Check).await
    }
}

impl fmt::Debug for PostgresStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStorage({})", self.runs.server.place)
    }
}

#[cfg(test)]
mod tests;
