//! Which edges a run took: follows its transitions from step to step.

use std::collections::{BTreeMap, BTreeSet};

use super::{Between, SavedEdgeKind};
use crate::{
    checkpoint::{Outcome, SavedRun, TaskRecord, is_followed, last_records},
    draw::{Arrow, Drawing, Reason},
    graph::{Target, Transition, Trigger},
    id::{NodeName, Step, TaskId},
};

/// The position of a run at the beginning of a step.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    drawing: &'a Drawing,
    /// How often each node has run since its count was last reset.
    visits: BTreeMap<NodeName, u32>,
    /// For each waiting join, the nodes that have arrived.
    joins: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// The nodes that an edge led to in the last step, and not only dispatches.
    by_edge: BTreeSet<NodeName>,
    taken: BTreeMap<Between, u64>,
}

/// What a join waits for.
#[derive(Clone, Copy, Debug)]
struct JoinAt {
    /// The number of arrivals that let it run.
    count: usize,
    /// Whether it runs before all of its nodes have arrived.
    is_partial: bool,
}

impl<'a> Replay<'a> {
    pub(super) fn new(drawing: &'a Drawing) -> Self {
        let visits = BTreeMap::new();
        let joins = BTreeMap::new();
        let taken = BTreeMap::new();
        Self { drawing, visits, joins, by_edge: BTreeSet::new(), taken }
    }

    /// Returns how often each edge was taken.
    pub(super) fn follow(
        mut self,
        saved: &SavedRun,
        records: &[TaskRecord],
    ) -> BTreeMap<Between, u64> {
        let mut steps: BTreeMap<Step, Vec<&TaskRecord>> = BTreeMap::new();
        for record in records {
            steps.entry(record.task.step).or_default().push(record);
        }
        let next = saved.position.step.next();
        let waiting = saved.position.frontier.iter().map(|it| it.node.clone());
        let waiting: BTreeSet<NodeName> = waiting.collect();
        let running = |step: Step| -> BTreeSet<NodeName> {
            if step == next {
                return waiting.clone();
            }
            steps.get(&step).into_iter().flatten().map(|it| it.node.clone()).collect()
        };

        self.by_edge = running(Step::default().next());
        for node in self.by_edge.clone() {
            self.take(None, Target::Node(node), SavedEdgeKind::Start);
        }
        for (step, records) in &steps {
            self.visit(running(*step));
            let reached = self.step(records, &running(step.next()));
            // If the next step has only one node, and no transition reached it, a limit led the run
            // there.
            let limited = running(step.next());
            let mut stray = limited.difference(&reached);
            if let (Some(node), None, 1) = (stray.next(), stray.next(), limited.len())
                && self.is_limit(node)
            {
                self.by_edge.insert(node.clone());
                self.take(None, Target::Node(node.clone()), SavedEdgeKind::Exhausted);
            }
        }
        let by_limit =
            saved.position.frontier.iter().any(|it| matches!(it.trigger, Trigger::Limit { .. }));
        if by_limit
            && !self.taken.keys().any(|it| it.0.is_none() && it.2 == SavedEdgeKind::Exhausted)
        {
            for node in waiting {
                self.take(None, Target::Node(node), SavedEdgeKind::Exhausted);
            }
        }
        self.taken
    }

    fn visit(&mut self, running: BTreeSet<NodeName>) {
        for node in running {
            *self.visits.entry(node).or_default() += 1;
        }
    }

