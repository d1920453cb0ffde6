//! Tokens and cost of model calls, from the context windows and prices of the models.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, PlannedNode, parts_of_usd, usd};
use crate::{
    cli::{
        registry,
        settings::config::{Config, FILE},
    },
    compile::compile,
    id::NodeName,
    models::{EmbeddingRequest, Price},
    nodes::{Services, factory},
    workflow::Workflow,
};

/// The maximum usage of model calls, by node, those for embeddings included.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Those of nested runs have the name of the node that runs them before their own.
    agents: BTreeMap<NodeName, AgentModels>,
    nested: BTreeMap<NodeName, NestedRun>,
}

/// The maximum usage of a nested run, if it is known.
#[derive(Debug)]
struct NestedRun {
    tokens: Option<Attempts<u64>>,
    cost: Option<Attempts<f64>>,
}

/// The usage of the first attempt at a task, and of each further one.
#[derive(Clone, Copy, Debug)]
struct Attempts<T> {
    first: T,
    again: T,
}

/// The models of a node.
#[derive(Debug, Default)]
struct AgentModels {
    each: Vec<AgentModel>,
    /// Whether an attempt asks only one of them.
    is_choice: bool,
    /// The models that make its embeddings.
    embedding: Vec<AgentModel>,
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
            let mut models = AgentModels::default();
            if let Some(used) = definition.settings.models() {
                let window = |it| config.windows.of(it);
                models.is_choice = used.is_choice;
                models
                    .each
                    .extend(used.models.iter().map(|it| ask(it, used.calls_max, window(it))));
            }
            if let Some(used) = definition.settings.embeddings() {
                let most = Some(EmbeddingRequest::tokens_max());
                let embed = used.models.into_iter().map(|it| ask(it, used.calls_max, most));
                models.embedding.extend(embed);
            }
            if models.all().next().is_some() {
                agents.insert(name.clone(), models);
            }
        }
        let mut nested = BTreeMap::new();
        for (user, workflow) in &workflow.nested {
            let rates = Self::of(workflow, config);
            nested.extend(NestedRun::of(workflow, &rates).map(|it| (user.clone(), it)));
            agents.extend(rates.agents.into_iter().map(|(name, it)| (name.within(user), it)));
        }
        Self { agents, nested }
    }

    /// Returns the tokens of this many visits of a node, with all attempts.
    pub(super) fn tokens(&self, node: &NodeName, visits: u64, attempts: u64) -> Option<u64> {
        if let Some(nested) = self.nested.get(node) {
            let Attempts { first, again } = nested.tokens?;
            let again = again.saturating_mul(attempts.saturating_sub(visits));
            return Some(first.saturating_mul(visits).saturating_add(again));
        }
        let AgentModels { each, is_choice, embedding } = self.agents.get(node)?;
        let tokens = |it: &AgentModel| Some(it.calls.saturating_mul(it.tokens?));
        let each = each.iter().map(tokens).collect::<Option<Vec<u64>>>()?.into_iter();
        let all = if *is_choice { each.max().unwrap_or(0) } else { super::sum(each) };
        let embedding = embedding.iter().map(tokens).collect::<Option<Vec<u64>>>()?;
        let all = all.saturating_add(super::sum(embedding.into_iter()));
        Some(all.saturating_mul(attempts))
    }

    /// Returns the cost of this many visits of a node, with all attempts.
    #[expect(clippy::cast_precision_loss, reason = "no run makes 2^52 calls")]
    pub(super) fn cost(&self, node: &NodeName, visits: u64, attempts: u64) -> Option<f64> {
        if let Some(nested) = self.nested.get(node) {
            let Attempts { first, again } = nested.cost?;
            return Some(first * visits as f64 + again * attempts.saturating_sub(visits) as f64);
        }
        let AgentModels { each, is_choice, embedding } = self.agents.get(node)?;
        let cost = |it: &AgentModel| Some(it.calls as f64 * it.cost()?);
        let each = each.iter().map(cost).collect::<Option<Vec<f64>>>()?.into_iter();
        let all: f64 = if *is_choice { each.fold(0.0, f64::max) } else { each.sum() };
        let embedding: f64 = embedding.iter().map(cost).sum::<Option<f64>>()?;
        Some((all + embedding) * attempts as f64)
    }

    /// Returns the models that agents may call, in the order of their names.
    pub(super) fn models(&self) -> BTreeSet<&str> {
        self.agents.values().flat_map(AgentModels::all).map(|it| it.model.as_str()).collect()
    }

    /// Returns the models whose context size or price is unknown.
    pub(super) fn unknown(&self) -> Vec<String> {
        let asked = || self.agents.values().flat_map(AgentModels::all);
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

impl NestedRun {
    /// Returns the maximum usage of a nested run of a workflow; `None` if it does not compile.
    fn of(workflow: &Workflow, rates: &Rates) -> Option<Self> {
        let factory = factory(Services::offline(), registry());
        let compiled = compile(workflow.clone().into_graph(&factory)).ok()?;
        let plan = Plan::planned(&compiled, rates);
        // The number of items is not known.
        let is_known = !plan.has_items();
        let node = |name: &NodeName| plan.nodes.iter().find(|it| it.node == *name);
        let of_task = |all: u64, visits: u64| all.div_ceil(visits.max(1));
        let tokens = plan.tokens_max.filter(|_| is_known).map(|first| {
            let of = |it: &PlannedNode| Some(of_task(it.tokens_max?, it.runs_max));
            let again = compiled.most_again(first, |name| of(node(name)?));
            Attempts { first, again: again.unwrap_or(first) }
        });
        let cost = plan.cost_usd_max.filter(|_| is_known).map(|first| {
            let of = |it: &PlannedNode| Some(of_task(parts_of_usd(it.cost_usd_max?), it.runs_max));
            let again = compiled.most_again(parts_of_usd(first), |name| of(node(name)?));
            Attempts { first, again: again.map_or(first, usd) }
        });
        Some(Self { tokens, cost })
    }
}

impl AgentModels {
    fn all(&self) -> impl Iterator<Item = &AgentModel> {
        self.each.iter().chain(&self.embedding)
    }
}

impl AgentModel {
    /// Returns the highest cost of a call: its context consists of the most expensive kind of tokens.
    fn cost(&self) -> Option<f64> {
        Some(self.price?.most(self.tokens?))
    }
}
