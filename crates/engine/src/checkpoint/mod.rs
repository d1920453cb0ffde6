//! The saved data of runs, and the traits of storages for it.
//!
//! A run is a journal of [`Entry`] values, each saved as a whole. The [`Position`] of the last
//! committed step contains the frontier. The records since then are the results of tasks that do
//! not run again.

mod checkpointer;
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

pub use self::{
    checkpointer::{
        Checkpointer, Detail, ENTRIES_AT_ONCE, RunHistory, RunInbox, RunJournal, RunLeases,
        RunList, RunMaintenance,
    },
    entry::{Entry, EntryHash, InvalidHash, JournalEntry, RunStatus},
    error::CheckpointError,
    inbox::{InboxMessage, Message},
    lease::{LeaseInfo, LeaseRequest, LeaseToken, Owner, Presence},
    migration::{Basis, Mapping, Migration},
    outline::{ChannelOutline, GraphOutline, NodeOutline},
    position::{
        Activation, Checkpoint, Commit, Conversation, EarlierTurns, ExhaustedLimits, Position,
        Round, TaskUsage, UsedBudget,
    },
    questions::{
        AskedQuestion, AskedQuestions, OpenQuestion, QuestionOutcome, asked_questions,
        open_questions, replaceable_questions,
    },
    record::{Outcome, TaskRecord, is_followed, last_records, next_due},
    run::{ForkSource, RunInfo, RunListItem, RunSummary, SavedCheckpoint, SavedRun, Turns},
};
pub(crate) use self::{
    migration::Fate,
    questions::{QuestionNames, full_name, unanswered},
    record::next_wake,
};

/// The version of the storage format of runs.
pub const FORMAT_VERSION: u32 = 1;
