//! `graphrun plan WORKFLOW`.

use std::path::PathBuf;

use serde::Serialize;

use super::{
    drive::to_json,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    prepare::{check, refuse},
    terminal::{Paint, print_result},
    words::{cost, count, duration, table, tokens},
};
use crate::{
    compile::{CompiledGraph, Envelope, NodeEnvelope},
    draw::Drawing,
    graph::{Limits, Target},
    id::NodeName,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflow to plan
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
}

/// The worst case of a workflow, as a program reads it.
#[derive(Debug, Serialize)]
struct Plan {
    workflow: String,
    steps_max: u64,
    /// Calls of models by the nodes that say how many they make; for nodes that are dispatched
    /// to, of one item.
    calls_max: u64,
    /// The nodes that do not say how many calls they make.
    calls_unknown: Vec<NodeName>,
    /// Unknown before a run: that depends on the sizes of prompts and answers.
    tokens_max: Option<u64>,
    /// Unknown before a run, as tokens are.
    cost_usd_max: Option<f64>,
    limits: PlannedLimits,
    warnings: Vec<String>,
    nodes: Vec<PlannedNode>,
}

#[derive(Debug, Serialize)]
struct PlannedLimits {
    steps: u64,
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
    /// Whether the numbers are those of one item, of which there may be several in a step.
    is_per_item: bool,
    why: String,
}

/// Says what a run of a workflow can take at most, and which bounds say so.
pub(super) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("plan", &[Output::Text, Output::Json])?;
    let (compiled, _) = check(&args.workflow).map_err(|it| refuse(&args.workflow, it))?;
    let plan = Plan::of(&compiled);
    let text = match globals.output {
        Output::Json => to_json(&plan)?,
        // The others were refused above.
        Output::Text | Output::Jsonl | Output::Sarif | Output::Github => plan.draw(globals.stdout),
    };
    print_result(&text).map_err(CliError::write)?;
    Ok(Exit::Done)
}

impl Plan {
    fn of(compiled: &CompiledGraph) -> Self {
        let graph = compiled.graph();
        let Envelope { steps_max, mut nodes } = Envelope::of(compiled);
        let order = Drawing::of(graph).nodes;
        let nodes: Vec<PlannedNode> = order
            .into_iter()
            .filter_map(|drawn| {
                let envelope = nodes.remove(&drawn.name)?;
                Some(PlannedNode::new(drawn.name, drawn.kind.unwrap_or_default(), &envelope))
            })
            .collect();
        let calls = nodes.iter().filter_map(|it| it.calls_max);
        let unknown = nodes.iter().filter(|it| it.calls_max.is_none()).map(|it| it.node.clone());
        Self {
            workflow: graph.name.clone(),
            steps_max,
            calls_max: calls.fold(0, u64::saturating_add),
            calls_unknown: unknown.collect(),
            tokens_max: None,
            cost_usd_max: None,
            limits: PlannedLimits::new(&graph.limits),
            warnings: warning(steps_max, &graph.limits).into_iter().collect(),
            nodes,
        }
    }

    fn draw(&self, paint: Paint) -> String {
        let title = ["NODE", "RUNS", "ATTEMPTS", "MODEL CALLS", "WHY"];
        let mut rows = vec![title.map(|it| paint.faint(it)).to_vec()];
        rows.extend(self.nodes.iter().map(|it| it.draw(paint)));
        let limits = &self.limits;
        let totals = [
            ("super-steps", number(self.steps_max), Some(limits.steps.to_string())),
            ("model calls", self.calls(), None),
            ("tokens", "?".to_owned(), limits.tokens.map(tokens)),
            ("cost", "?".to_owned(), limits.usd.map(|it| cost(Some(it)))),
            ("time", "?".to_owned(), limits.time_ms.map(duration)),
        ];
        let totals = totals.map(|(name, most, limit)| {
            let limit = limit.map(|it| format!("limit: {it}")).unwrap_or_default();
            vec![paint.faint(name), most, limit]
        });
        let mut text = format!("{}\n{}", table(&rows), table(&totals));
        for warning in &self.warnings {
            text.extend([&paint.loud("warning:"), " ", warning, "\n"]);
        }
        text
    }

