//! The sections beside the nodes: models, agents, sandboxes, defaults, limits.

use std::time::Duration;

use graphrun_core::{diagnostic::Diagnostic, graph::Limits};

use super::{
    SandboxSettings,
    lower::Lowering,
    prompt::LoadedPrompt,
    reader::{Data, Entry, SpannedText, Yaml},
    shape::Section,
};
use crate::tool::Tool;

/// The default memory of a sandbox.
const MEMORY_BYTES: u64 = 2 << 30;
/// The default time limit of a sandbox.
const TIME: Duration = Duration::from_secs(60);
/// The default number of repairs of an answer.
const REPAIRS: u32 = 2;

/// The default number of rounds of tool calls.
const TOOL_ROUNDS: u32 = 8;

/// The keys of an agent.
pub(super) const AGENT_KEYS: &[&str] =
    &["model", "system", "temperature", "tools", "max_tool_rounds", "about"];
/// The keys of a system prompt that is not a path.
pub(super) const SYSTEM_KEYS: &[&str] = &["text"];
/// The keys of `tools`.
pub(super) const TOOLS_KEYS: &[&str] = &["fs"];
/// The keys of the tools for files.
pub(super) const FILES_KEYS: &[&str] = &["root"];
/// The keys of a sandbox.
pub(super) const SANDBOX_KEYS: &[&str] = &["network", "memory", "time", "python"];
/// The keys of `python` in a sandbox.
pub(super) const PYTHON_KEYS: &[&str] = &["requirements"];
/// The keys of `defaults`.
pub(super) const DEFAULTS_KEYS: &[&str] = &["retry", "timeout", "catch", "repair"];
/// The keys of `limits`.
pub(super) const LIMITS_KEYS: &[&str] =
    &["steps", "tokens", "usd", "time", "exhausted", "concurrency"];

/// An agent as it is declared.
#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    pub(super) models: Vec<String>,
    pub(super) system: Option<LoadedPrompt>,
    pub(super) temperature: Option<f64>,
    pub(super) tools: Vec<String>,
    pub(super) tool_rounds_max: u32,
}

