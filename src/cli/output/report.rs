//! The report of a run, built from its saved entries: the object that `--output json` prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    checkpoint::{
        AskedQuestions, CheckpointError, Checkpointer, Commit, Detail, ENTRIES_AT_ONCE,
        JournalEntry, Outcome, RunHistory, SavedRun, TaskRecord, last_records, next_due,
        open_questions,
    },
    cli::{
        error::CliError,
        exit::Exit,
        people::questions::{AnswerLine, QuestionLine},
        run::origin::Origin,
        settings::database::Database,
    },
    engine::{RunEnd, failed_records},
    event::{Event, Report as TaskReport, RunEvent, Status, Usage},
    folders::RunFolder,
    graph::{ErrorKind, FailureClass},
    id::{ChannelName, NodeName, RunId, TaskId},
};

/// The report of a run. Programs read it: keys may be added, none is renamed.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    pub(crate) run: RunId,
    pub(crate) name: String,
    pub(crate) workflow: String,
    pub(crate) status: Status,
    pub(crate) reason: Option<String>,
    pub(crate) steps: u64,
    /// The fields of the result, or all fields if the workflow names none.
    pub(crate) state: Map<String, Value>,
    #[serde(serialize_with = "as_usage")]
    pub(crate) usage: Usage,
    /// In the order in which updates were applied.
    pub(crate) trace: Vec<TraceLine>,
    pub(crate) questions: Vec<QuestionLine>,
    /// The answers so far, oldest first; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<AnswerLine>,
    /// The failed tasks of the open step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failures: Vec<FailureLine>,
    /// The nodes whose updates are saved and become part of `state` when their step is complete; omitted if there are none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) uncommitted: BTreeSet<NodeName>,
    /// The written files. Those in the worktree of a run are left out: their place is the branch.
    pub(crate) artifacts: Vec<String>,
    /// The branches of the run; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) branches: Vec<BranchLine>,
    pub(crate) resume: Option<String>,
    /// When a paused run can continue by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<String>,
    /// The usage of each node that called models; not part of the object.
    #[serde(skip)]
    pub(crate) by_node: Vec<(NodeName, Usage)>,
}

/// The branch of a folder of the run, in the repository of the user.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct BranchLine {
    pub(crate) folder: String,
    pub(crate) repository: PathBuf,
    pub(crate) branch: String,
}

/// The result of one task.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct TraceLine {
    pub(crate) step: u64,
    pub(crate) node: NodeName,
    pub(crate) attempt: u32,
    pub(crate) outcome: &'static str,
    pub(crate) ms: u64,
}

/// A failed task whose failure no route handled.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct FailureLine {
    pub(crate) node: NodeName,
    /// The number of its item in a map, from zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) item: Option<u64>,
    pub(crate) kind: ErrorKind,
    pub(crate) class: FailureClass,
    pub(crate) error: String,
}

impl RunReport {
    /// Reads the report of a run, with all turns if it is a thread, from the database.
    ///
    /// # Errors
    ///
    /// Fails when the database cannot be read.
    pub(crate) async fn read(
        checkpointer: &dyn Checkpointer,
        run: &RunId,
        database: &Database,
    ) -> Result<Self, CliError> {
        let details = Details::read(checkpointer, run, 0, None).await?;
        let saved = checkpointer.load(run).await?;
        let usage = saved.position.total_usage();
        Ok(Self::new(saved, details, usage, database))
    }

