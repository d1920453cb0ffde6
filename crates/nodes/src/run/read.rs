//! The kind `run`: its keys, and how a node is read: a command as a list of arguments and never a
//! shell line.
//!
//! In a sandbox, values of the state reach it by `env`, `stdin` and `files`, so that no text of a
//! model becomes a part of the command. On a host, a value can be a whole argument, which is
//! checked.

use std::sync::Arc;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Backoff, ErrorKind, Node},
    id::ChannelName,
    state::{NumberRange, Type},
};
use graphrun_sandbox::{SourceFile, is_harmless_variable};
use graphrun_workflow::{
    Expression, HostSettings, HostUse, SandboxSettings,
    kind::{
        ArgumentAdvice, Data, Entry, Keys, Kind, MakeContext, NodeReader, NodeSettings, Section,
        SpannedText, SuccessForm, Yaml, check_argument, describe, read_arguments,
        values::{
            self, Either, FieldName, Flag, FolderName, NamedMap, OneOrMany, SandboxName, Scalar,
            Text, VariableName,
        },
    },
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::Run;
use crate::{changes::read_changes, in_folder::read_folder, outputs::read_outputs};

/// The kind `run`.
#[derive(Debug)]
pub(crate) struct RunKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RunKeys {
    /// Runs a command: the program and its arguments, without a shell. In a sandbox, values of the
    /// state reach it by `env`, `stdin` and `files`.
    run: Vec<Either<Scalar, ValueArgument>>,
    /// One of `sandboxes`; `run` takes one of `hosts`, too.
    #[serde(rename = "in")]
    within: SandboxName,
    /// Variables of the command, by expressions.
    env: Option<NamedMap<VariableName, values::Expression>>,
    /// The standard input of the command, by an expression: a text, or other values as JSON.
    stdin: Option<values::Expression>,
    /// The files in the command's folder, by an expression.
    files: Option<values::Expression>,
    /// Files or folders beside the workflow that are in the command's folder, under the same paths. A change of
    /// them changes the node.
    scripts: Option<OneOrMany<Text>>,
    /// One of `folders`: the command starts in a copy of it.
    folder: Option<FolderName>,
    /// Files and folders of `folder` that are written back if the command has changed them.
    changes: Option<OneOrMany<Text>>,
    /// Which output goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, NamedMap<FieldName, OutputName>>>,
}

/// An argument from the state, for a command on a host.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct ValueArgument {
    /// The whole argument, by an expression for a text or a number.
    value: values::Expression,
    /// Whether it may begin with `-`. Otherwise such a value is refused, because programs take it for an option.
    dash: Option<Flag>,
}

/// How values reach a command in a sandbox.
const IN_SANDBOX: ArgumentAdvice = ArgumentAdvice {
    values: "pass it by `env:`, `stdin:` or `files:`",
    shell: "run a program that does this, such as `[sh, -c, \"…\"]`, or pass values by `env:` and `stdin:`",
};

/// How values reach a command on a host.
const ON_HOST: ArgumentAdvice = ArgumentAdvice {
    values: "write `{ value: EXPRESSION }`, which is one argument of the command",
    shell: "each node runs one program; pass values by `{ value: EXPRESSION }` and `stdin:`",
};

/// The keys of an argument from the state.
const ARGUMENT_KEYS: &[&str] = &["value", "dash"];

graphrun_workflow::value_types! {
    /// An output of a command.
    OutputName = {"type": "string", "examples": (RunOutput::ALL.map(RunOutput::as_str))};
}

