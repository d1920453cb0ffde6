//! Folds the updates of a step into a state, with undo.

use std::{slice, sync::Arc};

use graphrun_guard::data_limit::DataLimit;
use serde_json::Value;
use smallvec::SmallVec;

use super::{
    Change, ChangeKind, Channel, Reducer, RemovedMessages, Schema, State, StateError,
    measure::{measure, measure_folded},
};

/// The effects of the updates so far, in the order of the channels. Most steps change few of them.
#[derive(Debug, Default)]
pub(super) struct Folding(SmallVec<[(usize, Effect); 2]>);

/// The content of a channel while updates are folded into it.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    /// The index of the channel in its schema.
    pub(super) at: usize,
    pub(super) channel: &'a Channel,
    pub(super) value: &'a mut Option<Arc<Value>>,
    pub(super) removed: &'a mut RemovedMessages,
}

/// The effect of the updates on one channel.
#[derive(Debug)]
struct Effect {
    /// The data to undo the effect.
    before: Before,
    /// The number of the first update that wrote a value.
    writer: Option<usize>,
    /// The size after all updates, once it is measured.
    size: u64,
}

/// The content of a channel before the step.
#[derive(Debug)]
enum Before {
    /// A list of this length, to which items were appended in place.
    Length(usize),
    /// This value.
    Value(Option<Arc<Value>>),
}

impl Folding {
    /// Returns the number of the first update that wrote the channel.
    pub(super) fn writer(&self, at: usize) -> Option<usize> {
        self.get(at)?.writer
    }

