//! Migrates a saved run to a changed workflow.

use std::collections::BTreeMap;

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{Event, EventSink, Status},
    fault::{self, Point},
    id::{ChannelName, NodeName, RunId},
};
use serde_json::Value;

use super::{
    Difference, Engine, RunError,
    compare::{Compared, compare},
    entrance::redact_mapping,
    lease::Lease,
    log::Log,
    retry::failures,
    revise::changes,
    superstep::{Machine, RestoreError, ReviseError, carry},
};
use crate::checkpoint::{
    Basis, Checkpoint, CheckpointError, Commit, Entry, InboxMessage, Mapping, Migration,
    OpenQuestion, Outline, Position, RunStatus, SavedRun, TaskRecord, open_questions,
};

/// The result of a migration.
#[derive(Clone, Debug, PartialEq)]
pub struct Migrated {
    /// The position of the migrated run.
    pub position: Position,
    /// The changes of the workflow, none of which breaks the run.
    pub differences: Vec<Difference>,
    /// The kept results of tasks of the open step.
    pub records: Vec<TaskRecord>,
    /// The open questions after the migration.
    pub questions: Vec<OpenQuestion>,
}

impl Engine {
    /// Migrates a saved run to the graph of this engine, which changed in a way that breaks the run at its
    /// current position. The mapping renames nodes and fields; everything else in the checkpoint is kept. The
    /// run changes in place, by a separate step whose entry holds the old and the new names, and stays
    /// stopped; [`Engine::resume`] continues it.
    ///
    /// `origin` is stored for the program that resumes the run; without one, the stored origin is kept.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use graphrun_analysis::compile;
    /// use graphrun_core::{
    ///     event::EventSink,
    ///     graph::{GraphBuilder, NodeContext, NodeError, node_fn},
    ///     id::NodeName,
    ///     state::Update,
    /// };
    /// use graphrun_engine::{
    ///     Answers, Engine, Stop,
    ///     checkpoint::{Mapping, RunInfo},
    ///     storage::MemoryStorage,
    ///     superstep::Pauses,
    /// };
    ///
    /// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Board { draft: Option<String> }
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Nothing {}
    ///
    /// # let graph = |second: &str| {
    /// #     let write = |_: Nothing, ctx: NodeContext| async move {
    /// #         Ok::<_, NodeError>(Board { draft: Some(ctx.node.to_string()) })
    /// #     };
    /// #     let graph = GraphBuilder::new::<Board>("board");
    /// #     let graph = graph.node("first", node_fn(write)).node(second, node_fn(write));
    /// #     compile(graph.entry("first").then("first", second).build()).unwrap().0
    /// # };
    /// let storage = Arc::new(MemoryStorage::default());
    /// let second = NodeName::parse("second")?;
    /// let pauses = Pauses { before: [second.clone()].into(), ..Pauses::default() };
    /// let engine = Engine::new(graph("second"), storage.clone()).with_pauses(pauses);
    /// let (info, stop) = (RunInfo::new("board"), Stop::default());
    /// let run = info.id.clone();
    /// engine.start(info, Update::default(), EventSink::default(), &stop).await?;
    ///
    /// // `second` has another name by now.
    /// let engine = Engine::new(graph("last"), storage);
    /// let mapping = Mapping::default().node(second, NodeName::parse("last")?);
    /// engine.migrate(&run, &mapping, None).await?;
    /// let end = engine.resume(&run, Answers::default(), EventSink::default(), &stop).await?;
    /// assert_eq!(end.state.get("draft").and_then(|it| it.as_str()), Some("last"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, when another process owns the run, the run has ended, or it has parts
    /// without a counterpart that the mapping does not mention: [`RunError::NoPlace`] lists them all.
    pub async fn migrate(
        &self,
        run: &RunId,
        mapping: &Mapping,
        origin: Option<Value>,
    ) -> Result<Migrated, RunError> {
        let mut mapping = mapping.clone();
        redact_mapping(&mut mapping);
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let migrated = self.migrate_held(&lease, run, &mapping, origin).await;
        let (lease, migrated) = lease.or_give_back(migrated).await?;
        lease.forget();
        Ok(migrated)
    }

