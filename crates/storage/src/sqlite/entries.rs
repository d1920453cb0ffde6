//! The journal of a run in the database.

use graphrun_core::{
    fault::hit_each,
    id::{RunId, Step},
};
use graphrun_engine::{
    checkpoint::{Entry, EntryHash, LeaseToken},
    storage::rules::{Head, beginning, stops_run},
};
use rusqlite::{Connection, params, types::ValueRef};

use super::{
    fault::Fault,
    payload::bytes,
    run::{Run, collect, each},
};
use crate::{
    head::{EncodedEntry, NextEntry, StoredHead},
    journal::{
        Body, Codec, HashedRows, Reader, Row, Span, damaged, encode, info_after, info_at_first,
    },
    open_steps::OpenSteps,
};

/// The journal of a run.
#[derive(Clone, Copy)]
pub(super) struct Journal<'a> {
    pub(super) database: &'a Connection,
    pub(super) run: &'a Run,
}

impl<'a> Journal<'a> {
    /// Appends the first entry and returns the head after it.
    pub(super) fn append_first(
        &self,
        codec: &mut Codec,
        first: &Entry,
        info: &[u8],
    ) -> Result<(Head, EntryHash), Fault> {
        let head = Head::first(first)?;
        let open = Reader::trusted(&self.run.id, Vec::new());
        let row =
            encode(codec, &self.run.id, first, (&head, beginning(&self.run.id, info)), &open)?;
        self.insert(&row)?;
        Ok((head, row.hash))
    }

    /// Appends an entry after the current head.
    pub(super) fn append(
        &self,
        stored: &StoredHead,
        (codec, open_steps): (&mut Codec, &mut OpenSteps),
        hold: &LeaseToken,
        entry: &Entry,
    ) -> Result<(), Fault> {
        let append = NextEntry::new(&self.run.id, stored, (entry, hold.fence), open_steps)?;
        let open = append.needed_rows().map(|span| {
            let mut rows = Vec::new();
            self.each_between(span, |row| rows.push(row)).map(|()| rows)
        });
        let EncodedEntry { row, head, committed, finished } =
            append.encode::<Fault>(open.transpose()?, codec)?;
        self.insert(&row)?;
        hit_each(entry.points_in_transaction())?;
        if let Some(migration) = &entry.migration {
            let info =
                info_after(&self.run.info(self.database)?, migration).map_err(Fault::Unwritable)?;
            self.run.put_info(self.database, &info)?;
        }
        self.run.put(self.database, &head, committed, row.hash)?;
        open_steps.note(&self.run.id, row.hash, entry, finished);
        if stops_run(entry) { self.run.take_back(self.database, hold.fence) } else { Ok(()) }
    }

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
        let end = (last == stored.head.number).then_some(stored.hash);
        // There must be no row after the last entry.
        let to = end.map_or(last, |_| u64::MAX >> 1);
        let read = HashedRows::read(before, |take| self.each_between((base, to), take))?;
        Ok(Reader::check(&self.run.id, read, Span { first: base + 1, last, end })?)
    }

    fn each_between(
        &self,
        (after, last): (u64, u64),
        mut take: impl FnMut(Row),
    ) -> Result<(), Fault> {
        let sql = "SELECT number, hash, step, seq, changes, meta, data FROM journal
                   WHERE run = ? AND number > ? AND number <= ? ORDER BY number";
        each(self.database, sql, params![self.run.key, after, last], |row| {
            take(read(&self.run.id, row)?);
            Ok(())
        })
    }

    fn insert(&self, row: &Row) -> Result<(), Fault> {
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
