//! Decodes rows into entries, values and events.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, btree_map},
    error::Error,
    fmt, io,
    sync::Arc,
};

use graphrun_core::{
    event::RunEvent,
    id::{ChannelName, RunId, Step, TaskId},
    state::{Change, ChangeKind, Compact},
};
use graphrun_engine::{
    checkpoint::{
        CheckpointError, Commit, Detail, Entry, EntryHash, JournalEntry, SavedCheckpoint,
        TaskRecord,
    },
    storage::rules::{apply, misfit, note_finished},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::{
    Changes, Codec, HashedRows, Meta, Row, StoredChange, ValuePlace,
    codec::Content,
    encode::TaskValue,
    parts::in_parts,
    values::{Untaken, Values},
};

/// Up to this number of rows are read one after the other, so that their values need not be in
/// memory together.
const LARGE_ROWS_MAX: usize = 64;

/// The meta of a row and its records.
type MetaAndRecords = Result<(Meta<'static>, Vec<TaskRecord>), CheckpointError>;

/// Reads consecutive rows of one run.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    run: &'a RunId,
    pub(super) rows: Cow<'a, [Row]>,
    /// The values after the first row, if those before it are not here.
    kept: Option<KeptValues>,
}

/// The values of all channels after an entry that commits a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptValues(BTreeMap<ChannelName, Value>);

impl KeptValues {
    /// Reads the values that [`KeptValues::pack`] has packed.
    pub(crate) fn read(codec: &mut Codec, packed: &[u8]) -> io::Result<Self> {
        let values: BTreeMap<ChannelName, Compact> = serde_json::from_slice(codec.unpack(packed)?)?;
        let values = values.into_iter().map(|(channel, it)| (channel, it.into_value()));
        Ok(Self(values.collect()))
    }

    /// Packs values.
    pub(crate) fn pack(
        codec: &mut Codec,
        values: &BTreeMap<ChannelName, Value>,
    ) -> io::Result<Vec<u8>> {
        let mut packed = Vec::new();
        codec.pack(Content::Values, values, &mut packed)?;
        Ok(packed)
    }
}

/// The numbers and the last hash of consecutive entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The number of the first entry.
    pub(crate) first: u64,
    /// The number of the last entry.
    pub(crate) last: u64,
    /// The hash of the last entry, if it is known.
    pub(crate) end: Option<EntryHash>,
}

