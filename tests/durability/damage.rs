//! G8: files that another program has created or changed. graphrun refuses them, names the problem and a
//! remedy, and does not change them.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::durability::child::RUN;

/// A change of a file, the expected exit code and the expected message.
struct Case {
    name: &'static str,
    harm: fn(&Path),
    code: i32,
    says: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "it is empty",
        harm: |path| fs::write(path, "").unwrap(),
        code: 5,
        says: &["the file is empty", "restore a backup"],
    },
    Case {
        name: "it is a text",
        harm: |path| fs::write(path, "not a database\n".repeat(500)).unwrap(),
        code: 5,
        says: &["it is not a database", "give another path"],
    },
    Case {
        name: "only its first bytes are left",
        harm: |path| cut(path, 60),
        code: 5,
        says: &["it is not a database", "give another path"],
    },
    Case {
        name: "it is cut in the middle of a page",
        harm: |path| cut(path, fs::metadata(path).unwrap().len() / 2 + 100),
        code: 5,
        says: &["damaged", "restore a backup"],
    },
    Case {
        name: "its header is overwritten",
        harm: |path| overwrite(path, 0, &[0x5a; 16]),
        code: 5,
        says: &["it is not a database", "give another path"],
    },
    Case {
        name: "its pages are overwritten",
        harm: |path| overwrite(path, 200, &vec![0xff; fs::read(path).unwrap().len() - 200]),
        code: 5,
        says: &["damaged", "restore a backup"],
    },
    Case {
        name: "it is a database of another program",
        harm: |path| {
            fs::remove_file(path).unwrap();
            Connection::open(path).unwrap().execute_batch("CREATE TABLE letters (text)").unwrap();
        },
        code: 5,
        says: &["a database of another program", "give another path"],
    },
    Case {
        name: "it is of a newer format",
        harm: |path| sql(path, "PRAGMA user_version = 99"),
        code: 5,
        says: &["it has format 99", "use the program that wrote it"],
    },
    Case {
        name: "an entry is changed",
        harm: |path| sql(path, "UPDATE journal SET meta = zeroblob(length(meta)) WHERE number = 2"),
        code: 6,
        says: &["entry 2 of run `run-1` is damaged"],
    },
    Case {
        name: "an entry is missing",
        harm: |path| sql(path, "DELETE FROM journal WHERE number = 2"),
        code: 6,
        says: &["entry 2 of run `run-1` is damaged"],
    },
    Case {
        name: "the status is changed",
        harm: |path| {
            sql(path, "UPDATE heads SET run_status = replace(run_status, 'paused', 'failed')");
        },
        code: 6,
        says: &["the status of run `run-1` is damaged"],
    },
    Case {
        name: "the end is missing",
        harm: |path| {
            sql(path, "DELETE FROM journal WHERE number = (SELECT max(number) FROM journal)");
        },
        code: 6,
        says: &["of run `run-1` is damaged"],
    },
];

#[test]
fn damaged_and_foreign_files_are_refused_and_unchanged() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("runs.db");
    let workflow = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/durability/shapes/asks.yaml");
    let (code, said) = program(home.path(), &["execute", workflow, "--run-id", RUN]);
    assert_eq!(code, 3, "{said}");
    // The program may have ended before it merged its log.
    sql(&path, "");
    let sound = fs::read(&path).unwrap();
    let mut wrong = Vec::new();
    for case in CASES {
        for rest in ["runs.db-wal", "runs.db-shm"] {
            drop(fs::remove_file(home.path().join(rest)));
        }
        fs::write(&path, &sound).unwrap();
        (case.harm)(&path);
        let harmed = fs::read(&path).unwrap();
        for arguments in [&["resume", RUN][..], &["runs", "show", RUN]] {
            let (code, said) = program(home.path(), arguments);
            let misses = case.says.iter().any(|it| !said.contains(it));
            if code != case.code || misses || !said.starts_with("error: ") {
                wrong.push(format!(
                    "{}, {arguments:?}: exit {code}, and not {}:\n{said}",
                    case.name, case.code
                ));
            }
            if fs::read(&path).unwrap() != harmed {
                wrong.push(format!("{}, {arguments:?}: the file was changed", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the exit code of the program and its stderr.
fn program(home: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .args(arguments)
        .args(["--db", "sqlite:runs.db", "--progress", "none"])
        .current_dir(home)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("no signal ended it"), said)
}

fn cut(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn overwrite(path: &Path, at: usize, with: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + with.len()].copy_from_slice(with);
    fs::write(path, bytes).unwrap();
}

/// Changes a database with SQL, and leaves no log behind.
fn sql(path: &Path, change: &str) {
    let raw = Connection::open(path).unwrap();
    raw.execute_batch(change).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}