impl Lowering<'_> {
    /// Reads the sections that nodes refer to, each after those it refers to itself.
    pub(super) fn read_sections(&mut self, top: &Section<'_>) {
        for Entry { key, value } in self.entries(top, "models") {
            let models = self.read_model(value);
            self.models.insert(key.text.clone(), models);
        }
        for Entry { key, value } in self.entries(top, "agents") {
            let agent = self.read_agent(key, value);
            // An invalid agent still counts as declared, so that the nodes that use it are not
            // reported.
            self.agents.insert(key.text.clone(), agent.unwrap_or_default());
        }
        for Entry { key, value } in self.entries(top, "sandboxes") {
            let settings = self.read_sandbox(key, value);
            self.sandboxes.insert(key.text.clone(), settings);
        }
        self.read_tools(top);
        self.read_defaults(top);
    }

    /// Reads `tools`: the folder of the built-in tools.
    fn read_tools(&mut self, top: &Section<'_>) {
        let tools = top.get("tools");
        let tools = tools.and_then(|it| Section::read(&mut self.report, it, "`tools`", TOOLS_KEYS));
        let files = tools.and_then(|it| it.get("fs"));
        let files = files.and_then(|it| Section::read(&mut self.report, it, "`fs`", FILES_KEYS));
        if let Some(root) = files.and_then(|it| it.get("root"))
            && let Some(root) = self.report.word(root, "`root`")
        {
            match self.prompts.folder().check_folder(root.text.as_ref()) {
                Ok(()) => self.tools_root = self.tools_root.join(root.text),
                Err(error) => {
                    let message = format!("the tools cannot read `{}`: {error}", root.text);
                    let help = self.prompts.folder().help_for(&error).unwrap_or_default();
                    self.report.bad_value(&root, message, &help);
                }
            }
        }
    }

    fn entries<'y>(&mut self, top: &Section<'y>, key: &str) -> &'y [Entry] {
        let Some(yaml) = top.get(key) else { return &[] };
        if !matches!(yaml.data, Data::Map(_)) {
            self.report.wrong_kind(yaml, &format!("`{key}`"), "a mapping");
        }
        yaml.entries()
    }

    fn read_model(&mut self, yaml: &Yaml) -> Vec<String> {
        let mut models = Vec::new();
        for word in self.report.words(yaml, "a model") {
            let parts = word.text.split_once('/');
            let whole = parts.is_some_and(|(provider, model)| {
                !provider.is_empty()
                    && !model.is_empty()
                    && !word.text.contains(char::is_whitespace)
            });
            if whole {
                models.push(word.text);
            } else {
                let message = format!("`{}` is not `provider/model`", word.text);
                self.report.bad_value(&word, message, "write `openai/gpt-5-mini`");
            }
        }
        models
    }

    fn read_agent(&mut self, key: &SpannedText, yaml: &Yaml) -> Option<Agent> {
        let what = format!("the agent `{}`", key.text);
        let section = Section::read(&mut self.report, yaml, &what, AGENT_KEYS)?;
        if let Some(about) = section.get("about") {
            self.report.word(about, "`about`");
        }
        let help = "name one of `models`";
        let model = section.require(&mut self.report, "model", help);
        let models = model.map(|it| self.find_model(it)).unwrap_or_default();
        let system = section.get("system").and_then(|it| self.read_system(it));
        let temperature = section.get("temperature").and_then(|it| {
            let fits = |it: &f64| (0.0..=2.0).contains(it);
            self.report.number(it, "`temperature`", "a number from 0 to 2", fits)
        });
        let tools = section.get("tools").map(|it| self.read_agent_tools(it)).unwrap_or_default();
        let rounds = section.get("max_tool_rounds");
        if let Some(key) = section.key("max_tool_rounds").filter(|_| !section.has_or_means("tools"))
        {
            let help = "give the agent `tools`, or remove this";
            self.report.bad_value(key, "an agent without tools has no rounds of calls", help);
        }
        let rounds = rounds.and_then(|it| self.report.count(it, "`max_tool_rounds`", 1));
        let tool_rounds_max = rounds.unwrap_or(TOOL_ROUNDS);
        Some(Agent { models, system, temperature, tools, tool_rounds_max })
    }

    /// Reads the tools that an agent may call.
    fn read_agent_tools(&mut self, yaml: &Yaml) -> Vec<String> {
        let mut tools = Vec::new();
        for word in self.report.words(yaml, "`tools`") {
            if tools.contains(&word.text) {
                self.report.named_twice(&word, "`tools`");
            } else if let Some(tool) = self.find_tool(&word) {
                self.check_offered(tool.as_ref(), &word);
                tools.push(word.text);
            }
        }
        tools
    }

    /// Checks that a model can call the tool: it passes arguments by name.
    fn check_offered(&mut self, tool: &dyn Tool, word: &SpannedText) {
        let schema = tool.input_schema();
        if schema["type"] != "object" && schema.get("properties").is_none() {
            let message = format!("`{}` takes no arguments by name", word.text);
            let place = self.report.place(&word.range);
            let finding = Diagnostic::error("GR114", message).at(place, "a model cannot call it");
            self.report.push(finding.help("make its input an object"));
        }
    }

    /// Reads a system prompt: a path, or the text itself.
    fn read_system(&mut self, yaml: &Yaml) -> Option<LoadedPrompt> {
        if !matches!(yaml.data, Data::Map(_)) {
            return self.read_prompt(yaml);
        }
        let section = Section::read(&mut self.report, yaml, "`system`", SYSTEM_KEYS)?;
        let help = "write the text, or give `system` the path of a file";
        let text = section.require(&mut self.report, "text", help)?;
        LoadedPrompt::inline(&mut self.report, text, "`system`")
    }

    /// Resolves one of `models`, or a literal model name.
    fn find_model(&mut self, yaml: &Yaml) -> Vec<String> {
        let Some(word) = self.report.word(yaml, "`model`") else { return Vec::new() };
        self.uses("models", &word.text);
        if let Some(models) = self.models.get(&word.text) {
            return models.clone();
        }
        if word.text.contains('/') {
            return self.read_model(yaml);
        }
        let known = self.models.keys().map(String::as_str);
        self.report.unknown("GR012", "model", &word, known);
        Vec::new()
    }

    fn read_sandbox(&mut self, key: &SpannedText, yaml: &Yaml) -> SandboxSettings {
        let mut settings =
            SandboxSettings { memory_bytes: MEMORY_BYTES, time: TIME, requirements: Vec::new() };
        let what = format!("the sandbox `{}`", key.text);
        let Some(section) = Section::read(&mut self.report, yaml, &what, SANDBOX_KEYS) else {
            return settings;
        };
        if let Some(word) = section.get("network").and_then(|it| self.report.word(it, "`network`"))
            && word.text != "off"
        {
            let help = "write `network: off`";
            self.report.bad_value(&word, "there is no network in a sandbox", help);
        }
        if let Some(memory) = section.get("memory").and_then(|it| self.report.bytes(it, "`memory`"))
        {
            settings.memory_bytes = memory;
        }
        if let Some(time) = section.get("time").and_then(|it| self.report.duration(it, "`time`")) {
            settings.time = time;
        }
        let python = section
            .get("python")
            .and_then(|it| Section::read(&mut self.report, it, "`python`", PYTHON_KEYS));
        if let Some(yaml) = python.and_then(|it| it.get("requirements")) {
            for word in self.report.words(yaml, "`requirements`") {
                settings.requirements.extend(self.check_requirement(word));
            }
        }
        settings
    }

    /// Checks a requirement, because it becomes an argument of an installer.
    fn check_requirement(&mut self, word: SpannedText) -> Option<String> {
        if word.text.contains("{{") || word.text.contains("${") {
            let message = "a text of the state must not become part of a command";
            let place = self.report.place(&word.range);
            let finding = Diagnostic::error("GR046", message).at(place, "not filled in");
            self.report.push(finding.help("name the package here"));
            return None;
        }
        let allowed = |it: char| it.is_ascii_alphanumeric() || "._-[]<>=!~,*+ ".contains(it);
        if !word.text.starts_with(|it: char| it.is_ascii_alphanumeric())
            || !word.text.chars().all(allowed)
        {
            let message = format!("`{}` is not the name of a package", word.text);
            self.report.bad_value(&word, message, "write `pytest` or `pytest>=8`");
            return None;
        }
        Some(word.text)
    }

    fn read_defaults(&mut self, top: &Section<'_>) {
        self.defaults.repairs_max = REPAIRS;
        let Some(yaml) = top.get("defaults") else { return };
        let Some(section) = Section::read(&mut self.report, yaml, "`defaults`", DEFAULTS_KEYS)
        else {
            return;
        };
        if let Some(retry) = section.get("retry").and_then(|it| self.read_retry(it)) {
            self.defaults.retry = retry;
        }
        if let Some(timeout) = section.get("timeout").and_then(|it| self.read_timeout(it)) {
            self.defaults.timeout = timeout.total;
            self.defaults.idle_timeout = timeout.idle;
        }
        self.defaults.catch =
            section.get("catch").map(|it| self.read_catch(it)).unwrap_or_default();
        let repair = section.get("repair");
        if let Some(repair) = repair.and_then(|it| self.report.count(it, "`repair`", 0)) {
            self.defaults.repairs_max = repair;
        }
    }

    pub(super) fn read_dollars(&mut self, yaml: &Yaml) -> Option<f64> {
        let fits = |it: &f64| it.is_finite() && *it > 0.0;
        self.report.number(yaml, "`usd`", "an amount above 0", fits)
    }

    pub(super) fn read_limits(&mut self, top: &Section<'_>) -> Limits {
        let mut limits = Limits::default();
        let section = top.get("limits");
        let section =
            section.and_then(|it| Section::read(&mut self.report, it, "`limits`", LIMITS_KEYS));
        let Some(section) = section else { return limits };
        limits.place = top.key("limits").and_then(|it| self.report.place(&it.range));
        let steps = section.get("steps").and_then(|it| self.report.count(it, "`steps`", 1));
        limits.steps = steps.unwrap_or(limits.steps);
        limits.tokens = section.get("tokens").and_then(|it| self.report.count(it, "`tokens`", 1));
        limits.usd = section.get("usd").and_then(|it| self.read_dollars(it));
        limits.time = section.get("time").and_then(|it| self.report.duration(it, "`time`"));
        let concurrency = section.get("concurrency");
        let concurrency = concurrency.and_then(|it| self.report.count(it, "`concurrency`", 1));
        limits.concurrency = concurrency.unwrap_or(limits.concurrency);
        limits.exhausted =
            section.get("exhausted").and_then(|it| self.read_target(it, "`exhausted`"));
        limits
    }
}
