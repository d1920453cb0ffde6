//! The facts of the open step.

use std::sync::Arc;

use graphrun_core::{
    graph::{Remaining, RunFacts},
    id::NodeName,
};

use super::Machine;

impl Machine {
    /// Notes the facts at the start of the step after the position.
    pub(super) fn note_facts(&mut self) {
        let graph = self.graph.definition();
        let used = &self.position.used;
        let usage_of = |it: &NodeName| Some((it.clone(), used.node_usage.get(it)?.usage));
        let steps = self.limits.steps.saturating_sub(self.position.steps_of_turn());
        let calls = self.limits.calls.map(|it| it.saturating_sub(used.usage.tokens.calls));
        let tokens = self.limits.tokens.map(|it| it.saturating_sub(used.usage.total_tokens()));
        // A cost with an unknown part counts as nothing: the limit does not know it, either.
        let cost = used.usage.cost_usd.unwrap_or(0.0);
        let usd = self.limits.usd.map(|limit| (limit - cost).max(0.0));
        // The tasks of the last step no longer share the facts, so this copies nothing.
        let facts = Arc::make_mut(&mut self.facts);
        // The workflow may need the time only since the run was resumed.
        facts.began = graph.facts.time.then(|| self.position.began.unwrap_or(self.now));
        facts.usage = used.usage;
        if !graph.facts.usage_of.is_empty() {
            facts.node_usage = graph.facts.usage_of.iter().filter_map(usage_of).collect();
        }
        facts.remaining = Remaining { steps, calls, tokens, usd };
    }

    /// Returns the facts for a task of the step.
    pub(super) fn facts_of(&self, index: usize) -> Arc<RunFacts> {
        match self.open_step.tasks()[index]
            .item
            .filter(|_| self.graph.definition().facts.item_index)
        {
            Some(item) => {
                Arc::new(RunFacts { item_index: Some(item), ..self.facts.as_ref().clone() })
            }
            None => Arc::clone(&self.facts),
        }
    }
}
