//! What runs next: hops, joins, bounds and limits make the frontier of the next step.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{
    checkpoint::{Activation, Outcome, Position, TaskRecord},
    compile::CompiledGraph,
    engine::budget,
    graph::{Dispatch, Hop, Input, Limits, Target, Via},
    id::NodeName,
};

/// The position after a step whose tasks left these records, in task order.
pub(super) fn next_frontier(
    graph: &CompiledGraph,
    limits: &Limits,
    before: &Position,
    records: &[TaskRecord],
) -> Position {
    let mut position = Position {
        step: before.step.next(),
        frontier: Vec::new(),
        worked_ms: before.worked_ms + records.iter().map(|it| it.ms).max().unwrap_or(0),
        ..before.clone()
    };
    for record in records {
        position.spent.add(&record.spent);
        if let Outcome::Finished { .. } = record.outcome {
            let policies = &graph.node(&record.node).expect("it ran").policies;
            for reset in &policies.resets {
                position.visits.remove(reset);
            }
        }
    }
    let mut next =
        Next { graph, position: &mut position, reached: BTreeMap::new(), sent: Vec::new() };
    for (record, activation) in records.iter().zip(&before.frontier) {
        next.follow(record, activation);
    }
    let Next { reached, sent, .. } = next;
    fill(&mut position, reached, sent);

    if position.failure.is_some() {
        position.frontier.clear();
    } else if !position.frontier.is_empty() && position.limit.is_none() {
        route_limit(graph, limits, &mut position);
    }
    position
}

/// Collects what the tasks of a step lead to.
struct Next<'a> {
    graph: &'a CompiledGraph,
    position: &'a mut Position,
    reached: BTreeMap<NodeName, Via>,
    sent: Vec<(Dispatch, Via)>,
}

impl Next<'_> {
    fn follow(&mut self, record: &TaskRecord, activation: &Activation) {
        let (hops, via) = match &record.outcome {
            Outcome::Finished { hops, .. } => (hops, Via::Then { node: record.node.clone() }),
            Outcome::Caught { hops, failure } => {
                (hops, Via::Caught { node: record.node.clone(), failure: failure.clone() })
            }
            _ => unreachable!("a step is committed when every record of it is final"),
        };
        for hop in hops {
            match hop {
                Hop::To(Target::End) => (),
                Hop::To(Target::Fail) => self.fail(&record.node, activation, &via),
                Hop::To(Target::Node(name)) => self.reach(name.clone(), via.clone()),
                Hop::Join(name) => self.arrive(name, &record.node, &via),
                Hop::Dispatch(dispatch) => self.send(dispatch, &via),
            }
        }
    }

    /// Reaches a node, or what stands behind it if its bound is used up.
    fn reach(&mut self, name: NodeName, via: Via) {
        if let Some((name, via)) = self.within_bound(name, via)
            && let Entry::Vacant(entry) = self.reached.entry(name)
        {
            // The first way in task order is the one the node sees.
            entry.insert(via);
        }
    }

    fn send(&mut self, dispatch: &Dispatch, via: &Via) {
        match self.within_bound(dispatch.node.clone(), via.clone()) {
            Some((name, via)) if name == dispatch.node => self.sent.push((dispatch.clone(), via)),
            Some((name, via)) => drop(self.reached.entry(name).or_insert(via)),
            None => (),
        }
    }

    fn arrive(&mut self, name: &NodeName, from: &NodeName, via: &Via) {
        let arrived = self.position.joins.entry(name.clone()).or_default();
        arrived.insert(from.clone());
        if arrived.len() == self.graph.awaited_by(name).len() {
            self.position.joins.remove(name);
            self.reach(name.clone(), via.clone());
        }
    }

    /// Follows `exhausted` until a node is found that may still run.
    ///
    /// Ends because `compile` refuses graphs whose `exhausted` ways lead in a circle.
    fn within_bound(&mut self, mut name: NodeName, mut via: Via) -> Option<(NodeName, Via)> {
        loop {
            let policies = &self.graph.node(&name).expect("compile checked every target").policies;
            let visits = self.position.visits.get(&name).copied().unwrap_or(0);
            let Some(max_visits) = policies.max_visits.filter(|&max| visits >= max) else {
                return Some((name, via));
            };
            via = Via::Exhausted { node: name.clone(), max_visits };
            match &policies.exhausted {
                Some(Target::Node(next)) => name = next.clone(),
                Some(Target::End) => return None,
                Some(Target::Fail) | None => {
                    self.position.failure = self.position.failure.take().or(via.error());
                    return None;
                }
            }
        }
    }

    /// A route led to `fail`: the reason is what led to the node that took it.
    fn fail(&mut self, node: &NodeName, activation: &Activation, via: &Via) {
        let cause = via.error().or(activation.via.error());
        let reason = match cause {
            Some(cause) => format!("`{node}` ended the run: {cause}"),
            None => format!("`{node}` ended the run"),
        };
        self.position.failure.get_or_insert(reason);
    }
}

/// Nodes that were reached, once each and by name, then dispatches in the order they were sent.
///
/// This order is the order of the updates. Visits are counted once a step.
fn fill(position: &mut Position, reached: BTreeMap<NodeName, Via>, sent: Vec<(Dispatch, Via)>) {
    let mut counted: Vec<NodeName> = reached.keys().cloned().collect();
    for (node, via) in reached {
        position.frontier.push(Activation { node, input: Input::State, via });
    }
    for (Dispatch { node, input }, via) in sent {
        counted.push(node.clone());
        position.frontier.push(Activation { node, input: Input::Value(input), via });
    }
    counted.sort();
    counted.dedup();
    for node in counted {
        *position.visits.entry(node).or_default() += 1;
    }
}

/// Once a limit is reached, the run goes where `limits.exhausted` says, if it says so.
fn route_limit(graph: &CompiledGraph, limits: &Limits, position: &mut Position) {
    let (Some(target), Some(error)) = (&limits.exhausted, budget::reached(limits, position)) else {
        return;
    };
    position.limit = Some(error.clone());
    let dropped = std::mem::take(&mut position.frontier).into_iter().map(|it| it.node);
    for node in dropped.collect::<BTreeSet<_>>() {
        // It was counted when it was reached, once whatever was dispatched, and does not run.
        let visits = position.visits.entry(node).or_default();
        *visits = visits.saturating_sub(1);
    }
    match target {
        Target::Node(node) => {
            debug_assert!(graph.node(node).is_some(), "compile checked every target");
            *position.visits.entry(node.clone()).or_default() += 1;
            let via = Via::Limit { error };
            position.frontier.push(Activation { node: node.clone(), input: Input::State, via });
        }
        Target::Fail => position.failure = Some(error),
        Target::End => (),
    }
}
