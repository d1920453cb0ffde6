//! Embeddings: vectors of texts, whose directions are close if the texts mean the same.
//!
//! As with [`ChatModel`](super::ChatModel), a model makes one attempt and no retries. Callers divide their texts with
//! [`EmbeddingRequest::batches`], so that no provider refuses a request for its size.

#[cfg(feature = "openai")]
mod client;

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{ChatRequest, Message, ModelError, StatedUsage, TokenUsage};

#[cfg(feature = "openai")]
pub use self::client::EmbeddingClient;

/// The beginning of a text that its vector describes, in characters. The usual models take 8,192 tokens.
pub const EMBEDDED_CHARACTERS_MAX: usize = 8_000;

/// The most texts of a request: the strictest of the large providers accept a hundred.
const TEXTS_MAX: usize = 64;

/// The most characters of a request. Some providers accept 16,384 tokens.
const REQUEST_CHARACTERS_MAX: usize = 4 * EMBEDDED_CHARACTERS_MAX;

/// The largest dimension of a vector.
const DIMENSIONS_MAX: usize = 16_384;

/// Makes vectors of texts: a provider, a recording, or a double of a test.
#[async_trait]
pub trait EmbeddingModel: fmt::Debug + Send + Sync {
    /// Returns a vector for each text; makes one attempt.
    ///
    /// # Errors
    /// Returns the provider's or the network's failure, classified. A reply with another number of vectors, or with
    /// vectors that cannot be compared, is a [`ModelError::Transient`].
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request; the provider may still charge for it.
    async fn embed(&self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError>;

    /// Returns the provider and the model, as in `openai/text-embedding-3-small`.
    fn name(&self) -> &str;
}

/// Texts for a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EmbeddingRequest {
    /// The node that asks. It finds the right answer in a recording and is never sent.
    pub caller: String,
    /// The texts.
    pub texts: Vec<String>,
    /// Whether it repeats a request that failed. The clients of a process send few of these while a provider fails.
    pub is_repeat: bool,
    /// The longest duration of the exchange, instead of the client's own.
    pub timeout: Option<Duration>,
}

/// The vectors of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EmbeddingReply {
    /// A vector for each text, in their order. All have the same dimension.
    pub vectors: Vec<Vec<f32>>,
    /// The usage of the call.
    pub usage: TokenUsage,
    /// The cost in US dollars, if the provider states it.
    pub cost_usd: Option<f64>,
    /// The numbers of the provider that are ignored in the usage and the cost. They are not saved.
    pub stated: StatedUsage,
    /// The model that answered, as the provider names it.
    pub model: String,
}

impl EmbeddingRequest {
    /// Divides texts into requests that providers accept. Of a long text, only the beginning is sent; an empty text is
    /// sent as a blank, because providers refuse it.
    ///
    /// ```
    /// use graphrun_models::EmbeddingRequest;
    ///
    /// let texts: Vec<String> = (0..100).map(|it| it.to_string()).collect();
    /// let batches = EmbeddingRequest::batches("learn", &texts);
    /// assert_eq!(batches.iter().map(|it| it.texts.len()).collect::<Vec<_>>(), [64, 36]);
    /// assert!(batches.len() <= EmbeddingRequest::batches_max(100));
    /// ```
    pub fn batches(caller: &str, texts: &[String]) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        let mut characters = 0;
        for text in texts {
            let text: String = text.chars().take(EMBEDDED_CHARACTERS_MAX).collect();
            let text = if text.trim().is_empty() { " ".to_owned() } else { text };
            let length = text.chars().count();
            match batches.last_mut() {
                Some(last)
                    if last.texts.len() < TEXTS_MAX
                        && characters + length <= REQUEST_CHARACTERS_MAX =>
                {
                    characters += length;
                    last.texts.push(text);
                }
                _ => {
                    characters = length;
                    let caller = caller.to_owned();
                    let texts = vec![text];
                    batches.push(Self { caller, texts, ..Self::default() });
                }
            }
        }
        batches
    }

    /// Returns the most requests for so many texts: a request that is full has four long ones.
    pub fn batches_max(texts: usize) -> usize {
        texts.div_ceil(REQUEST_CHARACTERS_MAX / EMBEDDED_CHARACTERS_MAX)
    }

    /// Returns the most tokens of a request. A character has at most four bytes, and each byte is at most one token.
    pub fn tokens_max() -> u64 {
        4 * REQUEST_CHARACTERS_MAX as u64
    }

    /// Returns the likely usage of the request.
    pub fn estimate(&self) -> TokenUsage {
        TokenUsage::estimate(self.texts.iter().map(|it| it.chars().count()).sum(), 0)
    }

    /// Returns the request as a recording has it. Vectors of different models cannot be compared, so the model is a part
    /// of the question.
    pub(super) fn as_chat(&self, model: &str) -> ChatRequest {
        let asked = Message::system(format!("embeddings of {model}"));
        let texts = self.texts.iter().map(|it| Message::user(it.as_str()));
        let messages = std::iter::once(asked).chain(texts).collect();
        ChatRequest { caller: self.caller.clone(), messages, ..ChatRequest::default() }
    }
}

