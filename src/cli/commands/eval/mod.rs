//! `graphrun eval WORKFLOW TABLE`: runs a workflow on every row of a table, with several models and repetitions.
//!
//! Every run is an ordinary run in the database, whose id follows from the evaluation, its row, model and repetition.
//! Each result is a line of the file of results. So the same command continues an evaluation that was interrupted: a run
//! with a result is not run again, and a run without one is resumed.

mod compare;
mod results;
mod run;
mod summary;

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use self::{
    results::{Evaluation, Results},
    run::{Attempt, AttemptOutcome, Variant},
    summary::Summary,
};
use crate::{
    checkpoint::GraphOutline,
    cli::{
        allow::permission::Permission,
        arguments::{
            globals::{Globals, Output, Progress},
            input,
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        output::{
            diagnostics::print_warnings,
            json::to_json,
            terminal::{print_message, print_result},
            words::count,
        },
        process::{runtime::block_on, signals::Signal},
        run::{
            drive::listen,
            loaded::{self, refuse},
            new_run::RunStorage,
        },
        settings::database::Database,
    },
    engine::ShutdownHandle,
    state::{Schema, Type},
    workflow::{
        case_file::{Row, read_table},
        kind::suggestion,
    },
};

/// How many runs in a row may end without a result before no further one is started, unless more run at once.
const UNSETTLED_MAX: usize = 5;

/// Run a workflow on every row of a table, and compare models and versions
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    evaluate: EvaluateArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Compare(compare::Args),
}

#[derive(Debug, clap::Args)]
struct EvaluateArgs {
    /// The workflow to evaluate
    #[arg(value_name = "WORKFLOW.yaml", required = true)]
    workflow: Option<PathBuf>,
    /// The table: one JSON object a line, with `input`, and `expect` as in a test case
    #[arg(value_name = "TABLE.jsonl", required = true)]
    table: Option<PathBuf>,
    /// Evaluate it with each of these models, as in `openai/gpt-5,anthropic/claude-sonnet-4-5`
    #[arg(long, value_name = "MODEL", value_delimiter = ',', conflicts_with = "model")]
    models: Vec<String>,
    /// How often each row is run with each model
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// How many runs are at work at once
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// The file of results; a file that exists is continued [default: WORKFLOW.eval.jsonl]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// A number of the final state that says how good it is, as in `score` or `review.score`
    #[arg(long, value_name = "FIELD")]
    score: Option<String>,
    /// Fail if a model passes less than this percentage of its runs
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pass_min: Option<u8>,
    #[command(flatten)]
    options: RunOptions,
}

impl Args {
    /// Evaluates a workflow, or compares two files of results.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        match self.command {
            Some(Command::Compare(args)) => args.run(globals),
            None => self.evaluate.run(globals),
        }
    }
}

