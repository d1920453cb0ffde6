//! What the durable runs save, and the floor that saves it by hand.

use std::path::Path;

use graphrun::{
    checkpoint::{Checkpoint, RunJournal as _},
    compile::CompiledGraph,
    engine::machine::{Machine, RunSettings, SavedStep},
    graph::{
        Bounds, GraphBuilder, IntoNode, Limits, NodeContext, NodeError, Policies, START, Target,
        node_fn,
    },
    id::RunId,
    storage::SqliteStorage,
};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The bytes that a step writes.
pub(crate) const ITEM: usize = 1_000;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Items {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    pub(crate) items: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Text {
    pub(crate) text: Option<String>,
}

/// When a run of one node that leads to itself ends.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// Done after this many steps.
    Done(u32),
    /// At the limit of this many steps, so that it can be resumed.
    Limit(u32),
}

/// A node that appends a kilobyte to a list.
pub(crate) fn appender(until: Until) -> CompiledGraph {
    let append = node_fn(|_: Nothing, ctx: NodeContext| async move {
        Ok::<_, NodeError>(Items { items: vec![noise_of(&ctx)] })
    });
    chain(GraphBuilder::new::<Items>("appender"), append, until)
}

/// A node that replaces a kilobyte.
pub(crate) fn replacer(until: Until) -> CompiledGraph {
    let replace = node_fn(|_: Nothing, ctx: NodeContext| async move {
        Ok::<_, NodeError>(Text { text: Some(noise_of(&ctx)) })
    });
    chain(GraphBuilder::new::<Text>("replacer"), replace, until)
}

fn noise_of(ctx: &NodeContext) -> String {
    noise(usize::try_from(ctx.task.step.0).unwrap())
}

pub(crate) fn chain<Marker>(
    graph: GraphBuilder,
    node: impl IntoNode<Marker>,
    until: Until,
) -> CompiledGraph {
    let (visits, steps) = match until {
        Until::Done(steps) => (steps, steps + 1),
        Until::Limit(steps) => (steps + 1, steps),
    };
    let bound = Policies::from(Bounds {
        max_visits: Some(visits),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    let limits = Limits { steps: steps.into(), ..Limits::default() };
    let graph = graph.node("work", node.with_policies(bound)).limits(limits);
    graph.edge(START, "work").edge("work", "work").compile().unwrap()
}

/// Returns a kilobyte that differs from every other and hardly compresses.
pub(crate) fn noise(seed: usize) -> String {
    let mut bytes = vec![0; ITEM];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    // All characters that JSON need not escape.
    let characters: Vec<char> = (' '..='~').filter(|it| !['"', '\\'].contains(it)).collect();
    bytes.into_iter().map(|it| characters[usize::from(it) % characters.len()]).collect()
}

/// The same items in a table.
pub(crate) struct Floor(pub(crate) Connection);

/// The same items with what a journal needs beside them: an index by run and number, and a row with the head of each run.
/// So a transaction writes three pages.
pub(crate) struct JournalFloor(Connection);

impl JournalFloor {
    pub(crate) fn new(path: &Path) -> Self {
        let Floor(connection) = Floor::new(path);
        connection
            .execute_batch(
                "CREATE TABLE entries (key INTEGER PRIMARY KEY, run INTEGER NOT NULL,
                     number INTEGER NOT NULL, item TEXT NOT NULL) STRICT;
                 CREATE UNIQUE INDEX entries_of_run ON entries (run, number);
                 CREATE TABLE heads (run INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT;
                 INSERT INTO heads VALUES (1, 0)",
            )
            .unwrap();
        Self(connection)
    }

    /// Appends an item in one transaction.
    pub(crate) fn append(&mut self, number: usize, item: &str) {
        let transaction = self.0.transaction().unwrap();
        let insert = "INSERT INTO entries (run, number, item) VALUES (1, ?, ?)";
        let set_head = "UPDATE heads SET number = ? WHERE run = 1";
        transaction.prepare_cached(insert).unwrap().execute((number, item)).unwrap();
        transaction.prepare_cached(set_head).unwrap().execute([number]).unwrap();
        transaction.commit().unwrap();
    }
}

impl Floor {
    pub(crate) fn new(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch(
                "PRAGMA page_size = 4096; PRAGMA journal_mode = wal; PRAGMA synchronous = full;
                 CREATE TABLE items (key INTEGER PRIMARY KEY, item TEXT NOT NULL) STRICT",
            )
            .unwrap();
        Self(connection)
    }

    /// Inserts items in one transaction.
    pub(crate) fn insert<'a>(&mut self, items: impl IntoIterator<Item = &'a str>) {
        let transaction = self.0.transaction().unwrap();
        let mut insert = transaction.prepare_cached("INSERT INTO items (item) VALUES (?)").unwrap();
        for item in items {
            insert.execute([item]).unwrap();
        }
        drop(insert);
        transaction.commit().unwrap();
    }
}

/// Opens a database and resumes the run in it, up to its next task.
pub(crate) fn resume(path: &Path, graph: &CompiledGraph) -> Machine {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let storage = SqliteStorage::open_existing(path).unwrap();
    let saved = runtime.block_on(storage.load(&id())).unwrap();
    let state = graph.schema().restore(saved.values).unwrap();
    let checkpoint = Checkpoint { position: saved.position, state };
    let limits = graph.definition().limits.clone();
    let settings = RunSettings { limits, ..RunSettings::default() };
    let restored =
        Machine::restore(graph.clone(), settings, id(), SavedStep::new(checkpoint, saved.records));
    let (machine, actions) = restored.unwrap();
    assert_eq!(actions.len(), 1, "{actions:?}");
    machine
}

pub(crate) fn id() -> RunId {
    RunId::parse("BENCH").unwrap()
}
