//! The origin of a run: how it was started, saved with it so that another process can resume it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    checkpoint::RunInfo,
    cli::{
        allow::permission::Permission, arguments::options::RunOptions, error::CliError, exit::Exit,
    },
    engine::Engine,
    folders::{RunFolder, RunFolders},
    id::{ChannelName, RunId},
    redact::redact_value,
    workflow::Workflow,
};

/// The version of the stored form.
const VERSION: u32 = 1;

/// How a run was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The version of this form.
    pub(crate) v: u32,
    /// The path of the workflow; absolute, as a run may be resumed from another folder.
    pub(crate) workflow: PathBuf,
    /// The output folder.
    pub(crate) out: PathBuf,
    /// The fields of the result, in order.
    pub(crate) output: Vec<String>,
    /// The fields that are never part of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) private: Vec<String>,
    /// The lists that accept messages, the default one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inbox: Vec<InboxField>,
    /// The folders with a history, each with its branch and the commit from which it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) folders: Vec<RunFolder>,
    /// The options.
    pub(crate) options: RunOptions,
    /// The permissions that the run was started with. They hold for its first process only; the commands that continue
    /// the run are printed with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) permissions: Vec<Permission>,
}

/// A list that accepts messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InboxField {
    pub(crate) field: ChannelName,
    /// The JSON Schema of the list.
    pub(crate) schema: Value,
}

impl Origin {
    /// Creates an origin; the paths become absolute.
    ///
    /// # Errors
    ///
    /// Fails when the working directory is gone.
    pub(crate) fn new(workflow: &Path, out: &Path, options: RunOptions) -> Result<Self, CliError> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| CliError::read(path, error));
        let options = RunOptions {
            record: options.record.as_deref().map(absolute).transpose()?,
            replay: options.replay.as_deref().map(absolute).transpose()?,
            ..options
        };
        let workflow = absolute(workflow)?;
        let out = absolute(out)?;
        Ok(Self {
            v: VERSION,
            workflow,
            out,
            output: Vec::new(),
            private: Vec::new(),
            inbox: Vec::new(),
            folders: Vec::new(),
            permissions: Permission::of(&options),
            options,
        })
    }

    /// Returns the origin with the output and inbox fields of a workflow.
    #[must_use]
    pub(crate) fn with_fields_of(self, workflow: &Workflow) -> Self {
        let private = workflow.schema.channels().iter().filter(|it| !it.is_public());
        let inbox = workflow.inbox.iter().filter_map(|field| {
            let mut schema = workflow.schema.channel(field.as_str())?.schema().clone();
            redact_value(&mut schema);
            Some(InboxField { field: field.clone(), schema })
        });
        Self {
            output: workflow.output.iter().map(ChannelName::to_string).collect(),
            private: private.map(|it| it.name().to_string()).collect(),
            inbox: inbox.collect(),
            ..self
        }
    }

    /// Returns the origin of a saved run.
    ///
    /// # Errors
    ///
    /// Fails when another program, or a newer version, started the run.
    pub(crate) fn of(info: &RunInfo) -> Result<Self, CliError> {
        let refuse = |why: &str| {
            let message =
                format!("run `{}` cannot be resumed from the command line: {why}", info.name);
            CliError::new(Exit::NotResumable, message)
        };
        match info.origin.get("v").and_then(Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => (),
            Some(_) => return Err(refuse("a newer version of graphrun started it")),
            None => return Err(refuse("another program started it")),
        }
        serde_json::from_value(info.origin.clone())
            .map_err(|error| refuse("its saved origin is damaged").because(error))
    }

    /// Gives an engine the folders of its run.
    pub(crate) fn provide_folders(&self, engine: Engine, run: &RunId) -> Engine {
        engine.provide(RunFolders::new(run.as_str(), self.folders.iter().cloned()))
    }

    /// Returns the origin with the given options; missing ones stay.
    #[must_use]
    pub(crate) fn with_options(mut self, given: RunOptions) -> Self {
        Permission::merge(&mut self.permissions, Permission::of(&given));
        Self { options: given.over(self.options), ..self }
    }

    /// Returns the origin without breakpoints.
    #[must_use]
    pub(crate) fn without_pauses(mut self) -> Self {
        self.options.pause_before.clear();
        self.options.pause_after.clear();
        self
    }

    /// Returns the stored form.
    ///
    /// # Errors
    ///
    /// Fails when a path is not UTF-8: it could not be found again.
    pub(crate) fn to_json(&self) -> Result<Value, CliError> {
        serde_json::to_value(self)
            .map_err(|error| CliError::usage("a path cannot be saved with the run").because(error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn info(origin: Value) -> RunInfo {
        RunInfo {
            id: crate::id::RunId::parse("01J").unwrap(),
            name: "calm-otter".into(),
            created: "2026-01-01T00:00:00Z".into(),
            origin,
            ..RunInfo::new("dev_team")
        }
    }

    #[test]
    fn an_origin_is_read_back_as_it_was_saved() {
        let options = RunOptions {
            model: Some("openai/gpt-5".into()),
            replay: Some("/tmp/r.jsonl".into()),
            max_cost: Some(2.5),
            timeout: Some(Duration::from_secs(5400)),
            ..RunOptions::default()
        };
        let origin = Origin::new(Path::new("/w.yaml"), Path::new("/out"), options).unwrap();
        let origin = Origin { output: vec!["code".into()], ..origin };
        assert_eq!(Origin::of(&info(origin.to_json().unwrap())).unwrap(), origin);
    }

    #[test]
    fn a_run_that_this_program_did_not_start_is_refused() {
        for origin in [json!(null), json!({}), json!({"v": 2}), json!({"v": 1, "workflow": 3})] {
            let error = Origin::of(&info(origin.clone())).unwrap_err();
            assert_eq!(error.exit(), Exit::NotResumable, "{origin}");
        }
    }
}
