//! What the makers of models state about them: context windows and list prices.
//!
//! `models.toml` has the figures, each with its date and its origin. They age, so a configuration comes before them. A model
//! that is not in the table has no figures.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use jiff::civil::Date;
use toml_edit::{Document, Item, TableLike};

use super::settings::TableReader;
use crate::{Price, TableProblem};

/// The figures of all models.
const BUILT_IN: &str = include_str!("models.toml");

/// The figures of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownModel {
    /// The most tokens of a request together with its answer.
    pub context: Option<u64>,
    /// The list price.
    pub price: Price,
    /// The day for which the figures hold.
    pub as_of: Date,
    /// The pages with the figures.
    pub origin: Vec<String>,
}

impl KnownModel {
    /// Returns the models with figures, by their names.
    ///
    /// ```
    /// use graphrun_models::KnownModel;
    ///
    /// let model = &KnownModel::all()["openai/gpt-5-mini"];
    /// assert_eq!(model.context, Some(400_000));
    /// assert!(model.origin[0].starts_with("https://"));
    /// ```
    ///
    /// # Panics
    /// Never: a test reads the table.
    pub fn all() -> &'static BTreeMap<String, Self> {
        static MODELS: LazyLock<BTreeMap<String, KnownModel>> = LazyLock::new(|| {
            let document = Document::parse(BUILT_IN)
                .expect("the table of the models is valid, as a test proves");
            let model = |(name, item): (&str, &Item)| {
                let table = item.as_table_like().expect("each model is a table");
                let mut problems = Vec::new();
                let model = KnownModel::read(name, table, &mut problems);
                (name.to_owned(), model.unwrap_or_else(|| panic!("{name}: {problems:?}")))
            };
            document.iter().map(model).collect()
        });
        &MODELS
    }

    /// Returns the figures of a model. A name without a provider is one of OpenAI's, as everywhere.
    pub fn find(model: &str) -> Option<&'static Self> {
        Self::all().get(full_name(model).as_ref())
    }

    fn read(name: &str, table: &dyn TableLike, problems: &mut Vec<TableProblem>) -> Option<Self> {
        let others = ["context", "as_of", "origin"];
        let price = Price::read_beside(name, table, &others, problems)?;
        let context = match table.get("context") {
            Some(context) => Some(TableReader::new(problems).whole("context", context)?),
            None => None,
        };
        let as_of = table.get("as_of")?.as_datetime()?.to_string().parse().ok()?;
        let origin = table.get("origin")?.as_array()?.iter();
        let origin = origin.map(|it| it.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        Some(Self { context, price, as_of, origin })
    }
}

/// Returns the name of a model with its provider. A name without one is that of a model of OpenAI.
///
/// ```
/// use graphrun_models::full_name;
///
/// assert_eq!((full_name("gpt-5").as_ref(), full_name("lab/a").as_ref()), ("openai/gpt-5", "lab/a"));
/// ```
pub fn full_name(model: &str) -> Cow<'_, str> {
    if model.contains('/') {
        return model.into();
    }
    format!("{}/{model}", super::Providers::DEFAULT).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Providers, TokenPrice};

    #[test]
    fn every_figure_has_a_provider_a_date_and_an_origin() {
        let models = KnownModel::all();
        assert!(models.len() >= 15, "{}", models.len());
        for (name, model) in models {
            assert!(Providers::built_in().split(name).is_some() && name.contains('/'), "{name}");
            assert!(model.context.is_none_or(|it| it >= 8_000), "{name}");
            assert!(!model.origin.is_empty(), "{name}");
            assert!(model.origin.iter().all(|it| it.starts_with("https://")), "{name}");
            assert!(model.as_of.year() >= 2026, "{name}");
            let Price { tokens, long } = model.price;
            let TokenPrice { input, output, cached_input, cache_write, .. } = tokens;
            let has_output = !name.contains("embedding");
            assert!(0.0 < input && (input < output) == has_output, "{name}");
            assert!(has_output || output == 0.0, "{name}");
            assert!(cached_input.is_none_or(|it| it < input), "{name}");
            assert!(cache_write.is_none_or(|it| it > input), "{name}");
            let is_dearer = |it: TokenPrice| it.input > input && it.output > output;
            assert!(long.is_none_or(|it| is_dearer(it.tokens)), "{name}");
        }
    }

    #[test]
    fn a_table_without_its_date_or_with_another_key_is_refused() {
        let read = |text: &str| {
            let document = Document::parse(text).unwrap();
            KnownModel::read("lab/a", document.as_table(), &mut Vec::new())
        };
        let whole = "input_per_million = 1\noutput_per_million = 2\nas_of = 2026-01-02\norigin = ['https://a']\n";
        assert_eq!(read(whole).unwrap().as_of.to_string(), "2026-01-02");
        for wrong in [
            whole.replace("as_of = 2026-01-02\n", ""),
            whole.replace("input_per_million", "in_per_million"),
            format!("{whole}context = 'much'\n"),
            format!("{whole}window = 1\n"),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }
}
