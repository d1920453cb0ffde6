//! The one connection, and the transactions on it.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use graphrun_core::fault::hit_each;
use graphrun_engine::{
    checkpoint::{CheckpointError, Entry, LeaseToken},
    storage::rules::stops_run,
};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, config::DbConfig};

use super::{
    fault::{Fault, is_failed_write},
    group::Group,
    identity::Identity,
    reserve,
    run::Run,
};
use crate::{
    head::{EncodedEntry, NextEntry},
    journal::{Codec, info_after},
    open_steps::OpenSteps,
};

pub(super) struct Database {
    path: PathBuf,
    /// The identity of the file; none where it is unknown.
    identity: Option<Identity>,
    tools: Mutex<Tools>,
    open_steps: Mutex<OpenSteps>,
    group: Group,
}

/// The tools of a transaction.
struct Tools {
    connection: Connection,
    codec: Codec,
    /// A write failed. After that, the page cache of the kernel may differ from the disk, so that a
    /// second attempt may succeed and save nothing.
    failed: bool,
}

impl Database {
    pub(super) fn new(path: &Path, connection: Connection) -> Result<Self, CheckpointError> {
        let codec = Codec::new().map_err(|error| CheckpointError::Storage {
            action: format!("open {}", path.display()),
            source: error.into(),
        })?;
        let tools = Mutex::new(Tools { connection, codec, failed: false });
        let (path, identity) = (path.to_owned(), Identity::of(path));
        let (open_steps, group) = (Mutex::default(), Group::default());
        Ok(Self { path, identity, tools, open_steps, group })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives tests access to the connection.
    #[cfg(test)]
    pub(super) fn with_connection<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&self.tools.lock().unwrap().connection)
    }

    /// Appends an entry to a run; one that stops or suspends it may use the reserve.
    pub(super) fn append(&self, hold: &LeaseToken, entry: &Entry) -> Result<(), CheckpointError> {
        let action = entry.action(&hold.run);
        let work =
            |database: &Connection, codec: &mut Codec| self.append_in(database, codec, hold, entry);
        if stops_run(entry) {
            self.write_at_need(action, work)?;
        } else {
            self.transact(TransactionBehavior::Immediate, action, work)?;
        }
        self.check_identity()
    }

    /// Appends an entry within a transaction.
    pub(super) fn append_in(
        &self,
        database: &Connection,
        codec: &mut Codec,
        hold: &LeaseToken,
        entry: &Entry,
    ) -> Result<(), Fault> {
        let mut open_steps = self.open_steps.lock().unwrap_or_else(PoisonError::into_inner);
        let (run, stored) = Run::find_with_head(database, &hold.run)?;
        let journal = run.journal(database);
        let next = NextEntry::new(hold, &stored, entry, &mut open_steps)?;
        let open = next.needed_rows().map(|it| journal.rows(it)).transpose()?;
        let EncodedEntry { row, head, committed, finished } = next.encode::<Fault>(open, codec)?;
        journal.insert(&row)?;
        hit_each(entry.points_in_transaction())?;
        if let Some(migration) = &entry.migration {
            let info = info_after(&run.info(database)?, migration).map_err(Fault::Unwritable)?;
            run.put_info(database, &info)?;
        }
        run.put(database, &head, committed, row.hash)?;
        open_steps.note(&run.id, row.hash, entry, finished);
        if stops_run(entry) { run.take_back(database, hold.fence) } else { Ok(()) }
    }

    /// Checks after a write that the file is still at its path, so that no event reports a step that is in no file.
    pub(super) fn check_identity(&self) -> Result<(), CheckpointError> {
        self.identity.map_or(Ok(()), |it| it.check(&self.path))
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Writes; if the disk is full, with the reserved space.
    pub(super) fn write_at_need<T>(
        &self,
        action: String,
        work: impl Fn(&Connection, &mut Codec) -> Result<T, Fault>,
    ) -> Result<T, CheckpointError> {
        match self.transact(TransactionBehavior::Immediate, action.clone(), &work) {
            Err(CheckpointError::Full { .. }) if reserve::give_up(&self.path) => {
                self.transact(TransactionBehavior::Immediate, action, work)
            }
            result => result,
        }
    }

    /// Runs one transaction.
    pub(super) fn transact<T>(
        &self,
        behavior: TransactionBehavior,
        action: String,
        work: impl FnOnce(&Connection, &mut Codec) -> Result<T, Fault>,
    ) -> Result<T, CheckpointError> {
        // A panic while the lock was held rolled its transaction back, so the connection is usable.
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let Tools { connection, codec, failed } = &mut *tools;
        let is_write = matches!(behavior, TransactionBehavior::Immediate);
        let work = || -> Result<T, Fault> {
            if *failed && is_write {
                return Err(Fault::Failed);
            }
            let transaction = connection.transaction_with_behavior(behavior)?;
            let made = work(&transaction, codec)?;
            transaction.commit()?;
            Ok(made)
        };
        let done = work();
        let is_failure = |it: &Fault| matches!(it, Fault::Sqlite(error) if is_failed_write(error));
        if is_write && done.as_ref().is_err_and(is_failure) {
            *failed = true;
            // The next process that opens the database reads the log; until then, nothing is
            // checkpointed.
            let no_tidying = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            drop(connection.set_db_config(no_tidying, true));
        }
        done.map_err(|fault| fault.explain(&self.path, action))
    }

    /// Returns the space of removed runs to the file system, unless another process uses the
    /// database.
    pub(super) fn compact(&self) -> Result<(), CheckpointError> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        // This cannot be part of a transaction: it needs exclusive access to the file.
        let done = tools.connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
        match done {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            done => done.map_err(|it| {
                let action = format!("make {} smaller", self.path.display());
                Fault::from(it).explain(&self.path, action)
            }),
        }
    }
}

/// Checks that tables and indexes agree, and that every row belongs to an existing run.
pub(super) fn verify(database: &Connection) -> Result<(), Fault> {
    let found: String = database.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(Fault::Damaged(found));
    }
    let orphan = |row: &rusqlite::Row<'_>| row.get::<_, String>("table");
    match database.query_row("PRAGMA foreign_key_check", [], orphan).optional()? {
        Some(table) => Err(Fault::Damaged(format!("`{table}` has a row without a run"))),
        None => Ok(()),
    }
}
