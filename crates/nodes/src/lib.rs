//! The built-in kinds of nodes, one file or folder each, and the factory that makes them.
//!
//! Everything about a kind is in its file: keys, reading, needs, and the node that runs. A line in
//! the list here makes it known to all others; [`Kind`] tells how to add one. A node is independent
//! of the engine: it gets a context and returns a command. Its access to the world is in
//! [`Services`].
//!
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
//! let made = workflow.into_graph(&factory(Services::offline(), registry()));
//! assert!(!made.diagnostics.has_errors());
//! assert_eq!(made.graph.entry[0].as_str(), "greet");
//! # Ok::<_, graphrun_core::diagnostic::Diagnostics>(())
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod agent;
mod approval;
mod ask;
mod cached;
mod call;
mod changes;
mod checked;
mod commit;
mod compact;
mod declared;
mod dependencies;
mod diff;
mod discard;
mod homes;
mod host_approval;
mod in_folder;
mod memory;
mod merge;
mod nested_use;
mod outputs;
mod recall;
mod remember;
mod render;
mod run;
mod run_tests;
mod sandbox_command;
mod sandboxed;
mod set;
mod tool;
mod wait;
mod write_files;

use std::sync::{Arc, LazyLock};

use graphrun_analysis::compile;
use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::{Node, UncheckedGraph},
    id::NodeName,
};
use graphrun_engine::NestedGraph;
pub use graphrun_workflow::kind::{ModelSource, Services, ToolResults};
use graphrun_workflow::{
    Custom, Map, NestedUse, NodeDefinition, NodeFactory, Parallel, Registry, Use,
    kind::{Kind, MakeContext},
};

use self::{
    agent::AgentKind, ask::AskKind, commit::CommitKind, compact::CompactKind, diff::DiffKind,
    discard::DiscardKind, merge::MergeKind, recall::RecallKind, remember::RememberKind,
    render::RenderKind, run::RunKind, run_tests::RunTestsKind, set::SetKind, tool::ToolKind,
    wait::WaitKind, write_files::WriteFilesKind,
};
pub use self::{
    agent::{AgentMatchSettings, AgentSettings, Compaction},
    ask::AskSettings,
    cached::{Cache, CachedNode},
    commit::{CommitNode, CommitOutput},
    compact::CompactSettings,
    dependencies::{LockFileReadError, read_lock_file},
    diff::DiffNode,
    discard::DiscardNode,
    homes::RunHomes,
    merge::{MergeNode, MergeOutput, MergeSide},
    nested_use::NestedUseNode,
    recall::RecallSettings,
    remember::RememberSettings,
    render::RenderNode,
    run::{Argument, CommandPlace, CommandSettings, RunOutput},
    run_tests::{
        BaselineOutcome, BaselineTest, RunTestsSettings, Runner, TestDifference, TestOutput,
        TestProof, TestResult, TestRunner, TestStatus,
    },
    set::SetNode,
    tool::ToolSettings,
    wait::{WaitEnd, WaitNode},
    write_files::{Destination, WriteFilesSettings},
};

/// Returns the built-in kinds, in the order in which messages and completion list them.
fn kinds() -> Vec<Arc<dyn Kind>> {
    vec![
        Arc::new(AgentKind),
        Arc::new(CompactKind),
        Arc::new(RunKind),
        Arc::new(RunTestsKind),
        Arc::new(ToolKind),
        Arc::new(AskKind),
        Arc::new(WaitKind),
        Arc::new(SetKind),
        Arc::new(RenderKind),
        Arc::new(Map),
        Arc::new(Use),
        Arc::new(WriteFilesKind),
        Arc::new(CommitKind),
        Arc::new(DiffKind),
        Arc::new(DiscardKind),
        Arc::new(MergeKind),
        Arc::new(RecallKind),
        Arc::new(RememberKind),
        Arc::new(Custom),
        Arc::new(Parallel),
    ]
}

static REGISTRY: LazyLock<Registry> =
    LazyLock::new(|| kinds().into_iter().fold(Registry::new(), Registry::kind));

/// Returns the built-in kinds of nodes. A program adds its own kinds, nodes, tools and states.
pub fn registry() -> Registry {
    REGISTRY.clone()
}

/// Makes the nodes of a workflow.
#[derive(Debug)]
pub struct Factory {
    services: Services,
    registry: Registry,
    cache: Option<Cache>,
}

/// Returns a factory for workflows that were loaded with the same registry.
pub fn factory(services: Services, registry: Registry) -> Factory {
    Factory { services, registry, cache: None }
}

impl Factory {
    /// Keeps the results of nodes with `cache`. Without a cache, these run every time.
    #[must_use]
    pub fn with_cache(self, cache: Option<Cache>) -> Self {
        Self { cache, ..self }
    }
}

impl NodeFactory for Factory {
    fn make(
        &self,
        name: &NodeName,
        definition: &NodeDefinition,
    ) -> Result<Arc<dyn Node>, Diagnostic> {
        let NodeDefinition { settings, span, .. } = definition;
        let services = &self.services;
        let registry = &self.registry;
        let node = settings.make(&MakeContext { name, span, services, registry })?;
        let (Some(caching), Some(cache)) = (&definition.cache, &self.cache) else {
            return Ok(node);
        };
        let cached = CachedNode::new(node, cache.clone());
        let cached = cached.no_older_than(caching.age_max).by(caching.key.clone());
        Ok(Arc::new(match settings.cache_label() {
            Some(label) => cached.labelled(label),
            None => cached,
        }))
    }

    fn make_nested(
        &self,
        _: &NodeName,
        settings: &NestedUse,
        graph: UncheckedGraph,
    ) -> Result<(Arc<dyn Node>, Diagnostics), Diagnostics> {
        let graph = compile(graph)?;
        let warnings = graph.warnings().clone();
        let nested = NestedGraph::new(graph);
        Ok((Arc::new(NestedUseNode::new(settings.clone(), nested)), warnings))
    }
}
