//! The database of a test, and the saved data of its run.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, Outcome, TaskRecord},
    event::Status,
    id::RunId,
    storage::{PostgresStorage, SqliteStorage},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime;

use crate::{
    durability::{
        child::{Order, RUN},
        ledger::Ledger,
    },
    support::postgres::Schema,
};

/// A database of one test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Database {
    Sqlite(PathBuf),
    Postgres(String),
}

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// A database with a ledger, of one run.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) database: Database,
    /// Dropped together with the place.
    _schema: Option<Schema>,
}

/// The saved data of a run, without times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    pub(crate) status: Status,
    /// The channels, as JSON.
    pub(crate) values: String,
    /// The records, as JSON, by their tasks.
    pub(crate) records: Vec<String>,
    /// The tasks that never run again.
    pub(crate) finished: Vec<String>,
    /// The parts of tasks that never run again, each with its task.
    pub(crate) noted: Vec<(String, String)>,
}

impl Database {
    /// Opens the database, and creates it if it does not exist.
    pub(crate) fn create(&self) -> Result<Arc<dyn Checkpointer>, CheckpointError> {
        match self {
            Self::Sqlite(path) => Ok(Arc::new(SqliteStorage::open(path)?)),
            Self::Postgres(url) => Ok(Arc::new(PostgresStorage::open(url)?)),
        }
    }
}

impl Place {
    pub(crate) fn new(backend: Backend) -> Self {
        let folder = TempDir::new().unwrap();
        let schema = (backend == Backend::Postgres).then(Schema::new);
        let database = match &schema {
            None => Database::Sqlite(folder.path().join("runs.db")),
            Some(schema) => Database::Postgres(schema.url()),
        };
        Self { folder, database, _schema: schema }
    }

    pub(crate) fn order(&self, shape: &str) -> Order {
        Order {
            shape: shape.to_owned(),
            database: self.database.clone(),
            ledger: self.ledger_path(),
            faults: None,
            takes: Duration::ZERO,
            lease: Duration::from_secs(15),
            stop_after: None,
            one_thread: false,
        }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::read(&self.ledger_path())
    }

    /// Returns the saved data of the run; `None` if it was not accepted.
    ///
    /// Reading does not change the files for the next process.
    pub(crate) fn left(&self) -> Option<Left> {
        let copies = TempDir::new().unwrap();
        let storage: Arc<dyn Checkpointer> = match &self.database {
            Database::Sqlite(path) => {
                let folder = path.parent().expect("it is in a folder");
                Arc::new(SqliteStorage::open_existing(copy(folder, copies.path())?).ok()?)
            }
            Database::Postgres(url) => Arc::new(PostgresStorage::open_existing(url).unwrap()?),
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Left::read(storage.as_ref()))
    }

    fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }
}

/// Copies a database with its log, and returns the path of the copy; `None` if there is no database.
fn copy(from: &Path, to: &Path) -> Option<PathBuf> {
    for file in ["runs.db", "runs.db-wal", "runs.db-journal"] {
        if from.join(file).exists() {
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
    }
    let path = to.join("runs.db");
    path.exists().then_some(path)
}

impl Left {
    async fn read(storage: &dyn Checkpointer) -> Option<Self> {
        let run = RunId::parse(RUN).unwrap();
        match storage.find(RUN).await {
            Err(CheckpointError::UnknownRun(_)) => return None,
            found => found.unwrap(),
        };
        let saved = storage.load(&run).await.unwrap();
        let mut records = storage.records(&run).await.unwrap();
        // Records of one step are in the order in which the tasks ended; those of one task keep their order.
        records.sort_by_key(|it| it.task);
        let finished = records.iter().filter(|it| it.outcome.is_final());
        let finished = finished.map(|it| it.task.to_string()).collect();
        let noted = records.iter().filter_map(|record| match &record.outcome {
            Outcome::MemoSaved { name, .. } => Some((name.clone(), record.task.to_string())),
            _ => None,
        });
        let noted = noted.collect();
        let events = storage.events(&run, 0).await.unwrap();
        let seqs = events.iter().map(|it| it.seq);
        assert!(seqs.eq(1..=events.len() as u64), "the events have gaps: {events:?}");
        Some(Self {
            status: saved.summary.status,
            values: serde_json::to_string(&saved.values).unwrap(),
            records: records.iter().map(timeless).collect(),
            finished,
            noted,
        })
    }
}

/// Returns a record as JSON without times, and without hashes, which cover entries with times.
fn timeless(record: &TaskRecord) -> String {
    let mut json = serde_json::to_value(record).unwrap();
    json["ms"] = json!(0);
    if let Value::Object(outcome) = &mut json["outcome"] {
        outcome.retain(|key, _| !matches!(key.as_str(), "wake" | "question_hash"));
    }
    json.to_string()
}
