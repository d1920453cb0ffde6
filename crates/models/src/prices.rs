//! The prices of tokens. List prices are in the table of [`KnownModel`]; a user's configuration comes before them. A model
//! without an entry has an unknown cost, which is shown as unknown and never as zero.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::{Deserialize, Serialize};
use toml_edit::TableLike;

use super::{
    TableProblem, TokenUsage,
    provider::{KnownModel, TableReader, full_name},
};

/// The price of the tokens of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    /// For a million tokens of requests.
    pub input: f64,
    /// For a million tokens of replies.
    pub output: f64,
    /// For a million tokens of requests from the provider's cache; `None` means the price of other
    /// requests.
    #[serde(default)]
    pub cached_input: Option<f64>,
    /// For a million tokens of requests that the provider writes to its cache; `None` means the price of other requests.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// For a million tokens of reasoning; `None` means the price of other tokens of replies.
    #[serde(default)]
    pub reasoning_output: Option<f64>,
}

/// The price of one model.
///
/// ```
/// use graphrun_models::{LongRequests, Price, TokenPrice, TokenUsage};
///
/// let tokens = TokenPrice { input: 1.0, output: 4.0, cache_write: Some(1.25), ..TokenPrice::default() };
/// let of_long = TokenPrice { input: 2.0, output: 6.0, ..TokenPrice::default() };
/// let price = Price { tokens, long: Some(LongRequests { over: 200_000, tokens: of_long }) };
/// let usage = TokenUsage {
///     input_tokens: 100_000,
///     cache_write_input_tokens: 40_000,
///     calls: 1,
///     ..TokenUsage::default()
/// };
/// assert_eq!(price.cost(usage), 0.06 + 0.05);
/// assert_eq!(price.cost(TokenUsage { input_tokens: 300_000, calls: 1, ..TokenUsage::default() }), 0.6);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The usual price of tokens.
    pub tokens: TokenPrice,
    /// That of long requests, if it differs.
    #[serde(default)]
    pub long: Option<LongRequests>,
}

/// Requests that are longer than a number of tokens. Their price holds for the whole request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongRequests {
    /// The most tokens of a request with the usual price.
    pub over: u64,
    /// The price of their tokens.
    pub tokens: TokenPrice,
}

impl From<TokenPrice> for Price {
    fn from(tokens: TokenPrice) -> Self {
        Self { tokens, long: None }
    }
}

