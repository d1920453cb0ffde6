//! The one connection, and the transactions on it.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, TryLockError},
    thread,
    time::{Duration, Instant},
};

use graphrun_engine::checkpoint::{CheckpointError, LeaseToken};
use rusqlite::{Connection, OptionalExtension};

use super::{
    fault::{Fault, is_failed_write},
    group::GroupedWrite,
    head_cache::HeadCache,
    lone_run::LoneRun,
    open::{BUSY_TIMEOUT, FileConnection},
    reserve,
    tools::Tools,
    write::Write,
};
use crate::{group::Group, journal::Codec, open_steps::OpenSteps};

/// The pages that one step returns to the file system: other writers wait for some milliseconds.
const PAGES_AT_ONCE: u32 = 1000;

pub(super) struct Database {
    path: PathBuf,
    session: Mutex<Session>,
    group: Group<GroupedWrite, LeaseToken>,
    lone_run: LoneRun,
}

struct Session {
    connection: FileConnection,
    tools: Tools,
    /// A write failed, or went to a file that is gone. After a failed write, the page cache of the kernel may differ from the
    /// disk, so that a second attempt may succeed and save nothing.
    failed: bool,
}

/// The purpose of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Reads one snapshot without blocking a writer.
    Read,
    /// Waits for other writers at its begin: a transaction that starts with reading, and finds its snapshot outdated
    /// when it writes, fails at once.
    Write,
    /// The same, but fails at once if another process writes.
    WriteIfFree,
}

/// A transaction that is rolled back unless it is committed.
struct Transaction<'a>(&'a Connection);

/// The tools during a transaction: its heads are forgotten unless it is committed, also after a panic.
struct NotedHeads<'a> {
    tools: &'a mut Tools,
    are_kept: bool,
}

impl Database {
    pub(super) fn new(path: &Path, connection: FileConnection) -> Result<Self, CheckpointError> {
        let codec = Codec::new().map_err(|error| CheckpointError::Storage {
            action: format!("open {}", path.display()),
            source: error.into(),
        })?;
        let tools = Tools { codec, heads: HeadCache::default(), open_steps: OpenSteps::default() };
        let session = Mutex::new(Session { connection, tools, failed: false });
        let path = path.to_owned();
        Ok(Self { path, session, group: Group::default(), lone_run: LoneRun::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives tests access to the connection.
    #[cfg(test)]
    pub(super) fn with_connection<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&self.session.lock().unwrap().connection)
    }

    /// Saves a write in one transaction, and returns the lease of the run.
    pub(super) fn save(&self, write: Write<'_>) -> Result<LeaseToken, CheckpointError> {
        let work = |database: &Connection, tools: &mut Tools| write.save(database, tools);
        if write.may_use_reserve() {
            self.at_need(|| write.action(), work)
        } else {
            self.transaction(Mode::Write, || write.action(), work)
        }
    }

    /// Same as `save`, but returns none, and saves nothing, if it had to wait for the connection or for another process, or
    /// if the disk is full.
    pub(super) fn save_if_free(
        &self,
        write: Write<'_>,
    ) -> Option<Result<LeaseToken, CheckpointError>> {
        let mut session = match self.session.try_lock() {
            Ok(session) => session,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let save = |database: &Connection, tools: &mut Tools| write.save(database, tools);
        let saved = session.transaction(Mode::WriteIfFree, save);
        drop(session);
        match saved {
            Ok(token) => Some(Ok(token)),
            Err(fault) if fault.is_busy() || fault.is_full() => None,
            Err(fault) => Some(Err(fault.explain(&self.path, write.action()))),
        }
    }

    /// Saves several in one transaction, and returns the result of each. Fails if the transaction does: then none is
    /// saved.
    pub(super) fn save_all<'a>(
        &self,
        writes: impl Iterator<Item = Write<'a>>,
    ) -> Result<Vec<Result<LeaseToken, Fault>>, CheckpointError> {
        let work = |database: &Connection, tools: &mut Tools| {
            tools.heads.begin(database)?;
            let saved = writes.map(|write| match write.encode(database, tools) {
                Ok(encoded) => encoded.put(database, tools).map(Ok),
                Err(Fault::Sqlite(error)) => Err(error.into()),
                Err(refused) => Ok(Err(refused)),
            });
            saved.collect()
        };
        self.transaction(Mode::Write, || "save a group of entries".to_owned(), work)
    }

    pub(super) fn group(&self) -> &Group<GroupedWrite, LeaseToken> {
        &self.group
    }

    pub(super) fn lone_run(&self) -> &LoneRun {
        &self.lone_run
    }

    /// Writes; if the disk is full, with the reserved space.
    pub(super) fn write_at_need<T>(
        &self,
        action: &str,
        work: impl Fn(&Connection, &mut Codec) -> Result<T, Fault>,
    ) -> Result<T, CheckpointError> {
        self.at_need(
            || action.to_owned(),
            |database, tools| {
                tools.heads.forget();
                work(database, &mut tools.codec)
            },
        )
    }

    /// Runs one transaction.
    pub(super) fn transact<T>(
        &self,
        mode: Mode,
        action: String,
        work: impl FnOnce(&Connection, &mut Codec) -> Result<T, Fault>,
    ) -> Result<T, CheckpointError> {
        self.transaction(
            mode,
            || action,
            |database, tools| {
                if mode == Mode::Write {
                    tools.heads.forget();
                }
                work(database, &mut tools.codec)
            },
        )
    }

    fn at_need<T>(
        &self,
        action: impl Fn() -> String,
        work: impl Fn(&Connection, &mut Tools) -> Result<T, Fault>,
    ) -> Result<T, CheckpointError> {
        match self.transaction(Mode::Write, &action, &work) {
            Err(CheckpointError::Full { .. }) => {
                // It may be given up already.
                reserve::give_up(&self.path);
                match self.transaction(Mode::Write, &action, &work) {
                    // A checkpoint moves the pages of the log into the database and frees the log.
                    Err(CheckpointError::Full { .. }) if self.empty_log() => {
                        self.transaction(Mode::Write, action, work)
                    }
                    result => result,
                }
            }
            result => result,
        }
    }

    /// Moves the pages of the log into the database, and returns whether the log is empty now.
    fn empty_log(&self) -> bool {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.check_files().is_err() {
            return false;
        }
        let is_blocked =
            session
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        is_blocked.is_ok_and(|it| it == 0)
    }

    fn transaction<T>(
        &self,
        mode: Mode,
        action: impl FnOnce() -> String,
        work: impl FnOnce(&Connection, &mut Tools) -> Result<T, Fault>,
    ) -> Result<T, CheckpointError> {
        // A panic while the lock was held rolled its transaction back, so the connection is usable.
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.transaction(mode, work).map_err(|fault| fault.explain(&self.path, action()))
    }

    /// Returns the space of removed runs to the file system. Other writers wait for one step at a time, and come between the
    /// steps.
    pub(super) fn compact(&self) -> Result<(), CheckpointError> {
        loop {
            let began = Instant::now();
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            let left = session.transaction(Mode::Write, |database, _| free_pages(database));
            drop(session);
            match left {
                Ok(0) => break,
                Ok(_) => thread::sleep(began.elapsed()),
                // New runs use the free pages of the file.
                Err(fault) if fault.is_busy() || fault.is_full() => break,
                Err(fault) => {
                    let action = format!("make {} smaller", self.path.display());
                    return Err(fault.explain(&self.path, action));
                }
            }
        }
        // A checkpoint shortens the file. If a reader prevents this one, a later one does it.
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if !session.failed {
            drop(session.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())));
        }
        Ok(())
    }
}

