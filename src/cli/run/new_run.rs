//! The common setup of every new run, from an input or from a checkpoint of another run.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    dependencies, drive::Run, loaded::LoadedWorkflow, names, origin::Origin,
    process_gone::process_gone, run_folders,
};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo},
    cli::{
        arguments::{globals::Globals, options::RunOptions},
        error::CliError,
        output::{diagnostics::print_warnings, words::shell_word},
        settings::database::{Database, OTHER_ID},
    },
    event::Status,
    id::RunId,
    nodes::ModelSource,
    state::Update,
    workflow::Workflow,
};

/// The parent folder of the output folders, if there is no `--out`.
const OUT_DEFAULT: &str = "out";

#[derive(Debug, clap::Args)]
pub(crate) struct NewRunArgs {
    /// The folder for the files that the run writes [default: out/NAME of the run]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The id of the run [default: a new one]
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    run_id: Option<RunId>,
}

/// Where runs are kept.
#[derive(Debug)]
pub(crate) struct RunStorage<'a> {
    pub(crate) globals: &'a Globals,
    pub(crate) database: &'a Database,
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
}

/// A workflow that is about to run from an input, with its models.
pub(crate) struct NewRun<'a> {
    pub(crate) path: &'a Path,
    pub(crate) loaded: LoadedWorkflow,
    pub(crate) models: Arc<dyn ModelSource>,
    pub(crate) options: RunOptions,
    /// The input, if it is known before the run is prepared.
    pub(crate) input: Option<&'a Update>,
}

/// How a run starts, for its origin.
pub(crate) struct NewOrigin<'a> {
    pub(crate) path: &'a Path,
    pub(crate) workflow: &'a Workflow,
    pub(crate) options: RunOptions,
    /// The thread that the run continues or begins.
    pub(crate) thread: Option<&'a str>,
    /// The input, if it is known before the run is prepared.
    pub(crate) input: Option<&'a Update>,
}

impl NewRunArgs {
    /// Returns the arguments of a run with this id.
    pub(crate) fn with_id(id: RunId) -> Self {
        Self { out: None, run_id: Some(id) }
    }

    /// Prepares a run, or the next turn of a thread, as far as its input.
    ///
    /// # Errors
    ///
    /// Fails when the database or the output folder cannot be used, or the workflow does not compile.
    pub(crate) async fn prepare<'g>(
        self,
        storage: &RunStorage<'g>,
        new: NewRun<'_>,
        thread: Option<&str>,
    ) -> Result<(Run<'g>, RunInfo), CliError> {
        let NewRun { path, loaded, models, options, input } = new;
        let RunStorage { globals, database, checkpointer } = storage;
        let globals = *globals;
        let database = *database;
        let checkpointer = Arc::clone(checkpointer);
        let workflow = &loaded.workflow;
        let new = NewOrigin { path, workflow, options, thread, input };
        let (origin, info) = self.create_origin(new, database, checkpointer.as_ref()).await?;
        let remedy = format!(
            "or install them by `graphrun prepare {}` with the same input",
            shell_word(&path.to_string_lossy())
        );
        dependencies::provide(&loaded, &info.id, &origin, Some(remedy)).await?;
        loaded.check_out(&origin.out)?;
        let services = loaded.services(models, database, globals)?;
        let reports = loaded.reports(&origin.out);
        let graph = loaded.compile(services, &origin.out)?;
        print_warnings(graph.warnings(), globals.stderr);
        let pauses = origin.options.pauses(&graph)?;
        let engine = globals.engine(graph, checkpointer.clone())?.with_breakpoints(pauses);
        let engine = engine.with_wait_max(origin.options.wait_max());
        let engine = origin.provide_folders(engine, &info.id);
        let engine = engine.provide(run_folders::homes(database, &info.id));
        let id = info.id.clone();
        let name = info.name.clone();
        let workflow = origin.workflow;
        Ok((Run { globals, database, checkpointer, engine, id, name, workflow, reports }, info))
    }

    /// Gives the run a name and an id, and saves how it was started. A thread that exists already keeps its name and id.
    pub(crate) async fn create_origin(
        self,
        new: NewOrigin<'_>,
        database: &Database,
        checkpointer: &dyn Checkpointer,
    ) -> Result<(Origin, RunInfo), CliError> {
        let NewOrigin { path, workflow, options, thread, input } = new;
        if let (Some(id), None) = (&self.run_id, thread) {
            require_free(id, database, checkpointer).await?;
        }
        let name = match thread {
            Some(thread) => match checkpointer.find(thread).await {
                Ok(found) => {
                    let next = NextTurn { path, workflow, out: self.out, options };
                    return next.of(found.info);
                }
                Err(CheckpointError::UnknownRun(_)) => thread.to_owned(),
                Err(error) => return Err(error.into()),
            },
            None => free_name(checkpointer).await?,
        };
        let out = match self.out {
            Some(out) => out,
            None => default_out(&name)?,
        };
        let id = self.run_id.unwrap_or_else(RunId::generate);
        let folders = match input {
            Some(input) => run_folders::find(workflow, input, &id, database).await?,
            None if workflow.folders.is_empty() => Vec::new(),
            None => return Err(without_input(workflow)),
        };
        let origin = Origin::new(path, &out, options)?.with_fields_of(workflow);
        let origin = Origin { folders, ..origin };
        let info = RunInfo {
            id,
            name,
            created: Timestamp::now().to_string(),
            origin: origin.to_json()?,
            ..RunInfo::new(workflow.name.clone())
        };
        Ok((origin, info))
    }
}