    fn place(&self, at: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&at, |it| it.0)
    }

    fn get(&self, at: usize) -> Option<&Effect> {
        self.place(at).ok().map(|it| &self.0[it].1)
    }

    /// Returns the entry of a channel, which begins with this content.
    fn touch(&mut self, at: usize, before: impl FnOnce() -> Before) -> &mut Effect {
        let place = self.place(at).unwrap_or_else(|place| {
            self.0.insert(place, (at, Effect { before: before(), writer: None, size: 0 }));
            place
        });
        &mut self.0[place].1
    }

    /// Gives a channel its content from before its first write. Clears come before all writes.
    pub(super) fn clear(&mut self, Slot { at, channel, value, removed }: Slot<'_>) {
        let before = std::mem::replace(value, channel.default().cloned());
        if let Some(before) = &before {
            removed.note(channel, before);
        }
        self.touch(at, || Before::Value(before));
    }

    /// Folds a value that the update with this number wrote.
    pub(super) fn fold(
        &mut self,
        mut slot: Slot<'_>,
        writer: usize,
        written: &Arc<Value>,
    ) -> Result<(), StateError> {
        if self.grow(&mut slot, writer, written) {
            return Ok(());
        }
        let Slot { at, channel, value: slot, removed } = slot;
        let touched = self.touch(at, || Before::Value(slot.clone()));
        touched.writer.get_or_insert(writer);
        if let (Before::Length(length), Some(list)) = (&touched.before, slot.as_deref()) {
            touched.before = Before::Value(Some(Arc::new(first(list, *length))));
        }
        *slot = Some(match channel.reducer() {
            Reducer::Replace => Arc::clone(written),
            reducer => {
                let current = slot.take().map(Arc::unwrap_or_clone);
                let folded = removed.change(channel, |removed_max| {
                    reducer.fold(current, Value::clone(written), removed_max)
                });
                Arc::new(folded.map_err(|source| StateError::Reduce {
                    channel: channel.name().clone(),
                    source,
                })?)
            }
        });
        Ok(())
    }

    /// Appends items to a list in place. Returns false if the write does more than append.
    fn grow(&mut self, slot: &mut Slot<'_>, writer: usize, written: &Value) -> bool {
        let Slot { at, channel, value: slot, removed } = slot;
        let reducer = channel.reducer();
        if !reducer.grows_list() {
            return false;
        }
        let list = match slot.as_deref() {
            Some(Value::Array(list)) => list.as_slice(),
            None | Some(Value::Null) => &[],
            Some(_) => return false,
        };
        // Items from before the step must not change.
        let fixed = match self.get(*at).map(|it| &it.before) {
            Some(Before::Length(length)) => *length,
            Some(Before::Value(_)) => 0,
            None => list.len(),
        };
        let items = match written {
            Value::Array(items) if channel.is_whole_list(written) => items.as_slice(),
            item => slice::from_ref(item),
        };
        if reducer.changes_items(&list[..fixed], items) {
            return false;
        }
        let before = match slot.as_deref() {
            Some(Value::Array(list)) => Before::Length(list.len()),
            _ => Before::Value(slot.clone()),
        };
        self.touch(*at, || before).writer.get_or_insert(writer);
        let list = slot.get_or_insert_with(|| Arc::new(Value::Null));
        let list = Arc::make_mut(list);
        if list.is_null() {
            *list = Value::Array(Vec::new());
        }
        if let Value::Array(list) = list {
            removed.change(channel, |removed_max| reducer.add(list, items, removed_max));
        }
        true
    }

    /// Restores the state from before the step.
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

    /// Measures the touched channels after all updates are folded. Only the new items of a grown list are
    /// measured.
    ///
    /// Fails when a value or the state is beyond a limit. A state that was beyond it before may shrink.
    pub(super) fn measure(&mut self, schema: &Schema, state: &State) -> Result<(), StateError> {
        let mut largest: Option<(usize, u64)> = None;
        let mut sum = state.size();
        for (at, touched) in &mut self.0 {
            let (at, old) = (*at, state.sizes[*at]);
            let name = schema.channels()[at].name();
            let limit = |source| StateError::Limit { channel: name.clone(), source };
            let size = match (&touched.before, state.values[at].as_deref()) {
                (_, None) => 0,
                (Before::Length(length), Some(Value::Array(list))) => {
                    let new = list[*length..].iter().map(measure);
                    let new = new.sum::<Result<u64, _>>().map_err(limit)?;
                    DataLimit::ValueMemory.check(old + new).map_err(limit)?;
                    old + new
                }
                (_, Some(value)) => measure_folded(value).map_err(limit)?,
            };
            sum = sum - old + size;
            touched.size = size;
            if largest.is_none_or(|it| size > it.1) {
                largest = Some((at, size));
            }
        }
        if let Some((largest, _)) = largest.filter(|_| sum > state.size()) {
            let channel = schema.channels()[largest].name().clone();
            DataLimit::StateMemory
                .check(sum)
                .map_err(|source| StateError::Limit { channel, source })?;
        }
        Ok(())
    }

    /// Gives a state the sizes that were measured.
    pub(super) fn set_sizes(&self, state: &mut State) {
        self.0.iter().for_each(|(at, touched)| state.set_size(*at, touched.size));
    }

    /// Checks the results of reducers, once all updates are folded. Even if all writes fit, or could not be checked,
    /// the result may not fit.
    pub(super) fn check(&self, schema: &Schema, state: &State) -> Result<(), StateError> {
        for (at, touched) in &self.0 {
            let channel = &schema.channels()[*at];
            if !channel.reducer().computes() {
                continue;
            }
            let checked = match (&touched.before, &state.values[*at]) {
                (_, None) => Ok(()),
                (Before::Length(length), Some(list)) => {
                    channel.validate(&Value::Array(items_after(*length, list).to_vec()))
                }
                (Before::Value(_), Some(value)) => channel.validate(value),
            };
            checked.map_err(|problems| StateError::Value {
                channel: channel.name().clone(),
                problems,
            })?;
        }
        Ok(())
    }

    /// Returns the changes, once all updates are folded.
    pub(super) fn changes(&self, schema: &Schema, state: &State) -> Vec<Change> {
        let change = |(at, touched): &(usize, Effect)| {
            let kind = match (&touched.before, &state.values[*at]) {
                (_, None) => ChangeKind::Cleared,
                (Before::Length(length), Some(list)) => {
                    ChangeKind::Appended(items_after(*length, list).to_vec())
                }
                (Before::Value(_), Some(value)) => ChangeKind::Set(Arc::clone(value)),
            };
            Change { channel: schema.channels()[*at].name().clone(), kind }
        };
        self.0.iter().map(change).collect()
    }
}

/// Returns the items of a list after its first ones.
fn items_after(length: usize, list: &Value) -> &[Value] {
    list.as_array().map_or(&[][..], |it| &it[length..])
}

