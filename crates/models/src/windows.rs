//! The context windows of models: how many tokens a request may have together with its answer. The sizes that the makers
//! state are in the table of [`KnownModel`]. A window depends on the contract or the settings of a server, so a user's
//! configuration comes before them; that of a model without an entry is unknown.

use std::{collections::BTreeMap, sync::LazyLock};

use super::provider::{KnownModel, full_name};

/// The context windows of models, in tokens, by the name of the model, as in `ollama/qwen3-coder`.
///
/// ```
/// use graphrun_models::ContextWindows;
///
/// let windows = ContextWindows::from_iter([("openai/small".to_owned(), 8_000)]);
/// assert_eq!((windows.of("openai/small"), windows.of("small")), (Some(8_000), Some(8_000)));
/// assert_eq!(windows.of("lab/small"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextWindows(BTreeMap<String, u64>);

impl ContextWindows {
    /// Returns the sizes that every program has.
    pub fn built_in() -> &'static Self {
        static WINDOWS: LazyLock<ContextWindows> = LazyLock::new(|| {
            let models = KnownModel::all().iter();
            models.filter_map(|(name, model)| Some((name.clone(), model.context?))).collect()
        });
        &WINDOWS
    }

    /// Returns the window of a model. A name without a provider is one of OpenAI's, as everywhere.
    pub fn of(&self, model: &str) -> Option<u64> {
        self.0.get(full_name(model).as_ref()).copied()
    }

    /// Adds a window, or replaces that of a model.
    pub fn set(&mut self, model: &str, tokens: u64) {
        self.0.insert(full_name(model).into_owned(), tokens);
    }

    /// Returns how many models have a window.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no model has a window.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, u64)> for ContextWindows {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(windows: I) -> Self {
        let full = |(model, tokens): (String, _)| (full_name(&model).into_owned(), tokens);
        Self(windows.into_iter().map(full).collect())
    }
}
