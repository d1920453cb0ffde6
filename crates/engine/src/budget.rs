//! Which limit of a run or node is reached, and which limits still apply.

use std::time::Duration;

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    event::Usage,
    graph::{Limits, Policies},
    id::NodeName,
};

use crate::checkpoint::{ExhaustedLimits, NodeUsage, Position, UsedBudget};

/// The usage of a run so far, and the limits that no longer apply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    steps: u64,
    pub(super) usage: Usage,
    pub(super) elapsed_ms: u64,
    exhausted_limits: Option<ExhaustedLimits>,
    /// The least usage of a model call that waits for its permit.
    next_call: Usage,
}

/// The limits of a run at the end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepLimits<'a> {
    pub(super) limits: &'a Limits,
    /// The least usage of a model call that did not fit into the limits and ended the step.
    pub(super) refused_call: Usage,
}

impl<'a> From<&'a Limits> for StepLimits<'a> {
    fn from(limits: &'a Limits) -> Self {
        Self { limits, refused_call: Usage::default() }
    }
}

impl Used {
    /// Returns the usage of the committed steps.
    pub(super) fn by(steps: u64, used: &UsedBudget) -> Self {
        let UsedBudget { usage, elapsed_ms, exhausted_limits, .. } = *used;
        Self { steps, usage, elapsed_ms, exhausted_limits, next_call: Usage::default() }
    }

    /// Adds a model call that must fit into the limits, too.
    pub(super) fn with_next_call(self, next_call: Usage) -> Self {
        Self { next_call, ..self }
    }

    /// Describes the first limit that applies and is reached.
    ///
    /// A limit of tokens or money stops only work that may spend some. A node that publishes the
    /// finished work of a run costs none; stopping it would waste the work.
    pub(super) fn reached(
        &self,
        limits: &Limits,
        may_spend: impl FnOnce() -> bool,
    ) -> Option<String> {
        let steps_apply = self.exhausted_limits.is_none_or(|it| it.steps != limits.steps);
        if self.steps >= limits.steps && steps_apply {
            return Some(format!("the limit of {} steps is reached", limits.steps));
        }
        if let Some(reached) = self.reached_by_models(limits)
            && may_spend()
        {
            return Some(reached);
        }
        let time = limits.time.filter(|_| self.time_left(limits) == Some(Duration::ZERO));
        let worked = Duration::from_millis(self.elapsed_ms);
        time.map(|time| {
            format!("the limit of {time:?} is reached: the run has worked for {worked:?}")
        })
    }

    /// Describes the first limit on model usage that applies and is reached.
    pub(super) fn reached_by_models(&self, limits: &Limits) -> Option<String> {
        let (now, usage) = (of(limits), &self.usage);
        let applies = |differs: fn(&ExhaustedLimits, &ExhaustedLimits) -> bool| {
            self.exhausted_limits.is_none_or(|it| differs(&it, &now))
        };
        if let Some(tokens) = limits.tokens.filter(|_| applies(|a, b| a.tokens != b.tokens)) {
            let (used, next) = (usage.total_tokens(), self.next_call.total_tokens());
            if used >= tokens {
                return Some(format!("the limit of {tokens} tokens is reached: {used} are used"));
            }
            if used.saturating_add(next) > tokens {
                return Some(format!(
                    "the limit of {tokens} tokens is reached: {used} are used, and the next call needs at least {next}"
                ));
            }
        }
        if let Some(usd) = limits.usd.filter(|_| applies(|a, b| a.usd != b.usd)) {
            let cost = if usage.tokens.calls == 0 { Some(0.0) } else { usage.cost_usd };
            let (cost, next) = (cost?, self.next_call.cost_usd.unwrap_or(0.0));
            if cost >= usd {
                return Some(format!("the limit of {usd:.2} USD is reached: {cost:.2} are spent"));
            }
            if cost + next > usd {
                return Some(format!(
                    "the limit of {usd:.2} USD is reached: {cost:.2} are spent, and the next call costs at least {next:.2}"
                ));
            }
        }
        None
    }

    /// Returns the remaining time of a run with a time limit that applies.
    pub(super) fn time_left(&self, limits: &Limits) -> Option<Duration> {
        let applies = self.exhausted_limits.is_none_or(|it| it.time_ms != of(limits).time_ms);
        let time = limits.time.filter(|_| applies)?;
        Some(time.saturating_sub(Duration::from_millis(self.elapsed_ms)))
    }
}

/// Returns whether one of these tasks may ask a model.
pub(super) fn may_spend(
    graph: &CompiledGraph,
    mut frontier: impl Iterator<Item = NodeIndex>,
) -> bool {
    frontier.any(|it| graph.spec_at(it).node.describe().calls_max != Some(0))
}

/// Marks a limit as reached, which routes the run to `limits.exhausted`. This happens once: afterwards the
/// current limits are used up. A limit with another value, such as a higher one on resume, applies again.
pub fn use_up(limits: &Limits, position: &mut Position, error: String) {
    mark_used(limits, &mut position.used, error);
}

/// As [`use_up`], for the budget alone.
pub(super) fn mark_used(limits: &Limits, used: &mut UsedBudget, error: String) {
    used.limit = Some(error);
    used.exhausted_limits = Some(of(limits));
}

fn of(limits: &Limits) -> ExhaustedLimits {
    let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
    let Limits { steps, tokens, usd, time, .. } = limits;
    ExhaustedLimits { steps: *steps, tokens: *tokens, usd: *usd, time_ms: time.map(ms) }
}

/// Describes the first node limit that a node has reached.
pub(super) fn reached_by_node(
    name: &NodeName,
    policies: &Policies,
    node_usage: Option<&NodeUsage>,
) -> Option<String> {
    let (limits, NodeUsage { usage, elapsed_ms }) = (policies.bounds.limits.as_ref()?, node_usage?);
    if let Some(tokens) = limits.tokens.filter(|&it| usage.total_tokens() >= it) {
        return Some(format!("`{name}` has used {} of its {tokens} tokens", usage.total_tokens()));
    }
    if let (Some(usd), Some(cost)) = (limits.usd, usage.cost_usd)
        && cost >= usd
    {
        return Some(format!("`{name}` has used {cost:.2} of its {usd:.2} USD"));
    }
    let worked = Duration::from_millis(*elapsed_ms);
    let time = limits.time.filter(|&it| worked >= it)?;
    Some(format!("`{name}` has used {worked:?} of its {time:?}"))
}
