//! Changes that people make to the state of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::{
    event::{Event, Status},
    id::{ChannelName, NodeName},
    state::{Change, ChangeKind, State, Update},
};
use serde_json::Value;

use super::{
    Engine, RunError,
    lease::Lease,
    log::Log,
    machine::{self, Machine, Revision, SavedStep},
    redaction::redact_update,
    resume::saved_checkpoint,
    stream::Sinks,
};
use crate::checkpoint::{Commit, Entry, Position, RunStatus, SavedRun};

/// Updates the state of the run of a lease; see [`Engine::update`].
pub(super) async fn update(
    engine: &Engine,
    lease: &Lease,
    mut update: Update,
    node: Option<&NodeName>,
) -> Result<Position, RunError> {
    redact_update(&mut update);
    let run = &lease.token().run;
    let saved = engine.checkpointer.load(run).await?;
    let before = saved.values.clone();
    let last_seq = saved.last_seq;
    let revision = revise(engine, saved, &update, node)?;
    let written = update.writes.iter().map(|(name, _)| name);
    let mut writes: Vec<ChannelName> = update.clears.iter().chain(written).cloned().collect();
    writes.sort();
    writes.dedup();
    let mut log = Log::after(last_seq, run.clone(), Sinks::default(), engine.clock.clone());
    log.add(Event::StateUpdated {
        step: revision.position.step,
        node: node.cloned(),
        writes: writes.iter().map(ToString::to_string).collect(),
    });
    let position = revision.position.clone();
    let mut entry = entry_of(revision, &before, "its state was updated");
    entry.events = log.unsaved();
    engine.checkpointer.append(lease.token(), &entry).await?;
    Ok(position)
}

/// Returns the step that an update adds to a saved run.
fn revise(
    engine: &Engine,
    saved: SavedRun,
    update: &Update,
    node: Option<&NodeName>,
) -> Result<Revision, RunError> {
    let SavedRun { summary, position, values, records, .. } = saved;
    let run = summary.info.id;
    let checkpoint = saved_checkpoint(engine, &run, position, values)?;
    let graph = engine.graph.clone();
    let settings = engine.run_settings();
    let machine =
        Machine::with_records(graph, settings, run.clone(), SavedStep::new(checkpoint, records));
    let machine = machine.map_err(|reason| RunError::changed(&run, reason))?;
    Ok(machine::revise(&machine, update, node)?)
}

/// Returns the entry of a step made by a person, after which the run is stopped.
fn entry_of(revision: Revision, before: &BTreeMap<ChannelName, Value>, reason: &str) -> Entry {
    let Revision { records, position, state } = revision;
    let stopped = || RunStatus { status: Status::Interrupted, reason: Some(reason.to_owned()) };
    Entry {
        records,
        run_status: Some(position.end_status().unwrap_or_else(stopped)),
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
