//! A checked workflow, as data: its nodes and edges.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, SourceFile, SourceSpan},
    graph::{
        Backoff, Catch, Condition, Edge, FactNeeds, Graph, Limits, Node, NodeSpec, Policies, Scope,
        UncheckedGraph,
    },
    id::{ChannelName, NodeName},
    state::Schema,
};
use graphrun_sandbox::{NetworkHost, PackageInstaller};
use serde_json::{Value, json};

use super::{
    Expression, FolderDefinition, HostSettings, NestedUse, ReportFile, kind::NodeSettings,
    sections::memory::Tiers,
};

/// A workflow whose names, types, expressions and prompts are checked.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// The description of the workflow.
    pub about: Option<String>,
    /// The fields of its state.
    pub schema: Schema,
    /// The fields of the input.
    pub input: Vec<ChannelName>,
    /// The fields that are the result of a run.
    pub output: Vec<ChannelName>,
    /// The fields that receive people's messages, the default one first.
    pub inbox: Vec<ChannelName>,
    /// The folders of a run, by name.
    pub folders: BTreeMap<String, FolderDefinition>,
    /// The hosts, by name.
    pub hosts: BTreeMap<String, HostSettings>,
    /// The tiers of memory, by name.
    pub memory: Arc<Tiers>,
    /// The limits of a run.
    pub limits: Limits,
    /// The limits that the file declares, if the operator of a run replaced them.
    pub declared_limits: Option<Limits>,
    /// The targets of the limits of used workflows, which do not apply here.
    pub inner_limit_targets: Vec<NodeName>,
    /// The defaults of the nodes, which are already part of their policies.
    pub defaults: Defaults,
    /// The files that are rendered from the state of a run; those of used workflows are not part of it.
    pub reports: Vec<ReportFile>,
    /// The nodes by name.
    pub nodes: BTreeMap<NodeName, NodeDefinition>,
    /// The workflows of the nodes whose tasks are nested runs.
    pub nested: BTreeMap<NodeName, Self>,
    /// The edges.
    pub edges: Vec<Edge>,
    /// The nodes of the first step.
    pub entry: Vec<NodeName>,
    /// Each `parallel` and its branches, for drawings; a run has no node for it.
    pub groups: BTreeMap<NodeName, Vec<NodeName>>,
    /// The file it was read from.
    pub file: Arc<SourceFile>,
    /// The folder that its relative paths start from.
    pub folder: PathBuf,
    /// The facts that a run must save.
    pub facts: FactNeeds,
    /// The fields that are assigned whenever a run is done; only set for a used workflow.
    pub(super) settled: BTreeSet<ChannelName>,
}

/// The settings of nodes without their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// The retry policy for transient failures.
    pub retry: Backoff,
    /// The longest duration of one attempt. It does not apply to `ask`.
    pub timeout: Option<Duration>,
    /// The longest time without progress in one attempt. It does not apply to `ask` either.
    pub idle_timeout: Option<Duration>,
    /// The targets of failures.
    pub catch: Vec<Catch>,
    /// How often an agent may repair an invalid answer.
    pub repairs_max: u32,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeDefinition {
    /// What its kind has read.
    pub settings: Arc<dyn NodeSettings>,
    /// The policies: retries, bounds, limits, routes for failures.
    pub policies: Policies,
    /// The condition under which it runs; otherwise it is skipped.
    pub when: Option<Expression>,
    /// The cache settings, if its results are cached.
    pub cache: Option<Caching>,
    /// Where it is written.
    pub span: SourceSpan,
    /// The description of the node.
    pub about: Option<String>,
    /// The used workflows that it belongs to, the innermost first.
    pub scopes: Vec<Scope>,
    /// The fields that it reads where every path to it has assigned them.
    pub relies_on: BTreeSet<ChannelName>,
}

/// The cache settings of a node.
#[derive(Clone, Debug, Default)]
#[doc(alias = "CachePolicy")]
pub struct Caching {
    /// The greatest age of a reused result; `None` is no bound.
    pub age_max: Option<Duration>,
    /// The cache key of the node, if it differs from the node's input.
    pub key: Option<Expression>,
}

/// The limits of a sandbox, and the hosts that its programs may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Memory.
    pub memory_bytes: u64,
    /// Time of one run.
    pub time: Duration,
    /// Room for files in the work folder, and again for temporary ones.
    pub room_bytes: u64,
    /// The installed Python packages, as pip names them.
    pub requirements: Vec<String>,
    /// The hosts that programs may reach, if the operator allows them, too.
    pub network: Vec<NetworkHost>,
    /// The lock files whose packages programs find.
    pub dependencies: Vec<LockFileUse>,
}

/// A lock file in one of the folders of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockFileUse {
    /// The name of the folder.
    pub folder: String,
    /// The installer of its packages.
    pub installer: PackageInstaller,
    /// The path in the folder.
    pub path: String,
}

/// Makes the node values of a workflow.
pub trait NodeFactory {
    /// Makes the node of a definition.
    ///
    /// # Errors
    ///
    /// Fails with a description of the missing part if this machine cannot run such a node.
    fn make(
        &self,
        name: &NodeName,
        definition: &NodeDefinition,
    ) -> Result<Arc<dyn Node>, Diagnostic>;

    /// Makes the node that runs a graph, made by this factory, once for each item of a map.
    ///
    /// # Errors
    ///
    /// Fails with the diagnostics of the graph if one of them is an error.
    fn make_nested(
        &self,
        name: &NodeName,
        settings: &NestedUse,
        graph: UncheckedGraph,
    ) -> Result<(Arc<dyn Node>, Diagnostics), Diagnostics>;
}

