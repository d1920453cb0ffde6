//! `graphrun fork RUN[@STEP]`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{
    diagnostics::draw_warnings,
    drive::{Begin, Run, block_on, print_report},
    error::CliError,
    execute::{OUT_DEFAULT, free_name, new_id, parse_id},
    exit::Exit,
    globals::{Globals, Output},
    origin::{Origin, RunOptions},
    prepare,
    report::RunReport,
    run_at::RunAt,
    set::{SetArgs, SetKind},
    terminal::{columns, say},
};
use crate::{
    checkpoint::{ForkedFrom, RunInfo},
    engine::{Answers, Engine, ReviseError, RunError},
    id::RunId,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run, and the step to begin from if not the last
    #[arg(value_name = "RUN[@STEP]")]
    run: RunAt,
    #[command(flatten)]
    set: SetArgs,
    /// Only make the new run; `resume` goes on with it
    #[arg(long)]
    no_run: bool,
    /// The folder for the files that the run writes [default: out/NAME of the run]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The id of the new run; without it graphrun makes one
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    run_id: Option<RunId>,
    #[command(flatten)]
    options: RunOptions,
}

/// Makes a new run of an old checkpoint and goes on with it; the old one stays as it is.
pub(super) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("fork", &[Output::Text, Output::Json, Output::Jsonl])?;
    let database = globals.database()?;
    let checkpointer = database.open_for(&args.run.run)?;
    block_on(async {
        let found = args.run.find(checkpointer.as_ref()).await?;
        let origin = Origin::of(&found.info)?;
        // Its recording is of that run alone.
        let started = RunOptions { record: None, ..origin.options.clone() };
        let origin = Origin { options: started, ..origin }.with_options(args.options);
        let loaded = prepare::load(&origin.workflow)
            .map_err(|it| it.with_exit(Exit::NotResumable))?
            .with(globals.settings(&origin.options)?);
        let workflow = &loaded.workflow;
        let set = args.set.read(&workflow.schema, SetKind::Whole)?;
        let title = workflow.name.clone();
        let name = free_name(checkpointer.as_ref()).await?;
        let out = args.out.unwrap_or_else(|| Path::new(OUT_DEFAULT).join(&name));
        let origin = Origin::new(&origin.workflow, &out, origin.options)?;
        let origin = origin.with_fields_of(workflow);
        let graph = if args.no_run {
            prepare::check(&origin.workflow).map_err(|it| prepare::refuse(&origin.workflow, it))?.0
        } else {
            let models = loaded.connect()?;
            loaded.check_out(&origin.out)?;
            let results = origin.options.cache(&loaded, &database)?;
            let (graph, warnings) = loaded.compile(models, &origin.out, results)?;
            if let Some(text) = draw_warnings(&warnings, globals.stderr, columns()) {
                say(&text);
            }
            graph
        };
        let id = args.run_id.map_or_else(new_id, Ok)?;
        let info = RunInfo {
            name: name.clone(),
            id: id.clone(),
            created: Timestamp::now().to_string(),
            origin: origin.to_json()?,
            ..RunInfo::new(title)
        };
        let from = ForkedFrom {
            run: found.info.id.clone(),
            name: found.info.name.clone(),
            step: found.position.step,
        };
        let engine = Engine::new(graph, checkpointer.clone());
        engine.fork(info, from, set).await.map_err(|error| {
            let is_over = matches!(error, RunError::Revise(ReviseError::AtItsEnd));
            let refused = CliError::from(error);
            let before = found.position.step.0.checked_sub(1).filter(|_| is_over);
            let before = before.map(|step| {
                format!("fork an earlier step, as in `graphrun fork {}@{step}`", found.info.name)
            });
            before.into_iter().fold(refused, CliError::with_help)
        })?;
        if args.no_run {
            let report = RunReport::read(checkpointer.as_ref(), &id, &database).await?;
            print_report(&report, globals, &database)?;
            return Ok(Exit::Done);
        }
        let run = Run { globals, database: &database, checkpointer, engine, id, name };
        run.drive(Begin::Resume(Answers::default())).await
    })
}