    /// Reads the report of the current turn of a run; a run that is no thread has only one. The earlier turns are not
    /// read, so their number does not matter.
    ///
    /// With `end`, the turn has ended like this, although another process may have continued the thread meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub(crate) async fn read_turn(
        checkpointer: &dyn Checkpointer,
        run: &RunId,
        end: Option<&RunEnd>,
        database: &Database,
    ) -> Result<Self, CliError> {
        let mut saved = checkpointer.load(run).await?;
        // Another process has continued the run: the report is about what this one left.
        if let Some(end) = end.filter(|it| saved.position.step > it.position.step) {
            saved.summary.status = end.status;
            saved.summary.reason.clone_from(&end.reason);
            saved.position = end.position.clone();
            let values = end.state.iter();
            let named = |(name, value): (&str, &Value)| {
                Some((ChannelName::parse(name).ok()?, value.clone()))
            };
            saved.values = values.filter_map(named).collect();
            saved.records.clear();
        }
        let before = last_entry_before_turn(checkpointer, run, &saved).await?;
        let details = Details::read(checkpointer, run, before, end).await?;
        let usage = saved.position.used.usage;
        Ok(Self::new(saved, details, usage, database))
    }

    /// Makes the report of a run whose committed steps have this usage.
    fn new(saved: SavedRun, details: Details, usage: Usage, database: &Database) -> Self {
        let SavedRun { summary, position, values, records: open, .. } = saved;
        let Details { asked, mut trace, events } = details;
        let questions = open_questions(&position, &open);
        // A task may have several records; their order stays.
        trace.sort_by_key(|it| it.0);
        let origin = Origin::of(&summary.info).ok();
        let (output, private, folders) =
            origin.map(|it| (it.output, it.private, it.folders)).unwrap_or_default();
        let is_failed = summary.status == Status::Failed;
        // At the end, and after a route to `fail`, nothing is left to continue.
        let is_done = summary.status == Status::Done;
        let is_over = is_done || is_failed && position.frontier.is_empty();
        let database = database.clone().with_permissions_of(&summary.info);
        let resume = database.command("resume", &summary.info.name).filter(|_| !is_over);
        let due = next_due(&open).filter(|_| summary.status == Status::Paused);
        let items = position.item_numbers();
        let item = |it: &TaskRecord| items.get(it.task.index as usize).copied().flatten();
        let failed = failed_records(&open).into_iter();
        let failures = failed.filter_map(|it| FailureLine::of(it, item(it))).collect();
        Self {
            resume,
            due: due.map(|it| it.to_string()),
            run: summary.info.id,
            name: summary.info.name,
            workflow: summary.info.workflow,
            status: summary.status,
            reason: summary.reason,
            steps: position.step.0,
            state: state(&output, &private, values),
            usage: with_open_tasks(usage, &open),
            trace: trace.into_iter().map(|it| it.1).collect(),
            questions: questions.into_iter().map(QuestionLine::from).collect(),
            answers: asked.questions.into_iter().filter_map(AnswerLine::of).collect(),
            artifacts: artifacts(&events, &folders),
            branches: folders.iter().filter_map(BranchLine::of).collect(),
            by_node: usage_by_node(&events, &open),
            uncommitted: { open.iter().filter(|it| has_written(it)) }
                .map(|it| it.node.clone())
                .collect(),
            failures,
        }
    }

    /// Returns the same report with further files, which no event names.
    pub(crate) fn with_artifacts(mut self, paths: Vec<String>) -> Self {
        let is_new = |it: &String| !self.artifacts.contains(it);
        let new: Vec<String> = paths.into_iter().filter(is_new).collect();
        self.artifacts.extend(new);
        self
    }

    /// Returns the exit code for this report.
    pub(crate) fn exit(&self) -> Exit {
        let is_failed = self.status == Status::Failed;
        match self.failures.first().map(|it| it.kind).filter(|_| is_failed) {
            // The task did not fail by itself: a requirement is missing. Once it is available, the
            // run can continue.
            Some(kind) if kind.is_from_outside() => Exit::Unusable,
            _ => Exit::of(self.status),
        }
    }
}

/// What a report has of the entries of a run.
#[derive(Debug, Default)]
struct Details {
    asked: AskedQuestions,
    trace: Vec<(TaskId, TraceLine)>,
    events: Vec<RunEvent>,
}

