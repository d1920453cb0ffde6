//! The journal of a run in the database.

use std::ops::RangeInclusive;

use graphrun_core::id::{RunId, Step};
use graphrun_engine::{
    checkpoint::{EntryHash, SavedRun},
    storage::rules::beginning,
};
use rusqlite::{Connection, params, types::ValueRef};

use super::{
    fault::Fault,
    payload::bytes,
    run::{Run, collect, each},
};
use crate::{
    head::StoredHead,
    journal::{
        Body, Codec, HashedRows, KeptValues, Reader, Row, Span, checksum::of_values, damaged,
        info_at_first,
    },
};

/// The journal of a run.
#[derive(Clone, Copy)]
pub(super) struct Journal<'a> {
    pub(super) database: &'a Connection,
    pub(super) run: &'a Run,
}

/// Kept values, still packed.
struct PackedValues {
    /// The number of their entry.
    number: u64,
    /// The hash before that entry.
    before: EntryHash,
    content: Vec<u8>,
}

impl<'a> Journal<'a> {
    /// Returns the rows of the journal, checked from the first to the last.
    pub(super) fn all(self) -> Result<Reader<'a>, Fault> {
        self.after(0, usize::MAX)
    }

    /// Returns at most `limit` rows after a number, and the earlier rows that they refer to;
    /// checked.
    pub(super) fn after(self, after: u64, limit: usize) -> Result<Reader<'a>, Fault> {
        let stored = self.run.stored_head(self.database)?;
        let after = after.min(stored.head.number);
        let last = after.saturating_add(limit as u64).min(stored.head.number);
        let sql = "SELECT number, hash FROM journal
                   WHERE run = ? AND number <= ? AND changes IS NOT NULL
                   ORDER BY number DESC LIMIT 1";
        // Rows refer to nothing before the last commit before them.
        let base = collect(self.database, sql, params![self.run.key, after], |row| {
            Ok((row.get::<_, u64>(0)?, hash(&self.run.id, row)?))
        })?;
        let (base, before) = match base.into_iter().next() {
            Some(base) => base,
            None => (0, beginning(&self.run.id, &info_at_first(&self.run.info(self.database)?))),
        };
        self.checked(before, base + 1, last, &stored)
    }

    /// Returns the rows that give the checkpoint after a step, checked: those since the kept values, or all.
    pub(super) fn up_to_step(self, codec: &mut Codec, step: Step) -> Result<Reader<'a>, Fault> {
        let Some(kept) = self.kept(step)? else { return self.all() };
        // Damaged values cost the time that they would have saved.
        let Ok(values) = KeptValues::read(codec, &kept.content) else { return self.all() };
        let stored = self.run.stored_head(self.database)?;
        let rows = self.checked(kept.before, kept.number, stored.head.number, &stored)?;
        Ok(rows.with_kept(Some(values)))
    }

    /// Returns the kept values, if they are intact and not of a later step.
    fn kept(&self, step: Step) -> Result<Option<PackedValues>, Fault> {
        let sql = "SELECT k.number, entry.hash, before.hash, k.content, k.checksum
                   FROM kept_values k
                   JOIN journal entry ON entry.run = k.run AND entry.number = k.number
                   JOIN journal before ON before.run = k.run AND before.number = k.number - 1
                   WHERE k.run = ? AND entry.step <= ? AND entry.changes IS NOT NULL";
        let found = collect(self.database, sql, params![self.run.key, step.0], |row| {
            let number = row.get(0)?;
            let content = bytes(row, 3)?;
            let checksum = of_values(self.run.id.as_str(), number, bytes(row, 1)?, content);
            let Ok(before) = bytes(row, 2)?.try_into() else { return Ok(None) };
            let kept =
                PackedValues { number, before: EntryHash(before), content: content.to_vec() };
            Ok((checksum == bytes(row, 4)?).then_some(kept))
        })?;
        Ok(found.into_iter().next().flatten())
    }

    /// Keeps the values after the last step of the run.
    pub(super) fn keep_values(&self, codec: &mut Codec, saved: &SavedRun) -> Result<(), Fault> {
        let sql = "SELECT number, hash FROM journal
                   WHERE run = ? AND step = ? AND changes IS NOT NULL
                   ORDER BY number DESC LIMIT 1";
        let step = saved.position.step.0;
        let last = collect(self.database, sql, params![self.run.key, step], |row| {
            Ok((row.get::<_, u64>(0)?, hash(&self.run.id, row)?))
        })?;
        let Some((number, hash)) = last.into_iter().next() else { return Ok(()) };
        let content = KeptValues::pack(codec, &saved.values)?;
        let checksum = of_values(self.run.id.as_str(), number, &hash.0, &content);
        let sql = "INSERT INTO kept_values (run, number, content, checksum) VALUES (?, ?, ?, ?)
                   ON CONFLICT (run) DO UPDATE SET number = excluded.number,
                       content = excluded.content, checksum = excluded.checksum";
        self.database.execute(sql, params![self.run.key, number, content, checksum])?;
        Ok(())
    }

    /// Returns the rows of a span, checked from the hash before them.
    fn checked(
        self,
        before: EntryHash,
        first: u64,
        last: u64,
        stored: &StoredHead,
    ) -> Result<Reader<'a>, Fault> {
        let end = (last == stored.head.number).then_some(stored.hash);
        // There must be no row after the last entry.
        let to = end.map_or(last, |_| u64::MAX >> 1);
        let read = HashedRows::read(before, |take| self.each_row(first..=to, take))?;
        Ok(Reader::check(&self.run.id, read, Span { first, last, end })?)
    }

    /// Returns the rows with these numbers, unchecked.
    pub(super) fn rows(&self, numbers: RangeInclusive<u64>) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        self.each_row(numbers, |row| rows.push(row)).map(|()| rows)
    }

    fn each_row(
        &self,
        numbers: RangeInclusive<u64>,
        mut take: impl FnMut(Row),
    ) -> Result<(), Fault> {
        let sql = "SELECT number, hash, step, seq, changes, meta, data FROM journal
                   WHERE run = ? AND number BETWEEN ? AND ? ORDER BY number";
        each(self.database, sql, params![self.run.key, numbers.start(), numbers.end()], |row| {
            take(read(&self.run.id, row)?);
            Ok(())
        })
    }

    pub(super) fn insert(&self, row: &Row) -> Result<(), Fault> {
        let sql = "INSERT INTO journal (run, number, step, seq, changes, meta, data, hash)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        self.database.prepare_cached(sql)?.execute(params![
            self.run.key,
            row.number,
            row.step.0,
            row.seq,
            row.body.changes(),
            row.body.meta(),
            row.body.data(),
            row.hash.0,
        ])?;
        Ok(())
    }
}

/// Reads a row by column index: lookup by name takes as long as the rest.
fn read(run: &RunId, row: &rusqlite::Row<'_>) -> Result<Row, Fault> {
    let changes = match row.get_ref(4)? {
        ValueRef::Null => None,
        _ => Some(bytes(row, 4)?),
    };
    Ok(Row {
        number: row.get(0)?,
        hash: hash(run, row)?,
        step: Step(row.get(2)?),
        seq: row.get(3)?,
        body: Body::new(changes, bytes(row, 5)?, bytes(row, 6)?),
    })
}

/// Returns the hash from a row that begins with number and hash.
fn hash(run: &RunId, row: &rusqlite::Row<'_>) -> Result<EntryHash, Fault> {
    let hash = bytes(row, 1)?.try_into();
    let number: u64 = row.get(0)?;
    let short = |_| damaged(run.as_str(), format!("entry {number}"), "its hash is too short");
    Ok(EntryHash(hash.map_err(short)?))
}