    /// Follows the transitions of the tasks of a step; returns the nodes that may run next.
    fn step(&mut self, records: &[&TaskRecord], next: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
        let settled = last_records(records.iter().copied()).filter(|it| it.outcome.is_final());
        let settled: Vec<&TaskRecord> = settled.collect();
        for record in &settled {
            if matches!(record.outcome, Outcome::Finished { .. }) {
                let node = self.drawing.nodes.iter().find(|it| it.name == record.node);
                for reset in node.into_iter().flat_map(|it| &it.resets) {
                    self.visits.remove(reset);
                }
            }
        }
        let mut reached = BTreeSet::new();
        let mut arrived = BTreeSet::new();
        let dispatched = self.dispatched(records);
        let items = records.iter().copied().filter(|it| dispatched.contains(&it.task));
        let is_followed = is_followed(items);
        let mut by_edge = BTreeSet::new();
        // A task that a limit has aborted stays in the frontier.
        let aborted = records.iter().filter(|it| matches!(it.outcome, Outcome::Aborted));
        by_edge
            .extend(aborted.filter(|it| !dispatched.contains(&it.task)).map(|it| it.node.clone()));
        for record in
            settled.into_iter().filter(|it| !dispatched.contains(&it.task) || is_followed(it))
        {
            let (transitions, kind) = match &record.outcome {
                Outcome::Caught { transitions, .. } if record.outcome.is_collected() => {
                    (transitions, SavedEdgeKind::Onward)
                }
                Outcome::Finished { transitions, .. } | Outcome::Skipped { transitions, .. } => {
                    (transitions, SavedEdgeKind::Onward)
                }
                Outcome::Caught { transitions, .. } => (transitions, SavedEdgeKind::Caught),
                Outcome::Undecided { .. }
                | Outcome::Failed { .. }
                | Outcome::Retrying { .. }
                | Outcome::TimerSet { .. }
                | Outcome::Aborted
                | Outcome::MemoSaved { .. }
                | Outcome::Asked { .. }
                | Outcome::Answered { .. } => continue,
            };
            for transition in transitions {
                self.take(Some(&record.node), transition.target(), kind);
                match transition {
                    Transition::To(Target::Node(to)) => by_edge.extend(self.within_bound(to)),
                    Transition::Dispatch(dispatch) => {
                        let to = self.within_bound(&dispatch.node);
                        // A bound that is used up leads on by an edge.
                        match to {
                            Some(to) if to == dispatch.node => drop(reached.insert(to)),
                            to => by_edge.extend(to),
                        }
                    }
                    Transition::Join(to) => {
                        let waiting = self.joins.entry(to.clone()).or_default();
                        waiting.insert(record.node.clone());
                        arrived.insert(to.clone());
                    }
                    Transition::To(Target::End | Target::Fail) => (),
                }
            }
        }
        for to in arrived {
            let Some(join) = self.join_at(&to) else { continue };
            if self.joins.get(&to).is_some_and(|it| it.len() >= join.count) {
                self.joins.remove(&to);
                // A late arrival of an earlier round changes nothing, which only the next step shows.
                if !join.is_partial || next.contains(&to) || self.exits_to(&to, next) {
                    by_edge.extend(self.within_bound(&to));
                }
            }
        }
        reached.extend(by_edge.iter().cloned());
        self.by_edge = by_edge;
        reached
    }

    /// Returns the tasks of a step that were dispatched: all of a node but the first one, if an edge led there.
    fn dispatched(&self, records: &[&TaskRecord]) -> BTreeSet<TaskId> {
        let mut tasks: BTreeMap<&NodeName, BTreeSet<TaskId>> = BTreeMap::new();
        for record in records {
            tasks.entry(&record.node).or_default().insert(record.task);
        }
        let of_node = |(node, tasks): (&NodeName, BTreeSet<TaskId>)| {
            tasks.into_iter().skip(usize::from(self.by_edge.contains(node)))
        };
        tasks.into_iter().flat_map(of_node).collect()
    }

    /// Follows `exhausted` from a node whose bound is used up to a node that may still run.
    fn within_bound(&mut self, name: &NodeName) -> Option<NodeName> {
        let mut name = name.clone();
        // A chain of used-up bounds has at most as many nodes as the drawing.
        for _ in 0..=self.drawing.nodes.len() {
            let node = self.drawing.nodes.iter().find(|it| it.name == name)?;
            let visits = self.visits.get(&name).copied().unwrap_or(0);
            if node.max_visits.is_none_or(|max| visits < max) {
                return Some(name);
            }
            let is_exit =
                |it: &&Arrow| it.from.as_ref() == Some(&name) && it.reason == Reason::Exhausted;
            let exit = self.drawing.arrows.iter().find(is_exit)?.to.clone();
            self.take(Some(&name), exit.clone(), SavedEdgeKind::Exhausted);
            name = exit.node()?.clone();
        }
        None
    }

    /// Returns whether the bound of a node leads to one of these nodes.
    fn exits_to(&self, name: &NodeName, nodes: &BTreeSet<NodeName>) -> bool {
        let leads_there = |it: &Arrow| it.to.node().is_some_and(|it| nodes.contains(it));
        let mut arrows = self.drawing.arrows.iter();
        arrows.any(|it| {
            it.from.as_ref() == Some(name) && it.reason == Reason::Exhausted && leads_there(it)
        })
    }

    /// Returns the join at a node, if there is one.
    fn join_at(&self, name: &NodeName) -> Option<JoinAt> {
        let arrows = self.drawing.arrows.iter().filter(|it| it.to.node() == Some(name));
        let joins = arrows.filter_map(|it| match &it.reason {
            Reason::Join { of, count } => {
                Some(JoinAt { count: *count, is_partial: *count < of.len() })
            }
            _ => None,
        });
        joins.max_by_key(|it| it.count)
    }

    /// Returns whether a limit of the run leads to this node.
    fn is_limit(&self, node: &NodeName) -> bool {
        let leads_here = |it: &Arrow| {
            it.from.is_none() && it.reason == Reason::Exhausted && it.to.node() == Some(node)
        };
        self.drawing.arrows.iter().any(leads_here)
    }

    fn take(&mut self, from: Option<&NodeName>, to: Target, kind: SavedEdgeKind) {
        *self.taken.entry((from.cloned(), to, kind)).or_default() += 1;
    }
}
