//! The dialect of a provider: how its requests differ from those of others.

use std::collections::{BTreeMap, BTreeSet};

use super::Family;

/// The dialect of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The provider's name, the first half of [`ChatModel::name`](crate::ChatModel::name).
    pub provider: String,
    /// The form of its requests, replies and streams.
    pub protocol: Protocol,
    /// The form of structured output that is tried first.
    pub output: OutputMode,
    /// The name of the limit on the answer's length.
    pub token_limit: TokenLimit,
    /// The role of the instructions.
    pub system_role: SystemRole,
    /// Whether it requires the model's reasoning before a tool call in later requests, and rejects requests without it.
    pub wants_reasoning: bool,
    /// The parameters that it rejects or ignores. They are not sent.
    pub unsupported: BTreeSet<Parameter>,
    /// The provider's own names of parameters.
    pub rename: BTreeMap<Parameter, String>,
    /// Headers of every request.
    pub headers: BTreeMap<String, String>,
    /// The header that has the key alone. `None` sends `Authorization: Bearer KEY`.
    pub key_header: Option<String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            provider: "openai-compatible".to_owned(),
            protocol: Protocol::Chat,
            output: OutputMode::JsonSchema,
            // The older name: self-hosted servers know it, and some ignore the newer one. A provider that rejects it names the other.
            token_limit: TokenLimit::MaxTokens,
            system_role: SystemRole::System,
            wants_reasoning: false,
            unsupported: BTreeSet::new(),
            rename: BTreeMap::new(),
            headers: BTreeMap::new(),
            key_header: None,
        }
    }
}

impl Profile {
    /// Returns whether a model of this provider accepts a parameter, as far as it is known before a request.
    pub fn supports(&self, model: &str, parameter: Parameter) -> bool {
        !self.unsupported.contains(&parameter)
            && !self.protocol.lacks().contains(&parameter)
            && !Family::all().iter().any(|it| it.unsupported.contains(&parameter) && it.has(model))
    }

    /// Returns the provider's name of a parameter.
    pub fn name_of(&self, parameter: Parameter) -> &str {
        self.rename.get(&parameter).map_or(self.protocol.name_of(parameter), String::as_str)
    }

    /// Returns whether a model is known to reason before it answers.
    pub fn reasons(&self, model: &str) -> bool {
        Family::all().iter().any(|it| it.has(model))
    }
}

/// Declares an enum whose values have names in the table of providers.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// Returns the value of this name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text)
            }
        }
    };
}

named! {
    /// The form of a provider's requests, replies and streams.
    Protocol {
        /// OpenAI's chat completions, which most providers have.
        Chat = "chat",
        /// OpenAI's Responses.
        Responses = "responses",
        /// Anthropic's Messages.
        Anthropic = "anthropic",
        /// Google's `generateContent`.
        Gemini = "gemini",
    }
}

impl Protocol {
    /// Returns its own name of a parameter.
    pub fn name_of(self, parameter: Parameter) -> &'static str {
        match (self, parameter) {
            (Self::Responses, Parameter::ReasoningEffort) => "reasoning",
            (Self::Anthropic, Parameter::Stop) => "stop_sequences",
            (Self::Anthropic, Parameter::ReasoningEffort) => "effort",
            (Self::Anthropic, Parameter::ParallelTools) => "disable_parallel_tool_use",
            (Self::Gemini, Parameter::TopP) => "topP",
            (Self::Gemini, Parameter::Stop) => "stopSequences",
            (Self::Gemini, Parameter::ReasoningEffort) => "thinkingConfig",
            (Self::Gemini, Parameter::ToolChoice) => "toolConfig",
            (_, parameter) => parameter.as_str(),
        }
    }

    /// Returns the parameters that it does not have.
    pub fn lacks(self) -> &'static [Parameter] {
        match self {
            Self::Chat => &[],
            Self::Responses => &[Parameter::Seed, Parameter::Stop, Parameter::StreamOptions],
            Self::Anthropic => &[Parameter::Seed, Parameter::StreamOptions],
            Self::Gemini => &[Parameter::ParallelTools, Parameter::StreamOptions],
        }
    }
}

named! {
    /// The forms of structured output, best first. A client uses the next form when a provider rejects one.
    OutputMode {
        /// The provider forces the answer into the schema.
        JsonSchema = "json_schema",
        /// The provider forces JSON; the schema is in the prompt.
        JsonObject = "json_object",
        /// The answer is a call of a tool that takes the schema.
        Tool = "tool",
        /// The schema is in the prompt, and nothing is forced.
        Prompted = "prompted",
    }
}

impl OutputMode {
    /// Returns the next form to try when a provider rejects this one.
    pub fn below(self) -> Option<Self> {
        match self {
            Self::JsonSchema => Some(Self::JsonObject),
            Self::JsonObject => Some(Self::Tool),
            Self::Tool => Some(Self::Prompted),
            Self::Prompted => None,
        }
    }
}

named! {
    /// The name of the parameter that limits the answer's length.
    TokenLimit {
        /// The older name.
        MaxTokens = "max_tokens",
        /// The newer name, which counts reasoning too.
        MaxCompletionTokens = "max_completion_tokens",
    }
}

impl TokenLimit {
    /// Returns the other name.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::MaxTokens => Self::MaxCompletionTokens,
            Self::MaxCompletionTokens => Self::MaxTokens,
        }
    }
}

named! {
    /// The role of the instructions.
    SystemRole {
        /// The role that almost every provider knows.
        System = "system",
        /// The newer role of OpenAI.
        Developer = "developer",
        /// The provider knows no such role: the instructions stand before the first message of the user.
        User = "user",
    }
}

named! {
    /// A parameter of requests that some providers or models reject. A request without it is still a request for the
    /// same answer.
    Parameter {
        /// How freely the model answers.
        Temperature = "temperature",
        /// The share of the likeliest tokens that it chooses from.
        TopP = "top_p",
        /// The seed of its random choices.
        Seed = "seed",
        /// The texts that end an answer.
        Stop = "stop",
        /// How much it reasons.
        ReasoningEffort = "reasoning_effort",
        /// Whether it may call several tools at once. With Anthropic a part of the next one, so it comes first.
        ParallelTools = "parallel_tool_calls",
        /// Whether it may or must call tools.
        ToolChoice = "tool_choice",
        /// Whether the answer arrives in pieces.
        Stream = "stream",
        /// The settings of the pieces.
        StreamOptions = "stream_options",
    }
}
