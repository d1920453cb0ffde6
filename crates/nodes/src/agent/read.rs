//! The kind `agent`: its keys, and how a node is read.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Node},
    id::ChannelName,
};
use graphrun_models::{RequestSettings, ToolChoice};
use graphrun_workflow::{
    Approval, Expression, OnOverflow, Program, ProgramPlace, Prompt, Registry,
    kind::{
        Agent as DeclaredAgent, CacheRefusal, Data, EmbeddingUse, Entry, Keys, Kind, LoadedPrompt,
        MakeContext, MatchArms, ModelUse, NodeReader, NodeSettings, Section, SpannedText, Yaml,
        values::{
            self, AgentName, Attached, Count, Either, FieldName, FolderName, MatchedValue,
            NamedMap, OneOrMany, PromptPath, RequestKeys, SomeOf, Template, TemplateKeys, Text,
        },
    },
    memory::Tiers,
    tool::{BuiltIn, DeclaredTool},
};
use schemars::JsonSchema;

use super::{
    Agent, AgentMatchSettings, ProgramRunner, Toolbox,
    attach::{self, AttachedFile},
    compaction::refuse_program,
    history::{History, HistoryParts},
    session,
    tools::CALLS_AT_ONCE_MAX,
};
use crate::{
    call::MODEL_FAILURES,
    changes::read_changes,
    checked::{CheckedTool, ToolSources},
    in_folder::{check_writing_tools, read_folder},
    memory::embeddings_of,
};

/// The kind `agent`.
#[derive(Debug)]
pub(crate) struct AgentKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct AgentKeys {
    /// Asks one of `agents` and writes its answer to the fields of `writes`. `{ match, to }` chooses the agent by a value.
    agent: Either<AgentName, AgentMatchParts>,
    /// The path of the prompt. Default: `prompts/NODE.md`.
    prompt: Option<Either<PromptPath, PromptParts>>,
    /// The fields it writes. A model is asked for values of their types, and its answer is checked
    /// against them. `{ FIELD: one }` asks for one item of a list that grows.
    writes: Either<Either<FieldName, SomeOf<FieldName>>, NamedMap<FieldName, WrittenPart>>,
    /// How often it may repair an invalid answer.
    repair: Option<Count>,
    /// The field with the messages of a conversation that it continues: it is sent them before its prompt, and
    /// adds its prompt and its answer to them.
    history: Option<Either<FieldName, HistoryParts>>,
    /// Files that a model is sent beside the prompt: fields of the type `file`, and paths in the folder of the workflow.
    attach: Option<OneOrMany<Attached>>,
    /// The field with the session of a program on a host: later visits, and other nodes with this field, continue it.
    session: Option<FieldName>,
    #[schemars(flatten)]
    request: RequestKeys,
    /// One of `folders`, in which its built-in tools or its program work.
    folder: Option<FolderName>,
    /// Files and folders of `folder` that are written back if the program of the agent has changed them, in a sandbox.
    changes: Option<OneOrMany<Text>>,
}

graphrun_workflow::value_types! {
    /// The part of a field that an agent gives: the whole value, or one item of a list that grows.
    WrittenPart = {"type": "string", "examples": ["all", "one"]};
}

/// An agent for each value of an enum or a bool.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct AgentMatchParts {
    /// The expression whose value chooses the agent: an enum or a bool.
    #[serde(rename = "match")]
    on: values::Expression,
    /// One of `agents` for each value.
    to: NamedMap<MatchedValue, AgentName>,
}

/// A prompt that is not simply a path.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct PromptParts {
    /// The whole prompt, written here.
    text: Option<Template>,
    /// The prompt of the first visit: a path, or `{ text: … }`.
    first: Option<Either<PromptPath, TemplateKeys>>,
    /// The prompt of later visits: a path, or `{ text: … }`.
    again: Option<Either<PromptPath, TemplateKeys>>,
}

