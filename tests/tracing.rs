//! The spans and events that a subscriber of `tracing` sees of a run.

use std::{
    fmt::{Debug, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use graphrun::{
    engine::Engine,
    event::Status,
    graph::{Backoff, NodeFn},
    prelude::*,
    storage::InMemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use crate::{examples::agent_tool, support::subscriber::subscribe};

/// What a subscriber saw: paths of spans as they close, with their fields, and events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Debug)]
struct Line {
    level: Level,
    path: String,
    fields: String,
}

#[derive(Debug, Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        ctx.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let span = ctx.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let path = ctx.event_scope(event).map_or_else(String::new, |scope| {
            scope.from_root().map(|it| it.name()).collect::<Vec<_>>().join("/")
        });
        self.0.lock().unwrap().push(Line {
            level: *event.metadata().level(),
            path,
            fields: fields.0,
        });
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let span = ctx.span(&id).unwrap();
        let path: Vec<&str> = span.scope().from_root().map(|it| it.name()).collect();
        let fields = span.extensions().get::<Fields>().unwrap().0.clone();
        let level = *span.metadata().level();
        let path = path.join("/");
        self.0.lock().unwrap().push(Line { level, path, fields });
    }
}

impl Seen {
    /// Starts to look at what this thread does.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let seen = Self::default();
        let subscriber = tracing_subscriber::registry().with(seen.clone());
        (seen, subscribe(subscriber))
    }

    fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    /// Returns the fields of the lines with this path.
    fn at(&self, path: &str) -> Vec<String> {
        self.lines().into_iter().filter(|it| it.path == path).map(|it| it.fields).collect()
    }

    #[track_caller]
    pub(crate) fn has(&self, path: &str, fields: &[&str]) {
        let found = self.at(path);
        let fits = |it: &String| fields.iter().all(|field| it.contains(field));
        assert!(found.iter().any(fits), "{path} {fields:?}: {found:?}\n{:#?}", self.lines());
    }
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Note {
    note: Option<String>,
}

/// Fails once with this text.
fn flaky(
    message: &'static str,
) -> impl Fn() -> futures_util::future::Ready<Result<Note, NodeError>> {
    let calls = AtomicUsize::new(0);
    move || {
        let is_first = calls.fetch_add(1, Ordering::Relaxed) == 0;
        let note = Note { note: Some("the secret content".to_owned()) };
        futures_util::future::ready(if is_first {
            Err(NodeError::transient(message))
        } else {
            Ok(note)
        })
    }
}

fn engine() -> Engine {
    let backoff = Backoff {
        attempts_max: Some(2),
        initial: Duration::from_millis(1),
        max: Duration::from_millis(1),
        ..Backoff::default()
    };
    let graph = GraphBuilder::new::<Note>("noting")
        .node("write", NodeFn::new(flaky("the provider said: the secret content")).backoff(backoff))
        .edge(START, "write")
        .edge("write", END)
        .compile()
        .unwrap();
    Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default()))
}

#[tokio::test]
async fn a_run_is_a_tree_of_spans() {
    let (seen, guard) = Seen::start();
    let end = engine().run(&()).await.unwrap();
    drop(guard);
    assert_eq!(end.status, Status::Done);
    let run = format!("run={}", end.run);
    seen.has("run", &[&run, "workflow=noting", "status=\"done\"", "steps=1"]);
    seen.has("run/step", &["step=1"]);
    seen.has("run/step/task", &["node=write", "kind=\"function\"", "task=1.0", "visit=1"]);
    seen.has("run/step/task", &["attempt=1", "outcome=\"retrying\"", "error=other"]);
    seen.has("run/step/task", &["attempt=2", "outcome=\"finished\""]);
    seen.has("run/storage", &["operation=\"append\""]);
    seen.has("run/step/task", &["wait_ms=", "kind=other", "is retried"]);
}

#[tokio::test]
async fn waits_and_limits_are_events() {
    async fn asks(ctx: NodeContext) -> Result<(), NodeError> {
        ctx.ask::<String>(Question::new("who", "the secret content")).map(drop)
    }
    async fn waits(ctx: NodeContext) -> Result<(), NodeError> {
        ctx.wait_for("soon", Duration::from_millis(20))
    }
    async fn nothing() -> Result<(), NodeError> {
        Ok(())
    }
    let graph = |graph: GraphBuilder| Engine::new(graph.edge(START, "a").compile().unwrap());
    let new = || GraphBuilder::new::<Note>("waiting").edge("a", END);
    let (seen, guard) = Seen::start();
    graph(new().node("a", asks)).run(&()).await.unwrap();
    graph(new().node("a", waits)).run(&()).await.unwrap();
    let limits = Limits { steps: 1, ..Limits::default() };
    let two = new().node("a", nothing).node("b", nothing).edge("a", "b").edge("b", END);
    graph(two.limits(limits)).run(&()).await.unwrap();
    drop(guard);
    let attempt = "run/step/task";
    seen.has(attempt, &["waits for an answer", "key=\"who\""]);
    seen.has(attempt, &["waits for a time", "key=\"soon\"", "wait_ms=20"]);
    seen.has("run", &["the run stopped", "status=\"paused\""]);
    seen.has("run", &["the run stopped", "status=\"limit\""]);
}

#[tokio::test]
async fn a_call_of_a_model_or_a_tool_is_within_its_attempt() {
    let (seen, guard) = Seen::start();
    agent_tool::run("Have you a bowler, or a fez?").await.unwrap();
    drop(guard);
    let attempt = "run/step/task";
    seen.has(&format!("{attempt}/chat"), &["model=", "input_tokens=", "output_tokens="]);
    seen.has(&format!("{attempt}/tool"), &["tool=\"stock.count\""]);
    seen.has(&format!("{attempt}/tool"), &["error=true"]);
}

#[tokio::test]
async fn no_content_is_above_the_level_debug() {
    let (seen, guard) = Seen::start();
    engine().run(&()).await.unwrap();
    agent_tool::run("Have you a bowler, or a fez?").await.unwrap();
    drop(guard);
    let lines = seen.lines();
    for line in lines.iter().filter(|it| it.level <= Level::INFO) {
        for content in ["secret", "bowler", "fez"] {
            assert!(!line.fields.contains(content), "{line:?}");
        }
    }
    let is_there = |it: &&Line| it.level == Level::DEBUG && it.fields.contains("secret");
    assert!(lines.iter().find(is_there).is_some(), "the error is there for who wants it");
}

#[tokio::test]
async fn a_nested_run_is_within_the_attempt_of_its_task() {
    let inner = GraphBuilder::new::<Note>("inner")
        .node("write", NodeFn::new(|| async { Ok::<_, NodeError>(Note { note: None }) }))
        .edge(START, "write")
        .edge("write", END)
        .compile()
        .unwrap();
    let graph = GraphBuilder::new::<Note>("outer")
        .node("inner", subgraph(inner, |(): ()| Note::default(), |it: Note| it))
        .edge(START, "inner")
        .edge("inner", END)
        .compile()
        .unwrap();
    let (seen, guard) = Seen::start();
    Engine::new(graph).run(&()).await.unwrap();
    drop(guard);
    let nested = "run/step/task/run/step/task";
    seen.has(nested, &["node=write", "outcome=\"finished\""]);
}
