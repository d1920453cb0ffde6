//! `tools`: the folder of the built-in tools, and the tools that the workflow declares.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use graphrun_core::{
    diagnostic::Diagnostic,
    state::{Record, Type},
};
use graphrun_expressions::typing::describe;
use graphrun_sandbox::is_harmless_variable;
use serde_json::json;

use super::{
    Sections,
    approval::read_approval,
    argument::{ArgumentAdvice, check_argument, read_arguments},
    entries,
    fixed_files::read_scripts,
    memory::{MEMORY, Tiers},
    sandboxes::refuse_dependencies,
    types::ToolTypes,
};
use crate::{
    Approval, Registry,
    format::{HeaderKeys, HttpKeys, ToolKeys},
    source::{
        prompts::PromptFiles,
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    tool::{
        BUILT_IN, BuiltIn, CommandTool, DeclaredTool, HeaderText, Method, RequestTool, ToolAction,
        ToolSignature, UrlTemplate, can_use,
    },
};

/// The key of the settings of the built-in tools, which no tool can have as its name.
pub(crate) const FILES: &str = "fs";
/// The default time limit of a request.
const TIME: Duration = Duration::from_secs(30);
/// The longest name of a tool that providers accept.
const NAME_CHARACTERS_MAX: usize = 64;
/// Headers that the client sets, or that change where a request goes.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// How values reach a command of a tool.
const ADVICE: ArgumentAdvice = ArgumentAdvice {
    values: "the command gets its input as JSON on its standard input",
    shell: "run a program that does this; the command gets its input as JSON on its standard input",
};

/// Returns the entries of `tools` that declare a tool.
pub(crate) fn declared<'y>(top: &Section<'y>) -> impl Iterator<Item = &'y Entry> {
    let entries = top.get("tools").map(Yaml::entries).unwrap_or_default();
    entries.iter().filter(|it| it.key.text != FILES)
}

/// The parts of a workflow to which its tools and agents refer.
#[derive(Clone, Copy)]
pub(crate) struct DeclaredParts<'a> {
    pub(crate) prompts: &'a PromptFiles,
    pub(crate) registry: &'a Registry,
    pub(crate) sections: &'a Sections,
}

/// Reads the tools that the workflow declares.
pub(crate) fn read_tools(
    report: &mut Report,
    top: &Section<'_>,
    declared: DeclaredParts<'_>,
    types: &BTreeMap<String, ToolTypes>,
) -> BTreeMap<String, Arc<DeclaredTool>> {
    let mut tools = BTreeMap::new();
    for entry in entries(report, top, "tools") {
        let key = &entry.key;
        if key.text == FILES {
            continue;
        }
        check_name(report, declared.registry, key);
        let types = types.get(&key.text).cloned().unwrap_or_default();
        let tool = read_tool(report, entry, declared, types);
        // An invalid tool still counts as declared, so that the nodes that call it are not reported.
        let tool = tool.unwrap_or_else(|| unknown(&key.text));
        tools.insert(key.text.clone(), Arc::new(tool));
    }
    tools
}

/// Returns a tool in place of an invalid one, which accepts any call.
fn unknown(name: &str) -> DeclaredTool {
    let input = serde_json::json!({"type": "object"});
    let output = serde_json::json!({});
    let sandbox = crate::SandboxSettings {
        memory_bytes: 0,
        time: Duration::ZERO,
        room_bytes: 0,
        requirements: Vec::new(),
        network: Vec::new(),
        dependencies: Vec::new(),
    };
    let command = CommandTool { argv: Vec::new(), sandbox, scripts: Vec::new(), folder: None };
    let signature = ToolSignature { name: name.to_owned(), input, output };
    let about = String::new();
    let action = ToolAction::Command(command);
    DeclaredTool { signature, about, action, approve: Approval::Never }
}

fn check_name(report: &mut Report, registry: &Registry, key: &SpannedText) {
    let name = &key.text;
    let fits = name.starts_with(|it: char| it.is_ascii_alphabetic())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
        && name.len() <= NAME_CHARACTERS_MAX;
    if !fits {
        let message = format!("a tool cannot have the name `{name}`");
        let help = "use at most 64 letters, digits, `_` and `-`, and begin with a letter";
        report.bad_value(key, message, help);
    } else if BuiltIn::named(name).is_some() || registry.find_tool(name).is_some() {
        let message = format!("there is a tool `{name}` already, in the program");
        report.bad_value(key, message, "give this one another name");
    }
}

