//! `graphrun message RUN TEXT`: sends a message to a run that another process owns.

use serde::Serialize;
use serde_json::Value;

use crate::{
    checkpoint::Message,
    cli::{
        arguments::{
            globals::{Globals, Output},
            keys::redact_given,
        },
        error::CliError,
        exit::Exit,
        output::{json::to_json, terminal::print_result},
        people::person::who,
        process::runtime::block_on,
        run::origin::{InboxField, Origin},
    },
    diagnostic::did_you_mean,
    event::Status,
    id::{ChannelName, RunId},
    state::{Type, measure, read_json, validator_for},
};

/// Send a message to a run, which reads it before its next step
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name or the id of the run
    run: String,
    /// The message; JSON if the items of the list are not texts
    text: String,
    /// The list of the workflow's `inbox` that receives it [default: the first]
    #[arg(long, value_name = "FIELD")]
    to: Option<String>,
}

/// The result, as JSON.
#[derive(Debug, Serialize)]
struct SentMessage<'a> {
    run: &'a RunId,
    name: &'a str,
    to: &'a ChannelName,
    number: u64,
}

impl Args {
    /// Adds a message to the inbox of a run. The owner of the run reads it before the next step.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("message", &[Output::Text, Output::Json])?;
        let database = globals.database()?;
        let checkpointer = database.open_for(&self.run)?;
        block_on(async {
            let info = checkpointer.find(&self.run).await?.info;
            let origin = Origin::of(&info)?;
            let field = choose(&origin.inbox, self.to.as_deref())?;
            let mut value = read(field, &self.text)?;
            redact_given(field.field.as_str(), &mut value);
            let saved = checkpointer.load(&info.id).await?;
            let status = saved.summary.status;
            if saved.position.frontier.is_empty() && status != Status::Running {
                let message =
                    format!("run {} is {} and accepts no messages", info.name, status.as_str());
                return Err(CliError::new(Exit::NotResumable, message));
            }
            let to = &field.field;
            let message = Message::new(to.clone(), value, Some(who()));
            let number = checkpointer.post(&info.id, &message).await?;
            let sent = SentMessage { run: &info.id, name: &info.name, to, number };
            let text = if globals.output == Output::Json {
                to_json(&sent)?
            } else {
                let resume = database.with_permissions_of(&info).command("resume", &info.name);
                let resume = resume.filter(|_| status != Status::Running);
                let help = resume.map(|it| format!("; continue with: {it}")).unwrap_or_default();
                format!(
                    "sent to `{to}` of {}, which reads it before its next step{help}\n",
                    info.name
                )
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}

fn choose<'a>(inbox: &'a [InboxField], to: Option<&str>) -> Result<&'a InboxField, CliError> {
    let Some(usual) = inbox.first() else {
        return Err(CliError::usage("the run accepts no messages: its workflow has no inbox")
            .with_help(
                "declare a list in the workflow, as in `inbox: guidance`, and start a new run",
            ));
    };
    let Some(to) = to else { return Ok(usual) };
    inbox.iter().find(|it| it.field.as_str() == to).ok_or_else(|| {
        let names: Vec<&str> = inbox.iter().map(|it| it.field.as_str()).collect();
        let near = did_you_mean(to, names.iter().copied());
        let hint = near.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
        CliError::usage(format!("`{to}` is not in the inbox of the run{hint}"))
            .with_help(format!("the inbox has: {}", names.join(", ")))
    })
}

/// Reads a text as an item of the list.
fn read(InboxField { field, schema }: &InboxField, text: &str) -> Result<Value, CliError> {
    let is_text = match Type::of_schema(schema) {
        Type::List(item) => matches!(*item, Type::String),
        _ => false,
    };
    let value = if is_text {
        text.into()
    } else {
        read_json(text).map_err(|error| {
            let problem = if error.is_limit() {
                format!("the message exceeds the limits of `{field}`")
            } else {
                format!("`{field}` takes JSON, and the text is not JSON")
            };
            CliError::usage(problem).because(error)
        })?
    };
    // Checked as an item, which is one level deeper than the value: the run would drop an item that
    // does not fit.
    let list = Value::Array(vec![value]);
    measure(&list).map_err(|reached| {
        CliError::usage(format!("the message exceeds the limits of `{field}`")).because(reached)
    })?;
    let validator = validator_for(schema).map_err(|error| {
        CliError::new(Exit::NotResumable, format!("the schema of `{field}` is damaged"))
            .because(error)
    })?;
    let problems: Vec<String> = validator.iter_errors(&list).map(|it| it.to_string()).collect();
    if !problems.is_empty() {
        return Err(
            CliError::usage(format!("the message does not fit `{field}`")).with_problems(problems)
        );
    }
    let Value::Array(mut items) = list else { unreachable!("it was made a list above") };
    Ok(items.pop().unwrap_or_default())
}
