//! Tests that need access to the connection.

use std::{
    error::Error as _, fs, os::unix::fs::FileExt as _, pin::Pin, sync::Arc, task::Poll,
    time::Duration,
};

use graphrun_core::{
    id::ChannelName,
    state::{Change, ChangeKind},
};
use graphrun_engine::{
    checkpoint::{Basis, Commit, Mapping, Migration, Position, Presence},
    storage::rules::Head,
};
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde_json::json;
use tempfile::TempDir;

use super::{held_file::HeldFile, *};
use crate::prove;

fn id() -> RunId {
    RunId::parse("R1").unwrap()
}

fn commit(step: u64, text: &str) -> Entry {
    let channel = ChannelName::parse("text").unwrap();
    let position = Position { step: Step(step), ..Position::default() };
    let changes = vec![Change { channel, kind: ChangeKind::Set(Arc::new(json!(text))) }];
    Commit { position, changes }.into()
}

async fn storage_with_a_run(folder: &TempDir) -> (SqliteStorage, LeaseToken) {
    let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
    let info = RunInfo {
        id: id(),
        name: "calm-otter".into(),
        created: "2025-06-01T12:00:00Z".into(),
        ..RunInfo::new("dev_team")
    };
    let owner = Presence::new().owner().clone();
    let request = LeaseRequest { owner, ttl: Duration::from_secs(60), replaces_fence: None };
    let token = storage.create(&info, &request, &commit(0, "first")).await.unwrap();
    (storage, token)
}

/// Returns a text that hardly compresses.
fn noise(length: usize) -> String {
    let mut hasher = blake3::Hasher::new().finalize_xof();
    let mut bytes = vec![0; length];
    hasher.fill(&mut bytes);
    bytes.into_iter().map(|it| char::from(b' ' + it % 64)).collect()
}

#[tokio::test]
async fn a_step_on_a_full_disk_is_saved_later_as_a_whole() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let limit_pages = |pages: u32| {
        storage.database.with_connection(|database| {
            database.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        });
    };
    limit_pages(20);
    let large = commit(1, &noise(200_000));
    let error = storage.append(&token, &large).await.unwrap_err();
    assert_eq!(error.to_string(), "could not save step 1 of run `R1`");
    assert_eq!(error.source().unwrap().to_string(), "database or disk is full");
    assert_eq!(storage.load(&id()).await.unwrap().position, Position::default());

    limit_pages(1_000_000);
    storage.append(&token, &large).await.unwrap();
    assert_eq!(storage.load(&id()).await.unwrap().position, large.commit.unwrap().position);
}

#[tokio::test]
async fn a_read_keeps_no_head_of_a_failed_write() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    storage.append(&token, &commit(1, "x")).await.unwrap();
    let fails = storage.database.with_connection(|database| {
        database.execute_batch(
            "CREATE TABLE parents (key INTEGER PRIMARY KEY);
             CREATE TABLE children (key REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER fails AFTER INSERT ON journal BEGIN INSERT INTO children VALUES (1); END",
        )
    });
    fails.unwrap();
    let error = storage.append(&token, &commit(2, "x")).await.unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "FOREIGN KEY constraint failed");
    storage.database.with_connection(|it| it.execute_batch("DROP TRIGGER fails")).unwrap();

    assert_eq!(storage.load(&id()).await.unwrap().position.step, Step(1));
    storage.append(&token, &commit(2, "x")).await.unwrap();
    assert_eq!(storage.load(&id()).await.unwrap().position.step, Step(2));
}