fn read_tool(
    report: &mut Report,
    Entry { key, value }: &Entry,
    declared: DeclaredParts<'_>,
    ToolTypes { input, output }: ToolTypes,
) -> Option<DeclaredTool> {
    let what = format!("the tool `{}`", key.text);
    let section = Section::read::<ToolKeys>(report, value, &what)?;
    let help = "write its purpose, which a model chooses it by";
    let about = section.require(report, "about", help).and_then(|it| report.word(it, "`about`"));
    let help = "declare its arguments, as in `input: { query: string }`";
    let input = section.require(report, "input", help).and(input);
    let help = "declare its result, as in `output: { hits: [string] }`";
    let output = section.require(report, "output", help).and(output);
    if let (Some(schema), Some(yaml)) = (&input, section.get("input"))
        && !matches!(Type::of_schema(schema), Type::Record(_))
    {
        let message = "the input of a tool is a record of its arguments";
        let span = report.span(&yaml.range);
        let diagnostic = Diagnostic::error("GR114", message).at(span, "no record");
        report.push(diagnostic.help("write `input: { query: string }`"));
        return None;
    }
    let action = match (section.get("run"), section.get("http")) {
        (Some(run), None) => read_command(report, run, &section, declared).map(ToolAction::Command),
        (None, Some(http)) => {
            for key in ["in", "scripts"].into_iter().filter_map(|it| section.key(it)) {
                report.bad_value(key, format!("a request has no `{}`", key.text), "remove it");
            }
            let arguments = input.as_ref().map(Type::of_schema);
            read_request(report, http, arguments.as_ref()).map(ToolAction::Request)
        }
        (Some(_), Some(http)) => {
            let message = format!("{what} has both `run` and `http`");
            let span = report.span(&http.range);
            let diagnostic = Diagnostic::error("GR007", message).at(span, "a second action");
            report.push(diagnostic.help("keep one of them"));
            None
        }
        (None, None) => {
            let message = format!("{what} has neither `run` nor `http`");
            let span = report.span(&key.range);
            let diagnostic = Diagnostic::error("GR006", message).at(span, "no action");
            report.push(diagnostic.help("write `run: [python3, search.py]` or `http: { url: … }`"));
            None
        }
    };
    let approve = section.get("approve").and_then(|it| read_approval(report, it));
    let approve = approve.unwrap_or(Approval::Never);
    let signature = ToolSignature { name: key.text.clone(), input: input?, output: output? };
    Some(DeclaredTool { signature, about: about?.text, action: action?, approve })
}

fn read_command(
    report: &mut Report,
    yaml: &Yaml,
    section: &Section<'_>,
    DeclaredParts { prompts, sections, .. }: DeclaredParts<'_>,
) -> Option<CommandTool> {
    let mut argv = Vec::new();
    for item in read_arguments(report, yaml, "`run`").unwrap_or_default() {
        let word = report.word(item, "each argument of `run`")?;
        check_argument(report, &argv, &word, ADVICE);
        argv.push(word.text);
    }
    let scripts = section.get("scripts");
    let scripts = scripts.map(|it| read_scripts(report, &prompts.folder().open_folder(), it));
    let help = "name one of `sandboxes`: a command of a tool runs only in a sandbox";
    let sandbox = section.require(report, "in", help);
    let word = sandbox.and_then(|it| report.word(it, "`in`"))?;
    let Some(sandbox) = sections.sandboxes.get(&word.text) else {
        let known = sections.sandboxes.keys().map(String::as_str);
        report.unknown("GR015", "sandbox", &word, known);
        return None;
    };
    report.references.add("sandboxes", &word.text);
    let folder = section.get("folder").and_then(|it| report.word(it, "`folder`"));
    if folder.is_none() {
        refuse_dependencies(report, &word, sandbox, "the command of a tool without `folder`");
    }
    let folder = folder.and_then(|it| sections.find_folder(report, it));
    if argv.is_empty() {
        return None;
    }
    let sandbox = sandbox.clone();
    let scripts = scripts.unwrap_or_default();
    Some(CommandTool { argv, sandbox, scripts, folder })
}

