//! The state: an immutable value per channel, shared rather than copied.

use std::sync::Arc;

use graphrun_guard::data_limit::DataLimit;
use serde::{
    Deserializer,
    de::{DeserializeOwned, Visitor, value::MapDeserializer},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Change, ChangeKind, Channel, RemovedMessages, Schema, StateError};
use crate::id::ChannelName;

/// A value per channel. Only a [`Schema`] makes a new one.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) schema: Schema,
    /// By the index of the channel in the schema.
    pub(super) values: Vec<Option<Arc<Value>>>,
    /// The size of each value, so that a step does not measure the whole state.
    pub(super) sizes: Vec<u64>,
    /// The sum of the sizes.
    size: u64,
    pub(super) removed: RemovedMessages,
}

/// The state cannot be read as this type.
#[derive(Debug, Error)]
#[error("the state is not a `{wanted}`")]
pub struct ViewError {
    wanted: &'static str,
    source: serde_json::Error,
}

impl State {
    pub(super) fn new(schema: Schema, values: Vec<Option<Arc<Value>>>, sizes: Vec<u64>) -> Self {
        let size = sizes.iter().sum();
        Self { schema, values, sizes, size, removed: RemovedMessages::default() }
    }

    /// Returns the state of a run in which these messages have been removed.
    #[must_use]
    pub fn with_removed_messages(self, removed: RemovedMessages) -> Self {
        Self { removed, ..self }
    }

    /// Returns which messages have been removed. A run saves it beside its values.
    pub fn removed_messages(&self) -> &RemovedMessages {
        &self.removed
    }

    pub(super) fn set_size(&mut self, at: usize, size: u64) {
        self.size = self.size - self.sizes[at] + size;
        self.sizes[at] = size;
    }

    /// Returns the state without the values of private channels, as it is shown.
    #[must_use]
    pub fn without_private(&self) -> Self {
        self.with_channels(|it| !it.is_private())
    }

    /// Returns the part of the state that is the result of a run: without private channels and those of used graphs.
    #[must_use]
    pub fn public(&self) -> Self {
        self.with_channels(Channel::is_public)
    }

    fn with_channels(&self, is_kept: impl Fn(&Channel) -> bool) -> Self {
        let mut part = self.clone();
        for (at, channel) in self.schema.channels().iter().enumerate() {
            if !is_kept(channel) {
                part.values[at] = None;
                part.set_size(at, 0);
            }
        }
        part
    }

    /// Returns the value of a channel, or `None` before the first write.
    pub fn get(&self, channel: &str) -> Option<&Value> {
        let index = self.schema.index(channel)?;
        self.values[index].as_deref()
    }

    /// Returns the value of a channel, shared and not copied.
    pub fn get_shared(&self, channel: &str) -> Option<Arc<Value>> {
        self.values[self.schema.index(channel)?].clone()
    }

    /// Returns the channels that hold a value, in the order of the schema.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        let names = self.schema.channels().iter().map(|it| it.name().as_str());
        names.zip(&self.values).filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Returns the changes that make this state from an empty one.
    pub fn as_changes(&self) -> impl Iterator<Item = Change> {
        let held = self.schema.channels().iter().zip(&self.values);
        held.filter_map(|(channel, value)| {
            let kind = ChangeKind::Set(Arc::clone(value.as_ref()?));
            Some(Change { channel: channel.name().clone(), kind })
        })
    }

    /// Reads the state as a struct whose fields are channels; `()` reads nothing.
    ///
    /// # Errors
    ///
    /// Fails when a required field is not written yet, or has another type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ViewError> {
        T::deserialize(Fields(self)).map_err(|source: serde_json::Error| ViewError {
            wanted: std::any::type_name::<T>().rsplit("::").next().unwrap_or_default(),
            source,
        })
    }

    /// Returns the state as one JSON object.
    pub fn to_json(&self) -> Map<String, Value> {
        self.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    /// Returns a part of it as a separate state: the channels of another schema, each under the name that it
    /// has in this one.
    pub(crate) fn within(
        &self,
        schema: &Schema,
        name: impl Fn(&ChannelName) -> ChannelName,
    ) -> Self {
        let held = |it: &Channel| match self.schema.index(name(it.name()).as_str()) {
            Some(index) => (self.values[index].clone(), self.sizes[index]),
            None => (None, 0),
        };
        let (values, sizes) = schema.channels().iter().map(held).unzip();
        Self::new(schema.clone(), values, sizes)
    }

    /// Returns its size, which [`DataLimit::StateMemory`] limits.
    ///
    /// [`DataLimit::StateMemory`]: graphrun_guard::data_limit::DataLimit::StateMemory
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Checks its size after a person has set these channels.
    pub fn check_size<'a>(
        &self,
        mut set: impl Iterator<Item = &'a ChannelName>,
    ) -> Result<(), StateError> {
        let Some(channel) = set.next() else { return Ok(()) };
        DataLimit::StateMemory
            .check(self.size())
            .map_err(|source| StateError::Limit { channel: channel.clone(), source })
    }

    /// Returns the schema that made it.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
}

/// The fields of a state. A unit reads none of them, and a struct only its own.
struct Fields<'de>(&'de State);

impl<'de> Deserializer<'de> for Fields<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(MapDeserializer::new(self.0.iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let held = fields.iter().filter_map(|&name| Some((name, self.0.get(name)?)));
        visitor.visit_map(MapDeserializer::new(held))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::Reducer;

    #[test]
    fn a_result_has_less_than_a_shown_state() {
        let channel = |name: &str| {
            let name = ChannelName::parse(name).unwrap();
            let channel = Channel::new(name, json!({"type": "integer"}), Reducer::Replace).unwrap();
            channel.with_default(json!(1))
        };
        let hidden = channel("used_hidden").private().inner();
        let channels =
            [channel("open"), channel("used").inner(), channel("hidden").private(), hidden];
        let state = Schema::new(channels).unwrap().empty();
        let names =
            |state: State| state.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(state.without_private()), ["open", "used"]);
        assert_eq!(names(state.public()), ["open"]);
        assert_eq!(names(state).len(), 4);
    }
}
