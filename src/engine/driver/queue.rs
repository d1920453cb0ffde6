//! Tasks that wait for a place, of the run and of their node.

use std::collections::{BTreeMap, VecDeque};

use crate::{compile::CompiledGraph, engine::superstep::Task, id::NodeName};

/// The tasks that are to begin, and the places that others have.
///
/// Each node has its own line. A node without room then costs one look, and not one for each of its tasks: a
/// `map` may have a hundred thousand.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By node; the number of a task says how many came before it.
    lines: BTreeMap<NodeName, VecDeque<(u64, Box<Task>)>>,
    pushed: u64,
    running: usize,
    /// The places that are taken of each node that has a width.
    taken: BTreeMap<NodeName, usize>,
}

impl Queue {
    /// Adds a task behind the others.
    pub(super) fn push(&mut self, task: Box<Task>) {
        let number = self.pushed;
        self.pushed += 1;
        match self.lines.get_mut(&task.node) {
            Some(line) => line.push_back((number, task)),
            None => drop(self.lines.insert(task.node.clone(), [(number, task)].into())),
        }
    }

    /// Forgets those that wait.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// How many tasks are at work.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// The first task whose node has room for one more. It has a place there from now on.
    pub(super) fn next(&mut self, graph: &CompiledGraph) -> Option<Box<Task>> {
        let width = |it: &NodeName| graph.node(it).and_then(|it| it.policies.width_max);
        let taken = |it: &NodeName| self.taken.get(it).copied().unwrap_or_default();
        let has_room = |it: &NodeName| width(it).is_none_or(|max| taken(it) < max);
        let free = self.lines.iter().filter(|(node, _)| has_room(node));
        let first = free.min_by_key(|(_, line)| line.front().map(|it| it.0));
        let node = first.map(|(node, _)| node.clone())?;
        let line = self.lines.get_mut(&node)?;
        let (_, task) = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&node);
        }
        if width(&node).is_some() {
            *self.taken.entry(node).or_default() += 1;
        }
        Some(task)
    }

    /// Notes that the task that was next is at work.
    pub(super) fn began(&mut self) {
        self.running += 1;
    }

    /// Notes that a task of this node is at work no more.
    pub(super) fn ended(&mut self, node: Option<&NodeName>) {
        self.running -= 1;
        if let Some(taken) = node.and_then(|it| self.taken.get_mut(it)) {
            *taken = taken.saturating_sub(1);
        }
    }

    /// Gives the places of nodes back: nothing is at work, and what was next does not begin.
    pub(super) fn give_back(&mut self) {
        self.taken.clear();
    }
}
