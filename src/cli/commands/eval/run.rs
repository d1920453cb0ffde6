//! One run of an evaluation, and its result.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;

use super::{
    AbortOnDropHandle,
    results::{Line, Results, digest},
};
use crate::{
    cases,
    checkpoint::SavedRun,
    cli::{
        arguments::options::RunOptions,
        error::CliError,
        exit::Exit,
        output::{report::RunReport, terminal::print_message},
        run::{
            drive::unwind,
            loaded::LoadedWorkflow,
            new_run::{NewRun, NewRunArgs, RunStorage},
            report_files::WriteOccasion,
        },
    },
    engine::{Answers, RunError, ShutdownHandle},
    event::Status,
    id::RunId,
    nodes::ModelSource,
    state::Update,
    workflow::case_file::Expectation,
};

/// A row of the table, checked.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) input: Update,
    pub(super) expect: Option<Expectation>,
}

/// The workflow with one of the models.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) path: PathBuf,
    pub(super) options: RunOptions,
    /// The model of all agents; without it, each has the one that the workflow names.
    pub(super) model: Option<String>,
    pub(super) loaded: LoadedWorkflow,
    pub(super) models: Arc<dyn ModelSource>,
    /// The path of a number in the final state.
    pub(super) score: Option<String>,
}

/// A row with a model, for the nth time.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) row: Arc<Row>,
    pub(super) variant: Arc<Variant>,
    pub(super) repeat: u32,
    /// The run, in this evaluation only.
    pub(super) id: RunId,
    /// What the result was compared with.
    pub(super) expected: String,
}

/// What became of an attempt.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// It has a result.
    Result(Box<Line>),
    /// Its run can continue, and has no result yet.
    Unsettled { exit: Exit, message: String },
    /// The evaluation was interrupted before.
    NotStarted,
}

impl Attempt {
    /// Creates an attempt of an evaluation.
    pub(super) fn new(
        results: &Results,
        row: &Arc<Row>,
        variant: &Arc<Variant>,
        repeat: u32,
    ) -> Result<Self, CliError> {
        let of = (results.id(), &row.name, &row.input, &variant.model, repeat);
        let id = RunId::parse(&format!("eval-{}", digest(&of)?))
            .expect("a digest has letters and digits only");
        let expected = digest(&(format!("{:?}", row.expect), &variant.score))?;
        let row = Arc::clone(row);
        let variant = Arc::clone(variant);
        Ok(Self { row, variant, repeat, id, expected })
    }

    /// Returns the number of the final state that says how good it is.
    fn score(&self, saved: &SavedRun) -> Option<f64> {
        let mut path = self.variant.score.as_deref()?.split('.');
        let field = saved.values.get(path.next()?)?;
        path.try_fold(field, |value, name| value.get(name)).and_then(Value::as_f64)
    }
}

impl Attempt {
    /// Starts or resumes its run, and judges it.
    pub(super) async fn run(
        &self,
        storage: &RunStorage<'_>,
        stop: ShutdownHandle,
    ) -> Result<AttemptOutcome, CliError> {
        if stop.is_requested() {
            return Ok(AttemptOutcome::NotStarted);
        }
        let Variant { path, options, loaded, models, .. } = &*self.variant;
        let models = match options.replay {
            Some(_) => loaded.connect()?,
            None => Arc::clone(models),
        };
        let new = NewRun {
            path,
            loaded: loaded.clone(),
            models,
            options: options.clone(),
            input: Some(&self.row.input),
        };
        let id = &self.id;
        let input = self.row.input.clone();
        let is_new = storage.checkpointer.find(id.as_str()).await.is_err();
        let (run, info) =
            NewRunArgs::with_id(id.clone()).prepare(storage, new, Some(id.as_str())).await?;
        let engine = run.engine.clone();
        let run_id = id.clone();
        // On another thread than the other runs.
        let driving = AbortOnDropHandle::new(tokio::spawn(async move {
            if is_new {
                engine.run(input).with_info(info).with_shutdown(&stop).await
            } else {
                engine.resume(&run_id).with_answers(Answers::default()).with_shutdown(&stop).await
            }
        }));
        match driving.await.unwrap_or_else(unwind) {
            Ok(_) | Err(RunError::AlreadyEnded(_)) => (),
            Err(error) => return Err(error.into()),
        }
        for warning in
            run.reports.write(storage.checkpointer.as_ref(), id, WriteOccasion::Stop).await
        {
            let line = format!("warning: {warning}");
            print_message(&storage.globals.stderr.loud(&line));
        }
        self.judge(storage).await
    }

    async fn judge(&self, storage: &RunStorage<'_>) -> Result<AttemptOutcome, CliError> {
        let Self { row, variant, id, .. } = self;
        let report = RunReport::read(storage.checkpointer.as_ref(), id, storage.database).await?;
        let is_awaited = row.expect.as_ref().is_some_and(|it| it.status.value == Status::Paused);
        // A result says something about the workflow; these say something about today.
        let exit = match report.status {
            // A question with a deadline; the row ends with the question.
            Status::Paused if is_awaited && !report.questions.is_empty() => None,
            Status::Interrupted | Status::Running => Some(Exit::Interrupted),
            Status::Paused if report.due.is_some() => Some(Exit::Paused),
            _ => Some(report.exit()).filter(|it| *it == Exit::Unusable),
        };
        if let Some(exit) = exit {
            let reason = report.reason.as_deref().unwrap_or("it was interrupted");
            let message = format!("`{}` has no result yet: {reason}", row.name);
            return Ok(AttemptOutcome::Unsettled { exit, message });
        }
        let saved = storage.checkpointer.load(id).await?;
        let (problems, rounds) =
            cases::judge(row.expect.as_ref(), storage.checkpointer.as_ref(), &saved).await?;
        let line = Line {
            row: row.name.clone(),
            model: variant.model.clone(),
            repeat: self.repeat,
            run: id.clone(),
            expected: self.expected.clone(),
            passed: problems.is_empty(),
            problems,
            status: report.status,
            rounds,
            score: self.score(&saved),
            usage: report.usage,
            ms: saved.position.used.elapsed_ms,
        };
        Ok(AttemptOutcome::Result(Box::new(line)))
    }
}
