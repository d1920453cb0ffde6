//! The budget of a run: which of its limits still apply, and which is reached. The limits of single nodes are here, too.

use std::time::Duration;

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    event::Usage,
    graph::{Limits, Policies},
    id::NodeName,
    words::{self, count},
};

use crate::checkpoint::{ExhaustedLimits, TaskUsage, UsedBudget};

/// The limits of a run, and its usage so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget<'a> {
    limits: &'a Limits,
    steps: u64,
    pub(super) usage: Usage,
    pub(super) elapsed_ms: u64,
    /// The limits that no longer apply.
    exhausted: Option<ExhaustedLimits>,
    /// The least usage of a model call that waits for its permit.
    next_call: Usage,
}

/// The limits of a run at the end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepLimits<'a> {
    pub(super) limits: &'a Limits,
    /// The limit that ended the step early, if one did.
    pub(super) reached: Option<&'a str>,
}

impl<'a> From<&'a Limits> for StepLimits<'a> {
    fn from(limits: &'a Limits) -> Self {
        Self { limits, reached: None }
    }
}

impl<'a> Budget<'a> {
    /// Returns the budget after the committed steps.
    pub(super) fn after(limits: &'a Limits, steps: u64, used: &UsedBudget) -> Self {
        let UsedBudget { usage, elapsed_ms, exhausted_limits: exhausted, .. } = *used;
        Self { limits, steps, usage, elapsed_ms, exhausted, next_call: Usage::default() }
    }

    /// Adds a model call that must fit into the limits, too.
    pub(super) fn with_next_call(self, next_call: Usage) -> Self {
        Self { next_call, ..self }
    }

    /// Describes the first limit that applies and is reached.
    ///
    /// A limit of calls, tokens or money stops only work that may call models. A node that publishes the
    /// finished work of a run costs none; stopping it would waste the work.
    pub(super) fn reached_limit(&self, may_call_models: impl FnOnce() -> bool) -> Option<String> {
        let steps_max = self.limits.steps;
        if self.steps >= steps_max && self.applies(|it| it.steps) {
            return Some(format!("the limit of {} is reached", count(steps_max, "step")));
        }
        if let Some(reached) = self.reached_model_limit()
            && may_call_models()
        {
            return Some(reached);
        }
        let time = self.limits.time.filter(|_| self.time_left() == Some(Duration::ZERO))?;
        let worked = words::duration(Duration::from_millis(self.elapsed_ms));
        let time = words::duration(time);
        Some(format!("the limit of {time} is reached: the run has worked for {worked}"))
    }

    /// Describes the limit that ended a step early.
    ///
    /// The time of a step is that of its tasks, and tasks which wait for a slot begin later than it counts. So the clock may end
    /// a task before the limit of time is counted as reached.
    pub(super) fn limit_that_ended_step(&self) -> String {
        self.reached_limit(|| true).unwrap_or_else(|| {
            let time = words::duration(self.limits.time.unwrap_or_default());
            format!("the limit of {time} is reached: a task of the run had no time left")
        })
    }

    /// Describes the first limit on model usage that applies and is reached.
    pub(super) fn reached_model_limit(&self) -> Option<String> {
        self.reached_call_limit()
            .or_else(|| self.reached_token_limit())
            .or_else(|| self.reached_cost_limit())
    }

    fn reached_call_limit(&self) -> Option<String> {
        let calls = self.limits.calls.filter(|_| self.applies(|it| it.calls))?;
        let made = self.usage.tokens.calls;
        let next = self.next_call.tokens.calls;
        let limit = count(calls, "model call");
        // A call that fits no longer is one beyond the last, unless a node plans several at once.
        if made >= calls {
            return Some(format!("the limit of {limit} is reached: the run has made {made}"));
        }
        (made.saturating_add(next) > calls).then(|| {
            format!(
                "the limit of {limit} is reached: the run has made {made}, and its next work needs at least {next}"
            )
        })
    }

    fn reached_token_limit(&self) -> Option<String> {
        let tokens = self.limits.tokens.filter(|_| self.applies(|it| it.tokens))?;
        let used = self.usage.total_tokens();
        let next = self.next_call.total_tokens();
        if used >= tokens {
            return Some(format!("the limit of {tokens} tokens is reached: {used} are used"));
        }
        (used.saturating_add(next) > tokens).then(|| {
            format!(
                "the limit of {tokens} tokens is reached: {used} are used, and the next call needs at least {next}"
            )
        })
    }

    fn reached_cost_limit(&self) -> Option<String> {
        let usd = self.limits.usd.filter(|_| self.applies(|it| it.usd))?;
        let cost = if self.usage.tokens.calls == 0 { 0.0 } else { self.usage.cost_usd? };
        let next = self.next_call.cost_usd.unwrap_or(0.0);
        if cost >= usd {
            let limit = words::usd(usd);
            let cost = words::usd(cost);
            return Some(format!("the limit of {limit} USD is reached: {cost} are used"));
        }
        (cost + next > usd).then(|| {
            let limit = words::usd(usd);
            let cost = words::usd(cost);
            let next = words::usd(next);
            format!(
                "the limit of {limit} USD is reached: {cost} are used, and the next call costs at least {next}"
            )
        })
    }

    /// Returns the remaining time of a run with a time limit that applies.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let time = self.limits.time.filter(|_| self.applies(|it| it.time_ms))?;
        Some(time.saturating_sub(Duration::from_millis(self.elapsed_ms)))
    }

    /// Returns whether a limit applies. It no longer does once the run was routed to `limits.exhausted`, until it gets
    /// another value.
    fn applies<T: PartialEq>(&self, limit: impl Fn(&ExhaustedLimits) -> T) -> bool {
        let current = || limit(&ExhaustedLimits::of(self.limits));
        self.exhausted.is_none_or(|it| limit(&it) != current())
    }
}

/// Returns whether one of these nodes may call a model.
pub(super) fn may_call_models(
    graph: &CompiledGraph,
    mut nodes: impl Iterator<Item = NodeIndex>,
) -> bool {
    nodes.any(|it| graph.spec_at(it).describe().calls_max != Some(0))
}

/// Describes the first node limit that a node has reached with this usage.
pub(super) fn reached_by_node(
    name: &NodeName,
    policies: &Policies,
    TaskUsage { usage, elapsed_ms }: TaskUsage,
) -> Option<String> {
    let limits = policies.bounds.limits.as_ref()?;
    if let Some(calls) = limits.calls.filter(|&it| usage.tokens.calls >= it) {
        let calls = count(calls, "model call");
        return Some(format!("`{name}` has made {} of its {calls}", usage.tokens.calls));
    }
    if let Some(tokens) = limits.tokens.filter(|&it| usage.total_tokens() >= it) {
        return Some(format!("`{name}` has used {} of its {tokens} tokens", usage.total_tokens()));
    }
    if let (Some(usd), Some(cost)) = (limits.usd, usage.cost_usd)
        && cost >= usd
    {
        let cost = words::usd(cost);
        let limit = words::usd(usd);
        return Some(format!("`{name}` has used {cost} of its {limit} USD"));
    }
    let worked = Duration::from_millis(elapsed_ms);
    let time = limits.time.filter(|&it| worked >= it)?;
    let worked = words::duration(worked);
    let time = words::duration(time);
    Some(format!("`{name}` has used {worked} of its {time}"))
}
