//! Where a run stands between two steps.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Posted;
use crate::{
    event::Spent,
    graph::{Began, Input, Via},
    id::{NodeName, Step},
    state::{Change, State},
};

/// Where a run stands between two steps, apart from its state.
///
/// It says what comes next; nothing is inferred.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// The committed steps.
    pub step: Step,
    /// What runs in the next step, in the order its updates are applied; empty at the end.
    pub frontier: Vec<Activation>,
    /// For each waiting node, which of its predecessors have arrived.
    pub joins: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// The nodes that the run has come to and that let others go first, and by which way.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deferred: BTreeMap<NodeName, Via>,
    /// How often each node has run since its count was last reset.
    pub visits: BTreeMap<NodeName, u32>,
    /// What models took so far.
    pub spent: Spent,
    /// The time at work so far.
    pub worked_ms: u64,
    /// What each node that has limits of its own took so far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub took: BTreeMap<NodeName, NodeTook>,
    /// The keys of the questions of all steps so far; who asks under one of these again is told apart
    /// by its task.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub asked: BTreeSet<String>,
    /// The number of the last message that was taken in from the inbox.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub heard: u64,
    /// What was said to the run and not taken in when it was carried over to another workflow, to
    /// the lists as they are called there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Posted>,
    /// The tasks of the next step, by their places in the frontier, that had begun before the run was
    /// carried over to another workflow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub began: BTreeMap<u32, Began>,
    /// The limit that was reached and routed, if one was; it is routed once.
    pub limit: Option<String>,
    /// The limits as they were then. They are used up: none of them counts any more until it is
    /// replaced by another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_up: Option<UsedUp>,
    /// Why the run is to fail, if a route led to failure.
    pub failure: Option<String>,
}

/// The limits of a run that went where it goes when one of them is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedUp {
    /// Super-steps.
    pub steps: u64,
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Milliseconds at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is that of serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What all tasks of a node took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeTook {
    /// What its models took.
    pub spent: Spent,
    /// The time they were at work.
    pub worked_ms: u64,
}

/// A node about to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activation {
    /// The node.
    pub node: NodeName,
    /// What it works on.
    #[serde(default)]
    pub input: Input,
    /// By which way the run came to it.
    pub via: Via,
}

/// A position with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Where the run stands.
    pub position: Position,
    /// Its state.
    pub state: State,
}

/// What a step made of the one before: the new position, and only what changed of the state.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Where the run stands now.
    pub position: Position,
    /// What the step changed.
    pub changes: Vec<Change>,
}
