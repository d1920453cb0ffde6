//! `graphrun render WORKFLOW NODE`.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::{Map, Value};

use crate::{
    checkpoint::{Activation, Checkpoint, Position},
    cli::{
        arguments::{
            globals::{Globals, Output},
            input::{self, InputFlag},
            options::outer_node,
            run_at::RunAt,
        },
        error::CliError,
        exit::Exit,
        output::{json::to_json, terminal::print_result, words::count},
        process::runtime::block_on,
        run::loaded,
    },
    compile::CompiledGraph,
    diagnostic::did_you_mean,
    engine::machine::{FirstStep, Machine, RunSettings, Task},
    graph::{
        Edge, Input, NodeContext, NodeError, ProvidedValues, Reporter, RouteView, RunFacts,
        SavedValues, Target, Transition, Trigger,
    },
    id::{NodeName, RunId, Step, TaskId},
};

/// Print what a node makes of its templates: for an agent, what its model is asked
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflow
    workflow: PathBuf,
    /// The node; a node of a used workflow is NODE.INNER
    #[arg(value_parser = parse_node)]
    node: NodeName,
    /// The run, by name or id, whose state the node reads
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// The step before which the state is taken: step 1 begins with the input [default: the last
    /// one in which the node runs]
    #[arg(long, value_name = "N", requires = "run", conflicts_with = "input", value_parser = clap::value_parser!(u64).range(1..))]
    step: Option<u64>,
    /// The item of a map, counted from zero
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    item: usize,
    /// Without a run, an input field: KEY=VALUE, KEY=@FILE, or @FILE.json for several
    #[arg(short, long, value_name = "KEY=VALUE", conflicts_with = "run")]
    input: Vec<InputFlag>,
}

/// A checkpoint before a step in which the node runs.
struct RenderPoint {
    run: RunId,
    checkpoint: Checkpoint,
}

impl Args {
    /// Prints the rendered templates. It asks no model, runs no node, and changes no run.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("render", &[Output::Text, Output::Json])?;
            let graph =
                loaded::check(&self.workflow).map_err(|it| loaded::refuse(&self.workflow, it))?;
            if graph.node(&self.node).is_none() {
                return Err(unknown(&self.node, &graph));
            }
            let point = match &self.run {
                Some(run) => self.of_run(run, &graph, globals).await?,
                None => self.of_start(&graph)?,
            };
            let preview = self.preview(&graph, point)?;
            let text = match globals.output {
                Output::Json => to_json(&preview)?,
                _ => drawn(&preview)?,
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }

    /// Returns the state of a run before the step.
    async fn of_run(
        &self,
        run: &str,
        graph: &CompiledGraph,
        globals: &Globals,
    ) -> Result<RenderPoint, CliError> {
        let checkpointer = globals.database_to_read()?.open_for(run)?;
        let summary = checkpointer.find(run).await?;
        let info = &summary.info;
        let node = &self.node;
        if info.workflow != graph.definition().name {
            let theirs = &info.workflow;
            let ours = &graph.definition().name;
            let message =
                format!("`{}` is a run of the workflow `{theirs}`, not of `{ours}`", info.name);
            return Err(CliError::usage(message).with_help("name its workflow, or another run"));
        }
        let at = |step| RunAt { run: run.to_owned(), step: Some(Step(step)) };
        let mut found = match self.step {
            Some(step) if step > summary.step.0 + 1 => {
                let message = format!("`{}` has no step {step}", info.name);
                let help = format!("the next one is {}", summary.step.next());
                return Err(CliError::usage(message).with_help(help));
            }
            Some(step) => at(step - 1).find(checkpointer.as_ref()).await?,
            None => at(summary.step.0).find(checkpointer.as_ref()).await?,
        };
        let is_next = |position: &Position| position.frontier.iter().any(|it| it.node == *node);
        if self.step.is_none() && !is_next(&found.position) {
            let records = checkpointer.records(&info.id).await?;
            let last = records.iter().filter(|it| it.node == *node).map(|it| it.task.step.0).max();
            let Some(last) = last else {
                let message = format!("`{node}` has not run in `{}`", info.name);
                let help = "render it without `--run`, on an input; or name another run";
                return Err(CliError::usage(message).with_help(help));
            };
            found = at(last.saturating_sub(1)).find(checkpointer.as_ref()).await?;
        }
        if !is_next(&found.position) {
            let step = found.position.step.next();
            let next: Vec<_> = found.position.frontier.iter().map(|it| it.node.as_str()).collect();
            let next = if next.is_empty() { "no node runs".to_owned() } else { next.join(", ") };
            let message = format!("`{node}` does not run in step {step} of `{}`", info.name);
            let help = format!("in this step: {next}; omit `--step` for the last one of the node");
            return Err(CliError::usage(message).with_help(help));
        }
        let state = graph.schema().restore(found.values).map_err(|error| {
            CliError::new(Exit::NotResumable, "the state of the run does not fit the workflow")
                .because(error)
        })?;
        let checkpoint = Checkpoint { position: found.position, state };
        Ok(RenderPoint { run: info.id.clone(), checkpoint })
    }

