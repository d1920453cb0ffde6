//! `graphrun test [WORKFLOW…]`.

mod files;
mod report;

use std::path::PathBuf;

use tokio::runtime;

use self::report::{Report, TestedCase, TestedFile};
use super::{
    drive::to_json,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    prepare::refuse,
    terminal::print_result,
};
use crate::{cases::Suite, nodes::registry};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflows whose cases to run, or files of cases [default: every `*.test.yaml` below the
    /// current folder]
    #[arg(value_name = "WORKFLOW.yaml")]
    workflows: Vec<PathBuf>,
    /// Only the cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Say nothing of cases that pass
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the cases that are kept beside workflows: no models, no sandbox, nobody to ask.
pub(super) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("test", &[Output::Text, Output::Json, Output::Jsonl])?;
    let suites = load(args, globals)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        CliError::new(Exit::Unusable, "cannot start the program").because(error)
    })?;
    let mut report = Report::default();
    for suite in &suites {
        report.files.push(runtime.block_on(run_suite(suite, args)));
    }
    let cases: usize = report.files.iter().map(|it| it.cases.len()).sum();
    if cases == 0 {
        return Err(no_case(args));
    }
    let text = match globals.output {
        Output::Json => to_json(&report.to_json())?,
        Output::Jsonl => report.lines(),
        // The others were refused above.
        Output::Text | Output::Sarif | Output::Github => report.draw(args.quiet, globals.stdout),
    };
    print_result(&text).map_err(CliError::write)?;
    Ok(if report.failed() == 0 { Exit::Done } else { Exit::Failed })
}

/// Checks every file before the first case runs; a broken one does not hide the next.
fn load(args: &Args, globals: &Globals) -> Result<Vec<Suite>, CliError> {
    let mut suites = Vec::new();
    let mut refused: Option<CliError> = None;
    for path in files::find(&args.workflows)? {
        match Suite::load(&path, &registry()) {
            Ok((suite, _)) => suites.push(suite),
            Err(error) => {
                let error = refuse(&path, error);
                if let Some(before) = refused.replace(error) {
                    super::report(&before, globals.stderr);
                }
            }
        }
    }
    refused.map_or(Ok(suites), Err)
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
