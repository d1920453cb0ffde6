//! `graphrun plan WORKFLOW`.

mod rates;
mod warnings;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Serialize;

use self::rates::Rates;
use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, cost, duration, quoted_list, table, tokens},
        },
        run::{
            figures::ModelFigures,
            loaded::{self, LoadedWorkflow},
        },
        settings::config::Config,
    },
    compile::{CompiledGraph, NodeWorstCase, WorstCase},
    draw::Drawing,
    graph::Limits,
    id::NodeName,
};

/// Print the worst case of a run, and the bounds that give it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflow to plan
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
}

/// The worst case of a workflow, as JSON.
#[derive(Debug, Serialize)]
struct Plan {
    workflow: String,
    steps_max: u64,
    /// The model calls of the nodes with a known number of calls. For nodes that are dispatched to,
    /// those of one item.
    calls_max: u64,
    /// The nodes with an unknown number of calls.
    calls_unknown: Vec<NodeName>,
    /// The tokens if every call fills the context of its model; `null` if a context size is
    /// unknown.
    tokens_max: Option<u64>,
    /// The cost of these tokens.
    cost_usd_max: Option<f64>,
    /// The total duration; `null` if an attempt of some node has no time limit.
    time_ms_max: Option<u64>,
    #[serde(skip)]
    totals: KnownTotals,
    /// The node with the largest share of each.
    largest: LargestNodes,
    /// Why some values are unknown.
    unknown: Vec<String>,
    /// The figures of the models, from which tokens and cost follow.
    models: BTreeMap<String, ModelFigures>,
    limits: PlannedLimits,
    warnings: Vec<String>,
    nodes: Vec<PlannedNode>,
}

/// The totals of the nodes whose share is known. Alternatives that exclude each other are not added up.
#[derive(Debug, Default)]
struct KnownTotals {
    tokens: u64,
    cost_usd: f64,
}

#[derive(Debug, Default, Serialize)]
struct LargestNodes {
    steps: Option<NodeName>,
    calls: Option<NodeName>,
    tokens: Option<NodeName>,
    cost_usd: Option<NodeName>,
    time_ms: Option<NodeName>,
}

#[derive(Debug, Serialize)]
struct PlannedLimits {
    steps: u64,
    calls: Option<u64>,
    tokens: Option<u64>,
    usd: Option<f64>,
    time_ms: Option<u64>,
    exhausted: Option<String>,
}

#[derive(Debug, Serialize)]
struct PlannedNode {
    node: NodeName,
    kind: &'static str,
    runs_max: u64,
    attempts_max: u64,
    calls_max: Option<u64>,
    tokens_max: Option<u64>,
    cost_usd_max: Option<f64>,
    time_ms_max: Option<u64>,
    /// Whether the numbers are those of one item; a step may have several.
    is_per_item: bool,
    why: String,
}

impl Args {
    /// Prints the worst case of a run, and the bounds that determine it.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("plan", &[Output::Text, Output::Json])?;
        let settings = globals.settings_to_plan()?;
        let loaded = loaded::load(&self.workflow)?.with(settings)?;
        let plan = Plan::of(loaded, globals.config()?)?;
        let text = match globals.output {
            Output::Json => to_json(&plan)?,
            // The other formats were refused above.
            Output::Text | Output::Jsonl | Output::Sarif | Output::Github => {
                plan.draw(globals.stdout)
            }
        };
        print_result(&text).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}

impl Plan {
    fn of(loaded: LoadedWorkflow, config: &Config) -> Result<Self, CliError> {
        let rates = Rates::of(&loaded.workflow, config);
        let models = rates.models().into_iter();
        let models = models.map(|it| (it.to_owned(), ModelFigures::of(it, config))).collect();
        let compiled = loaded.compile_only()?;
        Ok(Self { models, ..Self::planned(&compiled, &rates) })
    }

