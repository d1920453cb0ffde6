//! Opens a database and refuses every file that is not ours.
//!
//! A refused file stays unchanged, byte for byte: its header is read before SQLite opens the file,
//! because SQLite checkpoints the log when the last process closes a database.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fmt::Write as _,
    fs::File,
    io::ErrorKind,
    ops::{Deref, DerefMut},
    os::unix::fs::FileExt,
    path::{self, Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use graphrun_engine::checkpoint::CheckpointError;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{
    create::{create, has_other_names},
    fault::Fault,
    held_file::HeldFile,
    identity::Identity,
    migrate::{MIGRATIONS, migrate},
    no_access::{inaccessible, not_writable, out_of_descriptors, unusable, unwritable},
};
use crate::migrations::Migrations;

/// How long a transaction waits for those of other processes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between attempts at operations for which SQLite does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The bytes of a page. A step writes three pages to the log, so small ones make it cheaper.
const PAGE_SIZE: u32 = 4096;

/// The endings of the files from which SQLite recovers a database.
const LOGS: [&str; 2] = ["-wal", "-journal"];

/// The bytes of the parts in which the index of a log grows: <https://sqlite.org/walformat.html#the_wal_index_file_format>.
const INDEX_PART: u64 = 32_768;

/// The length of the header of a SQLite file:
/// <https://sqlite.org/fileformat.html#the_database_header>.
const HEADER_LENGTH: usize = 100;

/// A kind of database: what its files hold.
#[derive(Clone, Copy, Debug)]
pub struct FileKind {
    /// Marks the file in its header.
    pub application_id: [u8; 4],
    /// The statements that create the tables.
    pub schema: &'static str,
    /// What to do in place of using an empty file.
    pub anew: &'static str,
    /// The steps from older formats.
    migrations: Migrations,
}

/// A connection to the file of a database.
#[derive(Debug)]
pub struct FileConnection {
    // Closed before the file.
    connection: Connection,
    _file: HeldFile,
    identity: Identity,
    anew: &'static str,
}

/// Databases of runs.
pub(super) const RUNS: FileKind = FileKind {
    application_id: *b"grun",
    schema: concat!(include_str!("schema.sql"), include_str!("results.sql")),
    anew: "start a new run",
    migrations: MIGRATIONS,
};

impl FileKind {
    /// A kind in its first format.
    pub const fn new(application_id: [u8; 4], schema: &'static str, anew: &'static str) -> Self {
        Self { application_id, schema, anew, migrations: Migrations(&[]) }
    }

    /// Opens a database and creates it if it is missing, whole or not at all. Only its owner can read the file.
    /// `announce` gets a new file before it gets its name.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`], and leaves the file unchanged, when something else is at that path.
    pub fn open(
        self,
        path: &Path,
        announce: impl FnOnce(&File),
    ) -> Result<FileConnection, CheckpointError> {
        if path.symlink_metadata().is_err() {
            check_beside(path)?;
            create(path, |it| self.create_tables(it), announce)
                .map_err(|fault| uncreated(path, fault))?;
        }
        self.open_existing(path)
    }

    /// Opens an existing database. An empty file counts as missing: it may be the remains of a
    /// database, and an empty database in its place would hide the loss.
    ///
    /// # Errors
    ///
    /// Same as [`FileKind::open`], and when there is no file.
    pub fn open_existing(self, path: &Path) -> Result<FileConnection, CheckpointError> {
        let file = check_header(path, self)?;
        let connection = make_ready(path, connect(path)?, self)?;
        Ok(self.connection(path, connection, file))
    }

    /// Opens a database to look at it; returns none if there is none. A log without its database is an error: the
    /// database may have been moved away, and it is not empty.
    ///
    /// # Errors
    ///
    /// Same as [`FileKind::open_existing`].
    pub fn find(self, path: &Path) -> Result<Option<FileConnection>, CheckpointError> {
        // An inaccessible path may hold a database: opening it reports the cause.
        if matches!(path.try_exists(), Ok(false)) {
            return check_beside(path).map(|()| None);
        }
        self.open_existing(path).map(Some)
    }

    /// Opens a database to read it, as [`FileKind::find`] does, also one that this user may not write, and on a full disk. The
    /// connection then refuses to write, and nothing is created beside the database.
    ///
    /// # Errors
    ///
    /// Same as [`FileKind::open_existing`], and for an older format that this user may not update.
    pub fn find_to_read(self, path: &Path) -> Result<Option<FileConnection>, CheckpointError> {
        let error = match self.find(path) {
            Err(error) => error,
            found => return found,
        };
        if unwritable(path).is_some() {
            return self.open_to_read(path).map(Some);
        }
        match error {
            // There may be no room for the files that a writer needs beside the database.
            CheckpointError::Full { .. } | CheckpointError::Storage { .. } => {
                self.open_to_read(path).map(Some).map_err(|_| error)
            }
            error => Err(error),
        }
    }

    fn open_to_read(self, path: &Path) -> Result<FileConnection, CheckpointError> {
        let file = check_header(path, self)?;
        let connection = connect_to_read(path)?;
        let found = marks(&connection).map_err(|error| unopened(path, error.into()))?;
        if !check_marks(path, found, self)?.is_empty() {
            let reason = "it has an older format, and this user may not update it; copy it, and open the copy";
            return Err(unusable(path, reason));
        }
        configure(&connection).map_err(|error| unopened(path, error.into()))?;
        self.require_tables(path, &connection)?;
        Ok(self.connection(path, connection, file))
    }

    fn connection(self, path: &Path, connection: Connection, file: HeldFile) -> FileConnection {
        let identity = Identity::of(path);
        FileConnection { connection, _file: file, identity, anew: self.anew }
    }

    /// Fails if the database lacks a table or a column.
    fn require_tables(self, path: &Path, connection: &Connection) -> Result<(), CheckpointError> {
        let lacking = self.lacking(connection).map_err(|error| unopened(path, error.into()))?;
        let Some(part) = lacking else { return Ok(()) };
        let anew = self.anew;
        let reason = format!(
            "it has no {part}, so another build of this program wrote it; use that build, or move the file away \
             and {anew}"
        );
        Err(unusable(path, &reason))
    }

    /// Creates the tables.
    ///
    /// This happens before the write-ahead log is turned on, so that the marks are in the file itself.
    fn create_tables(self, connection: &mut Connection) -> Result<(), Fault> {
        // Both settings only have an effect on an empty database.
        connection.pragma_update(None, "page_size", PAGE_SIZE)?;
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(self.schema)?;
        transaction.pragma_update(None, "application_id", self.mark())?;
        transaction.pragma_update(None, "user_version", self.migrations.format())?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns a part of the schema that a database does not have. Builds between two releases can differ within one format, and
    /// a run that starts in such a database could not be resumed.
    fn lacking(self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let new = Connection::open_in_memory()?;
        new.execute_batch(self.schema)?;
        let (needed, found) = (columns(&new)?, columns(connection)?);
        Ok(needed.difference(&found).next().map(|(table, column)| {
            let has_table = found.iter().any(|it| it.0 == *table);
            if has_table {
                format!("column `{table}.{column}`")
            } else {
                format!("table `{table}`")
            }
        }))
    }

    fn mark(self) -> u32 {
        u32::from_be_bytes(self.application_id)
    }
}

impl FileConnection {
    /// Fails if a file of the database is no longer at its path: then other processes do not see what this one writes.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`].
    pub fn check_files(&self) -> Result<(), CheckpointError> {
        self.identity.check(self.anew).inspect_err(|_| self.keep_log())
    }

    /// Leaves the log as it is when the connection is closed: it must not get into another file, nor take the log of another
    /// file away. The next process that opens the database reads the log.
    pub(super) fn keep_log(&self) {
        let no_tidying = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        drop(self.connection.set_db_config(no_tidying, true));
    }
}

impl Deref for FileConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for FileConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Returns the error of a transaction on the database at `path` that tried `action`.
pub fn explain(error: rusqlite::Error, path: &Path, action: String) -> CheckpointError {
    Fault::from(error).explain(path, action)
}

/// The two numbers in the header of a SQLite file that identify its program and format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    application_id: u32,
    version: u32,
}

const BLANK: Marks = Marks { application_id: 0, version: 0 };

/// Fails if there is a log without its database: SQLite would replay the log into the new database.
fn check_beside(path: &Path) -> Result<(), CheckpointError> {
    for ending in LOGS {
        let log = beside(path, ending);
        // Another process may have created the database and its log meanwhile.
        if log.symlink_metadata().is_ok() && path.symlink_metadata().is_err() {
            let reason = format!(
                "`{}` exists without it, and would corrupt a new database; put the database back \
                 beside it, or remove it",
                log.display()
            );
            return Err(unusable(path, &reason));
        }
    }
    Ok(())
}

/// Checks a file by its header, without SQLite, and returns the file.
///
/// The first transaction writes our marks into the header, before the write-ahead log is in use, so
/// that none of our databases looks foreign here. SQLite gets files without a SQLite header, and
/// does not change them either.
fn check_header(path: &Path, kind: FileKind) -> Result<HeldFile, CheckpointError> {
    let found = path.metadata().map_err(|error| inaccessible(path, &error))?.file_type();
    if !found.is_file() && !found.is_dir() {
        // Opening a pipe would block, and a device stores nothing.
        return Err(no_database(path));
    }
    if found.is_file() && has_other_names(path).map_err(|error| inaccessible(path, &error))? {
        let reason = "its file has several names (hard links), and each name would have a log of its own; remove the \
                      others, or copy the file";
        return Err(unusable(path, reason));
    }
    let file = HeldFile::open(path).map_err(|error| inaccessible(path, &error))?;
    let mut header = [0; HEADER_LENGTH];
    let length = file.read_at(&mut header, 0).map_err(|error| inaccessible(path, &error))?;
    if (1..HEADER_LENGTH).contains(&length) {
        // SQLite would treat a file this short as empty and overwrite it.
        return Err(no_database(path));
    }
    if header.starts_with(b"SQLite format 3\0") {
        let number = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("a range of four has four");
            u32::from_be_bytes(bytes)
        };
        let found = Marks { application_id: number(68), version: number(60) };
        check_marks(path, found, kind)?;
    }
    Ok(file)
}

