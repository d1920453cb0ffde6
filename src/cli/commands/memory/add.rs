//! `graphrun memory add TIER TEXT`.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    cli::{
        arguments::{
            globals::{Globals, Output},
            keys::redact_given,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::{not_json, to_json},
            terminal::{print_message, print_result},
        },
        people::person::who,
        process::runtime::block_on,
    },
    memory::{Approval, Batch, NewEntry, Source},
};

/// Add an entry that stays; runs do not change it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The tier
    tier: String,
    /// The text
    #[arg(required_unless_present = "value")]
    text: Option<String>,
    /// The value as JSON, for a tier with a type
    #[arg(long, value_name = "JSON", conflicts_with = "text", value_parser = parse_json)]
    value: Option<Value>,
    /// The part of the project that it is about
    #[arg(long)]
    module: Option<String>,
}

impl Args {
    /// Writes an approved entry, and creates the memory if it is missing.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory add", &[Output::Text, Output::Json])?;
            let Self { tier, text, value, module } = self;
            let argument = if value.is_some() { "--value" } else { "TEXT" };
            let mut value = value.or_else(|| text.map(Value::String)).unwrap_or_default();
            redact_given(argument, &mut value);
            let name = who();
            let source = Source::Person { name };
            let entry = NewEntry::of(tier, value, source);
            let entry = NewEntry { module, approval: Approval::Approved, ..entry };
            // A wrong entry creates no memory.
            entry.check().map_err(|error| CliError::usage(error.to_string()))?;
            let store = globals.memory()?.create_memory()?;
            let now = Timestamp::now();
            // Each command is a new write.
            let key = format!("add/{}/{}", now.as_nanosecond(), std::process::id());
            let ids = store.put(&Batch { key, entries: vec![entry], now }).await?;
            for id in ids {
                if globals.output == Output::Json {
                    let found = store.find(id.as_str()).await?;
                    print_result(&to_json(&found.first())?).map_err(CliError::write)?;
                } else {
                    print_message(&format!("added {id}"));
                }
            }
            Ok(Exit::Done)
        })
    }
}

fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| not_json(text, &error))
}
