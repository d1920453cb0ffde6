//! `graphrun resume RUN`.

use std::collections::BTreeMap;

use super::{
    answer::{self, AnswerFlag},
    diagnostics::draw_warnings,
    drive::{Begin, Run, block_on},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    origin::{Origin, RunOptions},
    prepare,
    report::open_questions,
    terminal::{columns, say},
};
use crate::engine::Engine;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
    /// The answer to an open question
    #[arg(long, value_name = "KEY=JSON")]
    answer: Vec<AnswerFlag>,
    #[command(flatten)]
    options: RunOptions,
}

/// Goes on with a run as it was started, save for what the flags say otherwise.
pub(super) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("resume", &[Output::Text, Output::Json, Output::Jsonl])?;
    let database = globals.database()?;
    let checkpointer = database.open_for(&args.run)?;
    block_on(async {
        let info = checkpointer.find(&args.run).await?.info;
        let origin = Origin::of(&info)?.with_options(args.options);
        let saved = checkpointer.load(&info.id).await?;
        let answers = if args.answer.is_empty() {
            BTreeMap::new()
        } else {
            answer::read(&args.answer, &open_questions(&saved.records))?
        };
        // A workflow that does not load any more is no wrong usage of `resume`.
        let broken = |error: CliError| {
            error.with_exit(Exit::NotResumable).with_help(
                "the run was started from this file; with the file as it was, it goes on",
            )
        };
        let loaded = prepare::load(&origin.workflow).map_err(broken)?.with_options(&origin.options);
        let models = loaded.connect(&origin.options)?;
        loaded.check_out(&origin.out)?;
        let results = origin.options.cache(&loaded, &database)?;
        let (graph, warnings) = loaded.compile(models, &origin.out, results).map_err(broken)?;
        if let Some(text) = draw_warnings(&warnings, globals.stderr, columns()) {
            say(&text);
        }
        let engine = Engine::new(graph, checkpointer.clone());
        let (id, name) = (info.id, info.name);
        let run = Run { globals, database: &database, checkpointer, engine, id, name };
        run.drive(Begin::Resume(answers)).await
    })
}
