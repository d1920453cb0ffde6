//! Sample runs, and storages for them.

use std::{error::Error, sync::Arc, time::Duration};

use graphrun::{
    checkpoint::{
        Activation, CheckpointError, Checkpointer, Commit, Conversation, EarlierTurns, Entry,
        ExhaustedLimits, InboxMessage, LeaseRequest, LeaseToken, Message, Outcome, Owner, Position,
        Presence, Round, RunInfo, RunStatus, TaskRecord, TaskUsage, UsedBudget,
    },
    event::{EVENT_VERSION, Event, RunEvent, Status, Usage},
    graph::{Dispatch, Failure, Goto, Input, OriginalTask, Question, Target, Transition, Trigger},
    id::{ChannelName, NodeName, RunId, Step, TaskId},
    state::{Change, ChangeKind, Update},
    storage::{InMemoryStorage, SqliteStorage},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Tests of all storages.
macro_rules! promises {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(crate::storage::sample::Home::memory()).await; })*
        }
        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(crate::storage::sample::Home::sqlite()).await; })*
        }
        mod postgres {
            $(#[tokio::test] async fn $name() { super::$name(crate::storage::sample::Home::postgres()).await; })*
        }
    };
}

pub(crate) use promises;

/// Longer than any test takes.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// A storage that can be closed and opened again.
pub(crate) enum Home {
    Memory(Arc<InMemoryStorage>),
    Sqlite(TempDir),
    Postgres(crate::support::postgres::Schema),
}

impl Home {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(TempDir::new().unwrap())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(crate::support::postgres::Schema::new())
    }

    /// Creates one of each kind.
    pub(crate) fn all() -> Vec<Self> {
        vec![Self::memory(), Self::sqlite(), Self::postgres()]
    }

    /// Creates another empty one of the same kind.
    pub(crate) fn like(&self) -> Self {
        match self {
            Self::Memory(_) => Self::memory(),
            Self::Sqlite(_) => Self::sqlite(),
            Self::Postgres(_) => Self::postgres(),
        }
    }

    /// Opens another instance: each must read what an earlier one wrote.
    pub(crate) fn open(&self) -> Arc<dyn Checkpointer> {
        match self {
            Self::Memory(storage) => Arc::clone(storage) as _,
            Self::Sqlite(folder) => {
                Arc::new(SqliteStorage::open(folder.path().join("runs.db")).unwrap())
            }
            Self::Postgres(schema) => {
                Arc::new(graphrun::storage::PostgresStorage::open(&schema.url()).unwrap())
            }
        }
    }
}

pub(crate) fn run(id: &str) -> RunId {
    RunId::parse(id).unwrap()
}

pub(crate) fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

pub(crate) fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

pub(crate) fn info(id: &str, name: &str) -> RunInfo {
    RunInfo {
        id: run(id),
        name: name.into(),
        created: "2025-06-01T12:00:00Z".into(),
        origin: json!({"path": "graphs/dev_team.yaml"}),
        ..RunInfo::new("dev_team")
    }
}

/// Returns the claim of an owner in this process.
pub(crate) fn request() -> LeaseRequest {
    LeaseRequest { owner: Presence::new().owner().clone(), ttl: TTL, replaces_fence: None }
}

/// Since when the owners of [`request_of`] have a run.
pub(crate) const SINCE: &str = "2026-01-01T00:00:00Z";

/// Returns the claim of an owner by its process id: `7@box7` for seven.
pub(crate) fn request_of(pid: u32) -> LeaseRequest {
    let owner = json!({"pid": pid, "host": format!("box{pid}"), "token": pid, "since": SINCE});
    let owner: Owner = serde_json::from_value(owner).unwrap();
    LeaseRequest { owner, ttl: TTL, replaces_fence: None }
}

/// Returns the same claim for a lease that expires immediately.
pub(crate) fn short(request: LeaseRequest) -> LeaseRequest {
    LeaseRequest { ttl: Duration::ZERO, ..request }
}

/// Creates a run whose step zero changes nothing.
pub(crate) async fn create(storage: &Arc<dyn Checkpointer>, id: &str) -> LeaseToken {
    let first = commit(0, vec![]).into();
    storage.create(&info(id, &format!("{id}-name")), &request(), &first).await.unwrap()
}

/// Returns an entry with its events.
pub(crate) fn entry(what: impl Into<Entry>, events: &[RunEvent]) -> Entry {
    Entry { events: events.to_vec(), ..what.into() }
}

pub(crate) fn run_status(status: Status, reason: Option<&str>) -> RunStatus {
    RunStatus { status, reason: reason.map(str::to_owned) }
}