impl Details {
    /// Reads the entries after this one, until the step at which the run has ended.
    async fn read(
        history: &(impl RunHistory + ?Sized),
        run: &RunId,
        mut after: u64,
        end: Option<&RunEnd>,
    ) -> Result<Self, CheckpointError> {
        let mut details = Self::default();
        let is_later = |it: &Commit| end.is_some_and(|end| it.position.step > end.position.step);
        // Read in pages, since a run may have more entries than fit in memory.
        loop {
            let page = history.entries(run, after, ENTRIES_AT_ONCE, Detail::WithoutValues).await?;
            let Some(last) = page.last() else { return Ok(details) };
            after = last.number;
            for logged in page {
                if logged.entry.commit.as_ref().is_some_and(is_later) {
                    return Ok(details);
                }
                details.add(logged);
            }
        }
    }

    fn add(&mut self, logged: JournalEntry) {
        self.asked.add(&logged);
        self.trace.extend(logged.entry.records.iter().filter_map(TraceLine::new));
        self.events.extend(logged.entry.events.into_iter().filter(is_reported));
    }
}

/// Returns the number of the last entry before the current turn, or zero in the first turn. It searches from the end.
async fn last_entry_before_turn(
    history: &(impl RunHistory + ?Sized),
    run: &RunId,
    SavedRun { position, last_entry, .. }: &SavedRun,
) -> Result<u64, CheckpointError> {
    if position.earlier.turns == 0 {
        return Ok(0);
    }
    let mut end = *last_entry;
    while end > 0 {
        let before = end.saturating_sub(ENTRIES_AT_ONCE as u64);
        let page = history.entries(run, before, ENTRIES_AT_ONCE, Detail::WithoutValues).await?;
        // The first commit of a turn takes in its input.
        let begins = |entry: &&JournalEntry| {
            entry
                .entry
                .commit
                .as_ref()
                .is_some_and(|it| it.position.step.0 == position.earlier.steps)
        };
        if let Some(first) = page.iter().find(begins) {
            return Ok(first.number - 1);
        }
        end = before;
    }
    Ok(0)
}

impl BranchLine {
    /// Returns the branch of a folder, which is made at the first use.
    fn of(folder: &RunFolder) -> Option<Self> {
        let RunFolder { name, repository, branch, worktree, .. } = folder;
        worktree.exists().then(|| Self {
            folder: name.clone(),
            repository: repository.clone(),
            branch: branch.clone(),
        })
    }
}

impl TraceLine {
    fn new(record: &TaskRecord) -> Option<(TaskId, Self)> {
        let outcome = match &record.outcome {
            Outcome::Finished { .. } => "finished",
            Outcome::Undecided { .. } => "undecided",
            Outcome::Caught { .. } => "caught",
            Outcome::Skipped { .. } => "skipped",
            Outcome::Failed { .. } => "failed",
            Outcome::Retrying { .. }
            | Outcome::TimerSet { .. }
            | Outcome::Aborted
            | Outcome::MemoSaved { .. }
            | Outcome::Asked { .. }
            | Outcome::Answered { .. } => return None,
        };
        let line = Self {
            step: record.task.step.0,
            node: record.node.clone(),
            attempt: record.attempt,
            outcome,
            ms: record.ms,
        };
        Some((record.task, line))
    }
}

impl FailureLine {
    fn of(record: &TaskRecord, item: Option<u64>) -> Option<Self> {
        let failure = record.final_failure()?;
        Some(Self {
            node: record.node.clone(),
            item,
            kind: failure.kind,
            class: failure.class(),
            error: failure.message.clone(),
        })
    }
}

fn has_written(record: &TaskRecord) -> bool {
    record.outcome.update().is_some_and(|it| !it.is_empty())
}

