//! What tokens cost. Prices change too often to be compiled in, so they come from the user's configuration;
//! a model without an entry has an unknown cost, which is shown as unknown and never as nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Usage;

/// The price of one model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For a million tokens of requests.
    pub input: f64,
    /// For a million tokens of replies.
    pub output: f64,
}

/// Prices by the name of the model, as in `openai/gpt-5-mini`.
///
/// ```
/// use graphrun::llm::{Price, Prices, Usage};
///
/// let prices = Prices::from_iter([("lab/small".to_owned(), Price { input: 1.0, output: 4.0 })]);
/// let usage = Usage { input_tokens: 500_000, output_tokens: 250_000, ..Usage::default() };
/// assert_eq!(prices.cost("lab/small", usage), Some(1.5));
/// assert_eq!(prices.cost("lab/large", usage), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Returns what the usage costs in US dollars, or `None` if the model has no price.
    #[expect(clippy::cast_precision_loss, reason = "2^52 tokens are more than anybody can pay for")]
    pub fn cost(&self, model: &str, usage: Usage) -> Option<f64> {
        let price = self.0.get(model)?;
        let tokens =
            usage.input_tokens as f64 * price.input + usage.output_tokens as f64 * price.output;
        Some(tokens / 1_000_000.0)
    }
}

impl FromIterator<(String, Price)> for Prices {
    fn from_iter<I: IntoIterator<Item = (String, Price)>>(prices: I) -> Self {
        Self(prices.into_iter().collect())
    }
}
