//! What a call cost in tokens.

use std::{
    iter::Sum,
    num::NonZeroU32,
    ops::{Add, AddAssign},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many characters of English text or code make up one token, on average.
///
/// The figure is used only where a provider says nothing; a [`TokenUsage`] made with it is marked.
const CHARS_PER_TOKEN: f64 = 3.5;

/// Counts the tokens and calls of one exchange, or of many added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TokenUsage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Those of them that the provider had in its cache, as far as it says so.
    #[serde(skip_serializing_if = "is_none")]
    pub cached_input_tokens: u64,
    /// Those of them that the provider wrote to its cache, as far as it says so.
    #[serde(skip_serializing_if = "is_none")]
    pub cache_write_input_tokens: u64,
    /// Tokens of the reply, reasoning included.
    pub output_tokens: u64,
    /// Those of them that the model used for reasoning, as far as the provider says so.
    #[serde(skip_serializing_if = "is_none")]
    pub reasoning_output_tokens: u64,
    /// Requests that were answered.
    pub calls: u64,
    /// The tokens of the last request and its reply: how much of the model's context window they fill. `None` if the
    /// provider did not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<NonZeroU32>,
    /// The context window of the model of the last request, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<NonZeroU32>,
    /// Whether some of the tokens were estimated, because the provider did not count them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl TokenUsage {
    /// Estimates the usage of one call from the length of its texts, in characters.
    ///
    /// ```
    /// let usage = graphrun_core::usage::TokenUsage::estimate(700, 35);
    /// assert_eq!((usage.input_tokens, usage.output_tokens, usage.calls), (200, 10, 1));
    /// assert!(usage.estimated);
    /// ```
    pub fn estimate(input_chars: usize, output_chars: usize) -> Self {
        Self {
            input_tokens: tokens(input_chars),
            output_tokens: tokens(output_chars),
            calls: 1,
            estimated: true,
            ..Self::default()
        }
    }

    /// Returns the usage of one call with the context window of its model.
    ///
    /// ```
    /// use graphrun_core::usage::TokenUsage;
    ///
    /// let counted = TokenUsage { input_tokens: 30, output_tokens: 5, calls: 1, ..TokenUsage::default() };
    /// let first = counted.in_window(Some(100));
    /// assert_eq!(first.context_tokens.map(u32::from), Some(35));
    /// assert_eq!(first.context_window.map(u32::from), Some(100));
    /// // The last call counts, also if its tokens are unknown.
    /// let both = first + TokenUsage::estimate(700, 35).in_window(None);
    /// assert_eq!((both.context_tokens, both.context_window), (None, None));
    /// assert_eq!((first + TokenUsage::default()).context_tokens, first.context_tokens);
    /// ```
    #[must_use]
    pub fn in_window(self, window: Option<u64>) -> Self {
        let known = |tokens: u64| NonZeroU32::new(u32::try_from(tokens).unwrap_or(u32::MAX));
        let counted = if self.estimated { None } else { known(self.total_tokens()) };
        Self { context_tokens: counted, context_window: window.and_then(known), ..self }
    }

    /// Returns the tokens of requests and replies together.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; a text's length is never negative and far below 2^52"
)]
fn tokens(chars: usize) -> u64 {
    (chars as f64 / CHARS_PER_TOKEN).ceil() as u64
}

impl Add for TokenUsage {
    type Output = Self;

    // Saturating: a provider that reports nonsense must not bring a run down.
    fn add(self, other: Self) -> Self {
        let last = if other.calls > 0 { other } else { self };
        Self {
            context_tokens: last.context_tokens,
            context_window: last.context_window,
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            cache_write_input_tokens: self
                .cache_write_input_tokens
                .saturating_add(other.cache_write_input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            reasoning_output_tokens: self
                .reasoning_output_tokens
                .saturating_add(other.reasoning_output_tokens),
            calls: self.calls.saturating_add(other.calls),
            estimated: self.estimated || other.estimated,
        }
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for TokenUsage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::default(), Add::add)
    }
}
