//! The state: an immutable value per channel, shared rather than copied.

use std::sync::Arc;

use serde::de::{DeserializeOwned, value::MapDeserializer};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Change, ChangeKind, Channel, Schema, StateError};
use crate::{data_limit::DataLimit, id::ChannelName};

/// A value per channel. Only a [`Schema`] makes a new one.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) schema: Schema,
    /// By the index of the channel in the schema.
    pub(super) values: Vec<Option<Arc<Value>>>,
    /// The size of each of them, so that a step does not measure the whole state.
    pub(super) sizes: Vec<u64>,
}

/// The state cannot be seen as a type.
#[derive(Debug, Error)]
#[error("the state is not a `{wanted}`")]
pub struct ViewError {
    wanted: &'static str,
    source: serde_json::Error,
}

impl State {
    /// The value of a channel, or `None` before the first write.
    pub fn get(&self, channel: &str) -> Option<&Value> {
        let index = self.schema.index(channel)?;
        self.values[index].as_deref()
    }

    /// The value of a channel, which is shared and not copied.
    pub(crate) fn get_shared(&self, channel: &str) -> Option<Arc<Value>> {
        self.values[self.schema.index(channel)?].clone()
    }

    /// The channels that hold a value, in the order of the schema.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        let names = self.schema.channels().iter().map(|it| it.name().as_str());
        names.zip(&self.values).filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// What would make this state out of one that holds nothing.
    pub fn as_changes(&self) -> impl Iterator<Item = Change> {
        let held = self.schema.channels().iter().zip(&self.values);
        held.filter_map(|(channel, value)| {
            let kind = ChangeKind::Set(Arc::clone(value.as_ref()?));
            Some(Change { channel: channel.name().clone(), kind })
        })
    }

    /// Reads the state as a struct whose fields are channels.
    ///
    /// # Errors
    ///
    /// Fails when a field that must be there is not written yet, or is of another type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ViewError> {
        T::deserialize(MapDeserializer::new(self.iter())).map_err(|source| ViewError {
            wanted: std::any::type_name::<T>().rsplit("::").next().unwrap_or_default(),
            source,
        })
    }

    /// The state as one JSON object.
    pub fn to_json(&self) -> Map<String, Value> {
        self.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    /// A part of it as a state of its own: the channels of another schema, each by the name that
    /// it has in this one.
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
        Self { schema: schema.clone(), values, sizes }
    }

    /// Its size, by which [`DataLimit::StateMemory`] limits it.
    ///
    /// [`DataLimit::StateMemory`]: crate::data_limit::DataLimit::StateMemory
    pub fn size(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Checks its size, after these channels were set by hand.
    pub(crate) fn check_size<'a>(
        &self,
        mut set: impl Iterator<Item = &'a ChannelName>,
    ) -> Result<(), StateError> {
        let Some(channel) = set.next() else { return Ok(()) };
        DataLimit::StateMemory
            .check(self.size())
            .map_err(|source| StateError::Limit { channel: channel.clone(), source })
    }

    /// The schema it was made by.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