/// Moves pages from the end of the file to free ones, and returns how many free ones are left; zero if no more can be moved.
pub(super) fn free_pages(database: &Connection) -> Result<i64, Fault> {
    let count = || database.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0));
    let before = count()?;
    // Each row is a page.
    let mut step = database.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
    let mut pages = step.query([])?;
    while pages.next()?.is_some() {}
    let left = count()?;
    Ok(if left < before { left } else { 0 })
}

impl Session {
    fn transaction<T>(
        &mut self,
        mode: Mode,
        work: impl FnOnce(&Connection, &mut Tools) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let is_write = mode != Mode::Read;
        if is_write {
            self.check_files()?;
            if self.failed {
                return Err(Fault::Failed);
            }
        }
        let done = self.transact(mode, work);
        let is_failure =
            |fault: &Fault| matches!(fault, Fault::Sqlite(error) if is_failed_write(error));
        if is_write && done.as_ref().is_err_and(is_failure) {
            self.fail();
        }
        let made = done?;
        if is_write {
            // No event reports a step that is in no file.
            self.check_files()?;
        }
        Ok(made)
    }

    fn transact<T>(
        &mut self,
        mode: Mode,
        work: impl FnOnce(&Connection, &mut Tools) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let transaction = Transaction::begin(&self.connection, mode)?;
        let mut noted = NotedHeads { tools: &mut self.tools, are_kept: mode == Mode::Read };
        let made = work(&self.connection, noted.tools)?;
        transaction.commit()?;
        noted.are_kept = true;
        Ok(made)
    }

    /// Fails, now and later, if a file of the database is no longer at its path.
    fn check_files(&mut self) -> Result<(), CheckpointError> {
        self.connection.check_files().inspect_err(|_| self.failed = true)
    }

    /// Ends all writes of this connection, to the database and at its close.
    fn fail(&mut self) {
        self.failed = true;
        self.connection.keep_log();
    }
}

impl<'a> Transaction<'a> {
    fn begin(connection: &'a Connection, mode: Mode) -> rusqlite::Result<Self> {
        // Cached, unlike the statements of a transaction of rusqlite: to parse them takes long, beside a small entry.
        let sql = match mode {
            Mode::Read => "BEGIN DEFERRED",
            Mode::Write | Mode::WriteIfFree => "BEGIN IMMEDIATE",
        };
        let mut begin = connection.prepare_cached(sql)?;
        if mode == Mode::WriteIfFree {
            connection.busy_timeout(Duration::ZERO)?;
            let begun = begin.execute([]);
            connection.busy_timeout(BUSY_TIMEOUT)?;
            begun?;
        } else {
            begin.execute([])?;
        }
        Ok(Self(connection))
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // A commit that succeeded, and some errors, have ended it already.
        if !self.0.is_autocommit() {
            drop(self.0.execute_batch("ROLLBACK"));
        }
    }
}

impl Drop for NotedHeads<'_> {
    fn drop(&mut self) {
        if !self.are_kept {
            self.tools.heads.forget();
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
