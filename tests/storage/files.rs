//! Files at the path of a database, and their handling.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Barrier},
    thread,
};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, Entry, Outcome, RunHistory as _, RunJournal as _},
    id::Step,
    state::Update,
    storage::SqliteStorage,
};
use nix::unistd::{Uid, setfsuid};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::storage::sample::*;

type Open = fn(&Path) -> Result<SqliteStorage, CheckpointError>;

type Make = fn(&Path);

const OPEN: Open = |path| SqliteStorage::open(path);
const OPEN_EXISTING: Open = |path| SqliteStorage::open_existing(path);

/// Returns every file of a folder with its content.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap_or_default();
        (path, bytes)
    };
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(read).collect();
    found.sort();
    found
}

/// Returns why a file is refused; the attempt must not change the folder.
fn refusal(open: Open, make: Make) -> String {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    make(&path);
    let before = contents(folder.path());
    let error = open(&path).unwrap_err();
    assert!(matches!(error, CheckpointError::Unusable { .. }), "{error:?}");
    assert!(before == contents(folder.path()), "the attempt left traces: {error}");
    told(&error).replace(path.to_str().unwrap(), "runs.db")
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

/// Creates a database of another program, which died and left its log behind.
fn foreign(path: &Path) {
    let original = path.with_extension("original");
    let database = Connection::open(&original).unwrap();
    database.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE runs (id TEXT)").unwrap();
    fs::copy(&original, path).unwrap();
    fs::copy(original.with_extension("original-wal"), path.with_extension("db-wal")).unwrap();
}

/// Creates a database of ours with another number in its header.
fn marked(path: &Path, pragma: &str) {
    drop(SqliteStorage::open(path).unwrap());
    Connection::open(path).unwrap().execute_batch(pragma).unwrap();
}

#[test]
fn foreign_databases_are_refused_and_unchanged() {
    let cases: [(&str, Make); 8] = [
        ("a text", |path| write(path, &b"longer than the header of a database".repeat(9))),
        ("a short text", |path| write(path, b"x")),
        ("half a header", |path| write(path, b"SQLite format 3\0")),
        ("another program's", foreign),
        ("marked as another's", |path| marked(path, "PRAGMA application_id = 7")),
        ("newer", |path| marked(path, "PRAGMA user_version = 2")),
        ("without a format", |path| marked(path, "PRAGMA user_version = 0")),
        ("a folder", |path| fs::create_dir(path).unwrap()),
    ];
    let mut shown = Vec::new();
    for (what, make) in cases {
        let [reason, again] = [OPEN, OPEN_EXISTING].map(|open| refusal(open, make));
        assert_eq!(reason, again, "{what}");
        shown.push(format!("{what}: {reason}"));
    }
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn looking_for_runs_makes_no_database() {
    insta::assert_snapshot!(refusal(OPEN_EXISTING, |_| ()), @"runs.db cannot be used: there is no \
        such file; give the path of an existing database");
    insta::assert_snapshot!(refusal(OPEN_EXISTING, |path| write(path, b"")), @"runs.db cannot be \
        used: the file is empty; restore a backup, or remove it and start a new run");
}

#[test]
fn an_empty_file_is_refused_and_never_made_a_database() {
    for open in [OPEN, OPEN_EXISTING] {
        let reason = refusal(open, |path| write(path, b""));
        assert!(reason.contains("the file is empty; restore a backup"), "{reason}");
    }
}

#[test]
fn a_database_with_a_second_name_is_refused() {
    let link = |path: &Path| {
        drop(SqliteStorage::open(path).unwrap());
        fs::hard_link(path, path.with_extension("link")).unwrap();
    };
    for open in [OPEN, OPEN_EXISTING] {
        let reason = refusal(open, link);
        assert!(reason.contains("several names (hard links)"), "{reason}");
    }
}

#[test]
fn the_draft_of_a_dead_process_is_no_second_name() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    drop(SqliteStorage::open(&path).unwrap());
    let draft = folder.path().join(".runs.db.graphrun-new-0123456789abcdef");
    fs::hard_link(&path, &draft).unwrap();
    drop(SqliteStorage::open_existing(&path).unwrap());
    assert!(!draft.exists());
}

/// Ways to change the file of a database while a run is written to it.
const TAKEN: [(&str, Make, &str); 5] = [
    (
        "its log removed",
        |path| fs::remove_file(path.with_extension("db-wal")).unwrap(),
        "it was removed or moved away",
    ),
    (
        "the index of its log removed",
        |path| fs::remove_file(path.with_extension("db-shm")).unwrap(),
        "it was removed or moved away",
    ),
    ("removed", |path| fs::remove_file(path).unwrap(), "it was removed or moved away"),
    (
        "moved",
        |path| fs::rename(path, path.with_extension("old")).unwrap(),
        "it was removed or moved away",
    ),
    (
        "replaced",
        |path| {
            fs::copy(path, path.with_extension("copy")).unwrap();
            fs::rename(path.with_extension("copy"), path).unwrap();
        },
        "another file replaced it",
    ),
];

#[tokio::test]
async fn a_step_that_is_written_to_a_file_that_is_gone_is_not_saved() {
    for (what, take, says) in TAKEN {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let storage: Arc<dyn Checkpointer> = Arc::new(SqliteStorage::open(&path).unwrap());
        let token = create(&storage, "R1").await;
        storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
        take(&path);
        let error = storage.append(&token, &commit(2, vec![]).into()).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Unusable { .. }), "{what}: {error:?}");
        assert!(told(&error).contains(says), "{what}: {}", told(&error));
    }
}