#[tokio::test]
async fn a_locked_database_is_a_named_error() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    storage.database.with_connection(|it| it.busy_timeout(Duration::ZERO).unwrap());
    let other = Connection::open(folder.path().join("runs.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = storage.append(&token, &commit(1, "x")).await.unwrap_err();
    assert_eq!(error.to_string(), "could not save step 1 of run `R1`");
    let cause = error.source().unwrap().to_string();
    assert!(cause.ends_with("runs.db; try again later, or end that process"), "{cause}");
    // Readers do not wait.
    assert_eq!(storage.load(&id()).await.unwrap().summary.step, Step(0));
    other.execute_batch("ROLLBACK").unwrap();
    storage.append(&token, &commit(1, "x")).await.unwrap();
}

#[test]
fn a_writer_that_never_ran_blocks_no_later_save() {
    let folder = TempDir::new().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime();
    let (storage, token) = first.block_on(storage_with_a_run(&folder));
    let entry = commit(1, "x");
    let ended = first.handle().clone();
    first.shutdown_background();
    {
        // A runtime that has ended drops the writer.
        let _context = ended.enter();
        let mut save = std::pin::pin!(storage.append(&token, &entry));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(!matches!(save.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
    }
    let save = async { tokio::time::timeout(LONG, storage.append(&token, &entry)).await };
    runtime().block_on(save).expect("a writer was started").unwrap();
}

/// Much longer than any save.
const LONG: Duration = Duration::from_secs(60);

/// A name that no other thread of this process has; the system keeps its first 15 bytes.
const WAITERS: &str = "lone-run-waiter";

/// Runs a future in a runtime, and returns its result and whether it started a thread for blocking work.
fn run_and_watch<T>(work: impl Future<Output = T>) -> (T, bool) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().thread_name(WAITERS).build().unwrap();
    let made = runtime.block_on(work);
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
    let is_waiter = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(entry.unwrap().path().join("comm"));
        name.is_ok_and(|it| it.trim() == WAITERS)
    };
    (made, threads.any(is_waiter))
}

/// Polls a future once.
async fn is_pending(mut work: Pin<&mut impl Future>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await
}

#[test]
fn a_lone_run_saves_on_its_thread_after_quick_writes() {
    let folder = TempDir::new().unwrap();
    let ((storage, token), has_waited) = run_and_watch(storage_with_a_run(&folder));
    assert!(has_waited, "the disk is not known yet");
    let assume_quick = || {
        (0..100).for_each(|_| storage.database.lone_run().note_duration(Duration::ZERO));
    };
    assume_quick();
    let (saved, has_waited) = run_and_watch(storage.append(&token, &commit(1, "x")));
    saved.unwrap();
    assert!(!has_waited);
    // Another connection writes, so this one has to wait.
    let other = Connection::open(folder.path().join("runs.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assume_quick();
    let ((), has_waited) = run_and_watch(async {
        let next = commit(2, "x");
        let mut saving = std::pin::pin!(storage.append(&token, &next));
        assert!(is_pending(saving.as_mut()).await);
        other.execute_batch("ROLLBACK").unwrap();
        saving.await.unwrap();
    });
    assert!(has_waited);
    // A refused entry is refused once, with its reason.
    assume_quick();
    let (refused, _) = run_and_watch(storage.append(&token, &commit(2, "x")));
    assert!(matches!(refused, Err(CheckpointError::Overtaken { .. })), "{refused:?}");
    let (saved, _) = run_and_watch(storage.load(&id()));
    assert_eq!(saved.unwrap().position.step, Step(2));
}

#[tokio::test]
async fn a_panic_in_a_transaction_leaves_no_trace() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let died: Result<(), _> = storage
        .write("try".to_owned(), |database, _| {
            database.execute_batch("DELETE FROM journal").unwrap();
            panic!("on purpose")
        })
        .await;
    assert_eq!(died.unwrap_err().to_string(), "could not finish a transaction");
    storage.append(&token, &commit(1, "x")).await.unwrap();
    assert_eq!(storage.load(&id()).await.unwrap().summary.step, Step(1));
}

#[tokio::test]
async fn a_connection_has_the_durable_settings() {
    let folder = TempDir::new().unwrap();
    drop(storage_with_a_run(&folder).await);
    let path = folder.path().join("runs.db");
    for storage in [SqliteStorage::open(&path), SqliteStorage::open_existing(&path)] {
        let pragma = |name: &str| -> String {
            let storage = storage.as_ref().unwrap();
            let text = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            storage
                .database
                .with_connection(|it| it.query_row(&text, [], |row| row.get(0)).unwrap())
        };
        assert_eq!(pragma("journal_mode"), "wal");
        assert_eq!(pragma("synchronous"), "2", "FULL");
        assert_eq!(pragma("foreign_keys"), "1");
        assert_eq!(pragma("trusted_schema"), "0");
        assert_eq!(pragma("cell_size_check"), "1");
        assert_eq!(pragma("application_id"), u32::from_be_bytes(*b"grun").to_string());
        assert_eq!(pragma("user_version"), "1");
        let timeout = |database: &Connection| {
            database.query_row("PRAGMA busy_timeout", [], |row| row.get::<_, u32>(0)).unwrap()
        };
        assert_eq!(storage.as_ref().unwrap().database.with_connection(timeout), 5000);
    }
}

/// Returns whether a process, also this one, has locked a part of a file.
fn is_locked(path: &Path) -> bool {
    // The lock of a descriptor would conflict with those of a process.
    let file = HeldFile::open(path).unwrap();
    let short = |it: i32| libc::c_short::try_from(it).unwrap();
    let (l_type, l_whence) = (short(libc::F_WRLCK), short(libc::SEEK_SET));
    let mut lock = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&*file, FcntlArg::F_OFD_GETLK(&mut lock)).unwrap();
    lock.l_type != short(libc::F_UNLCK)
}

#[test]
fn a_second_storage_keeps_the_locks_of_the_first_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let first = SqliteStorage::open(&path).unwrap();
    assert!(is_locked(&path));
    let second = SqliteStorage::open(&path).unwrap();
    assert!(is_locked(&path));
    drop(second);
    assert!(is_locked(&path));
    let other = FileKind::new(*b"else", "", "start anew");
    other.open_existing(&path).unwrap_err();
    assert!(is_locked(&path), "also after a refusal");
    drop(first);
    assert!(!is_locked(&path));
}

#[test]
fn a_file_that_is_being_made_can_be_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let made = HeldFile::create(&path).unwrap();
    made.write_at(b"made", 0).unwrap();
    let mut read = [0; 4];
    HeldFile::open(&path).unwrap().read_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"made");
}