fn read_request(report: &mut Report, yaml: &Yaml, arguments: Option<&Type>) -> Option<RequestTool> {
    let section = Section::read::<HttpKeys>(report, yaml, "`http`")?;
    let method = match section.get("method").and_then(|it| report.word(it, "`method`")) {
        None => Method::default(),
        Some(word) => {
            Method::ALL.into_iter().find(|it| it.as_str() == word.text).or_else(|| {
                let known = Method::ALL.map(Method::as_str).join("`, `");
                let message = format!("`{}` is no method", word.text);
                report.bad_value(&word, message, &format!("write one of `{known}`"));
                None
            })?
        }
    };
    let time = section.get("time").and_then(|it| report.duration(it, "`time`")).unwrap_or(TIME);
    let headers =
        section.get("headers").map(|it| read_headers(report, it, &[])).unwrap_or_default();
    let help = "write an address, as in `url: \"https://api.example.com/cities/{city}\"`";
    let url = section.require(report, "url", help)?;
    let word = report.word(url, "`url`")?;
    report.refuse_secret(&word.text, &word.range);
    let url = match UrlTemplate::parse(&word.text) {
        Ok(url) => url,
        Err(reason) => {
            let message = format!("`{}` is no address of a tool: {reason}", word.text);
            let help =
                "arguments stand in braces, in the path or behind `?`; a key belongs into a header";
            report.bad_value(&word, message, help);
            return None;
        }
    };
    let tool = RequestTool { method, url, headers, time };
    if let Some(Type::Record(record)) = arguments {
        check_arguments(report, &word, &tool, record);
    }
    Some(tool)
}

/// Checks that the address has only arguments that are texts or numbers, and that a request without a body has all of
/// them.
fn check_arguments(
    report: &mut Report,
    word: &SpannedText,
    RequestTool { url, method, .. }: &RequestTool,
    record: &Record,
) {
    let span = report.span(&word.range);
    for name in url.arguments() {
        let Some(field) = record.fields.iter().find(|it| it.name == name) else {
            let known = record.fields.iter().map(|it| it.name.as_str());
            let word = SpannedText { text: name.to_owned(), range: word.range.clone() };
            report.unknown("GR021", "argument of the tool", &word, known);
            continue;
        };
        let plain = [Type::String, Type::FLOAT, Type::Bool];
        if !plain.iter().any(|it| field.ty.fits(it)) {
            let shown = describe(&field.ty);
            let message =
                format!("a part of an address is a text or a number, and `{name}` is {shown}");
            report.push(Diagnostic::error("GR022", message).at(span.clone(), "another type"));
        }
    }
    let is_in_url = |name: &str| url.arguments().any(|it| it == name);
    let lost = record.fields.iter().find(|it| !method.has_body() && !is_in_url(&it.name));
    if let Some(lost) = lost {
        let message = format!("nothing sends the argument `{}`", lost.name);
        let diagnostic = Diagnostic::error("GR114", message).at(span, "not in the address");
        let help = format!("write `{{{}}}` into the address, or use `method: POST`", lost.name);
        report.push(diagnostic.help(help));
    }
}

/// Reads the headers of a request. `taken` are further ones that graphrun sets.
pub(crate) fn read_headers(
    report: &mut Report,
    yaml: &Yaml,
    taken: &[&str],
) -> Vec<(String, HeaderText)> {
    if !matches!(yaml.data, Data::Map(_)) {
        report.wrong_kind(yaml, "`headers`", "a mapping from names to texts");
    }
    let mut headers = Vec::new();
    for Entry { key, value } in yaml.entries() {
        let is_token = |it: char| it.is_ascii_alphanumeric() || "-_".contains(it);
        let name = key.text.to_ascii_lowercase();
        let is_taken = OWN_HEADERS.iter().chain(taken).any(|it| *it == name);
        if name.is_empty() || !name.chars().all(is_token) || is_taken {
            let message = format!("a request cannot set the header `{}`", key.text);
            report.bad_value(key, message, "remove it");
            continue;
        }
        headers.extend(read_header(report, value).map(|it| (name, it)));
    }
    headers
}

