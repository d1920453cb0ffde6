//! The nodes: the keys common to all here, each kind in its own file.

mod agent;
mod ask;
mod run;
mod run_tests;
mod set;
mod test_runner;
mod tool;
mod use_workflow;
mod write_files;

use graphrun_core::{
    diagnostic::{Diagnostic, Place},
    id::NodeName,
    state::Type,
};

use super::{
    Expression, NodeDefinition, NodeKind, SandboxSettings, Workflow,
    fan::MAP_KEYS,
    lower::Lowering,
    policies::COMMON,
    reader::{Data, Entry, SpannedText, Yaml},
    report::suggestion,
    shape::{Section, is_later},
    typing::{describe, fits, values_of},
};
/// Each kind of node with its own keys.
pub const KINDS: &[(&str, &[&str])] = &[
    ("agent", &["prompt", "writes", "repair"]),
    ("run", &["in", "env", "stdin", "files", "writes"]),
    ("run_tests", &["in", "writes"]),
    ("tool", &["args", "writes"]),
    ("ask", &["show", "choices", "writes"]),
    ("set", &[]),
    ("map", &[]),
    ("use", &[]),
    ("write_files", &[]),
    ("node", &[]),
    ("parallel", &[]),
];

/// The keys of a `prompt` that is not simply a path.
pub(super) const PROMPT_KEYS: &[&str] = &["text", "first", "again"];
/// The keys of `run_tests`.
pub(super) const RUN_TESTS_KEYS: &[&str] = &[
    "artifact",
    "runner",
    "attempt",
    "fixed",
    "proof",
    "allow",
    "command",
    "report",
    "report_path",
];
/// The keys of `write_files`.
pub(super) const WRITE_FILES_KEYS: &[&str] = &["to", "files", "documents", "report"];
/// The keys that belong inside the key of a kind, not beside it.
const WITHIN: &[(&str, &[&str])] = &[
    ("map", MAP_KEYS),
    ("run_tests", RUN_TESTS_KEYS),
    ("use", USE_KEYS),
    ("write_files", WRITE_FILES_KEYS),
];
/// The keys of a `parallel`.
const PARALLEL_KEYS: &[&str] = &["parallel", "about", "then"];

pub(super) use self::use_workflow::USE_KEYS;

/// The node that is read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a, 'y> {
    pub(super) name: &'a NodeName,
    key: &'a SpannedText,
    pub(super) section: &'a Section<'y>,
}

