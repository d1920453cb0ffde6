//! Used workflows: each is found and loaded before the workflow that uses it is lowered, and then
//! becomes a part of it.
//!
//! A node `review` that uses a workflow becomes two: `review` fills the fields and starts the used
//! workflow. `review.end` runs when no task is left in it, and takes its results. The nodes and
//! fields between them are called `review.lint` and `review.draft`. A workflow that runs for each item of a `map`, and one
//! with `limits`, stays as it is: each call is a nested run of it.

use std::{
    any::Any,
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path},
    sync::Arc,
};

use graphrun_core::{
    diagnostic::{Diagnostic, SourceFile},
    graph::{Defer, Edge, ErrorKind, OnFinish, Policies, Schedule, Scope, Target},
    id::{NodeName, SCOPE_DEPTH_MAX},
    state::{Channel, Schema},
};
use graphrun_expressions::flow::guarantee::Guarantee;
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};

use crate::{
    EnterNode, LeaveNode, NodeDefinition, Registry, Workflow,
    format::{LimitsKeys, MappingKeys as _},
    source::{
        files::SourceFolder,
        reader::{Data, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    survey_within,
};

/// The most files of one workflow.
const FILES_MAX: usize = 100;

/// The total size of a workflow and the workflows it uses.
#[derive(Debug, Default)]
pub(crate) struct WholeSize {
    files: Cell<usize>,
    nodes: Cell<u64>,
}

/// The current file, and the chain of files that use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    file: &'a Path,
    user: Option<&'a Self>,
    size: &'a WholeSize,
    pub(crate) registry: &'a Registry,
    /// The run that the file can be a part of; `None` for a file that runs by itself.
    outer: Option<OuterRun>,
}

/// The run of the file that uses another one.
#[derive(Clone, Copy, Debug)]
struct OuterRun {
    limits: DeclaredLimits,
    /// Whether a file with `limits` becomes a part of it, too, so that they do not hold.
    takes_limited: bool,
}

/// When the calls of a used workflow are nested runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    Always,
    /// If the workflow has `limits`: they hold for each call.
    IfLimited,
    Never,
}

impl Nesting {
    /// Returns that of a node with this `use`.
    pub(crate) fn of(used: &Yaml, is_item: bool) -> Self {
        match used.get("nested").and_then(Yaml::text) {
            _ if is_item => Self::Always,
            Some("true") => Self::Always,
            Some("false") => Self::Never,
            _ => Self::IfLimited,
        }
    }

    /// Returns whether the calls of this workflow are nested runs.
    pub(crate) fn applies_to(self, used: &Workflow) -> bool {
        match self {
            Self::Always => true,
            Self::IfLimited => used.limits.span.is_some(),
            Self::Never => false,
        }
    }
}

/// Which limits a run has in any case, because its file declares them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeclaredLimits {
    calls: bool,
    tokens: bool,
    usd: bool,
}

/// The nodes of a file that use workflows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses<'a> {
    pub(crate) nodes: &'a Yaml,
    /// The node of each `map`.
    pub(crate) maps: &'a BTreeMap<NodeName, NodeName>,
    pub(crate) limits: DeclaredLimits,
}

impl DeclaredLimits {
    /// Returns that the facts of the limits are present, unless a field has their name.
    pub(crate) fn known(self, schema: &Schema) -> impl Iterator<Item = Guarantee> {
        let is_fact = schema.channel("remaining").is_none();
        let paths = [
            (self.calls, "remaining.calls"),
            (self.tokens, "remaining.tokens"),
            (self.usd, "remaining.usd"),
        ];
        let paths = paths.into_iter().filter(move |it| is_fact && it.0);
        paths.map(|it| Guarantee::Present(it.1.to_owned()))
    }
}

impl Uses<'_> {
    /// Returns when the workflow of a node runs by itself, and not as a part of this one.
    fn nesting(self, name: &NodeName, node: &Yaml) -> Option<Nesting> {
        let is_item = self.maps.values().any(|it| it == name);
        node.get("use").map(|it| Nesting::of(it, is_item))
    }

    /// Returns the nodes that a run has: these, and those of the workflows that are a part of it.
    pub(crate) fn nodes_of_runs(
        self,
        own: &BTreeSet<NodeName>,
        loaded: &BTreeMap<NodeName, Workflow>,
    ) -> BTreeSet<NodeName> {
        let mut all = own.clone();
        for (name, used) in loaded {
            let nesting = self.nodes.get(name.as_str()).and_then(|it| self.nesting(name, it));
            if nesting.is_some_and(|it| !it.applies_to(used)) {
                let scope = Scope::new(name.clone(), used.schema.clone(), Target::Fail);
                all.extend(used.nodes.keys().map(|it| scope.node_name(it)));
                all.insert(scope.end());
            }
        }
        all
    }
}

