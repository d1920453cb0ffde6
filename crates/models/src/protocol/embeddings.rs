//! The requests for vectors: OpenAI's `embeddings`, which most providers have, and Google's `batchEmbedContents`.

use serde_json::{Value, json};

use super::{Wire, gemini};
use crate::{
    EmbeddingReply, ModelError, Protocol,
    embeddings::problem_of,
    failure::{has_error, not_a},
    lenient::{text_of, whole_number},
    reader::{read_cost, read_usage},
    stated::StatedUsage,
};

impl Protocol {
    /// Returns the request for the vectors of texts.
    pub(crate) fn shape_embeddings(self, model: &str, texts: &[String]) -> Wire {
        match self {
            Self::Gemini => {
                let model = gemini::path_of(model);
                let request =
                    |text: &String| json!({"model": model, "content": {"parts": [{"text": text}]}});
                let requests: Vec<Value> = texts.iter().map(request).collect();
                let path = format!("/{model}:batchEmbedContents");
                Wire { path, body: json!({"requests": requests}) }
            }
            Self::Chat | Self::Responses | Self::Anthropic => {
                let body = json!({"model": model, "input": texts});
                Wire { path: "/embeddings".to_owned(), body }
            }
        }
    }

    /// Reads the vectors of so many texts.
    ///
    /// # Errors
    /// Returns a classified error for a body without them.
    pub(crate) fn read_embeddings(
        self,
        body: &Value,
        texts: usize,
    ) -> Result<EmbeddingReply, ModelError> {
        let (list, values) = match self {
            Self::Gemini => ("embeddings", "values"),
            Self::Chat | Self::Responses | Self::Anthropic => ("data", "embedding"),
        };
        let items = body.get(list).and_then(Value::as_array).filter(|_| !has_error(body));
        let Some(items) = items else { return Err(not_a(body, "a list of embeddings")) };
        let vectors = in_order(items).and_then(|items| {
            items.into_iter().map(|it| vector(it.get(values))).collect::<Result<Vec<_>, _>>()
        });
        let checked = vectors.and_then(|reply| match problem_of(&reply, texts) {
            Some(problem) => Err(problem),
            None => Ok(reply),
        });
        let mut stated = StatedUsage::default();
        let (usage, cost_usd, model) = match self {
            Self::Gemini => {
                let usage = gemini::usage_of(body.get("usageMetadata"), &mut stated);
                (usage, None, String::new())
            }
            Self::Chat | Self::Responses | Self::Anthropic => {
                let usage = body.get("usage");
                let tokens = read_usage(usage, &mut stated);
                (tokens, read_cost(usage, &mut stated), text_of(body.get("model")))
            }
        };
        let vectors = checked.map_err(|problem| {
            let message = format!("the reply is not a list of embeddings: {problem}");
            ModelError::Transient { after: None, message }.charged(usage, cost_usd)
        })?;
        Ok(EmbeddingReply { vectors, usage, cost_usd, stated, model })
    }
}

/// Returns the items in the order of the texts: by their numbers, if they have some.
fn in_order(items: &[Value]) -> Result<Vec<&Value>, String> {
    let numbers = items.iter().map(|it| it.get("index").and_then(whole_number));
    let Some(numbers) = numbers.collect::<Option<Vec<u64>>>() else {
        return Ok(items.iter().collect());
    };
    let mut numbered: Vec<(u64, &Value)> = numbers.into_iter().zip(items).collect();
    numbered.sort_by_key(|(number, _)| *number);
    if numbered.windows(2).any(|it| it[0].0 == it[1].0) {
        return Err("two vectors have the same index".to_owned());
    }
    Ok(numbered.into_iter().map(|(_, it)| it).collect())
}

/// Reads a vector. A number that is no finite one of 32 bits is read as not a number.
#[expect(clippy::cast_possible_truncation, reason = "a number that is too large becomes infinite")]
fn vector(values: Option<&Value>) -> Result<Vec<f32>, String> {
    let numbers = values.and_then(Value::as_array).ok_or("an item has no vector")?;
    Ok(numbers.iter().map(|number| number.as_f64().map_or(f32::NAN, |it| it as f32)).collect())
}
