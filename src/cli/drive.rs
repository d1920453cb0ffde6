//! Runs an engine at a terminal: shows events, handles signals, asks questions.

use std::{panic, sync::Arc, time::Duration};

use tokio::{
    task::JoinError,
    time::{MissedTickBehavior, interval},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    answer::{self, AskOutcome},
    database::Database,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output, Progress},
    json::to_json,
    migrate,
    origin::Origin,
    progress::{Caption, Views},
    report::RunReport,
    report_files::{Moment, ReportFiles},
    signals::{Signal, Signals},
    summary,
    terminal::{print_message, print_result},
    who::who,
    words::count,
};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo, open_questions},
    engine::{Answers, Engine, ReviseError, RunEnd, RunError, ShutdownHandle},
    event::{Deltas, EventSink, MessageDelta, Status},
    id::{NodeName, RunId},
    state::Update,
};

/// How often the live view updates the elapsed time.
const TICK: Duration = Duration::from_millis(100);

/// The most pieces of answers that are shown before an event.
const DELTAS_AT_ONCE_MAX: usize = 1024;

/// A run and its engine.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) globals: &'a Globals,
    pub(super) database: &'a Database,
    pub(super) checkpointer: Arc<dyn Checkpointer>,
    pub(super) engine: Engine,
    pub(super) id: RunId,
    pub(super) name: String,
    pub(super) reports: ReportFiles,
}

/// A run that stopped or suspended in this process.
#[derive(Debug)]
pub(super) struct StoppedRun {
    pub(super) report: RunReport,
    pub(super) exit: Exit,
    database: Database,
}

/// How a run starts in this process.
#[derive(Debug)]
pub(super) enum Begin {
    /// A new run, with its input.
    Start(Box<RunInfo>, Update),
    /// A turn of the thread that has the name of this run, with its input.
    Turn(Box<RunInfo>, Update),
    /// From its last checkpoint, with answers.
    Resume(Answers),
    /// With the failed tasks; with those of one node only, if one is named.
    Retry(Option<NodeName>),
}

/// Listens to the signals that stop a run.
///
/// # Errors
///
/// Fails when the system refuses.
pub(super) fn listen() -> Result<Signals, CliError> {
    Signals::listen()
        .map_err(|error| CliError::new(Exit::Unusable, "cannot listen to signals").because(error))
}

/// Resumes the panic of a task; tasks that are awaited are never cancelled.
pub(super) fn unwind<T>(error: JoinError) -> T {
    match error.try_into_panic() {
        Ok(panic) => panic::resume_unwind(panic),
        Err(error) => panic!("the run was dropped while it was waited for: {error}"),
    }
}

