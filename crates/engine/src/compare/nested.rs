//! Changes of the workflows of nested runs.
//!
//! A migration does not move nested runs. One that has begun continues with the changed workflow if nothing in it breaks;
//! otherwise its task must start again.

use std::collections::BTreeMap;

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{SavedValues, with_causes},
    id::{NodeName, TaskId},
};

use super::{Comparison, Difference, Differences, Names, Remedy, compare};
use crate::{
    checkpoint::{Checkpoint, GraphOutline, Outcome, Position, SavedRun, last_records},
    machine::{Machine, RestoreError, RunSettings, SavedStep},
    nested::begun_run,
};

/// The beginning of a reason for which a nested run cannot continue. One within others has it once.
const BEGUN: &str = "in a nested run that has begun, ";

/// Collects the changes of the workflows of nested runs.
pub(super) struct NestedChanges<'a> {
    names: Names<'a>,
    found: Differences,
}

impl<'a> NestedChanges<'a> {
    pub(super) fn find(names: Names<'a>) -> Differences {
        let mut changes = Self { names, found: Differences::default() };
        for name in names.compared.old.nodes.keys() {
            if let Some(now) = names.node(name) {
                changes.compare_node(name, &now);
            }
        }
        changes.found
    }

    fn compare_node(&mut self, name: &NodeName, now: &NodeName) {
        let Comparison { old, graph, new, saved, .. } = self.names.compared;
        let is_again = self.names.mapping.again.contains(name);
        let begun = if is_again { Vec::new() } else { begun_tasks(saved, name) };
        let nested = graph.nested_graph_of(now).zip(new.nested_of(now));
        let Some((graph, new)) = nested else {
            if !begun.is_empty() {
                let what = format!("the tasks of `{now}` are no longer nested runs");
                self.add(name, what, Some("a nested run has begun".to_owned()));
            }
            return;
        };
        for memos in begun {
            match begun_run(&memos) {
                Ok(Some(run)) => self.compare_run(name, now, graph, &new, &run),
                Ok(None) => (),
                Err(error) => {
                    let what = format!("a nested run of `{now}` cannot be read");
                    self.add(name, what, Some(with_causes(&error)));
                }
            }
        }
        if let Some(old) = old.nested_of(name).filter(|it| *it != new) {
            let unbegun = SavedRun {
                summary: saved.summary.clone(),
                position: Position::default(),
                values: BTreeMap::new(),
                records: Vec::new(),
                ..*saved
            };
            let compared =
                Comparison { old: &old, new: &new, graph, saved: &unbegun, messages: &[] };
            for Difference { what, .. } in compare(compared, None) {
                self.add(name, format!("in `{now}`: {what}"), None);
            }
        }
    }

    /// Compares the workflow of a nested run that has begun.
    fn compare_run(
        &mut self,
        name: &NodeName,
        now: &NodeName,
        graph: &CompiledGraph,
        new: &GraphOutline,
        saved: &SavedRun,
    ) {
        let Some(old) = saved.summary.info.graph.as_deref().filter(|it| *it != new) else { return };
        let differences = compare(Comparison { old, new, graph, saved, messages: &[] }, None);
        let is_broken = differences.iter().any(|it| it.breaks.is_some());
        let misfit = if is_broken { None } else { misfit(graph, saved) };
        for Difference { what, breaks, .. } in differences {
            let breaks =
                breaks.map(|it| if it.starts_with(BEGUN) { it } else { format!("{BEGUN}{it}") });
            self.add(name, format!("in `{now}`: {what}"), breaks);
        }
        if let Some(error) = misfit {
            let what = format!("a nested run of `{now}` does not fit its workflow");
            self.add(name, what, Some(with_causes(&error)));
        }
    }

    /// Adds a difference of a node, once for all of its tasks.
    fn add(&mut self, name: &NodeName, what: String, breaks: Option<String>) {
        let again = Remedy::Again(name.clone());
        let hint = format!("`{again}` starts the tasks of `{name}` from the beginning");
        let known = self.found.0.iter().position(|it| it.what == what);
        match (known, breaks) {
            (Some(at), Some(breaks)) if self.found.0[at].breaks.is_none() => {
                self.found.0.remove(at);
                self.found.broken(what, breaks, hint, vec![again]);
            }
            (None, Some(breaks)) => self.found.broken(what, breaks, hint, vec![again]),
            (None, None) => self.found.note(what),
            (Some(_), _) => (),
        }
    }
}

/// Returns the memos of nested runs of the tasks of a node that run again.
fn begun_tasks(saved: &SavedRun, name: &NodeName) -> Vec<SavedValues> {
    let mut begun: BTreeMap<TaskId, SavedValues> = BTreeMap::new();
    for record in saved.records.iter().filter(|it| it.node == *name && it.is_of_nested_run()) {
        if let Outcome::MemoSaved { name, value } = &record.outcome {
            begun.entry(record.task).or_default().insert(name.clone(), value.clone());
        }
    }
    for last in last_records(&saved.records) {
        // The node of an undecided task has finished.
        if last.outcome.is_final() || matches!(last.outcome, Outcome::Undecided { .. }) {
            begun.remove(&last.task);
        }
    }
    begun.into_values().collect()
}

/// Returns why a saved run cannot be restored with a graph.
fn misfit(graph: &CompiledGraph, saved: &SavedRun) -> Option<RestoreError> {
    let SavedRun { summary, position, values, records, .. } = saved.clone();
    let restore = || {
        let state = graph.schema().restore(values)?;
        let step = SavedStep::new(Checkpoint { position, state }, records);
        Machine::with_records(graph.clone(), RunSettings::default(), summary.info.id, step)
    };
    restore().err()
}