fn connect(path: &Path) -> Result<Connection, CheckpointError> {
    // Made absolute, since names such as `:memory:` have another meaning for SQLite.
    let absolute = path::absolute(path).map_err(|error| inaccessible(path, &error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(absolute, flags)
        .and_then(|it| it.busy_timeout(BUSY_TIMEOUT).map(|()| it))
        .map_err(|error| unopened(path, error.into()))?;
    if connection.is_readonly("main").map_err(|error| unopened(path, error.into()))? {
        return Err(not_writable(path));
    }
    Ok(connection)
}

/// Connects to a database that this user may not write.
///
/// SQLite reads a database with a log only if it can create the log. Without a log and its index there is no process that
/// writes, so the file is declared immutable then, and SQLite needs no other file. A process that writes may have an empty
/// log. On a full disk, an index without room for its first part is left of an attempt to open the database.
fn connect_to_read(path: &Path) -> Result<Connection, CheckpointError> {
    let absolute = path::absolute(path).map_err(|error| inaccessible(path, &error))?;
    let has = |ending, bytes| beside(path, ending).metadata().is_ok_and(|it| it.len() >= bytes);
    let is_in_use = LOGS.iter().any(|it| has(it, 1)) || has("-wal", 0) && has("-shm", INDEX_PART);
    let mut uri = "file:".to_owned();
    for &byte in absolute.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' => uri.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => uri.push(byte.into()),
            _ => write!(uri, "%{byte:02X}").expect("a text takes more text"),
        }
    }
    uri.push_str(if is_in_use { "?mode=ro" } else { "?mode=ro&immutable=1" });
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
        .and_then(|it| it.busy_timeout(BUSY_TIMEOUT).map(|()| it))
        .map_err(|error| unopened(path, error.into()))
}

