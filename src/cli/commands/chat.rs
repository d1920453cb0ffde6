//! `graphrun chat WORKFLOW`: each line is a turn of a thread.

use std::{io::ErrorKind, path::PathBuf};

use serde_json::Value;

use crate::{
    checkpoint::{CheckpointError, RunInfo},
    cli::{
        allow::permission::Permission,
        arguments::{
            globals::{Globals, Output},
            input::{self, InputFlag},
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        output::terminal::{print_message, print_result},
        people::stdin_lines::StdinLines,
        process::runtime::block_on,
        run::{
            drive::{Begin, DriveOutcome, Run, listen},
            loaded,
            new_run::{NewRun, NewRunArgs, RunStorage, parse_thread},
        },
    },
    diagnostic::did_you_mean,
    event::Status,
    id::ChannelName,
    state::{State, plain_text},
    workflow::Workflow,
};

/// Talk with a workflow: each line that you type is a turn of a thread
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflow to talk with
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// The thread to continue or to begin [default: a new one]
    #[arg(long, value_name = "ID", value_parser = parse_thread, conflicts_with = "run_id")]
    thread: Option<String>,
    /// Wait with each turn until the other turns of the thread have ended, instead of refusing it
    #[arg(long)]
    queue: bool,
    /// The field of the input that takes your lines [default: the first one]
    #[arg(long, value_name = "FIELD")]
    field: Option<String>,
    /// Another field of the input, the same in every turn, as in `graphrun execute`
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<InputFlag>,
    #[command(flatten)]
    new: NewRunArgs,
    #[command(flatten)]
    options: RunOptions,
}

impl Args {
    /// Runs a turn for each line, until the input ends or a turn does not end as done.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("chat", &[Output::Text])?;
        let database = globals.database()?.with_permissions(Permission::of(&self.options));
        let loaded = loaded::load(&self.workflow)?.with(globals.settings(&self.options)?)?;
        let field = field(self.field.as_deref(), &loaded.workflow)?;
        check_other_input(&self.input, &field, &loaded.workflow)?;
        let models = loaded.connect()?;
        block_on(async {
            let workflow = loaded.workflow.clone();
            let path = &*self.workflow;
            let options = self.options;
            let new = NewRun { path, loaded, models, options, input: None };
            let thread = self.thread.as_deref();
            let checkpointer = database.create()?;
            let storage = RunStorage { globals, database: &database, checkpointer };
            let (run, info) = self.new.prepare(&storage, new, thread).await?;
            let output = workflow.output.iter().map(ChannelName::to_string).collect();
            let given = self.input;
            let is_queued = self.queue;
            let chat = Chat { run, info, workflow, field, given, output, is_queued };
            chat.talk().await
        })
    }
}

/// A conversation at the terminal, or from a pipe.
struct Chat<'a> {
    run: Run<'a>,
    info: RunInfo,
    workflow: Workflow,
    /// The field that takes the lines.
    field: String,
    /// The other fields of the input.
    given: Vec<InputFlag>,
    /// The fields of a reply.
    output: Vec<String>,
    /// Whether turns wait for other turns of the thread.
    is_queued: bool,
}

