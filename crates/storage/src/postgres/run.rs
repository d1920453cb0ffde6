//! A run in the database: search, head and lease.

use graphrun_core::id::RunId;
use graphrun_engine::{
    checkpoint::{CheckpointError, EntryHash, Migration, RunInfo, RunSummary},
    storage::rules::{Head, ID_PREFIX_LENGTH_MIN},
};
use tokio_postgres::{Row, types::ToSql};

use super::{
    fault::Fault,
    renewals::OtherLocks,
    session::{Session, get},
};
use crate::{
    head::{HeadColumns, StoredHead},
    journal::{checksum, damaged, info_after},
    lease::{Lease, LeaseColumns},
};

/// The clock of the server; it advances while a transaction waits.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

const SUMMARY: &str = "
    SELECT r.key, r.id, r.name, r.info, r.info_checksum, h.*
    FROM runs r LEFT JOIN heads h ON h.run = r.key";

/// A run that exists.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) key: i64,
    pub(super) id: RunId,
}

/// A run that is locked for writing until the end of the transaction.
#[derive(Debug)]
pub(super) struct LockedRun {
    pub(super) run: Run,
    pub(super) stored: StoredHead,
    /// The time of the server, in milliseconds since 1970.
    pub(super) now: i64,
}

/// The lease of a run that is locked for writing until the end of the transaction.
#[derive(Debug)]
pub(super) struct LockedLease {
    pub(super) run: Run,
    pub(super) lease: Result<Lease, Fault>,
    /// The time of the server, in milliseconds since 1970.
    pub(super) now: i64,
}

/// A run without its journal.
#[derive(Clone, Debug)]
pub(super) struct StoredRun {
    pub(super) run: Run,
    pub(super) stored: StoredHead,
    /// The stored info.
    pub(super) info: Vec<u8>,
}

impl Run {
    /// Locks the run with exactly this id for writing.
    pub(super) async fn lock(session: &Session, id: &RunId) -> Result<LockedRun, Fault> {
        let sql = format!(
            "SELECT h.*, {NOW} AS now FROM heads h JOIN runs r ON r.key = h.run
             WHERE r.id = $1 FOR UPDATE OF h"
        );
        let row =
            session.first(&sql, &[&id.as_str()]).await?.ok_or_else(|| unknown(id.as_str()))?;
        let run = Self { key: get(&row, "run")?, id: id.clone() };
        Ok(LockedRun { run, stored: read_head(id, &row)?, now: get(&row, "now")? })
    }

    /// Locks the runs with these ids for writing, except those that another transaction has locked.
    pub(super) async fn lock_unlocked(
        session: &Session,
        ids: &[&str],
    ) -> Result<Vec<LockedRun>, Fault> {
        let sql = format!(
            "SELECT r.id, h.*, {NOW} AS now FROM heads h JOIN runs r ON r.key = h.run
             WHERE r.id = ANY($1) FOR UPDATE OF h SKIP LOCKED"
        );
        let rows = session.query(&sql, &[&ids]).await?;
        let locked = rows.iter().map(|row| {
            let text: &str = get(row, "id")?;
            let id = RunId::parse(text).map_err(|error| damaged(text, "the id", error))?;
            let stored = read_head(&id, row)?;
            let key = get(row, "run")?;
            Ok(LockedRun { run: Self { key, id }, stored, now: get(row, "now")? })
        });
        locked.collect()
    }

    /// Locks the runs with these ids for writing.
    pub(super) async fn lock_leases(
        session: &Session,
        ids: &[&str],
        other_locks: OtherLocks,
    ) -> Result<Vec<LockedLease>, Fault> {
        let end = match other_locks {
            OtherLocks::Skip => "SKIP LOCKED",
            OtherLocks::Await => "",
        };
        // Two processes that lock in the same order never wait for each other.
        let sql = format!(
            "SELECT r.id, h.run, h.fence, h.owner, h.until, h.lease_checksum, {NOW} AS now
             FROM heads h JOIN runs r ON r.key = h.run
             WHERE r.id = ANY($1) ORDER BY h.run FOR UPDATE OF h {end}"
        );
        let rows = session.query(&sql, &[&ids]).await?;
        let locked = rows.iter().map(|row| {
            let text: &str = get(row, "id")?;
            let id = RunId::parse(text).map_err(|error| damaged(text, "the id", error))?;
            let lease = read_lease(&id, row);
            let key = get(row, "run")?;
            Ok(LockedLease { run: Self { key, id }, lease, now: get(row, "now")? })
        });
        locked.collect()
    }