/// Returns the path of a file beside a database.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Checks that a database is ours, configures it for durable commits, and migrates it to our
/// format.
fn make_ready(
    path: &Path,
    mut connection: Connection,
    kind: FileKind,
) -> Result<Connection, CheckpointError> {
    let found = marks(&connection).map_err(|error| unopened(path, error.into()))?;
    let missing = check_marks(path, found, kind)?;
    configure(&connection).map_err(|error| unopened(path, error.into()))?;
    let journal = turn_on_log(&connection).map_err(|error| unopened(path, error.into()))?;
    if journal != "wal" {
        let reason = "its file system does not take a write-ahead log; use one on a local disk";
        return Err(unusable(path, reason));
    }
    if !missing.is_empty() {
        migrate(&mut connection, kind.migrations).map_err(|fault| unopened(path, fault))?;
    }
    kind.require_tables(path, &connection)?;
    Ok(connection)
}

/// Returns the columns of all tables, each with its table.
fn columns(connection: &Connection) -> rusqlite::Result<BTreeSet<(String, String)>> {
    let sql = "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
               WHERE t.type = 'table'";
    let mut query = connection.prepare(sql)?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Turns the write-ahead log on and returns the resulting mode.
///
/// The switch needs exclusive access to the file, and SQLite does not wait for that as it waits for
/// locks: if several processes opened a new database at once, one would fail.
fn turn_on_log(connection: &Connection) -> rusqlite::Result<String> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let mode =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0));
        match mode {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            mode => return mode,
        }
    }
}