impl Run<'_> {
    /// Drives the run until it stops or suspends without a question to ask here, and returns its
    /// report.
    pub(super) async fn drive(&self, begin: Begin) -> Result<StoppedRun, CliError> {
        let is_turn = matches!(begin, Begin::Turn(..));
        let (end, stopped) = self.drive_to_stop(begin, &mut listen()?).await?;
        self.warn_of_late_messages(end.as_ref()).await?;
        // Another process can continue a thread, and no other run. Without a thread, the report reads the state again, so this
        // copy is dropped.
        self.report(end.filter(|_| is_turn).as_ref(), stopped).await
    }

    /// Drives the run until it stops or suspends without a question to ask here.
    pub(super) async fn drive_to_stop(
        &self,
        mut begin: Begin,
        signals: &mut Signals,
    ) -> Result<(Option<RunEnd>, Option<Signal>), CliError> {
        let mut stopped = None;
        loop {
            let (end, signal) = self.drive_once(begin, signals).await?;
            stopped = stopped.or(signal);
            let waits = end.as_ref().is_some_and(|it| !it.questions.is_empty());
            if !waits || stopped.is_some() || !self.globals.can_ask() {
                return Ok((end, stopped));
            }
            match self.ask(signals).await? {
                AskOutcome::Answers(by_name) => {
                    begin = Begin::Resume(Answers { by_name, by: Some(who()) });
                }
                AskOutcome::Closed => return Ok((end, None)),
                AskOutcome::Stopped(signal) => return Ok((end, Some(signal))),
            }
        }
    }

    /// Checks that the run can continue with the current version of its workflow.
    pub(super) async fn check_compatibility(&self) -> Result<(), CliError> {
        match self.engine.check_compatibility(&self.id).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refused(error).await),
        }
    }

    /// Drives the run until it stops or suspends; returns none if it had already finished.
    async fn drive_once(
        &self,
        begin: Begin,
        signals: &mut Signals,
    ) -> Result<(Option<RunEnd>, Option<Signal>), CliError> {
        let mut views = Views::new(self.globals, &self.caption());
        let (stop, mut sink) = (ShutdownHandle::default(), EventSink::default());
        let mut events = sink.subscribe();
        let mut deltas = Views::want_deltas(self.globals).then(|| sink.subscribe_deltas());
        let (engine, id, stopping) = (self.engine.clone(), self.id.clone(), stop.clone());
        // On a worker thread of its nodes, so that a step mostly wakes no other thread.
        let mut run = AbortOnDropHandle::new(tokio::spawn(async move {
            match begin {
                Begin::Start(info, input) => {
                    engine
                        .run(input)
                        .with_info(*info)
                        .with_events(sink)
                        .with_shutdown(&stopping)
                        .await
                }
                Begin::Turn(info, input) => {
                    engine
                        .turn(info.name.clone(), input)
                        .with_info(*info)
                        .with_events(sink)
                        .with_shutdown(&stopping)
                        .await
                }
                Begin::Resume(answers) => {
                    engine
                        .resume(&id)
                        .with_answers(answers)
                        .with_events(sink)
                        .with_shutdown(&stopping)
                        .await
                }
                Begin::Retry(node) => {
                    engine.retry(&id).only(node).with_events(sink).with_shutdown(&stopping).await
                }
            }
        }));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut end, mut is_open, mut is_saved, mut first) = (None, true, false, None);
        let mut is_due = false;
        while is_open || end.is_none() {
            tokio::select! {
                biased;
                event = events.recv(), if is_open => match event {
                    Some(event) => {
                        // The engine saves entries before it emits their events.
                        is_saved = true;
                        // The pieces of an answer come before the event of its end.
                        let waiting = deltas.iter_mut().flat_map(waiting_deltas);
                        waiting.for_each(|it| views.show_delta(&it));
                        views.show(&event);
                        is_due |= self.reports.are_changed_by(&event.event);
                    }
                    None => is_open = false,
                },
                result = &mut run, if end.is_none() => end = Some(result.unwrap_or_else(unwind)),
                signal = signals.next() => {
                    if first.is_none() {
                        views.note(&self.globals.stderr.loud(signal.announcement()));
                        first = Some(signal);
                        stop.drain();
                    } else {
                        views.note(&self.globals.stderr.loud("stopping at once"));
                        stop.abort();
                    }
                }
                _ = ticks.tick() => views.tick(),
                // After all events that wait: a report shows the last of their steps.
                () = std::future::ready(()), if is_due => {
                    is_due = false;
                    self.write_reports(Moment::Step, &mut views).await;
                }
                // Last: a model that sends many pieces must not keep the others waiting.
                Some(delta) = next_delta(&mut deltas) => views.show_delta(&delta),
            }
        }
        if is_reported(end.as_ref(), is_saved) {
            self.write_reports(Moment::Stop, &mut views).await;
        }
        let shown = views.close();
        let written = |status: Status| {
            shown.map_err(|error| self.globals.unwritten(&self.name, status, self.database, error))
        };
        match end {
            Some(Ok(end)) => {
                written(end.status)?;
                Ok((Some(end), first))
            }
            Some(Err(RunError::AlreadyEnded(status))) => {
                written(status)?;
                print_message(&format!("run {} is {} already", self.name, status.as_str()));
                Ok((None, first))
            }
            Some(Err(error)) if is_saved => Err(self.failure(error)),
            Some(Err(error)) => Err(self.refused(error).await),
            None => Ok((None, first)),
        }
    }

    /// Writes the reports of the workflow. One that cannot be written is a warning.
    async fn write_reports(&self, moment: Moment, views: &mut Views) {
        for warning in self.reports.write(self.checkpointer.as_ref(), &self.id, moment).await {
            let line = self.globals.stderr.loud(&format!("warning: {warning}"));
            match self.globals.progress {
                Progress::Silent => print_message(&line),
                Progress::Tree | Progress::Plain => views.note(&line),
            }
        }
    }

    /// Asks the open questions at the terminal.
    async fn ask(&self, signals: &mut Signals) -> Result<AskOutcome, CliError> {
        let saved = self.checkpointer.load(&self.id).await?;
        let open = open_questions(&saved.position, &saved.records);
        answer::ask(&open, signals, self.globals.stderr)
            .await
            .map_err(|error| CliError::new(Exit::Paused, "cannot read the terminal").because(error))
    }

    /// Reads the report of the run after it stopped like this, with the exit code.
    pub(super) async fn report(
        &self,
        end: Option<&RunEnd>,
        stopped: Option<Signal>,
    ) -> Result<StoppedRun, CliError> {
        let checkpointer = self.checkpointer.as_ref();
        // The turn of a thread may have joined a run that another process has begun meanwhile.
        let report = match end {
            Some(end) => RunReport::read_end(checkpointer, end, self.database).await?,
            None => RunReport::read(checkpointer, &self.id, self.database).await?,
        };
        let report = report.with_artifacts(self.reports.paths());
        let was_stopped = matches!(report.status, Status::Interrupted | Status::Paused);
        let exit = stopped.filter(|_| was_stopped).map_or(report.exit(), Signal::exit);
        Ok(StoppedRun { report, exit, database: self.database.clone() })
    }

    /// Warns of messages that no step has read, if the run is over.
    async fn warn_of_late_messages(&self, end: Option<&RunEnd>) -> Result<(), CliError> {
        let is_over = |it: &&RunEnd| matches!(it.status, Status::Done | Status::Failed);
        let Some(end) = end.filter(is_over) else { return Ok(()) };
        let read = end.position.people.last_message;
        let late = self.checkpointer.inbox(&end.run, read).await?;
        if let Ok(late @ 1..) = u64::try_from(late.len()) {
            let late = count(late, "message");
            let warning =
                format!("warning: {late} came during the last step, and no step reads it");
            print_message(&self.globals.stderr.loud(&warning));
        }
        Ok(())
    }

    fn caption(&self) -> Caption {
        let resume = self.database.command("resume", &self.name);
        Caption { name: self.name.clone(), resume }
    }

    /// Returns the error of an engine that did nothing. For a changed workflow, it contains the
    /// command to migrate the run.
    async fn refused(&self, error: RunError) -> CliError {
        let RunError::Broken { remedies, .. } = &error else {
            return refused(error, &self.name, self.database);
        };
        let info = self.checkpointer.find(self.id.as_str()).await.map(|it| it.info);
        let origin = info.ok().and_then(|it| Origin::of(&it).ok());
        let command = origin
            .and_then(|it| migrate::command(self.database, &self.name, &it.workflow, remedies));
        let help = command.map(|it| format!("to migrate it: {it}"));
        help.into_iter().fold(CliError::from(error), CliError::with_help)
    }

    /// Returns the error of an engine, with the command to resume the run.
    fn failure(&self, error: RunError) -> CliError {
        let is_overtaken =
            matches!(&error, RunError::Checkpoint(CheckpointError::Overtaken { .. }));
        let failure = CliError::from(error);
        if is_overtaken {
            return failure;
        }
        match self.database.command("resume", &self.name) {
            Some(command) => {
                failure.with_help(format!("to continue from the last checkpoint: {command}"))
            }
            None => failure,
        }
    }
}

