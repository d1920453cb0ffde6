//! Tokens and cost of model calls, from the context windows and prices of the models.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cli::config::{Config, FILE},
    id::NodeName,
    llm::{EmbeddingRequest, Price},
    workflow::Workflow,
};

/// The maximum usage of model calls, by node, those for embeddings included.
#[derive(Debug, Default)]
pub(super) struct Rates {
    agents: BTreeMap<NodeName, Vec<AgentModel>>,
}

/// A model that an agent may call.
#[derive(Debug)]
struct AgentModel {
    model: String,
    /// The calls in one attempt.
    calls: u64,
    /// The most tokens of one call.
    tokens: Option<u64>,
    price: Option<Price>,
}

impl Rates {
    pub(super) fn of(workflow: &Workflow, config: &Config) -> Self {
        let mut agents = BTreeMap::new();
        for (name, definition) in &workflow.nodes {
            let ask = |model: &str, calls, tokens| AgentModel {
                model: model.to_owned(),
                calls,
                tokens,
                price: config.prices.of(model).copied(),
            };
            let mut asked = Vec::new();
            if let Some(used) = definition.settings.models() {
                let window = |it| config.windows.of(it);
                asked.extend(used.models.iter().map(|it| ask(it, used.answers_max, window(it))));
            }
            if let Some(used) = definition.settings.embeddings() {
                let most = Some(EmbeddingRequest::tokens_max());
                asked.extend(used.models.into_iter().map(|it| ask(it, used.calls_max, most)));
            }
            if !asked.is_empty() {
                agents.insert(name.clone(), asked);
            }
        }
        Self { agents }
    }

    /// Returns the tokens of this many attempts of a node.
    pub(super) fn tokens(&self, node: &NodeName, attempts: u64) -> Option<u64> {
        let each =
            self.agents.get(node)?.iter().map(|it| Some(it.calls.saturating_mul(it.tokens?)));
        let each: Option<Vec<u64>> = each.collect();
        Some(super::sum(each?.into_iter()).saturating_mul(attempts))
    }

    /// Returns the cost of this many attempts of a node.
    #[expect(clippy::cast_precision_loss, reason = "no run makes 2^52 calls")]
    pub(super) fn cost(&self, node: &NodeName, attempts: u64) -> Option<f64> {
        let each = self.agents.get(node)?.iter().map(|it| Some(it.calls as f64 * it.cost()?));
        let each: Option<Vec<f64>> = each.collect();
        Some(each?.into_iter().sum::<f64>() * attempts as f64)
    }

    /// Returns the models that agents may call, in the order of their names.
    pub(super) fn models(&self) -> BTreeSet<&str> {
        self.agents.values().flatten().map(|it| it.model.as_str()).collect()
    }

    /// Returns the models whose context size or price is unknown.
    pub(super) fn unknown(&self) -> Vec<String> {
        let asked = || self.agents.values().flatten();
        let named = |is_unknown: fn(&AgentModel) -> bool| -> Vec<String> {
            let names: BTreeSet<&str> =
                asked().filter(|it| is_unknown(it)).map(|it| it.model.as_str()).collect();
            names.into_iter().map(|it| format!("`{it}`")).collect()
        };
        let (sizes, prices) = (named(|it| it.tokens.is_none()), named(|it| it.price.is_none()));
        let mut unknown = Vec::new();
        if !sizes.is_empty() {
            let names = sizes.join(", ");
            unknown.push(format!(
                "tokens and cost: no context window of {names}; `[context]` in `{FILE}` sets it"
            ));
        }
        if !prices.is_empty() {
            let names = prices.join(", ");
            unknown.push(format!("cost: no price of {names}; `[prices]` in `{FILE}` sets it"));
        }
        unknown
    }
}

impl AgentModel {
    /// Returns the highest cost of a call: its context consists of the most expensive kind of tokens.
    fn cost(&self) -> Option<f64> {
        Some(self.price?.most(self.tokens?))
    }
}
