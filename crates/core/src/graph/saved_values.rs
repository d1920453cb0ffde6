//! The values that a task keeps between its attempts.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

/// The answers or the memos of a task, by name. Clones share them, and most tasks have none.
///
/// ```
/// use graphrun_core::graph::SavedValues;
/// use serde_json::json;
///
/// let mut saved = SavedValues::default();
/// saved.insert("order".to_owned(), json!(17));
/// assert_eq!((saved.get("order"), saved.get("bill")), (Some(&json!(17)), None));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedValues(Option<Arc<BTreeMap<String, Value>>>);

impl SavedValues {
    /// Returns the value under a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.get(name)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.is_empty())
    }

    /// Adds a value, in place of one of the same name. Clones keep their values.
    pub fn insert(&mut self, name: String, value: Value) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(name, value);
    }

    /// Returns the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|it| it.keys()).map(String::as_str)
    }

    /// Keeps the values whose names fit.
    pub fn retain(&mut self, fits: impl Fn(&str) -> bool) {
        if let Some(saved) = &mut self.0 {
            Arc::make_mut(saved).retain(|name, _| fits(name));
        }
    }
}

impl FromIterator<(String, Value)> for SavedValues {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Self {
        Self(Some(Arc::new(values.into_iter().collect())))
    }
}
