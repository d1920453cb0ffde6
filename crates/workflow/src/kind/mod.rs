//! What a kind of node is: the keys it takes, how they are read, and what its nodes need.
//!
//! A kind is two traits. A [`Kind`] belongs to the format: its keys, and how a node is read from
//! them with a [`NodeReader`]. The [`NodeSettings`] that it reads belong to one node of a workflow:
//! they make the node that runs, and answer what the checks, the drawings, the test cases and the
//! command line ask about it. Nothing else in the program lists kinds: each question to a kind is
//! a method here, with a default that suits a small kind.
//!
//! The built-in kinds are in `graphrun-nodes`, one file or folder each, and are registered there in
//! one list; those that need other nodes (`map`, `use`, `parallel` and `node`) are in `node::structure`. A program adds its own with [`Registry::kind`], like the built-in ones.
//!
//! To add a kind: a struct with a field for each key, a type with the settings, the two traits, and
//! the kind's line in the list of `graphrun-nodes`. To add a key: a field of that struct, and the
//! code that reads it.

mod keys;
mod reader;
mod services;

use std::{any::Any, collections::BTreeSet, fmt, sync::Arc};

use graphrun_core::{
    diagnostic::{Diagnostic, SourceSpan},
    graph::{AccessSet, ErrorKind, Node},
    id::{ChannelName, NodeName},
};

pub use graphrun_expressions::{
    file::file_type,
    flow::success::SuccessForm,
    problem::suggestion,
    typing::{describe, values_of},
};