/// Returns the problem of the vectors of so many texts, if they have one.
pub(super) fn problem_of(vectors: &[Vec<f32>], texts: usize) -> Option<String> {
    if vectors.len() != texts {
        return Some(format!("it has {} vectors for {texts} texts", vectors.len()));
    }
    let first = vectors.first().map_or(0, Vec::len);
    vectors.iter().find_map(|vector| match vector.len() {
        0 => Some("a vector is empty".to_owned()),
        length if length != first => {
            Some(format!("its vectors have different dimensions, {first} and {length}"))
        }
        length if length > DIMENSIONS_MAX => {
            Some(format!("a vector has {length} dimensions, more than {DIMENSIONS_MAX}"))
        }
        _ if vector.iter().any(|it| !it.is_finite()) => {
            Some("a vector has a number that is not finite".to_owned())
        }
        _ if vector.iter().all(|it| *it == 0.0) => Some("a vector has no direction".to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_small_enough_for_every_provider() {
        let long = "é".repeat(2 * EMBEDDED_CHARACTERS_MAX);
        let texts: Vec<String> = (0..1_000)
            .map(|number| if number % 3 == 0 { long.clone() } else { format!("text {number}") })
            .chain([String::new(), "\n".to_owned()])
            .collect();
        let batches = EmbeddingRequest::batches("learn", &texts);
        assert!(batches.len() <= EmbeddingRequest::batches_max(texts.len()));
        for batch in &batches {
            let characters: usize = batch.texts.iter().map(|it| it.chars().count()).sum();
            assert!(characters <= REQUEST_CHARACTERS_MAX && batch.texts.len() <= TEXTS_MAX);
            assert!(batch.texts.iter().all(|it| !it.is_empty()));
        }
        let sent: Vec<&String> = batches.iter().flat_map(|it| &it.texts).collect();
        assert_eq!(sent.len(), texts.len());
        assert!(
            sent.iter()
                .zip(&texts)
                .all(|(sent, text)| text.starts_with(sent.as_str()) || *sent == " ")
        );
        let all_long = vec![long; 10];
        let batches = EmbeddingRequest::batches("learn", &all_long).len();
        assert_eq!((batches, EmbeddingRequest::batches_max(10)), (3, 3));
        assert!(EmbeddingRequest::batches("learn", &[]).is_empty());
    }

    #[test]
    fn vectors_that_cannot_be_compared_have_a_problem() {
        let problem = |vectors: &[&[f32]], texts| {
            let vectors: Vec<Vec<f32>> = vectors.iter().map(|it| it.to_vec()).collect();
            problem_of(&vectors, texts).unwrap_or_default()
        };
        assert_eq!(problem(&[&[1.0, 0.0], &[0.0, -1.0]], 2), "");
        assert_eq!(problem(&[&[1.0]], 2), "it has 1 vectors for 2 texts");
        assert_eq!(problem(&[], 1), "it has 0 vectors for 1 texts");
        assert_eq!(problem(&[&[]], 1), "a vector is empty");
        let says = "its vectors have different dimensions, 2 and 1";
        assert_eq!(problem(&[&[1.0, 0.0], &[1.0]], 2), says);
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(problem(&[&[1.0, number]], 1), "a vector has a number that is not finite");
        }
        assert_eq!(problem(&[&[0.0, -0.0]], 1), "a vector has no direction");
        let says = "a vector has 16385 dimensions, more than 16384";
        assert_eq!(problem(&[&vec![1.0; DIMENSIONS_MAX + 1]], 1), says);
    }
}