    async fn migrate_held(
        &self,
        lease: &Lease,
        run: &RunId,
        mapping: &Mapping,
        origin: Option<Value>,
    ) -> Result<Migrated, RunError> {
        fault::hit(Point::AcquireAfter).map_err(CheckpointError::injected)?;
        let saved = self.checkpointer.load(run).await?;
        let messages = self.new_messages(&saved).await?;
        let from = saved.summary.info.basis();
        let origin = origin.unwrap_or_else(|| from.origin.clone());
        let workflow = self.graph.graph().name.clone();
        let graph = Some(Box::new(Outline::of(&self.graph)));
        let to = Basis { workflow, origin, graph };
        let (before, last_seq) = (saved.values.clone(), saved.last_seq);
        let prior = PriorStatus::of(&saved, mapping);
        let (migrated, state) = self.carried(saved, &messages, mapping)?;

        let position = migrated.position.clone();
        let mut log = Log::new(run.clone(), (EventSink::default(), last_seq), self.clock.clone());
        log.add(migrated_to(&to.workflow, &position, mapping));
        let records = migrated.records.clone();
        let entry = Entry {
            records: Vec::new(),
            commit: Some(Commit { position, changes: changes(&before, &state) }),
            migration: Some(Box::new(Migration { from, to, mapping: mapping.clone(), records })),
            run_status: Some(prior.after(&migrated)),
            events: log.unsaved(),
        };
        self.checkpointer.append(lease.hold(), &entry).await?;
        fault::hit_each(entry.points_after_commit()).map_err(CheckpointError::injected)?;
        Ok(migrated)
    }

    /// Returns the result [`Engine::migrate`] would have. It changes nothing and needs no lease.
    ///
    /// # Errors
    ///
    /// As [`Engine::migrate`].
    pub async fn try_migration(
        &self,
        run: &RunId,
        mapping: &Mapping,
    ) -> Result<Migrated, RunError> {
        let saved = self.checkpointer.load(run).await?;
        let messages = self.new_messages(&saved).await?;
        Ok(self.carried(saved, &messages, mapping)?.0)
    }

    fn carried(
        &self,
        saved: SavedRun,
        messages: &[InboxMessage],
        mapping: &Mapping,
    ) -> Result<(Migrated, graphrun_core::state::State), RunError> {
        if saved.position.frontier.is_empty() {
            return Err(ReviseError::AtItsEnd.into());
        }
        let run = saved.summary.info.id.clone();
        let (graph, new) = (&self.graph, &Outline::of(&self.graph));
        let unknown = Outline::default();
        let old = saved.summary.info.graph.as_deref().unwrap_or(&unknown);
        let compared = Compared { old, new, graph, saved: &saved, messages };
        if saved.summary.info.graph.is_none() {
            // Without an outline, missing parts cannot be detected, so nothing may be missing.
            fit_by(mapping, graph, &saved.position)
                .map_err(|source| RunError::Changed { run: run.clone(), source })?;
        }
        let mut differences = compare(compared, Some(mapping));
        let carried = carry(graph, mapping, (&saved.position, &saved.records), messages);
        let is_settled = differences.iter().all(|it| it.breaks.is_none());
        if is_settled && carried.position.frontier.is_empty() {
            differences.insert(0, nothing_left(&carried.position));
        }
        if differences.iter().any(|it| it.breaks.is_some()) {
            return Err(RunError::NoPlace { run, differences });
        }
        graph.schema().check_set(&mapping.set).map_err(ReviseError::State)?;
        let changed = |source| RunError::Changed { run: run.clone(), source };
        let values = self.values_by(mapping, saved.values);
        let state = graph.schema().restore(values).map_err(|it| changed(it.into()))?;
        state.check_size(mapping.set.keys()).map_err(ReviseError::State)?;
        let (position, records) = (carried.position, carried.records);
        let checkpoint = Checkpoint { position: position.clone(), state: state.clone() };
        let again = (checkpoint, records.clone());
        let terms = self.terms();
        let machine = Machine::restore_only(graph.clone(), terms, run.clone(), again, None);
        let questions = machine.map_err(changed)?.0.open_questions();
        Ok((Migrated { position, differences, records, questions }, state))
    }

    /// Returns the values of a run by the names of the graph. New fields get their defaults.
    pub(super) fn values_by(
        &self,
        mapping: &Mapping,
        saved: BTreeMap<ChannelName, Value>,
    ) -> BTreeMap<ChannelName, Value> {
        let schema = self.graph.schema();
        let named = saved.into_iter().filter_map(|(name, value)| {
            let name = mapping.new_field_of(&name)?;
            schema.channel(name.as_str()).is_some().then_some((name, value))
        });
        let mut values: BTreeMap<ChannelName, Value> = named.collect();
        for channel in schema.channels() {
            if let Some(default) = channel.default() {
                values.entry(channel.name().clone()).or_insert_with(|| default.as_ref().clone());
            }
        }
        values.extend(mapping.set.clone());
        values
    }
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

/// The difference reported when the migrated run would have an empty frontier.
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

fn migrated_to(workflow: &str, position: &Position, mapping: &Mapping) -> Event {
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
    fn after(self, migrated: &Migrated) -> RunStatus {
        let Self { status, reason, had_asked } = self;
        let keys: Vec<&str> =
            migrated.questions.iter().map(|it| it.question.key.as_str()).collect();
        let failed = failures(&migrated.records).into_iter().next();
        let reason = match (status, failed) {
            (Status::Failed, Some((node, failure))) => {
                Some(format!("`{node}` failed: {}", failure.message))
            }
            (Status::Paused, _) if !keys.is_empty() => {
                Some(format!("waiting for an answer to {}", keys.join(", ")))
            }
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
