//! A process that dies while it migrates a database to a newer format leaves the database unchanged.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use nix::sys::signal::Signal;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::postgres::{Schema, ask, execute};

fn old(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/formats").join(file)
}

fn verify(home: &Path, database: &str, faults: Option<&str>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .args(["runs", "verify", "--db", database])
        .current_dir(home)
        .env_clear()
        .envs(faults.map(|it| ("GRAPHRUN_FAIL", it)))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Kills a process in the migration, checks the database, and lets another process migrate it.
fn survives(home: &Path, database: &str, format: impl Fn() -> String) {
    for _ in 0..2 {
        let died = verify(home, database, Some("migrate.in_tx=abort"));
        assert_eq!(died.status.signal(), Some(Signal::SIGKILL as i32), "{died:?}");
        assert_eq!(format(), "2 3", "format and rows that format 3 does not have");
    }
    let refused = verify(home, database, Some("migrate.in_tx=err"));
    assert_eq!((refused.status.code(), format().as_str()), (Some(5), "2 3"), "{refused:?}");
    let done = verify(home, database, None);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout).matches("intact").count(), 4);
}

#[test]
fn a_killed_format_migration_leaves_the_old_file() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("runs.db");
    fs::copy(old("format-2.db"), &path).unwrap();
    survives(home.path(), "sqlite:runs.db", || {
        // Reading must not clean up the files that the next process gets.
        let copies = TempDir::new().unwrap();
        for file in ["runs.db", "runs.db-wal"] {
            if home.path().join(file).exists() {
                fs::copy(home.path().join(file), copies.path().join(file)).unwrap();
            }
        }
        let raw = Connection::open(copies.path().join("runs.db")).unwrap();
        let sql = "SELECT user_version || ' ' || (SELECT count(*) FROM finished)
                   FROM pragma_user_version";
        raw.query_row(sql, [], |row| row.get(0)).unwrap()
    });
}

#[test]
fn a_killed_format_migration_leaves_the_old_tables() {
    let (home, schema) = (TempDir::new().unwrap(), Schema::new());
    let name = &schema.name;
    let tables = fs::read_to_string(old("format-2.sql")).unwrap();
    execute(format!("CREATE SCHEMA {name}; SET search_path = {name}; {tables}"));
    survives(home.path(), &schema.url(), || {
        ask(format!(
            "SELECT version || ' ' || (SELECT count(*) FROM {name}.finished)
             FROM {name}.graphrun_format"
        ))
    });
}