/// With a write-ahead log, `synchronous=FULL` keeps committed steps through a power failure; the
/// other settings make SQLite distrust the file.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)
}

fn marks(connection: &Connection) -> rusqlite::Result<Marks> {
    let number = |name: &str| {
        // Both are signed in SQLite and only compared here.
        connection.pragma_query_value(None, name, |row| row.get(0)).map(i32::cast_unsigned)
    };
    Ok(Marks { application_id: number("application_id")?, version: number("user_version")? })
}

/// Returns the migrations that a database with these marks lacks.
fn check_marks(
    path: &Path,
    found: Marks,
    kind: FileKind,
) -> Result<&'static [&'static str], CheckpointError> {
    if found == BLANK && path.metadata().is_ok_and(|it| it.len() == 0) {
        let anew = kind.anew;
        let reason = format!("the file is empty; restore a backup, or remove it and {anew}");
        return Err(unusable(path, &reason));
    }
    if found.application_id != kind.mark() {
        return Err(unusable(path, "it is a database of another program; give another path"));
    }
    kind.migrations.missing(found.version).map_err(|reason| unusable(path, &reason))
}

/// Returns the error for a database that cannot be created.
fn uncreated(path: &Path, fault: Fault) -> CheckpointError {
    match fault {
        Fault::File(error) if error.kind() == ErrorKind::NotFound => {
            unusable(path, "its folder cannot be made; give another path")
        }
        Fault::File(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            not_writable(path)
        }
        Fault::File(error) => inaccessible(path, &error),
        fault => unopened(path, fault),
    }
}

/// Returns the error for a database that SQLite does not open.
fn unopened(path: &Path, fault: Fault) -> CheckpointError {
    match fault {
        Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            no_database(path)
        }
        Fault::Sqlite(error)
            if matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly)
            ) =>
        {
            // SQLite gives no cause; a process without free descriptors cannot open any file.
            match out_of_descriptors() {
                Some(cause) => inaccessible(path, &cause),
                None => not_writable(path),
            }
        }
        Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::OutOfMemory) => {
            inaccessible(path, &ErrorKind::OutOfMemory.into())
        }
        fault => fault.explain(path, format!("open {}", path.display())),
    }
}

