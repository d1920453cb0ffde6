//! Lowers the tree of a file to a [`Workflow`]: first the sections that nodes refer to, then the
//! nodes. All mistakes are reported together; invalid parts are left out.

pub(super) mod declarations;
pub(super) mod draft;
pub(super) mod environment;
pub(super) mod used;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Limits, Target},
    id::{ChannelName, NodeName},
    state::{Channel, Schema, Type},
};
use graphrun_expressions::flow::written::Presence;

use self::{
    declarations::{Declarations, Follows},
    draft::{NodeDraft, WorkflowDraft},
    environment::{Environment, FIELDS},
    used::{Chain, Uses, load_used},
};
use super::{
    EnterNode, NestedUse, NodeDefinition, Workflow,
    edge::draft::EdgeDraft,
    flow::Sources,
    format::WorkflowKeys,
    node::{
        bounds::check_bounds,
        policies::PolicyScope,
        read_nodes,
        structure::{read_lists, warn_of_unread_items},
        warn_of_no_effect,
    },
    sections::{
        Sections,
        folders::{check_used, read_folders},
        limits::{read_defaults, read_limits},
        memory::MEMORY,
        reports::read_reports,
        tools::FILES,
        types::{ReadState, read_state, refuse_private, warn_of_placeholders},
    },
    source::{
        prompts::PromptFiles,
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The version of the format that this code reads.
const VERSION: &str = "1";

/// The first key of a file of test cases.
const TEST_CASES: &str = "graphrun_test";

/// Lowers the tree to the workflow, as far as it is valid.
pub(super) fn lower(
    report: &mut Report,
    root: &Yaml,
    prompts: PromptFiles,
    chain: &Chain<'_>,
) -> Option<Workflow> {
    refuse_test_cases(report, root)?;
    let top = &Section::read::<WorkflowKeys>(report, root, "a workflow")?;
    check_version(report, top);
    let name = top.require(report, "name", "write `name: my_workflow`");
    let name = name.and_then(|it| report.word(it, "`name`"));
    if let Some(name) = name.as_ref().filter(|it| it.text.trim().is_empty()) {
        report.bad_value(name, "the name of the workflow is empty", "write `name: my_workflow`");
    }
    let about = top.get("about").and_then(|it| report.word(it, "`about`"));
    let state = read_state(report, top, prompts.folder(), chain.registry);
    let nothing = Yaml { range: root.range.clone(), data: Data::Map(Vec::new()) };
    let nodes = top.require(report, "nodes", "a workflow needs nodes").unwrap_or(&nothing);
    check_size(report, chain, nodes)?;
    let drafter = Drafter { report, top, nodes, chain };
    let UncheckedDraft { draft, env, interface, limits, entry, lacks_edges } =
        drafter.draft(state, prompts)?;
    let (definitions, edges) = read_nodes(report, &env, &draft);
    let folders = read_folders(report, top, &env, entry.first()).into_iter().collect();
    check_used(report, nodes, &env);
    let reports = read_reports(report, top, &env, &draft, &definitions);
    check_outputs(report, top, &env, &interface);
    if !lacks_edges {
        check_reachable(report, &draft, &entry, &limits);
    }
    report_unused(report, top);
    warn_of_unused_exit_codes(report, top, &definitions);
    warn_of_unread_items(report, &env, &draft, &interface.input);
    warn_of_unused_fields(report, root, &env, &interface, &draft);
    let Interface { input, output, inbox } = interface;
    let mut workflow = Workflow {
        name: name.map(|it| it.text).unwrap_or_default(),
        about: about.map(|it| it.text),
        input,
        output,
        inbox,
        folders,
        hosts: env.sections.hosts_with_secrets_of_programs(),
        memory: Arc::clone(&env.sections.memory),
        limits,
        declared_limits: None,
        inner_limit_targets: Vec::new(),
        nodes: definitions,
        nested: BTreeMap::new(),
        edges,
        entry,
        groups: env.declarations.members(),
        file: Arc::clone(&report.file),
        folder: env.prompts.folder().path().to_owned(),
        facts: std::mem::take(&mut report.references.facts),
        settled: settled(chain, &env),
        schema: env.schema,
        reports,
        defaults: env.defaults,
    };
    take_used(&mut workflow, env.loaded);
    Some(workflow)
}

/// Returns the fields that have a value whenever a used workflow is done. One that may be null has none for a field that takes
/// no null.
fn settled(chain: &Chain<'_>, env: &Environment) -> BTreeSet<ChannelName> {
    if !chain.is_used() {
        return BTreeSet::new();
    }
    let ignores_limits = chain.ignores_limits();
    let mut settled = if ignores_limits { env.flow.at_end_of_part() } else { env.flow.at_end() };
    let may_be_null = |it: &ChannelName| {
        let channel = env.schema.channel(it.as_str());
        channel.is_some_and(|it| matches!(it.ty(), Type::Optional(_)))
    };
    settled.retain(|it| !may_be_null(it));
    settled
}

/// Reports too many nodes, also of all workflows that are used so far.
fn check_size(report: &mut Report, chain: &Chain<'_>, nodes: &Yaml) -> Option<()> {
    let Err(reached) = chain.add_nodes(nodes.entries().len()) else { return Some(()) };
    let what = "the number of nodes, with those of the workflows it uses,";
    // The span of all nodes would be thousands of lines.
    let last = nodes.entries().last().map_or(&nodes.range, |it| &it.key.range);
    report.push_limit(what, &reached, last);
    None
}

/// Makes the draft of a workflow, and the names that its nodes may use.
struct Drafter<'r, 'y> {
    report: &'r mut Report,
    top: &'r Section<'y>,
    nodes: &'y Yaml,
    chain: &'r Chain<'y>,
}

/// The draft of a workflow, before its expressions and prompts are checked.
struct UncheckedDraft<'y> {
    draft: WorkflowDraft<'y>,
    env: Environment,
    interface: Interface,
    limits: Limits,
    entry: Vec<NodeName>,
    /// Whether edges are missing, because of a reported mistake.
    lacks_edges: bool,
}

/// The fields by which a workflow is used.
struct Interface {
    input: Vec<ChannelName>,
    output: Vec<ChannelName>,
    inbox: Vec<ChannelName>,
}

impl Interface {
    /// Returns whether a field may have a value that no node writes.
    fn gives(&self, channel: &Channel) -> bool {
        let name = channel.name();
        self.input.contains(name) || self.inbox.contains(name) || channel.default().is_some()
    }
}

impl<'y> Drafter<'_, 'y> {
    fn draft(self, mut state: ReadState, prompts: PromptFiles) -> Option<UncheckedDraft<'y>> {
        let Self { report, top, nodes, chain } = self;
        let registry = chain.registry;
        // Without a state every field would be unknown; one diagnostic is better than many.
        let schema = state.schema.take()?;
        for used in &state.used {
            report.references.add("types", used);
        }
        warn_of_placeholders(report, top, &schema);
        let interface = Interface::read(report, top, &schema);
        let declarations = report.watch(|it| Declarations::read(it, nodes, registry));
        let lacks_names = declarations.has_error;
        let declarations = declarations.value;
        let declared = chain.limits(top);
        let used = Uses { nodes, maps: &declarations.maps, limits: declared };
        let loaded = load_used(report, used, prompts.folder(), chain);
        if chain.is_too_large() {
            // A workflow over a limit is not assembled: that would take the time that the limit saves.
            return None;
        }
        let sections = Sections::read(report, top, &prompts, registry, &state);
        let defaults = read_defaults(report, top, &declarations);
        let limits = read_limits(report, top, &declarations);
        let hides_target = limits.exhausted.is_none()
            && top.get("limits").is_some_and(|it| it.get("exhausted").is_some());
        let entry = report.watch(|report| read_start(report, top, &declarations));
        // A misspelt `start` is reported as an unknown key, and not as missing.
        let lacks_start = lacks_names || entry.has_error || entry.value.is_empty() || hides_target;
        let entry = entry.value;
        let scope = PolicyScope {
            registry,
            declarations: &declarations,
            schema: &schema,
            defaults: &defaults,
        };
        let draft = WorkflowDraft::read(report, nodes, scope);
        let sources = Sources {
            top,
            draft: &draft,
            declarations: &declarations,
            schema: &schema,
            input: &interface.input,
            start: &entry,
            limits: &limits,
            registry,
            loaded: &loaded,
            incomplete_fields: &state.incomplete_fields,
            lacks_start,
        };
        let lacks_edges = sources.lacks_edges();
        check_bounds(report, sources);
        let flow = sources.flow();
        let of_runs = used.nodes_of_runs(&declarations.nodes, &loaded);
        let mut env = Environment {
            registry: registry.clone(),
            prompts,
            schema,
            declarations,
            sections,
            defaults,
            flow,
            types: state.types,
            loaded,
            nodes: of_runs,
            limits: declared,
            maps: BTreeMap::new(),
            incomplete_fields: state.incomplete_fields,
        };
        env.maps = read_lists(report, &env, nodes);
        Some(UncheckedDraft { draft, env, interface, limits, entry, lacks_edges })
    }
}

