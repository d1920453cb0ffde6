//! `graphrun execute WORKFLOW`.

use std::path::PathBuf;

use crate::cli::{
    allow::permission::Permission,
    arguments::{
        globals::{Globals, Output},
        input::{self, InputFlag},
        options::RunOptions,
    },
    error::CliError,
    exit::Exit,
    people::stdin_lines::StdinLines,
    process::runtime::block_on,
    run::{
        drive::Begin,
        loaded,
        new_run::{NewRun, NewRunArgs, RunStorage, parse_thread},
    },
};

/// Run a workflow to its end, its first question or its first limit
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflow to run
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// A field of the input: KEY=VALUE, KEY=@FILE for a text or an attachment in a file,
    /// KEY=@FILE.jsonl for a list with an item in each line, or @FILE.json for several;
    /// the file `-` is stdin
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<InputFlag>,
    /// Add a turn to this thread: the input goes to the state that its earlier turns have left; the
    /// first turn starts a run with this name
    #[arg(long, value_name = "ID", value_parser = parse_thread, conflicts_with = "run_id")]
    thread: Option<String>,
    /// Wait until the other turns of the thread have ended, instead of refusing this one
    #[arg(long, requires = "thread")]
    queue: bool,
    #[command(flatten)]
    new: NewRunArgs,
    #[command(flatten)]
    options: RunOptions,
}

impl Args {
    /// Makes all static checks, then runs the workflow.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("execute", &[Output::Text, Output::Json, Output::Jsonl])?;
        let database = globals.database()?.with_permissions(Permission::of(&self.options));
        let loaded = loaded::load(&self.workflow)?.with(globals.settings(&self.options)?)?;
        let workflow = &loaded.workflow;
        let input = input::read(&self.input, &workflow.schema, &workflow.input)?;
        let models = loaded.connect()?;
        block_on(async {
            let path = &*self.workflow;
            let options = self.options;
            let new = NewRun { path, loaded, models, options, input: Some(&input) };
            let thread = self.thread.as_deref();
            let checkpointer = database.create()?;
            let storage = RunStorage { globals, database: &database, checkpointer };
            let (run, info) = self.new.prepare(&storage, new, thread).await?;
            let info = Box::new(info);
            let begin = match self.thread {
                Some(_) => Begin::Turn { info, input, is_queued: self.queue },
                None => Begin::Start(info, input),
            };
            run.drive_and_report(begin, &mut StdinLines::default()).await?.print(globals)
        })
    }
}
