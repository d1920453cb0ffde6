//! A run in the database: its search, head, lease and inbox.

use graphrun_core::id::{NameError, RunId};
use graphrun_engine::{
    checkpoint::{
        CheckpointError, EntryHash, InboxMessage, LeaseRequest, LeaseToken, Message, RunInfo,
        RunSummary,
    },
    storage::rules::{Head, ID_PREFIX_LENGTH_MIN},
};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{entries::Journal, fault::Fault, payload::bytes};
use crate::{
    head::{HeadColumns, StoredHead},
    journal::{
        checksum::{Checksum, of_head, of_info, of_message},
        damaged,
    },
    lease::{Lease, LeaseColumns},
};

/// The row id of a run in its database.
pub(super) type RunKey = i64;

/// A run that exists.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: RunKey,
    pub(super) id: RunId,
}

/// The columns of a head.
macro_rules! head_columns {
    () => {
        "number, before_open, step, seq, hash, run_status, checksum,
         fence, owner, until, lease_checksum"
    };
}

impl Run {
    /// Returns the run with exactly this id.
    pub(super) fn find(database: &Connection, id: &RunId) -> Result<Self, Fault> {
        let found = Self::select(database, "WHERE id = ?", [id.as_str()])?;
        found.into_iter().next().ok_or_else(|| unknown(id.as_str()))
    }

    /// Returns the run with exactly this id, and its head.
    pub(super) fn find_with_head(
        database: &Connection,
        id: &RunId,
    ) -> Result<(Self, StoredHead), Fault> {
        // Not as a join: SQLite would plan it again for each id.
        let sql = concat!(
            "SELECT ",
            head_columns!(),
            ", run FROM heads WHERE run = (SELECT key FROM runs WHERE id = ?)"
        );
        let mut found = collect(database, sql, [id.as_str()], |row| {
            let run = Self { key: row.get(11)?, id: id.clone() };
            let stored = run.read_head(row)?;
            Ok((run, stored))
        })?;
        if let Some(found) = found.pop() {
            return Ok(found);
        }
        // One of the two rows is missing; each query reports its own error.
        let run = Self::find(database, id)?;
        let stored = run.stored_head(database)?;
        Ok((run, stored))
    }

    /// Returns the run with this id, this name, or a unique id that begins with the text.
    pub(super) fn search(database: &Connection, text: &str) -> Result<Self, Fault> {
        for condition in ["WHERE id = ?", "WHERE name = ?"] {
            if let Some(run) = Self::select(database, condition, [text])?.pop() {
                return Ok(run);
            }
        }
        if text.len() < ID_PREFIX_LENGTH_MIN {
            return Err(unknown(text));
        }
        // `~` sorts after every character of an id.
        let begins = "WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id";
        let mut found = Self::select(database, begins, [text])?;
        match (found.pop(), found.as_slice()) {
            (None, _) => Err(unknown(text)),
            (Some(only), []) => Ok(only),
            (Some(last), _) => {
                let all = found.iter().chain([&last]);
                let ids: Vec<String> = all.map(|it| it.id.to_string()).collect();
                Err(CheckpointError::AmbiguousRun { prefix: text.to_owned(), ids }.into())
            }
        }
    }

    /// Returns the newest runs, or the newest of those older than a given run. Each has its own
    /// result, since damage to one does not affect the others.
    pub(super) fn newest(
        database: &Connection,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<Result<Self, Fault>>, Fault> {
        let before = before.map(|id| Self::find(database, id)).transpose()?;
        let before = before.map_or(RunKey::MAX, |it| it.key);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = "SELECT key, id FROM runs WHERE key < ? ORDER BY key DESC LIMIT ?";
        collect(database, sql, params![before, limit], |row| Ok(Self::read(row)))
    }

    fn select(database: &Connection, rest: &str, params: impl Params) -> Result<Vec<Self>, Fault> {
        collect(database, &format!("SELECT key, id FROM runs {rest}"), params, Self::read)
    }

    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let id = String::from_utf8_lossy(bytes(row, "id")?);
        let damage = |error: NameError| broken(&id, "the id", error);
        Ok(Self { key: row.get("key")?, id: RunId::parse(&id).map_err(damage)? })
    }

