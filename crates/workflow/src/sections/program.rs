//! The program of an agent, which does the work in place of a model: its command, its protocol and its place.

use graphrun_core::diagnostic::Diagnostic;
use graphrun_expressions::problem::suggestion;
use graphrun_sandbox::SourceFile;
use serde_json::{Value, json};

use super::{
    argument::{ArgumentAdvice, check_argument, read_arguments},
    fixed_files::read_scripts,
    hosts::{check_allowed, read_secrets},
    tools::DeclaredParts,
};
use crate::{
    HostSettings, HostUse, SandboxSettings,
    source::{
        reader::{SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The keys of an agent that only a program has.
pub(crate) const PROGRAM_KEYS: [&str; 5] = ["command", "protocol", "in", "scripts", "secrets"];
/// The keys of an agent that models and programs have.
const COMMON_KEYS: [&str; 2] = ["system", "about"];

/// How values reach a program.
const ADVICE: ArgumentAdvice = ArgumentAdvice {
    values: "the program gets the prompt on its standard input",
    shell: "run a program that does this; it gets the prompt on its standard input",
};

/// The program of an agent.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in events and in tables of prices: the protocol and the agent, such as `codex/coder`.
    pub name: String,
    /// The program and its arguments, all of them constants.
    pub argv: Vec<String>,
    /// The form of its output.
    pub protocol: ProgramProtocol,
    /// Where it runs.
    pub place: ProgramPlace,
    /// The files beside the workflow that it gets, in a sandbox.
    pub scripts: Vec<SourceFile>,
}

/// Where the program of an agent runs.
#[derive(Clone, Debug)]
pub enum ProgramPlace {
    /// In a sandbox.
    Sandbox(ProgramSandbox),
    /// On this machine, with the secrets of the agent.
    Host(HostSettings),
}

/// The sandbox of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSandbox {
    /// Its name in the workflow.
    pub name: String,
    /// Its limits, and the hosts that the program may reach.
    pub settings: SandboxSettings,
    /// The variables of graphrun's own environment that the program gets. Other programs in a sandbox of this name do
    /// not get them.
    pub secrets: Vec<String>,
}

/// The form of the output of an agent's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramProtocol {
    /// Claude Code with `--output-format stream-json --verbose`, or `json`.
    Claude,
    /// Codex with `exec --json`.
    Codex,
    /// Gemini CLI with `--output-format stream-json`, or `json`.
    Gemini,
    /// The last JSON value is the answer.
    #[default]
    Json,
}

impl ProgramProtocol {
    /// Every protocol.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Json];

    /// Returns the word for it in a workflow.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Json => "json",
        }
    }

    /// Returns whether its programs state the cost of their work. A table of prices is not needed then.
    pub fn states_cost(self) -> bool {
        match self {
            Self::Claude => true,
            Self::Codex | Self::Gemini | Self::Json => false,
        }
    }
}

impl Program {
    /// The variable with the session that a program of the protocol `json` continues.
    pub const SESSION_VARIABLE: &str = "GRAPHRUN_SESSION";

    /// Returns the program itself.
    pub fn command(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// Returns its arguments for the continuation of a session.
    pub fn argv_of_session(&self, session: &str) -> Vec<String> {
        let mut argv = self.argv.clone();
        match self.protocol {
            ProgramProtocol::Claude | ProgramProtocol::Gemini => {
                argv.extend(["--resume".to_owned(), session.to_owned()]);
            }
            ProgramProtocol::Codex => {
                // The prompt is an argument of `resume`, and `-` stands for the standard input.
                argv.pop_if(|it| it == "-");
                argv.extend(["resume", session, "-"].map(str::to_owned));
            }
            // It finds the session in its environment.
            ProgramProtocol::Json => {}
        }
        argv
    }

    /// Returns the command on this machine, if it is one.
    pub fn host_use(&self) -> Option<HostUse<'_>> {
        match &self.place {
            ProgramPlace::Sandbox(_) => None,
            ProgramPlace::Host(host) => Some(HostUse { host, shape: &self.argv }),
        }
    }

    /// Returns its sandbox, if it runs in one.
    pub fn sandbox(&self) -> Option<&ProgramSandbox> {
        match &self.place {
            ProgramPlace::Sandbox(sandbox) => Some(sandbox),
            ProgramPlace::Host(_) => None,
        }
    }

    /// Returns a sentence with its secrets in its sandbox and the hosts that they may reach, if it gets secrets.
    pub fn grant(&self) -> Option<String> {
        let ProgramSandbox { name, settings, secrets } = self.sandbox()?;
        if secrets.is_empty() {
            return None;
        }
        let hosts: Vec<String> = settings.network.iter().map(ToString::to_string).collect();
        let (secrets, hosts, command) =
            (secrets.join("`, `"), hosts.join("`, `"), self.argv.join(" "));
        Some(format!(
            "gives `{secrets}` to `{command}` in the sandbox `{name}`, which may reach `{hosts}`"
        ))
    }

    /// Returns the part of it that identifies a node.
    pub fn fingerprint(&self) -> Value {
        let Self { name, argv, protocol, place, scripts } = self;
        let place = match place {
            ProgramPlace::Sandbox(ProgramSandbox { settings, secrets, .. }) => {
                json!({"sandbox": [settings.fingerprint(), secrets]})
            }
            ProgramPlace::Host(host) => json!({"host": [host.name, host.folder, host.secrets]}),
        };
        let hash = |file: &SourceFile| {
            json!([file.path, blake3::hash(file.content.as_bytes()).to_hex().as_str()])
        };
        let scripts: Vec<Value> = scripts.iter().map(hash).collect();
        json!({
            "name": name, "argv": argv, "protocol": protocol.as_str(), "place": place, "scripts": scripts,
        })
    }
}

