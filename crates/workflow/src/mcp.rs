//! `mcp`: servers of tools, which are programs on a host, and the lock file with their tools.
//!
//! A server describes its tools itself, and models read these descriptions. So a person looks at them once, by
//! `graphrun mcp lock`, and a workflow uses only what its lock file has.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use graphrun_core::diagnostic::{Diagnostic, SourceFile};
use graphrun_guard::{beneath::read_named, data_limit::DataLimit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Approval, LoadError,
    argument::{ArgumentAdvice, check_argument, read_arguments},
    format::{McpServerKeys, WorkflowKeys},
    hosts::{HostSettings, HostUse, check_allowed, read_hosts},
    prompt::PromptFiles,
    reader::{self, Entry, SpannedText, Yaml},
    report::Report,
    sections::{Sections, entries},
    shape::Section,
    tool::{BUILT_IN, DeclaredTool, ServerTool, ToolAction, ToolSignature},
};

/// The version of the lock file.
const LOCK_VERSION: u32 = 1;
/// The default time limit of a call, and of the start of a server.
const TIME: Duration = Duration::from_secs(60);
/// The most characters of the name of a server: a tool has this name before its own.
const NAME_CHARACTERS_MAX: usize = 30;

/// The tool that reads a resource of a server, unless the server has a tool of this name itself.
const RESOURCE_TOOL: &str = "read_resource";

/// What values of a command would need.
const ADVICE: ArgumentAdvice = ArgumentAdvice {
    values: "a server gets its input by the calls of its tools",
    shell: "name the program of the server and its arguments",
};

/// A server as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// Its name in the workflow.
    pub name: String,
    /// The program and its constant arguments.
    pub command: Vec<String>,
    /// The host on which it runs.
    pub host: HostSettings,
    /// The tools that are locked; `None` means all.
    pub tools: Option<Vec<String>>,
    /// The time limit of a call, and of its start.
    pub time: Duration,
    /// What the lock file has about it.
    pub locked: LockedServer,
}

/// The content of a lock file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpLock {
    /// The version of the form.
    pub v: u32,
    /// The servers, by their names in the workflow.
    pub servers: BTreeMap<String, LockedServer>,
}

/// A server in a lock file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedServer {
    /// Its command.
    pub command: Vec<String>,
    /// Whether it has resources.
    pub resources: bool,
    /// Its tools, by their own names.
    pub tools: BTreeMap<String, LockedTool>,
}

/// A tool in a lock file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedTool {
    /// Its description, which models read.
    pub about: String,
    /// The JSON Schema of its arguments.
    pub input: Value,
    /// The JSON Schema of its result; without one the result is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl McpServer {
    /// Returns the command as the operator allows it.
    pub fn host_use(&self) -> HostUse<'_> {
        HostUse { host: &self.host, shape: &self.command }
    }

    /// Returns whether a tool of the server is part of the lock file.
    pub fn wants(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|it| it.iter().any(|it| it == tool))
    }

    /// Returns the tools that agents and nodes can name.
    fn declare(self: &Arc<Self>) -> impl Iterator<Item = DeclaredTool> {
        let read = (self.locked.resources && self.wants(RESOURCE_TOOL)).then(|| {
            let input = json!({
                "type": "object",
                "required": ["uri"],
                "properties": {"uri": {"type": "string"}},
                "additionalProperties": false,
            });
            let about = format!("Reads a resource of `{}` by its URI.", self.name);
            (RESOURCE_TOOL.to_owned(), LockedTool { about, input, output: None })
        });
        let own = self.locked.tools.clone();
        let read = read.filter(|(name, _)| !own.contains_key(name));
        let is_resource = read.is_some();
        let server = Arc::clone(self);
        own.into_iter().chain(read).map(move |(tool, locked)| {
            let LockedTool { about, input, output } = locked;
            let name = format!("{}.{tool}", server.name);
            let output = output.unwrap_or_else(|| json!({"type": "string"}));
            let reads_resource = is_resource && tool == RESOURCE_TOOL;
            let action = ServerTool { server: Arc::clone(&server), tool, reads_resource };
            DeclaredTool {
                signature: ToolSignature { name, input, output },
                about,
                action: ToolAction::Server(action),
                approve: Approval::Never,
            }
        })
    }
}

