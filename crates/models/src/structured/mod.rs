//! Answers of a given shape: the request, the reading, and the repair of answers that do not fit.
//!
//! [`StructuredChat`] does all of it; [`answer_schema`] and [`SchemaCheck`] are for callers without
//! a reader.

mod ask;
mod extract;
mod schema;

pub use ask::{
    AnswerCheck, StructuredAnswer, StructuredChat, StructuredError, repair_messages,
    with_doubled_max_tokens,
};
pub(super) use extract::extract_candidates;
pub use extract::{ExpectedKind, ExtractedValue, extract_json};
#[cfg(feature = "openai")]
pub(super) use schema::tool_schema;
pub use schema::{SchemaCheck, answer_instruction, answer_schema, strict_schema};
