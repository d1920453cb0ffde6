//! Exact counts of the tokens of texts, with the feature `tiktoken`.
//!
//! OpenAI publishes the vocabularies of its models, and `tiktoken-rs` brings them along: 8 MB in the program. Not public is
//! what a provider makes of roles, tools, schemas and files. So the count of its texts is the least that a request can have.

/// Returns the number of tokens of texts for a model.
///
/// Returns `None` if the vocabulary of the model is not public, if a text defeats the tokenizer (a megabyte of blanks
/// does), or without the feature `tiktoken`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use graphrun_models::count_tokens;
///
/// let texts = || vec!["Hello, world!".to_owned(), "Hi!".to_owned()];
/// let tokens = count_tokens("openai/gpt-4o", texts).await;
/// assert_eq!(tokens, cfg!(feature = "tiktoken").then_some(4 + 2));
/// assert_eq!(count_tokens("anthropic/claude-sonnet-5", texts).await, None);
/// # });
/// # Ok::<_, std::io::Error>(())
/// ```
#[cfg(feature = "tiktoken")]
pub async fn count_tokens(model: &str, texts: impl FnOnce() -> Vec<String>) -> Option<u64> {
    // `azure/gpt-4o`, `openrouter/openai/gpt-4o`.
    let name = model.rsplit('/').next().unwrap_or(model);
    let tokenizer = tiktoken_rs::tokenizer::get_tokenizer(name)?;
    let texts = texts();
    // The first count unpacks the vocabulary, which takes 0.2 s; a hostile megabyte takes almost a second.
    let counting = tokio::task::spawn_blocking(move || {
        let vocabulary = tiktoken_rs::bpe_for_tokenizer(tokenizer).ok()?;
        let no_special = std::collections::HashSet::new();
        let count = |text: &String| vocabulary.count(text, &no_special).ok();
        let tokens = texts.iter().map(count).sum::<Option<usize>>()?;
        u64::try_from(tokens).ok()
    });
    counting.await.ok()?
}

#[cfg(not(feature = "tiktoken"))]
#[expect(missing_docs, reason = "the page of the other one")]
pub async fn count_tokens(_model: &str, _texts: impl FnOnce() -> Vec<String>) -> Option<u64> {
    None
}

#[cfg(all(test, feature = "tiktoken"))]
mod tests {
    use super::*;

    async fn count(model: &str, texts: &[&str]) -> Option<u64> {
        count_tokens(model, || texts.iter().map(|it| (*it).to_owned()).collect()).await
    }

    #[tokio::test]
    async fn a_model_is_known_by_the_last_part_of_its_name() {
        for model in ["gpt-4o", "openai/gpt-4o-mini", "azure/gpt-4o", "openrouter/openai/gpt-5.2"] {
            assert_eq!(count(model, &["The driver commits the step."]).await, Some(6), "{model}");
        }
        for model in ["ollama/llama3.2", "anthropic/claude-opus-4-5", "lab/small", ""] {
            assert_eq!(count(model, &["The driver commits the step."]).await, None, "{model}");
        }
    }

    #[tokio::test]
    async fn special_tokens_in_a_text_are_its_characters() {
        let tokens = count("gpt-4o", &["<|endoftext|>"]).await;
        assert!(tokens > Some(3), "{tokens:?}");
    }

    #[tokio::test]
    async fn a_text_that_defeats_the_tokenizer_has_no_count() {
        let blanks = " ".repeat(1_000_000);
        assert_eq!(count("gpt-4o", &["a", blanks.as_str()]).await, None);
    }
}
