//! Runs one test case: the real engine with in-memory storage, without network or waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    Suite,
    agents::ScriptedModels,
    beginning::checkpoint,
    coverage::{Coverage, Trail},
    script::{Gap, Script},
    traces::{Traces, emitted, route_of, visits_of},
    verdict::{self, Problem},
};
use crate::{
    checkpoint::{Checkpointer, Position, RunHistory as _, RunInfo, RunJournal as _},
    engine::{Clock, Engine, OpenQuestion, RunEnd, RunError, machine::Breakpoints},
    event::{EventSink, Status},
    graph::{Graph, with_causes},
    id::{NodeName, RunId},
    models::{ChatModel, EmbeddingModel, EmbeddingReplay, ModelError, Replay},
    nodes::{ModelSource, Services, ToolResults},
    storage::InMemoryStorage,
    workflow::case_file::Case,
};

/// The id of every run; each run has separate storage.
const RUN: &str = "case";

/// The result of a test case.
#[derive(Clone, Debug)]
pub struct CaseRun {
    /// The differences from the expectation; empty if the test passed.
    pub problems: Vec<Problem>,
    /// The run status at the end.
    pub status: Status,
    /// The reason, if the run is not done or has reached a limit.
    pub reason: Option<String>,
    /// The nodes that ran, step by step.
    pub route: Vec<Vec<NodeName>>,
    /// The duration.
    pub elapsed: Duration,
    trail: Trail,
}