    /// The calls of models that are known, and what is not in them.
    fn calls(&self) -> String {
        let mut calls = number(self.calls_max);
        if self.nodes.iter().any(|it| it.is_per_item && it.calls_max != Some(0)) {
            calls += " for one item of each";
        }
        if !self.calls_unknown.is_empty() {
            let names: Vec<String> =
                self.calls_unknown.iter().map(|it| format!("`{it}`")).collect();
            calls.extend([" and those of ", &names.join(", ")]);
        }
        calls
    }
}

impl PlannedNode {
    fn new(node: NodeName, kind: &'static str, envelope: &NodeEnvelope) -> Self {
        let NodeEnvelope { visits_max, is_dispatched, attempts_max, calls_max, why } = envelope;
        Self {
            node,
            kind,
            runs_max: *visits_max,
            attempts_max: *attempts_max,
            calls_max: *calls_max,
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
        let time_ms = |it: std::time::Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        Self {
            steps: limits.steps,
            tokens: limits.tokens,
            usd: limits.usd,
            time_ms: limits.time.map(time_ms),
            exhausted: limits.exhausted.as_ref().map(ToString::to_string),
        }
    }
}

/// What the limit of steps does to the worst case, if it does anything.
fn warning(steps_max: u64, limits: &Limits) -> Option<String> {
    if steps_max <= limits.steps {
        return None;
    }
    let then = match &limits.exhausted {
        Some(Target::Node(node)) => format!("goes on to `{node}`"),
        Some(Target::End) => "ends".to_owned(),
        Some(Target::Fail) => "fails".to_owned(),
        None => "stops, and can be resumed with a higher limit".to_owned(),
    };
    let steps = count(limits.steps, "super-step");
    Some(format!("the worst case is beyond `limits.steps`: after {steps} a run {then}"))
}

/// A number, unless it is too large to count.
fn number(most: u64) -> String {
    if most == u64::MAX { "beyond counting".to_owned() } else { most.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Why;

    fn node(name: &str, is_dispatched: bool, calls_max: Option<u64>) -> PlannedNode {
        let why = Why::Rounds { max_visits: 2, bought: Vec::new(), after_limit: false };
        let node =
            NodeEnvelope { visits_max: 2, is_dispatched, attempts_max: u64::MAX, calls_max, why };
        PlannedNode::new(NodeName::parse(name).unwrap(), "node", &node)
    }

    #[test]
    fn what_is_not_known_is_never_shown_as_nothing() {
        let plan = Plan {
            workflow: "odd".into(),
            steps_max: u64::MAX,
            calls_max: 12,
            calls_unknown: vec![NodeName::parse("own").unwrap()],
            tokens_max: None,
            cost_usd_max: None,
            limits: PlannedLimits::new(&Limits::default()),
            warnings: warning(u64::MAX, &Limits::default()).into_iter().collect(),
            nodes: vec![node("own", false, None), node("map", true, Some(12))],
        };
        insta::assert_snapshot!(plan.draw(Paint::new(false)), @r"
        NODE  RUNS       ATTEMPTS                 MODEL CALLS  WHY
        own   2          beyond counting          ?            2 visits
        map   2 × items  beyond counting × items  12 × items   2 visits

        super-steps  beyond counting                             limit: 100
        model calls  12 for one item of each and those of `own`
        tokens       ?
        cost         ?
        time         ?
        warning: the worst case is beyond `limits.steps`: after 100 super-steps a run stops, and can be resumed with a higher limit
        ");
    }

    #[test]
    fn a_warning_says_what_becomes_of_the_run() {
        let limits = |exhausted| Limits { steps: 1, exhausted, ..Limits::default() };
        assert_eq!(warning(1, &limits(None)), None);
        let flush = Target::Node(NodeName::parse("flush").unwrap());
        for (exhausted, end) in [
            (None, "after 1 super-step a run stops, and can be resumed with a higher limit"),
            (Some(Target::Fail), "after 1 super-step a run fails"),
            (Some(Target::End), "after 1 super-step a run ends"),
            (Some(flush), "after 1 super-step a run goes on to `flush`"),
        ] {
            assert!(warning(2, &limits(exhausted)).unwrap().ends_with(end), "{end}");
        }
    }
}
