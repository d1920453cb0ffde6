//! The context windows of models: how many tokens a request may have together with its answer. A window depends on the
//! provider, the contract or the settings of a server, so it comes from the user's configuration; that of a model without
//! an entry is unknown.

use std::collections::BTreeMap;

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
    /// Returns the window of a model. A name without a provider is one of OpenAI's, as everywhere.
    pub fn of(&self, model: &str) -> Option<u64> {
        let by_default = || self.0.get(&format!("openai/{model}")).filter(|_| !model.contains('/'));
        self.0.get(model).or_else(by_default).copied()
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
        Self(windows.into_iter().collect())
    }
}