fn read_header(report: &mut Report, yaml: &Yaml) -> Option<HeaderText> {
    let is_printable = |word: &SpannedText| word.text.chars().all(|it| matches!(it, ' '..='~'));
    let Data::Map(_) = yaml.data else {
        let word = report.word(yaml, "the value of a header")?;
        report.refuse_secret(&word.text, &word.range);
        if !is_printable(&word) {
            report.bad_value(&word, "a header has printable ASCII characters only", "");
            return None;
        }
        return Some(HeaderText::Text(word.text));
    };
    let section = Section::read::<HeaderKeys>(report, yaml, "a header with a secret")?;
    let help = "name an environment variable, as in `secret: TRACKER_TOKEN`";
    let secret = section.require(report, "secret", help);
    let secret = secret.and_then(|it| report.word(it, "`secret`"))?;
    if !is_harmless_variable(&secret.text) {
        let message = format!("`{}` is no name of a variable with a secret", secret.text);
        let diagnostic = Diagnostic::error("GR048", message);
        report.push(diagnostic.at(report.span(&secret.range), "not allowed").help(help));
        return None;
    }
    let prefix = section.get("prefix").map(|it| report.word(it, "`prefix`"));
    let prefix = match prefix {
        None => String::new(),
        Some(word) => {
            let word = word?;
            report.refuse_secret(&word.text, &word.range);
            if !is_printable(&word) {
                report.bad_value(&word, "a header has printable ASCII characters only", "");
                return None;
            }
            word.text
        }
    };
    Some(HeaderText::Secret { prefix, variable: secret.text })
}

/// Reports a tool for memory where there are no tiers for it.
fn check_memory(report: &mut Report, tiers: &Tiers, tool: BuiltIn, word: &SpannedText) {
    if !tool.needs.is_memory() {
        return;
    }
    // The model chooses the tier.
    for tier in tiers.keys() {
        report.references.add(MEMORY, tier);
    }
    if can_use(tool.needs, tiers) {
        return;
    }
    let span = report.span(&word.range);
    report.push(if tiers.is_empty() {
        let message = format!("`{}` needs a tier, and the workflow declares none", word.text);
        let diagnostic = Diagnostic::error("GR058", message).at(span, "no memory");
        diagnostic.help("declare one, such as `memory: { discovered: { keep: 48h } }`")
    } else {
        let message = format!("`{}` writes, and only people write the tiers here", word.text);
        let diagnostic = Diagnostic::error("GR059", message).at(span, "nothing to write to");
        diagnostic.help("declare a tier that runs write, such as `discovered: { keep: 48h }`")
    });
}

/// Returns the tool of a name: declared, registered or built in.
pub(crate) fn find_tool(
    report: &mut Report,
    registry: &Registry,
    sections: &Sections,
    word: &SpannedText,
) -> Option<ToolSignature> {
    if let Some(declared) = sections.tools.get(&word.text) {
        report.references.add("tools", &word.text);
        if let ToolAction::Server(tool) = &declared.action {
            report.references.add("mcp", &tool.server.name);
        }
        return Some(declared.signature.clone());
    }
    let server = word.text.split('.').next().unwrap_or_default();
    if sections.unlocked_servers.contains(server) {
        report.references.add("mcp", server);
        let input = json!({"type": "object"});
        let output = json!({});
        return Some(ToolSignature { name: word.text.clone(), input, output });
    }
    let found = registry.find_tool(&word.text);
    let built_in = registry.find_built_in_tool(&word.text);
    if let Some(tool) = built_in {
        check_memory(report, &sections.memory, tool, word);
    }
    let make = |it: BuiltIn| it.make(&sections.tools_root, &sections.memory);
    let found = found.or_else(|| built_in.map(make));
    if found.is_none() {
        report.unknown(
            "GR110",
            "tool",
            word,
            registry
                .tools()
                .chain(BUILT_IN.iter().map(|it| it.name))
                .chain(sections.tools.keys().map(String::as_str)),
        );
    }
    found.map(|it| ToolSignature::of(it.as_ref()))
}