impl Suite {
    /// Returns the coverage of the workflow by some runs.
    pub fn coverage<'r>(&self, ran: impl IntoIterator<Item = &'r CaseRun>) -> Coverage {
        let graph = self.compiled();
        let mut coverage = Coverage::of(&self.definition, graph.definition());
        for ran in ran {
            coverage.follow(graph.definition(), &ran.trail);
        }
        coverage
    }

    /// Runs a test case. The result is always the same, except for the duration.
    pub async fn run(&self, case: &Case) -> CaseRun {
        let started = Instant::now();
        match self.drive(case).await {
            Ok((traces, problems)) => {
                let Traces { status, reason, route, trail, .. } = traces;
                CaseRun { problems, status, reason, route, elapsed: started.elapsed(), trail }
            }
            Err(error) => {
                let reason = with_causes(&error);
                let problems = vec![Problem::new(&case.span, reason.clone())];
                let status = Status::Failed;
                let route = Vec::new();
                let reason = Some(reason);
                let trail = Trail::default();
                CaseRun { problems, status, reason, route, elapsed: started.elapsed(), trail }
            }
        }
    }

    async fn drive(&self, case: &Case) -> Result<(Traces, Vec<Problem>), RunError> {
        // The check of the test case has verified that it can be read.
        let recording = case.replay.as_ref().and_then(|path| Replay::load(path).ok());
        let recording = recording.map(Arc::new);
        let prompted = case.expect.prompts.iter().map(|it| it.value.0.clone());
        let mut script = Script::new(case.answers.clone()).with_prompts_of(prompted);
        if let Some(recording) = &recording {
            script = script.with_recording(Arc::clone(recording));
        }
        let script = Arc::new(script);
        let models = recording.map(|it| Arc::new(RecordedModels(it)) as Arc<dyn ModelSource>);
        let offline = Services::offline();
        let conversations = Arc::clone(&script.conversations);
        let others = models.unwrap_or(offline.models);
        let tool_results = Some(Arc::clone(&conversations) as Arc<dyn ToolResults>);
        let models = Arc::new(ScriptedModels { conversations, others });
        let services = Services { models, tool_results, ..offline };
        let graph = self.compiled_with(services, |graph| {
            script.direct(graph);
            stop_the_clock(graph);
            graph.limits.steps = case.steps.unwrap_or(graph.limits.steps);
        });
        let storage = Arc::new(InMemoryStorage::default());
        let start = if case.beginning.is_usual() {
            None
        } else {
            let start = checkpoint(&graph, &case.input, &case.beginning);
            Some(start.map_err(RunError::Input)?)
        };
        let now = case.now;
        let before = case.until.iter().map(|it| it.value.clone()).collect();
        let engine = Engine::new(graph)
            .with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>)
            .with_clock(Clock::new(move || now))
            .with_breakpoints(Breakpoints { before, ..Breakpoints::default() });
        let run = RunId::parse(RUN).expect("it is a word");
        let info = RunInfo {
            id: run.clone(),
            name: RUN.to_owned(),
            created: String::new(),
            ..RunInfo::new(self.definition.name.clone())
        };
        let events = EventSink::default();
        let launch = match start {
            Some(start) => engine.run_at(start),
            None => engine.run(case.input.clone()),
        };
        let mut end =
            launch.with_info(info).with_events(events.clone()).with_shutdown(&script.stop).await?;
        let mut refused = None;
        while let Some(answers) = scripted_answers(&script, &end) {
            match engine
                .resume(&run)
                .with_answers(answers)
                .with_events(events.clone())
                .with_shutdown(&script.stop)
                .await
            {
                Ok(next) => end = next,
                Err(error @ RunError::WrongAnswer { .. }) => {
                    refused = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let missed = missed_stop(case, &end);
        let records = storage.records(&run).await?;
        // A case may expect the value of a private field, which the end of a run leaves out.
        let values = storage.load(&run).await?.values;
        let route = route_of(&records);
        let journal = storage.journal(&run).await?;
        let commits = journal.into_iter().filter_map(|it| it.entry.commit);
        let positions: Vec<Position> = commits.map(|it| it.position).collect();
        let visits = visits_of(&records, &positions);
        let trail = Trail {
            positions,
            records,
            values: values.clone(),
            route_targets: script.route_targets(),
        };
        let traces = Traces {
            status: end.status,
            reason: end.reason,
            values,
            route,
            visits,
            trail,
            events: emitted(storage.events(&run, 0).await?),
            prompts: script.prompts(),
        };
        let problems = match (script.gap(), refused) {
            // All other differences follow from this one.
            (Some(gap), _) => vec![missing(case, &gap, &traces)],
            (None, Some(error)) => vec![Problem::new(&case.span, with_causes(&error))],
            (None, None) => match missed {
                Some(stop) => vec![stop.differs_from_route(&traces.route)],
                None => compared(case, &script, &traces),
            },
        };
        Ok((traces, problems))
    }
}

/// Returns all differences of a run from its case.
fn compared(case: &Case, script: &Script, traces: &Traces) -> Vec<Problem> {
    let mut problems = verdict::compare(&case.expect, traces);
    for (node, text) in script.unused() {
        problems.push(Problem::new(&case.answers[&node].span, text));
    }
    let may_wait = case.expect.status.value == Status::Paused;
    let of_calls = script.conversations.problems(may_wait).into_iter();
    problems.extend(of_calls.map(|(span, text)| Problem::new(&span, text)));
    for text in script.conversations.unrecorded() {
        let help = "record the run again, or give the node an answer with `calls`";
        problems.push(Problem::new(&case.span, text).help(help));
    }
    problems
}

/// Returns the problem that a run did not stop before any of the nodes where it should.
fn missed_stop(case: &Case, end: &RunEnd) -> Option<Problem> {
    let first = case.until.first()?;
    let next: BTreeSet<&NodeName> = end.position.frontier.iter().map(|it| &it.node).collect();
    let is_there = case.until.iter().any(|it| next.contains(&it.value));
    let is_stop = end.status == Status::Paused && end.questions.is_empty() && is_there;
    let why = end.reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
    let what =
        format!("the run did not reach `{}`, and is {}{why}", first.value, end.status.as_str());
    (!is_stop).then(|| Problem::new(&first.span, what))
}

/// Removes delays and timeouts: a test case never waits.
fn stop_the_clock(graph: &mut Graph) {
    for spec in graph.nodes.values_mut() {
        spec.policies.attempts.retry =
            std::mem::take(&mut spec.policies.attempts.retry).without_waits();
        spec.policies.attempts.timeout = None;
        spec.policies.attempts.idle_timeout = None;
    }
    graph.limits.time = None;
}

/// Returns the scripted answers to the open questions, if there are any.
fn scripted_answers(script: &Script, end: &RunEnd) -> Option<BTreeMap<String, Value>> {
    if end.status != Status::Paused {
        return None;
    }
    let answer = |it: &OpenQuestion| Some((it.name.clone(), script.scripted_answer(it)?));
    let answers: BTreeMap<String, Value> = end.questions.iter().filter_map(answer).collect();
    (!answers.is_empty()).then_some(answers)
}

/// Returns the problem that the run needed an answer which the test case does not have.
fn missing(case: &Case, gap: &Gap, traces: &Traces) -> Problem {
    let so_far = verdict::route_text(&traces.route);
    let after = if so_far.is_empty() { String::new() } else { format!(" (after {so_far})") };
    match gap {
        Gap::NoAnswer(node) => {
            let what = format!("the run reached `{node}`, which has no answer{after}");
            let help = format!(
                "a test runs no real nodes: give the fields it writes, as in `nodes: {{ {node}: \
                 {{}} }}`"
            );
            Problem::new(&case.span, what).help(help)
        }
        Gap::NoVisit(node, visit) => {
            let span = &case.answers[node].span;
            let what =
                format!("the run reached visit {visit} of `{node}`, which has no answer{after}");
            Problem::new(span, what).help("a list has an answer for each visit")
        }
    }
}

/// One recording in place of all models.
#[derive(Debug)]
pub(crate) struct RecordedModels(Arc<Replay>);

#[cfg(feature = "cli")]
impl RecordedModels {
    pub(crate) fn new(replay: Replay) -> Self {
        Self(Arc::new(replay))
    }
}

impl ModelSource for RecordedModels {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }

    fn embeddings(&self, name: &str) -> Result<Arc<dyn EmbeddingModel>, ModelError> {
        Ok(Arc::new(EmbeddingReplay::new(Arc::clone(&self.0), name)))
    }

    fn in_place_of_programs(&self) -> Option<Arc<dyn ChatModel>> {
        Some(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}