impl<'a> Chain<'a> {
    pub(crate) fn new(file: &'a Path, size: &'a WholeSize, registry: &'a Registry) -> Self {
        Self { file, user: None, size, registry, outer: None }
    }

    /// Returns the limits that the runs of the current file have.
    pub(crate) fn limits(&self, top: &Section<'_>) -> DeclaredLimits {
        // An unknown key may be a misspelt one.
        let is_unclear = |limits: &Yaml| {
            let is_known = |it: &str| LimitsKeys::keys().contains(&it);
            matches!(limits.data, Data::Scalar { .. } | Data::List(_))
                || limits.entries().iter().any(|it| !is_known(&it.key.text))
        };
        let declares =
            |key| top.get("limits").is_some_and(|it| it.get(key).is_some() || is_unclear(it));
        let is_part = self.ignores_limits() || top.get("limits").is_none();
        let outer = self.outer.filter(|_| is_part);
        let own = || DeclaredLimits {
            calls: declares("calls"),
            tokens: declares("tokens"),
            usd: declares("usd"),
        };
        outer.map_or_else(own, |it| it.limits)
    }

    /// Returns whether the limit on nodes was reached.
    pub(crate) fn is_too_large(&self) -> bool {
        DataLimit::GraphNodes.check(self.size.nodes.get()).is_err()
    }

    /// Counts the nodes of a file.
    pub(crate) fn add_nodes(&self, nodes: usize) -> Result<(), DataLimitReached> {
        let all = self.size.nodes.get() + nodes as u64;
        self.size.nodes.set(all);
        DataLimit::GraphNodes.check(all)
    }

    /// Returns whether the current file is used by another one.
    pub(crate) fn is_used(&self) -> bool {
        self.user.is_some()
    }

    /// Returns whether the current file is a part of another run even if it has `limits`, which do not hold then.
    pub(crate) fn ignores_limits(&self) -> bool {
        self.outer.is_some_and(|it| it.takes_limited)
    }

    fn then(&'a self, file: &'a Path, outer: Option<OuterRun>) -> Self {
        Self { file, user: Some(self), outer, ..*self }
    }

    fn files_read(&self) -> impl Iterator<Item = &Path> {
        std::iter::successors(Some(self), |it| it.user).map(|it| it.file)
    }

    /// The reason why a file cannot be used here, if there is one.
    fn refuses(&self, file: &Path) -> Option<Refusal> {
        let same = |a: &Path| match (fs::canonicalize(a), fs::canonicalize(file)) {
            (Ok(a), Ok(b)) => a == b,
            _ => a == file,
        };
        let files: Vec<&Path> = self.files_read().collect();
        if let Some(first) = files.iter().position(|it| same(it)) {
            let names = files[..=first].iter().rev().chain([&files[first]]);
            let names: Vec<String> = names.map(|it| format!("`{}`", it.display())).collect();
            return Some(Refusal {
                reason: format!("the workflow uses itself: {}", names.join(" → ")),
                help: "to repeat work, write a loop with `max_visits` in one of the files; to \
                       share nodes, move them into a workflow that uses none of these",
            });
        }
        let help = "move their common nodes into a separate workflow";
        if files.len() > SCOPE_DEPTH_MAX {
            let reason = format!("workflows are used in each other {SCOPE_DEPTH_MAX} deep at most");
            return Some(Refusal { reason, help });
        }
        if self.size.files.get() == FILES_MAX {
            let reason = format!("a workflow is made of {FILES_MAX} files at most");
            return Some(Refusal { reason, help });
        }
        self.size.files.set(self.size.files.get() + 1);
        None
    }
}

/// The reason why a file cannot be used, and the remedy.
struct Refusal {
    reason: String,
    help: &'static str,
}

/// Loads every used workflow and adds its diagnostics.
pub(crate) fn load_used(
    report: &mut Report,
    uses: Uses<'_>,
    folder: &SourceFolder,
    chain: &Chain<'_>,
) -> BTreeMap<NodeName, Workflow> {
    let mut used = BTreeMap::new();
    for entry in uses.nodes.entries() {
        let path = entry.value.get("use").and_then(|it| it.get("workflow"));
        let (Some(path), Ok(name)) = (path, NodeName::parse(&entry.key.text)) else { continue };
        let Some(path) = report.word(path, "`workflow`") else { continue };
        let nesting = uses.nesting(&name, &entry.value);
        let outer = nesting
            .filter(|it| *it != Nesting::Always)
            .map(|it| OuterRun { limits: uses.limits, takes_limited: it == Nesting::Never });
        if let Some(workflow) = load_one(report, &path, folder, chain, outer) {
            used.insert(name, workflow);
        }
    }
    used
}