/// A node that asks a model.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The name of the agent.
    pub agent: String,
    /// The models as `provider/model`, in order of fallback; none if it has a program.
    pub models: Vec<String>,
    /// The program that does the work in place of a model.
    pub program: Option<Program>,
    /// The system prompt.
    pub system: Option<Prompt>,
    /// The prompt.
    pub prompt: Prompt,
    /// The prompt of the second and later visits, if it differs.
    pub prompt_again: Option<Prompt>,
    /// The settings of its requests: those of the node, completed by those of the agent.
    pub settings: RequestSettings,
    /// The tools it may call before it answers, by name.
    pub tools: Vec<String>,
    /// Those of the tools that the workflow declares.
    pub declared: Vec<Arc<DeclaredTool>>,
    /// The folder that the built-in tools can read.
    pub tools_root: PathBuf,
    /// When a person is asked before it calls a tool, by the name of the tool.
    pub approvals: BTreeMap<String, Approval>,
    /// The longest duration of a call of a tool.
    pub tool_timeout: Option<Duration>,
    /// How many rounds of tool calls it may make; then each answer must be final.
    pub tool_rounds_max: u32,
    /// Whether it may or must call a tool before its first answer.
    pub tool_choice: ToolChoice,
    /// The treatment of a request that is too long for its model.
    pub on_overflow: OnOverflow,
    /// The fields its answer is written to; at least one.
    pub writes: Vec<ChannelName>,
    /// The lists among them to which its answer adds exactly one item.
    pub writes_one: Vec<ChannelName>,
    /// How often it may repair an invalid answer.
    pub repairs_max: u32,
    /// The conversation that it continues.
    pub history: Option<History>,
    /// The files that its model is sent beside the prompt.
    pub attached: Vec<AttachedFile>,
    /// The field with the id of the session that its program continues.
    pub session: Option<ChannelName>,
    /// The folder of the run in which its built-in tools or its program work.
    pub folder: Option<String>,
    /// Files and folders of the copy of a program that are written back.
    pub changes: Vec<String>,
    /// The tiers of memory that its built-in tools can use.
    pub tiers: Arc<Tiers>,
}

impl AgentSettings {
    /// Returns how often a model may be asked for an answer: the first time, once more with twice the tokens, for
    /// each repair, and for a summary of its history.
    fn answers_max(&self) -> u64 {
        let summaries = self.history.as_ref().is_some_and(|it| it.compaction.is_some());
        let longer = u64::from(self.settings.max_tokens.is_some());
        1 + longer + u64::from(self.repairs_max) + u64::from(summaries)
    }

    /// Returns how often an attempt may call a model. All answers share its rounds of tool calls.
    pub(super) fn calls_max(&self) -> u64 {
        let may_call_tools = !self.tools.is_empty() && self.tool_choice.allows_calls();
        let rounds = if may_call_tools { u64::from(self.tool_rounds_max) } else { 0 };
        rounds + self.answers_max()
    }
}

impl AgentSettings {
    /// Makes the node that asks.
    pub(super) fn connect(&self, ctx: &MakeContext<'_>) -> Result<Agent, Diagnostic> {
        let root = self.tools_root.as_path();
        let tiers = &*self.tiers;
        let declared = &self.declared[..];
        let known = ToolSources { root, tiers, declared };
        let find = |tool: &String| {
            let mut found = CheckedTool::find(ctx, tool, known)?;
            // An agent cannot make the declaration of a tool less strict.
            let own = self.approvals.get(tool).copied().unwrap_or(Approval::Never);
            found.approve = own.min(found.approve);
            Ok::<_, Diagnostic>(found)
        };
        let tools = self.tools.iter().map(find).collect::<Result<_, _>>()?;
        let services = ctx.services.clone();
        let toolbox = Toolbox::new(tools, self.folder.clone(), self.tool_timeout);
        let program = self.program.clone().map(|program| {
            let folder = self.folder.clone();
            let changes = self.changes.clone();
            Arc::new(ProgramRunner::new(program, folder, changes, services.clone()))
        });
        Ok(Agent { definition: self.clone(), services, toolbox, program })
    }
}

