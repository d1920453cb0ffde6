//! Policies of nodes and runs: retries, bounds, limits.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::Value;

use super::{ErrorKind, Failure, ItemOrder, Target};
use crate::{
    diagnostic::SourceSpan,
    id::{ChannelName, NodeName},
    state::State,
};

/// The policies of one node, in one group for each part of the engine that follows them.
///
/// A group alone makes policies, with the defaults for the rest:
///
/// ```
/// use graphrun_core::graph::{Bounds, Policies, Target};
///
/// let exhausted = Some(Target::End);
/// let twice = Policies::from(Bounds { max_visits: Some(2), exhausted, ..Bounds::default() });
/// assert!(twice.catch.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    /// The attempts at each of its tasks.
    pub attempts: Attempts,
    /// How often the node may run.
    pub bounds: Bounds,
    /// The routes for failures; the first matching one is used.
    pub catch: Vec<Catch>,
    /// Whether some of these routes are defaults for all nodes.
    pub inherits_catch: bool,
    /// What happens when the node finishes.
    pub on_finish: OnFinish,
    /// When its tasks run.
    pub schedule: Schedule,
    /// The name of the event that is published when the run reaches this node: a verb in the past tense, such
    /// as `escalated` in "qa escalated to architect".
    pub emits: Option<String>,
}

/// The policies of the attempts at a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempts {
    /// The retries after failures that are transient, or of a kind that it names.
    pub retry: Backoff,
    /// The maximum duration of one attempt.
    pub timeout: Option<Duration>,
    /// The maximum time of one attempt without a report or a heartbeat.
    pub idle_timeout: Option<Duration>,
}

/// The bounds of a node, and the target once one is used up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// How often the node may run before its count is reset. A visit is a step in which it runs, also if several
    /// tasks were dispatched to it.
    pub max_visits: Option<u32>,
    /// The channel with the number of visits that a run allows, if it is an input; `max_visits` is then the largest
    /// number that the channel takes.
    pub visits_field: Option<ChannelName>,
    /// The limits for all visits of the node in a run together.
    pub limits: Option<NodeLimits>,
    /// The target when one of these is used up; without a target the run fails.
    pub exhausted: Option<Target>,
}

/// What happens when a node finishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnFinish {
    /// The nodes whose counts are reset.
    pub resets: Vec<NodeName>,
    /// The channels that are cleared, or reset to their defaults, before its writes.
    pub clears: Vec<ChannelName>,
    /// The channels that the code of the node may clear, or reset to their defaults, before its writes.
    pub may_clear: Vec<ChannelName>,
    /// The channel with the reason of the run's failure, if the node leads to `fail`.
    pub fail_reason: Option<ChannelName>,
}

/// When the tasks of a node run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The nodes that run before it, once the run has reached it.
    pub defer: Option<Defer>,
    /// The maximum number of concurrent tasks among those dispatched to it.
    pub width_max: Option<usize>,
    /// Set if the tasks that are dispatched to it are the items of a map.
    pub items: Option<ItemPolicy>,
}

/// How the items of a map end: together, and exactly once.
///
/// All items are tasks of one step. If all of them finish, the edges of the node are followed. If the failure of
/// one is caught, the first such item decides for all of them, and the edges are not followed.
#[derive(Clone, Debug, Default)]
pub struct ItemPolicy {
    /// A list for the failures of items that no [`catch`](Policies::catch) takes, except those [for the
    /// operator](ErrorKind::is_for_the_operator) and [outages](Failure::is_outage). Such an item counts as finished, and its update is the record of
    /// its failure.
    pub failed: Option<ChannelName>,
    /// The order of items that depend on each other. An item that needs a failed one does not run, and fails as
    /// [`Dependency`](ErrorKind::Dependency).
    pub order: Option<Arc<dyn ItemOrder>>,
}

impl PartialEq for ItemPolicy {
    fn eq(&self, other: &Self) -> bool {
        let order = |it: &Self| format!("{:?}", it.order);
        self.failed == other.failed && order(self) == order(other)
    }
}

impl Eq for ItemPolicy {}

/// The limits for all visits of a node in a run together. Once one is reached, the node does not
/// run again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLimits {
    /// Answered [calls](crate::usage::TokenUsage::calls) of models, with those of retries and repairs.
    pub calls: Option<u64>,
    /// Tokens of requests and replies.
    pub tokens: Option<u64>,
    /// US dollars, for models with known prices.
    pub usd: Option<f64>,
    /// The durations of all its tasks, summed.
    pub time: Option<Duration>,
}

/// The nodes that run before a deferred node. It waits until none of them is left to run. Deferred
/// nodes that wait for the same nodes run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defer {
    /// The nodes of the graph, or of the used workflow that the node belongs to.
    Siblings,
    /// The nodes of this used workflow. The node runs after the deferred nodes within it.
    Scope(NodeName),
}