fn load_one(
    report: &mut Report,
    word: &SpannedText,
    folder: &SourceFolder,
    chain: &Chain<'_>,
    outer: Option<OuterRun>,
) -> Option<Workflow> {
    let span = report.span(&word.range);
    let refuse = |code, message: String, help: &str| {
        Some(Diagnostic::error(code, message).at(span.clone(), "this workflow").help(help))
    };
    let relative = Path::new(&word.text);
    let stays = relative.components().all(|it| matches!(it, Component::Normal(_)));
    let Some(path) = stays.then(|| folder.find(relative)).flatten() else {
        let help = format!("{}, and has no `..`", folder.help());
        report.extend(refuse("GR070", format!("there is no workflow `{}`", word.text), &help));
        return None;
    };
    if let Some(Refusal { reason, help }) = chain.refuses(&path.shown) {
        report.extend(refuse("GR073", format!("`{}`: {reason}", word.text), help));
        return None;
    }
    let text = match folder.read(&path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("the workflow `{}` cannot be read: {error}", word.text);
            let help = folder.help_for(&error);
            let help = help.as_deref().unwrap_or("name a regular file with a workflow");
            report.extend(refuse("GR070", message, help));
            return None;
        }
    };
    let file = Arc::new(SourceFile { name: path.shown.display().to_string(), text });
    let own = folder.of_file(&path);
    let (workflow, diagnostics) = survey_within(file, own, &chain.then(&path.shown, outer));
    report.extend(diagnostics);
    workflow
}

impl Workflow {
    /// Moves the nodes of a used workflow into this one, between the node that uses it and an end
    /// node that runs when no task of it is left.
    pub(crate) fn absorb(&mut self, name: &NodeName, used: Self) {
        let Some(user) = self.nodes.get_mut(name) else { return };
        let settings: &dyn Any = &*user.settings;
        let Some(EnterNode { takes, .. }) = settings.downcast_ref() else { return };
        let outside = user.policies.catch.clone();
        let fail = outside.iter().find(|it| it.kind.is_none_or(|it| it == ErrorKind::Other));
        let fail = fail.map_or(Target::Fail, |it| it.to.clone());
        let scope = Scope::new(name.clone(), used.schema.clone(), fail);

        let channels = used.schema.channels().iter();
        let inner: Vec<Channel> =
            channels.map(|it| it.clone().renamed(scope.channel_name(it.name())).inner()).collect();
        // The results of an earlier use are gone; the fields of the outer workflow are written at
        // the end.
        let clears = inner.iter().map(|it| it.name().clone()).collect();
        let clears = std::mem::replace(&mut user.policies.on_finish.clears, clears);
        let resets = used.nodes.keys().map(|it| scope.node_name(it)).collect();
        let resets = std::mem::replace(&mut user.policies.on_finish.resets, resets);
        let end = NodeDefinition {
            settings: Arc::new(LeaveNode {
                takes: takes
                    .iter()
                    .map(|(to, from)| (to.clone(), scope.channel_name(from)))
                    .collect(),
            }),
            policies: Policies {
                schedule: Schedule {
                    defer: Some(Defer::Scope(name.clone())),
                    ..Schedule::default()
                },
                on_finish: OnFinish { clears, resets, ..OnFinish::default() },
                catch: outside.clone(),
                ..Policies::default()
            },
            when: None,
            cache: None,
            span: user.span.clone(),
            about: None,
            scopes: Vec::new(),
            relies_on: BTreeSet::new(),
        };
        let both = self.schema.channels().iter().cloned().chain(inner);
        self.schema = Schema::new(both).expect("names with dots are those of one used workflow");

        for edge in &mut self.edges {
            scope.redirect(edge);
        }
        self.nodes.insert(scope.end(), end);
        for first in &used.entry {
            let to = Target::Node(scope.node_name(first));
            self.edges.push(Edge::Then { from: name.clone(), to, span: None });
        }
        for (inner, mut definition) in used.nodes {
            definition.policies = scope.policies(definition.policies, &outside);
            definition.scopes.push(scope.clone());
            let relies_on = definition.relies_on.iter();
            definition.relies_on = relies_on.map(|it| scope.channel_name(it)).collect();
            self.nodes.insert(scope.node_name(&inner), definition);
        }
        let nested = used.nested.into_iter();
        self.nested.extend(nested.map(|(inner, workflow)| (scope.node_name(&inner), workflow)));
        self.edges.extend(used.edges.into_iter().map(|it| scope.edge(it)));
        let limited = used.limits.exhausted.as_ref().and_then(Target::node);
        let limited = limited.into_iter().chain(&used.inner_limit_targets);
        self.inner_limit_targets.extend(limited.map(|it| scope.node_name(it)));
        self.facts.add(&used.facts, |it| scope.node_name(it));
        self.inbox.extend(used.inbox.iter().map(|it| scope.channel_name(it)));
        for (group, members) in used.groups {
            let members = members.iter().map(|it| scope.node_name(it)).collect();
            self.groups.insert(scope.node_name(&group), members);
        }
    }
}
