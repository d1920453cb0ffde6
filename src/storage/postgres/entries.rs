//! The journal of a run in the database.

use std::collections::BTreeSet;

use tokio_postgres::{Row as SqlRow, types::ToSql};

use super::{
    fault::Fault,
    run::{Found, Run, broken, get, number, signed},
    session::Session,
};
use crate::{
    checkpoint::{CheckpointError, Entry, Link},
    id::{RunId, Step, TaskId},
    storage::{
        journal::{Reader, Row, Span},
        rules::{beginning, finished_by},
    },
};

/// Rows of one run, and what proves them.
#[derive(Debug)]
pub(super) struct Pages {
    rows: Vec<Row>,
    span: Span,
}

impl Pages {
    /// The rows after a number, at most so many, and those before that they refer to.
    pub(super) async fn after(
        session: &Session,
        found: &Found,
        after: u64,
        limit: usize,
    ) -> Result<Self, Fault> {
        let (run, head) = (&found.run, &found.stand.head);
        let after = after.min(head.number);
        let last = after.saturating_add(limit as u64).min(head.number);
        let sql = "SELECT number, link FROM journal
                   WHERE run = $1 AND number <= $2 AND changes IS NOT NULL
                   ORDER BY number DESC LIMIT 1";
        // What they refer to is not before the last commit before them.
        let (base, before) = match after {
            0 => None,
            _ => session.first(sql, &[&run.key, &signed(after)?]).await?,
        }
        .map_or_else(
            || Ok((0, beginning(&run.id, &found.info))),
            |row| Ok::<_, Fault>((number(&run.id, &row, "number")?, link(&run.id, &row)?)),
        )?;
        let end = (last == head.number).then_some(found.stand.link);
        // After the last entry there must be nothing.
        let to = end.map_or(last, |_| i64::MAX.cast_unsigned());
        let rows = run.rows_between(session, base, to).await?;
        Ok(Self { rows, span: Span { first: base + 1, before, last, end } })
    }

    /// Checks them.
    pub(super) fn reader(self, run: &RunId) -> Result<Reader<'_>, CheckpointError> {
        Reader::check(run, self.rows, self.span)
    }
}

impl Run {
    /// Whether exactly this row is saved.
    pub(super) async fn has(
        &self,
        session: &Session,
        (number, link): (u64, Link),
    ) -> Result<bool, Fault> {
        let sql = "SELECT link FROM journal WHERE run = $1 AND number = $2";
        let row = session.first(sql, &[&self.key, &signed(number)?]).await?;
        row.map_or(Ok(false), |row| Ok(get::<&[u8]>(&row, "link")? == link.0))
    }

    /// Which of the tasks that an entry finishes are finished already.
    pub(super) async fn finished_before(
        &self,
        session: &Session,
        entry: &Entry,
    ) -> Result<BTreeSet<TaskId>, Fault> {
        let finals = entry.records.iter().filter(|it| it.outcome.is_final());
        let tasks: Vec<TaskId> = finals.map(|it| it.task).collect();
        if tasks.is_empty() {
            return Ok(BTreeSet::new());
        }
        let numbers: Vec<i64> = tasks.iter().map(|it| it.index.into()).collect();
        let sql = "SELECT task FROM finished WHERE run = $1 AND task = ANY($2)";
        let rows = session.query(sql, &[&self.key, &numbers]).await?;
        let before = rows.iter().map(|row| get(row, "task")).collect::<Result<Vec<i64>, _>>()?;
        Ok(tasks.into_iter().filter(|it| before.contains(&it.index.into())).collect())
    }

    /// Notes the tasks that an entry finishes, or forgets all when it commits their step.
    pub(super) async fn note_finished(
        &self,
        session: &Session,
        entry: &Entry,
        has_open: bool,
    ) -> Result<(), Fault> {
        if entry.commit.is_some() && has_open {
            session.execute("DELETE FROM finished WHERE run = $1", &[&self.key]).await?;
        }
        let tasks: Vec<i64> = finished_by(entry).map(|it| it.index.into()).collect();
        if !tasks.is_empty() {
            let sql = "INSERT INTO finished (run, task) SELECT $1, unnest($2::bigint[])";
            session.execute(sql, &[&self.key, &tasks]).await?;
        }
        Ok(())
    }

    pub(super) async fn rows_between(
        &self,
        session: &Session,
        after: u64,
        last: u64,
    ) -> Result<Vec<Row>, Fault> {
        let sql = "SELECT number, step, seq, changes, meta, data, link FROM journal
                   WHERE run = $1 AND number > $2 AND number <= $3 ORDER BY number";
        let rows = session.query(sql, &[&self.key, &signed(after)?, &signed(last)?]).await?;
        rows.iter().map(|row| read(&self.id, row)).collect()
    }

    pub(super) async fn insert_row(&self, session: &Session, row: &Row) -> Result<(), Fault> {
        let sql = "INSERT INTO journal (run, number, step, seq, changes, meta, data, link)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let values: [&(dyn ToSql + Sync); 8] = [
            &self.key,
            &signed(row.number)?,
            &signed(row.step.0)?,
            &signed(row.seq)?,
            &row.changes,
            &row.meta,
            &row.data,
            &row.link.0.as_slice(),
        ];
        session.execute(sql, &values).await?;
        Ok(())
    }
}

fn read(run: &RunId, row: &SqlRow) -> Result<Row, Fault> {
    Ok(Row {
        number: number(run, row, "number")?,
        step: Step(number(run, row, "step")?),
        seq: number(run, row, "seq")?,
        changes: get(row, "changes")?,
        meta: get(row, "meta")?,
        data: get(row, "data")?,
        link: link(run, row)?,
    })
}

fn link(run: &RunId, row: &SqlRow) -> Result<Link, Fault> {
    let entry = number(run, row, "number")?;
    let link = get::<&[u8]>(row, "link")?.try_into();
    Ok(Link(link.map_err(|_| broken(run, &format!("entry {entry}"), "its link is too short"))?))
}