/// A route for failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// The kind of failure; `None` matches any failure that is not [for the
    /// operator](ErrorKind::is_for_the_operator) and no [outage](Failure::is_outage).
    pub kind: Option<ErrorKind>,
    /// The target.
    pub to: Target,
}

impl Policies {
    /// Returns the route that catches a failure.
    pub fn catch_of(&self, failure: &Failure) -> Option<&Catch> {
        self.catch.iter().find(|it| it.takes(failure))
    }
}

impl From<Attempts> for Policies {
    fn from(attempts: Attempts) -> Self {
        Self { attempts, ..Self::default() }
    }
}

impl From<Bounds> for Policies {
    fn from(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }
}

impl From<OnFinish> for Policies {
    fn from(on_finish: OnFinish) -> Self {
        Self { on_finish, ..Self::default() }
    }
}

impl OnFinish {
    /// Returns the channels that may be unwritten after the node, unless it writes them.
    pub fn cleared(&self) -> impl Iterator<Item = &ChannelName> {
        self.clears.iter().chain(&self.may_clear)
    }
}

impl From<Schedule> for Policies {
    fn from(schedule: Schedule) -> Self {
        Self { schedule, ..Self::default() }
    }
}

impl Bounds {
    /// Returns whether anything bounds the node.
    pub fn is_bounded(&self) -> bool {
        self.max_visits.is_some() || self.limits.is_some()
    }

    /// Returns how often the node may run in a run with this state before its count is reset.
    ///
    /// It is never more than [`max_visits`](Self::max_visits), with which the worst case is computed, and at least one.
    pub fn max_visits_in(&self, state: &State) -> Option<u32> {
        self.max_visits_of(|field| state.get(field.as_str()))
    }

    /// Returns the same for a run whose channels have these values.
    pub fn max_visits_of<'v>(
        &self,
        value: impl FnOnce(&ChannelName) -> Option<&'v Value>,
    ) -> Option<u32> {
        let most = self.max_visits?;
        let given = self.visits_field.as_ref().and_then(value).and_then(whole);
        Some(given.map_or(most, |it| u32::try_from(it).unwrap_or(u32::MAX).clamp(1, most.max(1))))
    }
}

/// Returns a whole number from zero on, which JSON may also write as `3.0`.
fn whole(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a larger number is more than every bound, and a negative one becomes zero"
    )]
    value.as_u64().or_else(|| value.as_f64().map(|it| it as u64))
}

impl Catch {
    /// Returns whether it catches this failure.
    pub fn takes(&self, failure: &Failure) -> bool {
        self.kind.map_or_else(|| failure.ends_its_task(), |it| it == failure.kind)
    }

    /// Adds the routes of a default, or of a used workflow, for the failures that no own route takes. They come after the own
    /// ones: the first that takes a failure leads on.
    pub fn complete<'c>(own: &mut Vec<Self>, more: impl IntoIterator<Item = &'c Self>) {
        for it in more {
            // A route for any failure leaves out some failures of these kinds.
            let is_left = it.kind.is_some_and(ErrorKind::is_from_outside);
            let covers = |own: &Self| own.kind == it.kind || (own.kind.is_none() && !is_left);
            if !own.iter().any(covers) {
                own.push(it.clone());
            }
        }
    }
}

/// The number and the delays of retries.
///
/// The wait before try n+1 is drawn from zero to `initial` × 2ⁿ⁻¹, and at most to `max` ("full jitter"). If the
/// provider asks for a wait, the drawn one is added to it. The draw depends on the run and the task only, so that rules
/// stay pure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The total number of attempts; one means no retry. `None` means six for [outages](Failure::is_outage), and one
    /// for other failures.
    pub attempts_max: Option<u32>,
    /// The maximum delay before the second attempt.
    pub initial: Duration,
    /// The maximum delay.
    pub max: Duration,
    /// The time after the first attempt in which further attempts follow an outage: work and waits together. Waits of
    /// more than 30 seconds for which a provider asks do not count.
    pub total: Option<Duration>,
    /// The kinds of failure that it is for, set by [`on`](Self::on). `None` means every transient failure.
    pub on: Option<RetriedKinds>,
    /// The exit codes of a command that are tried again.
    pub exit_codes: Vec<i32>,
}

/// The kinds of failure that a [`Backoff`] is for, and the policy for all other kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetriedKinds {
    kinds: BTreeSet<ErrorKind>,
    others: Box<Backoff>,
}

