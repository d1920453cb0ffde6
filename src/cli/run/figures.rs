//! The figures of models: the context window and the price, and where they come from.

use serde::Serialize;

use crate::{
    cli::{
        output::words::{clean, cost, tokens},
        settings::config::Config,
    },
    models::{KnownModel, Price, TokenPrice, full_name},
};

/// The figures of a model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelFigures {
    /// The most tokens of a request together with its answer; `null` if unknown.
    context: Option<u64>,
    /// The place in a file, or `built in`.
    context_from: Option<String>,
    /// The price; `null` if unknown.
    price: Option<PriceLine>,
    price_from: Option<String>,
    /// The day for which built-in figures hold.
    as_of: Option<String>,
    /// The pages with the built-in figures.
    origin: Vec<&'static str>,
}

/// A price, with the keys of the configuration.
#[derive(Clone, Debug, Serialize)]
struct PriceLine {
    input_per_million: f64,
    output_per_million: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_input_per_million: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write_per_million: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_output_per_million: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    long: Option<Box<Self>>,
}

impl ModelFigures {
    /// Returns the figures of a model.
    pub(crate) fn of(model: &str, config: &Config) -> Self {
        let name = full_name(model);
        let places = (config.window_places.get(&*name), config.price_places.get(&*name));
        let context = config.windows.of(model);
        let price = config.prices.of(model);
        let is_built_in =
            places.0.is_none() && context.is_some() || places.1.is_none() && price.is_some();
        let known = KnownModel::find(model).filter(|_| is_built_in);
        let from =
            |place: Option<&String>| place.map_or_else(|| "built in".to_owned(), String::clone);
        Self {
            context,
            context_from: context.map(|_| from(places.0)),
            price: price.map(PriceLine::from),
            price_from: price.map(|_| from(places.1)),
            as_of: known.map(|it| it.as_of.to_string()),
            origin: known
                .map(|it| it.origin.iter().map(String::as_str).collect())
                .unwrap_or_default(),
        }
    }

    /// Returns them as a text, such as `400.0k tokens, $0.25 / $2.00 per million (built in, 2026-11-26)`.
    pub(crate) fn shown(&self) -> String {
        let context = self.context.map_or_else(|| "context ?".to_owned(), tokens);
        let price = self.price.as_ref().map_or_else(
            || "price ?".to_owned(),
            |price| {
                let input = price.input_per_million;
                let output = price.output_per_million;
                format!("{} / {} per million", dollars(input), dollars(output))
            },
        );
        let mut from: Vec<String> = Vec::new();
        for place in [&self.context_from, &self.price_from].into_iter().flatten() {
            let place = match (&self.as_of, place.as_str()) {
                (Some(day), "built in") => format!("built in, {day}"),
                (_, place) => clean(place),
            };
            if !from.contains(&place) {
                from.push(place);
            }
        }
        if from.is_empty() {
            return format!("{context}, {price}");
        }
        format!("{context}, {price} ({})", from.join("; "))
    }
}

/// Returns a price with cents, or with more digits if it needs them.
fn dollars(price: f64) -> String {
    let cents = cost(Some(price));
    if (0.01..1.0).contains(&price) { format!("${price:.2}") } else { cents }
}

impl From<TokenPrice> for PriceLine {
    fn from(price: TokenPrice) -> Self {
        let TokenPrice { input, output, cached_input, cache_write, reasoning_output } = price;
        Self {
            input_per_million: input,
            output_per_million: output,
            cached_input_per_million: cached_input,
            cache_write_per_million: cache_write,
            reasoning_output_per_million: reasoning_output,
            over: None,
            long: None,
        }
    }
}

impl From<&Price> for PriceLine {
    fn from(price: &Price) -> Self {
        let long = price.long.map(|it| Box::new(Self { over: Some(it.over), ..it.tokens.into() }));
        Self { long, ..price.tokens.into() }
    }
}
