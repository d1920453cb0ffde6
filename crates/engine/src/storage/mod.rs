//! Storage in memory, and the rules that every storage follows.

mod memory;
mod memory_results;
pub mod rules;

pub use self::{
    memory::MemoryStorage,
    memory_results::{MemoryResults, RESULT_LIMITS, ResultLimits},
};