/// A node that runs a command.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    /// The program and its constant arguments, up to the first value of the state. In a sandbox there is none.
    pub argv: Vec<String>,
    /// The arguments from the first value of the state on.
    pub rest: Vec<Argument>,
    /// Where it runs.
    pub place: CommandPlace,
    /// The environment variables.
    pub env: Vec<(String, Expression)>,
    /// The standard input: a text, or other values as JSON.
    pub stdin: Option<Expression>,
    /// The files, each with its path and content.
    pub files: Option<Expression>,
    /// The files beside the workflow that the command gets.
    pub scripts: Vec<SourceFile>,
    /// The folder of the run of which the command gets a copy.
    pub folder: Option<String>,
    /// Files and folders of the copy that are written back.
    pub changes: Vec<String>,
    /// The fields with the output that each receives.
    pub writes: Vec<(ChannelName, RunOutput)>,
    /// The retry policy, whose exit codes are no result before the last attempt.
    pub retry: Backoff,
}

/// Where a command runs.
#[derive(Clone, Debug)]
pub enum CommandPlace {
    /// In a sandbox.
    Sandbox(SandboxSettings),
    /// On this machine.
    Host(HostSettings),
}

/// An argument of a command on a host.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A constant.
    Word(String),
    /// A value of the state.
    Value {
        /// The value.
        value: Box<Expression>,
        /// Whether it may begin with `-`.
        dash: bool,
    },
}

/// An output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutput {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
    /// The exit code. If a field receives it, no exit code is a failure.
    ExitCode,
    /// Whether the exit code is zero. If a field receives it, no exit code is a failure.
    Ok,
    /// The standard output, parsed as JSON.
    Json,
}

impl Kind for RunKind {
    fn key(&self) -> &'static str {
        "run"
    }

    fn keys(&self) -> Keys {
        Keys::of::<RunKeys>()
    }

    fn may_leave_unwritten<'y>(&self, node: &Section<'y>) -> Vec<&'y str> {
        let pairs = node.get("writes").map(Yaml::text_pairs).unwrap_or_default();
        let output = |name: &str| RunOutput::find(name);
        let outputs: Vec<RunOutput> = pairs.iter().filter_map(|(_, it)| output(it)).collect();
        let is_uncertain = |name: &str| output(name).is_some_and(|it| !it.is_certain_in(&outputs));
        pairs.iter().filter(|(_, it)| is_uncertain(it)).map(|(field, _)| *field).collect()
    }

    fn success_fields<'y>(&self, node: &Section<'y>) -> Vec<(&'y str, SuccessForm)> {
        let pairs = node.get("writes").map(Yaml::text_pairs).unwrap_or_default();
        let form = |output: &str| match RunOutput::find(output)? {
            RunOutput::Ok => Some(SuccessForm::Bool),
            RunOutput::ExitCode => Some(SuccessForm::ExitCode),
            RunOutput::Stdout | RunOutput::Stderr | RunOutput::Json => None,
        };
        pairs.into_iter().filter_map(|(field, output)| Some((field, form(output)?))).collect()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let place = match reader.host() {
            Some(host) => Some(CommandPlace::Host(host)),
            None => reader.sandbox().map(CommandPlace::Sandbox),
        };
        let (argv, rest) = read_argv(reader, place.as_ref()).unzip();
        if let (Some(CommandPlace::Host(host)), Some(argv)) = (&place, &argv) {
            check_shape(reader, host, argv);
            for key in ["env", "files", "scripts", "changes", "folder"] {
                refuse_on_host(reader, key);
            }
        }
        let mut env = Vec::new();
        if let Some(yaml) = reader.get("env") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names to expressions";
                reader.report().wrong_kind(yaml, "`env`", wanted);
            }
            for Entry { key, value } in yaml.entries() {
                check_variable(reader, key);
                let Some(expression) = reader.expression(value) else { continue };
                expect_plain(reader, value, &expression, "a variable");
                reader.refuse_named_secret(&key.text, &value.range, &expression);
                env.push((key.text.clone(), expression));
            }
        }
        let stdin = reader.get("stdin").and_then(|it| reader.expression(it));
        let files = reader.get("files").and_then(|it| reader.files(it));
        let scripts = reader.get("scripts").map(|it| reader.scripts(it));
        let folder = read_folder(reader);
        let changes = read_changes(reader);
        let outputs = RunOutput::ALL.map(|it| (it.as_str(), it.ty(), it));
        let writes = reader.get("writes");
        let writes = writes.map(|it| read_outputs(reader, it, "a command", &outputs));
        Some(Arc::new(CommandSettings {
            argv: argv?,
            rest: rest?,
            place: place?,
            env,
            stdin,
            files,
            scripts: scripts.unwrap_or_default(),
            folder,
            changes,
            writes: writes.unwrap_or_default(),
            retry: reader.retry().clone(),
        }))
    }
}

