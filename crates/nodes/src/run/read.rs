//! The kind `run`: its keys, and how a node is read: a command in a sandbox, as a list of arguments
//! and never a shell line.
//!
//! Values of the state reach it by `env`, `stdin` and `files`, so that no text of a model becomes a
//! part of the command.

use std::sync::Arc;

use graphrun_core::{diagnostic::Diagnostic, graph::Node, id::ChannelName, state::Type};
use graphrun_sandbox::{FixedFile, SourceFile, check_path, is_harmless_variable};
use graphrun_workflow::{
    Expression, SandboxSettings,
    kind::{
        Data, Entry, Keys, Kind, MakeContext, NodeReader, NodeSettings, SpannedText, Yaml,
        describe, suggestion,
        values::{
            self, Either, FieldName, FolderName, Named, OneOrMany, SandboxName, Scalar, Text,
            VariableName,
        },
    },
};
use schemars::JsonSchema;

use super::Run;
use crate::{fixed_files::read_fixed, in_folder::read_folder};

/// The kind `run`.
#[derive(Debug)]
pub(crate) struct RunKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RunKeys {
    /// Runs a command in a sandbox: the program and its arguments, without a shell. Values of the
    /// state reach it by `env`, `stdin` and `files`.
    run: Vec<Scalar>,
    /// One of `sandboxes`.
    #[serde(rename = "in")]
    within: SandboxName,
    /// Variables of the command, by expressions.
    env: Option<Named<VariableName, values::Expression>>,
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
    writes: Option<Either<OneOrMany<FieldName>, Named<FieldName, OutputName>>>,
}

graphrun_workflow::value_types! {
    /// An output of a command.
    OutputName = {"type": "string", "examples": (RunOutput::ALL.map(RunOutput::as_str))};
}

/// A node that runs a command in a sandbox.
#[derive(Clone, Debug)]
pub struct RunNode {
    /// The program and its constant arguments; no value of the state is among them.
    pub argv: Vec<String>,
    /// The limits of the sandbox.
    pub sandbox: SandboxSettings,
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

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let argv = read_argv(reader, reader.value());
        let sandbox = reader.sandbox();
        let mut env = Vec::new();
        if let Some(yaml) = reader.get("env") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names to expressions";
                reader.report().wrong_kind(yaml, "`env`", wanted);
            }
            for Entry { key, value } in yaml.entries() {
                check_variable(reader, key);
                let Some(expression) = reader.expression(value) else { continue };
                check_variable_type(reader, value, &expression);
                reader.refuse_named_secret(&key.text, &value.range, &expression);
                env.push((key.text.clone(), expression));
            }
        }
        let stdin = reader.get("stdin").and_then(|it| reader.expression(it));
        let files = reader.get("files").and_then(|it| reader.files(it));
        let scripts = reader.get("scripts").map(|it| read_scripts(reader, it));
        let folder = read_folder(reader);
        let changes = read_changes(reader);
        let writes = reader.get("writes").map(|it| read_run_outputs(reader, it));
        Some(Arc::new(RunNode {
            argv: argv?,
            sandbox: sandbox?,
            env,
            stdin,
            files,
            scripts: scripts.unwrap_or_default(),
            folder,
            changes,
            writes: writes.unwrap_or_default(),
        }))
    }
}

impl NodeSettings for RunNode {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(Run::new(self.clone(), ctx.services.cache_dir.clone())))
    }

    fn needs_sandbox(&self) -> bool {
        true
    }
}

impl RunOutput {
    /// Every output.
    pub const ALL: [Self; 5] = [Self::Stdout, Self::Stderr, Self::ExitCode, Self::Ok, Self::Json];

    /// The word for it in a workflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::ExitCode => "exit_code",
            Self::Ok => "ok",
            Self::Json => "json",
        }
    }

    /// The type that a field must have to receive it.
    pub fn ty(self) -> Type {
        match self {
            Self::Stdout | Self::Stderr => Type::String,
            Self::ExitCode => Type::Int,
            Self::Ok => Type::Bool,
            Self::Json => Type::Any,
        }
    }
}

