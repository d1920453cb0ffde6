//! The order of the items of a `map` that depend on each other: `key` and `after`.

use std::{collections::HashMap, fmt, sync::Arc};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ItemNeeds, ItemOrder, ItemReads, RouteError, RouteView},
    state::Type,
};
use graphrun_expressions::typing::{comparable, describe};
use graphrun_guard::data_limit::DataLimit;
use serde_json::Value;

use crate::{
    Expression,
    lower::environment::NodeScope,
    source::{reader::Yaml, report::Report},
};

/// The most characters of a key, and the most keys of a cycle, in a message.
const KEY_CHARACTERS_MAX: usize = 60;
const CYCLE_KEYS_MAX: usize = 10;

/// The order of items by their keys, and the keys that each item needs.
#[derive(Clone)]
pub(crate) struct KeyedOrder {
    item: Type,
    key: Expression,
    after: Expression,
}

impl KeyedOrder {
    /// Reads `key` and `after` of a map. Both are about one item, which has this type.
    pub(super) fn read(
        report: &mut Report,
        scope: &NodeScope<'_>,
        item: &Type,
        map: &Yaml,
    ) -> Option<Arc<dyn ItemOrder>> {
        let (key, after) = match (map.get("key"), map.get("after")) {
            (None, None) => return None,
            (Some(key), Some(after)) => (key, after),
            (key, after) => {
                let yaml = key.or(after)?;
                let (message, help) = if key.is_some() {
                    ("`key` has no effect without `after`", "add the keys that each item needs")
                } else {
                    ("`after` names items by their `key`", "add `key`, such as `key: item.id`")
                };
                let diagnostic = Diagnostic::error("GR006", message);
                let diagnostic = diagnostic.at(report.span(&yaml.range), "one of two");
                report.push(diagnostic.help(help));
                return None;
            }
        };
        let key_read = read_part(report, scope, key, "`key`");
        let after_read = read_part(report, scope, after, "`after`");
        let key_read = key_read?;
        let after_read = after_read?;
        let is_name = [Type::String, Type::INT].iter().any(|it| key_read.ty().fits(it));
        if !is_name {
            let shown = describe(key_read.ty());
            let message = format!("a key is a text or a whole number, and this is {shown}");
            let span = report.span(&key.range);
            report.push(Diagnostic::error("GR022", message).at(span, "no key"));
        }
        let are_keys = match after_read.ty() {
            Type::List(item) => comparable(item, key_read.ty()),
            other => *other == Type::Any,
        };
        if !are_keys {
            let wanted = key_read.ty();
            let shown = describe(after_read.ty());
            let message = format!("`after` is a list of keys (`[{wanted}]`), and this is {shown}");
            let span = report.span(&after.range);
            report.push(Diagnostic::error("GR022", message).at(span, "no such list"));
        }
        let is_valid = is_name && are_keys;
        let order = Self { item: item.clone(), key: key_read, after: after_read };
        is_valid.then(|| -> Arc<dyn ItemOrder> { Arc::new(order) })
    }

    fn key_of(&self, view: &RouteView<'_>, item: &Value) -> Result<String, RouteError> {
        let key = self.key.evaluate_for_item(view, item)?;
        Ok(key_text(&key))
    }
}

/// Returns the text by which keys are compared: `1.0` is the key `1`.
fn key_text(key: &Value) -> String {
    match key.as_f64().filter(|_| key.is_f64()) {
        Some(float) => float.to_string(),
        None => key.to_string(),
    }
}

/// Reads an expression that depends on the item alone: the order must be the same whenever it is computed.
fn read_part(
    report: &mut Report,
    scope: &NodeScope<'_>,
    yaml: &Yaml,
    what: &str,
) -> Option<Expression> {
    let part = scope.expression(report, yaml)?;
    let reads = part.reads();
    let facts = part.facts();
    let is_pure = part.access_set().visits.is_empty() && !facts.time && !facts.item_index;
    if !reads.is_empty() || !is_pure {
        let other = reads.first().map_or("facts of the run".to_owned(), |it| format!("`{it}`"));
        let message = format!("{what} depends on {other}, and may depend on the item only");
        let diagnostic = Diagnostic::error("GR039", message);
        let diagnostic = diagnostic.at(report.span(&yaml.range), "not the item");
        report.push(diagnostic.help("let an earlier node write it into the items"));
    }
    Some(part)
}