    /// Fails if another run has the id or the name.
    pub(super) fn require_new(database: &Connection, info: &RunInfo) -> Result<(), Fault> {
        let words = [info.id.as_str(), &info.name];
        let sql = "SELECT id, name FROM runs WHERE id IN (?1, ?2) OR name IN (?1, ?2)";
        let word = |row: &Row<'_>, at: usize| {
            Ok::<_, Fault>(String::from_utf8_lossy(bytes(row, at)?).into_owned())
        };
        let taken = collect(database, sql, words, |row| Ok([word(row, 0)?, word(row, 1)?]))?;
        match words.into_iter().find(|it| taken.iter().flatten().any(|word| word == it)) {
            Some(word) => Err(CheckpointError::Exists(word.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Inserts a new run.
    pub(super) fn insert(
        database: &Connection,
        info: &RunInfo,
        json: &[u8],
    ) -> Result<Self, Fault> {
        let checksum = of_info(info.id.as_str(), &info.name, json);
        let sql = "INSERT INTO runs (id, name, info, info_checksum) VALUES (?, ?, ?, ?)";
        let values = params![info.id.as_str(), info.name, json, checksum];
        let key = database.prepare_cached(sql)?.insert(values)?;
        Ok(Self { key, id: info.id.clone() })
    }

    /// Returns the stored info.
    pub(super) fn info(&self, database: &Connection) -> Result<Vec<u8>, Fault> {
        let sql = "SELECT name, info, info_checksum FROM runs WHERE key = ?";
        self.one(database, sql, "the description", |row| {
            let info = bytes(row, "info")?;
            let sum = of_info(self.id.as_str(), &row.get::<_, String>("name")?, info);
            if sum == bytes(row, "info_checksum")? {
                Ok(info.to_vec())
            } else {
                Err(broken(self.id.as_str(), "the description", "its checksum does not match"))
            }
        })
    }

    /// Saves the info after a migration.
    pub(super) fn put_info(&self, database: &Connection, info: &[u8]) -> Result<(), Fault> {
        let sql = "SELECT name FROM runs WHERE key = ?";
        let name: String = database.query_row(sql, [self.key], |row| row.get(0))?;
        let checksum = of_info(self.id.as_str(), &name, info);
        let sql = "UPDATE runs SET info = ?, info_checksum = ? WHERE key = ?";
        database.execute(sql, params![info, checksum, self.key])?;
        Ok(())
    }

    pub(super) fn summary(&self, database: &Connection) -> Result<RunSummary, Fault> {
        let info = self.info(database)?;
        Ok(self.stored_head(database)?.summary(&self.id, &info)?)
    }

    /// Returns the head.
    pub(super) fn stored_head(&self, database: &Connection) -> Result<StoredHead, Fault> {
        let sql = concat!("SELECT ", head_columns!(), " FROM heads WHERE run = ?");
        self.one(database, sql, "the status", |row| self.read_head(row))
    }

    /// Reads the head from a row that begins with its columns.
    fn read_head(&self, row: &Row<'_>) -> Result<StoredHead, Fault> {
        let run_status: String = row.get(5)?;
        let columns = HeadColumns {
            number: row.get(0)?,
            before_open: row.get(1)?,
            step: row.get(2)?,
            seq: row.get(3)?,
            hash: bytes(row, 4)?,
            run_status: &run_status,
            checksum: bytes(row, 6)?,
            lease: LeaseColumns {
                fence: row.get(7)?,
                owner: row.get(8)?,
                until_ms: row.get(9)?,
                checksum: bytes(row, 10)?,
            },
        };
        Ok(StoredHead::read(&self.id, columns)?)
    }

    /// Returns the stored form of the status, and the checksum of a head with it.
    fn checked(
        &self,
        head: &Head,
        before_open: u64,
        hash: EntryHash,
    ) -> Result<(String, Checksum), Fault> {
        let run_status = head.stored_status().map_err(Fault::Unwritable)?;
        let checksum = of_head(self.id.as_str(), head, before_open, &hash.0, &run_status);
        Ok((run_status, checksum))
    }

    /// Inserts the first head, with the lease that was requested.
    pub(super) fn begin(
        &self,
        database: &Connection,
        head: Head,
        hash: EntryHash,
        request: &LeaseRequest,
    ) -> Result<StoredHead, Fault> {
        let lease = Lease::next(0, request, now(database)?).map_err(Fault::Unwritable)?;
        let before_open = head.number;
        let (run_status, checksum) = self.checked(&head, before_open, hash)?;
        let sql =
            "INSERT INTO heads (run, number, before_open, step, seq, hash, run_status, checksum,
                       fence, owner, until, lease_checksum)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        database.prepare_cached(sql)?.execute(params![
            self.key,
            head.number,
            before_open,
            head.step.0,
            head.seq,
            hash.0,
            run_status,
            checksum,
            lease.fence,
            lease.json,
            lease.until_ms(),
            lease.checksum(&self.id),
        ])?;
        Ok(StoredHead { head, before_open, hash, lease })
    }

    /// Saves the head after an entry.
    pub(super) fn put(
        &self,
        database: &Connection,
        head: &Head,
        before_open: u64,
        hash: EntryHash,
    ) -> Result<(), Fault> {
        let (run_status, checksum) = self.checked(head, before_open, hash)?;
        let sql = "UPDATE heads SET number = ?, before_open = ?, step = ?, seq = ?, hash = ?,
                       run_status = ?, checksum = ?
                   WHERE run = ?";
        database.prepare_cached(sql)?.execute(params![
            head.number,
            before_open,
            head.step.0,
            head.seq,
            hash.0,
            run_status,
            checksum,
            self.key,
        ])?;
        Ok(())
    }

    /// Grants the lease of the run, unless the run has an owner.
    pub(super) fn acquire(
        &self,
        database: &Connection,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, Fault> {
        let lease = self.stored_head(database)?.lease;
        lease.require_free(&self.id, now(database)?, request.replaces_fence)?;
        self.grant_lease(database, lease.fence, request)
    }

    /// Fails if the run has an owner.
    pub(super) fn require_free(&self, database: &Connection) -> Result<(), Fault> {
        Ok(self.stored_head(database)?.lease.require_free(&self.id, now(database)?, None)?)
    }

    /// Grants the lease of the run, with the next fencing token.
    pub(super) fn grant_lease(
        &self,
        database: &Connection,
        last: u64,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, Fault> {
        let lease = Lease::next(last, request, now(database)?).map_err(Fault::Unwritable)?;
        self.put_lease(database, &lease)?;
        Ok(LeaseToken { run: self.id.clone(), fence: lease.fence })
    }

    /// Releases the lease with this fencing token.
    pub(super) fn take_back(&self, database: &Connection, fence: u64) -> Result<(), Fault> {
        let lease = self.stored_head(database)?.lease;
        if lease.fence != fence {
            return Ok(());
        }
        self.put_lease(database, &lease.released())
    }

    /// Saves the lease.
    pub(super) fn put_lease(&self, database: &Connection, lease: &Lease) -> Result<(), Fault> {
        let sql = "UPDATE heads SET fence = ?, owner = ?, until = ?, lease_checksum = ?
                   WHERE run = ?";
        let until = lease.until_ms();
        let checksum = lease.checksum(&self.id);
        let values = params![lease.fence, lease.json, until, checksum, self.key];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Adds a message, unless it is there.
    pub(super) fn post(&self, database: &Connection, message: &Message) -> Result<u64, Fault> {
        let sql = "SELECT number FROM inbox WHERE run = ? AND id = ?";
        let values = params![self.key, message.id];
        let before =
            database.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?;
        if let Some(number) = before {
            return Ok(number);
        }
        let json = serde_json::to_string(message).map_err(Fault::Unwritable)?;
        let sql = "INSERT INTO inbox (run, id, message, checksum) VALUES (?, ?, ?, ?)
                   RETURNING number";
        let values = params![self.key, message.id, json, of_message(self.id.as_str(), &json)];
        Ok(database.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
    }

    /// Returns the messages after a number.
    pub(super) fn inbox(
        &self,
        database: &Connection,
        after: u64,
    ) -> Result<Vec<InboxMessage>, Fault> {
        let sql = "SELECT number, message, checksum FROM inbox
                   WHERE run = ? AND number > ? ORDER BY number";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        collect(database, sql, params![self.key, after], |row| {
            let number = row.get("number")?;
            let json: String = row.get("message")?;
            let what = format!("message {number}");
            if of_message(self.id.as_str(), &json) != bytes(row, "checksum")? {
                return Err(broken(self.id.as_str(), &what, "its checksum does not match"));
            }
            let message = serde_json::from_str(&json);
            let message = message.map_err(|error| broken(self.id.as_str(), &what, error))?;
            Ok(InboxMessage { number, message })
        })
    }

    /// Returns the journal of the run.
    pub(super) fn journal<'a>(&'a self, database: &'a Connection) -> Journal<'a> {
        Journal { database, run: self }
    }

    /// Returns the one row that must exist.
    fn one<T>(
        &self,
        database: &Connection,
        sql: &str,
        what: &str,
        read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        collect(database, sql, [self.key], read)?
            .pop()
            .ok_or_else(|| broken(self.id.as_str(), what, "it is missing"))
    }
}

/// Returns the time of the database, in milliseconds since 1970.
pub(super) fn now(database: &Connection) -> Result<i64, Fault> {
    let sql = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    Ok(database.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

pub(super) fn collect<T>(
    database: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut found = Vec::new();
    each(database, sql, params, |row| {
        found.push(read(row)?);
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn each(
    database: &Connection,
    sql: &str,
    params: impl Params,
    mut take: impl FnMut(&Row<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

fn unknown(run: &str) -> Fault {
    CheckpointError::UnknownRun(run.to_owned()).into()
}

pub(super) fn broken(
    run: &str,
    what: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Fault {
    damaged(run, what, source).into()
}
