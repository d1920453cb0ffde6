//! Storage in memory, and the rules that every storage follows.

mod memory;
mod memory_results;
pub mod rules;
mod task_journal;

pub(crate) use self::task_journal::{SavedNestedRun, TaskJournal};
pub use self::{
    memory::InMemoryStorage,
    memory_results::{MemoryResults, RESULT_LIMITS, ResultLimits},
};
