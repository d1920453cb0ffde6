//! An agent that a value of the state chooses.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError, SideEffects,
    },
    state::plain_text,
};
use graphrun_workflow::{
    Expression, ExpressionView, Program, Registry,
    kind::{CacheRefusal, EmbeddingUse, MakeContext, ModelUse, NodeSettings},
    tool::DeclaredTool,
};
use serde_json::{Map, Value, json};

use super::{Agent, AgentSettings};

/// A node that asks one of several agents.
#[derive(Clone, Debug)]
pub struct AgentMatchSettings {
    /// The expression whose value chooses the agent.
    pub on: Expression,
    /// The nodes with the agents, each with its value. They differ only in the agent.
    pub nodes: Vec<(String, AgentSettings)>,
    models: Vec<String>,
    declared: Vec<Arc<DeclaredTool>>,
}

/// Asks the agent for the value.
#[derive(Debug)]
struct AgentMatch {
    on: Expression,
    agents: Vec<(String, Agent)>,
}

impl AgentMatchSettings {
    pub(super) fn new(on: Expression, nodes: Vec<(String, AgentSettings)>) -> Self {
        let mut models: Vec<String> = Vec::new();
        for model in nodes.iter().flat_map(|(_, it)| &it.models) {
            if !models.contains(model) {
                models.push(model.clone());
            }
        }
        let declared = nodes.iter().flat_map(|(_, it)| it.declared.clone()).collect();
        Self { on, nodes, models, declared }
    }
}

impl NodeSettings for AgentMatchSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let connect = |(value, it): &(String, AgentSettings)| Ok((value.clone(), it.connect(ctx)?));
        let agents = self.nodes.iter().map(connect).collect::<Result<_, Diagnostic>>()?;
        Ok(Arc::new(AgentMatch { on: self.on.clone(), agents }))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        let each = self.nodes.iter().filter_map(|(_, it)| it.failures());
        Some(each.flatten().collect())
    }

    fn has_exit_code(&self) -> bool {
        self.nodes.iter().any(|(_, it)| it.has_exit_code())
    }

    fn programs(&self) -> Vec<&Program> {
        self.nodes.iter().filter_map(|(_, it)| it.program.as_ref()).collect()
    }

    fn declared_tools(&self) -> &[Arc<DeclaredTool>] {
        &self.declared
    }

    fn models(&self) -> Option<ModelUse<'_>> {
        let asking = self.nodes.iter().filter(|(_, it)| it.program.is_none());
        let calls_max = asking.map(|(_, it)| it.calls_max()).max()?;
        let is_choice = self.nodes.iter().all(|(_, it)| it.models.len() <= 1);
        Some(ModelUse { models: &self.models, is_choice, calls_max })
    }

    fn with_models(&self, models: &[String]) -> Option<Arc<dyn NodeSettings>> {
        let replaced = |(value, it): &(String, AgentSettings)| {
            let models = if it.program.is_some() { Vec::new() } else { models.to_vec() };
            (value.clone(), AgentSettings { models, ..it.clone() })
        };
        let nodes = self.nodes.iter().map(replaced).collect();
        Some(Arc::new(Self::new(self.on.clone(), nodes)))
    }

    fn needs_memory(&self) -> bool {
        self.nodes.iter().any(|(_, it)| it.needs_memory())
    }

    fn embeddings(&self) -> Option<EmbeddingUse<'_>> {
        let each = self.nodes.iter().filter_map(|(_, it)| it.embeddings());
        each.reduce(|mut all, it| {
            all.models.extend(it.models);
            EmbeddingUse { calls_max: all.calls_max.max(it.calls_max), ..all }
        })
    }

    fn refuses_cache(&self, registry: &Registry) -> Option<CacheRefusal> {
        self.nodes.iter().find_map(|(_, it)| it.refuses_cache(registry))
    }

    fn detail(&self) -> Option<String> {
        let agents: Vec<&str> = self.nodes.iter().map(|(_, it)| it.agent.as_str()).collect();
        Some(agents.join(" | "))
    }
}

impl AgentMatch {
    fn chosen(&self, ctx: &NodeContext) -> Result<&Agent, NodeError> {
        let value = self.on.evaluate(&ExpressionView::of(ctx))?;
        let word = plain_text(&value);
        let found = self.agents.iter().find(|it| it.0 == word).map(|it| &it.1);
        found.ok_or_else(|| {
            NodeError::permanent(format!("`{}` is `{word}`, which has no agent", self.on.source()))
        })
    }
}

#[async_trait]
impl Node for AgentMatch {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        self.chosen(&ctx)?.run(ctx).await
    }

    fn describe(&self) -> NodeDescription {
        let each: Vec<(&str, NodeDescription)> =
            self.agents.iter().map(|(value, it)| (value.as_str(), it.describe())).collect();
        let calls = each.iter().map(|(_, it)| it.calls_max);
        let is_world = each.iter().any(|(_, it)| it.side_effects == SideEffects::World);
        let fingerprints = each.iter().map(|(value, it)| json!([value, it.fingerprint]));
        let agents: Vec<Value> = fingerprints.collect();
        NodeDescription {
            kind: "agent",
            contract: each.first().map_or_else(Contract::default, |it| it.1.contract.clone()),
            calls_max: calls.collect::<Option<Vec<u64>>>().and_then(|it| it.into_iter().max()),
            side_effects: if is_world { SideEffects::World } else { SideEffects::Models },
            fingerprint: json!({"match": self.on.source(), "agents": agents}),
            ..NodeDescription::default()
        }
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let value = self.on.evaluate(&ExpressionView::of(ctx))?;
        Ok(json!([value, self.chosen(ctx)?.cache_key(ctx)?]))
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        self.chosen(ctx)?.preview(ctx)
    }
}