/// Prices by the name of the model, as in `openai/gpt-5-mini`.
///
/// ```
/// use graphrun_models::{Prices, TokenPrice, TokenUsage};
///
/// let price = TokenPrice { input: 1.0, output: 4.0, cached_input: Some(0.5), ..TokenPrice::default() };
/// let prices = Prices::from_iter([("lab/small".to_owned(), price.into())]);
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
    /// Returns the list prices that every program has.
    pub fn built_in() -> &'static Self {
        static PRICES: LazyLock<Prices> = LazyLock::new(|| {
            KnownModel::all().iter().map(|(name, model)| (name.clone(), model.price)).collect()
        });
        &PRICES
    }

    /// Returns the price of a model. A name without a provider is one of OpenAI's, as everywhere.
    pub fn of(&self, model: &str) -> Option<&Price> {
        self.0.get(full_name(model).as_ref())
    }

    /// Returns the cost of the usage in US dollars, or `None` if the model has no price.
    pub fn cost(&self, model: &str, usage: TokenUsage) -> Option<f64> {
        self.of(model).map(|it| it.cost(usage))
    }

    /// Adds a price, or replaces that of a model.
    pub fn set(&mut self, model: &str, price: Price) {
        self.0.insert(full_name(model).into_owned(), price);
    }

    /// Returns these prices, and those of other models.
    #[must_use]
    pub fn or(mut self, those: &Self) -> Self {
        for (model, price) in &those.0 {
            self.0.entry(model.clone()).or_insert(*price);
        }
        self
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
    /// Reads the table of a model, and adds its mistakes to `problems`; one about a missing key has no place.
    pub fn read(
        model: &str,
        table: &dyn TableLike,
        problems: &mut Vec<TableProblem>,
    ) -> Option<Self> {
        Self::read_beside(model, table, &[], problems)
    }

    /// Reads a table that has these other keys, too.
    pub(super) fn read_beside(
        model: &str,
        table: &dyn TableLike,
        others: &[&'static str],
        problems: &mut Vec<TableProblem>,
    ) -> Option<Self> {
        let what = format!("the price of `{model}`");
        let tokens = TokenPrice::read(&what, table, &[&["long"], others].concat(), problems);
        let long = match table.get("long") {
            None => None,
            Some(item) => {
                let table = TableReader::new(problems).table("long", item)?;
                let what = format!("the price of long requests to `{model}`");
                let tokens = TokenPrice::read(&what, table, &["over"], problems);
                let mut reader = TableReader::new(problems);
                let Some(over) = table.get("over") else {
                    let message = format!("{what} has no `over`, a number of tokens");
                    reader.problem(item.span(), message);
                    return None;
                };
                let over = reader.whole("over", over);
                Some(LongRequests { tokens: tokens?, over: over? })
            }
        };
        Some(Self { tokens: tokens?, long })
    }

    /// Returns the cost of the usage in US dollars. Whether the requests of several calls are long depends on their average.
    #[expect(clippy::cast_precision_loss, reason = "2^52 tokens are more than anybody can pay for")]
    pub fn cost(&self, usage: TokenUsage) -> f64 {
        let price = self.of_request(usage.input_tokens / usage.calls.max(1));
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let written = usage.cache_write_input_tokens.min(usage.input_tokens - cached);
        let reasoning = usage.reasoning_output_tokens.min(usage.output_tokens);
        let parts = [
            (usage.input_tokens - cached - written, price.input),
            (cached, price.cached_input.unwrap_or(price.input)),
            (written, price.cache_write.unwrap_or(price.input)),
            (usage.output_tokens - reasoning, price.output),
            (reasoning, price.reasoning_output.unwrap_or(price.output)),
        ];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>() / 1_000_000.0
    }

    /// Returns the highest cost of a call with this many tokens: all of them are of the most expensive kind.
    ///
    /// ```
    /// use graphrun_models::{LongRequests, Price, TokenPrice};
    ///
    /// let tokens = TokenPrice { input: 1.0, output: 4.0, ..TokenPrice::default() };
    /// let of_long = TokenPrice { input: 9.0, output: 5.0, ..TokenPrice::default() };
    /// let price = Price { tokens, long: Some(LongRequests { over: 1_000, tokens: of_long }) };
    /// assert_eq!((price.most(1_000), price.most(1_000_000)), (0.004, 9.0));
    /// ```
    #[expect(clippy::cast_precision_loss, reason = "2^52 tokens are more than anybody can pay for")]
    pub fn most(&self, tokens: u64) -> f64 {
        // A short request may have a long answer.
        let each = [self.of_request(0), self.of_request(tokens)].into_iter();
        let prices = each.flat_map(|price| {
            let others = [price.cached_input, price.cache_write, price.reasoning_output];
            [price.input, price.output].into_iter().chain(others.into_iter().flatten())
        });
        prices.fold(0.0, f64::max) * tokens as f64 / 1_000_000.0
    }

    /// Returns the price of a request with this many tokens.
    fn of_request(&self, tokens: u64) -> TokenPrice {
        self.long.filter(|it| tokens > it.over).map_or(self.tokens, |it| it.tokens)
    }
}

impl TokenPrice {
    /// The keys of a table of TOML, and whether it must have them.
    const KEYS: [(&str, bool); 5] = [
        ("input_per_million", true),
        ("output_per_million", true),
        ("cached_input_per_million", false),
        ("cache_write_per_million", false),
        ("reasoning_output_per_million", false),
    ];

    /// Reads a table that may have other keys, too.
    fn read(
        what: &str,
        table: &dyn TableLike,
        others: &[&'static str],
        problems: &mut Vec<TableProblem>,
    ) -> Option<Self> {
        let known: Vec<&str> =
            Self::KEYS.iter().map(|(known, _)| *known).chain(others.iter().copied()).collect();
        let mut reader = TableReader::new(problems);
        let mut is_whole = true;
        for (name, _) in table.iter().filter(|(name, _)| !known.contains(name)) {
            let span = table.get_key_value(name).and_then(|(key, _)| key.span());
            reader.unknown(span, "setting of a price", name, &known);
            is_whole = false;
        }
        let numbers = Self::KEYS.map(|(name, is_needed)| {
            let Some(item) = table.get(name) else {
                if is_needed {
                    let message = format!("{what} has no `{name}`");
                    reader.problem(None, message);
                    is_whole = false;
                }
                return None;
            };
            let number = reader.number(name, item, 0.0);
            is_whole &= number.is_some();
            number
        });
        let [input, output, cached_input, cache_write, reasoning_output] = numbers;
        let price =
            Self { input: input?, output: output?, cached_input, cache_write, reasoning_output };
        is_whole.then_some(price)
    }
}

impl FromIterator<(String, Price)> for Prices {
    fn from_iter<I: IntoIterator<Item = (String, Price)>>(prices: I) -> Self {
        let full = |(model, price): (String, _)| (full_name(&model).into_owned(), price);
        Self(prices.into_iter().map(full).collect())
    }
}
