//! The names that only a node for items has.

use graphrun_core::state::{NumberRange, Schema, Type};

/// The default name of the item of a dispatched task.
pub const ITEM: &str = "item";

/// The name of the position of the item, from zero. A field of the state or an item with this name takes precedence.
pub const INDEX: &str = "index";

/// Returns the names that only a node for items has: the position, and the item, which hides it.
pub fn names_of_item(item: Option<(&str, &Type)>, schema: &Schema) -> Vec<(String, Type)> {
    let Some((name, ty)) = item else { return Vec::new() };
    let index = schema
        .channel(INDEX)
        .is_none()
        .then(|| (INDEX.to_owned(), Type::Int(NumberRange::FROM_ZERO)));
    index.into_iter().chain([(name.to_owned(), ty.clone())]).collect()
}
