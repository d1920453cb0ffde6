//! This test program as a child process that runs a workflow. A variable contains its order.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    path::PathBuf,
    process::{self, Command, Output, Stdio},
    time::Duration,
};

use graphrun::{
    checkpoint::{CheckpointError, RunInfo},
    engine::{Engine, RunEnd, RunError, ShutdownHandle},
    event::{Event, EventSink, Status},
    fault,
    id::RunId,
    state::Update,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime;

use crate::durability::{place::Database, shapes};

use crate::support::child_test;

/// The variable with the order of a child.
const ORDER: &str = "GRAPHRUN_TEST_ORDER";

/// The id of the run in each database.
pub(crate) const RUN: &str = "run-1";

/// The order of a child: run a workflow until it ends, from any position.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) shape: String,
    pub(crate) database: Database,
    pub(crate) ledger: PathBuf,
    /// The faults to plan.
    pub(crate) faults: Option<String>,
    /// The duration of each node.
    pub(crate) takes: Duration,
    pub(crate) lease: Duration,
    /// Requests a stop after this many tasks have begun.
    pub(crate) stop_after: Option<usize>,
    /// Runs the nodes and the driver on a single thread.
    pub(crate) one_thread: bool,
}

impl Order {
    /// Executes the order in a child, and waits for its end.
    pub(crate) fn run(&self) -> Output {
        self.command().output().expect("this program can be started")
    }

    /// Returns the command of the child, not started yet.
    pub(crate) fn command(&self) -> Command {
        let mut command = child_test(module_path!(), "a_child_executes_its_plan");
        command
            .env(ORDER, serde_json::to_string(self).expect("an order is plain data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Does nothing unless another test of this program has started it.
#[test]
#[expect(clippy::exit, reason = "it ends a separate process")]
fn a_child_executes_its_plan() {
    let Ok(order) = env::var(ORDER) else { return };
    let order: Order = serde_json::from_str(&order).unwrap();
    if let Some(faults) = &order.faults {
        fault::plan(faults).unwrap();
    }
    let mut builder = if order.one_thread {
        runtime::Builder::new_current_thread()
    } else {
        runtime::Builder::new_multi_thread()
    };
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    process::exit(match runtime.block_on(obey(&order)) {
        Ok(Status::Done) => 0,
        Ok(status) => {
            eprintln!("it is {}", status.as_str());
            4
        }
        Err(error) => {
            let mut next: Option<&dyn Error> = Some(&error);
            while let Some(error) = next {
                eprintln!("{error}");
                next = error.source();
            }
            match error {
                RunError::Checkpoint(
                    CheckpointError::Owned { .. } | CheckpointError::Overtaken { .. },
                ) => 6,
                _ => 5,
            }
        }
    });
}

/// Returns the properties of the run that are known from its start.
pub(crate) fn info(shape: &str) -> RunInfo {
    RunInfo {
        id: RunId::parse(RUN).expect("it is an id"),
        name: RUN.to_owned(),
        created: "2026-01-01T00:00:00Z".to_owned(),
        ..RunInfo::new(shape)
    }
}

/// Starts or resumes the run, and answers every question.
async fn obey(order: &Order) -> Result<Status, RunError> {
    let storage = order.database.create()?;
    let graph = shapes::graph(&order.shape, &order.ledger, order.takes);
    let engine = Engine::new(graph).with_storage(storage.clone()).with_lease_duration(order.lease);
    let run = RunId::parse(RUN).unwrap();
    let mut end = match storage.find(RUN).await {
        Err(CheckpointError::UnknownRun(_)) => {
            let (stop, sink) = watched(order.stop_after);
            engine
                .run(Update::default())
                .with_info(info(&order.shape))
                .with_events(sink)
                .with_shutdown(&stop)
                .await?
        }
        found => {
            found?;
            match resume(&engine, &run, BTreeMap::new()).await {
                // The previous process died after the end of the run and before its exit.
                Err(RunError::AlreadyEnded(status)) => return Ok(status),
                end => end?,
            }
        }
    };
    loop {
        end = match end.status {
            Status::Paused => {
                let answer =
                    |key: &str| if key == "boss" { json!("yes") } else { json!("well done") };
                let open = end.questions.iter().map(|it| it.name.clone());
                resume(&engine, &run, open.map(|it| (it.clone(), answer(&it))).collect()).await?
            }
            Status::Interrupted => resume(&engine, &run, BTreeMap::new()).await?,
            status => return Ok(status),
        };
    }
}

async fn resume(
    engine: &Engine,
    run: &RunId,
    answers: BTreeMap<String, Value>,
) -> Result<RunEnd, RunError> {
    engine.resume(run).with_answers(answers).await
}

/// Requests a stop after this many tasks have begun.
fn watched(stop_after: Option<usize>) -> (ShutdownHandle, EventSink) {
    let stop = ShutdownHandle::default();
    let mut sink = EventSink::default();
    if let Some(count) = stop_after {
        let mut events = sink.subscribe();
        let stop = stop.clone();
        tokio::spawn(async move {
            let mut begun = 0;
            while let Some(event) = events.recv().await {
                begun += usize::from(matches!(event.event, Event::TaskStarted { .. }));
                if begun == count {
                    stop.drain();
                }
            }
        });
    }
    (stop, sink)
}
