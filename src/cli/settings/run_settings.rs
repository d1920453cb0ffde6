//! The settings of a run: its options, completed by the configuration.

use std::{collections::BTreeMap, sync::Arc};

use super::config::untrusted;
use crate::{
    cli::{arguments::options::RunOptions, error::CliError},
    graph::Limits,
    models::{ContextWindows, Prices, Providers},
    workflow::HostPermission,
};

/// The merged options of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) options: RunOptions,
    /// The prices of models.
    pub(crate) prices: Arc<Prices>,
    /// The context windows of models.
    pub(crate) windows: Arc<ContextWindows>,
    /// The prices that count for cost limits, if the user set one: those of an untrusted file do not.
    pub(crate) trusted_prices: Option<Arc<Prices>>,
    /// The providers of models.
    pub(crate) providers: Arc<Providers>,
    /// The base URL for models without a provider.
    pub(crate) base_url: Option<String>,
    /// What the user's own configuration allows on this machine.
    pub(crate) hosts: BTreeMap<String, HostPermission>,
    /// The limits among the options that come from an untrusted file.
    pub(crate) untrusted: UntrustedLimits,
}

/// The positions of limits in an untrusted file. Such a limit may lower that of the workflow, not
/// raise it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UntrustedLimits {
    pub(crate) steps: Option<String>,
    pub(crate) calls: Option<String>,
    pub(crate) tokens: Option<String>,
    pub(crate) usd: Option<String>,
    pub(crate) time: Option<String>,
}

impl Settings {
    /// Refuses limits of an untrusted file that are above those of the workflow.
    ///
    /// # Errors
    ///
    /// Fails with each of them and its position.
    pub(crate) fn check_limits(&self, limits: &Limits) -> Result<(), CliError> {
        let RunOptions { max_steps, max_calls, max_tokens, max_cost, timeout, .. } = &self.options;
        let UntrustedLimits { steps, calls, tokens, usd, time } = &self.untrusted;
        let checked = [
            (steps, "steps", max_steps.is_some_and(|it| it > limits.steps)),
            (calls, "calls", max_calls.zip(limits.calls).is_some_and(|(it, own)| it > own)),
            (tokens, "tokens", max_tokens.zip(limits.tokens).is_some_and(|(it, own)| it > own)),
            (usd, "usd", max_cost.zip(limits.usd).is_some_and(|(it, own)| it > own)),
            (time, "time", timeout.zip(limits.time).is_some_and(|(it, own)| it > own)),
        ];
        let raised = checked.into_iter().filter_map(|(place, name, is_above)| {
            let place = place.as_ref().filter(|_| is_above)?;
            Some(format!("{place}: `limits.{name}` raises the limit of the workflow"))
        });
        let problems: Vec<String> = raised.collect();
        if problems.is_empty() { Ok(()) } else { Err(untrusted(problems)) }
    }
}