    /// Inserts a new run.
    pub(super) async fn insert(
        session: &Session,
        info: &RunInfo,
        json: &[u8],
    ) -> Result<Option<Self>, Fault> {
        let checksum = checksum::of_info(info.id.as_str(), &info.name, json);
        let sql = "INSERT INTO runs (id, name, info, info_checksum) VALUES ($1, $2, $3, $4)
                   ON CONFLICT DO NOTHING RETURNING key";
        let values: [&(dyn ToSql + Sync); 4] =
            [&info.id.as_str(), &info.name, &json, &checksum.as_slice()];
        let row = session.first(sql, &values).await?;
        row.map(|row| Ok(Self { key: get(&row, "key")?, id: info.id.clone() })).transpose()
    }

    /// Inserts the first head.
    pub(super) async fn begin(
        &self,
        session: &Session,
        head: &Head,
        hash: EntryHash,
        lease: &Lease,
    ) -> Result<(), Fault> {
        let sql =
            "INSERT INTO heads (run, number, before_open, step, seq, hash, run_status, checksum,
                       fence, owner, until, lease_checksum)
                   VALUES ($1, 0, 0, 0, 0, '', '', '', 0, NULL, 0, '')";
        session.execute(sql, &[&self.key]).await?;
        put(session, &[NewHead { run: self, head, before_open: head.number, hash, lease }]).await
    }

    /// Saves the info after a migration.
    pub(super) async fn migrate(
        &self,
        session: &Session,
        migration: &Migration,
    ) -> Result<(), Fault> {
        let found = StoredRun::by_id(session, &self.id).await?;
        let info = info_after(&found.info, migration).map_err(Fault::Unwritable)?;
        let sql = "SELECT name FROM runs WHERE key = $1";
        let row =
            session.first(sql, &[&self.key]).await?.ok_or_else(|| unknown(self.id.as_str()))?;
        let checksum = checksum::of_info(self.id.as_str(), get(&row, "name")?, &info);
        let sql = "UPDATE runs SET info = $2, info_checksum = $3 WHERE key = $1";
        session.execute(sql, &[&self.key, &info, &checksum.as_slice()]).await?;
        Ok(())
    }

    /// Removes the run.
    pub(super) async fn remove(&self, session: &Session) -> Result<(), Fault> {
        for table in ["inbox", "journal", "kept_values", "heads"] {
            let sql = format!("DELETE FROM {table} WHERE run = $1");
            session.execute(&sql, &[&self.key]).await?;
        }
        session.execute("DELETE FROM runs WHERE key = $1", &[&self.key]).await?;
        Ok(())
    }
}

/// The head and the lease of a run after an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewHead<'a> {
    pub(super) run: &'a Run,
    pub(super) head: &'a Head,
    /// The number of the last entry before the records of the open step.
    pub(super) before_open: u64,
    /// The hash of the entry.
    pub(super) hash: EntryHash,
    pub(super) lease: &'a Lease,
}

/// Saves heads with one statement.
pub(super) async fn put(session: &Session, heads: &[NewHead<'_>]) -> Result<(), Fault> {
    let sql = "UPDATE heads SET number = n.number, before_open = n.before_open, step = n.step, seq = n.seq,
                   hash = n.hash, run_status = n.run_status, checksum = n.checksum, fence = n.fence,
                   owner = n.owner, until = n.until, lease_checksum = n.lease_checksum
               FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                   $6::bytea[], $7::text[], $8::bytea[], $9::bigint[], $10::text[], $11::bigint[],
                   $12::bytea[])
                   AS n (run, number, before_open, step, seq, hash, run_status, checksum, fence, owner,
                       until, lease_checksum)
               WHERE heads.run = n.run";
    let columns = HeadValues::of(heads.iter().copied())?;
    let values: [&(dyn ToSql + Sync); 12] = [
        &heads.iter().map(|it| it.run.key).collect::<Vec<_>>(),
        &columns.numbers,
        &columns.before_open,
        &columns.steps,
        &columns.seqs,
        &heads.iter().map(|it| it.hash.0.as_slice()).collect::<Vec<_>>(),
        &columns.statuses,
        &columns.checksums,
        &columns.fences,
        &heads.iter().map(|it| it.lease.json.as_deref()).collect::<Vec<_>>(),
        &columns.untils,
        &columns.lease_checksums,
    ];
    session.execute(sql, &values).await?;
    Ok(())
}

