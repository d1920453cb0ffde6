//! Made-up items of maps that depend on each other: their keys differ, and they need only earlier items.

use serde_json::{Value, json};

use super::placed::placed;
use crate::{
    graph::{Graph, ItemReads},
    state::Type,
};

/// The orders of the items of a graph's maps.
#[derive(Debug)]
pub(super) struct KeyedItems(Vec<ItemReads>);

/// Which earlier items an item needs.
#[derive(Clone, Copy, Debug)]
enum Needs {
    /// As many of the first ones as it named before.
    AsMany,
    /// The one before it.
    Previous,
}

impl KeyedItems {
    pub(super) fn of(graph: &Graph) -> Self {
        let items = graph.nodes.values().filter_map(|it| it.policies.schedule.items.as_ref());
        let orders = items.filter_map(|it| Some(it.order.as_ref()?.reads()));
        Self(orders.filter(|it| it.item != Type::Any).collect())
    }

    /// Returns the forms of a value, each with its description: with different needs if it has items of such a map.
    pub(super) fn forms(&self, ty: &Type, value: Value) -> Vec<(&'static str, Value)> {
        if self.0.is_empty() {
            return vec![("", value)];
        }
        let forms = [("", Needs::AsMany), ("each item needs the one before", Needs::Previous)];
        let formed = forms.map(|(label, needs)| {
            let mut value = value.clone();
            self.arrange(ty, &mut value, needs);
            (label, value)
        });
        formed.into()
    }

    fn arrange(&self, ty: &Type, value: &mut Value, needs: Needs) {
        match (ty.required(), value) {
            (Type::List(item), Value::Array(items)) => {
                for it in items.iter_mut() {
                    self.arrange(item, it, needs);
                }
                for order in self.0.iter().filter(|it| is_same(&it.item, item)) {
                    arrange_items(order, items, needs);
                }
            }
            (Type::Map(item), Value::Object(fields)) => {
                for it in fields.values_mut() {
                    self.arrange(item, it, needs);
                }
            }
            (Type::Record(record), Value::Object(fields)) => {
                for field in &record.fields {
                    if let Some(value) = fields.get_mut(&field.name) {
                        self.arrange(&field.ty, value, needs);
                    }
                }
            }
            _ => (),
        }
    }
}

fn is_same(a: &Type, b: &Type) -> bool {
    *b != Type::Any && a.fits(b) && b.fits(a)
}

/// Gives each item a key and needs. Items for which no key is left are removed.
fn arrange_items(order: &ItemReads, items: &mut Vec<Value>, needs: Needs) {
    let mut keys: Vec<Vec<Value>> = Vec::new();
    for at in 0..items.len() {
        let Some(item) = with_new_key(order, &items[at], &keys) else {
            items.truncate(at);
            break;
        };
        keys.push(key_of(order, &item));
        items[at] = item;
    }
    // A key that depends on several fields cannot be told from them.
    let keys: Vec<Value> = match order.key.len() {
        1 => keys.into_iter().flatten().collect(),
        _ => Vec::new(),
    };
    for path in &order.after {
        let Some(ty) = type_at(&order.item, path) else { continue };
        let is_list = matches!(ty.required(), Type::List(_));
        if !is_list && !matches!(ty, Type::Optional(_)) {
            continue;
        }
        for (at, item) in items.iter_mut().enumerate() {
            let named = match value_at(item, path) {
                Some(Value::Array(named)) => named.len(),
                Some(Value::Null) | None => 0,
                Some(_) => 1,
            };
            let earlier = &keys[..at.min(keys.len())];
            let needed = match needs {
                Needs::AsMany => &earlier[..named.min(earlier.len())],
                Needs::Previous => &earlier[earlier.len().saturating_sub(1)..],
            };
            let needed = if is_list { json!(needed) } else { json!(needed.first()) };
            *item = placed(Some(item.take()), path, needed);
        }
    }
}

/// Returns an item, changed if another one has its key; `None` if its type has no other key.
fn with_new_key(order: &ItemReads, item: &Value, keys: &[Vec<Value>]) -> Option<Value> {
    let others = order.key.iter().flat_map(|path| {
        let ty = type_at(&order.item, path);
        let values = ty.map_or_else(Vec::new, |it| values_of(it, keys.len() + 1));
        values.into_iter().map(move |it| placed(Some(item.clone()), path, it))
    });
    std::iter::once(item.clone()).chain(others).find(|it| !keys.contains(&key_of(order, it)))
}

/// Returns different values of a type, at least this many if it has them.
fn values_of(ty: &Type, count: usize) -> Vec<Value> {
    match ty.required() {
        Type::Int(_) => (1..=count).map(|it| json!(it)).collect(),
        Type::String | Type::Any => (1..=count).map(|it| json!(it.to_string())).collect(),
        Type::Enum(words) => words.iter().map(|it| json!(it)).collect(),
        _ => Vec::new(),
    }
}

/// Returns the values that the key of an item depends on.
fn key_of(order: &ItemReads, item: &Value) -> Vec<Value> {
    order.key.iter().map(|path| value_at(item, path).cloned().unwrap_or_default()).collect()
}

fn value_at<'a>(item: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(item, |value, name| value.get(name))
}

fn type_at<'a>(item: &'a Type, path: &[String]) -> Option<&'a Type> {
    path.iter().try_fold(item, |ty, name| ty.field(name))
}
