//! `graphrun runs state RUN[@STEP]`.

use std::str::FromStr;

use super::super::{
    drive::to_json,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    terminal::print_result,
};
use crate::id::Step;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run, and the step if not the last; 0 is what it began with
    #[arg(value_name = "RUN[@STEP]")]
    run: RunAt,
}

/// A run, and a step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunAt {
    run: String,
    step: Option<Step>,
}

/// Prints the values of all channels as JSON.
pub(super) async fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("runs state", &[Output::Text, Output::Json])?;
    let RunAt { run, step } = &args.run;
    let checkpointer = globals.database()?.open_for(run)?;
    let id = checkpointer.find(run).await?.info.id;
    let values = match step {
        Some(step) => checkpointer.values_at(&id, *step).await?,
        None => checkpointer.load(&id).await?.values,
    };
    print_result(&to_json(&values)?).map_err(CliError::write)?;
    Ok(Exit::Done)
}

impl FromStr for RunAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((run, step)) = text.split_once('@') else {
            return Ok(Self { run: text.to_owned(), step: None });
        };
        let step = step.parse().map_err(|_| format!("`{step}` is not the number of a step"))?;
        Ok(Self { run: run.to_owned(), step: Some(Step(step)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_can_be_looked_at_after_each_of_its_steps() {
        let at = |text: &str| text.parse::<RunAt>().map(|it| (it.run, it.step.map(|it| it.0)));
        assert_eq!(at("calm-otter").unwrap(), ("calm-otter".into(), None));
        assert_eq!(at("calm-otter@0").unwrap(), ("calm-otter".into(), Some(0)));
        assert!(at("calm-otter@").is_err() && at("calm-otter@-1").is_err());
    }
}
