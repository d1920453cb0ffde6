//! Where the runs of a test are, and what is left of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    sync::Arc,
    time::Duration,
};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, Outcome, TaskRecord},
    event::Status,
    id::RunId,
    storage::SqliteStorage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime;

use crate::{
    child::{Order, RUN},
    ledger::Ledger,
};

/// A database of one test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Database {
    Sqlite(PathBuf),
}

/// Which kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
}

/// A database with a ledger, of one run.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) database: Database,
}

/// What is left of a run, without times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    pub(crate) status: Status,
    /// The channels, as JSON.
    pub(crate) values: String,
    /// The records, as JSON, by their tasks.
    pub(crate) records: Vec<String>,
    /// The tasks that never run again.
    pub(crate) finished: Vec<String>,
}

impl Database {
    pub(crate) async fn create(&self) -> Result<Arc<dyn Checkpointer>, CheckpointError> {
        match self {
            Self::Sqlite(path) => Ok(Arc::new(SqliteStorage::open(path)?)),
        }
    }
}

impl Place {
    pub(crate) fn new(backend: Backend) -> Self {
        let folder = TempDir::new().unwrap();
        let database = match backend {
            Backend::Sqlite => Database::Sqlite(folder.path().join("runs.db")),
        };
        Self { folder, database }
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

    /// Runs a child to its end.
    pub(crate) fn run(&self, order: &Order) -> Output {
        order.command().output().unwrap()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::read(&self.ledger_path())
    }

    /// What is left of the run; none if it was not accepted.
    ///
    /// To look changes nothing that the next process finds.
    pub(crate) fn left(&self) -> Option<Left> {
        let copies = TempDir::new().unwrap();
        let storage: Arc<dyn Checkpointer> = match &self.database {
            Database::Sqlite(path) => {
                let folder = path.parent().expect("it is in a folder");
                Arc::new(SqliteStorage::open_existing(copy(folder, copies.path())?).ok()?)
            }
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Left::read(storage.as_ref()))
    }

    fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }
}

/// Copies a database with its log, and gives the path of the copy; none if there is no database.
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
        // In one step they are as their tasks ended; of one task they are in their order.
        records.sort_by_key(|it| it.task);
        let finished = records.iter().filter(|it| it.outcome.is_final());
        let finished = finished.map(|it| it.task.to_string()).collect();
        let events = storage.events(&run, 0).await.unwrap();
        let seqs = events.iter().map(|it| it.seq);
        assert!(seqs.eq(1..=events.len() as u64), "the events have gaps: {events:?}");
        Some(Self {
            status: saved.summary.status,
            values: serde_json::to_string(&saved.values).unwrap(),
            records: records.iter().map(timeless).collect(),
            finished,
        })
    }
}

/// A record as JSON without the times in it.
fn timeless(record: &TaskRecord) -> String {
    let mut json = serde_json::to_value(record).unwrap();
    json["ms"] = json!(0);
    if let (Outcome::Retrying { .. }, Value::Object(outcome)) =
        (&record.outcome, &mut json["outcome"])
    {
        outcome.remove("wake");
    }
    json.to_string()
}
