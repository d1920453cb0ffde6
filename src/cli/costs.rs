//! Checks that cost limits are enforceable: before a run begins, every paid model needs a price.

use std::collections::BTreeSet;

use super::{
    config::FILE, error::CliError, exit::Exit, models::Connected, options::Settings, words,
};
use crate::workflow::{NodeDefinition, Workflow};

/// Refuses a cost limit if the price of a paid model is unknown.
///
/// # Errors
///
/// Fails with every limit and the models without a price.
pub(super) fn check(
    workflow: &Workflow,
    settings: &Settings,
    connected: &Connected,
) -> Result<(), CliError> {
    let is_replay = settings.options.replay.is_some();
    let unpriced = |it: &NodeDefinition| -> Vec<String> {
        let used = it.settings.models().map(|it| it.models).unwrap_or_default();
        let models = used.iter().filter(|it| connected.may_be_paid(it));
        let programs = it.settings.programs().into_iter();
        let programs = programs.filter(|it| !it.protocol.states_cost() && !is_replay);
        let models = models.chain(programs.map(|it| &it.name)).cloned();
        let embeddings = it.settings.embeddings().map(|it| it.models).unwrap_or_default();
        let embeddings = embeddings.into_iter().filter(|it| connected.may_be_paid(it));
        let models = models.chain(embeddings.map(str::to_owned));
        let counting = settings.trusted_prices.as_ref().unwrap_or(&settings.prices);
        models.filter(|it| counting.of(it).is_none()).collect()
    };
    let (mut problems, mut models) = (Vec::new(), BTreeSet::new());
    if let Some(usd) = workflow.limits.usd {
        let all: BTreeSet<String> = workflow.all_nodes().into_values().flat_map(unpriced).collect();
        if !all.is_empty() {
            problems.push(format!(
                "the run: {} USD, with {}",
                words::usd(usd),
                words::quoted_list(&all)
            ));
        }
        models.extend(all);
    }
    for (name, definition) in &workflow.nodes {
        let usd = definition.policies.bounds.limits.as_ref().and_then(|it| it.usd);
        let all: BTreeSet<String> = unpriced(definition).into_iter().collect();
        if let (Some(usd), false) = (usd, all.is_empty()) {
            problems.push(format!(
                "`{name}`: {} USD, with {}",
                words::usd(usd),
                words::quoted_list(&all)
            ));
            models.extend(all);
        }
    }
    for nested in workflow.nested.values() {
        check(nested, settings, connected)?;
    }
    let Some(first) = models.first() else { return Ok(()) };
    let message =
        "a cost limit cannot be enforced, because prices are unknown; nothing was started";
    let error = CliError::new(Exit::Unusable, message).with_problems(problems);
    if settings.prices.of(first).is_some() {
        return Err(error
            .because(format!("the only price of `{first}` is in a `{FILE}` that you do not trust"))
            .with_help(format!(
                "check its prices and run `graphrun trust`, or write `[prices.\"{first}\"]` in \
                 your own configuration"
            )));
    }
    Err(error.with_help(format!(
        "write `[prices.\"{first}\"]` with `input_per_million` and `output_per_million` in \
         `{FILE}`, or limit the run with `--max-tokens` and remove `usd` from its limits"
    )))
}