impl Interface {
    fn read(report: &mut Report, top: &Section<'_>, schema: &Schema) -> Self {
        let input = channels(report, top, "input", schema);
        let output = channels(report, top, "output", schema);
        Self { input, output, inbox: inbox(report, top, schema) }
    }
}

/// Adds the used workflows to the one that uses them, as its parts or as nested runs.
fn take_used(workflow: &mut Workflow, loaded: BTreeMap<NodeName, Workflow>) {
    for (name, mut used) in loaded {
        let settings = workflow.nodes.get(&name).map(|it| &it.settings);
        let nested = settings.and_then(|it| it.downcast_ref::<NestedUse>());
        let enter = settings.and_then(|it| it.downcast_ref::<EnterNode>());
        let models = nested.map(|it| &it.models).or(enter.map(|it| &it.models));
        if let Some(models) = models.filter(|it| !it.is_empty()) {
            used.replace_models(models);
        }
        if nested.is_some() {
            workflow.nested.insert(name, used);
        } else {
            workflow.absorb(&name, used);
        }
    }
}

/// Reports nodes that nothing leads to, if the file has other errors. The check of the whole graph follows only without
/// errors, and reports these nodes then.
fn check_reachable(
    report: &mut Report,
    draft: &WorkflowDraft<'_>,
    entry: &[NodeName],
    limits: &Limits,
) {
    // Code may lead anywhere.
    let is_code = |it: &NodeDraft<'_>| it.section.get("node").is_some();
    if !report.has_errors() || draft.nodes.values().any(is_code) {
        return;
    }
    let mut leads: BTreeMap<&NodeName, Vec<NodeName>> = BTreeMap::new();
    for edge in &draft.edges {
        match edge {
            EdgeDraft::Plain(edge) => {
                for from in edge.sources() {
                    let targets = edge.targets();
                    let targets = targets.iter().filter_map(Target::node).cloned();
                    leads.entry(from).or_default().extend(targets);
                }
            }
            EdgeDraft::Route { from, route, .. } => {
                let choices = route.choices();
                let targets = choices.iter().flat_map(|it| &it.to);
                let targets = targets.filter_map(Target::node).cloned();
                leads.entry(from).or_default().extend(targets);
            }
        }
    }
    let mut reached: BTreeSet<&NodeName> = BTreeSet::new();
    let mut open: Vec<&NodeName> =
        entry.iter().chain(limits.exhausted.as_ref().and_then(Target::node)).collect();
    while let Some(name) = open.pop() {
        if !reached.insert(name) {
            continue;
        }
        open.extend(leads.get(name).into_iter().flatten());
        let policies = draft.nodes.get(name).map(|it| &it.policies);
        let caught = policies.into_iter().flat_map(|it| &it.catch).map(|it| &it.to);
        let used_up = policies.and_then(|it| it.bounds.exhausted.as_ref());
        open.extend(caught.chain(used_up).filter_map(Target::node));
    }
    for (name, node) in draft.nodes.iter().filter(|it| !reached.contains(it.0)) {
        let span = report.span(&node.key.range);
        let diagnostic = Diagnostic::error("GR030", format!("nothing leads to node `{name}`"));
        report.push(diagnostic.at(span, "never runs").help("lead an edge to it, or remove it"));
    }
}