/// Reads the program of an agent, and reports the keys that only a model has.
pub(crate) fn read_program(
    report: &mut Report,
    agent: &str,
    section: &Section<'_>,
    DeclaredParts { prompts, sections, .. }: DeclaredParts<'_>,
) -> Option<Program> {
    for word in section.keys() {
        let name = word.text.as_str();
        if !PROGRAM_KEYS.contains(&name) && !COMMON_KEYS.contains(&name) {
            let message = format!("an agent with `command` takes no `{name}`");
            let help = "remove it: only a model takes it; a program takes options in `command`";
            report.bad_value(word, message, help);
        }
    }
    let protocol = section.get("protocol").map(|it| read_protocol(report, it));
    let argv = section.get("command").and_then(|it| read_command(report, it));
    let scripts = section.get("scripts");
    let scripts = scripts.map(|it| read_scripts(report, &prompts.folder().open_folder(), it));
    let secrets = section.get("secrets").map(|it| read_secrets(report, it)).unwrap_or_default();
    let help = "name one of `sandboxes`, or one of `hosts` for a program that needs the network";
    let within = section.require(report, "in", help);
    let word = within.and_then(|it| report.word(it, "`in`"))?;
    let place = if let Some(settings) = sections.sandboxes.get(&word.text) {
        report.references.add("sandboxes", &word.text);
        if let Some(key) = section.key("secrets").filter(|_| settings.network.is_empty()) {
            let message = format!("the sandbox `{}` has no `network` to use secrets in", word.text);
            let help = "name the hosts that need them, as in `network: [api.example.com]` of the \
                        sandbox, or remove them";
            report.bad_value(key, message, help);
        }
        let name = word.text.clone();
        let settings = settings.clone();
        ProgramPlace::Sandbox(ProgramSandbox { name, settings, secrets })
    } else if let Some(host) = sections.hosts.get(&word.text) {
        report.references.add("hosts", &word.text);
        if let Some(key) = section.key("scripts") {
            let message = "a program on a host takes no `scripts`";
            report.bad_value(key, message, "it works in a real folder; install the program");
        }
        if let Some(argv) = &argv {
            check_allowed(report, &word, host, argv);
        }
        let mut host = host.clone();
        host.add_secrets(&secrets);
        ProgramPlace::Host(host)
    } else {
        let known = sections.sandboxes.keys().chain(sections.hosts.keys()).map(String::as_str);
        report.unknown("GR015", "sandbox", &word, known);
        return None;
    };
    let protocol = protocol.unwrap_or(Some(ProgramProtocol::default()))?;
    let name = format!("{}/{agent}", protocol.as_str());
    Some(Program { name, argv: argv?, protocol, place, scripts: scripts.unwrap_or_default() })
}

/// Reports the keys of a program in an agent that asks a model.
pub(crate) fn refuse_program_keys(report: &mut Report, section: &Section<'_>) {
    for key in PROGRAM_KEYS.into_iter().filter_map(|it| section.key(it)) {
        let message = format!("an agent with `model` takes no `{}`", key.text);
        report.bad_value(key, message, "remove it, or write `command` in place of `model`");
    }
}

fn read_command(report: &mut Report, yaml: &Yaml) -> Option<Vec<String>> {
    let mut argv = Vec::new();
    for item in read_arguments(report, yaml, "`command`")? {
        let word = report.word(item, "each argument of `command`")?;
        check_argument(report, &argv, &word, ADVICE);
        report.refuse_secret(&word.text, &word.range);
        argv.push(word.text);
    }
    Some(argv)
}

fn read_protocol(report: &mut Report, yaml: &Yaml) -> Option<ProgramProtocol> {
    let word = report.word(yaml, "`protocol`")?;
    let found = ProgramProtocol::ALL.into_iter().find(|it| it.as_str() == word.text);
    if found.is_none() {
        let names = ProgramProtocol::ALL.map(ProgramProtocol::as_str);
        let help = suggestion(&word.text, names).unwrap_or_default();
        let message = format!("there is no protocol `{}` of programs", word.text);
        report.bad_value(&word, message, &help);
    }
    found
}

/// Reports an agent that has both a model and a command.
pub(crate) fn refuse_both(report: &mut Report, what: &str, command: &SpannedText) {
    let message = format!("{what} has both `model` and `command`");
    let span = report.span(&command.range);
    let diagnostic = Diagnostic::error("GR007", message).at(span, "a second source of answers");
    report.push(diagnostic.help("keep one of them"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_continued_by_arguments_of_the_protocol() {
        let sandbox = ProgramSandbox {
            name: String::new(),
            settings: SandboxSettings {
                memory_bytes: 1,
                time: std::time::Duration::ZERO,
                room_bytes: 1,
                requirements: Vec::new(),
                network: Vec::new(),
                dependencies: Vec::new(),
            },
            secrets: Vec::new(),
        };
        for (protocol, command, expected) in [
            (ProgramProtocol::Claude, "claude -p", "claude -p --resume s1"),
            (ProgramProtocol::Gemini, "gemini", "gemini --resume s1"),
            (ProgramProtocol::Codex, "codex exec --json -", "codex exec --json resume s1 -"),
            (ProgramProtocol::Codex, "codex exec --json", "codex exec --json resume s1 -"),
            (ProgramProtocol::Json, "mender -", "mender -"),
        ] {
            let program = Program {
                name: String::new(),
                argv: command.split(' ').map(str::to_owned).collect(),
                protocol,
                place: ProgramPlace::Sandbox(sandbox.clone()),
                scripts: Vec::new(),
            };
            assert_eq!(program.argv_of_session("s1").join(" "), expected);
        }
    }
}
