//! G5: the power fails while a database is written, and no acknowledged step is lost.
//!
//! The simulated disk writes sectors of 512 bytes atomically and in any order. Sectors without a completed
//! sync may be missing, and a file may have its old or its new length. The test takes the files before and
//! after each transaction and each checkpoint, and derives the files that a power cut in between may leave:
//! every prefix of the written sectors, and any choice of them. Two faults are not simulated: a disk that
//! reports a sync too early, and a disk that damages unwritten sectors.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use graphrun::{
    checkpoint::{
        EntryHash, JournalEntry, LeaseRequest, Presence, RunHistory as _, RunJournal as _,
        RunLeases as _, RunList as _,
    },
    engine::{Engine, ShutdownHandle},
    event::EventSink,
    id::RunId,
    state::Update,
    storage::SqliteStorage,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::durability::{
    child::{RUN, info},
    shapes,
};

const SECTOR: usize = 512;

/// The runs that are written: one with sequential steps, and one with parallel tasks.
const SHAPES: [&str; 2] = ["rounds", "joined"];

/// The default of the minimum number of images.
const IMAGES: usize = 2_000;

/// The log is copied into the database after this many entries.
const CHECKPOINT_EVERY: usize = 4;

/// Every so many images, the run is not only read, but also resumed.
const GO_ON_EVERY: usize = 16;

/// The files of a database.
#[derive(Clone, Default, PartialEq)]
struct Files {
    database: Vec<u8>,
    log: Vec<u8>,
}

/// The files before and after a write, and the number of entries acknowledged before it.
struct Write {
    before: Files,
    after: Files,
    acknowledged: usize,
}

#[tokio::test]
async fn no_acknowledged_step_is_lost_to_a_power_cut() {
    let wanted = env::var("GRAPHRUN_IMAGES").map_or(IMAGES, |it| it.parse().unwrap());
    for shape in SHAPES {
        cut(shape, wanted.div_ceil(SHAPES.len())).await;
    }
}

/// Cuts the power while the run of a shape is written, and checks this many of the possible images.
async fn cut(shape: &str, wanted: usize) {
    let folder = folder();
    let (journal, writes) = record(folder.path(), shape).await;
    let hashes: Vec<EntryHash> = journal.iter().map(|it| it.hash).collect();
    let mut random = StdRng::seed_from_u64(5);
    let mut images = 0;
    for write in &writes {
        let mut tried = write.prefixes();
        let choices = wanted.div_ceil(writes.len()).saturating_sub(tried.len()).max(20);
        tried.extend((0..choices).map(|_| write.choice(&mut random)));
        for image in tried {
            images += 1;
            let goes_on = images % GO_ON_EVERY == 0;
            let found = image.entries(folder.path(), goes_on.then_some(shape)).await;
            let found = found.unwrap_or_else(|error| panic!("image {images}: {error}"));
            assert!(
                found.len() >= write.acknowledged && hashes.starts_with(&found),
                "image {images}: {} entries were acknowledged, and these are left: {found:?}",
                write.acknowledged
            );
        }
    }
    println!("{shape}: {images} images of {} writes", writes.len());
    assert!(images >= wanted);
}

/// Tests the test: it detects the loss in a database that syncs less often.
#[tokio::test]
async fn a_missing_sync_is_detected() {
    let folder = folder();
    let (_, writes) = record(folder.path(), SHAPES[0]).await;
    let mut lost = 0;
    for write in &writes {
        // The log at the last sync of the database.
        let image = Files { log: Vec::new(), ..write.before.clone() };
        let found = image.entries(folder.path(), None).await.unwrap_or_default();
        lost += usize::from(found.len() < write.acknowledged);
    }
    assert!(lost > writes.len() / 2, "{lost} of {}", writes.len());
}

/// Writes a run entry by entry, and keeps the files around each write.
async fn record(folder: &Path, shape: &str) -> (Vec<JournalEntry>, Vec<Write>) {
    let journal = run(folder, shape).await;
    let path = folder.join("recorded.db");
    let storage = SqliteStorage::open(&path).unwrap();
    let presence = Presence::new();
    let request = LeaseRequest {
        owner: presence.owner().clone(),
        ttl: Duration::from_secs(60),
        replaces_fence: None,
    };
    let mut writes = Vec::new();
    let mut token = None;
    let mut before = Files::read(&path);
    for (acknowledged, logged) in journal.iter().enumerate() {
        match &token {
            None => {
                token = Some(storage.create(&info(shape), &request, &logged.entry).await.unwrap());
            }
            Some(token) => storage.append(token, &logged.entry).await.unwrap(),
        }
        let after = Files::read(&path);
        assert!(before.database == after.database, "SQLite copies the log only on request");
        writes.push(Write { before, after: after.clone(), acknowledged });
        before = after;
        if acknowledged % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
            let other = Connection::open(&path).unwrap();
            other.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(())).unwrap();
            drop(other);
            let after = Files::read(&path);
            assert!(before.log == after.log, "a log is begun anew only by the next write");
            let acknowledged = acknowledged + 1;
            writes.push(Write { before, after: after.clone(), acknowledged });
            before = after;
        }
    }
    let written = storage.journal(&RunId::parse(RUN).unwrap()).await.unwrap();
    (written, writes)
}

