//! The channels of a state, and the only transition from one state to the next.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use serde_json::Value;
use smallvec::SmallVec;
use thiserror::Error;

use super::{
    Change, Channel, LenientValue, ReadError, ReduceError, State, Type, Update,
    folding::{Folding, Slot},
    measure::size_of_saved,
};
use crate::id::{ChannelName, NameError};

/// Every channel of a state, in the order they were declared. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Schema(Arc<Channels>);

#[derive(Clone, Debug, Default)]
struct Channels {
    list: Vec<Channel>,
    index: HashMap<ChannelName, usize, RandomState>,
}

/// A type or a set of channels cannot be the schema of a state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// The type is not a struct with named fields.
    #[error("a state is a struct with named fields, which `{0}` is not")]
    NotAStruct(String),
    /// A field name cannot be a channel name.
    #[error("a field cannot be a channel")]
    Name(#[from] NameError),
    /// Two channels have the same name.
    #[error("two channels are called `{0}`")]
    Twice(ChannelName),
    /// A field has an invalid schema.
    #[error("the schema of `{channel}` is not usable: {reason}")]
    Schema {
        /// The field.
        channel: ChannelName,
        /// The reason.
        reason: String,
    },
    /// The schemas of all fields, each with the definitions it refers to, are too large.
    #[error("the schema of the state is {0}")]
    Large(DataLimitReached),
    /// `x-merge` names an unknown reducer.
    #[error("`{channel}` names the unknown reducer {reducer}")]
    Reducer {
        /// The field.
        channel: ChannelName,
        /// The value of `x-merge`.
        reducer: String,
    },
    /// A reader was given for an unknown field.
    #[error("there is no channel `{0}`")]
    Unknown(String),
}

// The text has that of the limit, so the limit is no source as well.
impl From<DataLimitReached> for SchemaError {
    fn from(reached: DataLimitReached) -> Self {
        Self::Large(reached)
    }
}

/// An update does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// The channel does not exist.
    #[error("there is no channel `{0}`")]
    Unknown(ChannelName),
    /// A value is not of the channel's type.
    #[error("the value does not fit `{channel}`: {}", problems.join("; "))]
    Value {
        /// The channel.
        channel: ChannelName,
        /// Every place where it does not fit.
        problems: Vec<String>,
    },
    /// The write would take the value of the channel, or the state, beyond a limit.
    #[error("the update of `{channel}` does not fit the state")]
    Limit {
        /// The channel. If the state as a whole is too large, the largest written one.
        channel: ChannelName,
        /// The limit.
        source: DataLimitReached,
    },
    /// Two tasks of one step wrote a channel without a reducer. Give the channel a reducer, or write it in one of them.
    #[error("two tasks of one step wrote `{0}`, which has no reducer to combine them")]
    Conflict(ChannelName),
    /// A write cannot be combined with the value before it.
    #[error("could not fold a write to `{channel}`")]
    Reduce {
        /// The channel.
        channel: ChannelName,
        /// The reason.
        source: ReduceError,
    },
}

impl StateError {
    /// Returns the channel of the error.
    pub fn channel(&self) -> &ChannelName {
        match self {
            Self::Unknown(channel) | Self::Conflict(channel) => channel,
            Self::Value { channel, .. }
            | Self::Limit { channel, .. }
            | Self::Reduce { channel, .. } => channel,
        }
    }
}

impl Schema {
    /// Makes a schema of channels.
    ///
    /// # Errors
    ///
    /// Fails when two channels have the same name.
    pub fn new(channels: impl IntoIterator<Item = Channel>) -> Result<Self, SchemaError> {
        let list: Vec<Channel> = channels.into_iter().collect();
        let mut index = HashMap::default();
        for (at, channel) in list.iter().enumerate() {
            if index.insert(channel.name().clone(), at).is_some() {
                return Err(SchemaError::Twice(channel.name().clone()));
            }
        }
        Ok(Self(Arc::new(Channels { list, index })))
    }

    /// Sets how a model's answer is read into a channel.
    ///
    /// # Errors
    ///
    /// Fails when there is no such channel.
    pub fn with_reader(
        self,
        channel: &str,
        reader: impl Fn(Value) -> Result<LenientValue<Value>, ReadError> + Send + Sync + 'static,
    ) -> Result<Self, SchemaError> {
        let at = self.index(channel).ok_or_else(|| SchemaError::Unknown(channel.to_owned()))?;
        let mut channels = Arc::unwrap_or_clone(self.0);
        channels.list[at] = channels.list[at].clone().with_reader(reader);
        Ok(Self(Arc::new(channels)))
    }

    /// Returns the channels in the order they were declared.
    pub fn channels(&self) -> &[Channel] {
        &self.0.list
    }

    /// Returns the channel with that name.
    pub fn channel(&self, name: &str) -> Option<&Channel> {
        self.index(name).map(|at| &self.0.list[at])
    }

