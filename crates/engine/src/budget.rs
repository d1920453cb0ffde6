//! Which limit of a run or node is reached, and which limits still apply.

use std::time::Duration;

use graphrun_core::{
    event::Usage,
    graph::{Limits, Policies},
    id::NodeName,
};

use crate::checkpoint::{ExhaustedLimits, NodeUsage, Position};

/// The usage of a run so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) steps: u64,
    pub(super) usage: Usage,
    pub(super) elapsed_ms: u64,
}

impl Used {
    /// Returns the usage of the committed steps.
    pub(super) fn by(position: &Position) -> Self {
        let Position { step, usage, elapsed_ms, .. } = position;
        Self { steps: step.0, usage: *usage, elapsed_ms: *elapsed_ms }
    }
}

/// Marks a limit as reached, which routes the run to `limits.exhausted`. This happens once: afterwards the
/// current limits are used up. A limit with another value, such as a higher one on resume, applies again.
pub fn use_up(limits: &Limits, position: &mut Position, error: String) {
    position.limit = Some(error);
    position.exhausted_limits = Some(of(limits));
}

fn of(limits: &Limits) -> ExhaustedLimits {
    let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
    let Limits { steps, tokens, usd, time, .. } = limits;
    ExhaustedLimits { steps: *steps, tokens: *tokens, usd: *usd, time_ms: time.map(ms) }
}

/// Describes the first limit that applies and is reached.
pub(super) fn reached(
    limits: &Limits,
    exhausted_limits: Option<ExhaustedLimits>,
    used: &Used,
) -> Option<String> {
    let steps_count = exhausted_limits.is_none_or(|it| it.steps != limits.steps);
    if used.steps >= limits.steps && steps_count {
        return Some(format!("the limit of {} steps is reached", limits.steps));
    }
    if let Some(reached) = out_of_budget(limits, exhausted_limits, &used.usage) {
        return Some(reached);
    }
    let time = limits
        .time
        .filter(|_| time_left(limits, exhausted_limits, used.elapsed_ms) == Some(Duration::ZERO));
    let worked = Duration::from_millis(used.elapsed_ms);
    time.map(|time| format!("the limit of {time:?} is reached: the run has worked for {worked:?}"))
}

/// Describes the first limit on model usage that applies and is reached.
pub(super) fn out_of_budget(
    limits: &Limits,
    exhausted_limits: Option<ExhaustedLimits>,
    usage: &Usage,
) -> Option<String> {
    let now = of(limits);
    let counts = |differs: fn(&ExhaustedLimits, &ExhaustedLimits) -> bool| {
        exhausted_limits.is_none_or(|it| differs(&it, &now))
    };
    if let Some(tokens) = limits.tokens.filter(|&it| usage.total_tokens() >= it)
        && counts(|a, b| a.tokens != b.tokens)
    {
        return Some(format!(
            "the limit of {tokens} tokens is reached: {} are used",
            usage.total_tokens()
        ));
    }
    if let (Some(usd), Some(cost)) = (limits.usd, usage.cost_usd)
        && cost >= usd
        && counts(|a, b| a.usd != b.usd)
    {
        return Some(format!("the limit of {usd:.2} USD is reached: {cost:.2} are spent"));
    }
    None
}

/// Returns the remaining time of a run with a time limit that applies.
pub(super) fn time_left(
    limits: &Limits,
    exhausted_limits: Option<ExhaustedLimits>,
    elapsed_ms: u64,
) -> Option<Duration> {
    let counts = exhausted_limits.is_none_or(|it| it.time_ms != of(limits).time_ms);
    let time = limits.time.filter(|_| counts)?;
    Some(time.saturating_sub(Duration::from_millis(elapsed_ms)))
}

/// Describes the first node limit that a node has reached.
pub(super) fn reached_by_node(
    name: &NodeName,
    policies: &Policies,
    node_usage: Option<&NodeUsage>,
) -> Option<String> {
    let (limits, NodeUsage { usage, elapsed_ms }) = (policies.limits.as_ref()?, node_usage?);
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
