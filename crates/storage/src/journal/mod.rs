//! The form in which SQL databases store the journal of a run: one row per entry.
//!
//! A row has three parts. `data` holds the values that tasks wrote. `changes` holds the changes of
//! the channels by a step; they refer to these values by place, so that no value is stored twice.
//! `meta` is the rest. Each row has a hash of its parts and of the hash before. This module
//! contains no SQL: the databases share all of it.

mod basis;
mod body;
pub(super) mod checksum;
mod codec;
mod decode;
mod depth;
mod encode;
mod hashed_rows;
mod parts;
mod values;

use std::borrow::Cow;

use graphrun_core::{
    event::Event,
    id::{ChannelName, Step},
};
use graphrun_engine::checkpoint::{EntryHash, Migration, Position, RunStatus, TaskRecord};
use serde::{Deserialize, Serialize};

pub(super) use self::{
    basis::{before_open, info_after, info_at_first, parse_info},
    body::Body,
    codec::Codec,
    decode::{KeptValues, Reader, Span, damaged},
    depth::check_depth,
    encode::{encode, info},
    hashed_rows::HashedRows,
};

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The number of the entry in the journal, from one.
    pub(super) number: u64,
    /// The committed steps, including this entry.
    pub(super) step: Step,
    /// The number of the last event, including those of this entry.
    pub(super) seq: u64,
    /// The packed content.
    pub(super) body: Body,
    /// The hash of the entry and of its parent.
    pub(super) hash: EntryHash,
}

/// The content of `changes`.
type Changes = Vec<(ChannelName, StoredChange)>;

/// The change of a channel, by the places of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum StoredChange {
    #[serde(rename = "=")]
    Set(ValuePlace),
    #[serde(rename = "+")]
    Appended(Vec<ItemsPart>),
    #[serde(rename = "-")]
    Cleared,
}

/// The place of a value: the number of its entry (zero is the referring entry) and the index in the
/// data.
type ValuePlace = (u64, usize);

/// A part of appended items: the place of a value, and whether that value is a list of items or one
/// item.
type ItemsPart = (u64, usize, bool);

/// The content of `meta`. The names of its fields and of nested fields are part of the format.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Meta<'a> {
    /// With null in place of the written values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    records: Vec<TaskRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<Cow<'a, Position>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_status: Option<Cow<'a, RunStatus>>,
    /// With null in place of the values that its records wrote. Those come first in the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    migration: Option<Box<Migration>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<StoredEvent<'a>>,
}

/// An event without the fields that follow from its place.
#[derive(Debug, Serialize, Deserialize)]
struct StoredEvent<'a> {
    v: u32,
    ts: Cow<'a, str>,
    #[serde(flatten)]
    event: Cow<'a, Event>,
}

impl StoredChange {
    /// Returns the places of the values it needs.
    fn places(&self) -> impl Iterator<Item = ValuePlace> {
        let (one, parts) = match self {
            Self::Set(place) => (Some(*place), &[][..]),
            Self::Appended(parts) => (None, parts.as_slice()),
            Self::Cleared => (None, &[][..]),
        };
        one.into_iter().chain(parts.iter().map(|&(number, index, _)| (number, index)))
    }
}

impl Row {
    /// Returns the number of the entry that a place in this row refers to.
    fn number_or_own(&self, number: u64) -> u64 {
        if number == 0 { self.number } else { number }
    }

    /// Returns the hash of this row after the hash `before`.
    fn hash_after(&self, before: EntryHash) -> EntryHash {
        let [changes_len, meta_len, data_len] = self.body.lengths().map(|it| it as u64);
        let has_changes = u64::from(self.body.changes().is_some());
        let numbers =
            [self.number, self.step.0, self.seq, has_changes, changes_len, meta_len, data_len];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&before.0).update(numbers.map(u64::to_le_bytes).as_flattened());
        hasher.update(self.body.bytes());
        EntryHash(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests;
