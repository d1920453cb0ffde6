//! `graphrun fork RUN[@STEP]`.

use crate::{
    checkpoint::ForkSource,
    cli::{
        allow::permission::Permission,
        arguments::{
            globals::{Globals, Output},
            options::RunOptions,
            run_at::{RunAt, RunSnapshot},
            set::{SetArgs, SetKind},
        },
        error::CliError,
        exit::Exit,
        output::{
            diagnostics::print_warnings, report::RunReport, run_result::print_new_report,
            terminal::print_message, words::shell_word,
        },
        people::stdin_lines::StdinLines,
        process::runtime::block_on,
        run::{
            drive::{Begin, Run},
            loaded::{self, LoadedWorkflow},
            new_run::{NewOrigin, NewRunArgs},
            origin::Origin,
            run_folders,
        },
        settings::database::Database,
    },
    compile::CompiledGraph,
    engine::{Answers, ReviseError, RunError},
};

/// Start a new run from an old checkpoint, optionally with a changed state
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run by name or id, and the step to start from [default: its last step]
    #[arg(value_name = "RUN[@STEP]")]
    run: RunAt,
    #[command(flatten)]
    set: SetArgs,
    /// Create the new run without running it; `resume` continues it
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    new: NewRunArgs,
    #[command(flatten)]
    options: RunOptions,
}

impl Args {
    /// Creates a new run from an old checkpoint and runs it; the old run stays unchanged.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("fork", &[Output::Text, Output::Json, Output::Jsonl])?;
        let database = globals.database()?.with_permissions(Permission::of(&self.options));
        let checkpointer = database.open_for(&self.run.run)?;
        block_on(async {
            let found = self.run.find(checkpointer.as_ref()).await?;
            // The command that continues it needs them.
            let database =
                if self.no_run { database.with_permissions_of(&found.info) } else { database };
            let origin = Origin::of(&found.info)?;
            // A recording belongs to the old run only.
            let started = RunOptions { record: None, ..origin.options.clone() };
            let origin = Origin { options: started, ..origin }.with_options(self.options);
            let loaded = loaded::load(&origin.workflow)
                .map_err(|it| it.with_exit(Exit::NotResumable))?
                .with(globals.settings(&origin.options)?)?;
            let workflow = &loaded.workflow;
            let set = self.set.read(&workflow.schema, SetKind::Whole)?;
            let path = &*origin.workflow;
            let options = origin.options;
            let new = NewOrigin { path, workflow, options, thread: None, input: None };
            let (origin, info) =
                self.new.create_origin(new, &database, checkpointer.as_ref()).await?;
            let reports = loaded.reports(&origin.out);
            let graph = if self.no_run {
                loaded::check(&origin.workflow)
                    .map_err(|it| loaded::refuse(&origin.workflow, it))?
            } else {
                connect(loaded, &origin, &database, globals)?
            };
            let id = info.id.clone();
            let name = info.name.clone();
            // A thread may be forked at the end of a turn, where nothing is left to run.
            let has_ended = found.position.frontier.is_empty();
            let from = ForkSource {
                run: found.info.id.clone(),
                name: found.info.name.clone(),
                step: found.position.step,
            };
            let pauses = origin.options.pauses(&graph)?;
            let engine = globals.engine(graph, checkpointer.clone())?.with_breakpoints(pauses);
            let engine = engine.with_wait_max(origin.options.wait_max());
            let engine = engine.provide(run_folders::homes(&database, &id));
            engine.fork(info, from, set).await.map_err(|error| refused(error, &found))?;
            if self.no_run || has_ended {
                let report = RunReport::read(checkpointer.as_ref(), &id, &database).await?;
                print_new_report(&report, globals, &database)?;
                let verb =
                    format!("execute {} --thread", shell_word(&origin.workflow.to_string_lossy()));
                if has_ended && let Some(turn) = database.command(&verb, &name) {
                    print_message(&format!("next turn: {}", globals.stderr.command(&turn)));
                }
                return Ok(Exit::Done);
            }
            let database = &database;
            let workflow = origin.workflow;
            let run = Run { globals, database, checkpointer, engine, id, name, workflow, reports };
            let begin = Begin::Resume(Answers::default());
            run.drive_and_report(begin, &mut StdinLines::default()).await?.print(globals)
        })
    }
}

/// Returns the graph of a run that starts at once.
fn connect(
    loaded: LoadedWorkflow,
    origin: &Origin,
    database: &Database,
    globals: &Globals,
) -> Result<CompiledGraph, CliError> {
    let models = loaded.connect()?;
    loaded.check_out(&origin.out)?;
    let services = loaded.services(models, database, globals)?;
    let graph = loaded.compile(services, &origin.out)?;
    print_warnings(graph.warnings(), globals.stderr);
    Ok(graph)
}

fn refused(error: RunError, found: &RunSnapshot) -> CliError {
    let is_over = matches!(error, RunError::Revise(ReviseError::AtItsEnd));
    let refused = CliError::from(error);
    let before = found.position.step.0.checked_sub(1).filter(|_| is_over);
    let before = before.map(|step| {
        format!("fork an earlier step, as in `graphrun fork {}@{step}`", found.info.name)
    });
    before.into_iter().fold(refused, CliError::with_help)
}
