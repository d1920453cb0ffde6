//! `graphrun resume RUN`, and the shared part of `approve`, `reject` and `retry`.

mod due;

use std::collections::BTreeMap;

use serde_json::Value;

use self::due::DueCheck;
use crate::{
    checkpoint::{
        AskedQuestion, GraphOutline, JournalEntry, OpenQuestion, SavedRun, asked_questions,
        open_questions, replaceable_questions,
    },
    cli::{
        arguments::{
            globals::{Globals, Output},
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        output::{diagnostics::print_warnings, terminal::print_message},
        people::{
            answer::{self, AnswerFlag},
            person::who,
            questions::QuestionLine,
            stdin_lines::StdinLines,
        },
        process::runtime::block_on,
        run::{
            dependencies,
            drive::{Begin, Run},
            loaded,
            origin::Origin,
            run_folders,
            stopped::StoppedRun,
        },
        settings::database::Database,
    },
    engine::Answers,
};

/// Resume a run from its last checkpoint; finished work is never repeated
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name or the id of the run
    #[arg(required_unless_present = "due")]
    run: Option<String>,
    /// Resume only paused runs whose wait or deadline is over; all of them if no run is named
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

/// A saved run that a command continues.
#[derive(Debug)]
pub(crate) struct ResumedRun<'a> {
    /// Its name or its id.
    pub(crate) run: &'a str,
    pub(crate) globals: &'a Globals,
    pub(crate) lines: &'a mut StdinLines,
}

impl Args {
    /// Resumes a run with its original options; flags replace them.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("resume", &[Output::Text, Output::Json, Output::Jsonl])?;
        let Self { run, due, answer, no_pause, options } = self;
        let answers = |open: &[OpenQuestion], asked: &[AskedQuestion], _: &Database| {
            if answer.is_empty() { Ok(BTreeMap::new()) } else { answer::read(&answer, open, asked) }
        };
        let mut lines = StdinLines::default();
        let mut resume = |run: &str| {
            let options = options.clone();
            let wanted = |origin: Origin| {
                let origin = if no_pause { origin.without_pauses() } else { origin };
                origin.with_options(options)
            };
            ResumedRun { run, globals, lines: &mut lines }.resume(wanted, answers)
        };
        match run {
            Some(run) if due => match due::check(&run, globals)? {
                DueCheck::Due => resume(&run)?.print(globals),
                DueCheck::NotDue(exit) => Ok(exit),
            },
            Some(run) => resume(&run)?.print(globals),
            None => due::resume_all(globals, resume),
        }
    }
}

impl ResumedRun<'_> {
    /// Resumes the run: `wanted` adjusts its options, and `answers` computes the answers from the open
    /// questions and all questions.
    pub(crate) fn resume(
        self,
        wanted: impl FnOnce(Origin) -> Origin,
        answers: impl FnOnce(
            &[OpenQuestion],
            &[AskedQuestion],
            &Database,
        ) -> Result<BTreeMap<String, Value>, CliError>,
    ) -> Result<StoppedRun, CliError> {
        let Self { run, globals, .. } = self;
        self.drive(wanted, |saved, journal, database| {
            let asked = asked_questions(journal);
            let mut open = open_questions(&saved.position, &saved.records);
            open.extend(replaceable_questions(&saved.position, &saved.records, &asked));
            let by_name = answers(&open, &asked, database)?;
            let message = show_answers(&open, &by_name, run, globals)?;
            Ok((Begin::Resume(Answers { by_name, by: Some(who()) }), message))
        })
    }

    /// Drives the run; `begin` is computed from the saved run, with a message that is printed before the run begins.
    pub(crate) fn drive(
        self,
        wanted: impl FnOnce(Origin) -> Origin,
        begin: impl FnOnce(
            &SavedRun,
            &[JournalEntry],
            &Database,
        ) -> Result<(Begin, Vec<String>), CliError>,
    ) -> Result<StoppedRun, CliError> {
        let Self { run, globals, lines } = self;
        let database = globals.database()?;
        let checkpointer = database.open_for(run)?;
        block_on(async {
            let info = checkpointer.find(run).await?.info;
            let origin = wanted(Origin::of(&info)?);
            let database = database.with_permissions(origin.permissions.clone());
            let saved = checkpointer.load(&info.id).await?;
            let journal = checkpointer.journal_without_values(&info.id).await?;
            let (begin, message) = begin(&saved, &journal, &database)?;
            // A workflow that no longer loads is not a usage error of `resume`.
            let broken = |error: CliError| {
                error
                    .with_exit(Exit::NotResumable)
                    .with_help("the run was started from this file; restore it to resume the run")
            };
            let settings = globals.settings(&origin.options)?;
            let loaded = loaded::load(&origin.workflow).map_err(broken)?.with(settings)?;
            let models = loaded.connect()?;
            // `graphrun prepare` reads the current commit, and this run may have started from an earlier one.
            dependencies::provide(&loaded, &info.id, &origin, None).await?;
            loaded.check_out(&origin.out)?;
            let services = loaded.services(models, &database, globals)?;
            let reports = loaded.reports(&origin.out);
            let graph = loaded.compile(services, &origin.out).map_err(broken)?;
            // The command that started the run has printed the warnings of an unchanged workflow.
            if info.graph.as_deref() != Some(&GraphOutline::of(&graph)) {
                print_warnings(graph.warnings(), globals.stderr);
            }
            let pauses = origin.options.pauses(&graph);
            let engine = globals.engine(graph, checkpointer.clone())?;
            let engine = engine.with_wait_max(origin.options.wait_max());
            let engine = origin.provide_folders(engine, &info.id);
            let engine = engine.provide(run_folders::homes(&database, &info.id));
            let id = info.id;
            let name = info.name;
            let database = &database;
            let workflow = origin.workflow.clone();
            let mut run =
                Run { globals, database, checkpointer, engine, id, name, workflow, reports };
            if pauses.is_err() {
                // The new version may have renamed the nodes of breakpoints, among others.
                run.check_compatibility().await?;
            }
            run.engine = run.engine.with_breakpoints(pauses?);
            for line in message {
                print_message(&line);
            }
            run.drive_and_report(begin, lines).await
        })
    }
}

/// Returns each answer below its question, so that a person sees what an approval was given to.
fn show_answers(
    open: &[OpenQuestion],
    by_name: &BTreeMap<String, Value>,
    run: &str,
    globals: &Globals,
) -> Result<Vec<String>, CliError> {
    let whole = globals.database_to_read()?.command("runs export", run);
    let answered = open.iter().filter_map(|question| {
        let answer = by_name.get(&question.name)?;
        let question = QuestionLine::from(question.clone());
        let lines = question.text().draw_answer(answer, whole.as_deref(), globals.stderr);
        Some(lines.join("\n"))
    });
    Ok(answered.collect())
}