impl StoppedRun {
    /// Prints the result, and the command to resume the run if it can continue. Returns the exit code.
    ///
    /// # Errors
    ///
    /// Fails when stdout cannot be written.
    pub(super) fn print(&self, globals: &Globals) -> Result<Exit, CliError> {
        let printed = print_new_report(&self.report, globals, &self.database);
        self.print_next(globals);
        printed.map(|()| self.exit)
    }

    /// Prints the open questions, or the command to resume the run, for people.
    pub(super) fn print_next(&self, globals: &Globals) {
        let Self { report, database, .. } = self;
        let paint = globals.stderr;
        if !report.questions.is_empty() {
            print_message(summary::draw_questions(report, database, paint).trim_end());
        } else if report.status != Status::Done
            && globals.output != Output::Text
            && let Some(command) = &report.resume
        {
            print_message(&format!(
                "{}; continue with: {}",
                report.status.as_str(),
                paint.command(command)
            ));
        }
    }
}

/// Returns whether the reports of a run are written after it has stopped here: if it is one of this process, or over.
fn is_reported(end: Option<&Result<RunEnd, RunError>>, is_saved: bool) -> bool {
    match end {
        Some(Ok(_) | Err(RunError::AlreadyEnded(_))) => true,
        // Another process writes them now.
        Some(Err(RunError::Checkpoint(CheckpointError::Overtaken { .. }))) | None => false,
        Some(Err(_)) => is_saved,
    }
}

/// Prints the result of a run that this process changed, in the requested format.
///
/// # Errors
///
/// Fails when stdout cannot be written; the error says that the run itself is saved.
pub(super) fn print_new_report(
    report: &RunReport,
    globals: &Globals,
    database: &Database,
) -> Result<(), CliError> {
    print_result(&draw_report(report, globals, database)?)
        .map_err(|error| globals.unwritten(&report.name, report.status, database, error))
}