/// Reports outputs that nothing ever writes, unless errors may be the reason.
fn check_outputs(report: &mut Report, top: &Section<'_>, env: &Environment, interface: &Interface) {
    let Some(outputs) = top.get("output").filter(|_| !report.has_errors()) else { return };
    for word in outputs.items().iter().chain([outputs]).filter_map(Yaml::word) {
        let Some(channel) = env.schema.channel(&word.text) else { continue };
        let name = channel.name();
        let writes = |node: &NodeName| env.flow.after(node).presence(&word.text) != Presence::Never;
        if !interface.gives(channel) && !env.declarations.nodes.iter().any(writes) {
            let message = format!("`{name}` is an output, and nothing writes it");
            let span = report.span(&word.range);
            let diagnostic = Diagnostic::error("GR035", message).at(span, "never has a value");
            report.push(diagnostic.help(format!("let a node write `{name}`, or remove it here")));
        }
    }
}

/// Returns whether a value is the number of a version. In quotes it would be a text.
pub(super) fn is_version(yaml: &Yaml, version: &str) -> bool {
    matches!(&yaml.data, Data::Scalar { text, plain: true } if text == version)
}

/// Refuses a file of test cases; none of its keys is one of a workflow.
fn refuse_test_cases(report: &mut Report, root: &Yaml) -> Option<()> {
    let is_key = |it: &&Entry| it.key.text == TEST_CASES;
    let Some(Entry { key, .. }) = root.entries().iter().find(is_key) else { return Some(()) };
    let diagnostic = Diagnostic::error("GR003", "this is a file of test cases, and no workflow");
    let diagnostic = diagnostic.at(report.span(&key.range), "begins a file of test cases");
    report.push(diagnostic.help(
        "`graphrun test FILE` runs it; `execute` takes the file that it names under `workflow`",
    ));
    None
}

