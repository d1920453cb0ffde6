//! From rows to what they say.

use std::{
    borrow::{Borrow, Cow},
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt, io,
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::{Changes, Codec, How, Meta, Place, Row, encode::Written, parts::in_parts};
use crate::{
    checkpoint::{CheckpointError, Commit, Entry, Link, Logged, Outcome, Position, TaskRecord},
    event::Stamped,
    id::{ChannelName, RunId, Step},
    state::{Change, ChangeKind},
    storage::rules::{apply, misfit},
};

/// Reads rows of one run that follow each other.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    run: &'a RunId,
    rows: Cow<'a, [Row]>,
}

/// Entries that follow each other, and what is known of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The number of the first.
    pub(crate) first: u64,
    /// The link before it.
    pub(crate) before: Link,
    /// The number of the last.
    pub(crate) last: u64,
    /// Its link, if it is known.
    pub(crate) end: Option<Link>,
}

#[derive(Debug, Error)]
enum Damage {
    #[error("its checksum does not fit")]
    Checksum,
    #[error("it is missing")]
    Missing,
    #[error("it comes after the last")]
    Extra,
    #[error("it refers to a value that is not there")]
    Place,
    #[error("it is not of the form that was written")]
    Form(#[from] serde_json::Error),
    #[error("it is not packed as it was written")]
    Pack(#[from] io::Error),
}

/// Values of the data of some rows, read when they are needed and taken when they are used.
struct Values<'a> {
    reader: &'a Reader<'a>,
    read: BTreeMap<u64, Vec<Option<Value>>>,
}

impl<'a> Reader<'a> {
    /// Rows that were made in this process, or checked before.
    pub(crate) fn trusted(run: &'a RunId, rows: impl Into<Cow<'a, [Row]>>) -> Self {
        Self { run, rows: rows.into() }
    }

    /// Checks rows: that none of a span is missing, and that each is what was written.
    pub(crate) fn check(
        run: &'a RunId,
        rows: Vec<Row>,
        span: Span,
    ) -> Result<Self, CheckpointError> {
        let damaged =
            |number: u64, damage| Err(damaged(run.as_str(), format!("entry {number}"), damage));
        let Span { first, before, last, end } = span;
        let numbers = first..;
        if let Some((next, row)) = numbers.zip(&rows).find(|(next, row)| row.number != *next) {
            let extra = row.number > last;
            let (number, damage) = if extra && next > last {
                (row.number, Damage::Extra)
            } else {
                (next.min(row.number), Damage::Missing)
            };
            return damaged(number, damage);
        }
        if let Some(extra) = rows.iter().find(|it| it.number > last) {
            return damaged(extra.number, Damage::Extra);
        }
        let link_before = |row: &Row| match row.number.checked_sub(first + 1) {
            Some(at) => usize::try_from(at).ok().and_then(|it| rows.get(it)).map(|it| it.link),
            None => Some(before),
        };
        let is_wrong =
            |row: &&Row| link_before(row).is_none_or(|it| row.link_after(it) != row.link);
        let wrong = in_parts(&rows, |part| part.iter().find(is_wrong).map(|it| it.number));
        if let Some(number) = wrong.into_iter().flatten().next() {
            return damaged(number, Damage::Checksum);
        }
        let next = rows.last().map_or(first, |it| it.number + 1);
        if next <= last {
            return damaged(next, Damage::Missing);
        }
        let link = rows.last().map_or(before, |it| it.link);
        if end.is_some_and(|it| it != link) {
            return damaged(last, Damage::Checksum);
        }
        Ok(Self { run, rows: rows.into() })
    }

    /// The records since the last commit, oldest first.
    pub(crate) fn open_records(
        &self,
        codec: &mut Codec,
    ) -> Result<Vec<TaskRecord>, CheckpointError> {
        let mut records = Vec::new();
        if let Some(row) = self.rows.iter().rfind(|it| it.changes.is_some()) {
            let migration = self.records(codec, row)?.0.migration;
            records.extend(migration.map(|it| it.records).unwrap_or_default());
        }
        for row in self.open_rows() {
            records.extend(self.records(codec, row)?.1);
        }
        Ok(records)
    }