/// The limits of a run. Reaching one is not a failure: the run can continue with a higher one.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Super-steps.
    pub steps: u64,
    /// Answered [calls](crate::usage::TokenUsage::calls) of models, with those of retries and repairs.
    pub calls: Option<u64>,
    /// Tokens of requests and replies.
    pub tokens: Option<u64>,
    /// US dollars, for models with known prices.
    pub usd: Option<f64>,
    /// The duration of the longest task of each step, summed. Waiting for people does not count.
    pub time: Option<Duration>,
    /// The target, used once, when a limit is reached; without it the run stops there.
    pub exhausted: Option<Target>,
    /// The maximum number of concurrent tasks.
    pub concurrency: usize,
    /// The place of the limits in the file.
    pub span: Option<SourceSpan>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            attempts_max: None,
            initial: Duration::from_millis(500),
            max: Duration::from_secs(30),
            total: Some(Duration::from_secs(120)),
            on: None,
            exit_codes: Vec::new(),
        }
    }
}

impl Backoff {
    /// The attempts at a task during an outage, unless the node has another number.
    pub const OUTAGE_ATTEMPTS_MAX: u32 = 6;

    /// Names the kinds of failure that are tried again, transient or not.
    ///
    /// The default policy applies to failures of all other kinds: outages have their six attempts, and other failures
    /// have one.
    ///
    /// ```
    /// use graphrun_core::graph::{Backoff, ErrorKind, Failure};
    ///
    /// let retry = Backoff { attempts_max: Some(3), ..Backoff::default() }.on([ErrorKind::Timeout]);
    /// let attempts_after = |kind| {
    ///     let failure = Failure::new(kind, "no luck");
    ///     retry.for_failure(&failure).attempts_after(&failure)
    /// };
    /// assert_eq!([ErrorKind::Timeout, ErrorKind::Command].map(attempts_after), [3, 1]);
    /// ```
    #[must_use]
    pub fn on(self, kinds: impl IntoIterator<Item = ErrorKind>) -> Self {
        let kinds = kinds.into_iter().collect();
        let others = Box::default();
        Self { on: Some(RetriedKinds { kinds, others }), ..self }
    }

    /// Returns the same attempts with no waits between them, and no end to an outage.
    #[must_use]
    pub fn without_waits(self) -> Self {
        let on =
            self.on.map(|it| RetriedKinds { others: Box::new(it.others.without_waits()), ..it });
        Self { initial: Duration::ZERO, max: Duration::ZERO, total: None, on, ..self }
    }

    /// Returns the policy for a failure: this one, or the default one if it names other kinds.
    #[must_use]
    pub fn for_failure(&self, failure: &Failure) -> &Self {
        match &self.on {
            Some(RetriedKinds { kinds, others })
                if !kinds.contains(&failure.kind) && !self.names_code_of(failure) =>
            {
                others
            }
            _ => self,
        }
    }

    /// Returns the total number of attempts after a failure that the policy [is for](Self::for_failure).
    pub fn attempts_after(&self, failure: &Failure) -> u32 {
        let is_named = self.on.as_ref().is_some_and(|it| it.kinds.contains(&failure.kind));
        if !failure.transient && !is_named && !self.names_code_of(failure) {
            return 1;
        }
        let is_default = failure.is_outage() && !failure.is_nested;
        let default = if is_default { Self::OUTAGE_ATTEMPTS_MAX } else { 1 };
        self.attempts_max.unwrap_or(default)
    }

    /// Returns whether the exit code of the failure is one that is tried again.
    fn names_code_of(&self, failure: &Failure) -> bool {
        failure.exit_code.is_some_and(|it| self.exit_codes.contains(&it))
    }

    /// Returns whether no further attempt follows an outage that has lasted for this time.
    pub fn is_over(&self, failure: &Failure, lasted: Duration) -> bool {
        failure.is_outage() && self.total.is_some_and(|it| lasted >= it)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 100,
            calls: None,
            tokens: None,
            usd: None,
            time: None,
            exhausted: None,
            concurrency: 16,
            span: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeName;

    #[test]
    fn a_default_route_takes_what_a_route_for_any_failure_leaves() {
        let target = |name: &str| Target::Node(NodeName::parse(name).unwrap());
        let leads = |kind, to: &str| Catch { kind, to: target(to) };
        let mut catch = vec![leads(Some(ErrorKind::Tool), "own"), leads(None, "own")];
        let defaults = [
            leads(Some(ErrorKind::Tool), "default"),
            leads(Some(ErrorKind::Timeout), "default"),
            leads(Some(ErrorKind::Delivery), "default"),
            leads(Some(ErrorKind::Provider), "default"),
            leads(None, "default"),
        ];
        Catch::complete(&mut catch, &defaults);
        let policies = Policies { catch, ..Policies::default() };
        let outage = Failure { transient: true, ..Failure::new(ErrorKind::Provider, "") };
        for (failure, to) in [
            (Failure::new(ErrorKind::Tool, ""), "own"),
            (Failure::new(ErrorKind::Timeout, ""), "own"),
            (Failure::new(ErrorKind::Provider, ""), "own"),
            (outage, "default"),
            (Failure::new(ErrorKind::Delivery, ""), "default"),
        ] {
            let found = policies.catch_of(&failure).map(|it| &it.to);
            assert_eq!(found, Some(&target(to)), "{failure:?}");
        }
    }
}
