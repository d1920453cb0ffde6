//! Who answers the agents of a run: providers, or a recording.

use std::{collections::BTreeMap, sync::Arc};

use super::{error::CliError, exit::Exit, origin::RunOptions};
use crate::{
    graph::{ErrorKind, Failure},
    id::NodeName,
    llm::{self, ChatModel, ConfigError, ModelError, Recorder, Replay},
    nodes::ModelSource,
};

/// Connects every model that agents may use, or says all that is missing.
///
/// An agent with several models needs one of them; the others are there to fall back to.
///
/// # Errors
///
/// Fails when an agent has no model that can be used, or a recording cannot.
pub(super) fn connect<'a>(
    agents: impl Iterator<Item = (&'a NodeName, &'a [String])>,
    options: &RunOptions,
) -> Result<Arc<dyn ModelSource>, CliError> {
    if let Some(path) = &options.replay {
        let replay = Replay::load(path)
            .map_err(|error| CliError::usage("the recording cannot be replayed").because(error))?;
        return Ok(Arc::new(Recorded(Arc::new(replay))));
    }
    let mut providers = Providers::default();
    let mut problems = Vec::new();
    for (node, models) in agents {
        let failures: Vec<String> =
            models.iter().filter_map(|model| providers.connect(model, options).err()).collect();
        if failures.len() == models.len() {
            problems.push(format!("`{node}`: {}", failures.join("; ")));
        }
    }
    if problems.is_empty() {
        return Ok(Arc::new(providers));
    }
    Err(CliError::new(Exit::Unusable, "agents have no model that can be used; nothing was started")
        .with_problems(problems)
        .with_help(
            "choose a model for every agent with `--model`, as in `--model ollama/llama3.2`",
        ))
}

/// A source for workflows that are only looked at.
pub(super) fn unconnected() -> Arc<dyn ModelSource> {
    Arc::new(Providers::default())
}

/// Models by the names a workflow gives them.
#[derive(Debug, Default)]
struct Providers(BTreeMap<String, Result<Arc<dyn ChatModel>, String>>);

impl Providers {
    /// Connects a model, once.
    fn connect(&mut self, model: &str, options: &RunOptions) -> Result<(), String> {
        let connected =
            self.0.entry(model.to_owned()).or_insert_with(|| Self::client(model, options));
        connected.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn client(model: &str, options: &RunOptions) -> Result<Arc<dyn ChatModel>, String> {
        let client = llm::from_env(model).map_err(|error: ConfigError| error.to_string())?;
        let key = client.key().clone();
        match &options.record {
            None => Ok(Arc::new(client)),
            Some(path) => Recorder::wrap(Arc::new(client), path)
                .map(|it| Arc::new(it.hiding(key)) as Arc<dyn ChatModel>)
                .map_err(|error| Failure::of(ErrorKind::Recording, &error).message),
        }
    }
}

impl ModelSource for Providers {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let unusable = |message: String| ModelError::Auth { message };
        match self.0.get(name) {
            Some(model) => model.clone().map_err(unusable),
            None => Err(unusable(format!("`{name}` is not connected"))),
        }
    }
}

/// One recording in the place of every model.
#[derive(Debug)]
struct Recorded(Arc<Replay>);

impl ModelSource for Recorded {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}
