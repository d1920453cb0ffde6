//! `compact`: replaces the older turns of a conversation by a summary. The rules are those of an agent's history.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError, SideEffects,
    },
    id::ChannelName,
    state::Update,
};
use graphrun_models::RequestSettings;
use graphrun_workflow::{
    Registry,
    kind::{
        CacheRefusal, Keys, Kind, MakeContext, ModelUse, NodeReader, NodeSettings, Section,
        Services, Yaml,
        values::{AgentName, FieldName, Positive},
    },
};
use schemars::JsonSchema;
use serde_json::json;

use super::{
    agent::{Compaction, Summariser, check_history, check_replaceable, refuse_program},
    call::{Calls, MODEL_FAILURES},
};

/// The value of the kind `compact`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct CompactParts {
    /// The field with the messages.
    field: FieldName,
    /// One of `agents`, whose model writes the summary.
    agent: AgentName,
    /// The length after it, in tokens: one for 3.5 characters.
    to: Positive,
    /// The length from which it is compacted. Default: twice `to`.
    over: Option<Positive>,
    /// How many of the last turns stay whole. Default: 2.
    keep: Option<Positive>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CompactKeys {
    /// Replaces the older turns of a conversation by a summary, once it is too long.
    compact: CompactParts,
}

/// The kind `compact`.
#[derive(Debug)]
pub(crate) struct CompactKind;

/// A node that compacts a conversation.
#[derive(Clone, Debug)]
pub struct CompactSettings {
    /// The field with the messages.
    pub field: ChannelName,
    /// The name of the agent whose model writes the summary.
    pub agent: String,
    /// Its models as `provider/model`, in order of fallback.
    pub models: Vec<String>,
    /// The settings of its requests.
    pub settings: RequestSettings,
    /// When the conversation is compacted, and to which length.
    pub compaction: Compaction,
}

/// A node that runs.
#[derive(Debug)]
struct Compact {
    definition: CompactSettings,
    services: Services,
}

impl Kind for CompactKind {
    fn key(&self) -> &'static str {
        "compact"
    }

    fn keys(&self) -> Keys {
        Keys::of::<CompactKeys>()
    }

    fn also_changes<'y>(&self, node: &Section<'y>) -> Vec<&'y str> {
        let field = node.get("compact").and_then(|it| it.get("field"));
        field.and_then(Yaml::text).into_iter().collect()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let field = parts.require(reader.report(), "field", "the field with the messages");
        let field = field.and_then(|yaml| {
            let word = reader.report().word(yaml, "`field`")?;
            let field = reader.channel(&word)?;
            check_history(reader, yaml, &field, &[])?;
            check_replaceable(reader, yaml, &field)?;
            Some(field)
        });
        let agent = parts.require(reader.report(), "agent", "the agent that writes the summary");
        let agent = agent.and_then(|yaml| {
            let word = reader.report().word(yaml, "`agent`")?;
            let found = reader.agent(&word)?;
            if let Some(program) = &found.program {
                refuse_program(reader, &word, &program.argv[0]);
                return None;
            }
            Some((word.text, found))
        });
        let compaction = Compaction::read(reader, &parts);
        let (agent, found) = agent?;
        Some(Arc::new(CompactSettings {
            field: field?,
            agent,
            models: found.models,
            settings: found.settings,
            compaction: compaction?,
        }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: the update names the messages of this run"))
    }
}

impl NodeSettings for CompactSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let services = ctx.services.clone();
        Ok(Arc::new(Compact { definition: self.clone(), services }))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(MODEL_FAILURES.to_vec())
    }

    fn models(&self) -> Option<ModelUse<'_>> {
        Some(ModelUse { models: &self.models, is_choice: false, calls_max: 1 })
    }

    fn with_models(&self, models: &[String]) -> Option<Arc<dyn NodeSettings>> {
        Some(Arc::new(Self { models: models.to_vec(), ..self.clone() }))
    }

    fn detail(&self) -> Option<String> {
        Some(self.field.to_string())
    }
}

#[async_trait]
impl Node for Compact {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let CompactSettings { field, models, settings, compaction, .. } = &self.definition;
        let summariser = Summariser { models, settings, services: &self.services };
        let calls = Calls::default();
        let update = match compaction.apply(&ctx, field, summariser, &calls).await? {
            Some(compacted) => Update::default().write(field.clone(), compacted.changes),
            None => Update::default(),
        };
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let CompactSettings { field, models, settings, compaction, .. } = &self.definition;
        NodeDescription {
            kind: "compact",
            contract: Contract { reads: None, writes: Some(vec![field.clone()]) },
            // A short conversation stays as it is.
            writes_always: Some(Vec::new()),
            calls_max: u64::try_from(models.len()).ok(),
            side_effects: SideEffects::Models,
            fingerprint: json!([field, models, settings, compaction.fingerprint()]),
            ..NodeDescription::default()
        }
    }
}