fn no_database(path: &Path) -> CheckpointError {
    unusable(path, "it is not a database; give another path")
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use graphrun_engine::checkpoint::FORMAT_VERSION;

    use super::*;

    #[test]
    fn a_new_file_has_the_newest_format_of_its_kind() {
        // The tables of a new file need no migration.
        const FAILS: &str = "INSERT INTO missing VALUES (1)";
        let folder = tempfile::tempdir().unwrap();
        let kind = FileKind { migrations: Migrations(&[FAILS, FAILS]), ..RUNS };
        let database = kind.open(&folder.path().join("other.db"), |_| ()).unwrap();
        assert_eq!(marks(&database).unwrap().version, 3);
        assert_eq!(RUNS.migrations.format(), FORMAT_VERSION);
    }

    #[test]
    fn a_reader_sees_what_is_written_after_an_empty_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let database = RUNS.open(&path, |_| ()).unwrap();
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert_eq!(beside(&path, "-wal").metadata().unwrap().len(), 0);
        let reader = connect_to_read(&path).unwrap();
        let own = "INSERT INTO runs VALUES (1, 'R1', 'calm-otter', x'', x'')";
        database.execute_batch(own).unwrap();
        let count = "SELECT count(*) FROM runs";
        assert_eq!(reader.query_row(count, [], |it| it.get::<_, i64>(0)).unwrap(), 1);

        // The last connection removes the log, if it may write.
        drop(reader);
        drop(database);
        for ending in LOGS.into_iter().chain(["-shm"]) {
            assert!(!beside(&path, ending).exists(), "{ending} is still there");
        }
        let reader = connect_to_read(&path).unwrap();
        assert_eq!(reader.query_row(count, [], |it| it.get::<_, i64>(0)).unwrap(), 1);
        assert!(!beside(&path, "-shm").exists(), "a reader creates no files");
    }

    #[test]
    fn a_database_without_a_part_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let tables = ["runs", "heads", "journal", "kept_values", "inbox", "results"];
        let dropped =
            tables.map(|it| (format!("DROP TABLE {it}"), format!("it has no table `{it}`")));
        let renamed = "ALTER TABLE heads RENAME COLUMN step TO steps".to_owned();
        let renamed = (renamed, "it has no column `heads.step`".to_owned());
        for (change, expected) in dropped.into_iter().chain([renamed]) {
            let database = RUNS.open(&path, |_| ()).unwrap();
            database.execute_batch(&format!("PRAGMA foreign_keys = OFF; {change}")).unwrap();
            drop(database);
            let reason = RUNS.open(&path, |_| ()).unwrap_err().to_string();
            assert!(reason.contains(&expected), "{reason}");
            assert!(reason.contains("move the file away and start a new run"), "{reason}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn an_older_format_is_migrated_once_and_as_a_whole() {
        const ADD: &str = "CREATE TABLE added (number INTEGER) STRICT";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let database = RUNS.open(&path, |_| ()).unwrap();
        let open_and_migrate =
            |steps| FileKind { migrations: Migrations(steps), ..RUNS }.open_existing(&path);
        let own = "INSERT INTO runs VALUES (1, 'R1', 'calm-otter', x'', x'');
            INSERT INTO heads VALUES (1, 0, 0, 0, 0, x'', '', x'', 1, '{}', 9000000000000, x'')";
        database.execute_batch(own).unwrap();
        let version = || marks(&Connection::open(&path).unwrap()).unwrap().version;
        let refused = |steps| {
            let error = open_and_migrate(steps).unwrap_err();
            assert_eq!(version(), FORMAT_VERSION);
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{error} {cause}")
        };
        let reason = refused(&[ADD]);
        assert!(reason.contains("it has format 1, and an older program owns run `R1`"), "{reason}");
        database.execute_batch("UPDATE heads SET owner = NULL").unwrap();
        let reason = refused(&[ADD, "INSERT INTO missing VALUES (1)"]);
        assert!(reason.contains("no such table: missing"), "{reason}");

        // A second migration would fail, because the table exists.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| open_and_migrate(&[ADD]).unwrap());
            }
        });
        assert_eq!(version(), 2);
        let reason = RUNS.open_existing(&path).unwrap_err().to_string();
        let says = "it has format 2, but this program supports formats up to 1; use the program";
        assert!(reason.contains(says), "{reason}");
    }
}
