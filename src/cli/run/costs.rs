//! Checks that cost limits are enforceable: before a run begins, every paid model needs a price.

use std::collections::BTreeSet;

use super::models::ConnectedModels;
use crate::{
    cli::{
        error::CliError,
        exit::Exit,
        output::words,
        settings::{config::FILE, run_settings::Settings},
    },
    id::NodeName,
    workflow::{NodeDefinition, Workflow},
};

/// Refuses a cost limit if the price of a paid model is unknown.
///
/// # Errors
///
/// Fails with every limit, also of nested workflows, and the models without a price.
pub(crate) fn check(
    workflow: &Workflow,
    settings: &Settings,
    connected: &ConnectedModels,
) -> Result<(), CliError> {
    let problems = Vec::new();
    let models = BTreeSet::new();
    let mut limits = UnenforceableLimits { settings, connected, problems, models };
    limits.add_workflow(workflow, None);
    limits.refuse()
}

/// The cost limits that cannot be enforced.
struct UnenforceableLimits<'a> {
    settings: &'a Settings,
    connected: &'a ConnectedModels,
    /// Each limit, with its models.
    problems: Vec<String>,
    /// The models without a price.
    models: BTreeSet<String>,
}

impl UnenforceableLimits<'_> {
    /// Adds the limits of a workflow, and those of its nested workflows. `owner` is the node that runs it for each item.
    fn add_workflow(&mut self, workflow: &Workflow, owner: Option<&NodeName>) {
        let nodes = workflow.all_nodes();
        let models = nodes.into_values().flat_map(|it| self.unpriced(it)).collect();
        let limited = match owner {
            Some(owner) => format!("a run of `{owner}`"),
            None => "the run".to_owned(),
        };
        self.add(&limited, workflow.limits.usd, models);
        for (name, definition) in &workflow.nodes {
            let usd = definition.policies.bounds.limits.as_ref().and_then(|it| it.usd);
            let name = full_name(name, owner);
            self.add(&format!("`{name}`"), usd, self.unpriced(definition).into_iter().collect());
        }
        for (name, nested) in &workflow.nested {
            self.add_workflow(nested, Some(&full_name(name, owner)));
        }
    }

    /// Adds a limit, if there is one and models of these have no price.
    fn add(&mut self, limited: &str, usd: Option<f64>, models: BTreeSet<String>) {
        if let (Some(usd), false) = (usd, models.is_empty()) {
            let usd = words::usd(usd);
            let names = words::quoted_list(&models);
            self.problems.push(format!("{limited}: {usd} USD, with {names}"));
            self.models.extend(models);
        }
    }

    /// Returns the paid models of a node that have no price.
    fn unpriced(&self, node: &NodeDefinition) -> Vec<String> {
        let Self { settings, connected, .. } = self;
        let is_replay = settings.options.replay.is_some();
        let used = node.settings.models().map(|it| it.models).unwrap_or_default();
        let models = used.iter().filter(|it| connected.may_be_paid(it));
        let programs = node.settings.programs().into_iter();
        let programs = programs.filter(|it| !it.protocol.states_cost() && !is_replay);
        let models = models.chain(programs.map(|it| &it.name)).cloned();
        let embeddings = node.settings.embeddings().map(|it| it.models).unwrap_or_default();
        let embeddings = embeddings.into_iter().filter(|it| connected.may_be_paid(it));
        let models = models.chain(embeddings.map(str::to_owned));
        let counting = settings.trusted_prices.as_ref().unwrap_or(&settings.prices);
        models.filter(|it| counting.of(it).is_none()).collect()
    }

    /// Returns the error with all limits, if there are any.
    fn refuse(self) -> Result<(), CliError> {
        let Self { settings, problems, models, .. } = self;
        let Some(first) = models.first() else { return Ok(()) };
        let message =
            "a cost limit cannot be enforced, because prices are unknown; nothing was started";
        let error = CliError::new(Exit::Unusable, message).with_problems(problems);
        if settings.prices.of(first).is_some() {
            return Err(error
                .because(format!(
                    "the only price of `{first}` is in a `{FILE}` that you do not trust"
                ))
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
}

/// Returns the name of a node in the outermost workflow.
fn full_name(name: &NodeName, owner: Option<&NodeName>) -> NodeName {
    owner.map_or_else(|| name.clone(), |owner| name.clone().within(owner))
}
