//! What a run was started with, saved with it so that another process can go on.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    database::Database,
    error::CliError,
    exit::Exit,
    prepare::Loaded,
    values::{parse_count, parse_dollars, parse_duration},
};
use crate::{
    checkpoint::RunInfo,
    compile::CompiledGraph,
    diagnostic::did_you_mean,
    engine::superstep::Pauses,
    graph::Limits,
    id::{ChannelName, NodeName},
    nodes::Cache,
    workflow::Workflow,
};

/// The version of the form in which origins are saved.
const VERSION: u32 = 1;

/// What a run was started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// The version of this form.
    pub(super) v: u32,
    /// The workflow; absolute, as a run may be resumed from another folder.
    pub(super) workflow: PathBuf,
    /// The folder for the files a run writes.
    pub(super) out: PathBuf,
    /// The fields of the result, in their order.
    pub(super) output: Vec<String>,
    /// The fields that are never part of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) private: Vec<String>,
    /// The lists to which people may say something, the usual one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) inbox: Vec<InboxField>,
    /// How it runs.
    pub(super) options: RunOptions,
}

/// A list to which people may say something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct InboxField {
    pub(super) field: ChannelName,
    /// The JSON Schema of the list.
    pub(super) schema: Value,
}

/// How a run runs: the flags that `execute` and `resume` share.
///
/// What `resume` is given replaces what the run was started with.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Run options")]
pub(super) struct RunOptions {
    /// Use this model for every agent, as in `openai/gpt-5-mini`
    #[arg(long, value_name = "MODEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// Add every exchange with a model to this file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<PathBuf>,
    /// Let this recording answer instead of models
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replay: Option<PathBuf>,
    /// Run nodes with `cache` even where a result is kept, and keep the new one
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) no_cache: bool,
    /// Let what the run writes replace files that are not of an earlier delivery, or were changed since
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) force: bool,
    /// Stop before more super-steps than this
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_steps: Option<u64>,
    /// Stop when models have taken this many tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
    /// Stop when models have cost this many US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = parse_dollars)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_cost: Option<f64>,
    /// Rest before a step in which this node runs; can be given several times
    #[arg(long, value_name = "NODE")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) pause_before: Vec<String>,
    /// Rest after a step in which this node ran; can be given several times
    #[arg(long, value_name = "NODE")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) pause_after: Vec<String>,
    /// Stop after this much time at work, as in `90s` or `1h 30m`
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<Duration>,
}

impl Origin {
    /// What a run is started with; the paths become absolute.
    ///
    /// # Errors
    ///
    /// Fails when the current folder is gone.
    pub(super) fn new(workflow: &Path, out: &Path, options: RunOptions) -> Result<Self, CliError> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| CliError::read(path, error));
        let options = RunOptions {
            record: options.record.as_deref().map(absolute).transpose()?,
            replay: options.replay.as_deref().map(absolute).transpose()?,
            ..options
        };
        let (workflow, out) = (absolute(workflow)?, absolute(out)?);
        Ok(Self {
            v: VERSION,
            workflow,
            out,
            output: Vec::new(),
            private: Vec::new(),
            inbox: Vec::new(),
            options,
        })
    }

    /// The same with what a workflow says of its fields.
    #[must_use]
    pub(super) fn with_fields_of(self, workflow: &Workflow) -> Self {
        let private = workflow.schema.channels().iter().filter(|it| it.is_private());
        let inbox = workflow.inbox.iter().filter_map(|it| {
            let schema = workflow.schema.channel(it.as_str())?.schema().clone();
            Some(InboxField { field: it.clone(), schema })
        });
        Self {
            output: workflow.output.iter().map(ChannelName::to_string).collect(),
            private: private.map(|it| it.name().to_string()).collect(),
            inbox: inbox.collect(),
            ..self
        }
    }

    /// What a saved run was started with.
    ///
    /// # Errors
    ///
    /// Fails when this program did not start it, or a newer one did.
    pub(super) fn of(info: &RunInfo) -> Result<Self, CliError> {
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
            .map_err(|error| refuse("what it was started with is damaged").because(error))
    }

    /// The same with other options, where others are given.
    #[must_use]
    pub(super) fn with_options(self, given: RunOptions) -> Self {
        Self { options: given.over(self.options), ..self }
    }

    /// The same without breakpoints.
    #[must_use]
    pub(super) fn without_pauses(mut self) -> Self {
        self.options.pause_before.clear();
        self.options.pause_after.clear();
        self
    }

    /// The form in which it is saved with the run.
    ///
    /// # Errors
    ///
    /// Fails when a path is no UTF-8: it could not be found again.
    pub(super) fn to_json(&self) -> Result<Value, CliError> {
        serde_json::to_value(self)
            .map_err(|error| CliError::usage("a path cannot be saved with the run").because(error))
    }
}

