//! The sections beside the nodes: models, agents, sandboxes, defaults, limits.

pub(super) mod approval;
pub(super) mod argument;
pub(super) mod fixed_files;
pub(super) mod folders;
pub(super) mod hosts;
pub(super) mod mcp;
pub mod memory;
pub(super) mod program;
pub(super) mod reports;
pub(super) mod request_settings;
pub(super) mod tools;
pub(super) mod types;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use graphrun_core::{
    diagnostic::{Diagnostic, did_you_mean},
    graph::Limits,
};
use graphrun_models::{Parameter, Providers, RequestSettings, ToolChoice};
use graphrun_sandbox::{NetworkHost, PackageInstaller, check_path};

use self::{
    approval::read_approval,
    folders::read_names,
    hosts::{HostSettings, read_hosts},
    mcp::read_mcp,
    memory::{Tiers, read_tiers},
    program::{Program, ProgramPlace, read_program, refuse_both, refuse_program_keys},
    tools::{DeclaredParts, FILES, find_tool, read_tools},
    types::ReadState,
};
use super::{
    Approval, Defaults, LockFileUse, Registry, SandboxSettings,
    format::{
        AgentKeys, DefaultsKeys, DependenciesKeys, FilesKeys, LimitsKeys, PythonKeys, SandboxKeys,
        ToolUseKeys, values::TemplateKeys,
    },
    lower::declarations::Declarations,
    node::policies::read_catch,
    prompt::{LoadedPrompt, PromptFiles},
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};
use crate::tool::{DeclaredTool, ToolSignature};

/// The default memory of a sandbox.
const MEMORY_BYTES: u64 = 2 << 30;
/// The default time limit of a sandbox.
const TIME: Duration = Duration::from_secs(60);
/// The default number of repairs of an answer.
const REPAIRS: u32 = 2;

/// The default number of rounds of tool calls.
const TOOL_ROUNDS: u32 = 8;

/// The keys of an agent that are about calls of its tools.
const CALL_KEYS: [&str; 4] = ["max_tool_rounds", "tool_timeout", "tool_choice", "parallel_tools"];
/// An agent as it is declared.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// The models as `provider/model`, in order of fallback; none if it has a program.
    pub models: Vec<String>,
    /// The program that does the work in place of a model.
    pub program: Option<Arc<Program>>,
    /// The system prompt, not checked yet.
    pub system: Option<LoadedPrompt>,
    /// The settings of its requests.
    pub settings: RequestSettings,
    /// The tools it may call, by name.
    pub tools: Vec<String>,
    /// When a person is asked before it calls a tool, by the name of the tool; never without an entry.
    pub approvals: BTreeMap<String, Approval>,
    /// How many rounds of tool calls it may make.
    pub tool_rounds_max: u32,
    /// The longest duration of a call of a tool.
    pub tool_timeout: Option<Duration>,
    /// Whether it may or must call a tool before its first answer.
    pub tool_choice: ToolChoice,
    /// The treatment of a request that is too long for its model.
    pub on_overflow: OnOverflow,
}

/// The treatment of a request that is too long for a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOverflow {
    /// It asks the next model of its list, or fails.
    #[default]
    Fail,
    /// It leaves parts of the request out, in a fixed order.
    Cut,
}

