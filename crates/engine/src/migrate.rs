//! Migrates a saved run to a changed workflow.

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{Event, Status},
    fault::{self, Point},
    id::{NodeName, RunId},
    state::State,
};
use serde_json::Value;

use super::{
    Difference, Engine, RunError,
    compare::{Comparison, compare},
    lease::Lease,
    log::Log,
    machine::{Machine, RestoreError, ReviseError, SavedStep, migrate_position, migrate_values},
    redaction::redact_mapping,
    resume::{new_messages, saved_checkpoint},
    retry::failed_records,
    revise::changes,
    stream::Sinks,
};
use crate::checkpoint::{
    Basis, CheckpointError, Commit, Entry, GraphOutline, InboxMessage, Mapping, Migration,
    OpenQuestion, Position, RunStatus, SavedRun, TaskRecord, open_questions, unanswered,
};

/// The result of a migration.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationResult {
    /// The position of the migrated run.
    pub position: Position,
    /// The changes of the workflow, none of which breaks the run.
    pub differences: Vec<Difference>,
    /// The kept results of tasks of the open step.
    pub records: Vec<TaskRecord>,
    /// The open questions after the migration.
    pub questions: Vec<OpenQuestion>,
}

/// Migrates the run of a lease; see [`Engine::migrate`].
pub(super) async fn migrate(
    engine: &Engine,
    lease: &Lease,
    mut mapping: Mapping,
    origin: Option<Value>,
) -> Result<MigrationResult, RunError> {
    redact_mapping(&mut mapping);
    let run = &lease.token().run;
    fault::hit(Point::AcquireAfter).map_err(CheckpointError::injected)?;
    let saved = engine.checkpointer.load(run).await?;
    let messages = new_messages(engine, &saved).await?;
    let from = saved.summary.info.basis();
    let origin = origin.unwrap_or_else(|| from.origin.clone());
    let workflow = engine.graph.definition().name.clone();
    let graph = Some(engine.outline());
    let to = Basis { workflow, origin, graph };
    let before = saved.values.clone();
    let last_seq = saved.last_seq;
    let prior = PriorStatus::of(&saved, &mapping);
    let (migrated, state) = compute_migration(engine, saved, &messages, &mapping)?;

    let position = migrated.position.clone();
    let mut log = Log::after(last_seq, run.clone(), Sinks::default(), engine.clock.clone());
    log.add(event_of_migration(&to.workflow, &position, &mapping));
    let records = migrated.records.clone();
    let entry = Entry {
        records: Vec::new(),
        commit: Some(Commit { position, changes: changes(&before, &state) }),
        migration: Some(Box::new(Migration { from, to, mapping, records })),
        run_status: Some(prior.after(&migrated)),
        events: log.unsaved(),
    };
    engine.checkpointer.append(lease.token(), &entry).await?;
    fault::hit_each(entry.points_after_commit()).map_err(CheckpointError::injected)?;
    Ok(migrated)
}

/// Returns the result of a migration, and changes nothing.
pub(super) async fn try_migration(
    engine: &Engine,
    run: &RunId,
    mapping: &Mapping,
) -> Result<MigrationResult, RunError> {
    let saved = engine.checkpointer.load(run).await?;
    let messages = new_messages(engine, &saved).await?;
    Ok(compute_migration(engine, saved, &messages, mapping)?.0)
}

fn compute_migration(
    engine: &Engine,
    saved: SavedRun,
    messages: &[InboxMessage],
    mapping: &Mapping,
) -> Result<(MigrationResult, State), RunError> {
    let has_ended = saved.position.frontier.is_empty();
    if has_ended && !saved.summary.info.is_thread {
        return Err(ReviseError::AtItsEnd.into());
    }
    let position = if has_ended { saved.position.for_next_turn() } else { saved.position };
    let saved = SavedRun { position, ..saved };
    let run = saved.summary.info.id.clone();
    let graph = &engine.graph;
    let new = engine.outline();
    let unknown = GraphOutline::default();
    let old = saved.summary.info.graph.as_deref().unwrap_or(&unknown);
    let compared = Comparison { old, new: &new, graph, saved: &saved, messages };
    if saved.summary.info.graph.is_none() {
        // Without an outline, missing parts cannot be detected, so nothing may be missing.
        fit_by(mapping, graph, &saved.position)
            .map_err(|reason| RunError::changed(&run, reason))?;
    }
    let mut differences = compare(compared, Some(mapping));
    let moved = migrate_position(graph, mapping, &saved, messages);
    let is_settled = differences.iter().all(|it| it.breaks.is_none());
    if is_settled && moved.position.frontier.is_empty() && !has_ended {
        differences.insert(0, nothing_left(&moved.position));
    }
    if differences.iter().any(|it| it.breaks.is_some()) {
        return Err(RunError::no_counterpart(run, differences));
    }
    graph.schema().check_set(&mapping.set).map_err(ReviseError::State)?;
    let position = moved.position;
    let records = moved.records;
    let values = migrate_values(graph, mapping, saved.values);
    let checkpoint = saved_checkpoint(engine, &run, position.clone(), values)?;
    let state = checkpoint.state.clone();
    state.check_size(mapping.set.keys()).map_err(ReviseError::State)?;
    let settings = engine.run_settings();
    let saved = SavedStep::new(checkpoint, records.clone());
    let machine = Machine::with_records(graph.clone(), settings, run.clone(), saved);
    let machine = machine.map_err(|reason| RunError::changed(&run, reason))?;
    let questions = machine.open_questions();
    Ok((MigrationResult { position, differences, records, questions }, state))
}

