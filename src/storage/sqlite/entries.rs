//! The journal of a run in the database.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    fault::Fault,
    payload::bytes,
    run::{Run, Stand, collect},
};
use crate::{
    checkpoint::{Entry, Hold, Link},
    id::{RunId, Step, TaskId},
    storage::{
        journal::{Codec, Reader, Row, beginning, damaged, encode},
        rules::{Head, check_fence},
    },
};

impl Run {
    /// Adds the first entry and gives how the run stands then.
    pub(super) fn append_first(
        &self,
        database: &Connection,
        codec: &mut Codec,
        first: &Entry,
        info: &[u8],
    ) -> Result<(Head, Link), Fault> {
        let head = Head::first(first)?;
        let open = Reader::trusted(&self.id, Vec::new());
        let row = encode(codec, &self.id, first, (&head, beginning(&self.id, info)), &open)?;
        self.insert_row(database, &row)?;
        Ok((head, row.link))
    }

    /// Adds an entry.
    pub(super) fn append(
        &self,
        database: &Connection,
        codec: &mut Codec,
        hold: &Hold,
        entry: &Entry,
    ) -> Result<(), Fault> {
        let Stand { head, committed, link, holder } = self.stand(database)?;
        check_fence(holder.as_ref(), hold.fence)?;
        let has_open = head.number > committed;
        let finished = |task: TaskId| has_open && self.is_finished(database, task);
        let next = head.after(entry, finished)?;
        let open = if has_open && entry.commit.is_some() {
            self.rows_between(database, committed, head.number)?
        } else {
            Vec::new()
        };
        let open = Reader::trusted(&self.id, open);
        let row = encode(codec, &self.id, entry, (&next, link), &open)?;
        self.insert_row(database, &row)?;
        if entry.commit.is_some() {
            if has_open {
                database
                    .prepare_cached("DELETE FROM finished WHERE run = ?")?
                    .execute([self.key])?;
            }
        } else {
            let mut insert =
                database.prepare_cached("INSERT INTO finished (run, task) VALUES (?, ?)")?;
            for record in entry.records.iter().filter(|it| it.outcome.is_final()) {
                insert.execute(params![self.key, record.task.index])?;
            }
        }
        let committed = if entry.commit.is_some() { next.number } else { committed };
        self.put(database, &next, committed, row.link)?;
        self.take_back_after(database, entry, hold.fence)
    }

    /// The rows of the journal, checked from the first to the last.
    pub(super) fn journal<'a>(&'a self, database: &Connection) -> Result<Reader<'a>, Fault> {
        let stand = self.stand(database)?;
        let rows = self.rows_between(database, 0, u64::MAX >> 1)?;
        if rows.first().is_none_or(|it| it.number != 1) {
            return Err(damaged(self.id.as_str(), "entry 1", "it is missing").into());
        }
        let before = beginning(&self.id, &self.info(database)?);
        let end = Some((stand.head.number, stand.link));
        Ok(Reader::check(&self.id, rows, before, end)?)
    }

    /// The rows after a number, at most so many, and those before that they refer to.
    pub(super) fn journal_after<'a>(
        &'a self,
        database: &Connection,
        after: u64,
        limit: usize,
    ) -> Result<Reader<'a>, Fault> {
        let sql = "SELECT number FROM journal
                   WHERE run = ? AND number <= ? AND changes IS NOT NULL
                   ORDER BY number DESC LIMIT 1";
        let mut statement = database.prepare_cached(sql)?;
        let base = statement.query_row(params![self.key, after], |row| row.get::<_, u64>(0));
        let Some(base) = base.optional()? else { return self.journal(database) };
        let last = after.saturating_add(limit as u64).min(u64::MAX >> 1);
        let mut rows = self.rows_between(database, base - 1, last)?;
        // The first is there for its link alone.
        let link = if rows.is_empty() { Link([0; 32]) } else { rows.remove(0).link };
        let stand = self.stand(database)?;
        let end = (last >= stand.head.number && !rows.is_empty())
            .then_some((stand.head.number, stand.link));
        Ok(Reader::check(&self.id, rows, link, end)?)
    }

    fn is_finished(&self, database: &Connection, task: TaskId) -> bool {
        let sql = "SELECT 1 FROM finished WHERE run = ? AND task = ?";
        let found = database
            .prepare_cached(sql)
            .and_then(|mut it| it.query_row(params![self.key, task.index], |_| Ok(())).optional());
        // What cannot be read is not written over: the entry is refused.
        !matches!(found, Ok(None))
    }

    fn rows_between(
        &self,
        database: &Connection,
        after: u64,
        last: u64,
    ) -> Result<Vec<Row>, Fault> {
        let sql = "SELECT number, step, seq, changes, meta, data, link FROM journal
                   WHERE run = ? AND number > ? AND number <= ? ORDER BY number";
        collect(database, sql, params![self.key, after, last], |row| read(&self.id, row))
    }

    fn insert_row(&self, database: &Connection, row: &Row) -> Result<(), Fault> {
        let sql = "INSERT INTO journal (run, number, step, seq, changes, meta, data, link)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        database.prepare_cached(sql)?.execute(params![
            self.key,
            row.number,
            row.step.0,
            row.seq,
            row.changes,
            row.meta,
            row.data,
            row.link.0,
        ])?;
        Ok(())
    }
}

fn read(run: &RunId, row: &rusqlite::Row<'_>) -> Result<Row, Fault> {
    let number = row.get("number")?;
    let what = || format!("entry {number}");
    let changes = match row.get_ref("changes")? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(bytes(row, "changes")?.to_vec()),
    };
    let link = bytes(row, "link")?.try_into();
    Ok(Row {
        number,
        step: Step(row.get("step")?),
        seq: row.get("seq")?,
        changes,
        meta: bytes(row, "meta")?.to_vec(),
        data: bytes(row, "data")?.to_vec(),
        link: Link(link.map_err(|_| damaged(run.as_str(), what(), "its link is too short"))?),
    })
}
