//! Which limit of a run is reached.

use crate::{checkpoint::Position, graph::Limits};

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
    let worked = std::time::Duration::from_millis(position.worked_ms);
    if let Some(time) = limits.time.filter(|&it| worked >= it) {
        return Some(format!("the limit of {time:?} is reached: {worked:?} were worked"));
    }
    None
}