#[test]
fn a_database_that_this_user_may_not_write_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    drop(SqliteStorage::open(&path).unwrap());
    for (folder_mode, mode) in [(0o755, 0o444), (0o777, 0o444), (0o777, 0o000)] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(folder_mode)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let before = contents(folder.path());
        let path = path.clone();
        // This thread drops its file system privileges, even if root runs the test.
        let refused = thread::spawn(move || {
            setfsuid(Uid::from_raw(65534));
            [OPEN, OPEN_EXISTING].map(|open| told(&open(&path).unwrap_err()))
        });
        for text in refused.join().unwrap() {
            let (_, reason) = text.split_once("runs.db ").unwrap();
            assert_eq!(
                reason,
                "cannot be used: this user may not read and write it; change its permissions, or \
                 give another path"
            );
        }
        assert!(before == contents(folder.path()), "the attempt left traces");
    }
}

/// Makes the file of a database and its folder read-only.
fn take_write_permission(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o555)).unwrap();
}

/// Does something with a database as another user, on another thread.
fn as_another_user<T: Send + 'static>(
    path: &Path,
    work: impl AsyncFnOnce(SqliteStorage) -> T + Send + 'static,
) -> T {
    let path = path.to_owned();
    let thread = thread::spawn(move || {
        // This thread drops its file system privileges, even if root runs the test.
        setfsuid(Uid::from_raw(65534));
        let storage = SqliteStorage::find_to_read(&path).unwrap().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work(storage.on_the_same_thread()))
    });
    thread.join().unwrap()
}

/// With and without a log beside it: that of a process that writes has the last step.
#[tokio::test]
async fn a_database_that_this_user_may_not_write_can_be_read() {
    for has_log in [false, true] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs %3F?.db");
        let storage: Arc<dyn Checkpointer> = Arc::new(SqliteStorage::open(&path).unwrap());
        let token = create(&storage, "R1").await;
        storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
        let storage = Some(storage).filter(|_| has_log);
        take_write_permission(&path);
        for ending in ["-wal", "-shm"].into_iter().filter(|_| has_log) {
            let beside = format!("{}{ending}", path.display());
            fs::set_permissions(beside, fs::Permissions::from_mode(0o444)).unwrap();
        }
        let before = contents(folder.path());
        let error = as_another_user(&path, async move |storage| {
            let storage: &dyn Checkpointer = &storage;
            let found = storage.find("R1-name").await.unwrap();
            assert_eq!((found.info.id, found.step.0), (run("R1"), 1));
            assert_eq!(storage.load(&run("R1")).await.unwrap().position.step.0, 1);
            assert_eq!(storage.page(None, 9).await.unwrap().len(), 1);
            told(&storage.append(&token, &commit(2, vec![]).into()).await.unwrap_err())
        });
        let why = "cannot be used: this user may not read and write it; change its permissions";
        assert!(error.contains(why), "{error}");
        if !has_log {
            assert!(before == contents(folder.path()), "reading left traces");
        }
        drop(storage);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_folder_that_this_user_may_not_write_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let refused = thread::spawn(move || {
        setfsuid(Uid::from_raw(65534));
        told(&SqliteStorage::open(&path).unwrap_err())
    });
    let refused = refused.join().unwrap();
    let folder = folder.path().display();
    let why = format!("this user may not write in the folder `{folder}`; change its permissions");
    assert!(refused.contains(&why), "{refused}");
}

