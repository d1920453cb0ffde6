//! The facts of a run: what its expressions and prompts can read besides the state.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    event::Usage,
    id::{NodeName, RunId},
};

/// The facts of a run at the start of a step. They follow from its checkpoint, so they are the same when a task of the
/// step runs again, in any process. Only `remaining` depends on the limits of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// The id of the run; `None` outside of a run.
    pub run: Option<RunId>,
    /// The name of the workflow.
    pub workflow: Arc<str>,
    /// When the step began, if the graph [needs](FactNeeds) it.
    pub began: Option<Timestamp>,
    /// The usage of models in the committed steps of the turn.
    pub usage: Usage,
    /// The part of each node that the graph [needs](FactNeeds).
    pub node_usage: BTreeMap<NodeName, Usage>,
    /// The rest of the limits.
    pub remaining: Remaining,
    /// The position of the task among the items of its map, from zero, if the graph [needs](FactNeeds) it.
    pub item_index: Option<u64>,
}

/// The rest of the limits of a run; `None` without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remaining {
    /// Steps, with the current one.
    pub steps: u64,
    /// Calls of models.
    pub calls: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// US dollars. Calls without a known price count as free, as they do for the limit.
    pub usd: Option<f64>,
}

/// The facts that a run saves only for graphs that read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactNeeds {
    /// When each step begins.
    pub time: bool,
    /// The usage of these nodes.
    pub usage_of: BTreeSet<NodeName>,
    /// The position of each item in its map.
    pub item_index: bool,
}

impl FactNeeds {
    /// Adds the needs of a used workflow.
    pub fn add(&mut self, other: &Self, outside: impl Fn(&NodeName) -> NodeName) {
        self.time |= other.time;
        self.item_index |= other.item_index;
        self.usage_of.extend(other.usage_of.iter().map(outside));
    }
}