impl ItemOrder for KeyedOrder {
    fn needs(&self, items: &[&Value], view: &RouteView<'_>) -> Result<ItemNeeds, RouteError> {
        let keys: Vec<String> =
            items.iter().map(|it| self.key_of(view, it)).collect::<Result<_, _>>()?;
        let mut numbers = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            if numbers.insert(key.as_str(), at).is_some() {
                let reason = format!("two items have the key {}", shown(key));
                return Err(self.key.route_error(reason));
            }
        }
        let (mut count, mut missing): (u64, Option<String>) = (0, None);
        let mut needs = Vec::with_capacity(items.len());
        for (item, key) in items.iter().zip(&keys) {
            let after = self.after.evaluate_for_item(view, item)?;
            let Some(after) = after.as_array() else {
                return Err(self.after.route_error(format!("`{after}` is not a list")));
            };
            count = count.saturating_add(after.len() as u64);
            DataLimit::MapItems.check(count).map_err(|reached| {
                self.after.route_error(format!("the {count} keys that items need are {reached}"))
            })?;
            let mut of_item = Vec::with_capacity(after.len());
            for needed in after {
                let needed = key_text(needed);
                match numbers.get(needed.as_str()) {
                    Some(&at) => of_item.push(at),
                    None if missing.is_none() => {
                        let key = shown(key);
                        let needed = shown(&needed);
                        let reason =
                            format!("the item {key} needs {needed}, and no item has this key");
                        missing = Some(reason);
                    }
                    None => (),
                }
            }
            of_item.sort_unstable();
            of_item.dedup();
            needs.push(of_item);
        }
        if let Some(cycle) = cycle(&needs) {
            let more = if cycle.len() > CYCLE_KEYS_MAX { " → …" } else { "" };
            let names = cycle.iter().take(CYCLE_KEYS_MAX).map(|&it| shown(&keys[it]));
            let names: Vec<String> = names.collect();
            let reason = format!("items need each other: {}{more}", names.join(" → "));
            return Err(self.after.route_error(reason));
        }
        let keys = keys.iter().map(|it| shown(it)).collect();
        Ok(ItemNeeds { keys, needs, missing })
    }

    fn reads(&self) -> ItemReads {
        let paths = |it: &Expression| it.access_set().item_paths;
        ItemReads { item: self.item.clone(), key: paths(&self.key), after: paths(&self.after) }
    }
}

/// The sources identify the order.
impl fmt::Debug for KeyedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {}", self.key.source(), self.after.source())
    }
}

/// Returns items that need each other, if there are any: each needs the next one, and the last one is the first.
fn cycle(needs: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut unmet: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut dependents = vec![Vec::new(); needs.len()];
    for (item, needs) in needs.iter().enumerate() {
        for &need in needs {
            dependents[need].push(item);
        }
    }
    let mut ready: Vec<usize> = (0..needs.len()).filter(|&it| unmet[it] == 0).collect();
    while let Some(item) = ready.pop() {
        for &dependent in &dependents[item] {
            unmet[dependent] -= 1;
            if unmet[dependent] == 0 {
                ready.push(dependent);
            }
        }
    }
    // Every item that is left needs another one that is left, so this path comes back to itself.
    let mut item = unmet.iter().position(|&it| it > 0)?;
    let mut path = Vec::new();
    let mut positions = HashMap::new();
    while !positions.contains_key(&item) {
        positions.insert(item, path.len());
        path.push(item);
        item = needs[item].iter().copied().find(|&it| unmet[it] > 0)?;
    }
    let mut cycle = path.split_off(positions[&item]);
    cycle.push(item);
    Some(cycle)
}

fn shown(key: &str) -> String {
    match key.char_indices().nth(KEY_CHARACTERS_MAX) {
        Some((at, _)) => format!("{}…", &key[..at]),
        None => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_and_nothing_else_is() {
        for (needs, expected) in [
            (vec![], None),
            (vec![vec![], vec![0], vec![0, 1]], None),
            (vec![vec![2], vec![0], vec![]], None),
            (vec![vec![0]], Some(vec![0, 0])),
            (vec![vec![1], vec![2], vec![1]], Some(vec![1, 2, 1])),
            (vec![vec![], vec![3, 0], vec![], vec![1, 2]], Some(vec![1, 3, 1])),
        ] {
            assert_eq!(cycle(&needs), expected, "{needs:?}");
        }
    }

    #[test]
    fn a_long_chain_has_no_cycle() {
        let needs: Vec<Vec<usize>> =
            (0..200_000).map(|it| if it == 0 { vec![] } else { vec![it - 1] }).collect();
        assert_eq!(cycle(&needs), None);
    }
}
