//! `mcp`: servers of tools, which are programs or addresses, and the lock file with their tools.
//!
//! A server describes its tools itself, and models read these descriptions. So a person looks at them once, by
//! `graphrun mcp lock`, and a workflow uses only what its lock file has.

mod lock;
mod resource;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use graphrun_core::diagnostic::{Diagnostic, SourceFile};
use graphrun_guard::{beneath::read_named, data_limit::DataLimit};

use self::server::RESOURCE_TOOLS;
pub use self::{
    lock::{LockedServer, LockedTool, McpLock},
    resource::ResourcePattern,
    server::{McpPlace, McpServer},
};
use super::{
    Sections,
    argument::{ArgumentAdvice, check_argument, read_arguments},
    entries,
    fixed_files::read_scripts,
    hosts::{HostSettings, check_allowed, read_hosts},
    sandboxes::{read_sandbox, refuse_dependencies},
    tools::read_headers,
};
use crate::{
    Approval, Buffers, LoadError, SandboxSettings,
    format::{McpServerKeys, WorkflowKeys},
    source::{
        files::SourceFolder,
        reader::{self, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    tool::{BUILT_IN, DeclaredTool, HeaderText, Method, RequestTool, UrlTemplate},
};

/// The keys of a server that graphrun starts.
const PROGRAM_KEYS: [&str; 3] = ["command", "in", "scripts"];

/// The default time limit of a call, and of the start of a server.
const TIME: Duration = Duration::from_secs(60);
/// The most characters of the name of a server: a tool has this name before its own.
const NAME_CHARACTERS_MAX: usize = 30;

/// Headers of the protocol.
const OWN_HEADERS: [&str; 7] = [
    "accept",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// What values of a command would need.
const ADVICE: ArgumentAdvice = ArgumentAdvice {
    values: "a server gets its input by the calls of its tools",
    shell: "name the program of the server and its arguments",
};

/// The sections that servers refer to.
struct Places<'a> {
    hosts: &'a BTreeMap<String, HostSettings>,
    sandboxes: &'a BTreeMap<String, SandboxSettings>,
    folder: &'a SourceFolder,
}

/// Reads the servers of a workflow for `graphrun mcp`, whether they are locked or not. Other mistakes in the file do
/// not matter.
///
/// # Errors
///
/// Fails when the file cannot be read, and with the mistakes in `sandboxes`, `hosts` and `mcp`.
pub fn mcp_servers(path: &Path) -> Result<Vec<McpServer>, LoadError> {
    let text = read_named(path, DataLimit::FileBytes)
        .map_err(|error| LoadError::Read { path: path.to_owned(), source: error.into() })?;
    let mut report = Report::new(Arc::new(SourceFile { name: path.display().to_string(), text }));
    let Some(root) = reader::read(&mut report) else {
        return Err(LoadError::Invalid(report.into_diagnostics()));
    };
    let mut ignored = Report::new(Arc::clone(&report.file));
    let Some(top) = Section::read::<WorkflowKeys>(&mut ignored, &root, "a workflow") else {
        return Err(LoadError::Invalid(ignored.into_diagnostics()));
    };
    let mut sandboxes = BTreeMap::new();
    for entry in entries(&mut report, &top, "sandboxes") {
        let any_folder = |_: &mut Report, word: SpannedText| Some(word.text);
        let sandbox = read_sandbox(&mut report, entry, any_folder);
        sandboxes.insert(entry.key.text.clone(), sandbox);
    }
    let is_sandbox = |it: &str| sandboxes.contains_key(it);
    let hosts = read_hosts(&mut report, &top, is_sandbox, |_, word| Some(word.text));
    let folder = path.parent().unwrap_or(Path::new(""));
    let folder = SourceFolder::of(folder, Buffers::default());
    let places = Places { hosts: &hosts, sandboxes: &sandboxes, folder: &folder };
    let mut servers = Vec::new();
    for Entry { key, value } in entries(&mut report, &top, "mcp") {
        servers.extend(places.read_server(&mut report, key, value));
    }
    report.into_diagnostics().or_ok(servers).map(|it| it.0).map_err(LoadError::Invalid)
}

/// Reads `mcp`, with the lock file. Returns the tools of the servers, and the servers whose tools are not known.
pub(crate) fn read_mcp(
    report: &mut Report,
    top: &Section<'_>,
    folder: &SourceFolder,
    sections: &Sections,
) -> (Vec<DeclaredTool>, BTreeSet<String>) {
    let mut tools = Vec::new();
    let mut unlocked_servers = BTreeSet::new();
    let Some(section) = top.key("mcp") else { return (tools, unlocked_servers) };
    let places = Places { hosts: &sections.hosts, sandboxes: &sections.sandboxes, folder };
    let mut servers = Vec::new();
    for Entry { key, value } in entries(report, top, "mcp") {
        unlocked_servers.insert(key.text.clone());
        servers.extend(places.read_server(report, key, value).map(|it| (key, it)));
    }
    let flags: BTreeSet<String> = servers.iter().flat_map(|(_, it)| it.flags()).collect();
    let lock = match read_lock(report, folder) {
        Ok(lock) => lock,
        Err(reason) => {
            report.push(unlocked(report, section, flags, reason));
            return (tools, unlocked_servers);
        }
    };
    for (key, server) in servers {
        let declared = server.unlocked();
        let is_same = |it: &&LockedServer| it.command == declared.command && it.url == declared.url;
        let locked = lock.servers.get(&key.text).filter(is_same);
        let Some(locked) = locked.cloned() else {
            let how = match lock.servers.get(&key.text) {
                None => "are missing",
                Some(_) if declared.url.is_some() => "have another address",
                Some(_) => "have another command",
            };
            let message = format!("the tools of `{}` {how} in the lock file", key.text);
            report.push(unlocked(report, key, server.flags(), message));
            continue;
        };
        let missing = unlocked_parts(&server, &locked);
        if missing.is_empty() {
            unlocked_servers.remove(&key.text);
        }
        for part in missing {
            let message = format!("{part} of `{}` is not in the lock file", key.text);
            report.push(unlocked(report, key, server.flags(), message));
        }
        let mut locked = locked;
        locked.tools.retain(|tool, _| server.wants(tool));
        locked.prompts.retain(|prompt, _| server.wants_prompt(prompt));
        for prompt in locked.prompts.keys().filter(|it| locked.tools.contains_key(*it)) {
            let message = format!("`{}` has a tool and a prompt `{prompt}`", key.text);
            let help = "name the tools that the workflow uses with `tools`, without this one";
            report.bad_value(key, message, help);
        }
        if server.resources.is_some() && !locked.resources {
            let message = format!("`{}` has no resources in the lock file", key.text);
            report.push(unlocked(report, key, server.flags(), message));
        }
        tools.extend(Arc::new(McpServer { locked, ..server }).declare());
    }
    (tools, unlocked_servers)
}

/// Returns the tools and prompts that a workflow names and that the lock file does not have.
fn unlocked_parts(server: &McpServer, locked: &LockedServer) -> Vec<String> {
    let is_own = |tool: &&String| RESOURCE_TOOLS.iter().any(|(own, _)| own == tool);
    let tools = server.tools.iter().flatten().filter(|it| !is_own(it));
    let tools = tools.filter(|it| !locked.tools.contains_key(*it));
    let prompts = server.prompts.iter().filter(|it| !locked.prompts.contains_key(*it));
    let tools = tools.map(|it| format!("the tool `{it}`"));
    tools.chain(prompts.map(|it| format!("the prompt `{it}`"))).collect()
}

/// Returns the diagnostic about a missing lock. `flags` are those of the operator that a new one needs.
fn unlocked(
    report: &Report,
    key: &SpannedText,
    flags: impl IntoIterator<Item = String>,
    message: String,
) -> Diagnostic {
    let name = &report.file.name;
    let flags = flags.into_iter().collect::<String>();
    Diagnostic::error("GR054", message).at(report.span(&key.range), "not locked").help(format!(
        "run `graphrun mcp lock {name}{flags}`, and read the descriptions that it prints"
    ))
}

/// Reads the lock file.
fn read_lock(report: &Report, folder: &SourceFolder) -> Result<McpLock, String> {
    let path = McpLock::path(Path::new(&report.file.name));
    let name = path.file_name().unwrap_or_default();
    let text = folder
        .read(&folder.own(Path::new(name)))
        .map_err(|error| format!("the lock file `{}` cannot be read: {error}", name.display()))?;
    McpLock::parse(&text)
        .map_err(|reason| format!("the lock file `{}` is not valid: {reason}", name.display()))
}

impl Places<'_> {
    fn read_server(
        &self,
        report: &mut Report,
        key: &SpannedText,
        yaml: &Yaml,
    ) -> Option<McpServer> {
        check_name(report, key);
        let what = format!("the server `{}`", key.text);
        let section = Section::read::<McpServerKeys>(report, yaml, &what)?;
        let time = section.get("time").and_then(|it| report.duration(it, "`time`")).unwrap_or(TIME);
        let tools = section.get("tools").map(|it| report.words(it, "`tools`"));
        let tools = tools.map(|words| words.into_iter().map(|it| it.text).collect());
        let prompts = section.get("prompts").map(|it| report.words(it, "`prompts`"));
        let prompts = prompts.into_iter().flatten().map(|it| it.text).collect();
        let resources = section.get("resources").map(|it| read_resources(report, it));
        let place = if section.get("url").is_some() {
            for key in PROGRAM_KEYS.into_iter().filter_map(|it| section.key(it)) {
                let message = format!("a server with `url` takes no `{}`", key.text);
                report.bad_value(
                    key,
                    message,
                    "keep one of both: graphrun starts a command, and connects to an address",
                );
            }
            read_address(report, &section).map(|(url, headers)| {
                McpPlace::Web(RequestTool { method: Method::Post, url, headers, time })
            })
        } else {
            if let Some(key) = section.key("headers") {
                let help = "remove them, or write `url` in place of `command`";
                report.bad_value(key, "a server with `command` takes no `headers`", help);
            }
            self.read_program(report, &section)
        };
        let name = key.text.clone();
        let locked = LockedServer::default();
        Some(McpServer { name, place: place?, tools, prompts, resources, time, locked })
    }

    /// Reads the command of a server, and the host or the sandbox in which it runs.
    fn read_program(&self, report: &mut Report, section: &Section<'_>) -> Option<McpPlace> {
        let help = "write the program and its arguments, as in `command: [mcp-server-git]`, or the address, as in \
                    `url: \"https://mcp.example.com/mcp\"`";
        let yaml = section.require(report, "command", help)?;
        let mut command = Vec::new();
        let arguments = read_arguments(report, yaml, "`command`");
        for item in arguments.unwrap_or_default() {
            let word = report.word(item, "each argument of `command`")?;
            check_argument(report, &command, &word, ADVICE);
            report.refuse_secret(&word.text, &word.range);
            command.push(word.text);
        }
        let scripts = section.get("scripts");
        let scripts = scripts.map(|it| read_scripts(report, &self.folder.open_folder(), it));
        let help = "name one of `sandboxes`, or one of `hosts` for a server that you trust";
        let within = section.require(report, "in", help);
        let word = within.and_then(|it| report.word(it, "`in`"))?;
        let place = if let Some(sandbox) = self.sandboxes.get(&word.text) {
            report.references.add("sandboxes", &word.text);
            refuse_dependencies(report, &word, sandbox, "a server");
            let sandbox = sandbox.clone();
            let scripts = scripts.unwrap_or_default();
            McpPlace::Sandbox { command, sandbox, scripts }
        } else if let Some(host) = self.hosts.get(&word.text) {
            report.references.add("hosts", &word.text);
            check_host(report, &word, host, &command);
            if let Some(key) = section.key("scripts") {
                let help = "install the server, or run it in one of `sandboxes`";
                report.bad_value(key, "a server on a host takes no `scripts`", help);
            }
            McpPlace::Host { command, host: host.clone() }
        } else {
            let known = self.sandboxes.keys().chain(self.hosts.keys()).map(String::as_str);
            report.unknown("GR015", "sandbox or host", &word, known);
            return None;
        };
        let is_complete = |place: &McpPlace| match place {
            McpPlace::Host { command, .. } | McpPlace::Sandbox { command, .. } => {
                !command.is_empty()
            }
            McpPlace::Web(_) => true,
        };
        Some(place).filter(is_complete)
    }
}

/// Reads the resources that calls can read.
fn read_resources(report: &mut Report, yaml: &Yaml) -> Vec<ResourcePattern> {
    let mut patterns = Vec::new();
    for word in report.words(yaml, "`resources`") {
        match word.text.parse() {
            Ok(pattern) => patterns.push(pattern),
            Err(reason) => {
                let message = format!("`{}` names no resources: {reason}", word.text);
                let help =
                    "write a URI, or the beginning of several with `*`, as in `file:///docs/*`";
                report.bad_value(&word, message, help);
            }
        }
    }
    patterns
}

/// Reads the address of a server, and the headers of each message.
fn read_address(
    report: &mut Report,
    section: &Section<'_>,
) -> Option<(UrlTemplate, Vec<(String, HeaderText)>)> {
    let headers = section.get("headers").map(|it| read_headers(report, it, &OWN_HEADERS));
    let word = section.get("url").and_then(|it| report.word(it, "`url`"))?;
    report.refuse_secret(&word.text, &word.range);
    let parsed = UrlTemplate::parse(&word.text).and_then(|url| {
        let argument = url.arguments().next().map(str::to_owned);
        match argument {
            Some(name) => Err(format!("the argument `{name}` has no value; calls carry the input")),
            None => Ok(url),
        }
    });
    match parsed {
        Ok(url) => Some((url, headers.unwrap_or_default())),
        Err(reason) => {
            let message = format!("`{}` is no address of a server: {reason}", word.text);
            let help = "write an address, as in `url: \"https://mcp.example.com/mcp\"`; a key belongs into a header";
            report.bad_value(&word, message, help);
            None
        }
    }
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