    /// Returns the state at the start of a run with the input, with the node next.
    fn of_start(&self, graph: &CompiledGraph) -> Result<RenderPoint, CliError> {
        let input = input::read(&self.input, graph.schema(), &graph.definition().input)?;
        let run = RunId::parse("render").expect("it is a valid id");
        let begun = Machine::start(graph.clone(), RunSettings::default(), run.clone(), input);
        let FirstStep { machine, .. } = begun.map_err(|error| {
            CliError::usage("the input does not fit the workflow").because(error)
        })?;
        let mut position = machine.position();
        position.frontier = match dispatches(graph, &machine, &self.node)? {
            Some(tasks) => tasks,
            None => vec![Activation::by_edge(self.node.clone(), Trigger::Start)],
        };
        let state = machine.state().as_ref().clone();
        Ok(RenderPoint { run, checkpoint: Checkpoint { position, state } })
    }

    fn preview(
        &self,
        graph: &CompiledGraph,
        point: RenderPoint,
    ) -> Result<Map<String, Value>, CliError> {
        let (node, RenderPoint { run, checkpoint }) = (&self.node, point);
        let step = checkpoint.position.step.next();
        let frontier = &checkpoint.position.frontier;
        let tasks = (0..).zip(frontier).filter(|(_, it)| it.node == *node);
        let tasks: Vec<TaskId> = tasks.map(|(index, _)| TaskId { step, index }).collect();
        let Some(&task) = tasks.get(self.item) else {
            let message = format!(
                "`{node}` has {} there, counted from zero",
                count(tasks.len() as u64, "item")
            );
            return Err(CliError::usage(message).with_help("name one of them with `--item`"));
        };
        // The rules alone know the facts, the visits and the trigger of a task.
        let machine =
            Machine::restore(graph.clone(), RunSettings::default(), run.clone(), checkpoint.into());
        let (machine, _) = machine.map_err(|error| {
            CliError::new(Exit::NotResumable, "the run does not fit the workflow").because(error)
        })?;
        let Some(task) = machine.task(task) else {
            let message = format!("`{node}` is skipped there: its `when` does not hold");
            return Err(CliError::usage(message)
                .with_help("take an input, or the state of a run, in which it runs"));
        };
        let spec = graph.node(node).expect("the caller has checked that it exists");
        let preview = spec.node().preview(&context(run, graph, task)).map_err(|error| {
            let message = format!("`{node}` cannot be rendered in this state");
            let NodeError::Failed(failure) = error else { return CliError::usage(message) };
            CliError::usage(format!("{message}: {}", failure.message))
                .with_help("take the state of a run in which the node runs: `--run RUN`")
        })?;
        if preview.is_empty() {
            let message = format!("`{node}` is `{}` and has no template", spec.describe().kind);
            return Err(CliError::usage(message));
        }
        Ok(preview)
    }
}