impl OnOverflow {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Fail, Self::Cut];

    /// Returns the word for it in a workflow.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Cut => "cut",
        }
    }
}

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

    fn read_agent(
        &self,
        report: &mut Report,
        Entry { key, value }: &Entry,
        prompts: &PromptFiles,
        registry: &Registry,
    ) -> Option<Agent> {
        let what = format!("the agent `{}`", key.text);
        let section = Section::read::<AgentKeys>(report, value, &what)?;
        if let Some(about) = section.get("about") {
            report.word(about, "`about`");
        }
        let system = section.get("system");
        let system = system.and_then(|it| read_template(report, prompts, it, "system"));
        let Some(command) = section.key("command") else {
            refuse_program_keys(report, &section);
            let agent = self.read_model_agent(report, &section, registry);
            return Some(Agent { system, ..agent });
        };
        if section.get("model").is_some() {
            refuse_both(report, &what, command);
            return None;
        }
        let declared = DeclaredParts { prompts, registry, sections: self };
        let program = read_program(report, &key.text, &section, declared)?;
        Some(Agent { program: Some(Arc::new(program)), system, ..Agent::default() })
    }

    /// Reads the keys of an agent that asks models, except for its system prompt.
    fn read_model_agent(
        &self,
        report: &mut Report,
        section: &Section<'_>,
        registry: &Registry,
    ) -> Agent {
        let help = "name one of `models`, or write `command` for an agent that is a program";
        let model = section.require(report, "model", help);
        let providers = registry.known_providers();
        let models = model.map(|it| self.find_model(report, it, providers)).unwrap_or_default();
        let settings = request_settings::read(report, |key| section.get(key), &models, providers);
        let cache = section.get("cache").map(|it| request_settings::read_cache(report, it));
        let parallel = section.get("parallel_tools");
        let settings = RequestSettings {
            cache_prompt: cache.unwrap_or(false),
            parallel_tools: parallel.and_then(|it| report.bool(it, "`parallel_tools`")),
            ..settings
        };
        for parameter in [Parameter::ToolChoice, Parameter::ParallelTools] {
            if let Some(yaml) = section.get(request_settings::key_of(parameter)) {
                request_settings::check_support(report, yaml, parameter, &models, providers);
            }
        }
        let overflow = section.get("on_overflow").and_then(|it| read_on_overflow(report, it));
        let agent = self.read_tool_calls(report, section, registry);
        Agent { models, settings, on_overflow: overflow.unwrap_or_default(), ..agent }
    }

    /// Reads the keys of an agent about calls of its tools.
    fn read_tool_calls(
        &self,
        report: &mut Report,
        section: &Section<'_>,
        registry: &Registry,
    ) -> Agent {
        for key in CALL_KEYS.iter().filter_map(|it| section.key(it)) {
            if !section.has_or_means("tools") {
                let message = match key.text.as_str() {
                    "max_tool_rounds" => "an agent without tools has no rounds of calls",
                    _ => "an agent without tools makes no calls of tools",
                };
                report.bad_value(key, message, "give the agent `tools`, or remove this");
            }
        }
        let list = section.get("tools");
        let (tools, approvals) =
            list.map(|it| self.read_agent_tools(report, registry, it)).unwrap_or_default();
        let rounds = section.get("max_tool_rounds");
        let rounds = rounds.and_then(|it| report.count(it, "`max_tool_rounds`", 1));
        let timeout = section.get("tool_timeout");
        let tool_timeout = timeout.and_then(|it| report.duration(it, "`tool_timeout`"));
        let choice = section.get("tool_choice").zip(list);
        let choice = choice.and_then(|(it, tools)| read_tool_choice(report, it, tools));
        Agent {
            tools,
            approvals,
            tool_rounds_max: rounds.unwrap_or(TOOL_ROUNDS),
            tool_timeout,
            tool_choice: choice.unwrap_or_default(),
            ..Agent::default()
        }
    }

    /// Reads the tools that an agent may call, and when a person is asked before.
    fn read_agent_tools(
        &self,
        report: &mut Report,
        registry: &Registry,
        yaml: &Yaml,
    ) -> (Vec<String>, BTreeMap<String, Approval>) {
        let mut tools = Vec::new();
        let mut approvals = BTreeMap::new();
        let words = match &yaml.data {
            Data::List(items) => items.iter().filter_map(|it| read_tool_use(report, it)).collect(),
            _ => report.words(yaml, "`tools`").into_iter().map(|it| (it, None)).collect::<Vec<_>>(),
        };
        for (word, approval) in words {
            approvals.extend(approval.map(|it| (word.text.clone(), it)));
            if tools.contains(&word.text) {
                report.named_twice(&word, "`tools`");
            } else if let Some(tool) = find_tool(report, registry, self, &word) {
                check_offered(report, &tool, &word);
                tools.push(word.text);
            }
        }
        (tools, approvals)
    }

    /// Resolves one of `models`, or a literal model name.
    pub(crate) fn find_model(
        &self,
        report: &mut Report,
        yaml: &Yaml,
        providers: &Providers,
    ) -> Vec<String> {
        let Some(word) = report.word(yaml, "`model`") else { return Vec::new() };
        report.references.add("models", &word.text);
        if let Some(models) = self.models.get(&word.text) {
            return models.clone();
        }
        if word.text.contains('/') {
            return read_model(report, yaml, providers);
        }
        let known = self.models.keys().map(String::as_str);
        report.unknown("GR012", "model", &word, known);
        Vec::new()
    }
}