impl NodeSettings for CommandSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(Run::new(self.clone(), ctx.services)))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        let mut failures = vec![ErrorKind::Command, ErrorKind::Timeout, ErrorKind::Folder];
        match &self.place {
            CommandPlace::Sandbox(_) => failures.push(ErrorKind::Sandbox),
            CommandPlace::Host(_) => failures.extend([ErrorKind::Host, ErrorKind::Declined]),
        }
        if self.writes.iter().any(|(_, output)| *output == RunOutput::Json) {
            failures.push(ErrorKind::InvalidOutput);
        }
        Some(failures)
    }

    fn sandbox(&self) -> Option<&SandboxSettings> {
        match &self.place {
            CommandPlace::Sandbox(settings) => Some(settings),
            CommandPlace::Host(_) => None,
        }
    }

    fn has_exit_code(&self) -> bool {
        true
    }

    fn host(&self) -> Option<HostUse<'_>> {
        match &self.place {
            CommandPlace::Sandbox(_) => None,
            CommandPlace::Host(host) => Some(HostUse { host, shape: &self.argv }),
        }
    }
}

impl Argument {
    /// Returns the part of it that identifies the node.
    pub(super) fn fingerprint(&self) -> Value {
        match self {
            Self::Word(word) => word.as_str().into(),
            Self::Value { value, dash } => json!({"value": value.source(), "dash": dash}),
        }
    }
}

impl RunOutput {
    /// Every output.
    pub const ALL: [Self; 5] = [Self::Stdout, Self::Stderr, Self::ExitCode, Self::Ok, Self::Json];

    /// Returns the word for it in a workflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::ExitCode => "exit_code",
            Self::Ok => "ok",
            Self::Json => "json",
        }
    }

    /// Returns the output with this word.
    fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }

    /// Returns whether it reports the failure of a command. If a field receives it, no exit code is a failure of the
    /// node.
    pub(super) fn reports_failure(self) -> bool {
        matches!(self, Self::ExitCode | Self::Ok)
    }

    /// Returns whether each finished command has it, if its node takes these outputs: a command whose failure is a
    /// result need not print JSON.
    pub(super) fn is_certain_in(self, outputs: &[Self]) -> bool {
        self != Self::Json || !outputs.iter().any(|it| it.reports_failure())
    }

    /// Returns the type that a field must have to receive it.
    pub fn ty(self) -> Type {
        match self {
            Self::Stdout | Self::Stderr => Type::String,
            Self::ExitCode => Type::Int(NumberRange { min: Some(0.0), max: Some(255.0) }),
            Self::Ok => Type::Bool,
            Self::Json => Type::Any,
        }
    }
}

/// Reads the constant arguments up to the first value of the state, and the arguments from there on.
fn read_argv(
    reader: &mut NodeReader<'_>,
    place: Option<&CommandPlace>,
) -> Option<(Vec<String>, Vec<Argument>)> {
    let yaml = reader.value();
    let items = read_arguments(reader.report(), yaml, "`run`")?;
    let advice = if matches!(place, Some(CommandPlace::Host(_))) { ON_HOST } else { IN_SANDBOX };
    let mut argv = Vec::new();
    let mut rest = Vec::new();
    for item in items {
        if matches!(item.data, Data::Map(_)) {
            rest.push(read_value_argument(reader, item, place)?);
            continue;
        }
        let word = reader.report().word(item, "each argument of `run`")?;
        check_argument(reader.report(), &argv, &word, advice);
        if rest.is_empty() {
            argv.push(word.text);
        } else {
            rest.push(Argument::Word(word.text));
        }
    }
    if argv.is_empty() {
        let message = "the program of a command is a constant";
        let span = reader.report().span(&yaml.range);
        reader.report().push(Diagnostic::error("GR005", message).at(span, "no program"));
        return None;
    }
    Some((argv, rest))
}

