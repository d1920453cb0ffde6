//! Reads a chat completion as real providers write it.
//!
//! It requires only the minimum: one choice with a text, or a call's name. Everything else may be
//! missing, null, of another type or unknown. It also classifies a reply without an answer
//! (refused, truncated, empty, an error in disguise), before any caller parses the text.

use std::slice;

use serde_json::Value;

use super::{
    ChatReply, Finish, ModelError, Protocol, TokenUsage, ToolCall,
    calls::read_calls,
    chat::characters,
    failure::{self, readable},
    lenient::{is_content_part, parts_text, text_of, whole_number},
    stated::StatedUsage,
    thoughts::{TextParts, part_text},
};

/// The record of reasoning in a message of a chat completion. OpenRouter requires it back unchanged.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Reads the body of a successful reply. Calls are those that the provider names, offered or not.
///
/// # Errors
/// Returns [`ModelError::Refused`], [`ModelError::Truncated`] or [`ModelError::EmptyResponse`] for
/// a reply without a usable answer, and a classified error for a body that is no chat completion.
pub fn read_reply(body: &Value) -> Result<ChatReply, ModelError> {
    let Some(choices) = body.get("choices").and_then(Value::as_array) else {
        return Err(failure::not_a_reply(body, Protocol::Chat));
    };
    let mut stated = StatedUsage::default();
    let usage = read_usage(body.get("usage"), &mut stated);
    let cost_usd = read_cost(body.get("usage"), &mut stated);
    let choice = choices.first();
    // A provider that fails during the answer puts the error into the choice or beside it.
    let failed = choice.into_iter().chain([body]).find(|it| failure::has_error(it));
    if let Some(failed) = failed {
        let answer = choice.map(Answer::read).unwrap_or_default();
        let error = failure::not_a_reply(failed, Protocol::Chat);
        return Err(answer.fail(error, usage, cost_usd));
    }
    let Some(choice) = choice else {
        return Err(ModelError::EmptyResponse { usage });
    };
    let rest = ReplyMetadata {
        usage,
        cost_usd,
        stated,
        finish: read_finish(choice.get("finish_reason")),
        model: text_of(body.get("model")),
    };
    Answer::read(choice).conclude(rest)
}

/// What a reply has beside its answer.
#[derive(Debug, Default)]
pub(super) struct ReplyMetadata {
    pub(super) usage: TokenUsage,
    pub(super) cost_usd: Option<f64>,
    pub(super) stated: StatedUsage,
    pub(super) finish: Finish,
    pub(super) model: String,
}

/// The content of a reply, in any protocol.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) reasoning: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) tool_calls: Vec<ToolCall>,
    /// The model's own record of its reasoning, which the provider wants back.
    pub(super) thinking: Vec<Value>,
}

impl Answer {
    /// Moves reasoning that a server has left in the text to its place.
    #[cfg(feature = "openai")]
    pub(super) fn without_thoughts(mut self) -> Self {
        let TextParts { answer, reasoning, tool_calls } = part_text(&self.text);
        self.text = answer;
        self.reasoning = self.reasoning.or(reasoning);
        if self.tool_calls.is_empty() {
            self.tool_calls = tool_calls;
        }
        self
    }

    /// Returns the failure of a provider during the answer, with the usage that it has counted. Without any, the part of
    /// the answer is estimated; a failure before the answer costs nothing.
    pub(super) fn fail(
        &self,
        error: ModelError,
        usage: TokenUsage,
        cost_usd: Option<f64>,
    ) -> ModelError {
        let usage = usage_of_part(usage, self.characters());
        if usage.total_tokens() == 0 && cost_usd.is_none() {
            return error;
        }
        error.charged(usage, cost_usd)
    }

    fn characters(&self) -> u64 {
        let texts = [Some(&self.text), self.reasoning.as_ref(), self.refusal.as_ref()];
        let calls = self.tool_calls.iter().map(|it| &it.arguments);
        texts.into_iter().flatten().chain(calls).map(|it| characters(it)).sum()
    }

    /// Returns the reply, if its answer is known to be whole.
    pub(super) fn conclude(self, rest: ReplyMetadata) -> Result<ChatReply, ModelError> {
        let cost_usd = rest.cost_usd;
        let characters = self.characters();
        self.classify(rest).map_err(|error| {
            let usage = usage_of_part(error.usage(), characters);
            error.charged(usage, cost_usd)
        })
    }