    fn planned(compiled: &CompiledGraph, rates: &Rates) -> Self {
        let graph = compiled.definition();
        let worst_case = WorstCase::of(compiled);
        let steps_max = worst_case.steps_max;
        let time_max = worst_case.time_max;
        let order = Drawing::of(graph).nodes;
        let nodes: Vec<PlannedNode> = order
            .into_iter()
            .filter_map(|drawn| {
                let node = worst_case.nodes.get(&drawn.name)?;
                Some(PlannedNode::new(drawn.name, drawn.kind.unwrap_or_default(), node, rates))
            })
            .collect();
        let unknown_calls = nodes.iter().filter(|it| it.calls_max.is_none());
        let totals = KnownTotals::of(&worst_case, &nodes);
        let mut plan = Self {
            workflow: graph.name.clone(),
            steps_max,
            calls_max: worst_case.most(|_, it| it.calls_max),
            calls_unknown: unknown_calls.map(|it| it.node.clone()).collect(),
            tokens_max: all(&nodes, |it| it.tokens_max).map(|_| totals.tokens),
            cost_usd_max: all(&nodes, |it| it.cost_usd_max).map(|_| totals.cost_usd),
            totals,
            time_ms_max: time_max.map(ms),
            largest: LargestNodes::of(&nodes),
            unknown: Vec::new(),
            models: BTreeMap::new(),
            limits: PlannedLimits::new(&graph.limits),
            warnings: Vec::new(),
            nodes,
        };
        plan.unknown = plan.unknowns(rates);
        plan.warnings = warnings::of(&plan, graph);
        plan
    }

    /// Returns why tokens, cost or duration are unknown.
    fn unknowns(&self, rates: &Rates) -> Vec<String> {
        let mut unknown = Vec::new();
        if !self.calls_unknown.is_empty() {
            let nodes = quoted_list(&self.calls_unknown);
            unknown.push(format!(
                "tokens and cost: {nodes} may call models, with an unknown number of calls"
            ));
        }
        unknown.extend(rates.unknown());
        let endless = self.nodes.iter().filter(|it| it.runs_max > 0 && it.time_ms_max.is_none());
        let endless: Vec<String> = endless.map(|it| format!("`{}`", it.node)).collect();
        if !endless.is_empty() {
            unknown.push(format!("time: {} without `timeout`", endless.join(", ")));
        }
        unknown
    }

    fn draw(&self, paint: Paint) -> String {
        let title = ["NODE", "RUNS", "ATTEMPTS", "MODEL CALLS", "WHY"];
        let mut rows = vec![title.map(|it| paint.faint(it)).to_vec()];
        rows.extend(self.nodes.iter().map(|it| it.draw(paint)));
        let limits = &self.limits;
        let largest = &self.largest;
        let known = |it: Option<String>| it.unwrap_or_else(|| "?".to_owned());
        let all_items = |text: String, has_items: bool| {
            if has_items { text + " for one item of each" } else { text }
        };
        let has_items = self.has_items();
        // Items wait for each other, unless all of them run at once.
        let has_slow_items =
            self.nodes.iter().any(|it| it.is_per_item && it.time_ms_max != Some(0));
        let totals = [
            ("super-steps", number(self.steps_max), &largest.steps, Some(limits.steps.to_string())),
            ("model calls", self.calls(), &largest.calls, limits.calls.map(number)),
            (
                "tokens",
                known(self.tokens_max.map(|it| all_items(large(it, tokens), has_items))),
                &largest.tokens,
                limits.tokens.map(tokens),
            ),
            (
                "cost",
                known(self.cost_usd_max.map(|it| all_items(cost(Some(it)), has_items))),
                &largest.cost_usd,
                limits.usd.map(|it| cost(Some(it))),
            ),
            (
                "time",
                known(self.time_ms_max.map(|it| all_items(large(it, duration), has_slow_items))),
                &largest.time_ms,
                limits.time_ms.map(duration),
            ),
        ];
        let totals = totals.map(|(name, most, mostly, limit)| {
            let limit = limit.map(|it| format!("limit: {it}")).unwrap_or_default();
            let mostly = mostly.as_ref().map(|it| format!("mostly `{it}`")).unwrap_or_default();
            if self.nodes.len() == 1 {
                return vec![paint.faint(name), most, limit];
            }
            vec![paint.faint(name), most, mostly, limit]
        });
        let mut text = format!("{}\n{}", table(&rows), table(&totals));
        if !self.models.is_empty() {
            let figures = |(name, it): (&String, &ModelFigures)| vec![clean(name), it.shown()];
            text.extend(["\n", &table(&self.models.iter().map(figures).collect::<Vec<_>>())]);
        }
        for why in &self.unknown {
            text.extend([&paint.faint("not known:"), " ", why, "\n"]);
        }
        for warning in &self.warnings {
            text.extend([&paint.loud("warning:"), " ", warning, "\n"]);
        }
        text
    }

    /// Returns whether some calls are counted for one item of several.
    fn has_items(&self) -> bool {
        self.nodes.iter().any(|it| it.is_per_item && it.calls_max != Some(0))
    }