    /// Returns a write to a channel without the fields that its type does not declare: see [`Channel::cut`].
    pub fn cut(&self, channel: &ChannelName, written: Value) -> Value {
        match self.channel(channel.as_str()) {
            Some(channel) => channel.cut(written),
            None => written,
        }
    }

    /// Returns a value of a type as a write to a channel: see [`Channel::write_of`].
    pub fn write_of(
        &self,
        channel: &ChannelName,
        value: Arc<Value>,
        ty: impl FnOnce() -> Option<Type>,
    ) -> Arc<Value> {
        match self.channel(channel.as_str()) {
            Some(channel) => channel.write_of(value, ty),
            None => value,
        }
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.0.index.get(name).copied()
    }

    /// Returns the state before the first write.
    pub fn empty(&self) -> State {
        let values: Vec<_> = self.channels().iter().map(|it| it.default().cloned()).collect();
        let size = |it: &Option<Arc<Value>>| it.as_deref().map_or(0, size_of_saved);
        let sizes = values.iter().map(size).collect();
        State::new(self.clone(), values, sizes)
    }

    /// Returns the state of a run that starts with this input.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit, or is beyond a limit.
    pub fn begin(&self, input: Update) -> Result<State, StateError> {
        self.check(&input)?;
        let empty = self.empty();
        // Appending a list to nothing gives the list itself, so no copy is needed.
        let is_plain = |(name, value): &(ChannelName, Arc<Value>)| {
            let Some(channel) = self.channel(name.as_str()) else { return false };
            let before = empty.get(name.as_str()).and_then(Value::as_array);
            let reducer = channel.reducer();
            let is_first = || before.is_none_or(Vec::is_empty) && channel.is_whole_list(value);
            reducer.is_replace() || reducer.extends() && is_first()
        };
        let Update { clears, writes } = input;
        let (plain, writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_plain);
        let folded = self.apply(empty, [&Update { clears, writes }]);
        let (mut state, _) = folded?;
        let names: Vec<ChannelName> = plain.iter().map(|(name, _)| name.clone()).collect();
        for (name, value) in plain {
            let at = self.known(&name)?;
            state.set_size(at, size_of_saved(&value));
            state.values[at] = Some(value);
        }
        state.check_size(names.iter())?;
        Ok(state)
    }

    /// Restores a state from saved values. Limits are not checked, because they may have changed since.
    ///
    /// # Errors
    ///
    /// Fails when a value belongs to an unknown channel, or does not fit it.
    pub fn restore(
        &self,
        saved: impl IntoIterator<Item = (ChannelName, Value)>,
    ) -> Result<State, StateError> {
        let mut values = vec![None; self.channels().len()];
        let mut sizes = vec![0; values.len()];
        for (name, value) in saved {
            let at = self.index(name.as_str()).ok_or_else(|| StateError::Unknown(name.clone()))?;
            self.channels()[at]
                .validate(&value)
                .map_err(|problems| StateError::Value { channel: name, problems })?;
            sizes[at] = size_of_saved(&value);
            values[at] = Some(Arc::new(value));
        }
        Ok(State::new(self.clone(), values, sizes))
    }

    /// Checks an update of one task before it is recorded: its types, its size and its depth.
    ///
    /// # Errors
    ///
    /// Fails at the first write that does not fit its channel or is beyond a limit.
    pub fn check(&self, update: &Update) -> Result<(), StateError> {
        self.check_by(update, Channel::check)
    }

    /// Checks a recorded update. Limits are not checked, because they may have changed since.
    ///
    /// # Errors
    ///
    /// Fails at the first write that does not fit its channel.
    pub fn check_saved(&self, update: &Update) -> Result<(), StateError> {
        self.check_by(update, Channel::check_saved)
    }

    fn check_by(
        &self,
        update: &Update,
        check: impl Fn(&Channel, &Value) -> Result<(), Vec<String>>,
    ) -> Result<(), StateError> {
        for name in &update.clears {
            self.index(name.as_str()).ok_or_else(|| StateError::Unknown(name.clone()))?;
        }
        for (name, value) in &update.writes {
            let channel =
                self.channel(name.as_str()).ok_or_else(|| StateError::Unknown(name.clone()))?;
            check(channel, value)
                .map_err(|problems| StateError::Value { channel: name.clone(), problems })?;
        }
        Ok(())
    }