#[derive(Debug, Error)]
pub(super) enum Damage {
    #[error("its checksum does not match")]
    Checksum,
    #[error("it is missing")]
    Missing,
    #[error("it comes after the last")]
    Extra,
    #[error("it refers to a missing value")]
    Place,
    #[error("it has more events than the run has so far")]
    Events,
    #[error("its form is invalid")]
    Form(#[from] serde_json::Error),
    #[error("its compression is invalid")]
    Pack(#[from] io::Error),
}

impl<'a> Reader<'a> {
    /// Takes rows that this process created or already checked.
    pub(crate) fn trusted(run: &'a RunId, rows: impl Into<Cow<'a, [Row]>>) -> Self {
        Self { run, rows: rows.into(), kept: None }
    }

    /// Begins with the values after the first row.
    pub(crate) fn with_kept(self, kept: Option<KeptValues>) -> Self {
        Self { kept, ..self }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Checks that no row of the span is missing and that each row is intact.
    pub(crate) fn check(
        run: &'a RunId,
        linked: HashedRows,
        span: Span,
    ) -> Result<Self, CheckpointError> {
        let HashedRows { before, rows, wrong } = linked;
        let damaged =
            |number: u64, damage| Err(damaged(run.as_str(), format!("entry {number}"), damage));
        let Span { first, last, end } = span;
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
        if let Some(number) = wrong {
            return damaged(number, Damage::Checksum);
        }
        let next = rows.last().map_or(first, |it| it.number + 1);
        if next <= last {
            return damaged(next, Damage::Missing);
        }
        let hash = rows.last().map_or(before, |it| it.hash);
        if end.is_some_and(|it| it != hash) {
            return damaged(last, Damage::Checksum);
        }
        Ok(Self { run, rows: rows.into(), kept: None })
    }

    /// Checks the rows of the open step, which this span has. The row before them comes first and is not read
    /// afterwards.
    pub(crate) fn check_open(
        run: &'a RunId,
        mut rows: Vec<Row>,
        span: Span,
    ) -> Result<Self, CheckpointError> {
        let before_open = span.first - 1;
        if rows.first().is_none_or(|it| it.number != before_open) {
            return Err(damaged(run.as_str(), format!("entry {before_open}"), Damage::Missing));
        }
        let before = rows.remove(0).hash;
        Self::check(run, HashedRows::of(before, rows), span)
    }

    /// Returns the run.
    pub(super) fn run(&self) -> &RunId {
        self.run
    }

    /// Returns the finished tasks of the open step.
    pub(crate) fn finished(&self, codec: &mut Codec) -> Result<BTreeSet<TaskId>, CheckpointError> {
        let records = self.open_records(codec)?;
        let mut finished = BTreeSet::new();
        note_finished(&mut finished, &records);
        Ok(finished)
    }

    /// Returns the records since the last commit, oldest first.
    pub(crate) fn open_records(
        &self,
        codec: &mut Codec,
    ) -> Result<Vec<TaskRecord>, CheckpointError> {
        let mut records = Vec::new();
        if let Some(row) = self.rows.iter().rfind(|it| it.body.changes().is_some()) {
            let migration = self.records(codec, row)?.0.migration;
            records.extend(migration.map(|it| it.records).unwrap_or_default());
        }
        for row in self.open_rows() {
            records.extend(self.records(codec, row)?.1);
        }
        Ok(records)
    }

    /// Returns the checkpoint after a step.
    pub(crate) fn checkpoint_at(
        &self,
        codec: &mut Codec,
        step: Step,
    ) -> Result<SavedCheckpoint, CheckpointError> {
        let is_it = |it: &Row| it.body.changes().is_some() && it.step == step;
        let Some(end) = self.rows.iter().position(is_it) else {
            return Err(CheckpointError::UnknownStep { run: self.run.clone(), step });
        };
        let position = self.meta(codec, &self.rows[end])?.position;
        let position = position.ok_or_else(|| self.damaged(&self.rows[end], Damage::Missing))?;
        let values = self.values(codec, &self.rows[..=end])?;
        Ok(SavedCheckpoint { position: position.into_owned(), values })
    }

    /// Returns the entries after a number.
    pub(crate) fn entries(
        &self,
        codec: &mut Codec,
        after: u64,
        detail: Detail,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        match detail {
            Detail::Whole => self.logged(codec, after),
            Detail::WithoutValues => self.without_values(codec, after),
        }
    }

    /// Returns the content of the rows after a number.
    fn logged(&self, codec: &mut Codec, after: u64) -> Result<Vec<JournalEntry>, CheckpointError> {
        let mut values = Values::new(self);
        let kind = |codec: &mut Codec, row: &Row, how: &StoredChange| values.kind(codec, row, how);
        self.logged_by(codec, after, Self::records, kind)
    }

    /// Returns the same entries [without values](JournalEntry::without_values); it does not read the
    /// values.
    fn without_values(
        &self,
        codec: &mut Codec,
        after: u64,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        let records = |decoder: &Self, codec: &mut Codec, row: &Row| {
            let mut meta = decoder.meta(codec, row)?;
            let records = std::mem::take(&mut meta.records);
            Ok((meta, records))
        };
        let kind = |_: &mut Codec, _: &Row, how: &StoredChange| {
            Ok(match how {
                StoredChange::Set(_) => ChangeKind::Set(Arc::default()),
                StoredChange::Appended(_) => ChangeKind::Appended(Vec::new()),
                StoredChange::Cleared => ChangeKind::Cleared,
            })
        };
        let logged = self.logged_by(codec, after, records, kind)?;
        Ok(logged.into_iter().map(JournalEntry::without_values).collect())
    }

    fn logged_by(
        &self,
        codec: &mut Codec,
        after: u64,
        records: impl Fn(&Self, &mut Codec, &Row) -> MetaAndRecords,
        mut kind: impl FnMut(&mut Codec, &Row, &StoredChange) -> Result<ChangeKind, CheckpointError>,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        let mut logged = Vec::new();
        for row in self.rows.iter().filter(|it| it.number > after) {
            let (meta, records) = records(self, codec, row)?;
            let commit = match (meta.position, self.changes(codec, row)?) {
                (Some(position), Some(changes)) => {
                    let made = changes.into_iter().map(|(channel, how)| {
                        let kind = kind(codec, row, &how)?;
                        Ok(Change { channel, kind })
                    });
                    let changes = made.collect::<Result<_, _>>()?;
                    Some(Commit { position: position.into_owned(), changes })
                }
                (None, None) => None,
                _ => return Err(self.damaged(row, Damage::Missing)),
            };
            let first = (row.seq + 1).checked_sub(meta.events.len() as u64);
            let first = first.ok_or_else(|| self.damaged(row, Damage::Events))?;
            let events = (first..).zip(meta.events).map(|(seq, it)| RunEvent {
                v: it.v,
                seq,
                ts: it.ts.into_owned(),
                run: self.run.clone(),
                event: it.event.into_owned(),
            });
            let migration = meta.migration;
            let run_status = meta.run_status.map(Cow::into_owned);
            let entry = Entry { records, commit, migration, run_status, events: events.collect() };
            logged.push(JournalEntry { number: row.number, hash: row.hash, entry });
        }
        Ok(logged)
    }

    /// Returns the values that tasks wrote since the last commit.
    pub(super) fn written(&self, codec: &mut Codec) -> Result<Vec<TaskValue>, CheckpointError> {
        let mut found = Vec::new();
        for row in self.open_rows() {
            let mut index = 0;
            for record in self.records(codec, row)?.1 {
                let Some(update) = record.outcome.update() else { continue };
                for (channel, value) in &update.writes {
                    if record.outcome.is_final() {
                        let task = record.task;
                        let channel = channel.clone();
                        let value = Arc::clone(value);
                        let place = (row.number, index);
                        found.push(TaskValue { task, channel, value, place });
                    }
                    index += 1;
                }
            }
        }
        Ok(found)
    }

    fn open_rows(&self) -> &[Row] {
        let committed = self.rows.iter().rposition(|it| it.body.changes().is_some());
        &self.rows[committed.map_or(0, |it| it + 1)..]
    }

    /// Returns the values after the last of these rows. Of each channel, it reads only the values
    /// that the channel still holds.
    fn values(
        &self,
        codec: &mut Codec,
        rows: &[Row],
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        let mut made: BTreeMap<&ChannelName, Vec<(&Row, &StoredChange)>> = BTreeMap::new();
        let mut values = BTreeMap::new();
        let rows = match &self.kept {
            Some(KeptValues(kept)) => {
                values.clone_from(kept);
                &rows[1..]
            }
            None => rows,
        };
        let changes = self.changes_of_all(rows)?;
        for (row, changes) in rows.iter().zip(&changes) {
            for (channel, how) in changes.iter().flat_map(|it| it.iter()) {
                let since = made.entry(channel).or_default();
                if !matches!(how, StoredChange::Appended(_)) {
                    since.clear();
                }
                since.push((row, how));
            }
        }
        let mut is_needed = vec![false; self.rows.len()];
        for (row, how) in made.values().flatten() {
            for place in how.places() {
                is_needed[self.row_of(row, place)?] = true;
            }
        }
        let needed: Vec<usize> = (0..self.rows.len()).filter(|at| is_needed[*at]).collect();
        let mut stored = Values::new(self);
        // Several threads read many rows at once; a few rows may be large and are read one after
        // the other.
        if needed.len() > LARGE_ROWS_MAX {
            let data = self.read_all(&needed, |codec, at| self.untaken(codec, *at))?;
            for (at, values) in needed.into_iter().zip(data) {
                stored.read[at] = Some(values);
            }
        }
        for (channel, since) in made {
            for (row, how) in since {
                let kind = stored.kind(codec, row, how)?;
                let change = Change { channel: channel.clone(), kind };
                apply(&mut values, change)
                    .map_err(|error| misfit(self.run, channel, row.step, error))?;
            }
        }
        Ok(values)
    }

    /// Returns the changes of rows. Equal steps have equal bytes, which are decoded once.
    fn changes_of_all(&self, rows: &[Row]) -> Result<Vec<Option<Arc<Changes>>>, CheckpointError> {
        let packed: BTreeSet<&[u8]> = rows.iter().filter_map(|it| it.body.changes()).collect();
        if packed.len() * 2 > rows.len() {
            return self.read_all(rows, |codec, row| Ok(self.changes(codec, row)?.map(Arc::new)));
        }
        let mut known: BTreeMap<&[u8], Arc<Changes>> = BTreeMap::new();
        let mut codec = Codec::new().map_err(|error| self.unreadable(&error))?;
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            all.push(match row.body.changes() {
                None => None,
                Some(packed) => Some(match known.entry(packed) {
                    btree_map::Entry::Occupied(it) => Arc::clone(it.get()),
                    btree_map::Entry::Vacant(it) => {
                        Arc::clone(it.insert(Arc::new(self.read(&mut codec, row, packed)?)))
                    }
                }),
            });
        }
        Ok(all)
    }

    /// Returns the index of the row that a place in another row refers to.
    pub(super) fn row_of(
        &self,
        from: &Row,
        (number, _): ValuePlace,
    ) -> Result<usize, CheckpointError> {
        let first = self.rows.first().map(|it| it.number);
        let at = first.and_then(|first| from.number_or_own(number).checked_sub(first));
        at.and_then(|it| usize::try_from(it).ok())
            .filter(|it| *it < self.rows.len())
            .ok_or_else(|| self.damaged(from, Damage::Place))
    }

    /// Reads many rows, with several threads if there are very many.
    fn read_all<R: Sync, T: Send>(
        &self,
        rows: &[R],
        read: impl Fn(&mut Codec, &R) -> Result<T, CheckpointError> + Sync,
    ) -> Result<Vec<T>, CheckpointError> {
        let parts = in_parts(rows, Codec::new, |codec, part| {
            let codec = codec.as_mut().map_err(|error| self.unreadable(error))?;
            part.iter().map(|row| read(codec, row)).collect::<Result<Vec<T>, _>>()
        });
        let mut all = Vec::with_capacity(rows.len());
        for part in parts {
            all.extend(part?);
        }
        Ok(all)
    }

    /// Returns the records of a row, with their values.
    fn records(&self, codec: &mut Codec, row: &Row) -> MetaAndRecords {
        let mut meta = self.meta(codec, row)?;
        let mut records = std::mem::take(&mut meta.records);
        let mut values: Option<std::vec::IntoIter<Value>> = None;
        let carried = meta.migration.iter_mut().flat_map(|it| &mut it.records);
        for record in records.iter_mut().chain(carried) {
            let Some(update) = record.outcome.update_mut() else { continue };
            for (_, value) in &mut update.writes {
                let values = match &mut values {
                    Some(values) => values,
                    None => values.insert(self.data(codec, row)?.into_iter()),
                };
                let read = values.next().ok_or_else(|| self.damaged(row, Damage::Place))?;
                *value = Arc::new(read);
            }
        }
        Ok((meta, records))
    }

    fn meta(&self, codec: &mut Codec, row: &Row) -> Result<Meta<'static>, CheckpointError> {
        self.read(codec, row, row.body.meta())
    }

    fn data(&self, codec: &mut Codec, row: &Row) -> Result<Vec<Value>, CheckpointError> {
        let values: Vec<Compact> = self.read(codec, row, row.body.data())?;
        Ok(values.into_iter().map(Compact::into_value).collect())
    }

    /// Returns the values of a row, all of them untaken.
    pub(super) fn untaken(&self, codec: &mut Codec, at: usize) -> Result<Untaken, CheckpointError> {
        let values = self.data(codec, &self.rows[at])?;
        Ok(values.into_iter().map(Some).collect())
    }

    fn changes(&self, codec: &mut Codec, row: &Row) -> Result<Option<Changes>, CheckpointError> {
        row.body.changes().map(|it| self.read(codec, row, it)).transpose()
    }

    fn read<T: DeserializeOwned>(
        &self,
        codec: &mut Codec,
        row: &Row,
        packed: &[u8],
    ) -> Result<T, CheckpointError> {
        let bytes = codec.unpack(packed).map_err(|it| self.damaged(row, it.into()))?;
        serde_json::from_slice(bytes).map_err(|it| self.damaged(row, it.into()))
    }

    fn unreadable(&self, error: &io::Error) -> CheckpointError {
        let action = format!("unpack run `{}`", self.run);
        CheckpointError::Storage { action, source: error.to_string().into() }
    }

    pub(super) fn damaged(&self, row: &Row, damage: Damage) -> CheckpointError {
        damaged(self.run.as_str(), format!("entry {}", row.number), damage)
    }
}

/// Returns the error for a damaged part of a run.
pub(crate) fn damaged(
    run: &str,
    what: impl fmt::Display,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> CheckpointError {
    CheckpointError::Damaged { run: run.to_owned(), what: what.to_string(), source: source.into() }
}