#[tokio::test]
async fn nothing_is_written_to_a_file_that_was_moved_away() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    storage.append(&token, &commit(1, "x")).await.unwrap();
    let path = folder.path().join("runs.db");
    let moved = folder.path().join("moved.db");
    fs::rename(&path, &moved).unwrap();
    let message = Message::new(ChannelName::parse("text").unwrap(), json!("x"), None);
    let results = [
        storage.post(&id(), &message).await.map(drop),
        storage.renew(&token, Duration::from_secs(60)).await,
        storage.release(&token).await,
        storage.append(&token, &commit(2, "x")).await,
    ];
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("it was removed or moved away"), "{error}");
    }
    fs::rename(&moved, &path).unwrap();
    let error = storage.append(&token, &commit(2, "x")).await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("no longer writes"), "{error}");
    drop(storage);
    let storage = SqliteStorage::open_existing(&path).unwrap();
    assert_eq!(storage.load(&id()).await.unwrap().summary.step, Step(1));
    assert!(storage.inbox(&id(), 0).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_group_in_a_file_that_is_gone_is_saved_once() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let path = folder.path().join("runs.db");
    let entry = Entry::default();
    // The file is moved away during the transaction.
    let moved = std::iter::once_with(|| {
        fs::rename(&path, path.with_extension("moved")).unwrap();
        Write::Entry(&token, &entry)
    });
    storage.database.save_all(moved).unwrap_err();
    storage.database.save(Write::Entry(&token, &entry)).unwrap_err();
    assert_eq!(storage.load(&id()).await.unwrap().last_entry, 2);
}

#[tokio::test]
async fn a_refused_renewal_affects_no_other_write_of_its_group() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let until = async || storage.find("R1").await.unwrap().lease.unwrap().until;
    let before = until().await;
    let stale = LeaseToken { fence: token.fence + 1, ..token.clone() };
    let ttl = Duration::from_secs(3600);
    let entry = commit(1, "x");
    let writes =
        [Write::Renewal(&token, ttl), Write::Renewal(&stale, ttl), Write::Entry(&token, &entry)];
    let saved = storage.database.save_all(writes.into_iter()).unwrap();
    assert_eq!(saved.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(storage.load(&id()).await.unwrap().summary.step, Step(1));
    assert!(until().await > before);
}

#[tokio::test]
async fn closing_leaves_the_log_of_another_file_alone() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let log = folder.path().join("runs.db-wal");
    fs::rename(&log, log.with_extension("moved")).unwrap();
    fs::write(&log, "of another file").unwrap();
    storage.append(&token, &commit(1, "x")).await.unwrap_err();
    drop(storage);
    assert_eq!(fs::read(&log).unwrap(), b"of another file");
}

/// An attacker can compute checksums, but not the hashes that were noted elsewhere.
#[tokio::test]
async fn the_proof_covers_the_description_of_a_migrated_run() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let before = storage.find("calm-otter").await.unwrap().info;
    let to = Basis { workflow: "board".into(), ..before.basis() };
    let migration =
        Migration { from: before.basis(), to, mapping: Mapping::default(), records: Vec::new() };
    let entry = Entry { migration: Some(Box::new(migration)), ..commit(1, "x") };
    storage.append(&token, &entry).await.unwrap();
    prove(&storage, &id(), None).await.unwrap();

    let set_head = |updated: &str| {
        storage.database.with_connection(|database| {
            let (run, stored) = Run::find_with_head(database, &id()).unwrap();
            let head = Head { updated: updated.to_owned(), ..stored.head };
            run.put(database, &head, stored.before_open, stored.hash).unwrap();
        });
    };
    set_head("2030-01-01T00:00:00Z");
    let error = prove(&storage, &id(), None).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error:?}");
    set_head("");
    prove(&storage, &id(), None).await.unwrap();

    storage.database.with_connection(|database| {
        let run = Run::find(database, &id()).unwrap();
        let info = String::from_utf8(run.info(database).unwrap()).unwrap();
        let at = info.rfind(&before.created).unwrap();
        let changed = format!("{}2024{}", &info[..at], &info[at + 4..]);
        run.put_info(database, changed.as_bytes()).unwrap();
    });
    let error = prove(&storage, &id(), None).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn the_space_of_removed_runs_is_freed_in_bounded_steps() {
    let folder = TempDir::new().unwrap();
    let (storage, token) = storage_with_a_run(&folder).await;
    let text = noise(2_000_000);
    for step in 1..=5 {
        storage.append(&token, &commit(step, &text)).await.unwrap();
    }
    storage.release(&token).await.unwrap();
    storage.remove(&id()).await.unwrap();
    let left = storage.database.with_connection(database::free_pages).unwrap();
    assert!(left > 0, "other writers wait for one step");
    storage.compact().await.unwrap();
    let free = |database: &Connection| {
        database.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(storage.database.with_connection(free).unwrap(), 0);
    let length = fs::metadata(folder.path().join("runs.db")).unwrap().len();
    assert!(length < 200_000, "{length} bytes");
}
