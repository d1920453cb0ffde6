//! `graphrun schema workflow|cases|events|state`.

use std::path::Path;

use clap::Subcommand;
use serde_json::Value;

use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{json::to_json, terminal::print_result},
        run::loaded::refuse,
    },
    diagnostic::did_you_mean,
    event,
    workflow::{self, Registry},
};

/// Print JSON Schemas, for editors and programs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Of,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// The schema of workflow files, for the YAML language server of an editor
    Workflow,
    /// The schema of files with test cases, for the same language server
    Cases,
    /// The schema of the events that `--output jsonl` prints
    Events,
    /// The schema of the state of a workflow
    State {
        /// A workflow, or the name of a registered type such as `TeamState`
        #[arg(value_name = "WORKFLOW.yaml|TYPE")]
        of: String,
    },
}

impl Args {
    /// Prints a JSON Schema.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("schema", &[Output::Text, Output::Json])?;
        let schema = match &self.of {
            Of::Workflow => workflow::json_schema(&crate::cli::registry()),
            Of::Cases => workflow::cases_json_schema(),
            Of::Events => event::json_schema(),
            Of::State { of } => state(of, &crate::cli::registry())?,
        };
        print_result(&to_json(&schema)?).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}

fn state(of: &str, registry: &Registry) -> Result<Value, CliError> {
    let path = Path::new(of);
    let (title, mut schema) = if let Some(schema) = registry.schema(of) {
        (of.to_owned(), schema.to_json_schema())
    } else if !path.exists() && path.extension().is_none() {
        let refused = CliError::usage(format!("there is no workflow and no type `{of}`"));
        let known: Vec<&str> = registry.states().collect();
        let help = match did_you_mean(of, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("name a file, or one of the types: {}", known.join(", ")),
        };
        return Err(refused.with_help(help));
    } else {
        let (workflow, _) = workflow::load(path, registry).map_err(|it| refuse(path, it))?;
        (workflow.name, workflow.schema.to_json_schema())
    };
    schema["title"] = title.into();
    Ok(schema)
}