/// The columns of heads, as arrays of a statement.
#[derive(Debug)]
pub(super) struct HeadValues {
    pub(super) numbers: Vec<i64>,
    pub(super) before_open: Vec<i64>,
    pub(super) steps: Vec<i64>,
    pub(super) seqs: Vec<i64>,
    pub(super) statuses: Vec<String>,
    pub(super) checksums: Vec<Vec<u8>>,
    pub(super) fences: Vec<i64>,
    pub(super) untils: Vec<i64>,
    pub(super) lease_checksums: Vec<Vec<u8>>,
}

impl HeadValues {
    pub(super) fn of<'a>(heads: impl Iterator<Item = NewHead<'a>> + Clone) -> Result<Self, Fault> {
        let numbers = |of: fn(&NewHead<'_>) -> u64| {
            heads.clone().map(|it| signed(of(&it))).collect::<Result<Vec<_>, _>>()
        };
        let status = |it: NewHead<'_>| it.head.stored_status();
        let statuses = heads.clone().map(status).collect::<Result<Vec<_>, _>>();
        let statuses = statuses.map_err(Fault::Unwritable)?;
        let checksum = |(it, status): (NewHead<'_>, &String)| {
            let id = it.run.id.as_str();
            checksum::of_head(id, it.head, it.before_open, &it.hash.0, status).to_vec()
        };
        Ok(Self {
            numbers: numbers(|it| it.head.number)?,
            before_open: numbers(|it| it.before_open)?,
            steps: numbers(|it| it.head.step.0)?,
            seqs: numbers(|it| it.head.seq)?,
            checksums: heads.clone().zip(&statuses).map(checksum).collect(),
            statuses,
            fences: numbers(|it| it.lease.fence)?,
            untils: heads.clone().map(|it| it.lease.until_ms()).collect(),
            lease_checksums: heads.map(|it| it.lease.checksum(&it.run.id).to_vec()).collect(),
        })
    }
}

/// Saves leases with one statement.
pub(super) async fn put_leases(session: &Session, leases: &[(Run, Lease)]) -> Result<(), Fault> {
    let sql = "UPDATE heads SET fence = n.fence, owner = n.owner, until = n.until,
                   lease_checksum = n.lease_checksum
               FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bytea[])
                   AS n (run, fence, owner, until, lease_checksum)
               WHERE heads.run = n.run";
    let fences = leases.iter().map(|(_, lease)| signed(lease.fence));
    let sums = leases.iter().map(|(run, lease)| lease.checksum(&run.id).to_vec());
    let values: [&(dyn ToSql + Sync); 5] = [
        &leases.iter().map(|(run, _)| run.key).collect::<Vec<_>>(),
        &fences.collect::<Result<Vec<_>, _>>()?,
        &leases.iter().map(|(_, lease)| lease.json.as_deref()).collect::<Vec<_>>(),
        &leases.iter().map(|(_, lease)| lease.until_ms()).collect::<Vec<_>>(),
        &sums.collect::<Vec<_>>(),
    ];
    session.execute(sql, &values).await?;
    Ok(())
}

impl StoredRun {
    /// Returns the run with exactly this id.
    pub(super) async fn by_id(session: &Session, id: &RunId) -> Result<Self, Fault> {
        let sql = format!("{SUMMARY} WHERE r.id = $1");
        let row = session.first(&sql, &[&id.as_str()]).await?;
        row.as_ref().map_or_else(|| Err(unknown(id.as_str())), Self::read)
    }

