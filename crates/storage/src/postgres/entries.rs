//! The journal of a run in the database.

use std::{io, ops::RangeInclusive};

use graphrun_core::id::{RunId, Step};
use graphrun_engine::{
    checkpoint::{CheckpointError, EntryHash},
    storage::rules::beginning,
};
use tokio_postgres::{Row as SqlRow, types::ToSql};

use super::{
    fault::Fault,
    run::{Run, StoredRun, broken, number, signed},
    session::{Session, get},
};
use crate::journal::{
    Body, Codec, HashedRows, KeptValues, Reader, Row, Span, checksum::of_values, info_at_first,
};

/// Rows of one run, and the hashes that prove them.
#[derive(Debug)]
pub(super) struct Pages {
    /// The hash before the rows.
    before: EntryHash,
    rows: Vec<Row>,
    span: Span,
    /// The packed values after the first row, if the rows do not begin with the first entry.
    kept: Option<Vec<u8>>,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// At the kept values, or at the first entry without them.
    KeptValues,
    FirstEntry,
}

impl Pages {
    /// Returns at most `limit` rows after a number, and the earlier rows that they refer to.
    pub(super) async fn after(
        session: &Session,
        found: &StoredRun,
        after: u64,
        limit: usize,
    ) -> Result<Self, Fault> {
        let run = &found.run;
        let head = &found.stored.head;
        let after = after.min(head.number);
        let last = after.saturating_add(limit as u64).min(head.number);
        let sql = "SELECT number, hash FROM journal
                   WHERE run = $1 AND number <= $2 AND changes IS NOT NULL
                   ORDER BY number DESC LIMIT 1";
        // Rows refer to nothing before the last commit before them.
        let (base, before) = match after {
            0 => None,
            _ => session.first(sql, &[&run.key, &signed(after)?]).await?,
        }
        .map_or_else(
            || Ok((0, beginning(&run.id, &info_at_first(&found.info)))),
            |row| Ok::<_, Fault>((number(&run.id, &row, "number")?, hash(&run.id, &row)?)),
        )?;
        Self::read(session, found, before, base + 1..=last).await
    }

    /// Returns the rows that give the checkpoint after a step.
    pub(super) async fn up_to_step(
        session: &Session,
        found: &StoredRun,
        step: Option<Step>,
        begin: Begin,
    ) -> Result<Self, Fault> {
        let step = step.unwrap_or(found.stored.head.step);
        let kept = match begin {
            Begin::KeptValues => kept_values(session, &found.run, step).await?,
            Begin::FirstEntry => None,
        };
        let Some((first, before, kept)) = kept else {
            return Self::after(session, found, 0, usize::MAX).await;
        };
        let pages = Self::read(session, found, before, first..=found.stored.head.number).await?;
        Ok(Self { kept: Some(kept), ..pages })
    }

    async fn read(
        session: &Session,
        found: &StoredRun,
        before: EntryHash,
        numbers: RangeInclusive<u64>,
    ) -> Result<Self, Fault> {
        let (first, last) = numbers.into_inner();
        let end = (last == found.stored.head.number).then_some(found.stored.hash);
        // There must be no row after the last entry.
        let to = end.map_or(last, |_| i64::MAX.cast_unsigned());
        let rows = Journal { session, run: &found.run }.rows(first..=to).await?;
        Ok(Self { before, rows, span: Span { first, last, end }, kept: None })
    }

    /// Unpacks the kept values, if the rows begin with them.
    pub(super) fn unpack_kept(&self, codec: &mut Codec) -> io::Result<Option<KeptValues>> {
        self.kept.as_ref().map(|it| KeptValues::read(codec, it)).transpose()
    }

    /// Checks the rows. `kept` are the values that they begin with.
    pub(super) fn reader(
        self,
        run: &RunId,
        kept: Option<KeptValues>,
    ) -> Result<Reader<'_>, CheckpointError> {
        let rows = Reader::check(run, HashedRows::of(self.before, self.rows), self.span)?;
        Ok(rows.with_kept(kept))
    }
}

/// Returns the packed values that were kept, with the number of their entry and the hash before it, if they are intact
/// and not of a later step.
async fn kept_values(
    session: &Session,
    run: &Run,
    step: Step,
) -> Result<Option<(u64, EntryHash, Vec<u8>)>, Fault> {
    let sql = "SELECT k.number, before.hash, entry.hash AS own, k.content, k.checksum
               FROM kept_values k
               JOIN journal entry ON entry.run = k.run AND entry.number = k.number
               JOIN journal before ON before.run = k.run AND before.number = k.number - 1
               WHERE k.run = $1 AND entry.step <= $2 AND entry.changes IS NOT NULL";
    let Some(row) = session.first(sql, &[&run.key, &signed(step.0)?]).await? else {
        return Ok(None);
    };
    let number = number(&run.id, &row, "number")?;
    let content = get::<&[u8]>(&row, "content")?;
    let checksum = of_values(run.id.as_str(), number, get(&row, "own")?, content);
    let is_intact = checksum == get::<&[u8]>(&row, "checksum")?;
    Ok(is_intact.then_some((number, hash(&run.id, &row)?, content.to_vec())))
}