/// Serialises only the documented keys, not the others that storage may contain.
fn as_usage<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct UsageLine {
        input_tokens: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        cached_input_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_write_input_tokens: Option<u64>,
        output_tokens: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_output_tokens: Option<u64>,
        calls: u64,
        cost_usd: Option<f64>,
    }
    let Usage { tokens, cost_usd } = *usage;
    // Not all providers count these.
    let counted = |tokens: u64| Some(tokens).filter(|it| *it > 0);
    let line = UsageLine {
        input_tokens: tokens.input_tokens,
        cached_input_tokens: counted(tokens.cached_input_tokens),
        cache_write_input_tokens: counted(tokens.cache_write_input_tokens),
        output_tokens: tokens.output_tokens,
        reasoning_output_tokens: counted(tokens.reasoning_output_tokens),
        calls: tokens.calls,
        cost_usd,
    };
    line.serialize(serializer)
}

/// Returns this usage of models with that of the tasks of the open step.
fn with_open_tasks(mut usage: Usage, open: &[TaskRecord]) -> Usage {
    let last: BTreeMap<TaskId, &Usage> = open.iter().map(|it| (it.task, &it.usage)).collect();
    for it in last.into_values() {
        usage.add(it);
    }
    usage
}

/// Returns the named fields that have a value, in order; all fields if none is named. Private
/// fields are excluded.
fn state(
    fields: &[String],
    private: &[String],
    mut values: BTreeMap<ChannelName, Value>,
) -> Map<String, Value> {
    values.retain(|name, _| private.iter().all(|it| it != name.as_str()));
    if fields.is_empty() {
        return values.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    }
    let named = fields.iter();
    named.filter_map(|name| Some((name.clone(), values.remove(name.as_str())?))).collect()
}

/// Returns whether the report contains an event.
fn is_reported(stamped: &RunEvent) -> bool {
    match &stamped.event {
        Event::TaskReported { report, .. } => matches!(report, TaskReport::Artifact { .. }),
        Event::TaskFinished { usage, .. }
        | Event::TaskUndecided { usage, .. }
        | Event::TaskFailed { usage, .. } => usage.tokens.calls > 0,
        _ => false,
    }
}

/// Returns the written files outside of worktrees, without duplicates, in the order of their first writing.
fn artifacts(events: &[RunEvent], folders: &[RunFolder]) -> Vec<String> {
    // Beside the worktree of the run are those of its tasks.
    let worktrees: Vec<&Path> = folders.iter().filter_map(|it| it.worktree.parent()).collect();
    let is_inside = |path: &str| worktrees.iter().any(|it| Path::new(path).starts_with(it));
    let mut paths: Vec<String> = Vec::new();
    for stamped in events {
        if let Event::TaskReported { report: TaskReport::Artifact { path }, .. } = &stamped.event
            && !is_inside(path)
            && !paths.contains(path)
        {
            paths.push(path.clone());
        }
    }
    paths
}

/// Returns the usage of each node that called models, in the order of their first completion; those that have not ended
/// follow. The last event or record of a task counts the usage of all its attempts.
fn usage_by_node(events: &[RunEvent], open: &[TaskRecord]) -> Vec<(NodeName, Usage)> {
    let mut tasks: BTreeMap<TaskId, Usage> = BTreeMap::new();
    let mut nodes: Vec<(NodeName, Vec<TaskId>)> = Vec::new();
    let ended = events.iter().filter_map(|stamped| match &stamped.event {
        Event::TaskFinished { task, node, usage, .. }
        | Event::TaskUndecided { task, node, usage, .. }
        | Event::TaskFailed { task, node, usage, .. } => Some((task, node, usage)),
        _ => None,
    });
    // An ended task has its event, under another id if the run was migrated since.
    let is_open = |it: &&TaskRecord| !it.outcome.is_final() && it.final_failure().is_none();
    let unended = last_records(open).filter(is_open).map(|it| (&it.task, &it.node, &it.usage));
    for (task, node, usage) in ended.chain(unended) {
        if usage.tokens.calls == 0 || tasks.insert(*task, *usage).is_some() {
            continue;
        }
        match nodes.iter_mut().find(|(name, _)| name == node) {
            Some((_, of_node)) => of_node.push(*task),
            None => nodes.push((node.clone(), vec![*task])),
        }
    }
    let sum = |of_node: Vec<TaskId>| {
        let mut sum = Usage::default();
        for task in of_node {
            sum.add(&tasks[&task]);
        }
        sum
    };
    nodes.into_iter().map(|(node, of_node)| (node, sum(of_node))).collect()
}

