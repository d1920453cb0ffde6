//! The built-in kinds of nodes, one file each, and the factory that makes them.
//!
//! A node is independent of the engine: it gets a context and returns a command. Its access to the
//! world is in [`Services`].
//! ```
//! use std::{path::Path, sync::Arc};
//!
//! use graphrun_core::diagnostic::SourceFile;
//! use graphrun_nodes::{Services, factory, registry};
//! use graphrun_workflow::parse;
//!
//! let text = "
//! graphrun: 1
//! name: greeting
//! state: { name: string, text: string }
//! input: name
//! start: greet
//! nodes:
//!   greet: { set: { text: '\"Hello \" + name' }, then: end }
//! ";
//! let file = Arc::new(SourceFile { name: "greeting.yaml".into(), text: text.to_owned() });
//! let (workflow, _warnings) = parse(file, Path::new(""), &registry())?;
//! let (graph, diagnostics) = workflow.into_graph(&factory(Services::offline(), registry()));
//! assert!(!diagnostics.has_errors());
//! assert_eq!(graph.entry[0].as_str(), "greet");
//! # Ok::<_, graphrun_core::diagnostic::Diagnostics>(())
//! ```

// Tests may; the library may not.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod agent;
mod ask;
mod cached;
mod call;
mod checked;
mod pass;
mod run;
mod run_tests;
mod sandboxed;
mod set;
mod tool;
mod used;
mod write_files;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Node, NodeContext},
    id::NodeName,
};
use graphrun_models::{ChatModel, ModelError, Prices};
use graphrun_sandbox::Replace;
use graphrun_team::TeamState;
use graphrun_workflow::{
    ExpressionView, NodeDefinition, NodeFactory, NodeKind, PromptView, Registry, tool::built_in,
};

pub use self::cached::{Cache, Cached};
use self::{
    agent::{Agent, Toolbox},
    ask::Ask,
    checked::Checked,
    pass::Pass,
    run::Run,
    run_tests::RunTests,
    set::Set,
    tool::Call,
    used::{Enter, Leave},
    write_files::WriteFiles,
};
/// The source of the models of agents.
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// Returns the model of that name, such as `openai/gpt-5-mini`.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the model cannot be used.
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError>;
}

/// The external services of the built-in nodes.
#[derive(Clone, Debug)]
pub struct Services {
    /// The source of the models of agents.
    pub models: Arc<dyn ModelSource>,
    /// The prices of models, as far as they are known.
    pub prices: Arc<Prices>,
    /// The folder for environments of generated code.
    pub cache_dir: PathBuf,
    /// The folder that a run delivers to.
    pub output_dir: PathBuf,
    /// The files there that it may replace.
    pub replace: Replace,
    /// The cache of results. Without it, nodes with `cache` run every time.
    pub results: Option<Cache>,
}

impl Services {
    /// No models, no cache, and deliveries to `out` in the current folder: enough for workflows
    /// that compute, ask people, or run custom nodes.
    pub fn offline() -> Self {
        Self {
            models: Arc::new(NoModels),
            prices: Arc::default(),
            cache_dir: PathBuf::from(".graphrun/cache"),
            output_dir: PathBuf::from("out"),
            replace: Replace::default(),
            results: None,
        }
    }
}

/// A source that has no model.
#[derive(Debug)]
struct NoModels;

impl ModelSource for NoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let message = format!("no models are connected here, so `{name}` is unavailable");
        Err(ModelError::Auth { message })
    }
}

/// Makes the nodes of a workflow.
#[derive(Debug)]
pub struct Factory {
    services: Services,
    registry: Registry,
}

/// The states and nodes that every workflow may name.
pub fn registry() -> Registry {
    Registry::new().state("TeamState", TeamState::schema())
}

/// A factory for workflows that were loaded with the same registry.
pub fn factory(services: Services, registry: Registry) -> Factory {
    Factory { services, registry }
}

impl NodeFactory for Factory {
    fn make(
        &self,
        name: &NodeName,
        definition: &NodeDefinition,
    ) -> Result<Arc<dyn Node>, Diagnostic> {
        let services = self.services.clone();
        let node: Arc<dyn Node> = match definition.kind.clone() {
            NodeKind::Agent(agent) => {
                let find = |tool: &String| self.tool(name, definition, tool, &agent.tools_root);
                let tools = agent.tools.iter().map(find).collect::<Result<_, _>>()?;
                Arc::new(Agent::new(agent, services, Toolbox::new(tools)))
            }
            NodeKind::RunTests(run_tests) => Arc::new(RunTests::new(run_tests, services)),
            NodeKind::Run(run) => Arc::new(Run::new(run, services)),
            NodeKind::Tool(call) => {
                let tool = self.tool(name, definition, &call.tool, &call.root)?;
                Arc::new(Call::new(call, tool))
            }
            NodeKind::Ask(ask) => Arc::new(Ask::new(ask)),
            NodeKind::Set(set) => Arc::new(Set::new(set)),
            // The route behind the node dispatches the items.
            NodeKind::Map(_) => Arc::new(Pass),
            NodeKind::Enter(enter) => Arc::new(Enter(enter)),
            NodeKind::Leave(leave) => Arc::new(Leave(leave)),
            NodeKind::WriteFiles(files) => Arc::new(WriteFiles::new(files, services)),
            NodeKind::Custom(custom) => self.registry.custom(&custom).ok_or_else(|| {
                let message = format!("node `{name}` names `{custom}`, which is not registered");
                Diagnostic::error("GR010", message)
                    .at(Some(definition.place.clone()), "no such node in Rust")
                    .help("register it with `Registry::node`, in the program that loads the file")
            })?,
        };
        let (Some(caching), Some(cache)) = (&definition.cache, &self.services.results) else {
            return Ok(node);
        };
        let cached = Cached::new(node, cache.clone());
        let cached = cached.no_older_than(caching.age_max).by(caching.key.clone());
        Ok(Arc::new(match &definition.kind {
            NodeKind::Custom(custom) => cached.labelled(custom.as_str()),
            _ => cached,
        }))
    }
}

impl Factory {
    /// Finds the tool of a node.
    fn tool(
        &self,
        node: &NodeName,
        definition: &NodeDefinition,
        tool: &str,
        root: &Path,
    ) -> Result<Checked, Diagnostic> {
        let found = self.registry.find_tool(tool);
        let found = found.or_else(|| built_in(tool, root.to_owned())).ok_or_else(|| {
            let message = format!("node `{node}` names `{tool}`, which is not registered");
            Diagnostic::error("GR110", message)
                .at(Some(definition.place.clone()), "no such tool in Rust")
                .help("register it with `Registry::tool`, in the program that loads the file")
        })?;
        Checked::new(found).map_err(|reason| {
            let message = format!("the tool `{tool}` of node `{node}` cannot be called: {reason}");
            Diagnostic::error("GR114", message)
                .at(Some(definition.place.clone()), "called here")
                .help("correct the schema, in the program that registers the tool")
        })
    }
}

/// The values that a prompt of a node can read.
fn prompt_view(ctx: &NodeContext) -> PromptView<'_> {
    PromptView {
        state: &ctx.state,
        visit: ctx.visit(),
        max_visits: ctx.max_visits,
        trigger: &ctx.trigger,
        input: &ctx.input,
    }
}

/// The values that an expression of a node can read.
fn expression_view<'a>(ctx: &'a NodeContext, output_dir: Option<&'a str>) -> ExpressionView<'a> {
    let item = ctx.input.item();
    ExpressionView { state: &ctx.state, visits: &ctx.visits, item, output_dir }
}
