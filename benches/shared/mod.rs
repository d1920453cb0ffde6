//! The parts that several benchmarks use.

pub(crate) mod table;
pub(crate) mod team;

use serde_json::{Map, Value};

/// Writes an update into a state of JSON, as the floors do.
pub(crate) fn write(state: &mut Map<String, Value>, update: Value) {
    let Value::Object(update) = update else { return };
    for (name, value) in update {
        state.insert(name, value);
    }
}