    /// The position and the values after a step.
    pub(crate) fn checkpoint_at(
        &self,
        codec: &mut Codec,
        step: Step,
    ) -> Result<(Position, BTreeMap<ChannelName, Value>), CheckpointError> {
        let is_it = |it: &Row| it.changes.is_some() && it.step == step;
        let Some(end) = self.rows.iter().position(is_it) else {
            return Err(CheckpointError::UnknownStep { run: self.run.clone(), step });
        };
        let position = self.meta(codec, &self.rows[end])?.position;
        let position = position.ok_or_else(|| self.damaged(&self.rows[end], Damage::Missing))?;
        Ok((position, self.values(codec, &self.rows[..=end])?))
    }

    /// What the rows after a number say.
    pub(crate) fn logged(
        &self,
        codec: &mut Codec,
        after: u64,
    ) -> Result<Vec<Logged>, CheckpointError> {
        let mut logged = Vec::new();
        for row in self.rows.iter().filter(|it| it.number > after) {
            let (meta, records) = self.records(codec, row)?;
            let mut values = Values { reader: self, read: BTreeMap::new() };
            let commit = match (meta.position, self.changes(codec, row)?) {
                (Some(position), Some(changes)) => {
                    let made = changes.into_iter().map(|(channel, how)| {
                        let kind = values.kind(codec, row, &how)?;
                        Ok(Change { channel, kind })
                    });
                    Some(Commit { position, changes: made.collect::<Result<_, _>>()? })
                }
                (None, None) => None,
                _ => return Err(self.damaged(row, Damage::Missing)),
            };
            let first = row.seq + 1 - meta.events.len() as u64;
            let events = (first..).zip(meta.events).map(|(seq, it)| Stamped {
                v: it.v,
                seq,
                ts: it.ts,
                run: self.run.clone(),
                event: it.event,
            });
            let (migration, standing) = (meta.migration, meta.standing);
            let entry = Entry { records, commit, migration, standing, events: events.collect() };
            logged.push(Logged { number: row.number, link: row.link, entry });
        }
        Ok(logged)
    }

    /// What tasks wrote since the last commit.
    pub(super) fn written(&self, codec: &mut Codec) -> Result<Vec<Written<'_>>, CheckpointError> {
        let mut found = Vec::new();
        for row in self.open_rows() {
            let mut index = 0;
            for record in self.records(codec, row)?.1 {
                let Outcome::Finished { update, .. } = record.outcome else { continue };
                for (channel, value) in update.writes {
                    let (task, value) = (record.task, Cow::Owned(value));
                    found.push(Written { task, channel, value, place: (row.number, index) });
                    index += 1;
                }
            }
        }
        Ok(found)
    }

    fn open_rows(&self) -> &[Row] {
        let committed = self.rows.iter().rposition(|it| it.changes.is_some());
        &self.rows[committed.map_or(0, |it| it + 1)..]
    }

    /// The values after the last of these rows. Of a channel only what it still holds is read.
    fn values(
        &self,
        codec: &mut Codec,
        rows: &[Row],
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        let mut made: BTreeMap<ChannelName, Vec<(&Row, How)>> = BTreeMap::new();
        let changes = self.read_all(rows, |codec, row| self.changes(codec, row))?;
        for (row, changes) in rows.iter().zip(changes) {
            for (channel, how) in changes.unwrap_or_default() {
                let since = made.entry(channel).or_default();
                if !matches!(how, How::Appended(_)) {
                    since.clear();
                }
                since.push((row, how));
            }
        }
        let needed: BTreeSet<u64> = made
            .values()
            .flatten()
            .flat_map(|(row, how)| how.places().map(|(number, _)| row.number_or_own(number)))
            .collect();
        let needed: Vec<&Row> = rows.iter().filter(|it| needed.contains(&it.number)).collect();
        let data = self.read_all(&needed, |codec, row| self.data(codec, row))?;
        let read = needed.iter().zip(data).map(|(row, values)| {
            (row.number, values.into_iter().map(Some).collect::<Vec<Option<Value>>>())
        });
        let mut stored = Values { reader: self, read: read.collect() };
        let mut values = BTreeMap::new();
        for (channel, since) in made {
            for (row, how) in since {
                let change =
                    Change { channel: channel.clone(), kind: stored.kind(codec, row, &how)? };
                apply(&mut values, change)
                    .map_err(|error| misfit(self.run, &channel, row.step, error))?;
            }
        }
        Ok(values)
    }

