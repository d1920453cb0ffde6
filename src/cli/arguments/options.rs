//! The options of a run: flags, completed by the environment and the file.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::values::{parse_count, parse_dollars, parse_duration};
use crate::{
    cli::error::CliError, compile::CompiledGraph, diagnostic::did_you_mean,
    engine::machine::Breakpoints, graph::Limits, id::NodeName, sandbox::NetworkHost,
};

/// How a run runs: the flags that `execute` and `resume` share.
///
/// What `resume` is given replaces what the run was started with.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Run options")]
pub(crate) struct RunOptions {
    /// Use this model for every agent, as in `openai/gpt-5-mini`
    #[arg(long, value_name = "MODEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Add every exchange with a model to this file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<PathBuf>,
    /// Answer from this recording instead of models
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<PathBuf>,
    /// Run nodes with `cache` even if a result is cached, and cache the new one
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_cache: bool,
    /// Replace files even if no earlier delivery wrote them, or they changed since
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) force: bool,
    /// Let the workflow run the commands of this host of it on this machine; can be given several
    /// times, and holds for this process only
    #[arg(long, value_name = "NAME")]
    #[serde(skip)]
    pub(crate) allow_host: Vec<String>,
    /// Let tools of the workflow send requests to this host by `https`; can be given several times,
    /// and holds for this process only
    #[arg(long, value_name = "HOST")]
    #[serde(skip)]
    pub(crate) allow_http: Vec<String>,
    /// Let tools of the workflow send requests to this host by `http` or `https`, also on this machine or in a private
    /// network; can be given several times, and holds for this process only
    #[arg(long, value_name = "HOST")]
    #[serde(skip)]
    pub(crate) allow_http_private: Vec<String>,
    /// Let sandboxes of the workflow reach this host by `https`, as in `api.example.com` or `*.example.com`, also with
    /// the secrets of agents in them; can be given several times, and holds for this process only
    #[arg(long, value_name = "HOST")]
    #[serde(skip)]
    pub(crate) allow_network: Vec<NetworkHost>,
    /// Let sandboxes of the workflow reach this host by `https`, also on this machine or in a private network, also with
    /// the secrets of agents in them; can be given several times, and holds for this process only
    #[arg(long, value_name = "HOST")]
    #[serde(skip)]
    pub(crate) allow_network_private: Vec<NetworkHost>,
    /// Stop after this many super-steps
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_steps: Option<u64>,
    /// Stop when models have answered this many calls
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_calls: Option<u64>,
    /// Stop when models have taken this many tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop when models have cost this many US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = parse_dollars)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_cost: Option<f64>,
    /// Pause before a step in which this node runs; can be given several times
    #[arg(long, value_name = "NODE")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pause_before: Vec<String>,
    /// Pause after a step in which this node ran; can be given several times
    #[arg(long, value_name = "NODE")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pause_after: Vec<String>,
    /// Stop after this much working time, as in `90s` or `1h 30m`
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Duration>,
    /// Wait at most this long for a provider that asks for it or for a `wait` node; for longer waits the run pauses
    /// [default: 2m]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait: Option<Duration>,
}

/// The longest wait for a provider during which a run keeps its process.
const WAIT_DEFAULT: Duration = Duration::from_secs(120);

impl RunOptions {
    /// Returns these options, completed by `those`.
    #[must_use]
    pub(crate) fn over(self, those: Self) -> Self {
        // Recording and replaying exclude each other; requesting one ends the other.
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
            allow_host: [self.allow_host, those.allow_host].concat(),
            allow_http: [self.allow_http, those.allow_http].concat(),
            allow_http_private: [self.allow_http_private, those.allow_http_private].concat(),
            allow_network: [self.allow_network, those.allow_network].concat(),
            allow_network_private: [self.allow_network_private, those.allow_network_private]
                .concat(),
            max_steps: self.max_steps.or(those.max_steps),
            max_calls: self.max_calls.or(those.max_calls),
            max_tokens: self.max_tokens.or(those.max_tokens),
            max_cost: self.max_cost.or(those.max_cost),
            timeout: self.timeout.or(those.timeout),
            wait: self.wait.or(those.wait),
        }
    }

    /// Returns the longest wait for a provider during which a run keeps its process.
    pub(crate) fn wait_max(&self) -> Duration {
        self.wait.unwrap_or(WAIT_DEFAULT)
    }

    /// Returns the breakpoints; their nodes must exist in the graph.
    ///
    /// # Errors
    ///
    /// Fails with every unknown name, and the most similar node.
    pub(crate) fn pauses(&self, graph: &CompiledGraph) -> Result<Breakpoints, CliError> {
        let nodes = &graph.definition().nodes;
        let mut problems = Vec::new();
        let mut read = |flag: &str, names: &[String]| -> BTreeSet<NodeName> {
            let mut found = BTreeSet::new();
            for name in names {
                if let Some(node) = nodes.keys().find(|it| it.as_str() == name) {
                    found.insert(node.clone());
                    continue;
                }
                let near = did_you_mean(name, nodes.keys().map(NodeName::as_str));
                let near = near.map(|it| format!("; did you mean `{it}`?"));
                let outer = || {
                    outer_node(name, nodes.keys())
                        .map(|it| format!("; `{it}` runs it: name `{it}`"))
                };
                let hint = near.or_else(outer).unwrap_or_default();
                problems.push(format!("{flag} {name}: no such node{hint}"));
            }
            found
        };
        let before = read("--pause-before", &self.pause_before);
        let after = read("--pause-after", &self.pause_after);
        if problems.is_empty() {
            return Ok(Breakpoints { before, after });
        }
        Err(CliError::usage("a breakpoint names no node of the workflow; nothing was started")
            .with_problems(problems)
            .with_help("`graphrun graph` draws the nodes; for a `parallel`, name its branches"))
    }

    /// Replaces the limits of the workflow by those of the command line.
    pub(crate) fn limit(&self, limits: &mut Limits) {
        limits.steps = self.max_steps.unwrap_or(limits.steps);
        limits.calls = self.max_calls.or(limits.calls);
        limits.tokens = self.max_tokens.or(limits.tokens);
        limits.usd = self.max_cost.or(limits.usd);
        limits.time = self.timeout.or(limits.time);
    }
}

/// Returns the node that runs a node of a nested run: `each` for `each.write`.
pub(crate) fn outer_node<'n>(
    name: &str,
    mut known: impl Iterator<Item = &'n NodeName>,
) -> Option<&'n NodeName> {
    let (outer, _) = name.split_once('.')?;
    known.find(|it| it.as_str() == outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_resume_replace_those_of_the_start() {
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
