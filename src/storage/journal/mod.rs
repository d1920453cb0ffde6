//! The form in which SQL databases keep the journal of a run: one row an entry.
//!
//! A row has three parts. `data` holds the values that tasks wrote; `changes` says what a step made
//! of the channels, by the places of these values, so that no value is stored twice; `meta` is the
//! rest. Each row is proven by its link, the hash of its parts and of the link before. Here is no
//! SQL: the databases share all of this.

mod basis;
mod body;
pub(super) mod checksum;
mod codec;
mod decode;
mod depth;
mod encode;
mod linked;
mod parts;
mod values;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub(super) use self::{
    basis::{committed, info_after, info_at_first},
    body::Body,
    codec::Codec,
    decode::{Reader, Span, damaged},
    depth::check_depth,
    encode::{encode, info},
    linked::Linked,
};
use crate::{
    checkpoint::{Link, Migration, Position, Standing, TaskRecord},
    event::Event,
    id::{ChannelName, Step},
};

/// One entry, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Its number in the journal, from one.
    pub(super) number: u64,
    /// The committed steps, this entry included.
    pub(super) step: Step,
    /// The number of the last event, those of this entry included.
    pub(super) seq: u64,
    /// What it holds.
    pub(super) body: Body,
    /// What proves it.
    pub(super) link: Link,
}

/// What is in `changes`.
type Changes = Vec<(ChannelName, How)>;

/// What became of a channel, by the places of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum How {
    #[serde(rename = "=")]
    Set(Place),
    #[serde(rename = "+")]
    Appended(Vec<Part>),
    #[serde(rename = "-")]
    Cleared,
}

/// A value: the number of its entry (zero is the one that says so) and its index in the data.
type Place = (u64, usize);

/// Items that were appended: the value at a place, and whether it is a list of them or one.
type Part = (u64, usize, bool);

/// What is in `meta`. Its names and those within are part of the format.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Meta<'a> {
    /// With null in place of the values that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    records: Vec<TaskRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<Cow<'a, Position>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    standing: Option<Cow<'a, Standing>>,
    /// With null in place of the values that its records wrote. Those are the first of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    migration: Option<Box<Migration>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<Told<'a>>,
}

/// An event, less what follows from its place.
#[derive(Debug, Serialize, Deserialize)]
struct Told<'a> {
    v: u32,
    ts: Cow<'a, str>,
    #[serde(flatten)]
    event: Cow<'a, Event>,
}

impl How {
    /// The places of the values it needs.
    fn places(&self) -> impl Iterator<Item = Place> {
        let (one, parts) = match self {
            Self::Set(place) => (Some(*place), &[][..]),
            Self::Appended(parts) => (None, parts.as_slice()),
            Self::Cleared => (None, &[][..]),
        };
        one.into_iter().chain(parts.iter().map(|&(number, index, _)| (number, index)))
    }
}

impl Row {
    /// The number of the entry that a place of this one names.
    fn number_or_own(&self, number: u64) -> u64 {
        if number == 0 { self.number } else { number }
    }

    /// The link of these parts after another one.
    fn link_after(&self, before: Link) -> Link {
        let [changes_len, meta_len, data_len] = self.body.lengths().map(|it| it as u64);
        let has_changes = u64::from(self.body.changes().is_some());
        let numbers =
            [self.number, self.step.0, self.seq, has_changes, changes_len, meta_len, data_len];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&before.0).update(numbers.map(u64::to_le_bytes).as_flattened());
        hasher.update(self.body.bytes());
        Link(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests;