impl Kind for AgentKind {
    fn key(&self) -> &'static str {
        "agent"
    }

    fn keys(&self) -> Keys {
        Keys::of::<AgentKeys>()
    }

    fn also_changes<'y>(&self, node: &Section<'y>) -> Vec<&'y str> {
        let history = node.get("history").map(|it| it.get("field").unwrap_or(it));
        history.into_iter().chain(node.get("session")).filter_map(Yaml::text).collect()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let chosen = ChosenAgents::read(reader);
        let agents: Vec<&DeclaredAgent> = chosen.iter().flat_map(ChosenAgents::declared).collect();
        let (prompt, again) = read_prompts(reader, &agents);
        let help = "name the field for its answer";
        let writes = reader.require("writes", help);
        let (writes, writes_one) = writes.map(|it| read_writes(reader, it)).unzip();
        let history = reader.get("history");
        let history =
            history.map(|yaml| History::read(reader, yaml, writes.as_deref().unwrap_or_default()));
        let repair = reader.get("repair").and_then(|it| reader.report().count(it, "`repair`", 0));
        let history = match history {
            Some(history) => Some(history?),
            None => None,
        };
        let attached = reader.get("attach").map(|it| attach::read(reader, it));
        let session = reader.get("session").and_then(|yaml| {
            session::read(reader, yaml, &agents, writes.as_deref().unwrap_or_default())
        });
        let models: Vec<String> = agents.iter().flat_map(|it| &it.models).cloned().collect();
        let settings = reader.request_settings(&models);
        let folder = read_folder(reader);
        let changes = read_changes(reader);
        check_programs(reader, &agents);
        let tools: Vec<String> = agents.iter().flat_map(|it| &it.tools).cloned().collect();
        check_writing_tools(reader, &tools);
        let ChosenAgents { on, agents } = chosen?;
        let prompt = reader.finish_prompt(prompt?);
        let again = again.map(|it| reader.finish_prompt(it));
        let (writes, writes_one) = writes.zip(writes_one)?;
        let attached = match attached {
            Some(attached) => attached?,
            None => Vec::new(),
        };
        let mut nodes = Vec::new();
        for ChosenAgent { value, name, declaration } in agents {
            let found = declaration?;
            let node = AgentSettings {
                agent: name,
                models: found.models,
                program: found.program.map(|it| in_folder(&it, folder.as_deref())),
                system: found.system.map(|it| reader.finish_prompt(it)),
                prompt: prompt.clone(),
                prompt_again: again.clone(),
                settings: settings.clone().or(found.settings),
                declared: reader.declared_tools(&found.tools),
                tools: found.tools,
                tools_root: reader.tools_root().to_owned(),
                approvals: found.approvals,
                tool_timeout: found.tool_timeout,
                tool_rounds_max: found.tool_rounds_max,
                tool_choice: found.tool_choice,
                on_overflow: found.on_overflow,
                writes: writes.clone(),
                writes_one: writes_one.clone(),
                repairs_max: repair.unwrap_or(reader.defaults().repairs_max),
                history: history.clone(),
                attached: attached.clone(),
                session: session.clone(),
                folder: folder.clone(),
                changes: changes.clone(),
                tiers: reader.tiers(),
            };
            nodes.push((value, node));
        }
        match on {
            Some(on) => Some(Arc::new(AgentMatchSettings::new(on, nodes))),
            None => Some(Arc::new(nodes.pop()?.1)),
        }
    }
}

/// The agents of a node.
struct ChosenAgents {
    /// The expression that chooses; `None` if there is one agent.
    on: Option<Expression>,
    agents: Vec<ChosenAgent>,
}

struct ChosenAgent {
    /// The value for which it is chosen; empty if there is one agent.
    value: String,
    name: String,
    /// Its declaration; `None` if that has an error or does not exist.
    declaration: Option<DeclaredAgent>,
}

impl ChosenAgents {
    /// Reads the name of an agent, or `{ match, to }`.
    fn read(reader: &mut NodeReader<'_>) -> Option<Self> {
        let value = reader.value();
        if matches!(value.data, Data::Map(_)) {
            return Self::read_match(reader);
        }
        let word = reader.report().word(value, "`agent`")?;
        Some(Self { on: None, agents: vec![ChosenAgent::find(reader, String::new(), word)] })
    }

    /// Reads `{ match, to }`.
    fn read_match(reader: &mut NodeReader<'_>) -> Option<Self> {
        let parts = reader.parts()?;
        let help = "name a field whose type is an enum, as in `match: ticket.kind`";
        let subject = parts.require(reader.report(), "match", help);
        let on = subject.and_then(|it| reader.expression(it));
        let help = "name an agent for each value, as in `to: { bug: fixer }`";
        let to = parts.require(reader.report(), "to", help)?;
        if !matches!(to.data, Data::Map(_)) {
            let wanted = "a mapping from values to agents";
            reader.report().wrong_kind(to, "`to`", wanted);
        }
        let mut named = Vec::new();
        for Entry { key, value } in to.entries() {
            let word = reader.report().word(value, "an agent")?;
            named.push((key.text.clone(), word));
        }
        let keys: Vec<_> = to.entries().iter().map(|it| &it.key).collect();
        if let (Some(subject), Some(on), Some(key)) = (subject, &on, parts.key("to")) {
            reader.check_arms(&MatchArms { subject, on, to: key, keys: &keys }, "agent");
        }
        let on = Some(on?);
        let agents = named.into_iter().map(|(value, word)| ChosenAgent::find(reader, value, word));
        Some(Self { on, agents: agents.collect() })
    }