/// Returns a position with content in every field.
pub(crate) fn position(step: u64) -> Position {
    let activation = |name: &str, input, trigger| Activation {
        timeout_ms: matches!(input, Input::Value(_)).then_some(500),
        input,
        ..Activation::by_edge(node(name), trigger)
    };
    let failure = Failure { raw: Some("{".into()), ..failure() };
    Position {
        began: Some(jiff::Timestamp::UNIX_EPOCH),
        step: Step(step),
        frontier: vec![
            activation("qc", Input::State, Trigger::Then { node: node("ba") }),
            activation(
                "ta",
                Input::Value(json!({"n": 1}).into()),
                Trigger::Caught { node: node("ba"), failure: Box::new(failure) },
            ),
        ],
        joins: [(node("sse"), [node("qc")].into())].into(),
        rounds: [(
            node("sse"),
            Round { missing: [node("ta")].into(), tasks: [node("qc"), node("ta")].into() },
        )]
        .into(),
        deferred: [(node("report"), Trigger::Start)].into(),
        visits: [(node("ba"), 1), (node("sse"), 3)].into(),
        caught: [(node("sse"), "no pytest".to_owned())].into(),
        original_tasks: [(
            1,
            OriginalTask { task: TaskId { step: Step(1), index: 0 }, node: node("sse") },
        )]
        .into(),
        failure: None,
        used: UsedBudget {
            usage: usage(),
            elapsed_ms: 1200 * step,
            node_usage: [(node("ba"), TaskUsage { usage: usage(), elapsed_ms: 7 })].into(),
            limit: Some("tokens".into()),
            exhausted_limits: Some(ExhaustedLimits {
                steps: 9,
                calls: Some(7),
                tokens: Some(7),
                usd: Some(0.3),
                time_ms: Some(1),
            }),
        },
        earlier: EarlierTurns { turns: 2, steps: 3, usage: usage(), elapsed_ms: 9 },
        people: Conversation {
            question_keys: ["go_on".to_owned()].into(),
            grants: ["host here 1f2e".to_owned()].into(),
            last_message: 7 * step,
            pending_messages: vec![InboxMessage {
                number: 3,
                message: Message {
                    id: "m".into(),
                    channel: channel("notes"),
                    value: json!("x"),
                    by: None,
                    at: "2025-06-01T12:00:00Z".into(),
                },
            }],
        },
        removed_messages: serde_json::from_value(json!({ "brief": 7 })).unwrap(),
    }
}

pub(crate) fn usage() -> Usage {
    let mut usage = Usage { cost_usd: Some(0.1 + 0.2), ..Usage::default() };
    usage.tokens.calls = 2;
    usage.tokens.input_tokens = 900;
    usage
}

pub(crate) fn set(name: &str, value: impl Into<Value>) -> Change {
    Change { channel: channel(name), kind: ChangeKind::Set(value.into().into()) }
}

pub(crate) fn appended(name: &str, items: &[&str]) -> Change {
    let items = items.iter().map(|&it| it.into()).collect();
    Change { channel: channel(name), kind: ChangeKind::Appended(items) }
}

pub(crate) fn cleared(name: &str) -> Change {
    Change { channel: channel(name), kind: ChangeKind::Cleared }
}

pub(crate) fn commit(step: u64, changes: Vec<Change>) -> Commit {
    Commit { position: position(step), changes }
}

pub(crate) fn record(step: u64, index: u32, outcome: Outcome) -> TaskRecord {
    let task = TaskId { step: Step(step), index };
    TaskRecord { task, node: node("ba"), attempt: 1, ms: 12, usage: usage(), outcome }
}

pub(crate) fn finished() -> Outcome {
    Outcome::Finished {
        update: Update::default().write(channel("brief"), "a calculator"),
        transitions: vec![Transition::To(Target::Node(node("qc"))), Transition::To(Target::End)],
    }
}

pub(crate) fn failed() -> Outcome {
    Outcome::Failed { failure: failure() }
}

pub(crate) fn undecided() -> Outcome {
    let send = Dispatch::new(node("qc"), json!({"part": 1}));
    Outcome::Undecided {
        update: Update::default().write(channel("brief"), "a calculator"),
        goto: Goto::Also(vec![Transition::Dispatch(send)]),
        failure: failure(),
    }
}

pub(crate) fn caught() -> Outcome {
    Outcome::Caught {
        failure: failure(),
        update: Update::default(),
        for_all_items: false,
        transitions: vec![Transition::To(Target::Fail)],
    }
}

pub(crate) fn skipped() -> Outcome {
    let transitions = vec![Transition::Join(node("sse"))];
    Outcome::Skipped { condition: "state.n > 3".into(), transitions }
}

pub(crate) fn asked() -> Outcome {
    Outcome::Asked {
        question: Question::new("go_on", "Go on?").with_schema(json!({"type": "boolean"})),
    }
}

pub(crate) fn answered() -> Outcome {
    Outcome::Answered { key: "go_on".into(), answer: Value::Null, by: None, question_hash: None }
}

fn failure() -> Failure {
    Failure::new(graphrun::graph::ErrorKind::Timeout, "it took 10 m")
}

/// Returns events with these numbers.
pub(crate) fn events(id: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<RunEvent> {
    let event = |seq| RunEvent {
        v: EVENT_VERSION,
        seq,
        ts: "2025-06-01T12:00:00.5Z".into(),
        run: run(id),
        event: Event::StepCommitted { step: Step(seq), next: vec![node("qc"), node("ta")] },
    };
    seqs.into_iter().map(event).collect()
}

/// Returns an error and its causes, as a person sees them.
pub(crate) fn told(error: &CheckpointError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Expects a list with the intact run `R2`, and with `R1`, which a change has damaged.
pub(crate) async fn assert_only_first_is_damaged(storage: &dyn Checkpointer, change: &str) {
    let listed = storage.page(None, 9).await.unwrap();
    let [Ok(sound), Err(CheckpointError::Damaged { run, .. })] = listed.as_slice() else {
        panic!("{change}: {listed:?}");
    };
    assert_eq!(sound.info.id.as_str(), "R2");
    assert!(["R1", "R 1"].contains(&run.as_str()), "{change}: {run}");
}