#[tokio::test]
async fn a_new_database_is_for_its_owner_only() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("deep").join("er").join("runs.db");
    let storage: Arc<dyn Checkpointer> = Arc::new(SqliteStorage::open(&path).unwrap());
    create(&storage, "R1").await;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for folder in [path.parent().unwrap(), path.parent().unwrap().parent().unwrap()] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    for file in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        assert_eq!(mode(&path.with_file_name(file)), 0o600, "{file}");
    }
}

#[test]
fn a_storage_that_works_on_the_same_thread_needs_no_other() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    let runtime = runtime.unwrap();
    let folder = TempDir::new().unwrap();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    // The only thread for blocking work is occupied.
    runtime.spawn_blocking(move || wait.recv());
    runtime.block_on(async {
        let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
        let storage = storage.on_the_same_thread();
        let first = entry(commit(0, vec![]), &events("R1", [1]));
        let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
        storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
        assert_eq!(storage.load(&run("R1")).await.unwrap().position.step, Step(1));
    });
    drop(end);
}

#[test]
fn names_that_sqlite_takes_for_something_else_are_files() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file:runs.db?mode=memory");
    drop(SqliteStorage::open(&path).unwrap());
    assert!(path.metadata().unwrap().len() > 0);
}

#[test]
fn of_many_that_make_the_database_at_once_all_get_to_use_it() {
    for _ in 0..10 {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    SqliteStorage::open(&path).unwrap();
                });
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_connections_write_their_runs_at_once() {
    const STEPS: u64 = 40;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let mut writers = tokio::task::JoinSet::new();
    for id in ["R1", "R2", "R3", "R4"] {
        let storage = SqliteStorage::open(&path).unwrap();
        writers.spawn(async move {
            let first = entry(commit(0, vec![]), &events(id, [1]));
            let token = storage.create(&info(id, id), &request(), &first).await.unwrap();
            for step in 1..=STEPS {
                storage.append(&token, &record(step, 0, finished()).into()).await.unwrap();
                let commit = commit(step, vec![appended("notes", &[id])]);
                storage.append(&token, &entry(commit, &events(id, [step + 1]))).await.unwrap();
                assert_eq!(storage.load(&run(id)).await.unwrap().position.step, Step(step));
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    let storage = SqliteStorage::open_existing(&path).unwrap();
    for id in ["R1", "R2", "R3", "R4"] {
        let saved = storage.load(&run(id)).await.unwrap();
        assert_eq!((saved.position.step, saved.last_seq), (Step(STEPS), STEPS + 1));
        assert_eq!(saved.values["notes"], json!(vec![id; 40]));
        assert_eq!(storage.records(&run(id)).await.unwrap().len(), 40);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_work_on_one_run_only_one_saves_a_step() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let [one, two] = [(); 2].map(|()| Arc::new(SqliteStorage::open(&path).unwrap()));
    let first = commit(0, vec![]).into();
    let token = one.create(&info("R1", "a"), &request(), &first).await.unwrap();
    for step in 1..=20 {
        let save = |storage: &Arc<SqliteStorage>| {
            let storage = Arc::clone(storage);
            let (token, entry) =
                (token.clone(), commit(step, vec![appended("notes", &["x"])]).into());
            tokio::spawn(async move { storage.append(&token, &entry).await })
        };
        let first = save(&one);
        let second = save(&two);
        let saved = [first.await.unwrap().is_ok(), second.await.unwrap().is_ok()];
        assert!(saved == [true, false] || saved == [false, true], "{saved:?}");
    }
    assert_eq!(one.load(&run("R1")).await.unwrap().values["notes"], json!(vec!["x"; 20]));
}

#[tokio::test]
async fn saved_entries_survive_an_abrupt_death() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let storage = SqliteStorage::open(&path).unwrap();
    let first = entry(commit(0, vec![]), &events("R1", [1]));
    let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
    for step in 1..=3 {
        storage.append(&token, &record(step, 0, finished()).into()).await.unwrap();
        // The files at this moment, while the database is still open.
        let copy = folder.path().join(format!("copy{step}.db"));
        fs::copy(&path, &copy).unwrap();
        fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
        let resumed = SqliteStorage::open_existing(&copy).unwrap();
        let saved = resumed.load(&run("R1")).await.unwrap();
        assert_eq!((saved.position.step, saved.records.len()), (Step(step - 1), 1));
        storage.append(&token, &commit(step, vec![]).into()).await.unwrap();
    }
}

/// Returns the bytes of a stored list, and the bytes that five steps write into the log when each
/// appends one item.
async fn bytes_of_five_steps(length: u64) -> (u64, u64) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let storage = SqliteStorage::open(&path).unwrap();
    // No two are alike, so that they hardly compress.
    let noise = |number: u64| format!("{:016x}", (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let list: Vec<String> = (0..length).map(noise).collect();
    let whole = commit(0, vec![set("messages", json!(list))]).into();
    let token = storage.create(&info("R1", "a"), &request(), &whole).await.unwrap();
    let raw = Connection::open(&path).unwrap();
    let first: u64 = raw.query_row("SELECT length(data) FROM journal", [], |it| it.get(0)).unwrap();
    assert!(first >= length * 7, "{first} bytes are too few to be noticed");
    raw.execute_batch("PRAGMA wal_checkpoint(truncate)").unwrap();
    for step in 1..=5 {
        let one = vec![appended("messages", &["one more"])];
        storage.append(&token, &commit(step, one).into()).await.unwrap();
    }
    // The first byte shows that nothing was compressed.
    let sql =
        "SELECT substr(data, 2), substr(changes, 2), length(meta) FROM journal WHERE number > 1";
    let mut rows = raw.prepare(sql).unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let rows: Vec<(Vec<u8>, Vec<u8>, usize)> = rows.collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 5);
    for (data, changes, meta) in rows {
        assert_eq!(str::from_utf8(&data).unwrap(), r#"[["one more"]]"#);
        assert_eq!(str::from_utf8(&changes).unwrap(), r#"[["messages",{"+":[[0,0,true]]}]]"#);
        assert!(meta < 1000, "{meta} bytes of meta");
    }
    let written = path.with_extension("db-wal").metadata().unwrap().len();
    let values = storage.load(&run("R1")).await.unwrap().values;
    assert_eq!(values["messages"].as_array().unwrap().len() as u64, length + 5);
    (first, written)
}

#[tokio::test]
async fn appending_to_a_long_list_writes_the_items_only() {
    let (_, short) = bytes_of_five_steps(0).await;
    let (list, long) = bytes_of_five_steps(10_000).await;
    // All five together write less than half of the list that they append to.
    assert!(long < short + list / 2, "{long} bytes with a list of {list}, {short} without");
}

#[tokio::test]
async fn items_appended_to_a_long_list_are_written_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let storage = SqliteStorage::open(&path).unwrap();
    let whole = commit(0, vec![set("messages", json!(vec!["x"; 1000]))]).into();
    let token = storage.create(&info("R1", "a"), &request(), &whole).await.unwrap();
    let update = Update::default().write(channel("messages"), "one more");
    let wrote = Outcome::Finished { update, transitions: vec![] };
    storage.append(&token, &record(1, 0, wrote.clone()).into()).await.unwrap();
    let one = vec![appended("messages", &["one more"])];
    storage.append(&token, &commit(1, one.clone()).into()).await.unwrap();
    let both = Entry { commit: Some(commit(2, one)), ..record(2, 0, wrote).into() };
    storage.append(&token, &both).await.unwrap();
    let data: Vec<Vec<u8>> = Connection::open(&path)
        .unwrap()
        .prepare("SELECT data FROM journal WHERE number > 1 ORDER BY number")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(data, [&br#"p["one more"]"#[..], b"p[]", br#"p["one more"]"#]);
    let values = storage.load(&run("R1")).await.unwrap().values;
    assert_eq!(values["messages"].as_array().unwrap().len(), 1002);
}
