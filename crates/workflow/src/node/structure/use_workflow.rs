//! `use`: runs another workflow as a part of this one.
//!
//! `lower::used` loads it, and makes its nodes a part of this workflow. Here are the kind, and the first and
//! last node of a used workflow: one fills its fields, the other takes its results.
//!
//! For the items of a `map`, with `nested: true`, and if it has `limits`, it is not made a part of this workflow: each
//! task is a nested run of it, for which its limits hold.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Access, AccessSet, Command, Contract, Node, NodeContext, NodeDescription, NodeError, Read,
        SideEffects,
    },
    id::ChannelName,
    state::{Channel, Schema, State, Update},
};
use graphrun_expressions::problem::suggestion;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::{
    Expression, ExpressionView, Registry, Workflow,
    kind::{
        CacheRefusal, Computation, Keys, Kind, MakeContext, NodeReader, NodeSettings,
        values::{self, FieldName, FolderName, ModelRef, NamedMap, OneOrMany, Text},
    },
    lower::{environment::NodeScope, used::Nesting},
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        shape::Section,
    },
};

/// The key that makes each call a nested run.
const NESTED: &str = "nested";
/// The key with the folders of which each call has a worktree.
const WORKTREES: &str = "worktrees";

/// The common keys that do not apply to a node that uses a workflow as a part of this one.
const REFUSED: &[(&str, &str)] = &[
    ("when", "put the condition into the route that leads here, or write `use: { nested: true }`"),
    (
        "timeout",
        "each node of the used workflow has its own; `use: { nested: true }` gives the whole one",
    ),
    (
        "retry",
        "each node of the used workflow has its own; `use: { nested: true }` gives the whole one",
    ),
];

/// The kind `use`.
#[derive(Debug)]
pub struct Use;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct UseKeys {
    /// Runs another workflow as a part of this one.
    #[serde(rename = "use")]
    used: UseParts,
}

/// Another workflow with its inputs and outputs.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct UseParts {
    /// The file, from the folder of this one or the one above.
    workflow: Text,
    /// Its inputs, each with an expression over the state here.
    #[serde(rename = "in")]
    input: Option<NamedMap<Text, values::Expression>>,
    /// The fields of this workflow that receive its outputs when it is done.
    #[serde(rename = "out")]
    output: Option<NamedMap<FieldName, Text>>,
    /// Makes each call a nested run, as for the items of a map: one task of this workflow with its own steps and
    /// limits, which `retry` and `timeout` apply to as a whole. Default: true for a workflow with `limits`, so that they
    /// hold, and false for others.
    nested: Option<bool>,
    /// The folders of which each nested run has a separate worktree and branch, until it is done. Calls that run side by
    /// side then change no files of each other.
    worktrees: Option<OneOrMany<FolderName>>,
    /// The model of all agents of the used workflow: one of `models` here, or `provider/model` itself.
    model: Option<ModelRef>,
}

/// A node that begins a used workflow.
#[derive(Clone, Debug)]
pub struct EnterNode {
    /// The name of the used workflow.
    pub workflow: String,
    /// The input fields of the used workflow with their values.
    pub sets: Vec<(ChannelName, Expression)>,
    /// The fields of this workflow that receive a result, each with the field of the used workflow
    /// it comes from.
    pub takes: Vec<(ChannelName, ChannelName)>,
    /// The models of all agents of the used workflow, if they are not its own.
    pub models: Vec<String>,
}

/// A node whose tasks are nested runs of a workflow.
#[derive(Clone, Debug)]
pub struct NestedUse {
    /// The name of the workflow.
    pub workflow: String,
    /// Its input fields with their values.
    pub sets: Vec<(ChannelName, Expression)>,
    /// The fields of this workflow that receive a result, each with the field it comes from.
    pub takes: Vec<(ChannelName, ChannelName)>,
    /// Those of them that receive a result whenever the nested run is done.
    pub takes_always: Vec<ChannelName>,
    /// The folders of which each nested run has a worktree.
    pub worktrees: Vec<String>,
    /// The models of all agents of the workflow, if they are not its own.
    pub models: Vec<String>,
}

/// A node that runs when a used workflow has no tasks left.
#[derive(Clone, Debug)]
pub struct LeaveNode {
    /// Each field that receives a result, with the field of the used workflow it comes from.
    pub takes: Vec<(ChannelName, ChannelName)>,
}