pub(crate) use self::keys::node_schema;
pub use self::{
    keys::{KeyValue, Keys, RegisteredKind},
    reader::NodeReader,
    services::{ModelSource, Services, ToolResults},
};
use crate::{Expression, HostUse, Program, Registry, SandboxSettings, tool::DeclaredTool};
pub use crate::{
    edge::then::MatchArms,
    format::values,
    sections::{
        agents::Agent,
        argument::{ArgumentAdvice, check_argument, read_arguments},
        fixed_files::read_fixed,
    },
    source::{
        prompts::LoadedPrompt,
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    value_types,
};

/// A kind of node in the format, such as `run`.
///
/// A kind is a trait and not an enum, because programs add kinds. Its keys are one struct: the
/// reader, the JSON Schema, hover texts and completion all come from it, so that they cannot
/// disagree.
///
/// The example adds a kind `shout`, which writes a text in capitals. `set.rs` in `graphrun-nodes` is a small kind of the
/// program.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use graphrun_core::{
///     diagnostic::Diagnostic,
///     graph::{Command, Contract, Node, NodeContext, NodeDescription, NodeError, SideEffects},
///     id::ChannelName,
///     state::{Type, Update},
/// };
/// use graphrun_workflow::{
///     Expression, ExpressionView, Registry, json_schema,
///     kind::{
///         CacheRefusal, Computation, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml,
///         values,
///     },
/// };
/// use schemars::JsonSchema;
///
/// /// The keys of `shout`.
/// #[derive(JsonSchema)]
/// #[expect(dead_code, reason = "only its schema is used")]
/// struct ShoutKeys {
///     /// Writes this text in capitals.
///     shout: values::Expression,
///     /// The field that receives the text.
///     writes: values::FieldName,
/// }
///
/// #[derive(Debug)]
/// struct Shout;
///
/// #[derive(Clone, Debug)]
/// struct ShoutNode {
///     text: Expression,
///     writes: ChannelName,
/// }
///
/// impl Kind for Shout {
///     fn key(&self) -> &'static str {
///         "shout"
///     }
///
///     fn keys(&self) -> Keys {
///         Keys::of::<ShoutKeys>()
///     }
///
///     fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
///         let value = reader.value();
///         let text = reader.expression(value);
///         if let Some(text) = &text {
///             reader.expect_type(value, text.ty(), &Type::String, "the text of `shout`");
///         }
///         let writes = reader.require("writes", "name the field that receives the text");
///         let field = writes.and_then(|it| reader.report().word(it, "`writes`"))?;
///         let writes = reader.channel(&field)?;
///         reader.expect_output(&field, &writes, "the text", &Type::String);
///         Some(Arc::new(ShoutNode { text: text?, writes }))
///     }
///
///     fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
///         Some(CacheRefusal::of_kind(self, "omit it: the text costs nothing"))
///     }
///
///     fn reads_only_named_values(&self) -> bool {
///         true
///     }
/// }
///
/// impl NodeSettings for ShoutNode {
///     fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
///         Ok(Arc::new(self.clone()))
///     }
///
///     fn computes(&self) -> Option<Vec<Computation>> {
///         Some(vec![Computation { is_copy: false, ..Computation::of(&self.writes, &self.text) }])
///     }
/// }
///
/// #[async_trait]
/// impl Node for ShoutNode {
///     async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
///         let text = self.text.evaluate(&ExpressionView::of(&ctx))?;
///         let text = text.as_str().unwrap_or_default().to_uppercase();
///         Ok(Update::default().write(self.writes.clone(), text).into())
///     }
///
///     fn describe(&self) -> NodeDescription {
///         NodeDescription {
///             kind: "shout",
///             contract: Contract { reads: None, writes: Some(vec![self.writes.clone()]) },
///             calls_max: Some(0),
///             side_effects: SideEffects::Nothing,
///             ..NodeDescription::default()
///         }
///     }
/// }
///
/// let registry = Registry::new().kind(Arc::new(Shout));
/// let schema = json_schema(&registry);
/// let key = schema.pointer("/properties/nodes/additionalProperties/properties/shout").unwrap();
/// assert_eq!(key["description"], "Kind: writes this text in capitals.");
/// ```
pub trait Kind: fmt::Debug + Send + Sync {
    /// Returns the key that makes a node one of this kind.
    fn key(&self) -> &'static str;

    /// Returns the keys of its nodes, the key of the kind among them.
    fn keys(&self) -> Keys;

    /// Reads a node. Mistakes are reported to the reader, all of them; without valid settings the
    /// result is `None`.
    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>>;

    /// Returns why results of a node are never cached, if they are not. `value` is the value of the
    /// kind's key, and the registry has what the program adds.
    ///
    /// By default results are cached where the workflow wants it.
    fn refuses_cache(&self, _value: &Yaml, _registry: &Registry) -> Option<CacheRefusal> {
        None
    }

    /// Returns the fields that a node may leave unwritten although it finishes. The
    /// [description](graphrun_core::graph::NodeDescription::writes_always) of the node must agree.
    ///
    /// By default a node that finishes has written all of its fields.
    fn may_leave_unwritten<'y>(&self, _node: &Section<'y>) -> Vec<&'y str> {
        Vec::new()
    }

    /// Returns the fields of a node that show whether it has written those that it [may leave
    /// unwritten](Self::may_leave_unwritten). Conditions on them are guards.
    fn success_fields<'y>(&self, _node: &Section<'y>) -> Vec<(&'y str, SuccessForm)> {
        Vec::new()
    }

    /// Returns the fields that a node may change besides those that it writes its results to, such as a conversation.
    fn also_changes<'y>(&self, _node: &Section<'y>) -> Vec<&'y str> {
        Vec::new()
    }

    /// Returns whether its nodes ask a person.
    ///
    /// Then `timeout` limits the wait for the answer instead of an attempt: the kind takes it from
    /// [`NodeReader::timeout`], and the defaults of a workflow do not apply.
    fn asks(&self) -> bool {
        false
    }

    /// Returns whether its nodes only run others. They read no input themselves, and by default no `map` runs them.
    fn runs_others(&self) -> bool {
        false
    }

    /// Returns whether its nodes read the state and their item only by expressions, prompts and names of fields in the
    /// file.
    ///
    /// Then a node of a `map` that names neither its item nor `index` is reported. By default a node may read anything
    /// from its context.
    fn reads_only_named_values(&self) -> bool {
        false
    }

    /// Returns whether a node can run for each item of a `map`.
    fn takes_items(&self) -> bool {
        !self.runs_others()
    }
}

