//! The kinds of nodes that touch the world, in whole workflows: commands and tools.

#![expect(clippy::unwrap_used, reason = "a test fails where its setup fails")]

mod agent_tools;
mod by_value;
mod compaction;
mod context;
mod embeddings;
mod fallback;
mod folders;
mod history;
mod lenient;
mod mcp;
mod memory;
mod open_calls;
mod paid_failures;
mod programs;
mod run;
mod run_tests;
mod tool;
mod windows;

use std::{path::Path, sync::Arc};

use graphrun::{
    checkpoint::RunInfo,
    compile::compile,
    diagnostic::SourceFile,
    engine::{Engine, RunEnd, ShutdownHandle},
    event::{Event, EventSink, Report, RunEvent},
    nodes::{Services, factory},
    registry,
    state::Update,
    workflow::{Registry, parse},
};
use serde_json::Value;

use crate::support::{cache_dir, ran::other_codes};

/// The end of a run, and its events.
struct Ended {
    end: RunEnd,
    events: Vec<RunEvent>,
}

impl Ended {
    fn state(&self, field: &str) -> &Value {
        self.end.state.get(field).unwrap_or(&Value::Null)
    }

    /// The events, one a line.
    fn told(&self) -> String {
        let line = |it: &RunEvent| serde_json::to_string(&it.event).unwrap() + "\n";
        self.events.iter().map(line).collect()
    }

    fn warnings(&self) -> Vec<&str> {
        let warning = |event| match event {
            &Event::TaskReported { report: Report::Warning { ref message }, .. } => {
                Some(message.as_str())
            }
            _ => None,
        };
        self.events.iter().filter_map(|it| warning(&it.event)).collect()
    }

    fn reason(&self) -> &str {
        self.end.reason.as_deref().unwrap_or_default()
    }
}

fn services() -> Services {
    Services { cache_dir: cache_dir(), ..Services::offline() }
}

/// Runs a workflow of the library alone.
async fn run(text: &str, input: Value) -> Ended {
    run_with(text, input, services(), registry()).await
}

async fn run_with(text: &str, input: Value, services: Services, registry: Registry) -> Ended {
    run_in(Path::new("tests/nodes"), text, input, services, registry).await
}

/// Runs a workflow that lies in a folder.
async fn run_in(
    folder: &Path,
    text: &str,
    input: Value,
    services: Services,
    registry: Registry,
) -> Ended {
    run_prepared(folder, text, input, services, registry, |it| it).await
}

/// Runs a workflow with an engine that the test prepares.
async fn run_prepared(
    folder: &Path,
    text: &str,
    input: Value,
    services: Services,
    registry: Registry,
    prepare: impl FnOnce(Engine) -> Engine,
) -> Ended {
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text: text.to_owned() });
    let (workflow, warnings) =
        parse(file, folder, &registry).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let made = workflow.into_graph(&factory(services, registry));
    assert_eq!(other_codes(&warnings), [""; 0], "{warnings}");
    assert!(made.diagnostics.is_empty(), "{}", made.diagnostics);
    let graph = compile(made).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let engine = prepare(Engine::new(graph));
    let mut sink = EventSink::default();
    let mut told = sink.subscribe();
    let collect = async {
        let mut events = Vec::new();
        while let Some(event) = told.recv().await {
            events.push(event);
        }
        events
    };
    let info = RunInfo::new("w");
    let input = Update::of(&input).unwrap();
    let stop = ShutdownHandle::default();
    let (end, events) = tokio::join!(
        engine.run(input).with_info(info).with_events(sink).with_shutdown(&stop),
        collect
    );
    Ended { end: end.unwrap(), events }
}
