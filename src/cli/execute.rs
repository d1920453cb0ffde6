//! `graphrun execute WORKFLOW`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ulid::Ulid;

use super::{
    diagnostics::draw_warnings,
    drive::{Begin, Run, block_on},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    input::{self, InputFlag},
    names,
    origin::{Origin, RunOptions},
    prepare,
    terminal::{columns, say},
};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo},
    engine::Engine,
    id::{NameError, RunId},
};

/// The folder that holds a folder for each run, where `--out` names none.
pub(super) const OUT_DEFAULT: &str = "out";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflow to run
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// A field of the input: KEY=VALUE, KEY=@FILE for a text in a file, or @FILE.json for several
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<InputFlag>,
    /// The folder for the files that the run writes [default: out/NAME of the run]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The id of the run; without it graphrun makes one
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    run_id: Option<RunId>,
    #[command(flatten)]
    options: RunOptions,
}

/// Checks everything that can be checked, then runs the workflow.
pub(super) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("execute", &[Output::Text, Output::Json, Output::Jsonl])?;
    let database = globals.database()?;
    let loaded = prepare::load(&args.workflow)?.with(globals.settings(&args.options)?);
    let workflow = &loaded.workflow;
    let input = input::read(&args.input, &workflow.schema, &workflow.input)?;
    let title = workflow.name.clone();
    let models = loaded.connect()?;
    block_on(async {
        let checkpointer = database.create()?;
        let name = free_name(checkpointer.as_ref()).await?;
        let out = args.out.unwrap_or_else(|| Path::new(OUT_DEFAULT).join(&name));
        let origin = Origin::new(&args.workflow, &out, args.options)?;
        let origin = origin.with_fields_of(&loaded.workflow);
        loaded.check_out(&origin.out)?;
        let results = origin.options.cache(&loaded, &database)?;
        let (graph, warnings) = loaded.compile(models, &origin.out, results)?;
        if let Some(text) = draw_warnings(&warnings, globals.stderr, columns()) {
            say(&text);
        }
        let id = args.run_id.map_or_else(new_id, Ok)?;
        let info = RunInfo {
            id: id.clone(),
            name: name.clone(),
            created: Timestamp::now().to_string(),
            origin: origin.to_json()?,
            ..RunInfo::new(title)
        };
        let pauses = origin.options.pauses(&graph)?;
        let engine = Engine::new(graph, checkpointer.clone()).with_pauses(pauses);
        let engine = globals.lease()?.into_iter().fold(engine, Engine::with_lease);
        let run = Run { globals, database: &database, checkpointer, engine, id, name };
        run.drive(Begin::Start(Box::new(info), input)).await
    })
}

/// A name that no run has yet. Should another process take it meanwhile, the run is refused.
pub(super) async fn free_name(checkpointer: &dyn Checkpointer) -> Result<String, CliError> {
    let mut attempt = 0;
    loop {
        let name = names::speakable(attempt);
        match checkpointer.find(&name).await {
            Err(CheckpointError::UnknownRun(_)) => return Ok(name),
            Err(error) => return Err(error.into()),
            Ok(_) => attempt += 1,
        }
    }
}

pub(super) fn new_id() -> Result<RunId, CliError> {
    RunId::parse(&Ulid::new().to_string())
        .map_err(|error| CliError::usage("cannot make an id").because(error))
}

pub(super) fn parse_id(text: &str) -> Result<RunId, NameError> {
    RunId::parse(text)
}