fn read_on_overflow(report: &mut Report, yaml: &Yaml) -> Option<OnOverflow> {
    let word = report.word(yaml, "`on_overflow`")?;
    let known = OnOverflow::ALL.into_iter().find(|it| it.as_str() == word.text);
    if known.is_none() {
        let message = format!("`on_overflow` cannot be `{}`", word.text);
        let words = OnOverflow::ALL.map(OnOverflow::as_str).join(" or ");
        report.bad_value(&word, message, &format!("write {words}"));
    }
    known
}

/// Reads whether an agent may or must call one of its tools.
fn read_tool_choice(report: &mut Report, yaml: &Yaml, tools: &Yaml) -> Option<ToolChoice> {
    let word = report.word(yaml, "`tool_choice`")?;
    let names: Vec<&str> = match &tools.data {
        Data::List(items) => {
            items.iter().filter_map(|it| it.get("tool").unwrap_or(it).text()).collect()
        }
        _ => tools.text().into_iter().collect(),
    };
    match word.text.as_str() {
        "auto" => Some(ToolChoice::Auto),
        "required" => Some(ToolChoice::Required),
        "none" => Some(ToolChoice::None),
        name if names.contains(&name) => Some(ToolChoice::Tool(name.to_owned())),
        name => {
            let message = format!("`tool_choice` cannot be `{name}`, which is none of its tools");
            let help = format!("write auto, required or none, or one of {}", names.join(", "));
            report.bad_value(&word, message, &help);
            None
        }
    }
}

