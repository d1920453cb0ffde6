//! Lowers the tree of a file to a [`Workflow`]: first the sections that nodes refer to, then the
//! nodes. All mistakes are reported together; invalid parts are left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Limits, Target},
    id::{ChannelName, NodeName},
    state::{Schema, Type},
};

use super::{
    Defaults, Expression, Prompt, Registry, SandboxSettings, Workflow,
    declarations::Declarations,
    expression::ExpressionScope,
    flow::{Flow, Sources},
    prompt::{LoadedPrompt, PromptFiles, PromptScope},
    reader::{Data, SpannedText, Yaml},
    report::{FINDINGS_MAX, Report},
    sections::Agent,
    shape::Section,
    structure::Item,
    tool::{BUILT_IN, BuiltIn, Tool},
    types::{read_state, refuse_private},
    used::{Chain, Takes, load_used},
    written::AssignedFields,
};
/// The version of the format that this code reads.
const VERSION: &str = "1";

/// The keys of a workflow.
pub(super) const KEYS: &[&str] = &[
    "graphrun",
    "name",
    "about",
    "state",
    "types",
    "input",
    "output",
    "inbox",
    "models",
    "agents",
    "sandboxes",
    "tools",
    "limits",
    "defaults",
    "start",
    "nodes",
];

/// The state of lowering a file to a workflow.
#[derive(Debug)]
pub(super) struct Lowering {
    pub(super) report: Report,
    pub(super) registry: Registry,
    pub(super) prompts: PromptFiles,
    pub(super) schema: Schema,
    pub(super) declarations: Declarations,
    pub(super) flow: Flow,
    pub(super) models: BTreeMap<String, Vec<String>>,
    pub(super) agents: BTreeMap<String, Agent>,
    pub(super) sandboxes: BTreeMap<String, SandboxSettings>,
    /// The folder that the built-in tools can read.
    pub(super) tools_root: PathBuf,
    pub(super) defaults: Defaults,
    /// The list of each `map`.
    pub(super) overs: BTreeMap<NodeName, Expression>,
    /// The item of each node that runs for every item of a list.
    pub(super) items: BTreeMap<NodeName, Item>,
    /// The item of the current node.
    pub(super) item: Option<Item>,
    /// Whether the current node may have an item with an unknown name.
    pub(super) any_item: bool,
    /// The paths that the `when` of the current node has proved present.
    pub(super) given: Vec<String>,
    /// The arrivals: each node that leads to a join that awaits it, with the join.
    pub(super) arrivals: BTreeSet<(NodeName, NodeName)>,
    /// The used workflows, until their node is read.
    pub(super) loaded: BTreeMap<NodeName, Workflow>,
    /// The workflows that nodes use, with the values that the nodes take from them.
    pub(super) uses: BTreeMap<NodeName, (Workflow, Takes)>,
    /// The used agents, models and sandboxes.
    pub(super) used: BTreeSet<(&'static str, String)>,
}

/// Lowers the tree. Returns the workflow as far as it is valid, and all findings.
pub(super) fn lower(
    mut report: Report,
    root: &Yaml,
    prompts: PromptFiles,
    (registry, chain): (&Registry, &Chain<'_>),
) -> (Option<Workflow>, Report) {
    let Some(top) = Section::read(&mut report, root, "a workflow", KEYS) else {
        return (None, report);
    };
    check_version(&mut report, &top);
    let name = top.require(&mut report, "name", "write `name: my_workflow`");
    let name = name.and_then(|it| report.word(it, "`name`"));
    let about = top.get("about").and_then(|it| report.word(it, "`about`"));
    let state = read_state(&mut report, &top, prompts.folder(), registry);
    let nodes = top.require(&mut report, "nodes", "a workflow needs nodes");
    let count = nodes.map_or(0, |it| it.entries().len());
    if let (Some(nodes), Err(reached)) = (nodes, chain.add_nodes(count)) {
        let what = "the number of nodes, with those of the workflows it uses,";
        // The span of all nodes would be thousands of lines.
        let last = nodes.entries().last().map_or(&nodes.range, |it| &it.key.range);
        report.push_limit(what, &reached, last);
        return (None, report);
    }
    let Some(schema) = state.schema else {
        // Without a state every field would be unknown; one finding is better than many.
        return (None, report);
    };
    let input = channels(&mut report, &top, "input", &schema);
    let output = channels(&mut report, &top, "output", &schema);
    let inbox = inbox(&mut report, &top, &schema);
    let declarations =
        nodes.map(|it| Declarations::read(&mut report, it, registry)).unwrap_or_default();
    let loaded = nodes.map(|it| load_used(&mut report, it, prompts.folder(), registry, chain));
    let loaded = loaded.unwrap_or_default();
    if chain.is_too_large() {
        // A workflow over a limit is not assembled: that would take the time that the limit saves.
        return (None, report);
    }
    let sources = Sources {
        root,
        declarations: &declarations,
        schema: &schema,
        input: &input,
        registry,
        loaded: &loaded,
    };
    let flow = Flow::of(sources, &state.vague);
    let tools_root = prompts.folder().path().to_owned();
    let mut lowering = Lowering {
        prompts,
        report,
        registry: registry.clone(),
        schema,
        declarations,
        flow,
        models: BTreeMap::new(),
        agents: BTreeMap::new(),
        sandboxes: BTreeMap::new(),
        tools_root,
        defaults: Defaults::default(),
        overs: BTreeMap::new(),
        items: BTreeMap::new(),
        item: None,
        any_item: false,
        given: Vec::new(),
        arrivals: BTreeSet::new(),
        loaded,
        uses: BTreeMap::new(),
        used: state.used.into_iter().map(|it| ("types", it)).collect(),
    };
    lowering.read_sections(&top);
    let limits = lowering.read_limits(&top);
    let entry = lowering.read_start(&top);
    let mut workflow = lowering.workflow(name, limits, entry);
    workflow.about = about.map(|it| it.text);
    (workflow.input, workflow.output, workflow.inbox) = (input, output, inbox);
    lowering.prompts.folder().path().clone_into(&mut workflow.folder);
    if let Some(nodes) = nodes {
        lowering.read_items(nodes);
        lowering.read_nodes(nodes, &mut workflow);
        lowering.check_arrivals(&workflow);
    }
    for (name, (used, takes)) in std::mem::take(&mut lowering.uses) {
        workflow.absorb(&name, used, takes);
    }
    if chain.is_used() {
        workflow.settled = lowering.flow.at_end();
    }
    lowering.report_unused(&top);
    (Some(workflow), lowering.report)
}

fn check_version(report: &mut Report, top: &Section<'_>) {
    let Some(version) = top.require(report, "graphrun", "begin with `graphrun: 1`") else { return };
    if version.text() != Some(VERSION) {
        let message = "the version of the format is not known";
        let finding = Diagnostic::error("GR008", message).at(report.place(&version.range), "here");
        report.push(finding.help("this program reads `graphrun: 1`"));
    }
}

fn channels(
    report: &mut Report,
    top: &Section<'_>,
    key: &str,
    schema: &Schema,
) -> Vec<ChannelName> {
    let yaml = top.get(key);
    let what = format!("`{key}`");
    if let Some(yaml) = yaml {
        refuse_private(report, yaml, &what, schema);
    }
    yaml.map(|it| report.channels(it, &what, schema)).unwrap_or_default()
}

/// Reads `inbox`: lists that grow, for the messages of people.
fn inbox(report: &mut Report, top: &Section<'_>, schema: &Schema) -> Vec<ChannelName> {
    let Some(yaml) = top.get("inbox") else { return Vec::new() };
    for word in yaml.items().iter().chain([yaml]).filter_map(Yaml::word) {
        let Some(channel) = schema.channel(&word.text) else { continue };
        if !channel.reducer().grows_list() || !matches!(channel.ty(), Type::List(_) | Type::Any) {
            let message = format!(
                "`inbox` names `{}`, which is not a list that messages can be \
                                   appended to",
                word.text
            );
            let help =
                "messages are appended: `{ type: \"[string]\", merge: append, default: [] }`";
            report.bad_value(&word, message, help);
        }
    }
    report.channels(yaml, "`inbox`", schema)
}

impl Lowering {
    fn workflow(
        &self,
        name: Option<SpannedText>,
        limits: Limits,
        entry: Vec<NodeName>,
    ) -> Workflow {
        Workflow {
            name: name.map(|it| it.text).unwrap_or_default(),
            about: None,
            schema: self.schema.clone(),
            input: Vec::new(),
            output: Vec::new(),
            inbox: Vec::new(),
            limits,
            defaults: self.defaults.clone(),
            nodes: BTreeMap::new(),
            edges: Vec::new(),
            entry,
            groups: self.declarations.members(),
            file: Arc::clone(&self.report.file),
            folder: PathBuf::new(),
            settled: BTreeSet::new(),
        }
    }

    fn read_start(&mut self, top: &Section<'_>) -> Vec<NodeName> {
        let help = "name the first node: `start: ba`";
        let Some(start) = top.require(&mut self.report, "start", help) else { return Vec::new() };
        let mut entry = Vec::new();
        for word in self.report.words(start, "`start`") {
            for target in self.declarations.resolve(&mut self.report, &word) {
                match target {
                    Target::Node(node) => entry.push(node),
                    Target::End | Target::Fail => {
                        let message = "a run that starts at its end runs no node";
                        self.report.bad_value(&word, message, help);
                    }
                }
            }
        }
        entry
    }

    fn read_nodes(&mut self, nodes: &Yaml, workflow: &mut Workflow) {
        let Data::Map(entries) = &nodes.data else {
            self.report.wrong_kind(nodes, "`nodes`", "a mapping from names to nodes");
            return;
        };
        for entry in entries {
            let key = entry.key.text.as_str();
            if let Some((name, _)) = self.declarations.groups.get_key_value(key) {
                let name = name.clone();
                self.read_parallel(entry, &name, workflow);
            } else if let Some(name) = self.declarations.nodes.get(entry.key.text.as_str()).cloned()
            {
                self.read_node(entry, &name, workflow);
            }
        }
    }

    /// Compiles an expression at a place of the file.
    pub(super) fn expression(
        &mut self,
        yaml: &Yaml,
        written: &AssignedFields,
    ) -> Option<Expression> {
        self.expression_with(yaml, written, false)
    }

    /// Like [`Self::expression`], and also allows `output.dir`.
    pub(super) fn expression_with_output(
        &mut self,
        yaml: &Yaml,
        written: &AssignedFields,
    ) -> Option<Expression> {
        self.expression_with(yaml, written, true)
    }

    fn expression_with(
        &mut self,
        yaml: &Yaml,
        written: &AssignedFields,
        output: bool,
    ) -> Option<Expression> {
        let Some(text) = yaml.text() else {
            self.report.wrong_kind(yaml, "an expression", "a text");
            return None;
        };
        let scope = ExpressionScope {
            schema: &self.schema,
            written,
            nodes: &self.declarations.nodes,
            item: self.item.as_ref().map(|it| (it.name.as_str(), &it.ty)),
            any_item: self.any_item,
            given: &self.given,
            output,
        };
        let (expression, problems) = match Expression::compile(text, scope) {
            Ok(expression) => {
                let problems = expression.constant_parts();
                (Some(expression), problems)
            }
            Err(problems) => (None, problems),
        };
        for problem in problems {
            let range = yaml.within(&self.report.file.text, &problem.range);
            let place = self.report.place(&range);
            self.report.push_problem(problem, place);
        }
        expression
    }

    /// Checks a prompt against the values that a node gets.
    pub(super) fn check_prompt(&mut self, loaded: &LoadedPrompt, node: &NodeName, bounded: bool) {
        let written = self.flow.before(node);
        self.check_prompt_where(loaded, (node, &written), bounded);
    }

    /// Checks the prompt of all visits but the first.
    pub(super) fn check_prompt_again(
        &mut self,
        loaded: &LoadedPrompt,
        node: &NodeName,
        bounded: bool,
    ) {
        let written = self.flow.before_again(node);
        self.check_prompt_where(loaded, (node, &written), bounded);
    }

    fn check_prompt_where(
        &mut self,
        loaded: &LoadedPrompt,
        (node, written): (&NodeName, &AssignedFields),
        bounded: bool,
    ) {
        let item = self.item.as_ref().map(|it| (it.name.as_str(), &it.ty));
        let (schema, given) = (&self.schema, self.given.as_slice());
        let any_item = self.any_item;
        let scope = PromptScope { schema, written, node, bounded, item, any_item, given };
        // Finding one place takes time proportional to the text, and more findings are not reported
        // anyway.
        for problem in loaded.prompt.check(scope).into_iter().take(FINDINGS_MAX) {
            let place = loaded.place(&self.report, &problem);
            self.report.push_problem(problem, place);
        }
    }

    /// Loads the prompt at a path.
    pub(super) fn read_prompt(&mut self, yaml: &Yaml) -> Option<LoadedPrompt> {
        let path = self.report.word(yaml, "the path of a prompt")?;
        self.prompts.load(&mut self.report, &path)
    }

    /// The tool of a name, registered or built in.
    pub(super) fn find_tool(&mut self, word: &SpannedText) -> Option<Arc<dyn Tool>> {
        let found = self.registry.find_tool(&word.text);
        let found =
            found.or_else(|| BuiltIn::named(&word.text).map(|it| it.make(&self.tools_root)));
        if found.is_none() {
            let known = self.registry.tools().chain(BUILT_IN.iter().map(|it| it.name));
            self.report.unknown("GR110", "tool", word, known);
        }
        found
    }

    /// The prompt for the current node.
    pub(super) fn prompt_of(&self, loaded: LoadedPrompt) -> Prompt {
        loaded.prompt.calling_item(self.item.as_ref().map(|it| it.name.as_str()))
    }

    /// Records the use of a declaration.
    pub(super) fn uses(&mut self, section: &'static str, name: &str) {
        self.used.insert((section, name.to_owned()));
    }

    /// Reports unused declarations, unless there are errors that may be the reason.
    fn report_unused(&mut self, top: &Section<'_>) {
        if self.report.has_errors() {
            return;
        }
        let sections =
            [("models", "model"), ("agents", "agent"), ("sandboxes", "sandbox"), ("types", "type")];
        for (section, kind) in sections {
            for entry in top.get(section).map(Yaml::entries).unwrap_or_default() {
                if !self.used.contains(&(section, entry.key.text.clone())) {
                    let message = format!("nothing uses the {kind} `{}`", entry.key.text);
                    let place = self.report.place(&entry.key.range);
                    self.report.push(Diagnostic::warning("GR018", message).at(place, "not used"));
                }
            }
        }
    }
}
