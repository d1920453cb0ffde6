//! `graphrun resume RUN`, and the shared part of `approve` and `reject`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    answer::{self, AnswerFlag},
    diagnostics::print_warnings,
    drive::{Begin, Run},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    options::RunOptions,
    origin::Origin,
    prepare,
    runtime::block_on,
    who::who,
};
use crate::{
    checkpoint::{
        AskedQuestion, JournalEntry, OpenQuestion, SavedRun, asked_questions, open_questions,
        replaceable_questions,
    },
    engine::Answers,
};

/// Resume a run from its last checkpoint; finished work is never repeated
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
    /// The answer to an open question, by the key that `runs show` prints
    #[arg(long, value_name = "KEY=JSON")]
    answer: Vec<AnswerFlag>,
    /// Remove the breakpoints that the run was started with
    #[arg(long, conflicts_with_all = ["pause_before", "pause_after"])]
    no_pause: bool,
    #[command(flatten)]
    options: RunOptions,
}

impl Args {
    /// Resumes a run with its original options; flags replace them.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("resume", &[Output::Text, Output::Json, Output::Jsonl])?;
        let Self { run, answer, no_pause, options } = self;
        let answers = |open: &[OpenQuestion], asked: &[AskedQuestion]| {
            if answer.is_empty() { Ok(BTreeMap::new()) } else { answer::read(&answer, open, asked) }
        };
        let wanted = |origin: Origin| {
            let origin = if no_pause { origin.without_pauses() } else { origin };
            origin.with_options(options)
        };
        resume_run(&run, globals, wanted, answers)
    }
}

/// Resumes a run: `wanted` adjusts its options, and `answers` computes the answers from the open
/// questions and all questions.
pub(super) fn resume_run(
    run: &str,
    globals: &Globals,
    wanted: impl FnOnce(Origin) -> Origin,
    answers: impl FnOnce(&[OpenQuestion], &[AskedQuestion]) -> Result<BTreeMap<String, Value>, CliError>,
) -> Result<Exit, CliError> {
    drive_saved(run, globals, wanted, |saved, journal| {
        let asked = asked_questions(journal);
        let mut open = open_questions(&saved.position, &saved.records);
        open.extend(replaceable_questions(&saved.position, &saved.records, &asked));
        let by_name = answers(&open, &asked)?;
        Ok(Begin::Resume(Answers { by_name, by: Some(who()) }))
    })
}

/// Drives a saved run; `begin` is computed from the saved run.
pub(super) fn drive_saved(
    run: &str,
    globals: &Globals,
    wanted: impl FnOnce(Origin) -> Origin,
    begin: impl FnOnce(&SavedRun, &[JournalEntry]) -> Result<Begin, CliError>,
) -> Result<Exit, CliError> {
    let database = globals.database()?;
    let checkpointer = database.open_for(run)?;
    block_on(async {
        let info = checkpointer.find(run).await?.info;
        let origin = wanted(Origin::of(&info)?);
        let saved = checkpointer.load(&info.id).await?;
        let journal = checkpointer.outline(&info.id).await?;
        let begin = begin(&saved, &journal)?;
        // A workflow that no longer loads is not a usage error of `resume`.
        let broken = |error: CliError| {
            error
                .with_exit(Exit::NotResumable)
                .with_help("the run was started from this file; restore it to resume the run")
        };
        let settings = globals.settings(&origin.options)?;
        let loaded = prepare::load(&origin.workflow).map_err(broken)?.with(settings)?;
        let models = loaded.connect()?;
        loaded.check_out(&origin.out)?;
        let results = loaded.cache(&database)?;
        let graph = loaded.compile(models, &origin.out, results).map_err(broken)?;
        print_warnings(graph.warnings(), globals.stderr);
        let pauses = origin.options.pauses(&graph);
        let engine = globals.engine(graph, checkpointer.clone())?;
        let (id, name) = (info.id, info.name);
        let mut run = Run { globals, database: &database, checkpointer, engine, id, name };
        if pauses.is_err() {
            // The new version may have renamed the nodes of breakpoints, among others.
            run.check_changes().await?;
        }
        run.engine = run.engine.with_pauses(pauses?);
        run.drive(begin).await
    })
}