/// Keeps the values after a step, which is the last one of a locked run.
pub(super) async fn keep_values(
    session: &Session,
    run: &Run,
    step: Step,
    content: &[u8],
) -> Result<(), Fault> {
    let sql = "SELECT number, hash FROM journal
               WHERE run = $1 AND step = $2 AND changes IS NOT NULL
               ORDER BY number DESC LIMIT 1";
    let row = session.first(sql, &[&run.key, &signed(step.0)?]).await?;
    let Some(row) = row else { return Ok(()) };
    let number = number(&run.id, &row, "number")?;
    let hash = hash(&run.id, &row)?;
    let checksum = of_values(run.id.as_str(), number, &hash.0, content);
    let sql = "INSERT INTO kept_values (run, number, content, checksum) VALUES ($1, $2, $3, $4)
               ON CONFLICT (run) DO UPDATE SET number = excluded.number,
                   content = excluded.content, checksum = excluded.checksum";
    session.execute(sql, &[&run.key, &signed(number)?, &content, &checksum.as_slice()]).await?;
    Ok(())
}

/// The journal of a run in a transaction.
#[derive(Clone, Copy)]
pub(super) struct Journal<'a> {
    pub(super) session: &'a Session,
    pub(super) run: &'a Run,
}

impl Journal<'_> {
    /// Returns whether exactly this row is saved.
    pub(super) async fn has(&self, number: u64, hash: EntryHash) -> Result<bool, Fault> {
        let sql = "SELECT hash FROM journal WHERE run = $1 AND number = $2";
        let row = self.session.first(sql, &[&self.run.key, &signed(number)?]).await?;
        row.map_or(Ok(false), |row| Ok(get::<&[u8]>(&row, "hash")? == hash.0))
    }

    pub(super) async fn rows(&self, numbers: RangeInclusive<u64>) -> Result<Vec<Row>, Fault> {
        let first = signed(*numbers.start())?;
        let last = signed(*numbers.end())?;
        let sql = "SELECT number, step, seq, changes, meta, data, hash FROM journal
                   WHERE run = $1 AND number BETWEEN $2 AND $3 ORDER BY number";
        let rows = self.session.query(sql, &[&self.run.key, &first, &last]).await?;
        rows.iter().map(|row| read(&self.run.id, row)).collect()
    }
}

/// A row that is not saved yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRow<'a> {
    /// The key of its run.
    pub(super) run: i64,
    pub(super) row: &'a Row,
}

/// The columns of rows, as arrays of a statement.
#[derive(Debug)]
pub(super) struct RowValues<'a> {
    pub(super) numbers: Vec<i64>,
    pub(super) steps: Vec<i64>,
    pub(super) seqs: Vec<i64>,
    pub(super) changes: Vec<Option<&'a [u8]>>,
    pub(super) metas: Vec<&'a [u8]>,
    pub(super) data: Vec<&'a [u8]>,
    pub(super) hashes: Vec<&'a [u8]>,
}

impl<'a> RowValues<'a> {
    pub(super) fn of(rows: impl Iterator<Item = &'a Row> + Clone) -> Result<Self, Fault> {
        let numbers = |of: fn(&Row) -> u64| {
            rows.clone().map(|it| signed(of(it))).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            numbers: numbers(|it| it.number)?,
            steps: numbers(|it| it.step.0)?,
            seqs: numbers(|it| it.seq)?,
            changes: rows.clone().map(|it| it.body.changes()).collect(),
            metas: rows.clone().map(|it| it.body.meta()).collect(),
            data: rows.clone().map(|it| it.body.data()).collect(),
            hashes: rows.map(|it| it.hash.0.as_slice()).collect(),
        })
    }
}

/// Saves rows with one statement.
pub(super) async fn insert(session: &Session, rows: &[NewRow<'_>]) -> Result<(), Fault> {
    let sql = "INSERT INTO journal (run, number, step, seq, changes, meta, data, hash)
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
                   $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[])";
    let columns = RowValues::of(rows.iter().map(|it| it.row))?;
    let values: [&(dyn ToSql + Sync); 8] = [
        &rows.iter().map(|it| it.run).collect::<Vec<_>>(),
        &columns.numbers,
        &columns.steps,
        &columns.seqs,
        &columns.changes,
        &columns.metas,
        &columns.data,
        &columns.hashes,
    ];
    session.execute(sql, &values).await?;
    Ok(())
}

fn read(run: &RunId, row: &SqlRow) -> Result<Row, Fault> {
    Ok(Row {
        number: number(run, row, "number")?,
        step: Step(number(run, row, "step")?),
        seq: number(run, row, "seq")?,
        body: Body::new(get(row, "changes")?, get(row, "meta")?, get(row, "data")?),
        hash: hash(run, row)?,
    })
}

fn hash(run: &RunId, row: &SqlRow) -> Result<EntryHash, Fault> {
    let entry = number(run, row, "number")?;
    let hash = get::<&[u8]>(row, "hash")?.try_into();
    Ok(EntryHash(
        hash.map_err(|_| broken(run, &format!("entry {entry}"), "its hash is too short"))?,
    ))
}