    /// Returns the agents that are declared.
    fn declared(&self) -> impl Iterator<Item = &DeclaredAgent> {
        self.agents.iter().filter_map(|it| it.declaration.as_ref())
    }
}

impl ChosenAgent {
    fn find(reader: &mut NodeReader<'_>, value: String, word: SpannedText) -> Self {
        let declaration = reader.agent(&word);
        Self { value, name: word.text, declaration }
    }
}

impl NodeSettings for AgentSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.connect(ctx)?))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        let mut failures = MODEL_FAILURES.to_vec();
        if !self.tools.is_empty() {
            failures.extend([ErrorKind::Tool, ErrorKind::Memory]);
        }
        if self.program.is_some() {
            failures.extend([ErrorKind::Command, ErrorKind::Timeout, ErrorKind::Host]);
        }
        if !self.tools.is_empty() || self.program.is_some() {
            failures.extend([ErrorKind::Declined, ErrorKind::Sandbox]);
        }
        if self.folder.is_some() || !self.tools.is_empty() || self.program.is_some() {
            failures.push(ErrorKind::Folder);
        }
        Some(failures)
    }

    fn has_exit_code(&self) -> bool {
        self.program.is_some()
    }

    fn programs(&self) -> Vec<&Program> {
        self.program.iter().collect()
    }

    fn declared_tools(&self) -> &[Arc<DeclaredTool>] {
        &self.declared
    }

    fn models(&self) -> Option<ModelUse<'_>> {
        if self.program.is_some() {
            return None;
        }
        Some(ModelUse { models: &self.models, is_choice: false, calls_max: self.calls_max() })
    }

    fn with_models(&self, models: &[String]) -> Option<Arc<dyn NodeSettings>> {
        if self.program.is_some() {
            return None;
        }
        Some(Arc::new(Self { models: models.to_vec(), ..self.clone() }))
    }

    fn requested_fields(&self) -> &[ChannelName] {
        &self.writes
    }

    fn conversation(&self) -> Option<&ChannelName> {
        self.history.as_ref().map(|it| &it.field)
    }

    fn needs_memory(&self) -> bool {
        let is_memory = |name: &String| BuiltIn::named(name).is_some_and(|it| it.needs.is_memory());
        self.tools.iter().any(is_memory)
    }

    fn refuses_cache(&self, registry: &Registry) -> Option<CacheRefusal> {
        let refuse = |what: &str, help| Some(CacheRefusal { what: what.to_owned(), help });
        if self.session.is_some() {
            let help = "omit it: the answer depends on the session of the program";
            return refuse("an agent with `session`", help);
        }
        if self.history.as_ref().is_some_and(|it| it.compaction.is_some()) {
            let help = "omit it: the update names the messages of this run";
            return refuse("an agent that compacts its `history`", help);
        }
        let built_in = |it: &String| CacheRefusal::of_built_in_tool(it, registry);
        let CacheRefusal { what, help } = self.tools.iter().find_map(built_in)?;
        refuse(&format!("an agent with {what}"), help)
    }

    /// Each call of a tool for memory may need vectors.
    fn embeddings(&self) -> Option<EmbeddingUse<'_>> {
        let of_call = embeddings_of(self.tools.iter().map(String::as_str), &self.tiers)?;
        let models = u64::try_from(self.models.len()).unwrap_or(u64::MAX);
        let rounds = if self.tool_choice.allows_calls() { self.tool_rounds_max.into() } else { 0 };
        let at_once = u64::try_from(CALLS_AT_ONCE_MAX).unwrap_or(u64::MAX);
        let calls = models.saturating_mul(rounds).saturating_mul(at_once);
        let calls_max = calls.saturating_mul(of_call.calls_max);
        Some(EmbeddingUse { calls_max, ..of_call })
    }

    fn detail(&self) -> Option<String> {
        Some(self.agent.clone())
    }
}