impl Workflow {
    /// Makes the graph. The diagnostics include everything that its nodes lack on this machine.
    ///
    /// If there are errors, the affected nodes are missing in the graph.
    pub fn into_graph(self, factory: &dyn NodeFactory) -> UncheckedGraph {
        self.into_graph_of(None, factory)
    }

    /// Returns all nodes with their full names, also those of nested workflows.
    pub fn all_nodes(&self) -> BTreeMap<NodeName, &NodeDefinition> {
        let mut all: BTreeMap<_, _> =
            self.nodes.iter().map(|(name, it)| (name.clone(), it)).collect();
        for (user, nested) in &self.nested {
            all.extend(nested.all_nodes().into_iter().map(|(name, it)| (name.within(user), it)));
        }
        all
    }

    /// Returns whether a node reads or writes the memory across runs.
    pub fn needs_memory(&self) -> bool {
        self.all_nodes().values().any(|it| it.settings.needs_memory())
    }

    /// Returns the lock files whose packages its nodes find in their sandboxes, each once.
    pub fn lock_files(&self) -> BTreeSet<LockFileUse> {
        let nodes = self.all_nodes();
        let sandboxes = nodes.values().flat_map(|it| it.settings.all_sandboxes());
        sandboxes.flat_map(|it| it.dependencies.iter().cloned()).collect()
    }

    /// Returns the definitions of all nodes, also those of nested workflows.
    pub fn all_nodes_mut(&mut self) -> Vec<&mut NodeDefinition> {
        let nested = self.nested.values_mut().flat_map(Self::all_nodes_mut);
        self.nodes.values_mut().chain(nested).collect()
    }

    /// Replaces the models of all nodes that ask models, also in nested workflows.
    pub fn replace_models(&mut self, models: &[String]) {
        for definition in self.all_nodes_mut() {
            if let Some(settings) = definition.settings.with_models(models) {
                definition.settings = settings;
            }
        }
    }

    /// Makes the graph of a workflow that nodes of the node `user` run, if there is one.
    fn into_graph_of(
        mut self,
        user: Option<&NodeName>,
        factory: &dyn NodeFactory,
    ) -> UncheckedGraph {
        let mut diagnostics = Diagnostics::default();
        let mut nodes = BTreeMap::new();
        let mut unmade = BTreeSet::new();
        for (name, definition) in self.nodes {
            let full_name = user.map_or_else(|| name.clone(), |it| name.within(it));
            let settings = definition.settings.downcast_ref::<NestedUse>();
            let made = match settings.and_then(|it| Some((it, self.nested.remove(&name)?))) {
                Some((settings, nested)) => {
                    let graph = nested.into_graph_of(Some(&full_name), factory);
                    factory.make_nested(&full_name, settings, graph).map(|(node, warnings)| {
                        diagnostics.extend(warnings);
                        node
                    })
                }
                None => factory.make(&full_name, &definition).map_err(Diagnostics::from),
            };
            match made {
                Ok(node) => {
                    let NodeDefinition { policies, when, span, scopes, relies_on, .. } = definition;
                    let node = scopes.iter().fold(node, |it, scope| scope.node(it));
                    let mut spec = NodeSpec::of(node);
                    let when = when.map(|it| Arc::new(it) as Arc<dyn Condition>);
                    let outside = |it, scope: &Scope| scope.condition(it);
                    spec.when = when.map(|it| scopes.iter().fold(it, outside));
                    spec.policies = policies;
                    spec.span = Some(span);
                    spec.relies_on = relies_on;
                    nodes.insert(name, spec);
                }
                Err(more) => {
                    diagnostics.extend(more);
                    unmade.insert(name);
                }
            }
        }
        let graph = Graph {
            name: self.name,
            schema: self.schema,
            input: self.input,
            output: self.output,
            inbox: self.inbox,
            nodes,
            edges: self.edges,
            entry: self.entry,
            limits: self.limits,
            declared_limits: self.declared_limits,
            inner_limit_targets: self.inner_limit_targets,
            facts: self.facts,
        };
        UncheckedGraph { graph, unmade, diagnostics }
    }
}

impl SandboxSettings {
    /// Returns the part of the cache key of jobs in this sandbox.
    pub fn fingerprint(&self) -> Value {
        let Self { memory_bytes, time, room_bytes, requirements, network, dependencies } = self;
        let mut fingerprint = json!({
            "memory": memory_bytes, "time_ms": time.as_millis(), "requirements": requirements,
        });
        if *room_bytes != graphrun_sandbox::Limits::default().work_bytes {
            fingerprint["room"] = json!(room_bytes);
        }
        if !network.is_empty() {
            fingerprint["network"] = network.iter().map(ToString::to_string).collect();
        }
        if !dependencies.is_empty() {
            let of = |it: &LockFileUse| json!([it.folder, it.installer.as_str(), it.path]);
            fingerprint["dependencies"] = dependencies.iter().map(of).collect();
        }
        fingerprint
    }

    /// Returns whether it has a Python environment.
    pub fn has_python(&self) -> bool {
        let is_pip = |it: &LockFileUse| it.installer == PackageInstaller::Pip;
        !self.requirements.is_empty() || self.dependencies.iter().any(is_pip)
    }

    /// Returns the limits of a job in this sandbox.
    pub fn limits(&self) -> graphrun_sandbox::Limits {
        let default = graphrun_sandbox::Limits::default();
        graphrun_sandbox::Limits {
            wall: self.time,
            memory_bytes: self.memory_bytes,
            work_bytes: self.room_bytes,
            file_bytes: default.file_bytes.max(self.room_bytes / 2),
            ..default
        }
    }
}