/// Reads a tool in the list of an agent: its name, or `{ tool, approve }`.
fn read_tool_use(report: &mut Report, yaml: &Yaml) -> Option<(SpannedText, Option<Approval>)> {
    if !matches!(yaml.data, Data::Map(_)) {
        return Some((report.word(yaml, "each item of `tools`")?, None));
    }
    let section = Section::read::<ToolUseKeys>(report, yaml, "an item of `tools`")?;
    let help = "name a tool, as in `{ tool: fs.write, approve: each }`";
    let tool = section.require(report, "tool", help);
    let tool = tool.and_then(|it| report.word(it, "`tool`"));
    let approval = section.get("approve").and_then(|it| read_approval(report, it));
    Some((tool?, approval))
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

fn read_model(report: &mut Report, yaml: &Yaml, providers: &Providers) -> Vec<String> {
    let mut models = Vec::new();
    report.refuse_empty(yaml, "a model", "`provider/model`, or a list of them");
    for word in report.words(yaml, "a model") {
        let parts = word.text.split_once('/');
        let whole = parts.is_some_and(|(provider, model)| {
            !provider.is_empty() && !model.is_empty() && !word.text.contains(char::is_whitespace)
        });
        if whole {
            check_provider(report, &word, providers);
            models.push(word.text);
        } else {
            let message = format!("`{}` is not `provider/model`", word.text);
            report.bad_value(&word, message, "write `openai/gpt-5-mini`");
        }
    }
    models
}

/// Warns about a misspelt provider. A program may have providers that are not known here.
fn check_provider(report: &mut Report, word: &SpannedText, providers: &Providers) {
    let Some((provider, _)) = word.text.split_once('/') else { return };
    let near = did_you_mean(provider, providers.names());
    if let Some(near) = near.filter(|_| providers.get(provider).is_none()) {
        let message = format!("there is no built-in provider `{provider}`");
        let span = report.span(&word.range);
        let diagnostic = Diagnostic::warning("GR012", message).at(span, "not known");
        report.push(diagnostic.help(format!("did you mean `{near}`?")));
    }
}

/// Checks that a model can call the tool: it passes arguments by name.
fn check_offered(report: &mut Report, tool: &ToolSignature, word: &SpannedText) {
    let schema = &tool.input;
    if schema["type"] != "object" && schema.get("properties").is_none() {
        let message = format!("`{}` takes no arguments by name", word.text);
        let span = report.span(&word.range);
        let diagnostic = Diagnostic::error("GR114", message).at(span, "a model cannot call it");
        report.push(diagnostic.help("make its input an object"));
    }
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

/// Reads a sandbox. `find_folder` resolves one of `folders`.
pub(crate) fn read_sandbox(
    report: &mut Report,
    Entry { key, value }: &Entry,
    find_folder: impl Fn(&mut Report, SpannedText) -> Option<String>,
) -> SandboxSettings {
    let what = format!("the sandbox `{}`", key.text);
    let section = Section::read::<SandboxKeys>(report, value, &what);
    let get = |key| section.as_ref().and_then(|it| it.get(key));
    let memory = get("memory").and_then(|it| report.bytes(it, "`memory`"));
    let time = get("time").and_then(|it| report.duration(it, "`time`"));
    let room = get("room").and_then(|it| report.bytes(it, "`room`"));
    let network = get("network").map(|it| read_network(report, it));
    let requirements = get("python").map(|it| read_requirements(report, it));
    let dependencies = get("dependencies").map(|it| read_dependencies(report, it, find_folder));
    SandboxSettings {
        memory_bytes: memory.unwrap_or(MEMORY_BYTES),
        time: time.unwrap_or(TIME),
        room_bytes: room.unwrap_or(graphrun_sandbox::Limits::default().work_bytes),
        requirements: requirements.unwrap_or_default(),
        network: network.unwrap_or_default(),
        dependencies: dependencies.unwrap_or_default(),
    }
}

/// Reads the lock files of `dependencies`.
fn read_dependencies(
    report: &mut Report,
    yaml: &Yaml,
    find_folder: impl Fn(&mut Report, SpannedText) -> Option<String>,
) -> Vec<LockFileUse> {
    let what = "`dependencies`";
    let Some(section) = Section::read::<DependenciesKeys>(report, yaml, what) else {
        return Vec::new();
    };
    let help = "name one of `folders`: the lock files are those of its repository";
    let folder = section.require(report, "folder", help);
    let folder = folder.and_then(|it| report.word(it, "`folder`"));
    let folder = folder.and_then(|it| find_folder(report, it));
    let mut locks = Vec::new();
    for installer in PackageInstaller::ALL {
        let path = section.get(installer.as_str());
        let path = path.and_then(|it| report.word(it, &format!("`{installer}`")));
        let path = path.and_then(|it| check_lock_path(report, installer, it));
        locks.extend(folder.clone().zip(path).map(|(folder, path)| LockFileUse {
            folder,
            installer,
            path,
        }));
    }
    if PackageInstaller::ALL.iter().all(|it| section.get(it.as_str()).is_none()) {
        let span = report.span(&yaml.range);
        let diagnostic = Diagnostic::error("GR006", "`dependencies` names no lock file");
        let help = "write `pip: requirements.txt`, `npm: package-lock.json`, `cargo: Cargo.lock` or `go: go.sum`";
        report.push(diagnostic.at(span, "nothing to install").help(help));
    }
    locks
}

/// Checks the path of a lock file in its folder.
fn check_lock_path(
    report: &mut Report,
    installer: PackageInstaller,
    word: SpannedText,
) -> Option<String> {
    if let Err(error) = check_path(&word.text) {
        let message = format!("`{}` is no path in the folder: {error}", word.text);
        report.bad_value(&word, message, "write a path as in `service/requirements.txt`");
        return None;
    }
    let name = word.text.rsplit('/').next().unwrap_or_default();
    if let Some(expected) = installer.lock_name().filter(|it| *it != name) {
        let message = format!("`{}` is no lock file of {installer}", word.text);
        report.bad_value(&word, message, &format!("name a `{expected}`"));
        return None;
    }
    Some(word.text)
}

/// Reports a sandbox with `dependencies` for a program that belongs to no node, and so to no folder of a run.
pub(crate) fn refuse_dependencies(
    report: &mut Report,
    word: &SpannedText,
    sandbox: &SandboxSettings,
    what: &str,
) {
    if !sandbox.dependencies.is_empty() {
        let message = format!("{what} cannot use `{}`, which has `dependencies`", word.text);
        report.bad_value(word, message, "declare another sandbox without them for it");
    }
}

/// Reads the packages of `python`.
fn read_requirements(report: &mut Report, yaml: &Yaml) -> Vec<String> {
    let python = Section::read::<PythonKeys>(report, yaml, "`python`");
    let list = python.and_then(|it| it.get("requirements"));
    let words = list.map(|it| report.words(it, "`requirements`")).unwrap_or_default();
    words.into_iter().filter_map(|it| check_requirement(report, it)).collect()
}

/// Reads the hosts that a sandbox may reach: a list, or `off`.
fn read_network(report: &mut Report, yaml: &Yaml) -> Vec<NetworkHost> {
    let help = "write `network: off`, or the hosts as in `network: [api.example.com]`";
    match &yaml.data {
        Data::List(_) => {}
        Data::Scalar { .. } => {
            if let Some(word) = yaml.word().filter(|it| it.text != "off") {
                let message = "a sandbox reaches no network except the hosts in a list";
                report.bad_value(&word, message, help);
            }
            return Vec::new();
        }
        Data::Null | Data::Map(_) => {
            report.wrong_kind(yaml, "`network`", "`off` or a list of hosts");
            return Vec::new();
        }
    }
    let mut hosts: Vec<NetworkHost> = Vec::new();
    for word in report.words(yaml, "`network`") {
        match word.text.parse() {
            Ok(host) if hosts.contains(&host) => report.named_twice(&word, "`network`"),
            Ok(host) => hosts.push(host),
            Err(error) => {
                let message = format!("`{}` {error}", word.text);
                let help = "write a name, as in `api.example.com`, `*.example.com` or \
                            `api.example.com:8443`; the port is 443 by default";
                report.bad_value(&word, message, help);
            }
        }
    }
    hosts
}

/// Checks a requirement, because it becomes an argument of an installer.
fn check_requirement(report: &mut Report, word: SpannedText) -> Option<String> {
    if word.text.contains("{{") || word.text.contains("${") {
        let message = "a text of the state must not become part of a command";
        let span = report.span(&word.range);
        let diagnostic = Diagnostic::error("GR046", message).at(span, "not filled in");
        report.push(diagnostic.help("name the package here"));
        return None;
    }
    let allowed = |it: char| it.is_ascii_alphanumeric() || "._-[]<>=!~,*+ ".contains(it);
    if !word.text.starts_with(|it: char| it.is_ascii_alphanumeric())
        || !word.text.chars().all(allowed)
    {
        let message = format!("`{}` is not the name of a package", word.text);
        report.bad_value(&word, message, "write `pytest` or `pytest>=8`");
        return None;
    }
    Some(word.text)
}

/// Reads the defaults of nodes.
pub(super) fn read_defaults(
    report: &mut Report,
    top: &Section<'_>,
    declarations: &Declarations,
) -> Defaults {
    let section = top.get("defaults");
    let section = section.and_then(|it| Section::read::<DefaultsKeys>(report, it, "`defaults`"));
    let get = |key| section.as_ref().and_then(|it| it.get(key));
    let retry = get("retry").and_then(|it| report.retry(it));
    let timeout = get("timeout").and_then(|it| report.timeout(it)).unwrap_or_default();
    let catch = get("catch").map(|it| read_catch(report, declarations, it));
    let repairs_max = get("repair").and_then(|it| report.count(it, "`repair`", 0));
    Defaults {
        retry: retry.unwrap_or_default(),
        timeout: timeout.total,
        idle_timeout: timeout.idle,
        catch: catch.unwrap_or_default(),
        repairs_max: repairs_max.unwrap_or(REPAIRS),
    }
}

/// Reads the limits of a run.
pub(super) fn read_limits(
    report: &mut Report,
    top: &Section<'_>,
    declarations: &Declarations,
) -> Limits {
    let section = top.get("limits");
    let section = section.and_then(|it| Section::read::<LimitsKeys>(report, it, "`limits`"));
    let Some(section) = section else { return Limits::default() };
    let steps = section.get("steps").and_then(|it| report.count(it, "`steps`", 1));
    let concurrency = section.get("concurrency");
    let concurrency = concurrency.and_then(|it| report.count(it, "`concurrency`", 1));
    let exhausted = section.get("exhausted");
    let usual = Limits::default();
    Limits {
        span: top.key("limits").and_then(|it| report.span(&it.range)),
        steps: steps.unwrap_or(usual.steps),
        calls: section.get("calls").and_then(|it| report.count(it, "`calls`", 1)),
        tokens: section.get("tokens").and_then(|it| report.count(it, "`tokens`", 1)),
        usd: section.get("usd").and_then(|it| report.dollars(it)),
        time: section.get("time").and_then(|it| report.duration(it, "`time`")),
        concurrency: concurrency.unwrap_or(usual.concurrency),
        exhausted: exhausted.and_then(|it| declarations.read_target(report, it, "`exhausted`")),
    }
}

impl Report {
    pub(super) fn dollars(&mut self, yaml: &Yaml) -> Option<f64> {
        let fits = |it: &f64| it.is_finite() && *it > 0.0;
        self.number(yaml, "`usd`", "an amount above 0", fits)
    }
}