    /// Returns the run with this id, this name, or a unique id that begins with the text.
    pub(super) async fn search(session: &Session, text: &str) -> Result<Self, Fault> {
        if text.contains('\0') {
            // Text columns of the server cannot contain it.
            return Err(unknown(text));
        }
        let sql = format!("{SUMMARY} WHERE r.id = $1 OR r.name = $1 ORDER BY r.id = $1 DESC");
        if let Some(row) = session.first(&sql, &[&text]).await? {
            return Self::read(&row);
        }
        if text.len() < ID_PREFIX_LENGTH_MIN {
            return Err(unknown(text));
        }
        // `~` sorts after every character of an id.
        let sql = format!("{SUMMARY} WHERE r.id >= $1 AND r.id < $1 || '~' ORDER BY r.id LIMIT 9");
        match session.query(&sql, &[&text]).await?.as_slice() {
            [] => Err(unknown(text)),
            [only] => Self::read(only),
            several => {
                let ids = several.iter().map(|it| get(it, "id")).collect::<Result<Vec<_>, _>>()?;
                Err(CheckpointError::AmbiguousRun { prefix: text.to_owned(), ids }.into())
            }
        }
    }

    /// Returns the newest runs, or the newest of those older than a given run. Each has its own
    /// result, since damage to one does not affect the others.
    pub(super) async fn newest(
        session: &Session,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<Result<Self, CheckpointError>>, Fault> {
        let before = match before {
            None => i64::MAX,
            Some(id) => {
                let row =
                    session.first("SELECT key FROM runs WHERE id = $1", &[&id.as_str()]).await?;
                get(&row.ok_or_else(|| unknown(id.as_str()))?, "key")?
            }
        };
        let sql = format!("{SUMMARY} WHERE r.key < $1 ORDER BY r.key DESC LIMIT $2");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = session.query(&sql, &[&before, &limit]).await?;
        let found = rows.iter().map(|row| match Self::read(row) {
            Ok(found) => Ok(Ok(found)),
            Err(Fault::Known(damaged @ CheckpointError::Damaged { .. })) => Ok(Err(damaged)),
            // The whole database failed, not one run.
            Err(fault) => Err(fault),
        });
        found.collect()
    }

    pub(super) fn summary(&self) -> Result<RunSummary, CheckpointError> {
        self.stored.summary(&self.run.id, &self.info)
    }

    fn read(row: &Row) -> Result<Self, Fault> {
        let text: &str = get(row, "id")?;
        let id = RunId::parse(text).map_err(|error| damaged(text, "the id", error))?;
        if get::<Option<i64>>(row, "run")?.is_none() {
            return Err(broken(&id, "the status", "it is missing"));
        }
        let info: &[u8] = get(row, "info")?;
        let sum = checksum::of_info(id.as_str(), get(row, "name")?, info);
        if sum != get::<&[u8]>(row, "info_checksum")? {
            return Err(broken(&id, "the description", "its checksum does not match"));
        }
        let key = get(row, "key")?;
        let stored = read_head(&id, row)?;
        Ok(Self { info: info.to_vec(), stored, run: Run { key, id } })
    }
}

fn read_lease(id: &RunId, row: &Row) -> Result<Lease, Fault> {
    Ok(Lease::read(id, lease_columns(id, row)?)?)
}

fn lease_columns<'a>(id: &RunId, row: &'a Row) -> Result<LeaseColumns<'a>, Fault> {
    Ok(LeaseColumns {
        fence: number(id, row, "fence")?,
        owner: get(row, "owner")?,
        until_ms: get(row, "until")?,
        checksum: get(row, "lease_checksum")?,
    })
}

fn read_head(id: &RunId, row: &Row) -> Result<StoredHead, Fault> {
    let columns = HeadColumns {
        number: number(id, row, "number")?,
        before_open: number(id, row, "before_open")?,
        step: number(id, row, "step")?,
        seq: number(id, row, "seq")?,
        hash: get(row, "hash")?,
        run_status: get(row, "run_status")?,
        checksum: get(row, "checksum")?,
        lease: lease_columns(id, row)?,
    };
    Ok(StoredHead::read(id, columns)?)
}

/// Returns a non-negative number; the server has no unsigned type.
pub(super) fn number(id: &RunId, row: &Row, column: &str) -> Result<u64, Fault> {
    u64::try_from(get::<i64>(row, column)?)
        .map_err(|_| broken(id, &format!("the {column}"), "it is negative"))
}

pub(super) fn signed(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::Unusable(format!("it cannot count to {number}")))
}

pub(super) fn unknown(run: &str) -> Fault {
    CheckpointError::UnknownRun(run.to_owned()).into()
}

pub(super) fn broken(
    run: &RunId,
    what: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Fault {
    damaged(run.as_str(), what, source).into()
}
