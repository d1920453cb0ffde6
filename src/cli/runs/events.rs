//! `graphrun runs events RUN`.

use super::super::{
    drive::to_json,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    progress::{Caption, line},
    terminal::print_result,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
    /// Only the events after this number
    #[arg(long, value_name = "SEQ", default_value_t)]
    after: u64,
}

/// Prints the events in their order, as lines for people or as they are.
pub(super) async fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("runs events", &[Output::Text, Output::Json, Output::Jsonl])?;
    let database = globals.database()?;
    let checkpointer = database.open_for(&args.run)?;
    let info = checkpointer.find(&args.run).await?.info;
    let events = checkpointer.events(&info.id, args.after).await?;
    let text = match globals.output {
        Output::Json => to_json(&events)?,
        Output::Text | Output::Sarif | Output::Github => {
            let resume = database.command("resume", &info.name);
            let caption = Caption { name: info.name, resume };
            events.iter().map(|it| line(it, &caption) + "\n").collect()
        }
        Output::Jsonl => {
            let lines: Result<Vec<String>, _> = events.iter().map(serde_json::to_string).collect();
            let lines = lines.map_err(|error| CliError::write(error.into()))?;
            lines.into_iter().map(|it| it + "\n").collect()
        }
    };
    print_result(&text).map_err(CliError::write)?;
    Ok(Exit::Done)
}
