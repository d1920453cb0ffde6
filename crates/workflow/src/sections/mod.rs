//! The sections beside the nodes, in a file each: [`Sections`] holds those that nodes refer to.

pub(super) mod agents;
pub(super) mod approval;
pub(super) mod argument;
pub(super) mod fixed_files;
pub(super) mod folders;
pub(super) mod hosts;
pub(super) mod limits;
pub(super) mod mcp;
pub mod memory;
mod models;
pub(super) mod program;
pub(super) mod reports;
pub(super) mod request_settings;
pub(super) mod sandboxes;
pub(super) mod tools;
pub(super) mod types;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use self::{
    agents::Agent,
    folders::read_names,
    hosts::{HostSettings, read_hosts},
    mcp::read_mcp,
    memory::{Tiers, read_tiers},
    models::read_model,
    program::ProgramPlace,
    sandboxes::read_sandbox,
    tools::{DeclaredParts, FILES, read_tools},
    types::ReadState,
};
use super::{
    Registry, SandboxSettings,
    format::{FilesKeys, values::TemplateKeys},
    source::{
        prompts::{LoadedPrompt, PromptFiles},
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    tool::DeclaredTool,
};

/// The sections that nodes refer to.
#[derive(Debug)]
pub(crate) struct Sections {
    models: BTreeMap<String, Vec<String>>,
    pub(crate) agents: BTreeMap<String, Agent>,
    pub(crate) sandboxes: BTreeMap<String, SandboxSettings>,
    pub(crate) hosts: BTreeMap<String, HostSettings>,
    /// The tools that the workflow declares.
    pub(crate) tools: BTreeMap<String, Arc<DeclaredTool>>,
    /// The MCP servers whose tools are not known, which is reported.
    pub(crate) unlocked_servers: BTreeSet<String>,
    /// The names of the folders of a run.
    pub(crate) folders: BTreeSet<String>,
    /// The tiers of memory.
    pub(crate) memory: Arc<Tiers>,
    /// The folder that the built-in tools can read.
    pub(crate) tools_root: PathBuf,
}

impl Sections {
    /// Reads the sections, each after those it refers to itself.
    pub(super) fn read(
        report: &mut Report,
        top: &Section<'_>,
        prompts: &PromptFiles,
        registry: &Registry,
        state: &ReadState,
    ) -> Self {
        let mut sections = Self {
            models: BTreeMap::new(),
            agents: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            hosts: BTreeMap::new(),
            tools: BTreeMap::new(),
            unlocked_servers: BTreeSet::new(),
            folders: read_names(report, top),
            memory: Arc::default(),
            tools_root: read_tools_root(report, top, prompts),
        };
        for entry in entries(report, top, "sandboxes") {
            let sandbox =
                read_sandbox(report, entry, |report, word| sections.find_folder(report, word));
            sections.sandboxes.insert(entry.key.text.clone(), sandbox);
        }
        sections.hosts = read_hosts(
            report,
            top,
            |it| sections.sandboxes.contains_key(it),
            |report, word| sections.find_folder(report, word),
        );
        let declared = DeclaredParts { prompts, registry, sections: &sections };
        sections.tools = read_tools(report, top, declared, &state.tools);
        let (of_servers, unlocked_servers) = read_mcp(report, top, prompts.folder(), &sections);
        sections.unlocked_servers = unlocked_servers;
        let of_servers = of_servers.into_iter().map(|it| (it.signature.name.clone(), Arc::new(it)));
        sections.tools.extend(of_servers);
        for Entry { key, value } in entries(report, top, "models") {
            let models = read_model(report, value, registry.known_providers());
            sections.models.insert(key.text.clone(), models);
        }
        sections.memory = read_tiers(report, top, &state.tiers, &mut |report, yaml| {
            sections.find_model(report, yaml, registry.known_providers())
        });
        for entry in entries(report, top, "agents") {
            let agent = sections.read_agent(report, entry, prompts, registry);
            // An invalid agent still counts as declared, so that the nodes that use it are not
            // reported.
            sections.agents.insert(entry.key.text.clone(), agent.unwrap_or_default());
        }
        sections
    }

    /// Returns the hosts with all secrets that their commands get, those of single agents included: the file that a
    /// person starts has to list them for the workflows that it uses.
    pub(crate) fn hosts_with_secrets_of_programs(&self) -> BTreeMap<String, HostSettings> {
        let mut hosts = self.hosts.clone();
        for program in self.agents.values().filter_map(|it| it.program.as_ref()) {
            if let ProgramPlace::Host(own) = &program.place
                && let Some(host) = hosts.get_mut(&own.name)
            {
                host.add_secrets(&own.secrets);
            }
        }
        hosts
    }

    /// Resolves one of `folders`.
    pub(crate) fn find_folder(&self, report: &mut Report, word: SpannedText) -> Option<String> {
        if !self.folders.contains(&word.text) {
            let known = self.folders.iter().map(String::as_str);
            report.unknown("GR057", "folder", &word, known);
            return None;
        }
        report.references.add("folders", &word.text);
        Some(word.text)
    }
}

/// Reads `tools`: the folder of the built-in tools.
fn read_tools_root(report: &mut Report, top: &Section<'_>, prompts: &PromptFiles) -> PathBuf {
    let folder = prompts.folder();
    let files = top.get("tools").and_then(|it| it.get(FILES));
    let files = files.and_then(|it| Section::read::<FilesKeys>(report, it, "`fs`"));
    if let Some(root) = files.and_then(|it| it.get("root"))
        && let Some(root) = report.word(root, "`root`")
    {
        match folder.check_folder(root.text.as_ref()) {
            Ok(()) => return folder.path().join(root.text),
            Err(error) => {
                let message = format!("the tools cannot read `{}`: {error}", root.text);
                let help = folder.help_for(&error).unwrap_or_default();
                report.bad_value(&root, message, &help);
            }
        }
    }
    folder.path().to_owned()
}

pub(super) fn entries<'y>(report: &mut Report, top: &Section<'y>, key: &str) -> &'y [Entry] {
    let Some(yaml) = top.get(key) else { return &[] };
    if !matches!(yaml.data, Data::Map(_)) {
        report.wrong_kind(yaml, &format!("`{key}`"), "a mapping");
    }
    yaml.entries()
}

/// Reads the template under a key: a path, or the text itself.
pub(super) fn read_template(
    report: &mut Report,
    prompts: &PromptFiles,
    yaml: &Yaml,
    key: &str,
) -> Option<LoadedPrompt> {
    if !matches!(yaml.data, Data::Map(_)) {
        let path = report.word(yaml, "the path of a prompt")?;
        return prompts.load(report, &path);
    }
    let what = format!("`{key}`");
    let section = Section::read::<TemplateKeys>(report, yaml, &what)?;
    let help = format!("write the text, or give {what} the path of a file");
    let text = section.require(report, "text", &help)?;
    LoadedPrompt::inline(report, text, &what)
}