fn check_version(report: &mut Report, top: &Section<'_>) {
    let Some(version) = top.require(report, "graphrun", "begin with `graphrun: 1`") else { return };
    if !is_version(version, VERSION) {
        let message = "the version of the format is not known";
        let diagnostic =
            Diagnostic::error("GR008", message).at(report.span(&version.range), "here");
        report.push(diagnostic.help("this program reads `graphrun: 1`"));
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
                "`inbox` names `{}`, which is not a list that messages can be appended to",
                word.text
            );
            let help =
                "messages are appended: `{ type: \"[string]\", merge: append, default: [] }`";
            report.bad_value(&word, message, help);
        }
    }
    report.channels(yaml, "`inbox`", schema)
}

/// Reads `start`: the nodes of the first step.
fn read_start(
    report: &mut Report,
    top: &Section<'_>,
    declarations: &Declarations,
) -> Vec<NodeName> {
    let nodes = top.get("nodes").map(Yaml::entries).unwrap_or_default();
    let named = nodes.iter().filter_map(|it| declarations.nodes.get(it.key.text.as_str()));
    let first = named.clone().find(|it| *declarations.follows(it) == Follows::Then);
    let first = first.or_else(|| named.clone().next()).map_or("NODE", NodeName::as_str);
    let help = format!("name the first node: `start: {first}`");
    let Some(start) = top.require(report, "start", &help) else { return Vec::new() };
    let mut entry = Vec::new();
    for word in report.words(start, "`start`") {
        for target in declarations.resolve(report, &word) {
            let message = "a run that starts at its end runs no node";
            entry.extend(report.only_node(&word, target, message, &help));
        }
    }
    entry
}

/// Warns about exit codes of all nodes of which none runs a command, unless errors may be the reason.
fn warn_of_unused_exit_codes(
    report: &mut Report,
    top: &Section<'_>,
    nodes: &BTreeMap<NodeName, NodeDefinition>,
) {
    let retry = top.get("defaults").and_then(|it| it.get("retry"));
    let mut entries = retry.map(Yaml::entries).unwrap_or_default().iter();
    let Some(codes) = entries.find(|it| it.key.text == "exit_codes") else { return };
    if !report.has_errors() && !nodes.values().any(|it| it.settings.has_exit_code()) {
        let message = "`exit_codes` has no effect here: no node runs a command";
        warn_of_no_effect(report, &codes.key, message, "remove it; `on` names kinds of failure");
    }
}

