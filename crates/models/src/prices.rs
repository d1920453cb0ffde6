//! The prices of tokens. Prices change too often to be compiled in, so they come from the user's
//! configuration; a model without an entry has an unknown cost, which is shown as unknown and never
//! as zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TokenUsage;

/// The price of one model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For a million tokens of requests.
    pub input: f64,
    /// For a million tokens of replies.
    pub output: f64,
    /// For a million tokens of requests from the provider's cache; `None` means the price of other
    /// requests.
    #[serde(default)]
    pub cached_input: Option<f64>,
}

/// Prices by the name of the model, as in `openai/gpt-5-mini`.
///
/// ```
/// use graphrun_models::{Price, Prices, TokenUsage};
///
/// let price = Price { input: 1.0, output: 4.0, cached_input: Some(0.5) };
/// let prices = Prices::from_iter([("lab/small".to_owned(), price)]);
/// let usage = TokenUsage {
///     input_tokens: 500_000,
///     output_tokens: 250_000,
///     ..TokenUsage::default()
/// };
/// assert_eq!(prices.cost("lab/small", usage), Some(1.5));
/// let cached = TokenUsage { cached_input_tokens: 400_000, ..usage };
/// assert_eq!(prices.cost("lab/small", cached), Some(1.3));
/// assert_eq!(prices.cost("lab/large", usage), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Returns the price of a model. A name without a provider is one of OpenAI's, as everywhere.
    pub fn of(&self, model: &str) -> Option<&Price> {
        let by_default = || self.0.get(&format!("openai/{model}")).filter(|_| !model.contains('/'));
        self.0.get(model).or_else(by_default)
    }

    /// Returns the cost of the usage in US dollars, or `None` if the model has no price.
    pub fn cost(&self, model: &str, usage: TokenUsage) -> Option<f64> {
        self.of(model).map(|it| it.cost(usage))
    }

    /// Returns how many models have a price.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no model has a price.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Price {
    /// Returns the cost of the usage in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "2^52 tokens are more than anybody can pay for")]
    pub fn cost(&self, usage: TokenUsage) -> f64 {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let sent = (usage.input_tokens - cached) as f64 * self.input;
        let sent_again = cached as f64 * self.cached_input.unwrap_or(self.input);
        (sent + sent_again + usage.output_tokens as f64 * self.output) / 1_000_000.0
    }
}

impl FromIterator<(String, Price)> for Prices {
    fn from_iter<I: IntoIterator<Item = (String, Price)>>(prices: I) -> Self {
        Self(prices.into_iter().collect())
    }
}
