//! `agents`: who works, with which models, tools and settings.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use graphrun_core::diagnostic::Diagnostic;
use graphrun_models::{Parameter, RequestSettings, ToolChoice};

use super::{
    Sections,
    approval::{Approval, read_approval},
    program::{Program, read_program, refuse_both, refuse_program_keys},
    read_template, request_settings,
    tools::{DeclaredParts, find_tool},
};
use crate::{
    Registry,
    format::{AgentKeys, ToolUseKeys},
    source::{
        prompts::{LoadedPrompt, PromptFiles},
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    tool::ToolSignature,
};

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

impl Sections {
    pub(super) fn read_agent(
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
