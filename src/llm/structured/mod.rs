//! Answers of a given shape: what is asked for, how it is read, and what happens when it does not fit.
//!
//! [`ask_structured`] is the whole; [`answer_schema`] and [`SchemaCheck`] serve callers that bring no reader
//! of their own.

mod ask;
mod extract;
mod schema;

pub use ask::{Structured, StructuredError, ask_structured, repair_messages};
pub use extract::{Extracted, Wanted, extract_json};
#[cfg(feature = "openai")]
pub(super) use schema::tool_schema;
pub use schema::{SchemaCheck, answer_schema, strict_schema};
