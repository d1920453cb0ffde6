//! `graphrun runs rm RUN…`.

use super::super::{
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    terminal::say,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The names or ids of the runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
}

/// Forgets runs that nobody has. All of them are found before the first is removed.
pub(super) async fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("runs rm", &[Output::Text])?;
    let first = args.runs.first().map_or("", String::as_str);
    let checkpointer = globals.database()?.open_for(first)?;
    let mut found = Vec::new();
    for run in &args.runs {
        let info = checkpointer.find(run).await?.info;
        if found.iter().all(|(id, _)| *id != info.id) {
            found.push((info.id, info.name));
        }
    }
    for (id, name) in &found {
        checkpointer.remove(id).await?;
        say(&format!("removed {name}"));
    }
    checkpointer.compact().await?;
    Ok(Exit::Done)
}