/// Returns the journal of a run.
async fn run(folder: &Path, shape: &str) -> Vec<JournalEntry> {
    let storage = Arc::new(SqliteStorage::open(folder.join("original.db")).unwrap());
    let graph = shapes::graph(shape, &folder.join("ledger"), Duration::ZERO);
    let engine = Engine::new(graph).with_storage(storage.clone());
    let events = EventSink::default();
    let stop = ShutdownHandle::default();
    engine
        .run(Update::default())
        .with_info(info(shape))
        .with_events(events)
        .with_shutdown(&stop)
        .await
        .unwrap();
    storage.journal(&RunId::parse(RUN).unwrap()).await.unwrap()
}

impl Write {
    /// Returns the files with only the first sectors written, for every number of them.
    fn prefixes(&self) -> Vec<Files> {
        let changed = self.changed();
        let prefix = |count: &usize| self.image(&changed[..*count]);
        (0..=changed.len()).collect::<Vec<_>>().iter().map(prefix).collect()
    }

    /// Returns the files with a random choice of sectors written.
    fn choice(&self, random: &mut StdRng) -> Files {
        let density = random.random_range(0.0..1.0);
        let mut chosen = self.changed();
        chosen.retain(|_| random.random_bool(density));
        let mut image = self.image(&chosen);
        if random.random_bool(0.5) && image.log.len() < self.after.log.len() {
            // The file has its new length already, but no content.
            image.log.resize(self.after.log.len(), 0);
        }
        image
    }

    /// Returns the changed sectors of the written file.
    fn changed(&self) -> Vec<usize> {
        let (before, after) = self.written();
        let is_new = |at: &usize| sector(before, *at) != sector(after, *at);
        (0..after.len().div_ceil(SECTOR)).filter(is_new).collect()
    }

    fn written(&self) -> (&[u8], &[u8]) {
        if self.writes_database() {
            (&self.before.database, &self.after.database)
        } else {
            (&self.before.log, &self.after.log)
        }
    }

    /// Returns whether the log was copied into the database; the log does not change meanwhile.
    fn writes_database(&self) -> bool {
        self.before.database != self.after.database
    }

    fn image(&self, sectors: &[usize]) -> Files {
        let (before, after) = self.written();
        let mut made = before.to_vec();
        for at in sectors.iter().map(|it| it * SECTOR) {
            let end = (at + SECTOR).min(after.len());
            if made.len() < end {
                made.resize(end, 0);
            }
            made[at..end].copy_from_slice(&after[at..end]);
        }
        if self.writes_database() {
            Files { database: made, log: self.before.log.clone() }
        } else {
            Files { database: self.before.database.clone(), log: made }
        }
    }
}

fn sector(bytes: &[u8], at: usize) -> &[u8] {
    let start = (at * SECTOR).min(bytes.len());
    &bytes[start..(start + SECTOR).min(bytes.len())]
}

impl Files {
    fn read(path: &Path) -> Self {
        let log = fs::read(log_of(path)).unwrap_or_default();
        Self { database: fs::read(path).unwrap(), log }
    }

    /// Opens these files again and returns the hashes of the run's entries.
    ///
    /// With a shape, the run is also resumed to its end.
    async fn entries(&self, folder: &Path, shape: Option<&str>) -> Result<Vec<EntryHash>, String> {
        // A separate folder: the resumed run of the previous image may not have released its files yet.
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = folder.path().join("image.db");
        fs::write(&path, &self.database).unwrap();
        fs::write(log_of(&path), &self.log).unwrap();
        let told = |error| format!("{error:?}");
        let storage = SqliteStorage::open_existing(&path).map_err(told)?;
        storage.verify().await.map_err(told)?;
        let run = RunId::parse(RUN).unwrap();
        if storage.list().await.map_err(told)?.is_empty() {
            return Ok(Vec::new());
        }
        storage.load(&run).await.map_err(told)?;
        let journal = storage.journal(&run).await.map_err(told)?;
        if let Some(shape) = shape {
            go_on(folder.path(), shape, storage).await?;
        }
        Ok(journal.iter().map(|it| it.hash).collect())
    }
}

/// Resumes the run to its end.
async fn go_on(folder: &Path, shape: &str, storage: SqliteStorage) -> Result<(), String> {
    let run = RunId::parse(RUN).unwrap();
    // The owner that wrote it died in the power cut.
    let raw = storage.find(RUN).await.map_err(|it| format!("{it:?}"))?.lease;
    let presence = Presence::new();
    let owner = presence.owner().clone();
    let ttl = Duration::ZERO;
    if let Some(lease) = raw {
        let request = LeaseRequest { owner, ttl, replaces_fence: Some(lease.fence) };
        let token = storage.acquire(&run, &request).await.map_err(|it| format!("{it:?}"))?;
        storage.release(&token).await.map_err(|it| format!("{it:?}"))?;
    }
    let graph = shapes::graph(shape, &folder.join("ledger"), Duration::ZERO);
    let engine = Engine::new(graph).with_storage(Arc::new(storage));
    let events = EventSink::default();
    let stop = ShutdownHandle::default();
    match engine
        .resume(&run)
        .with_answers(std::collections::BTreeMap::new())
        .with_events(events)
        .with_shutdown(&stop)
        .await
    {
        Ok(_) | Err(graphrun::engine::RunError::AlreadyEnded(_)) => Ok(()),
        Err(error) => Err(format!("{error:?}")),
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Returns a folder in memory if possible: this test does not depend on a real disk.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}
