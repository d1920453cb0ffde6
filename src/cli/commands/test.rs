//! `graphrun test [WORKFLOW…]`.

pub(super) mod coverage;
mod files;
mod report;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::runtime;

use self::{
    coverage::ExploredWorkflow,
    files::{TestFiles, is_same_file},
    report::{Report, TestedCase, TestedFile},
};
use crate::{
    cases::{self, Coverage, Effort, ExplorationResult, Suite, explore},
    cli::{
        arguments::{
            globals::{Globals, Output, Progress},
            values::parse_duration,
        },
        error::CliError,
        exit::Exit,
        output::{
            diagnostics::print_warnings,
            json::to_json,
            terminal::{print_over, print_result},
            words::count,
        },
        run::loaded::refuse,
    },
    compile::CompiledGraph,
    diagnostic::Diagnostics,
    workflow::{LoadError, Workflow},
};

/// Run the test cases beside workflows, without models and without a sandbox
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflows to test, files of test cases, or folders with them [default: every
    /// `*.test.yaml` below the current folder]
    #[arg(value_name = "WORKFLOW.yaml|FOLDER")]
    workflows: Vec<PathBuf>,
    /// Run only the test cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print no line for test cases that pass
    #[arg(short, long)]
    quiet: bool,
    /// Print the edges, routes, failure routes and bounds that no test case takes
    #[arg(long)]
    coverage: bool,
    /// Fail if the coverage is below this percentage
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    coverage_min: Option<u8>,
    /// Try every outcome of every node; needs no test cases
    #[arg(long)]
    explore: bool,
    /// The most states to explore
    #[arg(long, value_name = "STATES", default_value_t = STATES_MAX, requires = "explore")]
    explore_max: usize,
    /// The longest exploration of one workflow
    #[arg(long, value_name = "DURATION", default_value = TIME_MAX, requires = "explore",
          value_parser = parse_duration)]
    explore_time: Duration,
}

/// The default limit of explored states: some seconds.
const STATES_MAX: usize = 100_000;
/// The default time limit of the exploration.
const TIME_MAX: &str = "1m";
/// The interval between progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

impl Args {
    /// Runs the test cases beside workflows, and explores the outcomes that they do not cover: without
    /// models, sandbox and terminal.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("test", &[Output::Text, Output::Json, Output::Jsonl])?;
        let loaded = load(self, globals)?;
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                CliError::new(Exit::Unusable, "cannot start the program").because(error)
            })?;
        let is_covered = self.coverage || self.coverage_min.is_some();
        let mut report = Report::default();
        for suite in &loaded.suites {
            let file = runtime.block_on(run_suite(suite, self));
            if is_covered {
                report.cover(&suite.workflow, suite.coverage(file.cases.iter().map(|it| &it.ran)));
            }
            report.files.push(file);
        }
        if report.cases().next().is_none() && !self.explore {
            return Err(no_case(self));
        }
        for (path, definition, compiled) in &loaded.to_explore {
            if is_covered {
                // A workflow without test cases counts, too.
                report.cover(path, Coverage::of(definition, compiled.definition()));
            }
            let effort = Effort { states_max: self.explore_max, time_max: Some(self.explore_time) };
            let mut last_shown = Instant::now();
            let is_shown = globals.progress == Progress::Tree;
            let explored = explore(definition, compiled, effort, |so_far| {
                if is_shown && last_shown.elapsed() >= PROGRESS_INTERVAL {
                    last_shown = Instant::now();
                    print_over(&how_far(so_far));
                }
            });
            if is_shown {
                print_over("");
            }
            report.explored.push(ExploredWorkflow { workflow: path.clone(), result: explored });
        }
        let text = match globals.output {
            Output::Json => to_json(&report.to_json())?,
            Output::Jsonl => report.lines(),
            // The other formats were refused above.
            Output::Text | Output::Sarif | Output::Github => {
                report.draw(self.quiet, globals.stdout)
            }
        };
        print_result(&text).map_err(CliError::write)?;
        let enough = self.coverage_min.is_none_or(|it| report.covers(usize::from(it)));
        Ok(if report.is_fine() && enough { Exit::Done } else { Exit::Failed })
    }
}

/// `exploring: 1,200 states, 40,000 steps`
fn how_far(explored: &ExplorationResult) -> String {
    let states = explored.states as u64;
    let steps = explored.steps as u64;
    format!("exploring: {}, {}", count(states, "state"), count(steps, "step"))
}

/// The loaded and checked files.
#[derive(Debug, Default)]
struct TestPlan {
    suites: Vec<Suite>,
    to_explore: Vec<(PathBuf, Workflow, CompiledGraph)>,
    /// The warnings about the test cases.
    warnings: Diagnostics,
}

impl TestPlan {
    fn take(&mut self, found: &TestFiles, args: &Args) -> Result<(), (PathBuf, LoadError)> {
        let registry = crate::cli::registry();
        let mut workflow = found.workflow.clone();
        if let Some(path) = &found.cases {
            let (suite, warnings) =
                Suite::load(path, &registry).map_err(|error| (path.clone(), error))?;
            workflow.get_or_insert_with(|| suite.workflow.clone());
            self.suites.push(suite);
            self.warnings.extend(warnings);
        }
        let is_new =
            |path: &PathBuf| self.to_explore.iter().all(|(it, ..)| !is_same_file(it, path));
        if let Some(path) = workflow.filter(|it| args.explore && is_new(it)) {
            let loaded = cases::load(&path, &registry).map_err(|error| (path.clone(), error))?;
            self.to_explore.push((path, loaded.0, loaded.1));
        }
        Ok(())
    }
}

/// Checks every file before the first case runs; a broken file does not hide errors of the next.
fn load(args: &Args, globals: &Globals) -> Result<TestPlan, CliError> {
    let mut loaded = TestPlan::default();
    let mut refused: Option<CliError> = None;
    let found = if args.explore {
        files::find(&args.workflows)?
    } else {
        files::find_cases(&args.workflows)?
    };
    for found in found {
        if let Err((path, error)) = loaded.take(&found, args) {
            let error = refuse(&path, error);
            if let Some(before) = refused.replace(error) {
                crate::cli::report(&before, globals.stderr);
            }
        }
    }
    print_warnings(&loaded.warnings, globals.stderr);
    refused.map_or(Ok(loaded), Err)
}

async fn run_suite(suite: &Suite, args: &Args) -> TestedFile {
    let mut cases = Vec::new();
    for case in &suite.cases {
        let is_wanted = args.filter.as_ref().is_none_or(|it| case.name.contains(it.as_str()));
        if is_wanted {
            cases.push(TestedCase { name: case.name.clone(), ran: suite.run(case).await });
        }
    }
    TestedFile { path: suite.path.clone(), workflow: suite.workflow.clone(), cases }
}

fn no_case(args: &Args) -> CliError {
    let text = args.filter.as_deref().unwrap_or_default();
    CliError::usage(format!("no case has `{text}` in its name; nothing was run"))
        .with_help("without `--filter` all of them run")
}