fn first(list: &Value, length: usize) -> Value {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    Value::Array(items.iter().take(length).cloned().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{id::ChannelName, state::Update};

    fn name() -> ChannelName {
        ChannelName::parse("list").unwrap()
    }

    fn schema(reducer: &str) -> Schema {
        let shape = json!({
            "type": "object",
            "properties": { "list": { "type": "array", "x-merge": reducer } },
        });
        Schema::of_json_schema(&shape, &[]).unwrap()
    }

    fn any_item() -> impl Strategy<Value = Value> {
        (0..6u8, any::<bool>(), 0..3u8).prop_map(|(id, has_id, text)| {
            if has_id { json!({"id": id, "text": text}) } else { json!({"text": text}) }
        })
    }

    fn any_write() -> impl Strategy<Value = Value> {
        prop_oneof![any_item(), proptest::collection::vec(any_item(), 0..4).prop_map(Value::Array),]
    }

    /// Returns the list after a change, by a simple reference implementation.
    fn after(before: Option<Value>, kind: &ChangeKind) -> Option<Value> {
        match kind {
            ChangeKind::Cleared => None,
            ChangeKind::Set(value) => Some(Value::clone(value)),
            ChangeKind::Appended(items) => {
                let mut list = before.and_then(|it| it.as_array().cloned()).unwrap_or_default();
                list.extend(items.iter().cloned());
                Some(Value::Array(list))
            }
        }
    }

    proptest! {
        #[test]
        fn growing_a_list_in_place_equals_its_reducer(
            reducer in prop_oneof![Just("union"), Just("messages"), Just("append")],
            steps in proptest::collection::vec(proptest::collection::vec(any_write(), 0..4), 1..6),
        ) {
            let schema = schema(reducer);
            let channel = schema.channel("list").unwrap();
            let mut state = schema.empty();
            let mut expected = None;
            let mut told = None;
            let mut removed_max = 0;
            for writes in steps {
                let updates: Vec<Update> =
                    writes.iter().map(|it| Update::default().write(name(), it.clone())).collect();
                let before = state.clone();
                let (next, changes) = schema.apply(state, &updates).unwrap();
                for write in writes {
                    expected = Some(channel.reducer().fold(expected, write, &mut removed_max).unwrap());
                }
                prop_assert_eq!(next.get("list"), expected.as_ref());
                for change in &changes {
                    told = after(told, &change.kind);
                }
                prop_assert_eq!(&told, &expected);
                // A refused step must leave the state unchanged.
                let refused = [updates, vec![Update::default().write(name(), json!(7)); 2]].concat();
                let unknown = Update::default().write(ChannelName::parse("none").unwrap(), 1);
                let mut unchanged = before.clone();
                let refused = schema.fold(&mut unchanged, refused.iter().chain([&unknown]));
                prop_assert!(refused.is_err());
                prop_assert_eq!(unchanged, before);
                state = next;
            }
        }
    }

    #[test]
    fn a_clear_drops_no_write_of_the_same_step() {
        let clear = Update { clears: vec![name()], writes: Vec::new() };
        let write = |it: i32| Update::default().write(name(), json!([it]));
        let both = |it: i32| Update { clears: vec![name()], ..write(it) };
        let schema = schema("append");
        let (before, _) = schema.apply(schema.empty(), [&write(0)]).unwrap();
        for (updates, after) in [
            ([write(1), clear.clone()], json!([1])),
            ([clear.clone(), write(1)], json!([1])),
            ([both(1), both(2)], json!([1, 2])),
        ] {
            let (state, _) = schema.apply(before.clone(), &updates).unwrap();
            assert_eq!(state.get("list"), Some(&after), "{updates:?}");
        }
        let (state, _) = schema.apply(before, [&clear, &clear]).unwrap();
        assert_eq!(state.get("list"), None);
    }

    #[test]
    fn new_messages_are_appended_and_known_ones_replaced() {
        let schema = schema("messages");
        let say =
            |id: &str, text: &str| Update::default().write(name(), json!({"id": id, "text": text}));
        let (state, _) = schema.apply(schema.empty(), [&say("a", "one")]).unwrap();
        let (state, changes) =
            schema.apply(state, [&say("b", "two"), &say("b", "better")]).unwrap();
        let better = json!({"id": "b", "text": "better"});
        assert_eq!(changes[0].kind, ChangeKind::Appended(vec![better.clone()]));
        let (_, changes) = schema.apply(state, [&say("c", "three"), &say("a", "other")]).unwrap();
        let (other, three) =
            (json!({"id": "a", "text": "other"}), json!({"id": "c", "text": "three"}));
        assert_eq!(changes[0].kind, ChangeKind::Set(Arc::new(json!([other, better, three]))));
    }
}