/// The settings of a node, as its kind has read them.
///
/// Only [`make`](Self::make) is needed. The other methods answer what other parts of the program
/// would otherwise have to know about kinds; their defaults suit a node that needs no services.
pub trait NodeSettings: Any + fmt::Debug + Send + Sync {
    /// Makes the node that runs.
    ///
    /// # Errors
    ///
    /// Fails with a description of the missing part if this machine cannot run the node.
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic>;

    /// Returns the models that it asks, if it asks any.
    fn models(&self) -> Option<ModelUse<'_>> {
        None
    }

    /// Returns the models that make the vectors of its searches and entries, if any do.
    fn embeddings(&self) -> Option<EmbeddingUse<'_>> {
        None
    }

    /// Returns the settings with other models in place of all of its models; `None` if it asks no
    /// model.
    fn with_models(&self, _models: &[String]) -> Option<Arc<dyn NodeSettings>> {
        None
    }

    /// Returns the sandbox in which it runs code.
    fn sandbox(&self) -> Option<&SandboxSettings> {
        None
    }

    /// Returns the kinds of failure that its attempts can have, without those that any node can have: `other`, `panic`, and
    /// `timeout` of a node with a timeout. A `catch` of another kind is reported. By default they are not known.
    fn failures(&self) -> Option<Vec<ErrorKind>> {
        None
    }

    /// Returns whether its failures have an exit code.
    fn has_exit_code(&self) -> bool {
        false
    }

    /// Returns the command that it runs on this machine, outside of a sandbox.
    fn host(&self) -> Option<HostUse<'_>> {
        None
    }

    /// Returns the programs that answer it in place of models.
    fn programs(&self) -> Vec<&Program> {
        Vec::new()
    }

    /// Returns the declared tools that it calls, or that a model of it may call.
    fn declared_tools(&self) -> &[Arc<DeclaredTool>] {
        &[]
    }

    /// Returns whether it writes to the output folder of the run.
    fn needs_output_dir(&self) -> bool {
        false
    }

    /// Returns the constant names of the files that it writes directly into this folder.
    fn delivered_names(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns whether it reads or writes the memory across runs.
    fn needs_memory(&self) -> bool {
        false
    }

    /// Returns the answers that a person can choose from, if it asks a person. If there are none,
    /// every value that fits the written field is an answer.
    fn choices(&self) -> Option<&[String]> {
        None
    }

    /// Returns the expression of the answers that a person can choose from, if they follow from the state.
    fn choice_list(&self) -> Option<&Expression> {
        None
    }

    /// Returns the fields that it requests from a model, in one answer.
    fn requested_fields(&self) -> &[ChannelName] {
        &[]
    }

    /// Returns the field of a conversation, to which it adds its prompt and its answer.
    fn conversation(&self) -> Option<&ChannelName> {
        None
    }

    /// Returns the fields that it computes, if its result depends on expressions over the state
    /// alone, or on a person. By default it may depend on anything that its contract reads.
    fn computes(&self) -> Option<Vec<Computation>> {
        None
    }

    /// Returns the text that a drawing shows beside the kind.
    fn detail(&self) -> Option<String> {
        None
    }

    /// Returns why its results are never cached, if these settings exclude that: they depend on more than the inputs of the
    /// node. The registry has what the program adds.
    fn refuses_cache(&self, _registry: &Registry) -> Option<CacheRefusal> {
        None
    }

    /// Returns a name that its cached results belong to, for nodes whose
    /// [fingerprint](graphrun_core::graph::NodeDescription::fingerprint) is the same for several nodes.
    fn cache_label(&self) -> Option<&str> {
        None
    }
}