impl Chat<'_> {
    async fn talk(&self) -> Result<Exit, CliError> {
        let mut lines = StdinLines::default();
        let mut signals = listen()?;
        print_message(&format!("thread {}; end with Ctrl-D", self.run.name));
        let mut before = self.saved().await?;
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                signal = signals.next() => return Ok(signal.exit()),
            };
            let Some(line) = line else { return Ok(Exit::Done) };
            let line = match line {
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    print_message("not sent: the line is not UTF-8");
                    continue;
                }
                line => line.map_err(|error| {
                    CliError::new(Exit::Usage, "cannot read your lines").because(error)
                })?,
            };
            if line.trim().is_empty() {
                continue;
            }
            let mut flags = self.given.clone();
            flags.push(InputFlag::Text { key: self.field.clone(), text: line });
            let input = match input::read(&flags, &self.workflow.schema, &self.workflow.input) {
                Ok(input) => input,
                Err(error) => {
                    print_message(&format!("not sent: {}", error.problems().join("; ")));
                    continue;
                }
            };
            let info = Box::new(self.info.clone());
            let turn = Begin::Turn { info, input, is_queued: self.is_queued };
            match self.run.drive_and_ask(turn, &mut lines, &mut signals).await? {
                DriveOutcome::Stopped { end, signal } if end.status == Status::Done => {
                    let reply = self.reply(before.as_ref(), &end.state);
                    print_result(&reply).map_err(CliError::write)?;
                    if let Some(signal) = signal {
                        return Ok(signal.exit());
                    }
                    before = Some(end.state);
                }
                outcome => {
                    return self.run.report(&outcome).await?.print(self.run.globals);
                }
            }
        }
    }

    /// Returns the state that the earlier turns of the thread have left.
    async fn saved(&self) -> Result<Option<State>, CliError> {
        match self.run.checkpointer.load(&self.run.id).await {
            Ok(saved) => Ok(self.workflow.schema.restore(saved.values).ok()),
            Err(CheckpointError::UnknownRun(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what the turn has changed in the output of the workflow: of a list, the new items. A turn that changed
    /// nothing has replied the same again.
    fn reply(&self, before: Option<&State>, now: &State) -> String {
        match self.changed(before, now) {
            same if same.is_empty() => self.changed(None, now),
            changed => changed,
        }
    }

    fn changed(&self, before: Option<&State>, now: &State) -> String {
        let mut lines = Vec::new();
        for name in &self.output {
            let old = before.and_then(|it| it.get(name));
            let new = now.get(name);
            let Some(new) = new.filter(|it| Some(*it) != old) else { continue };
            let shown = match (old, new) {
                (Some(Value::Array(old)), Value::Array(new)) if new.starts_with(old) => {
                    new[old.len()..].iter().map(text).collect()
                }
                (_, Value::Array(new)) => new.iter().map(text).collect(),
                (_, new) => vec![text(new)],
            };
            let label = if self.output.len() > 1 { format!("{name}: ") } else { String::new() };
            lines.extend(shown.into_iter().map(|it| format!("{label}{it}\n")));
        }
        lines.concat()
    }
}

/// Returns a value as a person reads it: the content of a message, a text as it is, and anything else as JSON.
fn text(value: &Value) -> String {
    plain_text(value.get("content").filter(|it| it.is_string()).unwrap_or(value))
}

/// Checks the input beside the lines, so that each turn has it.
fn check_other_input(
    given: &[InputFlag],
    field: &str,
    workflow: &Workflow,
) -> Result<(), CliError> {
    let is_of_lines = |it: &InputFlag| match it {
        InputFlag::Text { key, .. } | InputFlag::File { key, .. } => key == field,
        InputFlag::Fields { .. } => false,
    };
    if given.iter().any(is_of_lines) {
        return Err(CliError::usage(format!("`{field}` takes the lines of the chat"))
            .with_help("leave it out, or name the field for the lines with `--field`"));
    }
    let other = workflow.input.iter().filter(|it| it.as_str() != field).cloned();
    input::read(given, &workflow.schema, &other.collect::<Vec<_>>()).map(drop)
}

/// Returns the field of the input that takes the lines.
fn field(wanted: Option<&str>, workflow: &Workflow) -> Result<String, CliError> {
    let names = || workflow.input.iter().map(ChannelName::as_str);
    match wanted {
        None => names().next().map(str::to_owned).ok_or_else(|| {
            CliError::usage(format!("the workflow `{}` has no input", workflow.name))
                .with_help("a chat needs a field of `input` that takes the lines")
        }),
        Some(field) if names().any(|it| it == field) => Ok(field.to_owned()),
        Some(field) => {
            let error = CliError::usage(format!("`{field}` is not a field of the input"));
            Err(match did_you_mean(field, names()) {
                Some(near) => error.with_help(format!("did you mean `{near}`?")),
                None => error,
            })
        }
    }
}
