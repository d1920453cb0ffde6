//! The software team's three recorded runs: the models' answers are recorded, everything else is
//! real.

use std::{path::Path, sync::Arc};

use crate::support::{RecordedModels, cache_dir};
use graphrun::{
    checkpoint::{Checkpointer, RunHistory as _, RunInfo, TaskRecord},
    compile::{CompiledGraph, compile},
    diagnostic::Diagnostics,
    engine::{Engine, RunEnd},
    event::{Event, RunEvent, Status},
    models::Replay,
    nodes::TestStatus,
    nodes::{Services, factory},
    registry,
    state::Update,
    storage::InMemoryStorage,
    team::TeamState,
    workflow,
};

/// What a recorded run left behind.
struct Ran {
    end: RunEnd,
    state: TeamState,
    records: Vec<TaskRecord>,
    events: Vec<RunEvent>,
    replay: Arc<Replay>,
    folder: tempfile::TempDir,
}

fn compiled(replay: &Arc<Replay>, output_dir: &Path) -> CompiledGraph {
    let (workflow, warnings) =
        workflow::load(Path::new("graphs/dev_team.yaml"), &registry()).unwrap();
    assert_eq!(warnings, Diagnostics::default(), "the flagship has no warnings");
    let services = Services {
        models: Arc::new(RecordedModels(Arc::clone(replay))),
        cache_dir: cache_dir(),
        output_dir: output_dir.to_owned(),
        ..Services::offline()
    };
    let graph = compile(workflow.into_graph(&factory(services, registry())))
        .unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(*graph.warnings(), Diagnostics::default(), "the flagship has no warnings");
    graph
}

async fn run(recording: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("tests/recordings/dev_team/{recording}.jsonl");
    let replay = Arc::new(Replay::load(path).unwrap());
    let storage = Arc::new(InMemoryStorage::default());
    let graph = compiled(&replay, folder.path());
    let engine = Engine::new(graph).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let brief = std::fs::read_to_string("tests/recordings/dev_team/brief.md").unwrap();
    let input = Update::of(&TeamState { brief: Some(brief), ..TeamState::default() }).unwrap();
    let info = RunInfo::new("dev_team");
    let id = info.id.clone();
    let end = engine.run(input).with_info(info).await.unwrap();
    let records = storage.records(&id).await.unwrap();
    let events = storage.events(&id, 0).await.unwrap();
    let state = end.state.read().unwrap();
    Ran { end, state, records, events, replay, folder }
}

impl Ran {
    /// The nodes in the order in which their updates were applied, by step.
    fn trace(&self) -> String {
        let mut records: Vec<&TaskRecord> = self.records.iter().collect();
        records.sort_by_key(|it| it.task);
        let shown = records.chunk_by(|a, b| a.task.step == b.task.step).map(|step| {
            let nodes: Vec<String> = step.iter().map(|it| it.node.to_string()).collect();
            nodes.join("+")
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn assert_done(&self) {
        assert_eq!(self.end.status, Status::Done, "{:?}", self.end.reason);
        assert_eq!(self.replay.unused(), [], "every answer was needed");
        let result = self.state.test_result.as_ref().unwrap();
        assert_eq!((result.passed, result.passed_count, result.total_tests), (true, 24, 24));
        assert_eq!(self.state.sse_status, Some(TestStatus::Passed));
    }
}

#[tokio::test]
async fn retry_a_failed_attempt_is_mended_from_the_real_failures() {
    let ran = run("retry").await;
    ran.assert_done();
    assert_eq!(ran.trace(), "ba qc+ta sse unit_tests sse unit_tests tl qa publish");
    let artifact = ran.state.code_artifact.unwrap();
    assert_eq!((artifact.attempt_number, ran.state.sse_attempts), (Some(2), Some(2)));
    for file in &artifact.files {
        let delivered = ran.folder.path().join(&file.file_path);
        assert_eq!(std::fs::read_to_string(delivered).unwrap(), file.content);
    }
    let report = std::fs::read_to_string(ran.folder.path().join("report.md")).unwrap();
    assert!(report.contains("24"), "{report}");
}

#[tokio::test]
async fn the_tech_lead_gets_the_best_attempt_and_starts_a_round() {
    let ran = run("tech_lead").await;
    ran.assert_done();
    assert_eq!(
        ran.trace(),
        "ba qc+ta sse unit_tests sse unit_tests sse unit_tests tl sse unit_tests tl qa publish"
    );
    let best = |record: &&TaskRecord| record.node.as_str() == "unit_tests";
    let passed: Vec<u64> = ran.records.iter().filter(best).map(passed_count).collect();
    assert_eq!(passed, [0, 20, 17, 24]);
}

#[tokio::test]
async fn the_architect_starts_a_design_without_the_old_best() {
    let ran = run("architect").await;
    ran.assert_done();
    assert_eq!(ran.trace(), "ba qc+ta sse unit_tests tl qa architect sse unit_tests tl qa publish");
    let escalated = ran.events.iter().find_map(|event| match &event.event {
        Event::TaskEmitted { name, message, .. } => Some((name.as_str(), message.as_str())),
        _ => None,
    });
    assert_eq!(escalated, Some(("escalated", "qa escalated to architect")));
    assert_eq!(ran.state.code_artifact.unwrap().attempt_number, Some(1));
}

/// What a run of the tests wrote as its result.
fn passed_count(record: &TaskRecord) -> u64 {
    let graphrun::checkpoint::Outcome::Finished { update, .. } = &record.outcome else {
        panic!("{record:?}")
    };
    let written = update.writes.iter().find(|(name, _)| name.as_str() == "test_result");
    written.unwrap().1["passed_count"].as_u64().unwrap()
}
