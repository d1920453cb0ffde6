//! `render`: fills in a template without a model, and writes the text.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Access, AccessSet, Command, Contract, ErrorKind, Node, NodeContext, NodeDescription,
        NodeError, SideEffects,
    },
    id::ChannelName,
    state::{Channel, Schema, Type, Update},
};
use graphrun_workflow::{
    Prompt, PromptView, Registry,
    kind::{
        CacheRefusal, Computation, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml,
        values::{Either, FieldName, PromptPath, TemplateKeys},
    },
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// The kind `render`.
#[derive(Debug)]
pub(super) struct RenderKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RenderKeys {
    /// Fills in a template without a model: the path of a file, or `{ text: … }`.
    render: Either<PromptPath, TemplateKeys>,
    /// The field that receives the text.
    writes: FieldName,
}

/// A node that fills in a template.
#[derive(Clone, Debug)]
pub struct RenderNode {
    /// The template.
    pub prompt: Prompt,
    /// The field that receives the text.
    pub writes: ChannelName,
    /// The fields that the template may read.
    reads: Vec<ChannelName>,
}

impl Kind for RenderKind {
    fn key(&self) -> &'static str {
        "render"
    }

    fn keys(&self) -> Keys {
        Keys::of::<RenderKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let prompt = reader.load_template(reader.value(), "render");
        if let Some(prompt) = &prompt {
            reader.check_prompt(prompt);
        }
        let writes = reader.require("writes", "name the field that receives the text")?;
        let word = reader.report().word(writes, "`writes`")?;
        let channel = reader.channel(&word)?;
        reader.expect_update(writes, &channel, &Type::String);
        let prompt = reader.finish_prompt(prompt?);
        let reads = fields_of(&prompt, reader.schema());
        Some(Arc::new(RenderNode { prompt, writes: channel, reads }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        let help = "omit it: filling in a template is faster than a lookup";
        Some(CacheRefusal::of_kind(self, help))
    }
}

/// Returns the fields of the state that a template may read.
fn fields_of(prompt: &Prompt, schema: &Schema) -> Vec<ChannelName> {
    let channels = schema.channels().iter().map(Channel::name);
    channels.filter(|it| prompt.variables().contains(it.as_str())).cloned().collect()
}

impl NodeSettings for RenderNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(Vec::new())
    }

    fn computes(&self) -> Option<Vec<Computation>> {
        let fields = self.reads.iter().cloned().map(Access::whole).collect();
        // A template may divide.
        let from = AccessSet {
            fields,
            item_paths: vec![Vec::new()],
            may_fail: true,
            ..AccessSet::default()
        };
        Some(vec![Computation { to: self.writes.clone(), from, is_copy: false, value: None }])
    }
}

#[async_trait]
impl Node for RenderNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let text = self.prompt.render(&PromptView::of(&ctx))?;
        Ok(Update::default().write(self.writes.clone(), text).into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "render",
            contract: Contract { reads: None, writes: Some(vec![self.writes.clone()]) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            fingerprint: json!({ "prompt": self.prompt.text(), "writes": self.writes }),
            ..NodeDescription::default()
        }
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        let text = self.prompt.render(&PromptView::of(ctx))?;
        Ok(Map::from_iter([(self.writes.to_string(), text.into())]))
    }
}