impl Kind for Use {
    fn key(&self) -> &'static str {
        "use"
    }

    fn keys(&self) -> Keys {
        Keys::of::<UseKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        if let Some(nested) = reader.value().get(NESTED) {
            reader.report().bool(nested, "`nested`");
        }
        let &NodeScope { env, name, .. } = reader.scope;
        let nesting = Nesting::of(reader.value(), reader.scope.item.is_some());
        let used = env.loaded.get(name);
        // A workflow that failed to load causes no further diagnostics.
        let is_part = used.map_or(nesting == Nesting::Never, |it| !nesting.applies_to(it));
        let refused = if is_part { REFUSED } else { &[] };
        for (key, help) in refused {
            if let Some(key) = reader.key(key) {
                let message = format!("a node that is `use` takes no key `{}`", key.text);
                let span = reader.report().span(&key.range);
                let diagnostic = Diagnostic::error("GR003", message).at(span, "not a key here");
                reader.report().push(diagnostic.help(*help));
            }
        }
        let parts = reader.parts()?;
        parts.require(reader.report(), "workflow", "name a file: `workflow: review.yaml`");
        let used = used?;
        let sets = reader.read_in(&parts, used);
        let takes = parts.get("out").map(|it| reader.read_out(it, used)).unwrap_or_default();
        let worktrees = read_worktrees(reader, &parts, used, is_part);
        let models = read_models(reader, &parts, used);
        if !is_part {
            check_nested(reader, used, nesting);
            let always = takes.iter().filter(|(_, from)| used.settled.contains(from));
            let takes_always = always.map(|(to, _)| to.clone()).collect();
            let workflow = used.name.clone();
            return Some(Arc::new(NestedUse {
                workflow,
                sets,
                takes,
                takes_always,
                worktrees,
                models,
            }));
        }
        warn_of_limits(reader, &parts, used);
        let enter = EnterNode {
            workflow: used.name.clone(),
            sets: sets.iter().map(|(it, value)| (it.within(name), value.clone())).collect(),
            takes,
            models,
        };
        Some(Arc::new(enter))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "write it on the nodes of the used workflow"))
    }

    fn runs_others(&self) -> bool {
        true
    }

    fn takes_items(&self) -> bool {
        true
    }
}

impl NodeSettings for EnterNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn computes(&self) -> Option<Vec<Computation>> {
        Some(self.sets.iter().map(|(to, value)| Computation::of(to, value)).collect())
    }
}

impl NodeSettings for NestedUse {
    /// The node needs the graph of the workflow: see [`NodeFactory::make_nested`](crate::NodeFactory::make_nested).
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let message = format!("the workflow `{}` of `{}` was not loaded", self.workflow, ctx.name);
        Err(Diagnostic::error("GR070", message).at(Some(ctx.span.clone()), "used here"))
    }

    fn detail(&self) -> Option<String> {
        Some(self.workflow.clone())
    }
}

/// Reads the folders of which each nested run has a worktree.
fn read_worktrees(
    reader: &mut NodeReader<'_>,
    parts: &Section<'_>,
    used: &Workflow,
    is_part: bool,
) -> Vec<String> {
    let Some(yaml) = parts.get(WORKTREES) else { return Vec::new() };
    if is_part {
        let span = reader.report().span(&yaml.range);
        let message = "only nested runs have separate worktrees";
        let diagnostic = Diagnostic::error("GR006", message).at(span, "without `nested`");
        reader.report().push(diagnostic.help("add `nested: true`, or use the workflow in a `map`"));
    }
    let mut folders = Vec::new();
    for word in reader.report().words(yaml, "`worktrees`") {
        let span = reader.report().span(&word.range);
        let Some(folder) = reader.run_folder_of(word) else { continue };
        if !used.folders.contains_key(&folder) {
            let message = format!("`{}` works in no folder `{folder}`", used.name);
            let diagnostic = Diagnostic::error("GR077", message).at(span, "not used there");
            reader
                .report()
                .push(diagnostic.help(format!("declare `{folder}` under `folders` there")));
        }
        folders.push(folder);
    }
    folders
}

/// Reads the models of all agents of a used workflow.
fn read_models(reader: &mut NodeReader<'_>, parts: &Section<'_>, used: &Workflow) -> Vec<String> {
    let Some(yaml) = parts.get("model") else { return Vec::new() };
    let env = reader.scope.env;
    let models = env.sections.find_model(reader.report, yaml, env.registry.known_providers());
    let asks = used.all_nodes().values().any(|it| it.settings.models().is_some());
    if let Some(key) = parts.key("model").filter(|_| !asks) {
        let message =
            format!("`model` has no effect here: no node of `{}` asks a model", used.name);
        let span = reader.report.span(&key.range);
        let diagnostic = Diagnostic::warning("GR134", message).at(span, "without effect");
        reader.report.push(diagnostic.help("remove it"));
    }
    models
}

