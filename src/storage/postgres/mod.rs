//! Runs in a PostgreSQL database, which many processes on many machines may share.
//!
//! `place` and `tls` are how to get there, `open` and `migrate` what a database may be, `session` the
//! transactions, `work` what is done in each, `run` and `entries` the SQL, `fault` the errors; the
//! form of what is written is that of `storage/journal`. Here a call of the trait becomes one
//! transaction.

mod entries;
mod fault;
mod inbox;
mod lease;
mod migrate;
mod open;
mod place;
mod results;
mod run;
mod session;
mod tls;
mod work;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;

use self::{
    inbox::{Inbox, Post},
    open::{Missing, Traits},
    place::Place,
    session::{Server, Work},
    work::{
        Acquire, All, Append, Check, Create, Entries, Ids, Newest, Release, Remove, Renew, Search,
    },
};
use super::journal::{self, Codec};
use crate::{
    checkpoint::{
        CheckpointError, Checkpointer, Claim, Entry, Hold, Listed, Logged, Message, Position,
        Posted, RunInfo, RunSummary, SavedRun,
    },
    id::{ChannelName, RunId, Step},
    redact,
};

/// Keeps runs in a PostgreSQL database.
///
/// Clones share their connections: a few, made when they are needed, one of them for leases alone.
/// Several processes on several machines may use one database at the same time, each with runs of
/// its own. Leases end by the clock of the server.
///
/// What is said to be saved is on the disk of the server, and of those standbys that its
/// `synchronous_standby_names` asks for.
#[derive(Clone)]
pub struct PostgresStorage {
    server: Arc<Server>,
    traits: Arc<Traits>,
}

impl PostgresStorage {
    /// Opens the database of a URL as libpq has it, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`,
    /// and makes the tables if there are none.
    ///
    /// They are in a schema of their own, `graphrun`, or the one that `schema=NAME` in the URL
    /// says. `sslmode` is one of `disable`, `prefer`, `require` and `verify-full`; only the last
    /// makes sure which server it is, by the authorities of this system or those in the file of
    /// `sslrootcert`.
    ///
    /// This waits for the server, and does so not in the `async` way.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`] when the server does not answer or does not let
    /// this user in, when the tables cannot be made, are those of a newer format, or the schema is
    /// in use by another program. No error shows the password.
    pub fn open(url: &str) -> Result<Self, CheckpointError> {
        redact::learn_url(url);
        let (server, traits) = connect(url, Missing::Make)?;
        let traits = traits.expect("what is missing was made");
        Ok(Self { server, traits: Arc::new(traits) })
    }

    /// Opens a database to look for runs in it. It makes no tables; none if there are none.
    ///
    /// # Errors
    ///
    /// As [`PostgresStorage::open`].
    pub fn open_existing(url: &str) -> Result<Option<Self>, CheckpointError> {
        redact::learn_url(url);
        let (server, traits) = connect(url, Missing::Leave)?;
        Ok(traits.map(|traits| Self { server, traits: Arc::new(traits) }))
    }

    /// A URL as it may be shown: without its password, or nothing if it cannot be read.
    pub fn shown(url: &str) -> Option<String> {
        Place::parse(url).ok().map(|it| it.to_string())
    }

    /// Which server it is, in a few words.
    pub fn server(&self) -> String {
        let version = &self.traits.version;
        let fsync = if self.traits.fsync {
            ""
        } else {
            "; its `fsync` is off: no run survives a power cut"
        };
        format!("PostgreSQL {version}{fsync}")
    }

    /// Does work on the threads of the server. It comes to its end also if nobody waits for it.
    async fn transact<W: Work>(&self, action: String, work: W) -> Result<W::Made, CheckpointError> {
        let server = Arc::clone(&self.server);
        self.server.spawn(async move { server.transact(action, &work).await }).await
    }

    /// Reads all of a run and makes something of it.
    async fn read<T: Send + 'static>(
        &self,
        action: String,
        run: &RunId,
        make: impl FnOnce(&run::Found, journal::Reader<'_>, &mut Codec) -> Result<T, CheckpointError>
        + Send
        + 'static,
    ) -> Result<T, CheckpointError> {
        let (found, pages) = self.transact(action, All(run.clone())).await?;
        self.compute(move |codec| make(&found, pages.reader(&found.run.id)?, codec)).await
    }

    /// Makes something of what was read. It may take a while, so it keeps nobody waiting.
    async fn compute<T: Send + 'static>(
        &self,
        make: impl FnOnce(&mut Codec) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let work = || {
            let mut codec = Codec::new().map_err(|error| CheckpointError::Storage {
                action: "unpack what was read".to_owned(),
                source: error.into(),
            })?;
            make(&mut codec)
        };
        self.server.spawn(Server::compute(work)).await
    }
}