    fn classify(self, rest: ReplyMetadata) -> Result<ChatReply, ModelError> {
        let (answer, ReplyMetadata { usage, cost_usd, stated, finish, model }) = (self, rest);
        if let Some(text) = answer.refusal {
            return Err(ModelError::Refused { text, usage });
        }
        if let Finish::Other(word) = &finish {
            match Ending::of(word) {
                Ending::Whole => {}
                Ending::Refused => {
                    let text = or(answer.text, || format!("stopped by the provider ({word})"));
                    return Err(ModelError::Refused { text, usage });
                }
                Ending::Truncated => {
                    let text = answer.text;
                    return Err(ModelError::Truncated { text, usage, tokens_max: None });
                }
                Ending::Overflow => {
                    let message = format!(
                        "its answer filled the context after {} tokens",
                        usage.output_tokens
                    );
                    return Err(ModelError::ContextOverflow { message, usage });
                }
                Ending::Unknown => {
                    let finish = readable(word);
                    let text = answer.text;
                    return Err(ModelError::Incomplete { finish, text, usage });
                }
            }
        }
        if answer.text.trim().is_empty() && answer.tool_calls.is_empty() {
            return Err(ModelError::EmptyResponse { usage });
        }
        let Self { text, reasoning, tool_calls, thinking, .. } = answer;
        let reasoning = reasoning.filter(|it| !it.is_empty());
        let reply = ChatReply { text, tool_calls, reasoning, thinking, ..ChatReply::default() };
        Ok(ChatReply { usage, cost_usd, stated, finish, model, ..reply })
    }

    fn read(choice: &Value) -> Self {
        // Some servers put the text beside the message, as in the older completions API.
        let message = choice.get("message").unwrap_or(choice);
        let mut answer = match message {
            Value::String(text) => Self::of_content(Some(&Value::String(text.clone()))),
            _ => Self::of_content(message.get("content").or_else(|| message.get("text"))),
        };
        let reasoning = ["reasoning_content", "reasoning", "thinking"]
            .iter()
            .map(|name| text_of(message.get(*name)))
            .find(|text| !text.is_empty())
            .or_else(|| message.get(REASONING_DETAILS).map(parts_text));
        answer.reasoning = answer.reasoning.or(reasoning).filter(|text| !text.is_empty());
        // Some servers send `false`.
        answer.refusal = message
            .get("refusal")
            .map(parts_text)
            .filter(|text| !text.is_empty())
            .or(answer.refusal);
        let details = message.get(REASONING_DETAILS).and_then(Value::as_array);
        answer.thinking = details.cloned().unwrap_or_default();
        let calls = read_calls(message);
        if !calls.is_empty() {
            answer.tool_calls = calls;
        }
        answer
    }

    /// Reads a text, a part, or a list of parts, some of which are reasoning or refusals.
    fn of_content(content: Option<&Value>) -> Self {
        let mut answer = Self::default();
        let parts = match content {
            Some(Value::Array(parts)) => Some(parts.as_slice()),
            Some(part) if is_content_part(part) => Some(slice::from_ref(part)),
            _ => None,
        };
        let Some(parts) = parts else {
            let parted = part_text(&text_of(content));
            let TextParts { answer: text, reasoning, tool_calls } = parted;
            return Self { text, reasoning, tool_calls, ..answer };
        };
        let mut thoughts = String::new();
        for part in parts {
            match part.get("type").and_then(Value::as_str) {
                Some("thinking" | "reasoning") => thoughts.push_str(&parts_text(part)),
                Some("refusal") => answer.refusal = Some(parts_text(part)),
                _ => answer.text.push_str(&parts_text(part)),
            }
        }
        // A server may leave reasoning in the text of a part, too.
        let parted = part_text(&answer.text);
        thoughts.push_str(&parted.reasoning.unwrap_or_default());
        (answer.text, answer.tool_calls) = (parted.answer, parted.tool_calls);
        answer.reasoning = Some(thoughts).filter(|thoughts| !thoughts.is_empty());
        answer
    }
}

/// Estimates the tokens of a reply with this many characters, if the provider has not counted them.
pub(super) fn usage_of_part(usage: TokenUsage, characters: u64) -> TokenUsage {
    if usage.output_tokens > 0 || characters == 0 {
        return usage;
    }
    let characters = usize::try_from(characters).unwrap_or(usize::MAX);
    let TokenUsage { output_tokens, calls, estimated, .. } = TokenUsage::estimate(0, characters);
    TokenUsage { output_tokens, calls, estimated, ..usage }
}

pub(super) fn read_finish(finish: Option<&Value>) -> Finish {
    match finish {
        None | Some(Value::Null) => Finish::Stop,
        Some(word) => match word.as_str() {
            Some("stop") => Finish::Stop,
            Some("tool_calls" | "function_call") => Finish::ToolCalls,
            _ => Finish::Other(text_of(finish)),
        },
    }
}

/// What a provider's word for the end means for the answer.
enum Ending {
    /// The answer is whole.
    Whole,
    /// The answer was cut at a limit of tokens.
    Truncated,
    /// The model or a filter declined.
    Refused,
    /// The conversation and its answer do not fit into the model.
    Overflow,
    /// The provider failed, or the word is unknown. A word must be known to mean a whole answer, because half an
    /// answer may look like a whole one.
    Unknown,
}