/// Returns the result of a run in the requested format.
///
/// # Errors
///
/// Fails when it cannot be represented as JSON.
pub(super) fn draw_report(
    report: &RunReport,
    globals: &Globals,
    database: &Database,
) -> Result<String, CliError> {
    match globals.output {
        Output::Text => Ok(summary::draw(report, database, globals.stdout)),
        Output::Json => to_json(report),
        // The events were the output; the last one contains the status of the run. The formats for
        // diagnostics were refused before the run began.
        Output::Jsonl | Output::Sarif | Output::Github => Ok(String::new()),
    }
}

impl From<ReviseError> for CliError {
    fn from(error: ReviseError) -> Self {
        let help = match &error {
            ReviseError::NotNext { .. } => Some(
                "name one of these nodes with `--as`, or fork an earlier step to take another \
                 route",
            ),
            _ => None,
        };
        let message = error.to_string();
        let refused = Self::usage(format!("{message}; nothing was changed"));
        let refused = match error {
            ReviseError::State(source) => refused.because(source),
            _ => refused,
        };
        help.into_iter().fold(refused, Self::with_help)
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(error) => Self::from(error),
            RunError::Input(_)
            | RunError::UnfitCheckpoint(_)
            | RunError::MissingInput { .. }
            | RunError::Fields(_)
            | RunError::Name(_)
            | RunError::WrongAnswer { .. }
            | RunError::UnknownQuestion { .. } => Self::usage(error.to_string()).because(error),
            RunError::Broken { ref differences, .. } => {
                let problems = differences.iter().map(ToString::to_string).collect();
                Self::new(Exit::NotResumable, error.to_string())
                    .with_problems(problems)
                    .with_help("restore the workflow to resume the run")
            }
            RunError::NoCounterpart { ref differences, .. } => {
                let breaks = differences.iter().filter(|it| it.breaks.is_some());
                Self::new(Exit::NotResumable, format!("{error}; nothing was changed"))
                    .with_problems(breaks.map(ToString::to_string).collect())
            }
            RunError::Changed { .. } => Self::new(Exit::NotResumable, error.to_string())
                .because(error)
                .with_help("restore the workflow to resume the run, or start a new run"),
            RunError::Closed { .. }
            | RunError::TurnOpen { .. }
            | RunError::NotThread { .. }
            | RunError::AlreadyEnded(_)
            | RunError::NotFailed(_) => Self::new(Exit::NotResumable, error.to_string()),
            RunError::NotDone { .. } | RunError::Output(_) | RunError::Dropped { .. } => {
                Self::new(Exit::Failed, error.to_string()).because(error)
            }
            RunError::Revise(error) => Self::from(error),
            RunError::NothingFailed { ref failed, .. } => {
                let help = if failed.is_empty() {
                    "a route of the workflow ended it; start a new run"
                } else {
                    "without `--node`, all failed tasks run again"
                };
                Self::new(Exit::NotResumable, error.to_string()).with_help(help)
            }
        }
    }
}

/// Returns the error of an engine that did nothing with a run, with the commands that the run needs instead.
pub(super) fn refused(error: RunError, name: &str, database: &Database) -> CliError {
    let command = |verb: &str| database.command(verb, name);
    let help = match &error {
        RunError::Closed { .. } => command("runs show")
            .map(|it| format!("nothing was changed; `{it}` prints the status of the run")),
        RunError::TurnOpen { status: Status::Failed, .. } => {
            command("retry").map(|it| format!("`{it}` runs its failed tasks again"))
        }
        RunError::TurnOpen { .. } => command("resume").map(|it| format!("continue it with `{it}`")),
        RunError::NotFailed(Status::Done | Status::Failed) => {
            Some("start a new run to repeat its work".to_owned())
        }
        RunError::NotFailed(Status::Paused) => {
            command("resume").zip(command("runs show")).map(|(resume, show)| {
                format!("continue it with `{resume}`; `{show}` prints its questions")
            })
        }
        RunError::NotFailed(Status::Limit) => command("resume")
            .map(|it| format!("resume it with a higher limit, as in `{it} --max-steps N`")),
        RunError::NotFailed(Status::Running | Status::Interrupted) => {
            command("resume").map(|it| format!("continue it with `{it}`"))
        }
        _ => None,
    };
    help.into_iter().fold(CliError::from(error), CliError::with_help)
}

/// Returns the pieces of models' answers that wait to be shown. Their number is bounded, so that events are shown
/// meanwhile.
fn waiting_deltas(deltas: &mut Deltas) -> impl Iterator<Item = MessageDelta> {
    std::iter::from_fn(|| deltas.try_recv()).take(DELTAS_AT_ONCE_MAX)
}

/// Returns the next piece of a model's answer; waits for ever without a reader, and returns `None` after the run.
async fn next_delta(deltas: &mut Option<Deltas>) -> Option<MessageDelta> {
    match deltas {
        Some(deltas) => deltas.recv().await,
        None => std::future::pending().await,
    }
}
