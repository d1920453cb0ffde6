//! Models: one trait, one client for every provider, and recordings of both.
//!
//! Start at [`ChatModel`]. [`StructuredChat`] turns any model's text into checked values;
//! [`Recorder`] and [`Replay`] let a run be repeated without a provider. Retries, budgets and fallbacks
//! belong to the engine.
//! - [`ChatModel`]: what the rest of graphrun calls; `openai`, `transport`, `provider`: the client, its HTTP service, and the providers.
//! - [`EmbeddingModel`]: vectors of texts, from the same providers.
//! - `protocol`: the forms of requests, replies and streams; `deltas`: the pieces of an answer as they arrive.
//! - `reader`, `failure`, `retry_after`: what replies and errors of providers mean.
//! - `fetch`: the requests of tools, which share the client's TLS.
//! - `structured`: answers that fit a schema; `recording`: calls that are recorded and replayed.
//!
//! ```
//! use graphrun_models::{ExpectedKind, extract_json};
//!
//! let found = extract_json("Here it is:\n```json\n{\"verdict\": \"approved\"}\n```", ExpectedKind::Object)?;
//! assert_eq!(found.value["verdict"], "approved");
//! # Ok::<_, String>(())
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod admission;
mod attachment;
mod chat;
mod deltas;
mod embeddings;
mod error;
mod secret;
mod settings;
mod tools;

mod calls;
mod failure;
mod lenient;
mod reader;
mod retry_after;
mod thoughts;

mod provider;
#[cfg(feature = "openai")]
mod shape;

#[cfg(feature = "openai")]
mod gate;
#[cfg(feature = "openai")]
mod protocol;
#[cfg(feature = "openai")]
mod provider_client;
#[cfg(feature = "openai")]
mod rates;
#[cfg(feature = "openai")]
mod refused;
#[cfg(feature = "openai")]
mod sse;
#[cfg(feature = "openai")]
mod transport;

mod estimates;
mod fetch;
mod prices;
mod recording;
mod stated;
mod structured;
mod vocabulary;
mod windows;

pub use admission::{Admission, Admit};
pub use attachment::{Attachment, AttachmentError, AttachmentKind};
pub use calls::names_on_the_wire;
pub use chat::{ChatModel, ChatReply, ChatRequest, Finish, Message, OutputSchema, Patience, Role};
pub use deltas::{AnswerReader, AnswerSink};
pub use embeddings::{EMBEDDED_CHARACTERS_MAX, EmbeddingModel, EmbeddingReply, EmbeddingRequest};
pub use error::{ModelError, ModelErrorKind, Nearest, Phase};
pub use estimates::TokenEstimates;
pub use failure::ErrorReply;
#[cfg(feature = "openai")]
pub use fetch::connect;
pub use fetch::{FetchError, FetchRequest, FetchResponse, fetch};
pub use graphrun_core::{event::MessagePart, usage::TokenUsage};
pub use prices::{LongRequests, Price, Prices, TokenPrice};
pub use provider::{
    KnownModel, OutputMode, Parameter, Profile, Protocol, Provider, ProviderSettings, Providers,
    SystemRole, TableProblem, TokenLimit, full_name, header_problem,
};
pub use reader::read_reply;
pub use recording::{
    BadLine, CallPlace, EmbeddingRecorder, EmbeddingReplay, Recorder, RecordingError,
    RecordingFile, Replay, UnusedEntry, normalise, result_of_changed_call,
};
pub use retry_after::read_retry_after;
pub use secret::Secret;
pub use settings::RequestSettings;
pub use stated::{STATED_COST_USD_MAX, STATED_TOKENS_MAX, StatedUsage};
pub use structured::{
    AnswerCheck, ExpectedKind, ExtractedValue, SchemaCheck, StructuredAnswer, StructuredChat,
    StructuredError, answer_instruction, answer_schema, extract_json, repair_messages,
    strict_schema, with_doubled_max_tokens,
};
pub use tools::{ToolCall, ToolChoice, ToolSpec};
pub use vocabulary::count_tokens;
pub use windows::ContextWindows;

#[cfg(feature = "openai")]
pub use embeddings::EmbeddingClient;
#[cfg(feature = "openai")]
pub use provider::from_env;
#[cfg(feature = "openai")]
pub use provider_client::{ClientConfig, ConfigError, ProviderClient};
#[cfg(feature = "openai")]
pub use transport::ExchangeLimits;
#[cfg(feature = "openai")]
pub use transport::client_builder;
