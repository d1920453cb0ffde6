//! What is saved of a run, and the trait of the places it is saved in.
//!
//! A run is a journal: [`Entry`] after [`Entry`], each saved as a whole. What comes next is in the
//! [`Position`] of the last committed step; the records since then are what is not done again.

mod entry;
mod error;
mod inbox;
mod lease;
mod migration;
mod outline;
mod position;
mod questions;
mod record;
mod run;

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use serde_json::Value;

pub use self::{
    entry::{Entry, Link, Logged, NoLink, Standing},
    error::CheckpointError,
    inbox::{Message, Posted},
    lease::{Claim, Hold, Holder, Owner, Presence},
    migration::{Basis, Mapping, Migration},
    outline::{ChannelOutline, NodeOutline, Outline},
    position::{Activation, Checkpoint, Commit, NodeTook, Position, UsedUp},
    questions::{AskedQuestion, Became, OpenQuestion, asked_questions, open_questions},
    record::{Outcome, TaskRecord},
    run::{ForkedFrom, Listed, RunInfo, RunSummary, SavedRun},
};
pub(crate) use self::{migration::Fate, questions::named};
use crate::{
    event::Stamped,
    id::{ChannelName, RunId, Step},
};

/// The version of the form in which runs are saved.
///
/// 2: a run is a journal whose entries are chained by their links. 3: which tasks of an open step
/// have finished is read from its entries, which are proven, and no longer kept beside them; and an
/// entry may carry its run over to another workflow.
pub const FORMAT_VERSION: u32 = 3;

/// The oldest form that is brought to this one when its database is opened.
pub const FORMAT_OLDEST: u32 = 2;

/// A place that keeps runs.
///
/// When a method returns `Ok`, what it wrote survives the loss of this process. Each method is
/// one transaction.
#[async_trait]
pub trait Checkpointer: fmt::Debug + Send + Sync {
    /// Accepts a run and gives it to whoever claims it. The first entry holds the commit of step
    /// zero. Fails if the id or the name is taken.
    async fn create(
        &self,
        info: &RunInfo,
        claim: &Claim,
        first: &Entry,
    ) -> Result<Hold, CheckpointError>;

    /// Gives a run to whoever claims it, unless another owner has it:
    /// [`CheckpointError::Owned`]. Of several who claim it at once, one gets it.
    async fn acquire(&self, run: &RunId, claim: &Claim) -> Result<Hold, CheckpointError>;

    /// Makes a lease last from now on. Fails with [`CheckpointError::Overtaken`] if it is over
    /// and somebody else has the run, or it was given back.
    async fn renew(&self, hold: &Hold, ttl: Duration) -> Result<(), CheckpointError>;

    /// Gives a run back. Does nothing if it is not held any more.
    async fn release(&self, hold: &Hold) -> Result<(), CheckpointError>;

    /// Adds an entry. One that brings the run to rest gives the run back, too. One that carries the
    /// run over to another workflow changes what [`find`](Self::find) and the others tell of it.
    ///
    /// Refuses with [`CheckpointError::Overtaken`] what does not follow from the entries before,
    /// and every entry of those who do not hold the run any more.
    async fn append(&self, hold: &Hold, entry: &Entry) -> Result<(), CheckpointError>;

    /// Loads a run.
    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError>;

    /// The run with that id or name.
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError>;

    /// Runs, the newest first: at most so many, and only those accepted before one, if one is given.
    ///
    /// It reads these and no others, and one that is damaged hides none of the others.
    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<Listed>, CheckpointError>;

    /// All runs, the newest first. Fails if one of them is damaged.
    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        self.page(None, usize::MAX).await?.into_iter().collect()
    }

    /// Entries of a run after a number, oldest first, at most so many.
    async fn journal(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Logged>, CheckpointError>;

    /// Puts a message into the inbox of a run, whoever holds it, and gives its number.
    ///
    /// The owner of the run takes it in by an entry whose position says so
    /// ([`Position::heard`]), so none is lost or taken in twice.
    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError>;

    /// The messages in the inbox of a run after a number, in the order of their numbers. None comes
    /// to be before one that was seen.
    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<Posted>, CheckpointError>;

    /// Forgets a run. Nobody may hold it.
    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError>;

    /// The position and the values of the channels after a step; zero is what the run began with.
    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<(Position, BTreeMap<ChannelName, Value>), CheckpointError>;

    /// The ids of all runs, the newest first. Nothing else of them is read, so that one that is
    /// damaged does not hide the others.
    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError> {
        Ok(self.list().await?.into_iter().map(|it| it.info.id).collect())
    }

    /// Checks the place itself, as far as that takes more than reading every run in it.
    async fn check(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    /// Gives the space back that removed runs took, as far as it does not come back by itself.
    /// Nothing is lost if it is in use and that must wait.
    async fn compact(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    /// The events of a run after a number, oldest first.
    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError> {
        let mut found = Vec::new();
        for logged in self.journal(run, 0, usize::MAX).await? {
            found.extend(logged.entry.events.into_iter().filter(|it| it.seq > after));
        }
        Ok(found)
    }

    /// Every record of a run in the order of its steps and, in a step, as they were made.
    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        let journal = self.journal(run, 0, usize::MAX).await?;
        Ok(journal.into_iter().flat_map(|it| it.entry.records).collect())
    }

    /// The values of the channels after a step; zero is what the run began with.
    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        Ok(self.checkpoint_at(run, step).await?.1)
    }
}