/// Returns a saved run for the tests of its views.
#[cfg(test)]
pub(crate) fn sample(status: &str) -> RunReport {
    let (saved, records, events) = saved_sample(status);
    sample_report(saved, &records, events)
}

#[cfg(test)]
fn sample_report(saved: SavedRun, records: &[TaskRecord], events: Vec<RunEvent>) -> RunReport {
    let trace = records.iter().filter_map(TraceLine::new).collect();
    let usage = saved.position.total_usage();
    let details = Details { trace, events, ..Details::default() };
    RunReport::new(saved, details, usage, &Database::default())
}

/// Returns the saved entries of a run: one task failed without a key, which was added later.
#[cfg(test)]
fn saved_sample(status: &str) -> (SavedRun, Vec<TaskRecord>, Vec<RunEvent>) {
    use serde_json::json;

    let task = |step: u64, index: u32| json!({"step": step, "index": index});
    let record = |step: u64, index: u32, node: &str, attempt: u32, ms: u64, outcome: Value| {
        let mut record = json!({"task": task(step, index), "node": node, "attempt": attempt, "ms": ms,
            "usage": {"input_tokens": 0, "output_tokens": 0, "calls": 0, "cost_usd": null}});
        record["outcome"] = outcome;
        serde_json::from_value::<TaskRecord>(record).unwrap()
    };
    let finished = || json!({"outcome": "finished", "update": {}, "transitions": []});
    let failed = |kind: &str| json!({"outcome": "failed", "failure": {"kind": kind, "message": "no", "transient": true}});
    let asked = json!({"outcome": "asked", "question": {"key": "help", "prompt": "Go on?",
        "schema": {"enum": ["go_on", "stop"]}, "show": {"plan": "ship it"}}});
    let open = match status {
        "paused" => vec![record(3, 0, "help", 1, 1, asked)],
        "failed" => vec![record(3, 0, "qa", 1, 1, failed("rate_limit"))],
        _ => Vec::new(),
    };
    let next = open.iter().map(|record| {
        let trigger = crate::graph::Trigger::Then { node: NodeName::parse("sse").unwrap() };
        crate::checkpoint::Activation::by_edge(record.node.clone(), trigger)
    });
    // In the order of completion, which differs from the order of application.
    let mut records = vec![
        record(1, 1, "ta", 2, 9_100, finished()),
        record(1, 0, "qc", 1, 2_300, finished()),
        record(2, 0, "sse", 1, 300, failed("credentials")),
        record(2, 0, "sse", 1, 64_000, finished()),
    ];
    records.extend(open.clone());
    let usage = json!({"input_tokens": 1000, "output_tokens": 500, "calls": 1, "cost_usd": null});
    let event = |seq: u64, event: Value| {
        let mut whole = json!({"v": 1, "seq": seq, "ts": "2026-01-01T12:00:00Z", "run": "01JABC"});
        whole.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        serde_json::from_value::<RunEvent>(whole).unwrap()
    };
    let done = |seq: u64, node: &str| {
        event(
            seq,
            json!({"type": "task.finished", "task": task(seq, 0), "node": node, "attempt": 1,
            "ms": 1, "writes": [], "to": [], "usage": usage}),
        )
    };
    let wrote = |seq: u64, path: &str| {
        event(
            seq,
            json!({"type": "task.reported", "task": task(2, 0), "node": "sse",
            "report": {"kind": "artifact", "path": path}}),
        )
    };
    let calls = [(1, "qc"), (2, "sse"), (3, "qc")].map(|(seq, node)| done(seq, node));
    let files = [(4, "/out/b"), (5, "/out/a"), (6, "/out/b")];
    let events: Vec<RunEvent> =
        calls.into_iter().chain(files.map(|(seq, path)| wrote(seq, path))).collect();
    let origin = Origin::new(
        std::path::Path::new("/w.yaml"),
        std::path::Path::new("/out"),
        crate::cli::arguments::options::RunOptions::default(),
    );
    let output = vec!["code".into(), "review".into(), "never".into()];
    let status = serde_json::from_value(json!(status)).unwrap();
    let reason = (status != Status::Done).then(|| "for a reason".to_owned());
    let saved = SavedRun {
        summary: crate::checkpoint::RunSummary {
            lease: None,
            updated: String::new(),
            turns: None,
            info: crate::checkpoint::RunInfo {
                id: RunId::parse("01JABC").unwrap(),
                name: "calm-otter".into(),
                created: "2026-01-01T12:00:00Z".into(),
                origin: Origin { output, ..origin.unwrap() }.to_json().unwrap(),
                ..crate::checkpoint::RunInfo::new("dev_team")
            },
            status,
            reason,
            step: crate::id::Step(2),
        },
        position: crate::checkpoint::Position {
            step: crate::id::Step(2),
            frontier: next.collect(),
            used: serde_json::from_value(json!({
                "elapsed_ms": 0, "usage": {"input_tokens": 3000, "output_tokens": 1500, "calls": 3},
            }))
            .unwrap(),
            ..Default::default()
        },
        values: [
            ("review", json!({"verdict": "rework"})),
            ("brief", json!("x")),
            ("code", json!("y")),
        ]
        .map(|(name, value)| (ChannelName::parse(name).unwrap(), value))
        .into(),
        records: open,
        entries_read: 0,
        last_entry: 0,
        last_seq: 6,
    };
    (saved, records, events)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use async_trait::async_trait;
    use serde_json::json;

    use super::*;
    use crate::{
        checkpoint::{RunJournal as _, SavedCheckpoint},
        compile::GraphBuilder,
        engine::Engine,
        graph::{END, NodeError, START},
        id::Step,
        state::Schema,
        storage::InMemoryStorage,
    };

    #[test]
    fn the_object_has_every_key_of_the_contract() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&sample("paused")).unwrap());
    }

    #[test]
    fn the_trace_is_in_task_order_not_in_finish_order() {
        let trace: Vec<(u64, String, &str)> = sample("done")
            .trace
            .into_iter()
            .map(|it| (it.step, it.node.to_string(), it.outcome))
            .collect();
        let expected = [
            (1, "qc", "finished"),
            (1, "ta", "finished"),
            (2, "sse", "failed"),
            (2, "sse", "finished"),
        ];
        assert_eq!(trace, expected.map(|(step, node, outcome)| (step, node.to_owned(), outcome)));
    }

    #[test]
    fn a_run_without_a_usable_provider_is_exit_5() {
        assert_eq!(sample("failed").exit(), Exit::Unusable);
        assert_eq!(sample("limit").exit(), Exit::Limit);
        assert_eq!(sample("done").exit(), Exit::Done);
    }

    #[test]
    fn a_run_that_a_route_to_fail_ended_cannot_be_resumed() {
        let (mut saved, mut records, events) = saved_sample("failed");
        // The missing key was added; the run continued to a route to `fail`.
        saved.position.frontier.clear();
        saved.records.clear();
        records.pop();
        let report = sample_report(saved, &records, events);
        assert_eq!((report.exit(), report.resume), (Exit::Failed, None));
        assert!(sample("failed").resume.is_some());
    }

    #[test]
    fn usage_by_node_includes_tasks_that_have_not_ended() {
        let (_, _, mut events) = saved_sample("done");
        let record = |node: &str, step: u64, calls: u64, outcome: Value| {
            let task = json!({"step": step, "index": 0});
            let usage = json!({"input_tokens": 10, "output_tokens": 5, "calls": calls});
            let record = json!({"task": task, "node": node, "attempt": 1, "ms": 1,
                "usage": usage, "outcome": outcome});
            serde_json::from_value::<TaskRecord>(record).unwrap()
        };
        let memo = |name: &str| json!({"outcome": "memo_saved", "name": name, "value": 1});
        let finished = json!({"outcome": "finished", "update": {}, "transitions": []});
        let open = [
            record("sub", 4, 1, memo("a")),
            record("sub", 4, 2, memo("b")),
            // A migration gave the ended task another id than its event has.
            record("qc", 5, 1, finished),
        ];
        let calls = |events: &[RunEvent], open: &[TaskRecord]| {
            let of_node = |(node, usage): (NodeName, Usage)| (node.to_string(), usage.tokens.calls);
            usage_by_node(events, open).into_iter().map(of_node).collect::<Vec<_>>()
        };
        let ended = calls(&events, &[]);
        let expected = [&ended[..], &[("sub".to_owned(), 2)]].concat();
        assert_eq!(calls(&events, &open), expected);
        events.clear();
        assert_eq!(calls(&events, &open), [("sub".to_owned(), 2)]);
    }

    #[test]
    fn a_workflow_without_an_output_shows_all_of_its_state() {
        let values: BTreeMap<ChannelName, Value> =
            [(ChannelName::parse("a").unwrap(), Value::from(1))].into();
        assert_eq!(state(&[], &[], values.clone()).len(), 1);
        assert!(state(&["b".to_owned()], &[], values.clone()).is_empty());
        assert!(state(&[], &["a".to_owned()], values).is_empty(), "unless it is private");
    }

    /// Counts the entries that are read.
    #[derive(Debug, Default)]
    struct Counting {
        storage: Arc<InMemoryStorage>,
        read: AtomicUsize,
    }

    #[async_trait]
    impl RunHistory for Counting {
        async fn entries(
            &self,
            run: &RunId,
            after: u64,
            limit: usize,
            detail: Detail,
        ) -> Result<Vec<JournalEntry>, CheckpointError> {
            let entries = self.storage.entries(run, after, limit, detail).await?;
            self.read.fetch_add(entries.len(), Ordering::Relaxed);
            Ok(entries)
        }

        async fn checkpoint_at(
            &self,
            run: &RunId,
            step: Step,
        ) -> Result<SavedCheckpoint, CheckpointError> {
            self.storage.checkpoint_at(run, step).await
        }
    }

    #[tokio::test]
    async fn a_report_of_a_turn_reads_no_entries_of_earlier_turns() {
        async fn nothing() -> Result<(), NodeError> {
            Ok(())
        }
        let graph = GraphBuilder::with_schema("w", Schema::default());
        let graph = graph.node("a", nothing).node("b", nothing);
        let graph = graph.edge(START, "a").edge("a", "b").edge("b", END).compile().unwrap();
        let counting = Counting::default();
        let engine = Engine::new(graph).with_storage(counting.storage.clone());
        let mut largest = 0;
        for turn in 1..=200 {
            let end = engine.turn("t", &()).await.unwrap();
            let saved = counting.storage.load(&end.run).await.unwrap();
            let before = last_entry_before_turn(&counting, &end.run, &saved).await.unwrap();
            let details = Details::read(&counting, &end.run, before, Some(&end)).await.unwrap();
            let nodes: Vec<&str> = details.trace.iter().map(|it| it.1.node.as_str()).collect();
            assert_eq!(nodes, ["a", "b"], "turn {turn}");
            largest = largest.max(counting.read.swap(0, Ordering::Relaxed));
        }
        // A page to find the beginning of the turn, and the turn.
        assert!(largest <= ENTRIES_AT_ONCE + 4, "{largest}");
    }
}
