//! Folding the updates of a step into a state, in a way that can be taken back.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Change, ChangeKind, Channel, Reducer, Schema, State, StateError};

/// What the updates of a step did so far, by the index of the channel.
#[derive(Debug, Default)]
pub(super) struct Folding(BTreeMap<usize, Touched>);

#[derive(Debug)]
struct Touched {
    /// How to take it back.
    before: Before,
    /// Whether a value was written, after the last clearing if there was one.
    written: bool,
}

/// What a channel held before the step.
#[derive(Debug)]
enum Before {
    /// A list of this length, to which items were appended in place.
    Length(usize),
    /// This value.
    Value(Option<Arc<Value>>),
}

impl Folding {
    /// Whether a task of this step wrote the channel.
    pub(super) fn is_written(&self, at: usize) -> bool {
        self.0.get(&at).is_some_and(|it| it.written)
    }

    pub(super) fn clear(&mut self, at: usize, slot: &mut Option<Arc<Value>>) {
        let value = slot.take();
        let before = match self.0.remove(&at).map(|it| it.before) {
            Some(Before::Value(before)) => before,
            // Items were appended in this step; the list as it was is a part of the one there is.
            Some(Before::Length(length)) => value.map(|it| Arc::new(first(&it, length))),
            None => value,
        };
        self.0.insert(at, Touched { before: Before::Value(before), written: false });
    }

    pub(super) fn fold(
        &mut self,
        at: usize,
        channel: &Channel,
        slot: &mut Option<Arc<Value>>,
        written: &Value,
    ) -> Result<(), StateError> {
        if let Reducer::Append = channel.reducer() {
            self.append(at, channel, slot, written);
            return Ok(());
        }
        let before = || Touched { before: Before::Value(slot.clone()), written: false };
        self.0.entry(at).or_insert_with(before).written = true;
        let current = slot.take().map(Arc::unwrap_or_clone);
        let folded = channel.reducer().fold(current, written.clone());
        let value = folded
            .map_err(|source| StateError::Reduce { channel: channel.name().clone(), source })?;
        *slot = Some(Arc::new(value));
        Ok(())
    }

    fn append(
        &mut self,
        at: usize,
        channel: &Channel,
        slot: &mut Option<Arc<Value>>,
        written: &Value,
    ) {
        let before = match slot.as_deref() {
            Some(Value::Array(items)) => Before::Length(items.len()),
            _ => Before::Value(None),
        };
        self.0.entry(at).or_insert(Touched { before, written: false }).written = true;
        let list = slot.get_or_insert_with(|| Arc::new(Value::Array(Vec::new())));
        if let Value::Array(list) = Arc::make_mut(list) {
            match written {
                Value::Array(items) if channel.is_whole_list(written) => {
                    list.extend_from_slice(items);
                }
                item => list.push(item.clone()),
            }
        }
    }

    /// Puts back what there was before the step.
    pub(super) fn undo(self, state: &mut State) {
        for (at, touched) in self.0 {
            match touched.before {
                Before::Value(value) => state.values[at] = value,
                Before::Length(length) => {
                    if let Some(Value::Array(list)) = state.values[at].as_mut().map(Arc::make_mut) {
                        list.truncate(length);
                    }
                }
            }
        }
    }

    /// What changed, once all updates are folded.
    pub(super) fn changes(
        &self,
        schema: &Schema,
        state: &State,
    ) -> Result<Vec<Change>, StateError> {
        let mut changes = Vec::new();
        for (&at, touched) in &self.0 {
            let channel = &schema.channels()[at];
            let kind = match (&touched.before, &state.values[at]) {
                (_, None) => ChangeKind::Cleared,
                (Before::Length(length), Some(list)) => {
                    let items = list.as_array().map_or(&[][..], |it| &it[*length..]);
                    ChangeKind::Appended(items.to_vec())
                }
                (Before::Value(_), Some(value)) => {
                    check_whole(channel, value)?;
                    ChangeKind::Set(Value::clone(value))
                }
            };
            changes.push(Change { channel: channel.name().clone(), kind });
        }
        Ok(changes)
    }
}

/// Checks a value whose writes fit, or could not be checked, and which may not fit as a whole.
fn check_whole(channel: &Channel, value: &Value) -> Result<(), StateError> {
    match channel.reducer() {
        Reducer::Sum | Reducer::Merge | Reducer::Messages | Reducer::Custom(_) => channel
            .validate(value)
            .map_err(|problems| StateError::Value { channel: channel.name().clone(), problems }),
        _ => Ok(()),
    }
}

fn first(list: &Value, length: usize) -> Value {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    Value::Array(items.iter().take(length).cloned().collect())
}