/// Checks that every node of the frontier has a counterpart or was dropped.
fn fit_by(
    mapping: &Mapping,
    graph: &CompiledGraph,
    position: &Position,
) -> Result<(), RestoreError> {
    let new = position.frontier.iter().filter_map(|it| mapping.new_name_of(&it.node));
    let missing = { new }.find(|it| graph.node(it).is_none());
    missing.map_or(Ok(()), |it| Err(RestoreError::Node(it)))
}

/// Returns the difference reported when the migrated run would have an empty frontier.
fn nothing_left(position: &Position) -> Difference {
    Difference {
        what: "the migrated run would have no task left".to_owned(),
        breaks: Some(match &position.failure {
            Some(failure) => format!("it would fail: {failure}"),
            None => "it would be finished, but it is not".to_owned(),
        }),
        hint: Some("`--map NODE=NODE` names the node to continue at".to_owned()),
        remedies: Vec::new(),
    }
}

fn event_of_migration(workflow: &str, position: &Position, mapping: &Mapping) -> Event {
    let nodes = mapping.nodes.iter().map(|(old, new)| format!("{old} → {new}"));
    let fields = mapping.fields.iter().map(|(old, new)| format!("{old} → {new}"));
    let dropped = mapping.dropped_nodes.iter().map(ToString::to_string);
    let dropped = dropped.chain(mapping.dropped_fields.iter().map(ToString::to_string));
    Event::WorkflowMigrated {
        step: position.step,
        workflow: workflow.to_owned(),
        mapped: nodes.chain(fields).collect(),
        dropped: dropped.collect(),
        again: mapping.again.iter().map(ToString::to_string).collect(),
        set: mapping.set.keys().map(ToString::to_string).collect(),
        next: position.frontier.iter().map(|it| it.node.clone()).collect(),
    }
}

/// The status of a run before its migration, with the reason, and whether it had open questions.
struct PriorStatus {
    status: Status,
    reason: Option<String>,
    had_asked: bool,
}

impl PriorStatus {
    fn of(saved: &SavedRun, mapping: &Mapping) -> Self {
        let status = saved.summary.status;
        let named = |reason: String, (old, new): (&NodeName, &NodeName)| {
            reason.replace(&format!("`{old}`"), &format!("`{new}`"))
        };
        let reason = saved.summary.reason.clone();
        let reason = reason.map(|it| mapping.nodes.iter().fold(it, named));
        let had_asked = !open_questions(&saved.position, &saved.records).is_empty();
        Self { status, reason, had_asked }
    }

    /// Returns the status after the migration: the same as before, with the new names.
    fn after(self, migrated: &MigrationResult) -> RunStatus {
        let Self { status, reason, had_asked } = self;
        if migrated.position.frontier.is_empty() {
            // The next turn of the thread continues it.
            return RunStatus { status, reason };
        }
        let unanswered = unanswered(&migrated.questions);
        let failed = failed_records(&migrated.records).into_iter().next();
        let reason = match (status, failed) {
            (Status::Failed, Some(failed)) => failed.failure_reason(),
            (Status::Paused, _) if unanswered.is_some() => unanswered,
            (Status::Paused, _) if !had_asked => reason,
            (Status::Limit | Status::Interrupted, _) => reason,
            _ => {
                // The question or failure was dropped by the migration, or the process had died.
                let reason = Some("it was migrated to another workflow".to_owned());
                return RunStatus { status: Status::Interrupted, reason };
            }
        };
        RunStatus { status, reason }
    }
}