impl Lowering<'_> {
    pub(super) fn read_node(&mut self, entry: &Entry, name: &NodeName, workflow: &mut Workflow) {
        let Some((section, is_of_one_kind)) = self.node_section(entry) else { return };
        let mut policies = self.read_policies(name, &section);
        self.item = self.items.get(name).cloned();
        self.any_item = match &self.item {
            Some(item) => item.is_vague,
            None => self.declarations.may_have_an_item(name),
        };
        policies.width_max = self.item.as_ref().and_then(|it| it.width_max);
        let reading = Reading { name, key: &entry.key, section: &section };
        let about = section.get("about").and_then(|it| self.report.word(it, "`about`"));
        let runs_others = section.get("use").or(section.get("map")).is_some();
        let when = section.get("when").filter(|_| !runs_others);
        let when = when.and_then(|it| self.read_when(name, it));
        self.given = when.as_ref().map(|it| it.presumed().to_vec()).unwrap_or_default();
        let mut kind =
            is_of_one_kind.then(|| self.read_kind(reading, section.has_or_means("max_visits")));
        if let Some(Some(NodeKind::Ask(ask))) = &mut kind {
            // The timeout limits the wait for a person, which continues while no process runs.
            ask.timeout = policies.timeout.take();
        }
        let cache = self.read_cache(name, &section);
        (self.item, self.any_item, self.given) = (None, false, Vec::new());
        if is_of_one_kind || section.get("then").is_some() {
            self.read_following(name, &section, workflow);
        }
        self.read_join(name, &section, workflow);
        let place = Place { file: self.report.file.clone(), range: entry.key.range.clone() };
        let about = about.map(|it| it.text);
        let definition = kind.flatten().map(|kind| NodeDefinition {
            kind,
            policies,
            when,
            cache,
            place,
            about,
            scopes: Vec::new(),
        });
        workflow.nodes.extend(definition.map(|it| (name.clone(), it)));
    }

    pub(super) fn read_parallel(
        &mut self,
        entry: &Entry,
        name: &NodeName,
        workflow: &mut Workflow,
    ) {
        let what = format!("the parallel `{}`", entry.key.text);
        let read = Section::read(&mut self.report, &entry.value, &what, PARALLEL_KEYS);
        let Some(section) = read else {
            return;
        };
        if let Some(about) = section.get("about") {
            self.report.word(about, "`about`");
        }
        self.read_following(name, &section, workflow);
    }

    /// Reads the keys of a node. Also returns whether it has exactly one kind, with the keys of
    /// that kind.
    fn node_section<'y>(&mut self, entry: &'y Entry) -> Option<(Section<'y>, bool)> {
        let what = format!("the node `{}`", entry.key.text);
        let own = KINDS.iter().flat_map(|(kind, keys)| keys.iter().chain([kind]));
        let mut known: Vec<&str> = own.chain(COMMON).copied().collect();
        known.sort_unstable();
        known.dedup();
        let within = |key: &str| {
            let is_its = |(kind, keys): &&(&str, &[&str])| {
                entry.value.get(kind).is_some() && keys.contains(&key)
            };
            let (kind, _) = WITHIN.iter().find(is_its)?;
            Some(format!("it belongs into `{kind}: {{ … }}`"))
        };
        let section = Section::read_with(&mut self.report, &entry.value, &what, &known, within)?;
        let kinds: Vec<&(&str, &[&str])> =
            KINDS.iter().filter(|(kind, _)| section.get(kind).is_some()).collect();
        let [(kind, own)] = kinds.as_slice() else {
            let names: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
            if names.is_empty() && entry.value.entries().iter().any(|it| is_later(&it.key.text)) {
                // It has a key of a later version, which is reported.
                return Some((section, false));
            }
            let message = match names.as_slice() {
                [] => format!("{what} has no kind"),
                several => format!("{what} has several kinds: {}", several.join(", ")),
            };
            let place = self.report.place(&entry.key.range);
            let all: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            let finding = Diagnostic::error("GR007", message).at(place, "must be of one kind");
            self.report.push(finding.help(format!("give it one of: {}", all.join(", "))));
            return Some((section, false));
        };
        for key in section.keys().filter(|it| it.text != *kind) {
            let key_name = key.text.as_str();
            if !own.contains(&key_name) && !COMMON.contains(&key_name) {
                let owners = KINDS.iter().filter(|(_, keys)| keys.contains(&key_name));
                let owners: Vec<String> = owners.map(|(kind, _)| format!("`{kind}`")).collect();
                let message = format!("a node that is `{kind}` takes no key `{key_name}`");
                let place = self.report.place(&key.range);
                let finding = Diagnostic::error("GR003", message).at(place, "not a key here");
                self.report.push(finding.help(format!("it belongs to {}", owners.join(" and "))));
            }
        }
        Some((section, true))
    }

    fn read_kind(&mut self, reading: Reading<'_, '_>, bounded: bool) -> Option<NodeKind> {
        let section = reading.section;
        if let Some(agent) = section.get("agent") {
            self.read_agent_node(reading, agent, bounded).map(NodeKind::Agent)
        } else if let Some(command) = section.get("run") {
            self.read_run(reading, command).map(NodeKind::Run)
        } else if let Some(tests) = section.get("run_tests") {
            self.read_run_tests(reading, tests).map(NodeKind::RunTests)
        } else if let Some(tool) = section.get("tool") {
            self.read_tool(reading, tool).map(NodeKind::Tool)
        } else if let Some(question) = section.get("ask") {
            self.read_ask(reading, question, bounded).map(NodeKind::Ask)
        } else if let Some(sets) = section.get("set") {
            self.read_set(reading, sets).map(NodeKind::Set)
        } else if let Some(map) = section.get("map") {
            self.read_map(reading, map).map(NodeKind::Map)
        } else if let Some(used) = section.get("use") {
            self.read_use(reading, used).map(NodeKind::Enter)
        } else if let Some(files) = section.get("write_files") {
            self.read_write_files(reading, files, bounded).map(NodeKind::WriteFiles)
        } else {
            self.read_custom(section.get("node")?)
        }
    }

    /// The sandbox that `in` names.
    fn read_sandbox_of(&mut self, section: &Section<'_>) -> Option<SandboxSettings> {
        let help = "name one of `sandboxes`: generated code runs only in a sandbox";
        let sandbox = section.require(&mut self.report, "in", help)?;
        let word = self.report.word(sandbox, "`in`")?;
        let settings = self.sandboxes.get(&word.text).cloned();
        if settings.is_none() {
            let known = self.sandboxes.keys().map(String::as_str);
            self.report.unknown("GR015", "sandbox", &word, known);
        } else {
            self.uses("sandboxes", &word.text);
        }
        settings
    }

    /// Reads the pairs of `writes`: `field: output`, or just fields with the names of their
    /// outputs.
    fn read_pairs(&mut self, yaml: &Yaml) -> Vec<(SpannedText, SpannedText)> {
        if let Data::Map(entries) = &yaml.data {
            let pair = |Entry { key, value }: &Entry| {
                Some((key.clone(), self.report.word(value, "an output")?))
            };
            return entries.iter().filter_map(pair).collect();
        }
        let words = self.report.words(yaml, "`writes`");
        words.into_iter().map(|it| (it.clone(), it)).collect()
    }

    /// Checks that an expression may be a list of files.
    fn check_files(&mut self, yaml: &Yaml, files: &Expression) {
        if !matches!(files.ty(), Type::List(_) | Type::Map(_) | Type::Any) {
            let message =
                format!("`files` is a list of files, and this is {}", describe(files.ty()));
            let place = self.report.place(&yaml.range);
            self.report.push(Diagnostic::error("GR022", message).at(place, "no list"));
        }
    }

    fn expect_type(&mut self, yaml: &Yaml, ty: &Type, declared: &Type, what: &str) {
        if fits(ty, declared) {
            return;
        }
        let place = self.report.place(&yaml.range);
        if let (Some(given), Some(values)) = (values_of(ty), values_of(declared))
            && let Some(text) = given.iter().find(|it| !values.contains(it))
        {
            let message = format!("\"{text}\" is never a value of {what}");
            let finding = Diagnostic::error("GR023", message).at(place, "no such value");
            let help = suggestion(text, values.iter().map(String::as_str));
            self.report.push(Diagnostic { help, ..finding });
            return;
        }
        let message = format!("{what} is `{declared}`, and this is {}", describe(ty));
        self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
    }

    fn read_custom(&mut self, yaml: &Yaml) -> Option<NodeKind> {
        let name = self.report.word(yaml, "`node`")?;
        if self.registry.custom(&name.text).is_some() {
            return Some(NodeKind::Custom(name.text));
        }
        let help = suggestion(&name.text, self.registry.nodes())
            .unwrap_or_else(|| "a Rust program registers nodes; none is registered".to_owned());
        let message = format!("no node `{}` is registered", name.text);
        let place = self.report.place(&name.range);
        self.report
            .push(Diagnostic::error("GR010", message).at(place, "not registered").help(help));
        None
    }
}