/// Reports keys of a node that do not fit the programs of its agents.
fn check_programs(reader: &mut NodeReader<'_>, agents: &[&DeclaredAgent]) {
    let programs: Vec<&Program> = agents.iter().filter_map(|it| it.program.as_deref()).collect();
    let has_no_model = agents.iter().all(|it| it.models.is_empty());
    if let (Some(program), true) = (programs.first(), has_no_model) {
        reader.refuse_request_settings(&program.argv[0]);
        if let Some(Yaml { data: Data::Map(_), .. }) = reader.get("history")
            && let Some(key) = reader.parts_of("history").and_then(|it| it.key("compact"))
        {
            refuse_program(reader, key, &program.argv[0]);
        }
        if let Some(key) = reader.key("attach") {
            let message =
                format!("`attach` is about a model, and `{}` is a program", program.argv[0]);
            let help = "remove it: a program reads files in its folder";
            reader.report().bad_value(key, message, help);
        }
    }
    let is_in_sandbox = |it: &&Program| matches!(it.place, ProgramPlace::Sandbox(_));
    if let Some(key) = reader.key("changes").filter(|_| !programs.iter().any(is_in_sandbox)) {
        let message = "only a program in a sandbox has a copy of the folder";
        let help = if programs.is_empty() {
            "remove it: a model changes files by tools such as `fs.write`"
        } else {
            "remove it: a program on a host works in the folder itself"
        };
        reader.report().bad_value(key, message, help);
    }
    let Some(word) = reader.get("folder").and_then(Yaml::word) else { return };
    for program in programs {
        if let ProgramPlace::Host(host) = &program.place
            && let Some(other) = host.folder.as_ref().filter(|it| **it != word.text)
        {
            let message = format!("the commands of `{}` work in `{other}`", host.name);
            let help = "name the same folder, or remove it from the host";
            reader.report().bad_value(&word, message, help);
        }
    }
}

/// Returns a program with the folder of its node.
fn in_folder(program: &Program, folder: Option<&str>) -> Program {
    let mut program = program.clone();
    if let (ProgramPlace::Host(host), Some(folder)) = (&mut program.place, folder) {
        host.folder = Some(folder.to_owned());
    }
    program
}

/// Reads the fields that an agent writes, and those of them that are lists to which it adds one item.
fn read_writes(reader: &mut NodeReader<'_>, yaml: &Yaml) -> (Vec<ChannelName>, Vec<ChannelName>) {
    reader.report().refuse_empty(yaml, "`writes`", "a field, or a list of fields");
    let Data::Map(entries) = &yaml.data else {
        return (reader.channels(yaml, "`writes`"), Vec::new());
    };
    let mut writes = Vec::new();
    let mut writes_one = Vec::new();
    for Entry { key, value } in entries {
        let Some(channel) = reader.channel(key) else { continue };
        writes.push(channel.clone());
        let Some(part) = reader.report().word(value, "a part of `writes`") else { continue };
        match part.text.as_str() {
            "one" if reader.is_list_that_grows(&channel) => writes_one.push(channel),
            "one" => {
                let message = format!("`{channel}` is not a list that grows");
                let span = reader.report().span(&part.range);
                let diagnostic = Diagnostic::error("GR022", message).at(span, "no item to add");
                let help =
                    format!("give it a reducer, such as `merge: append`, or `{channel}: all`");
                reader.report().push(diagnostic.help(help));
            }
            "all" => (),
            other => {
                let message = format!("`{other}` is not a part of a field");
                let help = "`one` is one item of a list that grows, `all` the whole value";
                reader.report().bad_value(&part, message, help);
            }
        }
    }
    (writes, writes_one)
}

/// Reads the prompt of the first visit, and that of later ones if it differs. Checks them, and those of the agents.
fn read_prompts(
    reader: &mut NodeReader<'_>,
    agents: &[&DeclaredAgent],
) -> (Option<LoadedPrompt>, Option<LoadedPrompt>) {
    let (prompt, again) = load_prompts(reader);
    for prompt in agents.iter().filter_map(|it| it.system.as_ref()).chain(&prompt) {
        reader.check_prompt(prompt);
    }
    if let Some(again) = &again {
        reader.check_prompt_again(again);
    }
    (prompt, again)
}

fn load_prompts(reader: &mut NodeReader<'_>) -> (Option<LoadedPrompt>, Option<LoadedPrompt>) {
    let Some(yaml) = reader.get("prompt") else {
        return (reader.load_default_prompt(), None);
    };
    if !matches!(yaml.data, Data::Map(_)) {
        return (reader.load_template(yaml, "prompt"), None);
    }
    let Some(parts) = reader.parts_of("prompt") else {
        return (None, None);
    };
    if let Some(text) = parts.get("text") {
        for part in parts.keys().filter(|it| it.text != "text") {
            let help = "remove one of them";
            reader.report().bad_value(part, "`text` is the whole prompt", help);
        }
        return (reader.load_inline_prompt(text, "`prompt`"), None);
    }
    let first = parts.require(reader.report(), "first", "the prompt of the first visit");
    let again = parts.require(reader.report(), "again", "the prompt of later visits");
    let first = first.and_then(|it| reader.load_template(it, "first"));
    (first, again.and_then(|it| reader.load_template(it, "again")))
}