impl RunOptions {
    /// These options, and where one is not given, those.
    #[must_use]
    fn over(self, those: Self) -> Self {
        // Recording and replaying exclude each other; who asks for one ends the other.
        let (record, replay) = match (self.record, self.replay) {
            (None, None) => (those.record, those.replay),
            given => given,
        };
        let (pause_before, pause_after) =
            if self.pause_before.is_empty() && self.pause_after.is_empty() {
                (those.pause_before, those.pause_after)
            } else {
                (self.pause_before, self.pause_after)
            };
        Self {
            pause_before,
            pause_after,
            model: self.model.or(those.model),
            record,
            replay,
            no_cache: self.no_cache || those.no_cache,
            force: self.force || those.force,
            max_steps: self.max_steps.or(those.max_steps),
            max_tokens: self.max_tokens.or(those.max_tokens),
            max_cost: self.max_cost.or(those.max_cost),
            timeout: self.timeout.or(those.timeout),
        }
    }

    /// Where results are kept, if a node wants that.
    ///
    /// What a recording answers is not kept, for it would answer runs without one. A recording
    /// that is made is to have every answer, so that no result is used meanwhile.
    ///
    /// # Errors
    ///
    /// Fails when the database cannot be used.
    pub(super) fn cache(
        &self,
        loaded: &Loaded,
        database: &Database,
    ) -> Result<Option<Cache>, CliError> {
        if self.replay.is_some() || !loaded.keeps_results() {
            return Ok(None);
        }
        let cache = Cache::new(database.results()?);
        let is_renewed = self.no_cache || self.record.is_some();
        Ok(Some(if is_renewed { cache.renewed() } else { cache }))
    }

    /// The breakpoints, in a graph that must have their nodes.
    ///
    /// # Errors
    ///
    /// Fails with every name that is no node, and the nearest one that is.
    pub(super) fn pauses(&self, graph: &CompiledGraph) -> Result<Pauses, CliError> {
        let nodes = &graph.graph().nodes;
        let mut problems = Vec::new();
        let mut read = |flag: &str, names: &[String]| -> BTreeSet<NodeName> {
            let mut found = BTreeSet::new();
            for name in names {
                if let Some(node) = nodes.keys().find(|it| it.as_str() == name) {
                    found.insert(node.clone());
                    continue;
                }
                let near = did_you_mean(name, nodes.keys().map(NodeName::as_str));
                let hint = near.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
                problems.push(format!("{flag} {name}: there is no such node{hint}"));
            }
            found
        };
        let before = read("--pause-before", &self.pause_before);
        let after = read("--pause-after", &self.pause_after);
        if problems.is_empty() {
            return Ok(Pauses { before, after });
        }
        Err(CliError::usage("the workflow has no such place to pause; nothing was started")
            .with_problems(problems)
            .with_help("`graphrun graph` draws the nodes; a `parallel` is its branches"))
    }

    /// The limits of the workflow, replaced where the command line says so.
    pub(super) fn limit(&self, limits: &mut Limits) {
        limits.steps = self.max_steps.unwrap_or(limits.steps);
        limits.tokens = self.max_tokens.or(limits.tokens);
        limits.usd = self.max_cost.or(limits.usd);
        limits.time = self.timeout.or(limits.time);
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn what_resume_is_given_replaces_what_the_run_was_started_with() {
        let started = RunOptions {
            replay: Some("a".into()),
            no_cache: true,
            max_steps: Some(5),
            max_tokens: Some(100),
            ..RunOptions::default()
        };
        let given =
            RunOptions { record: Some("b".into()), max_steps: Some(9), ..RunOptions::default() };
        let both = given.over(started);
        assert_eq!((both.record, both.replay), (Some("b".into()), None));
        assert!(both.no_cache, "a flag cannot be taken back");
        let mut limits = Limits { usd: Some(1.0), ..Limits::default() };
        RunOptions {
            max_steps: both.max_steps,
            max_tokens: both.max_tokens,
            ..RunOptions::default()
        }
        .limit(&mut limits);
        assert_eq!((limits.steps, limits.tokens, limits.usd), (9, Some(100), Some(1.0)));
    }
}