/// Warns about limits of a used workflow, which do not apply to a part of another run.
fn warn_of_limits(reader: &mut NodeReader<'_>, parts: &Section<'_>, used: &Workflow) {
    let (Some(_), Some(key)) = (&used.limits.span, parts.key(NESTED)) else { return };
    let message = format!(
        "the `limits` of `{}` have no effect here: `nested: false` makes it a part of this run",
        used.name
    );
    let span = reader.report().span(&key.range);
    let diagnostic = Diagnostic::warning("GR134", message).at(span, "without its limits");
    let help = "remove `nested: false`, so that they hold for each call, or put `limits` on the nodes there";
    reader.report().push(diagnostic.help(help));
}

/// Checks that a workflow can be a nested run.
fn check_nested(reader: &mut NodeReader<'_>, used: &Workflow, nesting: Nesting) {
    if used.inbox.is_empty() {
        return;
    }
    let message = format!(
        "`{}` takes messages of people, and a message cannot name the nested run that it is for",
        used.name
    );
    let key = reader.name_key;
    let span = reader.report().span(&key.range);
    let (label, help) = match nesting {
        Nesting::IfLimited => (
            "its calls are nested runs, because it has `limits`",
            "remove `inbox` or `limits` there, or write `use: { nested: false, … }`: its limits do not hold then",
        ),
        _ => ("its tasks are nested runs", "remove `inbox` there, or ask the person with `ask`"),
    };
    reader.report().push(Diagnostic::error("GR074", message).at(span, label).help(help));
}

impl NestedUse {
    /// Returns the settings that its result depends on, besides the workflow.
    pub fn fingerprint(&self) -> Value {
        let mut all = fingerprint(&self.sets, &self.takes);
        all["worktrees"] = json!(self.worktrees);
        all
    }

    /// Returns the update that writes the outputs of a nested run in this state.
    pub fn outputs(&self, used: &State, schema: &Schema) -> Update {
        outputs(&self.takes, used, schema)
    }
}

impl NodeSettings for LeaveNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn computes(&self) -> Option<Vec<Computation>> {
        let take = |(to, from): &(ChannelName, ChannelName)| {
            let access = Access { is_whole: false, ..Access::whole(from.clone()) };
            let from = AccessSet { fields: vec![access], ..AccessSet::default() };
            Computation { to: to.clone(), from, is_copy: true, value: None }
        };
        Some(self.takes.iter().map(take).collect())
    }
}

#[async_trait]
impl Node for EnterNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let view = ExpressionView::of(&ctx);
        let mut update = Update::default();
        for (channel, expression) in &self.sets {
            update = update.write_shared(channel.clone(), expression.evaluate(&view)?);
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let set = self.sets.iter().map(|(channel, _)| channel.clone());
        NodeDescription {
            kind: "use",
            contract: Contract { reads: None, writes: Some(set.collect()) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            fingerprint: fingerprint(&self.sets, &[]),
            ..NodeDescription::default()
        }
    }
}

#[async_trait]
impl Node for LeaveNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        Ok(outputs(&self.takes, &ctx.state, ctx.state.schema()).into())
    }

    fn describe(&self) -> NodeDescription {
        let read = |(_, from): &(_, ChannelName)| Read { channel: from.clone(), required: false };
        NodeDescription {
            kind: "end of use",
            contract: Contract {
                reads: Some(self.takes.iter().map(read).collect()),
                writes: Some(self.takes.iter().map(|(to, _)| to.clone()).collect()),
            },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            fingerprint: fingerprint(&[], &self.takes),
            ..NodeDescription::default()
        }
    }
}

/// Returns the fingerprint of inputs and outputs.
fn fingerprint(sets: &[(ChannelName, Expression)], takes: &[(ChannelName, ChannelName)]) -> Value {
    let sets: Vec<(&ChannelName, &str)> = sets.iter().map(|(to, it)| (to, it.source())).collect();
    json!({ "in": sets, "out": takes })
}

