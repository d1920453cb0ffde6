//! The known providers: their names, addresses and differences.
//!
//! To add a provider, add a row to [`PROVIDERS`]. Use any other OpenAI-compatible server by its
//! base URL with [`Profile::default`].

/// A known provider.
#[derive(Debug, Clone, Copy)]
pub struct Provider {
    /// The word before the first `/` of a model's name.
    pub name: &'static str,
    /// The address, up to and including the version.
    pub base_url: &'static str,
    /// The environment variable with the key.
    pub key_variable: &'static str,
    /// Whether it answers without a key, as a server on the user's own machine does. A key is sent to it if the
    /// variable is set.
    pub is_own: bool,
    /// The best form of structured output it supports.
    pub output: OutputMode,
    /// The provider's name for the limit on the answer's length.
    pub token_limit: TokenLimit,
    /// Whether it requires the model's reasoning before a tool call in later requests, and rejects
    /// requests without it.
    pub wants_reasoning: bool,
}

use OutputMode::{JsonObject, JsonSchema, Prompted};
use TokenLimit::{MaxCompletionTokens, MaxTokens};

/// The providers known by name.
#[rustfmt::skip]
pub const PROVIDERS: &[Provider] = &[
    provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", JsonSchema, MaxCompletionTokens),
    // The compatibility endpoint silently ignores `response_format`.
    provider("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", Prompted, MaxTokens),
    provider("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", JsonSchema, MaxTokens),
    provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", JsonSchema, MaxTokens),
    provider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", JsonSchema, MaxTokens),
    provider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", JsonSchema, MaxTokens),
    Provider { wants_reasoning: true, ..provider("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", JsonObject, MaxTokens) },
    provider("xai", "https://api.x.ai/v1", "XAI_API_KEY", JsonSchema, MaxTokens),
    own("ollama", "http://localhost:11434/v1", "OLLAMA_API_KEY"),
    own("vllm", "http://localhost:8000/v1", "VLLM_API_KEY"),
    own("lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY"),
];

const fn provider(
    name: &'static str,
    base_url: &'static str,
    key_variable: &'static str,
    output: OutputMode,
    token_limit: TokenLimit,
) -> Provider {
    Provider {
        name,
        base_url,
        key_variable,
        is_own: false,
        output,
        token_limit,
        wants_reasoning: false,
    }
}

/// A server on the user's own machine.
const fn own(name: &'static str, base_url: &'static str, key_variable: &'static str) -> Provider {
    Provider { is_own: true, ..provider(name, base_url, key_variable, JsonSchema, MaxTokens) }
}

/// The dialect of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The provider's name, the first half of [`ChatModel::name`](super::ChatModel::name).
    pub provider: String,
    /// The form of structured output that is tried first.
    pub output: OutputMode,
    /// The name of the limit on the answer's length.
    pub token_limit: TokenLimit,
    /// Whether the model's reasoning before a tool call is sent back.
    pub wants_reasoning: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            provider: "openai-compatible".to_owned(),
            output: JsonSchema,
            // The older name: self-hosted servers know it, and OpenAI's own profile has the newer
            // one.
            token_limit: MaxTokens,
            wants_reasoning: false,
        }
    }
}

impl From<&Provider> for Profile {
    fn from(provider: &Provider) -> Self {
        Self {
            provider: provider.name.to_owned(),
            output: provider.output,
            token_limit: provider.token_limit,
            wants_reasoning: provider.wants_reasoning,
        }
    }
}

/// The forms of structured output, best first. A client uses the next form when a provider rejects
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputMode {
    /// The provider forces the answer into the schema.
    JsonSchema,
    /// The provider forces JSON; the schema is in the prompt.
    JsonObject,
    /// The schema is in the prompt, and nothing is forced.
    Prompted,
}

impl OutputMode {
    /// Returns the form's name.
    pub fn as_str(self) -> &'static str {
        match self {
            JsonSchema => "json_schema",
            JsonObject => "json_object",
            Prompted => "prompted",
        }
    }

    /// Returns the next form to try when a provider rejects this one.
    pub fn below(self) -> Option<Self> {
        match self {
            JsonSchema => Some(JsonObject),
            JsonObject => Some(Prompted),
            Prompted => None,
        }
    }
}

/// The name of the parameter that limits the answer's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenLimit {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`, which counts reasoning too.
    MaxCompletionTokens,
}

impl TokenLimit {
    /// Returns the parameter's name.
    pub fn as_str(self) -> &'static str {
        match self {
            MaxTokens => "max_tokens",
            MaxCompletionTokens => "max_completion_tokens",
        }
    }
}