impl Ending {
    fn of(word: &str) -> Self {
        match word.trim().to_ascii_lowercase().replace(['-', ' '], "_").as_str() {
            ""
            | "stop"
            | "stop_sequence"
            | "end"
            | "end_turn"
            | "eos"
            | "eos_token"
            | "complete"
            | "completed"
            | "done"
            | "finish"
            | "finished"
            | "success"
            | "normal"
            | "tool_call"
            | "tool_calls"
            | "tool_use"
            | "function_call"
            | Finish::FAILED_GENERATION => Self::Whole,
            "length" | "max_tokens" | "max_output_tokens" | "max_new_tokens" | "max_length"
            | "model_length" | "token_limit" | "error_limit" => Self::Truncated,
            "model_context_window_exceeded" => Self::Overflow,
            "content_filter"
            | "content_filtered"
            | "refusal"
            | "refused"
            | "safety"
            | "sensitive"
            | "recitation"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "image_safety"
            | "language"
            | "guardrail"
            | "guardrail_intervened"
            | "guardrails"
            | "error_toxic" => Self::Refused,
            _ => Self::Unknown,
        }
    }
}

/// Reads the counts of tokens. A call without counts still counts as a call.
pub(super) fn read_usage(usage: Option<&Value>, stated: &mut StatedUsage) -> TokenUsage {
    let mut count =
        |names: [&str; 2]| names.iter().find_map(|name| stated.count(name, usage?.get(name)));
    let input = count(["prompt_tokens", "input_tokens"]);
    let output = count(["completion_tokens", "output_tokens"]);
    // A server that states only the sum has counted, too.
    let sum = usage.and_then(|it| it.get("total_tokens"));
    let sum = sum.filter(|_| input.is_none() && output.is_none());
    let input = stated.count("total_tokens", sum).or(input);
    // OpenAI and most others put it into the details, DeepSeek beside the other counts.
    let details = ["prompt_tokens_details", "input_tokens_details"];
    let detail = details.iter().find_map(|it| usage?.get(it)?.get("cached_tokens"));
    let cached = detail.or_else(|| usage?.get("prompt_cache_hit_tokens"));
    // OpenAI and OpenRouter name the writes `cache_write_tokens`, LiteLLM has Anthropic's name beside the other counts.
    let written = details.iter().find_map(|it| usage?.get(it)?.get("cache_write_tokens"));
    let written = written.or_else(|| usage?.get("cache_creation_input_tokens"));
    let details = ["completion_tokens_details", "output_tokens_details"];
    let reasoning = details.iter().find_map(|it| usage?.get(it)?.get("reasoning_tokens"));
    let reasoning = reasoning.or_else(|| usage?.get("reasoning_tokens"));
    let reasoning = stated.part("reasoning_tokens", reasoning);
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    // xAI counts them beside the answer; only the sum shows it.
    let sum = usage.and_then(|it| it.get("total_tokens")).and_then(whole_number);
    let is_beside = sum == Some(input.saturating_add(output).saturating_add(reasoning));
    let output = output.saturating_add(if is_beside || reasoning > output { reasoning } else { 0 });
    let usage = TokenUsage {
        input_tokens: input,
        cached_input_tokens: stated.part("cached_tokens", cached),
        cache_write_input_tokens: stated.part("cache_write_tokens", written),
        output_tokens: output,
        reasoning_output_tokens: reasoning,
        calls: 1,
        ..TokenUsage::default()
    };
    stated.usage(usage).unwrap_or(TokenUsage { calls: 1, ..TokenUsage::default() })
}

/// Reads the cost in US dollars, as gateways state it: a number, a text, or the total of an object.
pub(super) fn read_cost(usage: Option<&Value>, stated: &mut StatedUsage) -> Option<f64> {
    let usage = usage?;
    let cost = ["cost", "total_cost", "cost_usd"].iter().find_map(|name| {
        let cost = usage.get(*name)?;
        stated.cost(name, Some(cost.get("total_cost").unwrap_or(cost)))
    });
    // OpenRouter bills only its fee if the account has a key of the provider, which bills the rest.
    let is_own_key = usage.get("is_byok").and_then(Value::as_bool) == Some(true);
    let upstream = usage.pointer("/cost_details/upstream_inference_cost").filter(|_| is_own_key);
    let upstream = stated.cost("upstream_inference_cost", upstream).unwrap_or(0.0);
    cost.map(|it| it + upstream)
}

fn or(text: String, otherwise: impl FnOnce() -> String) -> String {
    if text.trim().is_empty() { otherwise() } else { text }
}