impl NodeReader<'_> {
    fn read_in(&mut self, parts: &Section<'_>, used: &Workflow) -> Vec<(ChannelName, Expression)> {
        let mut sets = Vec::new();
        let given = parts.get("in");
        if let Some(yaml) = given.filter(|it| !matches!(it.data, Data::Map(_))) {
            let wanted = "a mapping from inputs to expressions";
            self.report().wrong_kind(yaml, "`in`", wanted);
        }
        for Entry { key, value } in given.map(Yaml::entries).unwrap_or_default() {
            let Some(channel) = input_of(used, &key.text) else {
                self.expression(value);
                let known = used.input.iter().map(ChannelName::as_str);
                self.unknown_field(used, key, "takes no input", known);
                continue;
            };
            let Some(expression) = self.expression_for(value, channel.ty()) else { continue };
            let what = format!("the input `{}`", key.text);
            self.expect_type(value, expression.ty(), channel.ty(), &what);
            sets.push((channel.name().clone(), expression));
        }
        let is_given =
            |it: &ChannelName| given.is_some_and(|given| given.get(it.as_str()).is_some());
        for input in used.input.iter().filter(|it| !is_given(it)) {
            if used.schema.channel(input.as_str()).is_some_and(Channel::is_needed_as_input) {
                let message = format!("`{}` needs the input `{input}`", used.name);
                let key = parts.key("in").unwrap_or(self.name_key);
                let span = self.report().span(&key.range);
                let diagnostic = Diagnostic::error("GR071", message).at(span, "not given");
                self.report().push(diagnostic.help(format!("add `in: {{ {input}: … }}`")));
            }
        }
        sets
    }

    fn read_out(&mut self, yaml: &Yaml, used: &Workflow) -> Vec<(ChannelName, ChannelName)> {
        let Data::Map(entries) = &yaml.data else {
            let wanted = "a mapping from fields to outputs of the used workflow";
            self.report().wrong_kind(yaml, "`out`", wanted);
            return Vec::new();
        };
        let mut takes = Vec::new();
        for Entry { key, value } in entries {
            let field = self.channel(key);
            let Some(output) = self.report().word(value, "an output") else { continue };
            let known = || {
                let fields = used.schema.channels().iter().filter(|it| it.is_public());
                fields.filter(|it| used.output.is_empty() || used.output.contains(it.name()))
            };
            let Some(channel) = known().find(|it| it.name().as_str() == output.text) else {
                let known = known().map(|it| it.name().as_str());
                self.unknown_field(used, &output, "gives no output", known);
                continue;
            };
            let Some(field) = field else { continue };
            self.expect_update_by(value, "", &field, channel.ty().required());
            takes.push((field, channel.name().clone()));
        }
        takes
    }

    fn unknown_field<'n>(
        &mut self,
        used: &Workflow,
        word: &SpannedText,
        what: &str,
        known: impl Iterator<Item = &'n str>,
    ) {
        let message = format!("the workflow `{}` {what} `{}`", used.name, word.text);
        let span = self.report().span(&word.range);
        let help = suggestion(&word.text, known);
        let diagnostic = Diagnostic::error("GR072", message).at(span, "not known there");
        self.report().push(Diagnostic { help, ..diagnostic });
    }
}

/// Returns the update that writes the outputs of a used workflow. Fields that it has not assigned are left unchanged, and so is
/// a field that takes no null if the output is null.
fn outputs(takes: &[(ChannelName, ChannelName)], used: &State, schema: &Schema) -> Update {
    let mut update = Update::default();
    for (to, from) in takes {
        let takes_null = || schema.channel(to.as_str()).is_some_and(Channel::takes_null);
        let value = used.get_shared(from.as_str()).filter(|it| !it.is_null() || takes_null());
        let Some(value) = value else { continue };
        let ty = || used.schema().channel(from.as_str()).map(|it| it.ty().clone());
        update = update.write_shared(to.clone(), schema.write_of(to, value, ty));
    }
    update
}

fn input_of<'a>(used: &'a Workflow, name: &str) -> Option<&'a Channel> {
    let is_input = used.input.iter().any(|it| it.as_str() == name);
    used.schema.channel(name).filter(|_| is_input)
}

/// Returns the fields that a `use` may assign, and those that it assigns whenever it is done: the ones that the used
/// workflow assigns on every path.
pub(crate) fn fields_of_use<'y>(
    used: &'y Yaml,
    loaded: Option<&Workflow>,
) -> (Vec<&'y str>, Vec<&'y str>) {
    let Some(out) = used.get("out") else { return (Vec::new(), Vec::new()) };
    let is_must_assigned = |entry: &&Entry| {
        let settled = |workflow: &Workflow| {
            entry.value.text().is_some_and(|field| workflow.settled.contains(field))
        };
        // A workflow that failed to load causes no further diagnostics.
        loaded.is_none_or(settled)
    };
    let must_assign = out.entries().iter().filter(is_must_assigned).map(|it| it.key.text.as_str());
    (out.words(), must_assign.collect())
}