impl McpLock {
    /// Makes the content of a lock file.
    pub fn new(servers: BTreeMap<String, LockedServer>) -> Self {
        Self { v: LOCK_VERSION, servers }
    }

    /// Returns the path of the lock file of a workflow: `review.mcp.lock` beside `review.yaml`.
    pub fn path(workflow: &Path) -> PathBuf {
        workflow.with_extension("mcp.lock")
    }

    /// Reads the content of a lock file.
    ///
    /// # Errors
    ///
    /// Fails when it is not valid, or of another version.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lock: Self = serde_json::from_str(text).map_err(|it| it.to_string())?;
        if lock.v == LOCK_VERSION { Ok(lock) } else { Err(format!("its version is {}", lock.v)) }
    }
}

/// Reads the servers of a workflow for `graphrun mcp`, whether they are locked or not. Other mistakes in the file do
/// not matter.
///
/// # Errors
///
/// Fails when the file cannot be read, and with the mistakes in `hosts` and `mcp`.
pub fn mcp_servers(path: &Path) -> Result<Vec<McpServer>, LoadError> {
    let text = read_named(path, DataLimit::FileBytes)
        .map_err(|error| LoadError::Read { path: path.to_owned(), source: error.into() })?;
    let mut report = Report::new(Arc::new(SourceFile { name: path.display().to_string(), text }));
    let Some(root) = reader::read(&mut report) else {
        return Err(LoadError::Invalid(report.into_findings()));
    };
    let mut ignored = Report::new(Arc::clone(&report.file));
    let Some(top) = Section::read::<WorkflowKeys>(&mut ignored, &root, "a workflow") else {
        return Err(LoadError::Invalid(ignored.into_findings()));
    };
    let hosts = read_hosts(&mut report, &top, |_| false, |_, word| Some(word.text));
    let mut servers = Vec::new();
    for Entry { key, value } in entries(&mut report, &top, "mcp") {
        servers.extend(read_server(&mut report, (key, value), &hosts));
    }
    report.into_findings().or_ok(servers).map(|it| it.0).map_err(LoadError::Invalid)
}

/// Reads `mcp`, with the lock file. Returns the tools of the servers, and the servers whose tools are not known.
pub(super) fn read_mcp(
    report: &mut Report,
    top: &Section<'_>,
    prompts: &PromptFiles,
    sections: &Sections,
) -> (Vec<DeclaredTool>, BTreeSet<String>) {
    let (mut tools, mut unlocked_servers) = (Vec::new(), BTreeSet::new());
    let Some(key) = top.key("mcp") else { return (tools, unlocked_servers) };
    let lock = read_lock(report, key, prompts);
    for Entry { key, value } in entries(report, top, "mcp") {
        unlocked_servers.insert(key.text.clone());
        let Some(server) = read_server(report, (key, value), &sections.hosts) else { continue };
        report.uses("hosts", &server.host.name);
        let Some(lock) = &lock else { continue };
        let locked = lock.servers.get(&key.text).filter(|it| it.command == server.command);
        let Some(locked) = locked.cloned() else {
            let known = lock.servers.contains_key(&key.text);
            let how = if known { "have another command" } else { "are missing" };
            let message = format!("the tools of `{}` {how} in the lock file", key.text);
            report.push(unlocked(report, key, &server.host.name, message));
            continue;
        };
        for tool in server.tools.iter().flatten().filter(|it| *it != RESOURCE_TOOL) {
            if !locked.tools.contains_key(tool) {
                let message =
                    format!("the tool `{tool}` of `{}` is not in the lock file", key.text);
                report.push(unlocked(report, key, &server.host.name, message));
            }
        }
        unlocked_servers.remove(&key.text);
        let mut locked = locked;
        locked.tools.retain(|tool, _| server.wants(tool));
        tools.extend(Arc::new(McpServer { locked, ..server }).declare());
    }
    (tools, unlocked_servers)
}

fn unlocked(report: &Report, key: &SpannedText, host: &str, message: String) -> Diagnostic {
    let name = &report.file.name;
    Diagnostic::error("GR054", message).at(report.place(&key.range), "not locked").help(format!(
        "run `graphrun mcp lock {name} --allow-host {host}`, and read the descriptions that it prints"
    ))
}