    /// Reads something of many rows, by several threads where they are very many.
    fn read_all<R: Borrow<Row> + Sync, T: Send>(
        &self,
        rows: &[R],
        read: impl Fn(&mut Codec, &Row) -> Result<T, CheckpointError> + Sync,
    ) -> Result<Vec<T>, CheckpointError> {
        let parts = in_parts(rows, |part| {
            let mut codec = Codec::new().map_err(|error| CheckpointError::Storage {
                action: format!("unpack run `{}`", self.run),
                source: error.into(),
            })?;
            part.iter().map(|row| read(&mut codec, row.borrow())).collect::<Result<Vec<T>, _>>()
        });
        let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// The records of a row, with their values.
    fn records(
        &self,
        codec: &mut Codec,
        row: &Row,
    ) -> Result<(Meta, Vec<TaskRecord>), CheckpointError> {
        let mut meta = self.meta(codec, row)?;
        let mut records = std::mem::take(&mut meta.records);
        let mut values: Option<std::vec::IntoIter<Value>> = None;
        let carried = meta.migration.iter_mut().flat_map(|it| &mut it.records);
        for record in records.iter_mut().chain(carried) {
            let Outcome::Finished { update, .. } = &mut record.outcome else { continue };
            for (_, value) in &mut update.writes {
                let values = match &mut values {
                    Some(values) => values,
                    None => values.insert(self.data(codec, row)?.into_iter()),
                };
                *value = values.next().ok_or_else(|| self.damaged(row, Damage::Place))?;
            }
        }
        Ok((meta, records))
    }

    fn meta(&self, codec: &mut Codec, row: &Row) -> Result<Meta, CheckpointError> {
        self.read(codec, row, &row.meta)
    }

    fn data(&self, codec: &mut Codec, row: &Row) -> Result<Vec<Value>, CheckpointError> {
        self.read(codec, row, &row.data)
    }

    fn changes(&self, codec: &mut Codec, row: &Row) -> Result<Option<Changes>, CheckpointError> {
        row.changes.as_ref().map(|it| self.read(codec, row, it)).transpose()
    }

    fn read<T: DeserializeOwned>(
        &self,
        codec: &mut Codec,
        row: &Row,
        packed: &[u8],
    ) -> Result<T, CheckpointError> {
        let bytes = codec.unpack(packed).map_err(|it| self.damaged(row, it.into()))?;
        serde_json::from_slice(&bytes).map_err(|it| self.damaged(row, it.into()))
    }

    fn damaged(&self, row: &Row, damage: Damage) -> CheckpointError {
        damaged(self.run.as_str(), format!("entry {}", row.number), damage)
    }
}

impl Values<'_> {
    fn kind(
        &mut self,
        codec: &mut Codec,
        row: &Row,
        how: &How,
    ) -> Result<ChangeKind, CheckpointError> {
        Ok(match how {
            How::Cleared => ChangeKind::Cleared,
            How::Set(place) => ChangeKind::Set(self.get(codec, row, *place)?),
            How::Appended(parts) => {
                let mut items = Vec::new();
                for &(number, index, is_list) in parts {
                    match self.get(codec, row, (number, index))? {
                        Value::Array(list) if is_list => items.extend(list),
                        item => items.push(item),
                    }
                }
                ChangeKind::Appended(items)
            }
        })
    }

    fn get(
        &mut self,
        codec: &mut Codec,
        from: &Row,
        (number, index): Place,
    ) -> Result<Value, CheckpointError> {
        let rows = &self.reader.rows;
        let number = from.number_or_own(number);
        let missing = || self.reader.damaged(from, Damage::Place);
        let at = rows.first().and_then(|it| number.checked_sub(it.number));
        let at = at.and_then(|it| usize::try_from(it).ok());
        let row = at.and_then(|it| rows.get(it)).ok_or_else(missing)?;
        if !self.read.contains_key(&number) {
            let values = self.reader.data(codec, row)?;
            self.read.insert(number, values.into_iter().map(Some).collect());
        }
        // Nothing refers to a value twice.
        let value = self.read.get_mut(&number).and_then(|it| it.get_mut(index));
        value.and_then(Option::take).ok_or_else(missing)
    }
}

/// The error for a part of a run that is not what was written.
pub(crate) fn damaged(
    run: &str,
    what: impl fmt::Display,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> CheckpointError {
    CheckpointError::Damaged { run: run.to_owned(), what: what.to_string(), source: source.into() }
}
