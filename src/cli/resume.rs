//! `graphrun resume RUN`, and the shared part of `approve` and `reject`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    answer::{self, AnswerFlag},
    dependencies,
    diagnostics::print_warnings,
    drive::{Begin, Run},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    options::RunOptions,
    origin::Origin,
    prepare,
    questions::QuestionLine,
    run_folders,
    runtime::block_on,
    terminal::print_message,
    who::who,
};
use crate::{
    checkpoint::{
        self, AskedQuestion, CheckpointError, Checkpointer, JournalEntry, OpenQuestion, RunSummary,
        SavedRun, asked_questions, open_questions, replaceable_questions,
    },
    engine::Answers,
    event::Status,
};

/// Resume a run from its last checkpoint; finished work is never repeated
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    #[arg(required_unless_present = "due")]
    run: Option<String>,
    /// Resume only what can continue by itself: paused runs whose wait or deadline is over; all of
    /// them, if no run is named
    #[arg(long, conflicts_with = "answer")]
    due: bool,
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
        let Self { run, due, answer, no_pause, options } = self;
        let runs = match run {
            Some(run) if !due => vec![run],
            run => match Due::find(run.as_deref(), globals)? {
                Due::Now(runs) => runs,
                Due::Later(exit) => return Ok(exit),
            },
        };
        let answers = |open: &[OpenQuestion], asked: &[AskedQuestion]| {
            if answer.is_empty() { Ok(BTreeMap::new()) } else { answer::read(&answer, open, asked) }
        };
        let mut exit = Exit::Done;
        for run in runs {
            let options = options.clone();
            let wanted = |origin: Origin| {
                let origin = if no_pause { origin.without_pauses() } else { origin };
                origin.with_options(options)
            };
            let ended = resume_run(&run, globals, wanted, answers)?;
            exit = if exit == Exit::Done { ended } else { exit };
            if matches!(ended, Exit::Interrupted | Exit::Terminated) {
                return Ok(ended);
            }
        }
        Ok(exit)
    }
}

/// The runs that can continue by themselves.
enum Due {
    Now(Vec<String>),
    /// None can continue yet, or at all.
    Later(Exit),
}

impl Due {
    /// Finds the paused runs whose wait is over, or checks the named one.
    fn find(run: Option<&str>, globals: &Globals) -> Result<Self, CliError> {
        let database = globals.database()?;
        block_on(async {
            let now = Timestamp::now();
            if let Some(run) = run {
                let checkpointer = database.open_for(run)?;
                let found = checkpointer.find(run).await?;
                let due = next_due(checkpointer.as_ref(), &found).await?;
                if due.is_some_and(|it| it <= now) {
                    return Ok(Self::Now(vec![run.to_owned()]));
                }
                let status = found.status.as_str();
                print_message(&match due {
                    Some(due) => format!("run {} waits until {due:.0}", found.info.name),
                    None => format!("run {} is {status} and waits for no time", found.info.name),
                });
                return Ok(Self::Later(Exit::of(found.status)));
            }
            let Some(checkpointer) = database.open()? else {
                database.named_absence().iter().for_each(|it| print_message(it));
                return Ok(Self::Later(Exit::Done));
            };
            let mut runs = Vec::new();
            for id in checkpointer.ids().await? {
                let found = match checkpointer.find(id.as_str()).await {
                    Ok(found) => found,
                    // A damaged run cannot continue, and must not keep others from it.
                    Err(CheckpointError::Damaged { .. }) => continue,
                    Err(error) => return Err(error.into()),
                };
                let due = next_due(checkpointer.as_ref(), &found).await?;
                if due.is_some_and(|it| it <= now) {
                    runs.push(id.to_string());
                }
            }
            if runs.is_empty() {
                print_message("no run is due");
            }
            // The oldest run comes first.
            runs.reverse();
            Ok(Self::Now(runs))
        })
    }
}

/// Returns when a run can continue by itself, if it is paused.
async fn next_due(
    checkpointer: &dyn Checkpointer,
    found: &RunSummary,
) -> Result<Option<Timestamp>, CliError> {
    if found.status != Status::Paused {
        return Ok(None);
    }
    Ok(checkpoint::next_due(&checkpointer.records(&found.info.id).await?))
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
        print_answers(&open, &by_name, run, globals)?;
        Ok(Begin::Resume(Answers { by_name, by: Some(who()) }))
    })
}

/// Prints each answer below its question, so that a person sees what an approval was given to.
fn print_answers(
    open: &[OpenQuestion],
    by_name: &BTreeMap<String, Value>,
    run: &str,
    globals: &Globals,
) -> Result<(), CliError> {
    let whole = globals.database_to_read()?.command("runs export", run);
    for question in open {
        let Some(answer) = by_name.get(&question.question.key) else { continue };
        let question = QuestionLine::from(question.clone());
        let lines = question.text().draw_answer(answer, whole.as_deref(), globals.stderr);
        print_message(&lines.join("\n"));
    }
    Ok(())
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
        let database = database.with_permissions_of(&origin.options);
        let saved = checkpointer.load(&info.id).await?;
        let journal = checkpointer.journal_without_values(&info.id).await?;
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
        let folders = (&info.id, &origin.folders[..]);
        // `graphrun prepare` reads the current commit, and this run may have started from an earlier one.
        dependencies::provide(&loaded.workflow, folders, &origin.options, None).await?;
        loaded.check_out(&origin.out)?;
        let services = (loaded.cache(&database)?, loaded.memory(globals)?);
        let reports = loaded.reports(&origin.out);
        let graph = loaded.compile(models, &origin.out, services).map_err(broken)?;
        print_warnings(graph.warnings(), globals.stderr);
        let pauses = origin.options.pauses(&graph);
        let engine = globals.engine(graph, checkpointer.clone())?;
        let engine = engine.with_wait_max(origin.options.wait_max());
        let engine = origin.provide_folders(engine, &info.id);
        let engine = engine.provide(run_folders::homes(&database, &info.id));
        let (id, name) = (info.id, info.name);
        let mut run = Run { globals, database: &database, checkpointer, engine, id, name, reports };
        if pauses.is_err() {
            // The new version may have renamed the nodes of breakpoints, among others.
            run.check_compatibility().await?;
        }
        run.engine = run.engine.with_breakpoints(pauses?);
        run.drive(begin).await
    })
}