impl dyn NodeSettings {
    /// Returns whether it, one of its tools or one of its programs runs code in a sandbox.
    pub fn needs_sandbox(&self) -> bool {
        let in_sandbox = |it: &&Program| it.sandbox().is_some();
        self.sandboxes().next().is_some() || self.programs().iter().any(in_sandbox)
    }

    /// Returns the sandboxes in which it and its tools run code. [Programs](NodeSettings::programs) have separate ones.
    pub fn sandboxes(&self) -> impl Iterator<Item = &SandboxSettings> {
        let of_tools = self.declared_tools().iter().filter_map(|it| it.sandbox());
        self.sandbox().into_iter().chain(of_tools)
    }

    /// Returns the sandboxes in which it, its tools and its programs run code.
    pub fn all_sandboxes(&self) -> impl Iterator<Item = &SandboxSettings> {
        let of_programs = self.programs().into_iter().filter_map(|it| it.sandbox());
        self.sandboxes().chain(of_programs.map(|it| &it.settings))
    }

    /// Returns the settings as the type that a kind reads, if they are of that type.
    pub fn downcast_ref<T: NodeSettings>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// The surroundings of a node that is made.
#[derive(Clone, Copy, Debug)]
pub struct MakeContext<'a> {
    /// The name of the node.
    pub name: &'a NodeName,
    /// Where the node is written.
    pub span: &'a SourceSpan,
    /// The external services.
    pub services: &'a Services,
    /// The nodes and tools that the program registers.
    pub registry: &'a Registry,
}

/// The models of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelUse<'a> {
    /// The models as `provider/model`, in order of fallback.
    pub models: &'a [String],
    /// Whether an attempt asks only one of them.
    pub is_choice: bool,
    /// The most calls of each model in one attempt.
    pub calls_max: u64,
}

/// The models that make the vectors of a node's searches and entries in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingUse<'a> {
    /// The models as `provider/model`.
    pub models: BTreeSet<&'a str>,
    /// The most calls of one attempt, to all of them together.
    pub calls_max: u64,
}

impl<'a> EmbeddingUse<'a> {
    /// Returns the use of these models; `None` if there are none.
    pub fn of(models: BTreeSet<&'a str>, calls_max: u64) -> Option<Self> {
        (!models.is_empty()).then_some(Self { models, calls_max })
    }
}

/// A field that a node computes.
#[derive(Clone, Debug)]
pub struct Computation {
    /// The field.
    pub to: ChannelName,
    /// The fields that it is computed from.
    pub from: AccessSet,
    /// Whether the value is a plain copy.
    pub is_copy: bool,
    /// The expression, if one computes the whole field: a part of the field may be computed from fewer fields.
    pub value: Option<Expression>,
}

impl Computation {
    /// The computation of a field by an expression.
    pub fn of(to: &ChannelName, value: &Expression) -> Self {
        let from = value.access_set();
        let is_copy = value.is_path();
        Self { to: to.clone(), from, is_copy, value: Some(value.clone()) }
    }
}

/// The reason why results of a node are never cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRefusal {
    /// The subject of the message: what the node is, such as its kind, or the tool that it calls.
    pub what: String,
    /// The alternative.
    pub help: &'static str,
}

impl CacheRefusal {
    /// Refuses to cache any node of a kind.
    pub fn of_kind(kind: &dyn Kind, help: &'static str) -> Self {
        Self { what: format!("`{}`", kind.key()), help }
    }

    /// Refuses to cache a node that calls a built-in tool, or whose model may call it.
    pub fn of_built_in_tool(tool: &str, registry: &Registry) -> Option<Self> {
        let tool = registry.find_built_in_tool(tool)?.name;
        let help = "omit it: files and memory may have changed since";
        Some(Self { what: format!("the tool `{tool}`"), help })
    }
}
