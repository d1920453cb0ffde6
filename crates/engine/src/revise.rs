//! Changes that people make to runs: a state update, and a fork from an old checkpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::{
    event::{Event, EventSink, Status},
    id::{ChannelName, NodeName, RunId, Step},
    state::{Change, ChangeKind, State, Update},
};
use graphrun_guard::redact::redact_value;
use serde_json::Value;

use super::{
    Engine, RunError,
    compare::{Compared, compare},
    entrance::redact_update,
    lease::Lease,
    log::Log,
    superstep::{self, Machine, ReviseError, Revised, carry},
};
use crate::checkpoint::{
    Checkpoint, Commit, Conversation, Entry, ForkSource, Mapping, Migration, Outline, Position,
    RunInfo, RunStatus, RunSummary, SavedRun, UsedBudget,
};

impl Engine {
    /// Updates the state of a stopped run like an update by `node`. The update goes through the reducers and
    /// the schema; the routes of the node decide what runs next.
    ///
    /// If the node is in the frontier, its task counts as finished. If the run has ended, it continues at the
    /// targets of the node. Without a node, only the state changes. Results of finished tasks of the open
    /// step are kept, and open questions are asked again. The update is a separate step; the run is not
    /// driven.
    ///
    /// Returns the position after the update.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, when another process owns the run, the update does not fit, or the node is
    /// not in the frontier.
    #[doc(alias = "update_state")]
    pub async fn update(
        &self,
        run: &RunId,
        mut update: Update,
        node: Option<&NodeName>,
    ) -> Result<Position, RunError> {
        redact_update(&mut update);
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let updated = self.update_held(&lease, run, update, node).await;
        let (lease, position) = lease.or_give_back(updated).await?;
        lease.forget();
        Ok(position)
    }

    async fn update_held(
        &self,
        lease: &Lease,
        run: &RunId,
        update: Update,
        node: Option<&NodeName>,
    ) -> Result<Position, RunError> {
        let saved = self.checkpointer.load(run).await?;
        let before = saved.values.clone();
        let last_seq = saved.last_seq;
        let revised = self.revise(saved, &update, node)?;
        let written = update.writes.iter().map(|(name, _)| name);
        let mut writes: Vec<ChannelName> = update.clears.iter().chain(written).cloned().collect();
        writes.sort();
        writes.dedup();
        let mut log = Log::new(run.clone(), (EventSink::default(), last_seq), self.clock.clone());
        log.add(Event::StateUpdated {
            step: revised.position.step,
            node: node.cloned(),
            writes: writes.iter().map(ToString::to_string).collect(),
        });
        let position = revised.position.clone();
        let mut entry = revision(revised, &before, "its state was updated");
        entry.events = log.unsaved();
        self.checkpointer.append(lease.hold(), &entry).await?;
        Ok(position)
    }

    /// Creates a new run from a checkpoint of another one, with other values in some channels. The other run
    /// does not change. The new run is stopped; [`Engine::resume`] continues it.
    ///
    /// Its steps and its usage start at zero. The visit counts of nodes are kept, so that loops stay bounded.
    /// If the run was migrated after the checkpoint, the same migration is applied to the checkpoint.
    ///
    /// # Errors
    ///
    /// Fails, and creates nothing, when the run had ended at that checkpoint, a value does not fit its
    /// channel, or the checkpoint does not fit the graph.
    pub async fn fork(
        &self,
        info: RunInfo,
        from: ForkSource,
        mut changed: BTreeMap<ChannelName, Option<Value>>,
    ) -> Result<(), RunError> {
        for value in changed.values_mut().flatten() {
            redact_value(value);
        }
        let (position, values) = self.checkpointer.checkpoint_at(&from.run, from.step).await?;
        if position.frontier.is_empty() {
            return Err(ReviseError::AtItsEnd.into());
        }
        let summary = self.checkpointer.find(from.run.as_str()).await?;
        let (position, values, old) = self.as_of_now(summary, (position, values), &changed).await?;
        let position = from_zero(position);
        let state = self.forked_state(&from.run, values, old.as_deref(), &changed)?;
        let changes = state.as_changes().collect();
        let (graph, limits) = (self.graph.clone(), self.limits.clone());
        let checkpoint = Checkpoint { position: position.clone(), state };
        Machine::restore(graph, limits, info.id.clone(), checkpoint, Vec::new())
            .map_err(|source| RunError::Changed { run: from.run.clone(), source })?;

        let mut log = Log::begin(&info, EventSink::default(), self.clock.clone());
        log.add(Event::RunForked {
            from: from.run.clone(),
            step: from.step,
            set: changed.keys().map(ToString::to_string).collect(),
        });
        let reason = format!("forked from `{}` at step {}", from.name, from.step);
        let run_status = RunStatus { status: Status::Interrupted, reason: Some(reason) };
        let first = Entry {
            run_status: Some(run_status),
            events: log.unsaved(),
            ..Entry::from(Commit { position, changes })
        };
        let graph = Some(Box::new(Outline::of(&self.graph)));
        let info = RunInfo { fork_source: Some(from), graph, ..info };
        let lease = Lease::create(&self.checkpointer, &info, &first, self.lease).await?;
        self.checkpointer.release(lease.hold()).await?;
        lease.forget();
        Ok(())
    }