impl EvaluateArgs {
    /// Makes all static checks, runs the attempts without a result, and prints the summary.
    fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        let paths = self.workflow.as_deref().zip(self.table.as_deref());
        let (workflow, table) = paths.expect("both are required without a subcommand");
        globals.expect_output("eval", &[Output::Text, Output::Json, Output::Jsonl])?;
        let database = globals.database()?.with_permissions(Permission::of(&self.options));
        let rows = rows(workflow, table, globals)?;
        let variants = self.variants(workflow, globals)?;
        if let Some(score) = &self.score {
            check_score(score, &variants[0].loaded.workflow.schema)?;
        }
        let (path, is_named) = match &self.results {
            Some(path) => (path.clone(), true),
            None => (results_beside(workflow), false),
        };
        let evaluation = Evaluation {
            workflow: variants[0].loaded.workflow.name.clone(),
            fingerprint: fingerprint(workflow)?,
        };
        let results = Results::open(&path, is_named, &evaluation)?;
        let mut attempts = Vec::new();
        for row in &rows {
            for variant in &variants {
                for repeat in 1..=self.repeat {
                    let attempt = Attempt::new(&results, row, variant, repeat)?;
                    attempts.push(Arc::new(attempt));
                }
            }
        }
        block_on(async {
            let exit = self.evaluate(globals, &database, &results, &attempts).await?;
            let lines = attempts.iter().filter_map(|it| results.get(it)).collect();
            let summary = Summary::new(results.evaluation(), lines);
            match globals.output {
                Output::Json => print_result(&to_json(&summary)?),
                Output::Jsonl => Ok(()),
                Output::Text | Output::Sarif | Output::Github => {
                    print_result(&summary.draw(&database, globals.stdout))
                }
            }
            .map_err(CliError::write)?;
            let is_enough = self.pass_min.is_none_or(|it| summary.passes(it));
            Ok(exit.unwrap_or(if is_enough { Exit::Done } else { Exit::Failed }))
        })
    }

    /// Connects the models. With a recording, each run reads it from its beginning.
    fn variants(&self, workflow: &Path, globals: &Globals) -> Result<Vec<Arc<Variant>>, CliError> {
        let models: Vec<Option<String>> = match &*self.models {
            [] => vec![None],
            several => several.iter().cloned().map(Some).collect(),
        };
        let mut variants: Vec<Arc<Variant>> = Vec::new();
        for model in models {
            let options = RunOptions {
                model: model.clone().or_else(|| self.options.model.clone()),
                ..self.options.clone()
            };
            // A model that is named twice has one result for each row and repetition.
            if variants.iter().any(|it| it.options.model == options.model) {
                continue;
            }
            let settings = globals.settings(&options)?;
            let model = settings.options.model.clone();
            let loaded = loaded::load(workflow)?.with(settings)?;
            let models = loaded.connect()?;
            let path = workflow.to_owned();
            let score = self.score.clone();
            variants.push(Arc::new(Variant { path, options, model, loaded, models, score }));
        }
        Ok(variants)
    }

    /// Runs every attempt that has no result yet; returns an exit code if some have none in the end.
    async fn evaluate<'a>(
        &self,
        globals: &Globals,
        database: &Database,
        results: &Results,
        attempts: &'a [Arc<Attempt>],
    ) -> Result<Option<Exit>, CliError> {
        let open: Vec<&'a Arc<Attempt>> =
            attempts.iter().filter(|it| results.get(it).is_none()).collect();
        let known = attempts.len() - open.len();
        if known > 0 {
            let path = results.path().display();
            print_message(&format!("{known} of {} results are in `{path}`", attempts.len()));
        }
        if open.is_empty() {
            return Ok(None);
        }
        let checkpointer = database.create()?;
        let storage = RunStorage { globals, database, checkpointer };
        let stop = ShutdownHandle::default();
        let mut signals = listen()?;
        let mut first = None;
        let mut unsettled = None;
        // With a dead provider or a wrong key, all other runs would end as the last ones.
        let patience = usize::from(self.jobs).max(UNSETTLED_MAX);
        let in_a_row = Cell::new(0);
        let start = |attempt: &'a Arc<Attempt>| {
            let is_hopeless = in_a_row.get() >= patience;
            let storage = &storage;
            let stop = stop.clone();
            async move {
                if is_hopeless {
                    Ok(AttemptOutcome::NotStarted)
                } else {
                    attempt.run(storage, stop).await
                }
            }
        };
        let mut running = stream::iter(open).map(start).buffer_unordered(usize::from(self.jobs));
        let mut number = known;
        let mut left_out = 0_u64;
        loop {
            let judged = tokio::select! {
                judged = running.next() => judged,
                signal = signals.next() => {
                    if first.is_none() {
                        print_message(&globals.stderr.loud(signal.announcement()));
                        stop.drain();
                    } else {
                        stop.abort();
                    }
                    first = first.or(Some(signal));
                    continue;
                }
            };
            match judged.transpose()? {
                None => break,
                Some(AttemptOutcome::Result(line)) => {
                    in_a_row.set(0);
                    number += 1;
                    print_line(&format!("{number}/{}", attempts.len()), &line, globals)?;
                    results.append(*line)?;
                }
                Some(AttemptOutcome::Unsettled { exit, message }) => {
                    in_a_row.update(|it| it + 1);
                    unsettled = unsettled.or(Some(exit));
                    if first.is_none() {
                        print_message(&globals.stderr.loud(&message));
                    }
                }
                Some(AttemptOutcome::NotStarted) => left_out += 1,
            }
        }
        if left_out > 0 && first.is_none() {
            let runs = count(left_out, "run");
            let message = format!("{runs} not started: the last {patience} runs have no result");
            print_message(&globals.stderr.loud(&message));
        }
        if first.is_some() || unsettled.is_some() {
            print_message("the same command continues the evaluation");
        }
        Ok(first.map(Signal::exit).or(unsettled))
    }
}

