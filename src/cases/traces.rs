//! The data of a run that an expectation is compared with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::coverage::Trail;
use crate::{
    checkpoint::{Outcome, Position, TaskRecord},
    event::{Event, RunEvent, Status},
    id::{ChannelName, NodeName, Step, TaskId},
};

/// The prompt of a task, or why it cannot be rendered.
pub(super) type RenderedPrompt = Result<String, String>;

/// The data of a run that the expectation is compared with.
#[derive(Debug)]
pub(super) struct Traces {
    pub(super) status: Status,
    pub(super) reason: Option<String>,
    pub(super) values: BTreeMap<ChannelName, Value>,
    /// The nodes of each step, in the order of their names.
    pub(super) route: Vec<Vec<NodeName>>,
    /// How often each node ran.
    pub(super) visits: BTreeMap<NodeName, usize>,
    /// The names of the events from `emits`.
    pub(super) events: Vec<String>,
    /// The prompts of the nodes that are compared, in the order of their visits.
    pub(super) prompts: BTreeMap<NodeName, Vec<RenderedPrompt>>,
    pub(super) trail: Trail,
}

/// Returns the nodes that ran in each step; a task that asked has several records.
pub(super) fn route_of(records: &[TaskRecord]) -> Vec<Vec<NodeName>> {
    let ran = records.iter().filter(|it| !matches!(it.outcome, Outcome::Skipped { .. }));
    let tasks: BTreeMap<TaskId, NodeName> = ran.map(|it| (it.task, it.node.clone())).collect();
    let mut route: Vec<(Step, Vec<NodeName>)> = Vec::new();
    for (task, node) in tasks {
        match route.last_mut() {
            Some((step, nodes)) if *step == task.step => nodes.push(node),
            _ => route.push((task.step, vec![node])),
        }
    }
    let sorted = |(_, mut nodes): (_, Vec<NodeName>)| {
        nodes.sort();
        nodes
    };
    route.into_iter().map(sorted).collect()
}

/// Returns how often each node ran. A visit is a step in which the node runs; the items of a map are one visit, also if some
/// of them wait for others.
pub(super) fn visits_of(
    records: &[TaskRecord],
    positions: &[Position],
) -> BTreeMap<NodeName, usize> {
    let ran = records.iter().filter(|it| !matches!(it.outcome, Outcome::Skipped { .. }));
    let mut tasks: BTreeMap<(&NodeName, Step), BTreeSet<TaskId>> = BTreeMap::new();
    for record in ran {
        tasks.entry((&record.node, record.task.step)).or_default().insert(record.task);
    }
    let items_stay = |node: &NodeName, step: Step| {
        let ended = tasks.get(&(node, step)).map_or(0, BTreeSet::len);
        let begun = positions.iter().find(|it| it.step.next() == step);
        let begun = begun.into_iter().flat_map(|it| &it.frontier);
        ended > 0 && begun.filter(|it| it.node == *node).count() > ended
    };
    let mut visits = BTreeMap::new();
    for &(node, step) in tasks.keys() {
        let is_new = step.0.checked_sub(1).is_none_or(|it| !items_stay(node, Step(it)));
        *visits.entry(node.clone()).or_default() += usize::from(is_new);
    }
    visits
}

/// Returns the names of the events from `emits`.
pub(super) fn emitted(events: Vec<RunEvent>) -> Vec<String> {
    let name = |event: RunEvent| match event.event {
        Event::TaskEmitted { name, .. } => Some(name),
        _ => None,
    };
    events.into_iter().filter_map(name).collect()
}