/// Stands for the hosts of all servers, where the lock file as a whole is missing.
const ANY_HOST: &str = "HOST";

/// Reads the lock file; an invalid one is reported.
fn read_lock(report: &mut Report, key: &SpannedText, prompts: &PromptFiles) -> Option<McpLock> {
    let path = McpLock::path(Path::new(&report.file.name));
    let name = path.file_name().unwrap_or_default();
    let folder = prompts.folder();
    let text = match folder.read(&folder.own(Path::new(name))) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("the lock file `{}` cannot be read: {error}", name.display());
            report.push(unlocked(report, key, ANY_HOST, message));
            return None;
        }
    };
    let lock = McpLock::parse(&text);
    if let Err(reason) = &lock {
        let message = format!("the lock file `{}` is not valid: {reason}", name.display());
        report.push(unlocked(report, key, ANY_HOST, message));
    }
    lock.ok()
}

fn read_server(
    report: &mut Report,
    (key, yaml): (&SpannedText, &Yaml),
    hosts: &BTreeMap<String, HostSettings>,
) -> Option<McpServer> {
    check_name(report, key);
    let what = format!("the server `{}`", key.text);
    let section = Section::read::<McpServerKeys>(report, yaml, &what)?;
    let help = "write the program and its arguments, as in `command: [mcp-server-git]`";
    let command = section.require(report, "command", help);
    let mut argv = Vec::new();
    let arguments = command.and_then(|it| read_arguments(report, it, "`command`"));
    for item in arguments.unwrap_or_default() {
        let word = report.word(item, "each argument of `command`")?;
        check_argument(report, &argv, &word, ADVICE);
        report.refuse_secret(&word.text, &word.range);
        argv.push(word.text);
    }
    let help = "name one of `hosts`: a server runs on this machine, if the operator allows it";
    let host = section.require(report, "in", help);
    let host = host.and_then(|it| report.word(it, "`in`")).and_then(|word| {
        let found = hosts.get(&word.text).cloned();
        match &found {
            None => report.unknown("GR015", "host", &word, hosts.keys().map(String::as_str)),
            Some(host) => check_host(report, &word, host, &argv),
        }
        found
    });
    let tools = section.get("tools").map(|it| report.words(it, "`tools`"));
    let tools = tools.map(|it| it.into_iter().map(|it| it.text).collect());
    let time = section.get("time").and_then(|it| report.duration(it, "`time`")).unwrap_or(TIME);
    let host = host.filter(|_| !argv.is_empty())?;
    let (name, locked) = (key.text.clone(), LockedServer::default());
    Some(McpServer { name, command: argv, host, tools, time, locked })
}

/// Checks that a host starts this command without a question, in the folder of the node that calls.
fn check_host(report: &mut Report, word: &SpannedText, host: &HostSettings, command: &[String]) {
    check_allowed(report, word, host, command);
    if host.approve != Approval::Never {
        let message = format!(
            "the host `{}` asks before a command, and a server starts by itself",
            host.name
        );
        let help = "give the server a host with `approve: never`, and its tools an `approve` in the list of an agent";
        report.bad_value(word, message, help);
    }
    if host.folder.is_some() {
        let message = format!("the host `{}` names a folder", host.name);
        let help =
            "a server starts in the `folder` of the node that calls it: give it a host without one";
        report.bad_value(word, message, help);
    }
}

fn check_name(report: &mut Report, key: &SpannedText) {
    let name = &key.text;
    let fits = name.starts_with(|it: char| it.is_ascii_alphabetic())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
        && name.len() <= NAME_CHARACTERS_MAX;
    let is_taken = |it: &str| it.split('.').next() == Some(name);
    if !fits {
        let message = format!("a server cannot have the name `{name}`");
        let help = "use at most 30 letters, digits, `_` and `-`, and begin with a letter";
        report.bad_value(key, message, help);
    } else if BUILT_IN.iter().any(|it| is_taken(it.name)) {
        let message = format!("the built-in tools have the name `{name}` already");
        report.bad_value(key, message, "give the server another name");
    }
}
