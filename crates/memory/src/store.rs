//! The trait of all stores, with its questions and errors.

use std::{error::Error, fmt, sync::Arc};

use async_trait::async_trait;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use graphrun_core::fault::InjectedFault;
use graphrun_engine::Clock;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use graphrun_engine::checkpoint::CheckpointError;
use jiff::Timestamp;
use thiserror::Error;

use super::{Batch, Embedding, Entry, EntryId};

/// The most entries that a search looks at, the newest ones if more have one of its words.
pub const CANDIDATES_MAX: usize = 5_000;
/// The most vectors that a search compares, the newest ones if its tier has more.
pub const VECTORS_MAX: usize = 10_000;
/// The most entries of one result, page or batch.
pub const ENTRIES_MAX: usize = 1_000;
/// The most bytes of the text of an entry.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// The most bytes of the value of an entry, as JSON.
pub const VALUE_BYTES_MAX: usize = 256 << 10;

/// Keeps knowledge across runs.
///
/// ```
/// use graphrun_memory::{Batch, InMemoryStore, NewEntry, Search, Source, Store};
/// use jiff::Timestamp;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), graphrun_memory::StoreError> {
/// let store = InMemoryStore::default();
/// let person = Source::Person { name: "ana".to_owned() };
/// let entry = NewEntry::of("core", "Use tabs in Makefiles".into(), person);
/// let batch = Batch { key: "1".to_owned(), entries: vec![entry], now: Timestamp::now() };
/// store.put(&batch).await?;
/// let found = store.search(&Search::of("core", Timestamp::now()).query("makefiles")).await?;
/// assert_eq!(found[0].text, "Use tabs in Makefiles");
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Writes entries, all or none, and returns their ids.
    ///
    /// A text that its tier and module have already is updated, unless a person has approved it. A batch whose key is
    /// known changes nothing, so it can be repeated after a crash. Expired entries are removed.
    ///
    /// # Errors
    ///
    /// Fails when an entry is too large or has no text, and when the store cannot be used.
    async fn put(&self, batch: &Batch) -> Result<Vec<EntryId>, StoreError>;

    /// Returns the entries that fit a search best; without a query, the newest.
    ///
    /// A search with an embedding ranks entries by their words and by their vectors, and adds up both ranks (reciprocal
    /// rank fusion). Entries without a vector of its model are ranked by their words alone. A store without vectors ignores the embedding.
    ///
    /// # Errors
    ///
    /// Fails when the filter fails, and when the store cannot be used.
    async fn search(&self, search: &Search) -> Result<Vec<Entry>, StoreError>;

    /// Returns a page of entries, the newest first.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used.
    async fn list(&self, listing: &Listing) -> Result<Vec<Entry>, StoreError>;

    /// Returns the first two entries whose ids begin with a text, expired ones included.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used.
    async fn find(&self, prefix: &str) -> Result<Vec<Entry>, StoreError>;

    /// Approves an entry for a person. It no longer expires.
    ///
    /// # Errors
    ///
    /// Fails when there is no such entry, and when the store cannot be used.
    async fn approve(&self, id: &EntryId, by: &str, now: Timestamp) -> Result<(), StoreError>;

    /// Removes an entry.
    ///
    /// # Errors
    ///
    /// Fails when there is no such entry, and when the store cannot be used.
    async fn remove(&self, id: &EntryId) -> Result<(), StoreError>;

    /// Writes whole entries, all or none. They replace entries with the same ids.
    ///
    /// # Errors
    ///
    /// Fails when an entry is too large or has no text, and when the store cannot be used.
    async fn import(&self, entries: &[Entry]) -> Result<(), StoreError>;

    /// Returns entries of a tier that have no vector of a model, at most so many; expired ones included.
    ///
    /// By default there are none, as for a store without vectors.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used.
    async fn without_vector(
        &self,
        _tier: &str,
        _model: &str,
        _limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    /// Gives entries their vectors, all or none, in place of those that they have. Entries that are gone are skipped.
    ///
    /// By default it does nothing, as for a store without vectors.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used.
    async fn set_vectors(&self, _vectors: &[(EntryId, Embedding)]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A question to a store.
#[derive(Clone, Debug)]
pub struct Search {
    /// The node that asks; part of recordings.
    pub caller: String,
    /// The tier.
    pub tier: String,
    /// Only entries of this module. An empty one is none.
    pub module: Option<String>,
    /// The text to look for. An entry needs one of its words; without a text, all entries fit.
    pub query: Option<String>,
    /// The vector of the query: entries are ranked by their vectors, too.
    pub embedding: Option<Embedding>,
    /// The condition on entries.
    pub filter: Filter,
    /// The most entries of the result.
    pub limit: usize,
    /// The current time. Expired entries are left out.
    pub now: Timestamp,
}

/// A condition on entries.
#[derive(Clone, Default)]
pub struct Filter(Option<Arc<Accept>>);

type Accept = dyn Fn(&Entry) -> Result<bool, String> + Send + Sync;

/// Which entries to list.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Only this tier.
    pub tier: Option<String>,
    /// Only entries that a person has not looked at yet.
    pub pending: bool,
    /// Only entries after this one, in the order of the list.
    pub after: Option<(Timestamp, EntryId)>,
    /// The most entries of the page.
    pub limit: usize,
    /// The current time. Expired entries are left out.
    pub now: Timestamp,
}

/// Why a store fails.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such entry.
    #[error("there is no entry `{0}`")]
    Unknown(EntryId),
    /// An entry is too large.
    #[error("the {what} of an entry has {bytes} bytes, more than {bytes_max}")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The most bytes that it may have.
        bytes_max: usize,
    },
    /// An entry has no text, or only blanks.
    #[error("the text of an entry is empty")]
    NoText,
    /// No workflow can declare a tier of this name.
    #[error("{0:?} is not the name of a tier: a letter, then letters, digits, `_` and `-`")]
    TierName(String),
    /// The confidence is not between 0 and 1.
    #[error("the confidence is {0}, which is not between 0 and 1")]
    Confidence(f64),
    /// There are too many entries at once.
    #[error("{0} entries at once are more than {ENTRIES_MAX}")]
    TooMany(usize),
    /// The condition on entries has no value.
    #[error("the condition on entries fails: {0}")]
    Filter(String),
    /// A recording has no answer, or cannot be written.
    #[error("{0}")]
    Recording(String),
    /// Something else is at the place of the memory, or it cannot be opened. The reason contains the remedy.
    #[error("{place} cannot be used: {reason}")]
    Unusable {
        /// The path or the address.
        place: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// A transaction failed.
    #[error("cannot {action}")]
    Failed {
        /// The action that failed.
        action: String,
        /// Whether a retry may help.
        is_transient: bool,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// A store, and the clock that expiry follows.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Clock,
}

impl Memory {
    /// Makes a memory that follows the clock of the system.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, clock: Clock::default() }
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

impl Search {
    /// A search in a tier for its newest ten entries.
    pub fn of(tier: impl Into<String>, now: Timestamp) -> Self {
        Self {
            caller: String::new(),
            tier: tier.into(),
            module: None,
            query: None,
            embedding: None,
            filter: Filter::default(),
            limit: 10,
            now,
        }
    }

    /// Looks for words.
    #[must_use]
    pub fn query(self, query: impl Into<String>) -> Self {
        Self { query: Some(query.into()), ..self }
    }

    /// Returns the module, unless it is empty.
    pub fn module(&self) -> Option<&str> {
        self.module.as_deref().filter(|it| !it.is_empty())
    }

    /// Returns whether nothing is looked for, so that the newest entries are the result. A text without a letter or a digit
    /// is looked for, and found in no entry.
    pub fn is_for_newest(&self) -> bool {
        let is_blank = |text: &str| text.trim().is_empty();
        self.embedding.is_none() && self.query.as_deref().is_none_or(is_blank)
    }

    /// Ranks entries by their vectors, too.
    #[must_use]
    pub fn embedding(self, embedding: Embedding) -> Self {
        Self { embedding: Some(embedding), ..self }
    }
}

impl Filter {
    /// Returns a condition by a function. An error ends the search.
    pub fn new(accept: impl Fn(&Entry) -> Result<bool, String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(accept)))
    }

    /// Returns whether an entry fits.
    ///
    /// # Errors
    ///
    /// Fails when the function does.
    pub fn accepts(&self, entry: &Entry) -> Result<bool, StoreError> {
        match &self.0 {
            None => Ok(true),
            Some(accept) => accept(entry).map_err(StoreError::Filter),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Filter(…)" } else { "Filter" })
    }
}

impl Listing {
    /// All entries, the newest first.
    pub fn all(now: Timestamp) -> Self {
        Self { tier: None, pending: false, after: None, limit: ENTRIES_MAX, now }
    }
}

impl StoreError {
    /// Returns whether a retry may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Failed { is_transient: true, .. })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl From<InjectedFault> for StoreError {
    fn from(error: InjectedFault) -> Self {
        let action = "write to the memory".to_owned();
        Self::Failed { action, is_transient: false, source: error.into() }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl From<CheckpointError> for StoreError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Unusable { path, reason } => Self::Unusable { place: path, reason },
            CheckpointError::Storage { action, source } => {
                Self::Failed { action, is_transient: true, source }
            }
            CheckpointError::Full { action, source } => {
                Self::Failed { action, is_transient: false, source }
            }
            other => Self::Failed {
                action: "use the memory".to_owned(),
                is_transient: false,
                source: other.into(),
            },
        }
    }
}
