//! Tasks that wait for a place, of the run and of their node.

use std::collections::{BTreeMap, VecDeque};

use crate::{compile::CompiledGraph, engine::superstep::Task, id::NodeName};

/// The tasks that are to begin, and the places that others have.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Task>,
    running: usize,
    /// The places that are taken of each node that has a width.
    taken: BTreeMap<NodeName, usize>,
}

impl Queue {
    /// Adds a task behind the others.
    pub(super) fn push(&mut self, task: Task) {
        self.waiting.push_back(task);
    }

    /// Forgets those that wait.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many tasks are at work.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// The first task whose node has room for one more. It has a place there from now on.
    pub(super) fn next(&mut self, graph: &CompiledGraph) -> Option<Task> {
        let width = |it: &Task| graph.node(&it.node).and_then(|it| it.policies.width_max);
        let taken = |it: &Task| self.taken.get(&it.node).copied().unwrap_or_default();
        let has_room = |it: &Task| width(it).is_none_or(|max| taken(it) < max);
        let at = self.waiting.iter().position(has_room)?;
        let task = self.waiting.remove(at)?;
        if width(&task).is_some() {
            *self.taken.entry(task.node.clone()).or_default() += 1;
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