/// Returns the error for a run whose folders cannot be found, because its first input is unknown.
fn without_input(workflow: &Workflow) -> CliError {
    let message = format!(
        "the workflow `{}` has `folders`, which `fork` and `chat` do not support",
        workflow.name
    );
    CliError::usage(message).with_help("start a run with `graphrun execute`")
}

/// How the next turn of a thread starts: with its own options, like a new run.
struct NextTurn<'a> {
    path: &'a Path,
    workflow: &'a Workflow,
    /// The output folder, if it is not that of the turn before.
    out: Option<PathBuf>,
    options: RunOptions,
}

impl NextTurn<'_> {
    /// Returns the origin of the turn, and the properties of the thread with it.
    fn of(self, info: RunInfo) -> Result<(Origin, RunInfo), CliError> {
        let Self { path, workflow, out, options } = self;
        if info.workflow != workflow.name {
            return Err(CliError::usage(format!(
                "`{}` is a run of the workflow `{}`, not of `{}`",
                info.name, info.workflow, workflow.name
            ))
            .with_help("name another thread"));
        }
        let Origin { out: before, folders, .. } = Origin::of(&info)?;
        let origin = Origin::new(path, &out.unwrap_or(before), options)?.with_fields_of(workflow);
        let origin = Origin { folders, ..origin };
        let info = RunInfo { origin: origin.to_json()?, ..info };
        Ok((origin, info))
    }
}

/// Returns the default output folder of a run. A symbolic link of this name may have come with the
/// folder, so only the user may choose its target.
fn default_out(name: &str) -> Result<PathBuf, CliError> {
    let parent = Path::new(OUT_DEFAULT);
    if parent.is_symlink() {
        return Err(CliError::usage(format!(
            "`{OUT_DEFAULT}` is a symbolic link; nothing was started"
        ))
        .with_help("name a folder for the files of the run with `--out`"));
    }
    Ok(parent.join(name))
}

/// Fails if a run has this id, or has it as its name, before anything is prepared for a new one. The error has the command
/// for the run that exists.
async fn require_free(
    id: &RunId,
    database: &Database,
    checkpointer: &dyn Checkpointer,
) -> Result<(), CliError> {
    let found = match checkpointer.find(id.as_str()).await {
        Ok(found) => found,
        // The creation of the run fails if it exists and is damaged.
        Err(
            CheckpointError::UnknownRun(_)
            | CheckpointError::AmbiguousRun { .. }
            | CheckpointError::Damaged { .. },
        ) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let info = &found.info;
    // Other ids may begin with this one.
    if info.id != *id && info.name != id.as_str() {
        return Ok(());
    }
    let is_owned = found.status == Status::Running && process_gone(&found).is_none();
    // A route has ended it, so nothing is left to continue.
    let is_over = found.status == Status::Failed
        && checkpointer.load(&info.id).await?.position.frontier.is_empty();
    let (verb, what) = match found.status {
        Status::Done => ("runs show", "see its result"),
        Status::Failed if is_over => ("runs show", "see why it failed"),
        Status::Running if is_owned => ("runs show", "see its progress"),
        _ => ("resume", "continue it"),
    };
    let status = found.status.as_str();
    let workflow = &info.workflow;
    let message = format!("there is a run `{id}` already, of `{workflow}` ({status})");
    let database = database.clone().with_permissions_of(info);
    let command = database.command(verb, id.as_str());
    let help = command.map(|it| format!("{what} with: {it}"));
    let error = CliError::usage(message);
    Err(help.into_iter().fold(error, CliError::with_help).with_help(OTHER_ID))
}

/// Returns an unused name. If another process takes it meanwhile, the creation of the run fails.
async fn free_name(checkpointer: &dyn Checkpointer) -> Result<String, CliError> {
    let mut attempt = 0;
    loop {
        let name = names::speakable(attempt);
        match checkpointer.find(&name).await {
            Err(CheckpointError::UnknownRun(_)) => return Ok(name),
            // A damaged run also uses its name.
            Ok(_) | Err(CheckpointError::Damaged { .. }) => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the id of a thread, which is the name of its run.
pub(crate) fn parse_thread(text: &str) -> Result<String, String> {
    parse_id(text).map(|it| it.to_string())
}

fn parse_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text)
        .map_err(|error| format!("{error}; an id has up to 64 letters, digits, `_`, `-` or `.`"))
}
