//! The nodes: the keys common to all, and the kind that reads the others.

use graphrun_core::{
    diagnostic::{Diagnostic, Place},
    id::NodeName,
};

use super::{
    NodeDefinition, Registry, Workflow,
    kind::{NodeReader, RegisteredKind},
    lower::Lowering,
    policies::COMMON,
    reader::Entry,
    shape::{Section, is_later},
};

/// The keys of a `parallel`.
const PARALLEL_KEYS: &[&str] = &["parallel", "about", "then"];

impl Lowering {
    pub(super) fn read_node(&mut self, entry: &Entry, name: &NodeName, workflow: &mut Workflow) {
        let registry = self.registry.clone();
        let Some((section, kind)) = self.node_section(entry, &registry) else { return };
        let mut policies = self.read_policies(name, &section, registry.kinds());
        self.item = self.items.get(name).cloned();
        self.any_item = match &self.item {
            Some(item) => item.is_vague,
            None => self.declarations.may_have_an_item(name),
        };
        policies.width_max = self.item.as_ref().and_then(|it| it.width_max);
        let about = section.get("about").and_then(|it| self.report.word(it, "`about`"));
        let has_kind = |it: &&RegisteredKind| section.get(it.key()).is_some();
        let runs_others = registry.kinds().iter().filter(has_kind).any(|it| it.kind.runs_others());
        let when = section.get("when").filter(|_| !runs_others);
        let when = when.and_then(|it| self.read_when(name, it));
        self.given = when.as_ref().map(|it| it.presumed().to_vec()).unwrap_or_default();
        let settings = kind.and_then(|kind| {
            // The timeout limits the wait for a person, which continues while no process runs.
            let timeout = policies.timeout.take_if(|_| kind.kind.asks());
            let (name_key, section) = (&entry.key, &section);
            let mut reader = NodeReader { lowering: self, name, name_key, section, kind, timeout };
            kind.kind.read(&mut reader)
        });
        let cache = self.read_cache(name, &section);
        (self.item, self.any_item, self.given) = (None, false, Vec::new());
        if kind.is_some() || section.get("then").is_some() {
            self.read_following(name, &section, workflow);
        }
        self.read_join(name, &section, workflow);
        let place = Place { file: self.report.file.clone(), range: entry.key.range.clone() };
        let about = about.map(|it| it.text);
        let definition = settings.map(|settings| NodeDefinition {
            settings,
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

    /// Reads the keys of a node. Also returns its kind, if it has exactly one.
    fn node_section<'y, 'r>(
        &mut self,
        entry: &'y Entry,
        registry: &'r Registry,
    ) -> Option<(Section<'y>, Option<&'r RegisteredKind>)> {
        let kinds = registry.kinds();
        let what = format!("the node `{}`", entry.key.text);
        let own = kinds.iter().flat_map(|it| it.own_keys().chain([it.key()]));
        let mut known: Vec<&str> = own.chain(COMMON.iter().copied()).collect();
        known.sort_unstable();
        known.dedup();
        let within = |key: &str| {
            let has_it = |it: &&RegisteredKind| {
                entry.value.get(it.key()).is_some() && it.keys_within(it.key()).contains(&key)
            };
            let kind = kinds.iter().find(has_it)?;
            Some(format!("it belongs into `{}: {{ … }}`", kind.key()))
        };
        let section = Section::read_with(&mut self.report, &entry.value, &what, &known, within)?;
        let found: Vec<&RegisteredKind> =
            kinds.iter().filter(|it| section.get(it.key()).is_some()).collect();
        let [kind] = found.as_slice() else {
            let names: Vec<&str> = found.iter().map(|it| it.key()).collect();
            if names.is_empty() && entry.value.entries().iter().any(|it| is_later(&it.key.text)) {
                // It has a key of a later version, which is reported.
                return Some((section, None));
            }
            let message = match names.as_slice() {
                [] => format!("{what} has no kind"),
                several => format!("{what} has several kinds: {}", several.join(", ")),
            };
            let place = self.report.place(&entry.key.range);
            let all: Vec<&str> = kinds.iter().map(RegisteredKind::key).collect();
            let finding = Diagnostic::error("GR007", message).at(place, "must be of one kind");
            self.report.push(finding.help(format!("give it one of: {}", all.join(", "))));
            return Some((section, None));
        };
        for key in section.keys() {
            let key_name = key.text.as_str();
            if !kind.takes(key_name) && !COMMON.contains(&key_name) {
                let owners = kinds.iter().filter(|it| it.takes(key_name));
                let owners: Vec<String> = owners.map(|it| format!("`{}`", it.key())).collect();
                let message = format!("a node that is `{}` takes no key `{key_name}`", kind.key());
                let place = self.report.place(&key.range);
                let finding = Diagnostic::error("GR003", message).at(place, "not a key here");
                self.report.push(finding.help(format!("it belongs to {}", owners.join(" and "))));
            }
        }
        Some((section, Some(kind)))
    }
}