fn read_argv(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Vec<String>> {
    let Data::List(items) = &yaml.data else {
        let place = reader.report().place(&yaml.range);
        let message = "`run` is a list of arguments, not a shell command";
        let finding = Diagnostic::error("GR005", message).at(place, "expected a list");
        reader.report().push(finding.help(as_list(yaml)));
        return None;
    };
    let mut argv = Vec::new();
    for item in items {
        let word = reader.report().word(item, "each argument of `run`")?;
        if word.text.contains("{{") || word.text.contains("${") {
            let message = "a text of the state must not become part of a command";
            let place = reader.report().place(&word.range);
            let finding = Diagnostic::error("GR046", message).at(place, "not filled in");
            reader.report().push(finding.help("pass it by `env:`, `stdin:` or `files:`"));
        } else if is_shell_syntax(&word.text) && !is_script(&argv) {
            let message = format!("no shell reads `{}`: the program gets it as it is", word.text);
            let place = reader.report().place(&word.range);
            let finding = Diagnostic::warning("GR051", message).at(place, "not interpreted");
            reader.report().push(finding.help(
                "run a program that does this, such as `[sh, -c, \"…\"]`, or pass values by `env:` and `stdin:`",
            ));
        } else if word.text.contains('\0') {
            reader.report().bad_value(&word, "an argument has no NUL character", "");
        }
        argv.push(word.text);
    }
    if argv.first().is_none_or(String::is_empty) {
        let message = "`run` is a list that begins with a program";
        let place = reader.report().place(&yaml.range);
        reader.report().push(Diagnostic::error("GR005", message).at(place, "no program"));
        return None;
    }
    Some(argv)
}

/// Reads the scripts of a command. A text of the state never becomes one: their paths are constants.
fn read_scripts(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Vec<SourceFile> {
    let folder = reader.open_folder();
    let mut scripts: Vec<SourceFile> = Vec::new();
    for word in reader.report().words(yaml, "`scripts`") {
        let read = match &folder {
            Ok(folder) => read_fixed(folder, &word.text),
            Err(error) => Err(error.to_string()),
        };
        let as_text = |FixedFile { path, content }| match String::from_utf8(content) {
            Ok(content) => Ok(SourceFile { path, content }),
            Err(_) => Err(format!("`{path}`: it is not UTF-8")),
        };
        let read = read.and_then(|it| it.into_iter().map(as_text).collect::<Result<Vec<_>, _>>());
        match read {
            Ok(read) => scripts.extend(read),
            Err(reason) => {
                let message = format!("the script `{}` cannot be read: {reason}", word.text);
                let place = reader.report().place(&word.range);
                let finding = Diagnostic::error("GR052", message).at(place, "named here");
                let help = "name a file or a folder in the folder of the workflow";
                reader.report().push(finding.help(help));
            }
        }
    }
    scripts.sort_by(|one, other| one.path.cmp(&other.path));
    scripts.dedup_by(|one, other| one.path == other.path);
    scripts
}

/// Reads the paths that are written back.
fn read_changes(reader: &mut NodeReader<'_>) -> Vec<String> {
    let Some(yaml) = reader.get("changes") else { return Vec::new() };
    if let (None, Some(key)) = (reader.get("folder"), reader.key("changes")) {
        let help = "name one of `folders` with `folder:`";
        reader.report().bad_value(key, "without `folder` nothing can be written back", help);
    }
    let mut changes = Vec::new();
    for word in reader.report().words(yaml, "`changes`") {
        match check_path(&word.text) {
            Ok(()) => changes.push(word.text),
            Err(error) => {
                let message = format!("`{}` cannot be written back: {error}", word.text);
                reader.report().bad_value(&word, message, "name a file or a folder, as in `src`");
            }
        }
    }
    changes
}

fn check_variable(reader: &mut NodeReader<'_>, key: &SpannedText) {
    if is_harmless_variable(&key.text) {
        return;
    }
    let message = format!("a command in a sandbox cannot have the variable `{}`", key.text);
    let place = reader.report().place(&key.range);
    let finding = Diagnostic::error("GR048", message).at(place, "not allowed");
    reader.report().push(finding.help(
        "use letters, digits and `_`, but no variable that configures programs or the \
         sandbox, such as `PATH`",
    ));
}

fn check_variable_type(reader: &mut NodeReader<'_>, yaml: &Yaml, expression: &Expression) {
    let plain = [Type::String, Type::Float, Type::Bool, Type::Duration];
    if !plain.iter().any(|it| expression.ty().fits(it)) {
        let shown = describe(expression.ty());
        let message = format!("a variable must be a text or a number, and this is {shown}");
        let place = reader.report().place(&yaml.range);
        let finding = Diagnostic::error("GR022", message).at(place, "another type");
        reader.report().push(finding.help("pass it by `stdin:`, as JSON"));
    }
}

/// Reads `field: output`, or just fields with the names of their outputs.
fn read_run_outputs(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Vec<(ChannelName, RunOutput)> {
    let mut writes = Vec::new();
    for (field, output) in reader.pairs(yaml) {
        let channel = reader.channel(&field);
        let found = RunOutput::ALL.into_iter().find(|it| it.as_str() == output.text);
        let Some(found) = found else {
            let names = RunOutput::ALL.map(RunOutput::as_str);
            let help = suggestion(&output.text, names).unwrap_or_default();
            let message = format!("a command has no output `{}`", output.text);
            reader.report().bad_value(&output, message, &help);
            continue;
        };
        let Some(channel) = channel else { continue };
        reader.expect_output(&field, &channel, &format!("`{}`", found.as_str()), &found.ty());
        writes.push((channel, found));
    }
    writes
}

/// The advice to write a command line as a list, with the list itself if the value is a line.
fn as_list(yaml: &Yaml) -> String {
    let words: Vec<&str> = yaml.text().unwrap_or_default().split_whitespace().collect();
    let plain = |it: &&str| it.chars().all(|it| it.is_ascii_alphanumeric() || "_-./=".contains(it));
    if words.is_empty() || words.len() > 8 || !words.iter().all(plain) {
        return "write `run: [ruff, check, src]`; graphrun starts no shell".to_owned();
    }
    format!("write `run: [{}]`", words.join(", "))
}

/// Returns whether an argument is an operator or a variable of a shell, which means nothing to another program.
/// Whether the argument after these is the script of a shell.
fn is_script(before: &[String]) -> bool {
    const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
    let (Some(program), Some(last)) = (before.first(), before.last()) else { return false };
    let program = program.rsplit('/').next().unwrap_or_default();
    SHELLS.contains(&program) && last.starts_with('-') && last.ends_with('c')
}

fn is_shell_syntax(argument: &str) -> bool {
    const OPERATORS: [&str; 14] =
        ["|", "||", "|&", "&", "&&", ";", ">", ">>", "<", "<<", "<<<", "2>", "&>", "2>&1"];
    let is_part = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_';
    // A variable, alone or at the start of a path: a program may have its own meaning for others.
    let is_variable = |it: &str| {
        let name = it.split('/').next().unwrap_or_default();
        !name.is_empty() && name.chars().all(is_part)
    };
    let is_substituted = |open: &str, close: &str| {
        argument.len() > open.len() + close.len() - 1
            && argument.starts_with(open)
            && argument.ends_with(close)
    };
    OPERATORS.contains(&argument)
        || argument.strip_prefix('$').is_some_and(is_variable)
        || argument == "~"
        || argument.starts_with("~/")
        || is_substituted("$(", ")")
        || is_substituted("`", "`")
}
