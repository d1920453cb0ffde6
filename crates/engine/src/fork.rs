//! Forks: new runs from old checkpoints.

use std::{collections::BTreeMap, sync::Arc};

use graphrun_core::{
    event::{Event, Status},
    id::{ChannelName, RunId, Step},
    state::{State, StateError},
};
use serde_json::Value;

use super::{
    Engine, RunError,
    compare::{Comparison, compare},
    lease::Lease,
    log::Log,
    machine::{Machine, ReviseError, migrate_position, migrate_values, step_began},
    redaction::redact_changes,
    stream::Sinks,
};
use crate::checkpoint::{
    Checkpoint, Commit, Conversation, EarlierTurns, Entry, ForkSource, GraphOutline, Mapping,
    Migration, Position, RunInfo, RunStatus, RunSummary, SavedCheckpoint, SavedRun, UsedBudget,
};

/// Creates a new run from a checkpoint of another one; see [`Engine::fork`].
pub(super) async fn fork(
    engine: &Engine,
    info: RunInfo,
    from: ForkSource,
    mut changed: BTreeMap<ChannelName, Option<Value>>,
) -> Result<(), RunError> {
    redact_changes(&mut changed);
    RunId::parse(&info.name).map_err(RunError::Name)?;
    let mut saved = engine.checkpointer.checkpoint_at(&from.run, from.step).await?;
    let summary = engine.checkpointer.find(from.run.as_str()).await?;
    let is_thread = summary.info.is_thread;
    let is_between_turns = saved.position.frontier.is_empty();
    if is_between_turns {
        if !is_thread {
            return Err(ReviseError::AtItsEnd.into());
        }
        saved.position = saved.position.for_next_turn();
    }
    let (saved, old) = as_of_now(engine, summary, saved, &changed).await?;
    let settings = engine.run_settings();
    let began = step_began(&engine.graph, settings.now);
    let mut position = from_zero(Position { began, ..saved.position });
    for (name, value) in saved.values.iter().filter(|(name, _)| changed.contains_key(*name)) {
        if let Some(channel) = engine.graph.schema().channel(name.as_str()) {
            position.removed_messages.note(channel, value);
        }
    }
    let state = forked_state(engine, &from.run, saved.values, old.as_deref(), &changed)?;
    let changes = state.as_changes().collect();
    let graph = engine.graph.clone();
    let checkpoint = Checkpoint { position: position.clone(), state };
    Machine::restore(graph, settings, info.id.clone(), checkpoint.into())
        .map_err(|reason| RunError::changed(&from.run, reason))?;

    let mut log = Log::begin(&info, Sinks::default(), engine.clock.clone());
    log.add(Event::RunForked {
        from: from.run.clone(),
        step: from.step,
        set: changed.keys().map(ToString::to_string).collect(),
    });
    let forked = || {
        let reason = format!("forked from `{}` at step {}", from.name, from.step);
        RunStatus { status: Status::Interrupted, reason: Some(reason) }
    };
    let run_status = position.end_status().filter(|_| is_between_turns).unwrap_or_else(forked);
    let first = Entry {
        run_status: Some(run_status),
        events: log.unsaved(),
        ..Entry::from(Commit { position, changes })
    };
    let graph = Some(engine.outline());
    let info = RunInfo { fork_source: Some(from), graph, is_thread, ..info };
    let lease = Lease::create(&engine.checkpointer, &info, &first, engine.lease_duration).await?;
    Ok(lease.release().await?)
}

/// Returns the initial state of a fork: the checkpoint's state plus new fields of the workflow and the
/// changed values.
fn forked_state(
    engine: &Engine,
    run: &RunId,
    mut values: BTreeMap<ChannelName, Value>,
    old: Option<&GraphOutline>,
    changed: &BTreeMap<ChannelName, Option<Value>>,
) -> Result<State, RunError> {
    for channel in engine.graph.schema().channels() {
        if let (Some(old), Some(default)) = (old, channel.default())
            && !old.channels.contains_key(channel.name())
        {
            let begins = || default.as_ref().clone();
            values.entry(channel.name().clone()).or_insert_with(begins);
        }
    }
    let schema = engine.graph.schema();
    if let Some(unknown) = changed.keys().find(|it| schema.channel(it.as_str()).is_none()) {
        return Err(ReviseError::State(StateError::Unknown(unknown.clone())).into());
    }
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
            RunError::changed(run, error.into())
        }
    })?;
    state.check_size(set.map(|it| it.0)).map_err(ReviseError::State)?;
    Ok(state)
}

/// Returns a checkpoint with the current names of the run, and the graph with these names. Later
/// migrations of the run are applied to the checkpoint as well.
async fn as_of_now(
    engine: &Engine,
    summary: RunSummary,
    saved: SavedCheckpoint,
    changed: &BTreeMap<ChannelName, Option<Value>>,
) -> Result<(SavedCheckpoint, Option<Arc<GraphOutline>>), RunError> {
    let run = summary.info.id.clone();
    let journal = engine.checkpointer.journal_without_values(&run).await?;
    let is_later = |entry: &Entry| {
        entry.commit.as_ref().is_some_and(|it| it.position.step > saved.position.step)
    };
    let since = journal.into_iter().map(|it| it.entry).filter(is_later);
    // A turn keeps all names.
    let since = since.filter(|it| it.begun_turn().is_none());
    let since: Vec<Migration> = since.filter_map(|it| Some(*it.migration?)).collect();
    let Some(old) = since.first().and_then(|it| it.from.graph.clone()) else {
        return Ok((saved, summary.info.graph));
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
    let SavedCheckpoint { position, values } = saved;
    let saved = SavedRun {
        summary,
        position,
        values,
        records,
        last_seq: 0,
        last_entry: 0,
        entries_read: 0,
    };
    let new = engine.outline();
    let compared =
        Comparison { old: &old, new: &new, graph: &engine.graph, saved: &saved, messages };
    let differences = compare(compared, Some(&mapping));
    if differences.iter().any(|it| it.breaks.is_some()) {
        return Err(RunError::no_counterpart(run, differences));
    }
    let position = migrate_position(&engine.graph, &mapping, &saved, messages).position;
    let values = migrate_values(&engine.graph, &mapping, saved.values);
    Ok((SavedCheckpoint { position, values }, Some(new)))
}

/// Returns the position of a new run that starts from this one, without questions and messages.
fn from_zero(position: Position) -> Position {
    Position {
        step: Step(0),
        used: UsedBudget::default(),
        earlier: EarlierTurns::default(),
        people: Conversation::default(),
        original_tasks: BTreeMap::new(),
        ..position
    }
}