fn connect(url: &str, missing: Missing) -> Result<(Arc<Server>, Option<Traits>), CheckpointError> {
    let place = Place::parse(url).map_err(|reason| CheckpointError::Unusable {
        path: "the URL of the database".to_owned(),
        reason,
    })?;
    let server = Arc::new(Server::new(place)?);
    let opening = Arc::clone(&server);
    let traits = server.wait(async move {
        let opened = open::open(&opening, missing).await;
        opened.map_err(|fault| fault.explain(&opening.place, format!("open {}", opening.place)))
    })?;
    Ok((server, traits))
}

#[async_trait]
impl Checkpointer for PostgresStorage {
    async fn create(
        &self,
        info: &RunInfo,
        claim: &Claim,
        first: &Entry,
    ) -> Result<Hold, CheckpointError> {
        let action = format!("accept run `{}`", info.id);
        let json = journal::info(info)?;
        let (info, claim, first) = (info.clone(), claim.clone(), first.clone());
        let server = Arc::clone(&self.server);
        self.transact(action, Create { info, json, claim, first, server }).await
    }

    async fn acquire(&self, run: &RunId, claim: &Claim) -> Result<Hold, CheckpointError> {
        let work = Acquire { run: run.clone(), claim: claim.clone() };
        self.transact(format!("take run `{run}`"), work).await
    }

    async fn renew(&self, hold: &Hold, ttl: Duration) -> Result<(), CheckpointError> {
        let work = Renew { hold: hold.clone(), ttl };
        self.transact(format!("keep run `{}`", hold.run), work).await
    }

    async fn release(&self, hold: &Hold) -> Result<(), CheckpointError> {
        self.transact(format!("give run `{}` back", hold.run), Release(hold.clone())).await
    }

    async fn append(&self, hold: &Hold, entry: &Entry) -> Result<(), CheckpointError> {
        let work = Append::new(hold.clone(), entry.clone(), Arc::clone(&self.server));
        self.transact(entry.action(&hold.run), work).await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.read(format!("load run `{run}`"), run, |found, journal, codec| {
            let (position, values) = journal.checkpoint_at(codec, found.stand.head.step)?;
            Ok(SavedRun {
                summary: found.summary()?,
                position,
                values,
                records: journal.open_records(codec)?,
                last_seq: found.stand.head.seq,
            })
        })
        .await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let action = format!("look for run `{id_or_name}`");
        self.transact(action, Search(id_or_name.to_owned())).await?.summary()
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<Listed>, CheckpointError> {
        let work = Newest { before: before.cloned(), limit };
        let found = self.transact("list the runs".to_owned(), work).await?;
        Ok(found.into_iter().map(|it| it.and_then(|it| it.summary())).collect())
    }

    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError> {
        self.transact("list the runs".to_owned(), Ids).await
    }

    async fn check(&self) -> Result<(), CheckpointError> {
        self.transact(format!("check {}", self.server.place), Check).await
    }

    async fn journal(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Logged>, CheckpointError> {
        let action = format!("read the journal of run `{run}`");
        let work = Entries { run: run.clone(), after, limit };
        let (found, pages) = self.transact(action, work).await?;
        self.compute(move |codec| {
            let mut logged = pages.reader(&found.run.id)?.logged(codec, after)?;
            logged.truncate(limit);
            Ok(logged)
        })
        .await
    }

    async fn outline(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Logged>, CheckpointError> {
        let action = format!("read the journal of run `{run}`");
        let work = Entries { run: run.clone(), after, limit };
        let (found, pages) = self.transact(action, work).await?;
        self.compute(move |codec| {
            let mut logged = pages.reader(&found.run.id)?.outline(codec, after)?;
            logged.truncate(limit);
            Ok(logged)
        })
        .await
    }

    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        message.check(run)?;
        let work = Post { run: run.clone(), message: message.clone() };
        self.transact(format!("say something to run `{run}`"), work).await
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        let work = Inbox { run: run.clone(), after };
        self.transact(format!("read what was said to run `{run}`"), work).await
    }

    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        self.transact(format!("remove run `{run}`"), Remove(run.clone())).await
    }

    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<(Position, BTreeMap<ChannelName, Value>), CheckpointError> {
        let action = format!("read step {step} of run `{run}`");
        self.read(action, run, move |_, journal, codec| journal.checkpoint_at(codec, step)).await
    }
}

impl fmt::Debug for PostgresStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStorage({})", self.server.place)
    }
}

#[cfg(test)]
mod tests;