    /// Returns the initial state of a fork: the checkpoint's state plus new fields of the workflow and the
    /// changed values.
    fn forked_state(
        &self,
        run: &RunId,
        mut values: BTreeMap<ChannelName, Value>,
        old: Option<&Outline>,
        changed: &BTreeMap<ChannelName, Option<Value>>,
    ) -> Result<State, RunError> {
        for channel in self.graph.schema().channels() {
            if let (Some(old), Some(default)) = (old, channel.default())
                && !old.channels.contains_key(channel.name())
            {
                let begins = || default.as_ref().clone();
                values.entry(channel.name().clone()).or_insert_with(begins);
            }
        }
        let schema = self.graph.schema();
        let set = changed.iter().filter_map(|(channel, value)| Some((channel, value.as_ref()?)));
        schema.check_set(set.clone()).map_err(ReviseError::State)?;
        for (channel, value) in changed {
            match value {
                Some(value) => drop(values.insert(channel.clone(), value.clone())),
                None => drop(values.remove(channel)),
            }
        }
        let state = schema.restore(values).map_err(|error| {
            // An error in a given value is reported as an error of the caller.
            if changed.contains_key(error.channel()) {
                RunError::from(ReviseError::State(error))
            } else {
                RunError::Changed { run: run.clone(), source: error.into() }
            }
        })?;
        state.check_size(set.map(|it| it.0)).map_err(ReviseError::State)?;
        Ok(state)
    }

    /// Returns a checkpoint with the current names of the run, and the graph with these names. Later
    /// migrations of the run are applied to the checkpoint as well.
    async fn as_of_now(
        &self,
        summary: RunSummary,
        (position, values): (Position, BTreeMap<ChannelName, Value>),
        changed: &BTreeMap<ChannelName, Option<Value>>,
    ) -> Result<(Position, BTreeMap<ChannelName, Value>, Option<Box<Outline>>), RunError> {
        let run = summary.info.id.clone();
        let journal = self.checkpointer.outline(&run).await?;
        let is_later =
            |it: &Entry| it.commit.as_ref().is_some_and(|it| it.position.step > position.step);
        let since = journal.into_iter().map(|it| it.entry).filter(is_later);
        let since: Vec<Migration> = since.filter_map(|it| Some(*it.migration?)).collect();
        let Some(old) = since.first().and_then(|it| it.from.graph.clone()) else {
            return Ok((position, values, summary.info.graph));
        };
        let mappings: Vec<&Mapping> = since.iter().map(|it| &it.mapping).collect();
        let mut mapping = Mapping::in_a_row(&old, &mappings);
        for (field, value) in changed {
            match value {
                Some(value) => mapping = mapping.set(field.clone(), value.clone()),
                None => drop(mapping.set.remove(field)),
            }
        }
        let messages = &[];
        let records = Vec::new();
        let saved = SavedRun { summary, position, values, records, last_seq: 0 };
        let new = Outline::of(&self.graph);
        let compared =
            Compared { old: &old, new: &new, graph: &self.graph, saved: &saved, messages };
        let differences = compare(compared, Some(&mapping));
        if differences.iter().any(|it| it.breaks.is_some()) {
            return Err(RunError::NoPlace { run, differences });
        }
        let position = carry(&self.graph, &mapping, (&saved.position, &[]), messages).position;
        let values = self.values_by(&mapping, saved.values);
        Ok((position, values, Some(Box::new(new))))
    }

    /// Returns the step that an update adds to a saved run.
    fn revise(
        &self,
        saved: SavedRun,
        update: &Update,
        node: Option<&NodeName>,
    ) -> Result<Revised, RunError> {
        let SavedRun { summary, position, values, records, .. } = saved;
        let run = summary.info.id;
        let changed = |source| RunError::Changed { run: run.clone(), source };
        let state = self.graph.schema().restore(values).map_err(|it| changed(it.into()))?;
        let saved = (Checkpoint { position, state }, records);
        let (graph, limits) = (self.graph.clone(), self.limits.clone());
        let revised = superstep::revise(graph, limits, run.clone(), saved, (update, node));
        Ok(revised.map_err(changed)??)
    }
}

/// Returns the position of a new run that starts from this one, without questions and messages.
fn from_zero(position: Position) -> Position {
    Position {
        step: Step(0),
        used: UsedBudget::default(),
        people: Conversation::default(),
        original_tasks: BTreeMap::new(),
        ..position
    }
}

/// Returns the entry of a step made by a person, after which the run is stopped.
fn revision(revised: Revised, before: &BTreeMap<ChannelName, Value>, reason: &str) -> Entry {
    let Revised { record, position, state } = revised;
    let run_status = if !position.frontier.is_empty() {
        RunStatus { status: Status::Interrupted, reason: Some(reason.to_owned()) }
    } else if position.failure.is_some() {
        RunStatus { status: Status::Failed, reason: position.failure.clone() }
    } else {
        RunStatus { status: Status::Done, reason: None }
    };
    Entry {
        records: record.into_iter().collect(),
        run_status: Some(run_status),
        ..Entry::from(Commit { position, changes: changes(before, &state) })
    }
}

/// Returns the changes that lead from the old values to this state.
pub(super) fn changes(before: &BTreeMap<ChannelName, Value>, state: &State) -> Vec<Change> {
    let now: BTreeMap<&str, &Value> = state.iter().collect();
    let names: BTreeSet<&str> =
        before.keys().map(ChannelName::as_str).chain(now.keys().copied()).collect();
    let mut changes = Vec::new();
    for name in names {
        let kind = match (before.get(name), now.get(name).copied()) {
            (Some(old), Some(new)) if old == new => continue,
            (Some(Value::Array(old)), Some(Value::Array(new))) if new.starts_with(old) => {
                ChangeKind::Appended(new[old.len()..].to_vec())
            }
            (_, Some(new)) => ChangeKind::Set(Arc::new(new.clone())),
            (_, None) => ChangeKind::Cleared,
        };
        let channel = ChannelName::parse_path(name).expect("it is the name of a channel");
        changes.push(Change { channel, kind });
    }
    changes
}