/// Reads an argument from the state.
fn read_value_argument(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    place: Option<&CommandPlace>,
) -> Option<Argument> {
    if let Some(CommandPlace::Sandbox(_)) = place {
        let message = "an argument of a command in a sandbox is a constant";
        let span = reader.report().span(&yaml.range);
        let diagnostic = Diagnostic::error("GR046", message).at(span, "from the state");
        reader.report().push(diagnostic.help("pass it by `env:`, `stdin:` or `files:`"));
        return None;
    }
    let section = reader.section(yaml, "an argument", ARGUMENT_KEYS)?;
    let help = "write `{ value: task.title }`, an expression";
    let value = section.require(reader.report(), "value", help)?;
    let dash = section.get("dash").and_then(|it| reader.report().bool(it, "`dash`"));
    let expression = reader.expression(value)?;
    expect_plain(reader, value, &expression, "an argument");
    Some(Argument::Value { value: Box::new(expression), dash: dash.unwrap_or(false) })
}

/// Reports a command that its host does not allow.
fn check_shape(reader: &mut NodeReader<'_>, host: &HostSettings, argv: &[String]) {
    // Without a valid `allow` there is an error already.
    if host.allow.is_empty() || host.allows(argv) {
        return;
    }
    let range = reader.value().range.clone();
    let span = reader.report().span(&range);
    let shapes: Vec<String> = host.allow.iter().map(|it| format!("`{}`", it.join(" "))).collect();
    let message = format!("the host `{}` does not allow `{}`", host.name, argv.join(" "));
    let diagnostic = Diagnostic::error("GR053", message).at(span, "not allowed");
    let help =
        format!("it allows commands that begin with {}, written as constants", shapes.join(" or "));
    reader.report().push(diagnostic.help(help));
}

/// Reports a key that means nothing for a command on a host.
fn refuse_on_host(reader: &mut NodeReader<'_>, key: &str) {
    let Some(word) = reader.key(key) else { return };
    let help = match key {
        "folder" => "name it under `hosts`: all commands of a host start in the same folder",
        "env" => "name secrets under `hosts`, and pass values by `{ value: … }` or `stdin:`",
        _ => "a command on a host works in a real folder; write files with `write_files`",
    };
    let message = format!("a command on a host takes no `{key}`");
    reader.report().bad_value(word, message, help);
}

fn check_variable(reader: &mut NodeReader<'_>, key: &SpannedText) {
    if is_harmless_variable(&key.text) {
        return;
    }
    let message = format!("a command in a sandbox cannot have the variable `{}`", key.text);
    let span = reader.report().span(&key.range);
    let diagnostic = Diagnostic::error("GR048", message).at(span, "not allowed");
    reader.report().push(diagnostic.help(
        "use letters, digits and `_`, but no variable that configures programs or the \
         sandbox, such as `PATH`",
    ));
}

/// Reports a value that has no usual form as a text.
fn expect_plain(reader: &mut NodeReader<'_>, yaml: &Yaml, expression: &Expression, what: &str) {
    let plain = [Type::String, Type::FLOAT, Type::Bool, Type::Duration];
    if !plain.iter().any(|it| expression.ty().fits(it)) {
        let shown = describe(expression.ty());
        let message = format!("{what} must be a text or a number, and this is {shown}");
        let span = reader.report().span(&yaml.range);
        let diagnostic = Diagnostic::error("GR022", message).at(span, "another type");
        reader.report().push(diagnostic.help("pass it by `stdin:`, as JSON"));
    }
}