    /// Returns the known model calls, and the excluded ones.
    fn calls(&self) -> String {
        let mut calls = number(self.calls_max);
        if self.has_items() {
            calls += " for one item of each";
        }
        if !self.calls_unknown.is_empty() {
            calls.extend([" and those of ", &quoted_list(&self.calls_unknown)]);
        }
        calls
    }
}

impl KnownTotals {
    fn of(worst_case: &WorstCase, nodes: &[PlannedNode]) -> Self {
        let nodes: BTreeMap<&NodeName, &PlannedNode> =
            nodes.iter().map(|it| (&it.node, it)).collect();
        let cost = |it: &PlannedNode| it.cost_usd_max.map(parts_of_usd);
        let cost = worst_case.most(|name, _| cost(nodes.get(name)?));
        Self { tokens: worst_case.most(|name, _| nodes.get(name)?.tokens_max), cost_usd: usd(cost) }
    }
}

impl LargestNodes {
    fn of(nodes: &[PlannedNode]) -> Self {
        let most = |of: fn(&PlannedNode) -> u64| {
            // The first of several equal nodes.
            let most = nodes.iter().rev().max_by_key(|it| of(it)).filter(|it| of(it) > 0);
            most.map(|it| it.node.clone())
        };
        let dearest = nodes.iter().rev().filter(|it| it.cost_usd_max > Some(0.0));
        let dearest = dearest.max_by(|a, b| {
            let a = a.cost_usd_max.unwrap_or(0.0);
            let b = b.cost_usd_max.unwrap_or(0.0);
            a.total_cmp(&b)
        });
        Self {
            steps: most(|it| it.runs_max),
            calls: most(|it| it.calls_max.unwrap_or(0)),
            tokens: most(|it| it.tokens_max.unwrap_or(0)),
            cost_usd: dearest.map(|it| it.node.clone()),
            time_ms: most(|it| it.time_ms_max.unwrap_or(0)),
        }
    }
}

impl PlannedNode {
    fn new(node: NodeName, kind: &'static str, worst_case: &NodeWorstCase, rates: &Rates) -> Self {
        let NodeWorstCase { visits_max, is_dispatched, attempts_max, calls_max, time_max, why } =
            worst_case;
        let (tokens_max, cost_usd_max) = match calls_max {
            Some(0) => (Some(0), Some(0.0)),
            _ => (
                rates.tokens(&node, *visits_max, *attempts_max),
                rates.cost(&node, *visits_max, *attempts_max),
            ),
        };
        Self {
            node,
            kind,
            runs_max: *visits_max,
            attempts_max: *attempts_max,
            calls_max: *calls_max,
            tokens_max,
            cost_usd_max,
            time_ms_max: time_max.map(ms),
            is_per_item: *is_dispatched,
            why: why.to_string(),
        }
    }

    fn draw(&self, paint: Paint) -> Vec<String> {
        let items = |most: u64| {
            let items = if self.is_per_item && most > 0 { " × items" } else { "" };
            number(most) + items
        };
        vec![
            paint.strong(self.node.as_str()),
            items(self.runs_max),
            items(self.attempts_max),
            self.calls_max.map_or_else(|| "?".to_owned(), items),
            self.why.clone(),
        ]
    }
}

impl PlannedLimits {
    fn new(limits: &Limits) -> Self {
        Self {
            steps: limits.steps,
            calls: limits.calls,
            tokens: limits.tokens,
            usd: limits.usd,
            time_ms: limits.time.map(ms),
            exhausted: limits.exhausted.as_ref().map(ToString::to_string),
        }
    }
}

/// The parts of a US dollar in which costs are added.
const PARTS_OF_A_USD: f64 = 1e9;

/// Returns a cost in whole parts.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cost is not negative, and a larger one is the largest number"
)]
fn parts_of_usd(cost: f64) -> u64 {
    (cost * PARTS_OF_A_USD).ceil() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a cost is shown with a few digits")]
fn usd(parts: u64) -> f64 {
    parts as f64 / PARTS_OF_A_USD
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// Returns a value of every node, if it is known for all.
fn all<T>(nodes: &[PlannedNode], of: fn(&PlannedNode) -> Option<T>) -> Option<Vec<T>> {
    nodes.iter().map(of).collect()
}

fn number(most: u64) -> String {
    large(most, |it| it.to_string())
}

/// Formats a number, unless it is too large to be reached.
fn large(most: u64, form: fn(u64) -> String) -> String {
    if most == u64::MAX { "too many to count".to_owned() } else { form(most) }
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
