//! The updates of a step that do not fit beside the others.

use std::collections::BTreeSet;

use super::{Schema, State, StateError, Update};
use crate::id::ChannelName;

/// A state with those updates of a step that fit.
struct Trial<'a> {
    schema: &'a Schema,
    state: State,
    /// The channels without a reducer that are written.
    written: BTreeSet<&'a ChannelName>,
}

impl Schema {
    /// Returns the updates of a step that do not fit beside those before them, by their index and with the reason. All
    /// others fit together. This is for updates that [`Schema::fold`] refuses; it changes nothing.
    pub fn misfits(&self, state: &State, updates: &[&Update]) -> Vec<(usize, StateError)> {
        // Clears come before all writes.
        let clears = updates.iter().flat_map(|it| &it.clears).cloned().collect();
        let mut state = state.clone();
        if self.fold(&mut state, [&Update { clears, writes: Vec::new() }]).is_err() {
            return Vec::new();
        }
        let writes = updates.iter().map(|it| Update { clears: Vec::new(), ..Update::clone(it) });
        let writes: Vec<Update> = writes.collect();
        let mut misfits = Vec::new();
        Trial { schema: self, state, written: BTreeSet::new() }.add(0, &writes, &mut misfits);
        misfits
    }
}

impl<'a> Trial<'a> {
    /// Adds those of the updates that fit, and notes the others. The first update has this index.
    ///
    /// It tries all at once and halves what does not fit, so a few misfits among many updates cost little.
    fn add(&mut self, first: usize, updates: &'a [Update], misfits: &mut Vec<(usize, StateError)>) {
        let Err(error) = self.fold(updates) else { return };
        if updates.len() == 1 {
            return misfits.push((first, error));
        }
        let (left, right) = updates.split_at(updates.len() / 2);
        self.add(first, left, misfits);
        self.add(first + left.len(), right, misfits);
    }

    /// Adds updates that fit together and beside those before them.
    fn fold(&mut self, updates: &'a [Update]) -> Result<(), StateError> {
        let names = || updates.iter().flat_map(|it| &it.writes).map(|(name, _)| name);
        if let Some(name) = names().find(|it| self.written.contains(it)) {
            return Err(StateError::Conflict(name.clone()));
        }
        self.schema.fold(&mut self.state, updates)?;
        let has_one_writer = |name: &&ChannelName| {
            let channel = self.schema.channel(name.as_str());
            channel.is_some_and(|it| !it.reducer().takes_several_writers())
        };
        self.written.extend(names().filter(has_one_writer));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the indexes of the writes that do not fit beside the others.
    fn misfits(field: &Value, writes: &[Value]) -> Vec<usize> {
        let shape = json!({ "type": "object", "properties": { "field": field } });
        let schema = Schema::of_json_schema(&shape, &[]).unwrap();
        let name = ChannelName::parse("field").unwrap();
        let update = |it: &Value| Update::default().write(name.clone(), it.clone());
        let updates: Vec<Update> = writes.iter().map(update).collect();
        let misfits = schema.misfits(&schema.empty(), &updates.iter().collect::<Vec<_>>());
        // All others fit together.
        let is_misfit = |at: usize| misfits.iter().any(|it| it.0 == at);
        let fitting = updates.iter().enumerate().filter(|it| !is_misfit(it.0)).map(|it| it.1);
        schema.apply(schema.empty(), fitting).unwrap();
        misfits.into_iter().map(|it| it.0).collect()
    }

    #[test]
    fn an_update_that_does_not_fit_beside_those_before_it_is_found() {
        let huge = 9_000_000_000_000_000_000_i64;
        let sum = json!({ "type": "integer", "x-merge": "sum", "default": 0 });
        assert_eq!(misfits(&sum, &[json!(huge), json!(huge), json!(1), json!(huge)]), [1, 3]);
        let bit = json!({ "enum": [0, 1], "x-merge": "sum", "default": 0 });
        assert_eq!(misfits(&bit, &vec![json!(1); 5]), [1, 2, 3, 4]);
        let one = json!({ "type": "object", "maxProperties": 1, "x-merge": "merge" });
        let writes = [json!({"a": 1}), json!({"b": 1}), json!({"a": 2})];
        assert_eq!(misfits(&one, &writes), [1]);
        let plain = json!({ "type": "integer" });
        assert_eq!(misfits(&plain, &[json!(1), json!(2), json!(3)]), [1, 2]);
    }
}