    /// Returns the state after the updates of a step, folded as by [`Schema::fold`], and the changes.
    ///
    /// # Errors
    ///
    /// As [`Schema::fold`].
    pub fn apply<'a>(
        &self,
        mut state: State,
        updates: impl IntoIterator<Item = &'a Update, IntoIter: Clone>,
    ) -> Result<(State, Vec<Change>), StateError> {
        let changes = self.fold_changes(&mut state, updates)?;
        Ok((state, changes))
    }

    /// Folds the updates of a step into a state: first the clears of all tasks, then their writes in the order
    /// of the tasks. So no clear drops the write of another task.
    ///
    /// An unshared list grows in place, and the costs depend on the writes only, not on the other channels.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, when two tasks wrote a channel without a reducer, a write cannot be folded,
    /// or the next state would be beyond a limit.
    pub fn fold<'a>(
        &self,
        state: &mut State,
        updates: impl IntoIterator<Item = &'a Update, IntoIter: Clone>,
    ) -> Result<(), StateError> {
        self.folded(state, updates.into_iter()).map(drop)
    }

    /// Does the same as [`Schema::fold`], and returns the changes. They contain a copy of appended items.
    ///
    /// # Errors
    ///
    /// As [`Schema::fold`].
    pub fn fold_changes<'a>(
        &self,
        state: &mut State,
        updates: impl IntoIterator<Item = &'a Update, IntoIter: Clone>,
    ) -> Result<Vec<Change>, StateError> {
        let folding = self.folded(state, updates.into_iter())?;
        Ok(folding.changes(self, state))
    }

    fn folded<'a>(
        &self,
        state: &mut State,
        updates: impl Iterator<Item = &'a Update> + Clone,
    ) -> Result<Folding, StateError> {
        let mut folding = Folding::default();
        let removed_before = state.removed.clone();
        let folded = self.fold_each(state, updates, &mut folding);
        let checked = folded.and_then(|()| {
            folding.measure(self, state)?;
            folding.check(self, state)
        });
        match checked {
            Ok(()) => {
                folding.set_sizes(state);
                Ok(folding)
            }
            Err(error) => {
                folding.undo(state);
                state.removed = removed_before;
                Err(error)
            }
        }
    }

    /// Checks that the state has room for the writes of an update that replace a value or extend a list,
    /// without folding them.
    ///
    /// # Errors
    ///
    /// Fails when a value or the state would be beyond a limit.
    pub fn check_room(
        &self,
        state: &State,
        update: &Update,
        includes: impl Fn(&ChannelName) -> bool,
    ) -> Result<(), StateError> {
        // The sizes of the channels that the update changes, by index.
        let mut sizes: SmallVec<[(usize, u64); 8]> = SmallVec::new();
        let mut sum = state.size();
        let mut resize = |sizes: &mut SmallVec<[(usize, u64); 8]>, at, new: &dyn Fn(u64) -> u64| {
            let place = sizes.iter().position(|it| it.0 == at).unwrap_or_else(|| {
                sizes.push((at, state.sizes[at]));
                sizes.len() - 1
            });
            let old = sizes[place].1;
            sizes[place].1 = new(old);
            sum = sum - old + sizes[place].1;
            (sizes[place].1, sum)
        };
        for name in &update.clears {
            resize(&mut sizes, self.known(name)?, &|_| 0);
        }
        let mut total = None;
        for (name, value) in update.writes.iter().filter(|(name, _)| includes(name)) {
            let at = self.known(name)?;
            let extends = self.channels()[at].reducer().extends();
            let written = size_of_saved(value);
            let (size, sum) =
                resize(&mut sizes, at, &|old| written + if extends { old } else { 0 });
            let limit = |source| StateError::Limit { channel: name.clone(), source };
            DataLimit::ValueMemory.check(size).map_err(limit)?;
            total = (sum > state.size()).then_some((name, sum));
        }
        let Some((name, sum)) = total else { return Ok(()) };
        DataLimit::StateMemory
            .check(sum)
            .map_err(|source| StateError::Limit { channel: name.clone(), source })
    }

    /// Checks values with which a person replaces the values of channels.
    ///
    /// # Errors
    ///
    /// Fails at the first value that does not fit its channel or is beyond a limit.
    pub fn check_set<'a>(
        &self,
        set: impl IntoIterator<Item = (&'a ChannelName, &'a Value)>,
    ) -> Result<(), StateError> {
        for (name, value) in set {
            let channel = &self.channels()[self.known(name)?];
            channel
                .check_whole(value)
                .map_err(|problems| StateError::Value { channel: name.clone(), problems })?;
        }
        Ok(())
    }

    fn fold_each<'a>(
        &self,
        state: &mut State,
        updates: impl Iterator<Item = &'a Update> + Clone,
        folding: &mut Folding,
    ) -> Result<(), StateError> {
        for name in updates.clone().flat_map(|it| &it.clears) {
            let at = self.known(name)?;
            let channel = &self.channels()[at];
            let value = &mut state.values[at];
            folding.clear(Slot { at, channel, value, removed: &mut state.removed });
        }
        for (writer, update) in updates.enumerate() {
            for (name, written) in &update.writes {
                let at = self.known(name)?;
                let channel = &self.channels()[at];
                let has_other = folding.writer(at).is_some_and(|it| it != writer);
                if has_other && !channel.reducer().takes_several_writers() {
                    return Err(StateError::Conflict(name.clone()));
                }
                let value = &mut state.values[at];
                let removed = &mut state.removed;
                let slot = Slot { at, channel, value, removed };
                folding.fold(slot, writer, written)?;
            }
        }
        Ok(())
    }

    fn known(&self, name: &ChannelName) -> Result<usize, StateError> {
        self.index(name.as_str()).ok_or_else(|| StateError::Unknown(name.clone()))
    }
}
