//! Which limit of a run, or of a node, is reached.

use std::time::Duration;

use crate::{
    checkpoint::{NodeTook, Position},
    graph::{Limits, Policies},
    id::NodeName,
};

/// The first limit that a position has reached, in words.
pub(super) fn reached(limits: &Limits, position: &Position) -> Option<String> {
    let spent = &position.spent;
    if position.step.0 >= limits.steps {
        return Some(format!("the limit of {} steps is reached", limits.steps));
    }
    if let Some(tokens) = limits.tokens.filter(|&it| spent.tokens() >= it) {
        return Some(format!(
            "the limit of {tokens} tokens is reached: {} are used",
            spent.tokens()
        ));
    }
    if let (Some(usd), Some(cost)) = (limits.usd, spent.cost_usd)
        && cost >= usd
    {
        return Some(format!("the limit of {usd:.2} USD is reached: {cost:.2} are spent"));
    }
    let worked = Duration::from_millis(position.worked_ms);
    if let Some(time) = limits.time.filter(|&it| worked >= it) {
        return Some(format!("the limit of {time:?} is reached: {worked:?} were worked"));
    }
    None
}

/// The first limit of its own that a node has reached, in words.
pub(super) fn reached_by_node(
    name: &NodeName,
    policies: &Policies,
    took: Option<&NodeTook>,
) -> Option<String> {
    let (limits, NodeTook { spent, worked_ms }) = (policies.limits.as_ref()?, took?);
    if let Some(tokens) = limits.tokens.filter(|&it| spent.tokens() >= it) {
        return Some(format!("`{name}` has used {} of its {tokens} tokens", spent.tokens()));
    }
    if let (Some(usd), Some(cost)) = (limits.usd, spent.cost_usd)
        && cost >= usd
    {
        return Some(format!("`{name}` has used {cost:.2} of its {usd:.2} USD"));
    }
    let worked = Duration::from_millis(*worked_ms);
    let time = limits.time.filter(|&it| worked >= it)?;
    Some(format!("`{name}` has used {worked:?} of its {time:?}"))
}