/// Reports inputs and fields that nothing reads or nothing writes, unless errors may be the reason, or code that may read
/// anything.
fn warn_of_unused_fields(
    report: &mut Report,
    root: &Yaml,
    env: &Environment,
    interface: &Interface,
    draft: &WorkflowDraft<'_>,
) {
    if report.has_errors() {
        return;
    }
    let mut kinds = draft.nodes.values().filter_map(|it| it.kind);
    if kinds.any(|it| !it.kind.reads_only_named_values() && !it.kind.runs_others()) {
        return;
    }
    // Some keys name a field, such as `show`, `output` or a bound.
    let mut named = BTreeSet::new();
    for Entry { key, value } in root.entries() {
        match key.text.as_str() {
            "input" | "state" | "types" => (),
            "nodes" => value.entries().iter().flat_map(|it| it.value.entries()).for_each(|entry| {
                if !matches!(entry.key.text.as_str(), "writes" | "clears") {
                    collect_words(&entry.value, &mut named);
                }
            }),
            _ => collect_words(value, &mut named),
        }
    }
    let inputs = root.get("input").map(words_of).unwrap_or_default();
    let is_read = |report: &Report, name: &str| {
        report.references.contains(FIELDS, name) || named.contains(name)
    };
    for word in &inputs {
        if env.schema.channel(&word.text).is_some() && !is_read(report, &word.text) {
            let message = format!("nothing reads the input `{}`", word.text);
            let span = report.span(&word.range);
            let diagnostic = Diagnostic::warning("GR018", message).at(span, "not read");
            report.push(diagnostic.help("read it in a prompt or an expression, or remove it here"));
        }
    }
    let is_input = |name: &str| inputs.iter().any(|it| it.text == name);
    // A command that writes its exit code fails for none, so the field has an effect although nothing reads it.
    let shows_success: BTreeSet<&str> = draft
        .nodes
        .values()
        .filter_map(|it| Some(it.kind?.kind.success_fields(&it.section)))
        .flatten()
        .map(|it| it.0)
        .collect();
    // Without `output`, the result has all fields that are not private.
    let has_output = root.get("output").is_some();
    for Entry { key, .. } in root.get("state").map(Yaml::entries).unwrap_or_default() {
        let name = key.text.as_str();
        let Some(channel) = env.schema.channel(name) else { continue };
        let is_result = !has_output && channel.is_public();
        let is_read = is_read(report, name) || shows_success.contains(name);
        let writer = env.flow.first_writer(name);
        let has_value = interface.gives(channel) || writer.is_some();
        if is_input(name) || has_value && (is_result || is_read) {
            continue;
        }
        let span = report.span(&key.range);
        let diagnostic = if is_read {
            let message = format!("nothing writes the field `{name}`");
            Diagnostic::warning("GR018", message)
                .at(span, "never has a value")
                .help("write it in a node, name it in `input`, or remove it and what reads it")
        } else if let Some(node) = writer {
            let message = format!("nothing reads the field `{name}`, which `{node}` writes");
            Diagnostic::hint("GR140", message)
                .at(span, "only written")
                .help("read it in a prompt or an expression, add it to `output`, or remove it")
        } else {
            let message = format!("nothing uses the field `{name}`");
            Diagnostic::warning("GR018", message).at(span, "not used")
        };
        report.push(diagnostic);
    }
}

/// Returns the words of a value: one or several.
fn words_of(yaml: &Yaml) -> Vec<SpannedText> {
    yaml.items().iter().chain([yaml]).filter_map(Yaml::word).collect()
}

/// Collects the words in the scalars of a value.
fn collect_words<'y>(value: &'y Yaml, words: &mut BTreeSet<&'y str>) {
    let is_part = |it: char| it.is_alphanumeric() || matches!(it, '_' | '-');
    match &value.data {
        // A longer text is prose, an expression or a prompt, and these are read by what checks them.
        Data::Scalar { text, plain } if *plain || !text.contains(' ') => {
            words.extend(text.split(|it| !is_part(it)));
        }
        Data::Scalar { .. } | Data::Null => (),
        Data::List(items) => items.iter().for_each(|it| collect_words(it, words)),
        Data::Map(entries) => entries.iter().for_each(|it| collect_words(&it.value, words)),
    }
}

/// Reports unused declarations, unless there are errors that may be the reason.
fn report_unused(report: &mut Report, top: &Section<'_>) {
    if report.has_errors() {
        return;
    }
    let sections = [
        ("models", "model"),
        ("agents", "agent"),
        ("sandboxes", "sandbox"),
        ("folders", "folder"),
        ("hosts", "host"),
        ("mcp", "server"),
        ("tools", "tool"),
        (MEMORY, "tier"),
        ("types", "type"),
    ];
    for (section, kind) in sections {
        for entry in top.get(section).map(Yaml::entries).unwrap_or_default() {
            let is_setting = section == "tools" && entry.key.text == FILES;
            if !is_setting && !report.references.contains(section, &entry.key.text) {
                let message = format!("nothing uses the {kind} `{}`", entry.key.text);
                let span = report.span(&entry.key.range);
                report.push(Diagnostic::warning("GR018", message).at(span, "not used"));
            }
        }
    }
}
