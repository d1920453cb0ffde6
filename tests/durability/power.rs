//! G5: the power fails while a database is written, and no step that was acknowledged is lost.
//!
//! What is simulated: a disk writes sectors of 512 bytes whole, in any order, and those that nobody has waited for maybe
//! not at all; a file may be longer or shorter than it was to become. So from the files before and after each transaction
//! and each checkpoint come the files that a power cut between them may leave: every prefix of what was written, and any
//! choice of its sectors. What is not simulated: a disk that says a sync is done when it is not, and one that damages
//! sectors that nobody wrote.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use graphrun::{
    checkpoint::{Checkpointer, Claim, Link, Logged, Presence},
    engine::{Engine, Stop},
    event::EventSink,
    id::RunId,
    state::Update,
    storage::SqliteStorage,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{
    child::{RUN, info},
    shapes,
};

const SECTOR: usize = 512;

/// The runs that are written: steps one after the other, and tasks side by side.
const SHAPES: [&str; 2] = ["rounds", "joined"];

/// How many images are tried at least, where nobody says otherwise.
const IMAGES: usize = 2_000;

/// The log is copied into the database after so many entries.
const CHECKPOINT_EVERY: usize = 4;

/// One image in so many is not only read, but also gone on with.
const GO_ON_EVERY: usize = 16;

/// The files of a database.
#[derive(Clone, Default, PartialEq)]
struct Files {
    database: Vec<u8>,
    log: Vec<u8>,
}

/// The files before and after they were written, and how many entries were acknowledged before.
struct Write {
    before: Files,
    after: Files,
    acknowledged: usize,
}

#[tokio::test]
async fn g5_no_acknowledged_step_is_lost_to_a_power_cut() {
    let wanted = env::var("GRAPHRUN_IMAGES").map_or(IMAGES, |it| it.parse().unwrap());
    for shape in SHAPES {
        cut(shape, wanted.div_ceil(SHAPES.len())).await;
    }
}

/// Cuts the power while the run of a shape is written, and looks at so many images of what may be left.
async fn cut(shape: &str, wanted: usize) {
    let folder = folder();
    let (journal, writes) = record(folder.path(), shape).await;
    let links: Vec<Link> = journal.iter().map(|it| it.link).collect();
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
                found.len() >= write.acknowledged && links.starts_with(&found),
                "image {images}: {} entries were acknowledged, and these are left: {found:?}",
                write.acknowledged
            );
        }
    }
    println!("{shape}: {images} images of {} writes", writes.len());
    assert!(images >= wanted);
}

/// The test of the test: what a database that waits for the disk less often would lose is seen.
#[tokio::test]
async fn g5_what_is_not_waited_for_is_lost_and_that_is_seen() {
    let folder = folder();
    let (_, writes) = record(folder.path(), SHAPES[0]).await;
    let mut lost = 0;
    for write in &writes {
        // The log as it was when the database was last synced.
        let image = Files { log: Vec::new(), ..write.before.clone() };
        let found = image.entries(folder.path(), None).await.unwrap_or_default();
        lost += usize::from(found.len() < write.acknowledged);
    }
    assert!(lost > writes.len() / 2, "{lost} of {}", writes.len());
}

/// Writes a run entry by entry, and keeps the files around each write.
async fn record(folder: &Path, shape: &str) -> (Vec<Logged>, Vec<Write>) {
    let journal = run(folder, shape).await;
    let path = folder.join("recorded.db");
    let storage = SqliteStorage::open(&path).unwrap();
    let presence = Presence::new();
    let claim = Claim { owner: presence.owner().clone(), ttl: Duration::from_secs(60), over: None };
    let (mut writes, mut hold) = (Vec::new(), None);
    let mut before = Files::read(&path);
    for (acknowledged, logged) in journal.iter().enumerate() {
        match &hold {
            None => {
                hold = Some(storage.create(&info(shape), &claim, &logged.entry).await.unwrap());
            }
            Some(hold) => storage.append(hold, &logged.entry).await.unwrap(),
        }
        let after = Files::read(&path);
        assert!(before.database == after.database, "SQLite copies the log only when it is told to");
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
    let written = storage.journal(&RunId::parse(RUN).unwrap(), 0, usize::MAX).await.unwrap();
    (written, writes)
}

/// The journal of a run.
async fn run(folder: &Path, shape: &str) -> Vec<Logged> {
    let storage = Arc::new(SqliteStorage::open(folder.join("original.db")).unwrap());
    let graph = shapes::graph(shape, &folder.join("ledger"), Duration::ZERO);
    let engine = Engine::new(graph, storage.clone());
    let (events, stop) = (EventSink::default(), Stop::default());
    engine.start(info(shape), Update::default(), events, &stop).await.unwrap();
    storage.journal(&RunId::parse(RUN).unwrap(), 0, usize::MAX).await.unwrap()
}

impl Write {
    /// The files when the first sectors were written, and no others.
    fn prefixes(&self) -> Vec<Files> {
        let changed = self.changed();
        let prefix = |count: &usize| self.image(&changed[..*count]);
        (0..=changed.len()).collect::<Vec<_>>().iter().map(prefix).collect()
    }

    /// The files when any sectors were written.
    fn choice(&self, random: &mut StdRng) -> Files {
        let density = random.random_range(0.0..1.0);
        let mut chosen = self.changed();
        chosen.retain(|_| random.random_bool(density));
        let mut image = self.image(&chosen);
        if random.random_bool(0.5) && image.log.len() < self.after.log.len() {
            // The file has its new length already, and nothing in it.
            image.log.resize(self.after.log.len(), 0);
        }
        image
    }

    /// The sectors that differ, of whichever file was written.
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

    /// Whether the log was copied into the database; it is not touched while that is so.
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

    /// What is left of the run when these files are opened again: the links of its entries.
    ///
    /// With a shape, the run is brought to its end, too.
    async fn entries(&self, folder: &Path, shape: Option<&str>) -> Result<Vec<Link>, String> {
        // Of its own: who has gone on with the image before may not have let go of it yet.
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
        let journal = storage.journal(&run, 0, usize::MAX).await.map_err(told)?;
        if let Some(shape) = shape {
            go_on(folder.path(), shape, storage).await?;
        }
        Ok(journal.iter().map(|it| it.link).collect())
    }
}

/// Brings the run to its end.
async fn go_on(folder: &Path, shape: &str, storage: SqliteStorage) -> Result<(), String> {
    let run = RunId::parse(RUN).unwrap();
    // Whoever wrote it is gone with the power.
    let raw = storage.find(RUN).await.map_err(|it| format!("{it:?}"))?.holder;
    let presence = Presence::new();
    let (owner, ttl) = (presence.owner().clone(), Duration::ZERO);
    if let Some(holder) = raw {
        let claim = Claim { owner, ttl, over: Some(holder.fence) };
        let hold = storage.acquire(&run, &claim).await.map_err(|it| format!("{it:?}"))?;
        storage.release(&hold).await.map_err(|it| format!("{it:?}"))?;
    }
    let graph = shapes::graph(shape, &folder.join("ledger"), Duration::ZERO);
    let engine = Engine::new(graph, Arc::new(storage));
    let (events, stop) = (EventSink::default(), Stop::default());
    match engine.resume(&run, std::collections::BTreeMap::new(), events, &stop).await {
        Ok(_) | Err(graphrun::engine::RunError::NothingToDo(_)) => Ok(()),
        Err(error) => Err(format!("{error:?}")),
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// A folder in memory if there is one: what is asked here is not asked of a disk.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}
