//! The traits of a storage for runs, one for each audience.

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use graphrun_core::{
    event::RunEvent,
    id::{ChannelName, RunId, Step},
};
use serde_json::Value;

use super::{
    CheckpointError, Entry, InboxMessage, JournalEntry, LeaseRequest, LeaseToken, Message, RunInfo,
    RunListItem, RunSummary, SavedCheckpoint, SavedRun, TaskRecord,
};

/// The number of entries to read at once when they are kept without their values, which may be large.
pub const ENTRIES_AT_ONCE: usize = 64;

/// A storage for runs: every type that implements the six traits for its audiences.
///
/// When a method of them returns `Ok`, its changes survive a crash of the process. Each required method is one
/// transaction.
pub trait Checkpointer:
    RunJournal + RunLeases + RunInbox + RunList + RunHistory + RunMaintenance
{
}

impl<T> Checkpointer for T where
    T: RunJournal + RunLeases + RunInbox + RunList + RunHistory + RunMaintenance + ?Sized
{
}

/// Saves a run: what its driver writes and continues from.
#[async_trait]
pub trait RunJournal: fmt::Debug + Send + Sync {
    /// Accepts a run and gives its lease to the claimant. The first entry contains the commit of
    /// step zero. Fails if the id or the name is already in use.
    async fn create(
        &self,
        info: &RunInfo,
        request: &LeaseRequest,
        first: &Entry,
    ) -> Result<LeaseToken, CheckpointError>;

    /// Adds an entry. An entry that stops the run also releases its lease. An entry that migrates
    /// the run changes the results of [`find`](RunList::find) and the other methods.
    ///
    /// Fails with [`CheckpointError::Overtaken`] if the entry does not follow from the last one, or
    /// if the caller no longer has the lease.
    async fn append(&self, token: &LeaseToken, entry: &Entry) -> Result<(), CheckpointError>;

    /// Loads a run.
    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError>;

    /// Keeps the values after the last step of a run, as its owner has loaded them, so that the next
    /// [`load`](Self::load) reads only the entries since. Replaces those kept before.
    ///
    /// This saves time and nothing else: the journal stays whole. A storage whose loads are quick
    /// without it does nothing.
    async fn keep_values(
        &self,
        token: &LeaseToken,
        saved: &SavedRun,
    ) -> Result<(), CheckpointError> {
        _ = (token, saved);
        Ok(())
    }
}

/// Keeps the ownership of runs: one process writes a run, by a lease.
#[async_trait]
pub trait RunLeases: fmt::Debug + Send + Sync {
    /// Gives the lease of a run to the claimant. Fails with [`CheckpointError::Owned`] if another
    /// owner has it. Of several simultaneous claimants, one succeeds.
    async fn acquire(
        &self,
        run: &RunId,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, CheckpointError>;

    /// Renews a lease: it lasts `ttl` from now. Fails with [`CheckpointError::Overtaken`] if it has
    /// expired and another owner has the run, or if it was released.
    async fn renew(&self, token: &LeaseToken, ttl: Duration) -> Result<(), CheckpointError>;

    /// Releases a lease. Does nothing if the caller no longer has it.
    async fn release(&self, token: &LeaseToken) -> Result<(), CheckpointError>;
}

/// Keeps the messages that people send to running workflows.
#[async_trait]
pub trait RunInbox: fmt::Debug + Send + Sync {
    /// Adds a message to the inbox of a run with any owner, and returns its number.
    ///
    /// The owner of the run takes the message in with an entry whose position records its number
    /// ([`Conversation::last_message`](super::Conversation::last_message)), so no message is lost or taken in twice.
    ///
    /// Fails with [`CheckpointError::Ended`] if the run has ended, unless the message was posted before. A run that ends
    /// meanwhile leaves the message unread.
    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError>;

    /// Returns the messages in the inbox of a run after a number, in the order of their numbers.
    /// New messages have higher numbers than all returned ones.
    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<InboxMessage>, CheckpointError>;
}

/// Lists and finds runs.
#[async_trait]
pub trait RunList: fmt::Debug + Send + Sync {
    /// Returns the run with this id or name.
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError>;

    /// Returns runs, the newest first: at most `limit`, and only runs accepted before `before`, if
    /// it is given.
    ///
    /// It reads only these runs, and a damaged run does not hide the others.
    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunListItem>, CheckpointError>;

    /// Returns the ids of all runs, the newest first. It reads no other data, so that a damaged run
    /// does not hide the others.
    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError>;

    /// Returns all runs, the newest first. Fails if one of them is damaged.
    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        self.page(None, usize::MAX).await?.into_iter().collect()
    }
}

/// How much of an entry is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    Whole,
    /// The entry [without values](JournalEntry::without_values). A storage that can skip the values needs less
    /// memory.
    WithoutValues,
}

/// Reads the history of a run. A storage provides two methods; the others follow from them.
#[async_trait]
pub trait RunHistory: fmt::Debug + Send + Sync {
    /// Returns the entries of a run after a number, oldest first, at most `limit`.
    async fn entries(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<JournalEntry>, CheckpointError>;

    /// Returns the checkpoint after a step; step zero is the input.
    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<SavedCheckpoint, CheckpointError>;

    /// Returns all entries of a run.
    async fn journal(&self, run: &RunId) -> Result<Vec<JournalEntry>, CheckpointError> {
        self.entries(run, 0, usize::MAX, Detail::Whole).await
    }

    /// Returns all entries of a run [without values](JournalEntry::without_values).
    async fn journal_without_values(
        &self,
        run: &RunId,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        let mut journal: Vec<JournalEntry> = Vec::new();
        loop {
            let after = journal.last().map_or(0, |it| it.number);
            let entries = self.entries(run, after, ENTRIES_AT_ONCE, Detail::WithoutValues).await?;
            if entries.is_empty() {
                return Ok(journal);
            }
            journal.extend(entries);
        }
    }

    /// Returns the events of a run after a number, oldest first.
    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<RunEvent>, CheckpointError> {
        let events =
            self.journal_without_values(run).await?.into_iter().flat_map(|it| it.entry.events);
        Ok(events.filter(|it| it.seq > after).collect())
    }

    /// Returns all records of a run in the order of its steps, and within a step in the order they
    /// were made.
    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        Ok(self.journal(run).await?.into_iter().flat_map(|it| it.entry.records).collect())
    }

    /// Returns the values of the channels after a step; step zero is the input.
    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        Ok(self.checkpoint_at(run, step).await?.values)
    }
}

/// Removes runs, and looks after the storage itself.
#[async_trait]
pub trait RunMaintenance: fmt::Debug + Send + Sync {
    /// Removes a run. Fails if a process owns it.
    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError>;

    /// Checks the storage itself, beyond the check of each run in it.
    async fn check(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    /// Frees the space of removed runs, if the storage does not do so automatically. If the storage
    /// is in use, this may do nothing; no data is lost.
    async fn compact(&self) -> Result<(), CheckpointError> {
        Ok(())
    }
}