/// Prints a result, and its number among all.
fn print_line(number: &str, line: &results::Line, globals: &Globals) -> Result<(), CliError> {
    if globals.output == Output::Jsonl {
        print_result(&(json!(line).to_string() + "\n")).map_err(CliError::write)?;
    }
    if globals.progress != Progress::Silent {
        print_message(&summary::line(number, line, globals.stderr));
    }
    Ok(())
}

/// Returns the fingerprint of a workflow, without the models of the command line.
fn fingerprint(path: &Path) -> Result<String, CliError> {
    let compiled = loaded::load(path)?.compile_only()?;
    Ok(GraphOutline::of(&compiled).fingerprint())
}

/// Reads the table. Every input and every expectation is checked before the first run.
fn rows(workflow: &Path, table: &Path, globals: &Globals) -> Result<Vec<Arc<run::Row>>, CliError> {
    let loaded = loaded::load(workflow)?;
    let workflow = loaded.workflow.clone();
    let graph = loaded.compile_only()?;
    let (rows, warnings) =
        read_table(table, &workflow, graph.definition()).map_err(|error| refuse(table, error))?;
    print_warnings(&warnings, globals.stderr);
    let mut problems = Vec::new();
    let mut checked = Vec::new();
    for Row { name, input, expect, span } in rows {
        match input::of_fields(&input, &workflow.schema, &workflow.input) {
            Ok(update) => checked.push(Arc::new(run::Row { name, input: update, expect })),
            Err(found) => {
                let (line, _) = span.line_and_column();
                let at = format!("{}:{line}: ", table.display());
                problems.extend(found.into_iter().map(|it| at.clone() + &it));
            }
        }
    }
    if problems.is_empty() {
        return Ok(checked);
    }
    Err(CliError::usage("the table does not fit the workflow; nothing was started")
        .with_problems(problems)
        .with_help("give each row the input of its run: `\"input\": {\"FIELD\": VALUE}`"))
}

/// Checks that a score leads to a number, as far as the types say.
fn check_score(score: &str, schema: &Schema) -> Result<(), CliError> {
    let mut names = score.split('.');
    let first = names.next().unwrap_or_default();
    let fields = schema.channels().iter().map(|it| it.name().as_str());
    let Some(field) = schema.channel(first) else {
        let help =
            suggestion(first, fields).unwrap_or_else(|| "the state has no fields".to_owned());
        return Err(CliError::usage(format!("`--score` names no field: there is no `{first}`"))
            .with_help(help));
    };
    let mut ty = field.ty();
    let mut path = first.to_owned();
    for name in names {
        ty = match ty.required() {
            Type::Any => return Ok(()),
            Type::Map(value) => value,
            record => record.field(name).ok_or_else(|| {
                CliError::usage(format!(
                    "`--score` leads nowhere: `{path}`, a {record}, has no `{name}`"
                ))
            })?,
        };
        path = format!("{path}.{name}");
    }
    match ty.required() {
        Type::Int(_) | Type::Float(_) | Type::Any => Ok(()),
        other => Err(CliError::usage(format!("`--score` needs a number: `{path}` is a {other}"))),
    }
}

/// Returns the file of results for a workflow, if none is named.
fn results_beside(workflow: &Path) -> PathBuf {
    let stem = workflow.file_stem().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!("{stem}.eval.jsonl"))
}
