//! `RUN@STEP` on the command line.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde_json::Value;

use crate::{
    checkpoint::{Checkpointer, Position, RunInfo, SavedCheckpoint},
    cli::error::CliError,
    id::{ChannelName, Step},
};

/// A run and one of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunAt {
    /// The name or the id of the run.
    pub(crate) run: String,
    /// The step; none is the last one, and zero is the input.
    pub(crate) step: Option<Step>,
}

/// A run at one of its steps.
#[derive(Clone, Debug)]
pub(crate) struct RunSnapshot {
    pub(crate) info: RunInfo,
    pub(crate) position: Position,
    pub(crate) values: BTreeMap<ChannelName, Value>,
}

impl RunAt {
    /// Reads it from the database.
    ///
    /// # Errors
    ///
    /// Fails when the run or the step does not exist, or cannot be read.
    pub(crate) async fn find(
        &self,
        checkpointer: &dyn Checkpointer,
    ) -> Result<RunSnapshot, CliError> {
        let summary = checkpointer.find(&self.run).await?;
        let info = summary.info;
        let step = self.step.unwrap_or(summary.step);
        let SavedCheckpoint { position, values } =
            checkpointer.checkpoint_at(&info.id, step).await?;
        Ok(RunSnapshot { info, position, values })
    }
}

impl RunSnapshot {
    /// Returns it without the values of private fields: only nodes see them.
    #[must_use]
    pub(crate) fn without_private(mut self) -> Self {
        if let Some(graph) = &self.info.graph {
            let is_private =
                |name: &ChannelName| graph.channels.get(name).is_some_and(|it| it.is_private);
            self.values.retain(|name, _| !is_private(name));
        }
        self
    }
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

impl fmt::Display for RunSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.info.name, self.position.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_can_be_looked_at_after_each_of_its_steps() {
        let at = |text: &str| text.parse::<RunAt>().map(|at| (at.run, at.step.map(|it| it.0)));
        assert_eq!(at("calm-otter").unwrap(), ("calm-otter".into(), None));
        assert_eq!(at("calm-otter@0").unwrap(), ("calm-otter".into(), Some(0)));
        assert!(at("calm-otter@").is_err() && at("calm-otter@-1").is_err());
    }
}
