//! The order of the items of a map that depend on each other.
//!
//! They are tasks of one step that begin late: the rules keep a task back until those that it needs are settled. Its record
//! is like any other, so a crash, a migration and the worst case need nothing new. A step for each level would make items
//! wait for others of their level.

use std::fmt;

use serde_json::Value;

use super::{RouteError, RouteView};
use crate::state::Type;

/// Decides which items of a map each item needs. The rules of a run start an item when those that it needs are done.
///
/// It is evaluated when the items are dispatched, and again whenever their step is restored, so it reads nothing but
/// the items. Its `Debug` form identifies it.
pub trait ItemOrder: fmt::Debug + Send + Sync {
    /// Returns the needs of the items.
    ///
    /// # Errors
    ///
    /// Fails if two items have one key, and if items need each other.
    fn needs(&self, items: &[&Value], view: &RouteView<'_>) -> Result<ItemNeeds, RouteError>;

    /// Returns its reads of an item, for a search that makes up items.
    fn reads(&self) -> ItemReads;
}

/// The reads of an [`ItemOrder`] within an item. An empty path is the whole item.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemReads {
    /// The type of an item.
    pub item: Type,
    /// The paths that its key depends on.
    pub key: Vec<Vec<String>>,
    /// The paths that the keys of the items it needs depend on.
    pub after: Vec<Vec<String>>,
}

/// The needs of the items of a map. No item needs itself, also not through others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemNeeds {
    /// The key of each item, for messages.
    pub keys: Vec<String>,
    /// The positions of the items that each item needs.
    pub needs: Vec<Vec<usize>>,
    /// The first item that needs a key which no item has, in words. The route of a map refuses it. In a step that is
    /// restored, such an item was done in an earlier one.
    pub missing: Option<String>,
}
