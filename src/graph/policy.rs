//! Under which conditions nodes and runs go on: retries, bounds, limits.

use std::time::Duration;

use super::{ErrorKind, Target};
use crate::{
    diagnostic::Place,
    id::{ChannelName, NodeName},
};

/// The conditions under which one node runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    /// How transient failures are tried again.
    pub retry: Backoff,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How long one attempt may go on without a word.
    pub idle_timeout: Option<Duration>,
    /// How often the node may run before its count is reset.
    pub max_visits: Option<u32>,
    /// What all its visits in a run may take together.
    pub limits: Option<NodeLimits>,
    /// Where the run goes when one of these is used up; without it the run fails.
    pub exhausted: Option<Target>,
    /// The nodes whose counts start anew when this one finishes.
    pub resets: Vec<NodeName>,
    /// The channels that are emptied when this one finishes, or put back to their defaults, before its
    /// writes.
    pub clears: Vec<ChannelName>,
    /// Where failures lead, in order; the first that fits is taken.
    pub catch: Vec<Catch>,
    /// The name of the event that tells watchers that the run came to this node: a verb in the
    /// past tense, such as `escalated`, so that "qa escalated to architect" can be said.
    pub emits: Option<String>,
    /// What it lets go first, once the run has come to it.
    pub defer: Option<Defer>,
    /// How many of the tasks that are dispatched to it run at the same time.
    pub width_max: Option<usize>,
}

/// What all visits of a node in a run may take together. Reached, it is not run again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLimits {
    /// Tokens of requests and replies.
    pub tokens: Option<u64>,
    /// US dollars, as far as prices are known.
    pub usd: Option<f64>,
    /// Time at work, all of its tasks added up.
    pub time: Option<Duration>,
}

/// What a node that waits for others lets go first: everything, until nothing else is left to
/// run. Nodes that wait in this way for the same things run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defer {
    /// The nodes of the graph, or of the used workflow that the node belongs to.
    Siblings,
    /// The nodes of this used workflow. The node comes after those that wait within it.
    Scope(NodeName),
}

/// Where a failure leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// The kind it is for; `None` is any that is not
    /// [for the operator](ErrorKind::is_for_the_operator).
    pub kind: Option<ErrorKind>,
    /// Where to.
    pub to: Target,
}

impl Catch {
    /// Whether it is for such a failure.
    pub fn takes(&self, kind: ErrorKind) -> bool {
        self.kind.map_or(!kind.is_for_the_operator(), |it| it == kind)
    }
}

/// How often and how patiently something is tried again.
///
/// The wait before try n+1 is drawn from half to all of `initial` × 2ⁿ⁻¹, and at most `max`
/// ("equal jitter"). A provider may ask for a longer wait, up to `max` as well. The draw depends on the run and the task only, so that rules stay pure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Tries in all; one means that nothing is tried again.
    pub attempts_max: u32,
    /// The wait before the second try.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
}

/// The limits of a run. Reaching one is not a failure: the run can go on with a higher one.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Super-steps.
    pub steps: u64,
    /// Tokens of requests and replies.
    pub tokens: Option<u64>,
    /// US dollars, as far as prices are known.
    pub usd: Option<f64>,
    /// Time at work: the longest task of each step, summed. Waiting for people does not count.
    pub time: Option<Duration>,
    /// Where the run goes, once, when a limit is reached, instead of stopping there.
    pub exhausted: Option<Target>,
    /// Tasks that run at the same time.
    pub concurrency: usize,
    /// Where they are written.
    pub place: Option<Place>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { attempts_max: 1, initial: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 100,
            tokens: None,
            usd: None,
            time: None,
            exhausted: None,
            concurrency: 16,
            place: None,
        }
    }
}