/// Returns the items that a route dispatches to the node in this state, if it runs for items.
fn dispatches(
    graph: &CompiledGraph,
    machine: &Machine,
    node: &NodeName,
) -> Result<Option<Vec<Activation>>, CliError> {
    for edge in &graph.definition().edges {
        let Edge::Route { from, route, .. } = edge else { continue };
        let choices = route.choices().unwrap_or_default();
        let is_for_it = |it: &Target| it.node() == Some(node);
        if !choices.iter().any(|it| it.is_dispatched && it.to.iter().any(is_for_it)) {
            continue;
        }
        let trigger = Trigger::Then { node: from.clone() };
        let position = machine.position();
        let visits = position.visits.into_iter().collect();
        let decided = route.decide(&RouteView {
            state: machine.state(),
            visits: &visits,
            input: &Input::State,
            trigger: &trigger,
            facts: &RunFacts::default(),
        });
        let decided = decided.map_err(|error| {
            let message = format!("the items of `{node}` are not known at the start of a run");
            CliError::usage(message)
                .because(error)
                .with_help("take the state of a run in which the node runs: `--run RUN`")
        })?;
        let items = decided.into_iter().filter_map(|transition| match transition {
            Transition::Dispatch(dispatch) if dispatch.node == *node => Some(Activation {
                node: dispatch.node,
                input: Input::Value(dispatch.input),
                trigger: trigger.clone(),
                timeout_ms: dispatch.timeout_ms,
            }),
            _ => None,
        });
        return Ok(Some(items.collect()));
    }
    Ok(None)
}

fn context(run: RunId, graph: &CompiledGraph, task: Task) -> NodeContext {
    let policies = graph.node(&task.node).map(|it| &it.policies);
    let reporter = Reporter::default();
    NodeContext {
        run,
        task: TaskId { step: task.id.step, index: 0 },
        original: None,
        attempt: task.attempt,
        max_visits: policies.and_then(|it| it.bounds.max_visits_in(&task.state)),
        began: task.began,
        timeout: policies.and_then(|it| it.attempts.timeout),
        idle_timeout: policies.and_then(|it| it.attempts.idle_timeout),
        node: task.node,
        visits: task.visits,
        state: task.state,
        input: task.input,
        trigger: task.trigger,
        facts: task.facts,
        answers: task.answers,
        memos: SavedValues::default(),
        cancel: reporter.cancel(),
        reporter,
        provided: ProvidedValues::default(),
    }
}

fn unknown(node: &NodeName, graph: &CompiledGraph) -> CliError {
    let names: Vec<&str> = graph.definition().nodes.keys().map(NodeName::as_str).collect();
    let outer = outer_node(node.as_str(), graph.definition().nodes.keys());
    let help = match (did_you_mean(node.as_str(), names.iter().copied()), outer) {
        (Some(name), _) => format!("did you mean `{name}`?"),
        (None, Some(outer)) => {
            format!("`{outer}` runs it in a nested run: render it with the used file")
        }
        (None, None) => "`graphrun graph` shows the nodes".to_owned(),
    };
    CliError::usage(format!("there is no node `{node}`")).with_help(help)
}

/// Draws each part below a line with its name: texts as they are, and other values as JSON.
fn drawn(preview: &Map<String, Value>) -> Result<String, CliError> {
    let mut drawn = String::new();
    for (name, value) in preview {
        let text = match value {
            Value::String(text) => text.clone(),
            other => to_json(other)?,
        };
        let gap = if drawn.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        _ = writeln!(drawn, "{gap}--- {name} ---\n{}", text.trim_end_matches('\n'));
    }
    Ok(drawn)
}

fn parse_node(text: &str) -> Result<NodeName, String> {
    NodeName::parse_path(text).map_err(|it| it.to_string())
}
