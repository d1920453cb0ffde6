//! A run at a terminal, from its begin to its stop, with the questions that it asks meanwhile.

use std::{panic, path::PathBuf, sync::Arc, time::Duration};

use tokio::{task::JoinError, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    follow::{EngineTask, Follower},
    report_files::{ReportFiles, WriteOccasion},
    run_folders,
    stopped::StoppedRun,
};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo, RunSummary, open_questions},
    cli::{
        arguments::{
            globals::{Globals, Progress},
            migrate_flags::migrate_command,
        },
        error::CliError,
        exit::Exit,
        output::{
            progress::{Caption, Views},
            report::RunReport,
            terminal::print_message,
            words::count,
        },
        people::{
            answer::{self, AskOutcome},
            person::who,
            stdin_lines::StdinLines,
        },
        process::signals::{Signal, Signals},
        settings::database::Database,
    },
    engine::{Answers, Engine, Launch, LaunchKind, RunEnd, RunError, ShutdownHandle},
    event::{EventSink, LeftRun, Status},
    id::{NodeName, RunId},
    state::Update,
};

/// How long a run may take to save its end after a signal to stop at once.
pub(super) const LEAVE_AFTER: Duration = Duration::from_secs(3);

/// A run and its engine.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) globals: &'a Globals,
    pub(crate) database: &'a Database,
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
    pub(crate) engine: Engine,
    pub(crate) id: RunId,
    pub(crate) name: String,
    /// The file of its workflow.
    pub(crate) workflow: PathBuf,
    pub(crate) reports: ReportFiles,
}

/// How a run starts in this process.
#[derive(Debug)]
pub(crate) enum Begin {
    /// A new run, with its input.
    Start(Box<RunInfo>, Update),
    /// A turn of the thread that has the name of this run, with its input.
    Turn { info: Box<RunInfo>, input: Update, is_queued: bool },
    /// From its last checkpoint, with answers.
    Resume(Answers),
    /// With the failed tasks; with those of one node only, if one is named.
    Retry(Option<NodeName>),
}

/// How a run ended in this process.
#[derive(Debug)]
pub(crate) enum DriveOutcome {
    /// It stopped or suspended, perhaps because of a signal.
    Stopped { end: Box<RunEnd>, signal: Option<Signal> },
    /// It had already ended, so this process has done nothing with it.
    AlreadyEnded,
}

/// Listens to the signals that stop a run.
///
/// # Errors
///
/// Fails when the system refuses.
pub(crate) fn listen() -> Result<Signals, CliError> {
    Signals::listen()
        .map_err(|error| CliError::new(Exit::Unusable, "cannot listen to signals").because(error))
}

/// Resumes the panic of a task; tasks that are awaited are never cancelled.
pub(crate) fn unwind<T>(error: JoinError) -> T {
    match error.try_into_panic() {
        Ok(panic) => panic::resume_unwind(panic),
        Err(error) => panic!("the run was dropped while it was waited for: {error}"),
    }
}

impl Run<'_> {
    /// Drives the run until it stops or suspends without a question to ask here, and returns its
    /// report.
    pub(crate) async fn drive_and_report(
        &self,
        begin: Begin,
        lines: &mut StdinLines,
    ) -> Result<StoppedRun, CliError> {
        let is_turn = matches!(begin, Begin::Turn { .. });
        let mut signals = listen()?;
        let outcome = self.drive_and_ask(begin, lines, &mut signals).await.map_err(|error| {
            let is_busy = is_turn && error.is_owned_elsewhere();
            let help =
                is_busy.then_some("with `--queue`, the turn begins when the one at work has ended");
            help.into_iter().fold(error, CliError::with_help)
        })?;
        let status = match &outcome {
            DriveOutcome::Stopped { end, .. } => end.status,
            DriveOutcome::AlreadyEnded => Status::Done,
        };
        let report = async {
            if let DriveOutcome::Stopped { end, .. } = &outcome {
                self.warn_of_late_messages(end).await?;
            }
            match outcome {
                // Another process can continue a thread, and no other run. The report reads the state again, so this
                // copy is dropped.
                DriveOutcome::Stopped { end, signal } if !is_turn => {
                    drop(end);
                    self.report_from_storage(signal).await
                }
                outcome => self.report(&outcome).await,
            }
        };
        tokio::pin!(report);
        let report = tokio::select! {
            biased;
            report = &mut report => report,
            signal = signals.next() => match timeout(LEAVE_AFTER, report).await {
                Ok(report) => report,
                Err(_) => return Err(self.left(signal, status)),
            },
        };
        let mut stopped = report.map_err(|error| self.leave(error, status))?;
        if self.database.ends_with_process() {
            self.leave_memory(&mut stopped.report).await;
        }
        Ok(stopped)
    }

    /// Removes what a run in memory has on the disk, because no later command finds it: its branches with commits stay, and
    /// its worktrees if it is not done.
    async fn leave_memory(&self, report: &mut RunReport) {
        let Ok(RunSummary { info, .. }) = self.checkpointer.find(self.id.as_str()).await else {
            return;
        };
        if report.status == Status::Done {
            let with_branch = run_folders::remove(&info, self.database).await;
            report.branches.retain(|it| with_branch.contains(&it.folder));
        } else {
            run_folders::name_worktrees(&info);
        }
    }

    /// Drives the run until it stops or suspends without a question to ask here.
    pub(crate) async fn drive_and_ask(
        &self,
        mut begin: Begin,
        lines: &mut StdinLines,
        signals: &mut Signals,
    ) -> Result<DriveOutcome, CliError> {
        loop {
            let end = match self.drive_once(begin, signals).await? {
                DriveOutcome::Stopped { end, signal: None } => end,
                outcome => return Ok(outcome),
            };
            if end.questions.is_empty() || !self.globals.can_ask() {
                return Ok(DriveOutcome::Stopped { end, signal: None });
            }
            let signal = match self.ask(lines, signals).await? {
                AskOutcome::Answers(by_name) => {
                    begin = Begin::Resume(Answers { by_name, by: Some(who()) });
                    continue;
                }
                AskOutcome::Closed => None,
                AskOutcome::Stopped(signal) => Some(signal),
            };
            return Ok(DriveOutcome::Stopped { end, signal });
        }
    }

    /// Checks that the run can continue with the current version of its workflow.
    pub(crate) async fn check_compatibility(&self) -> Result<(), CliError> {
        match self.engine.check_compatibility(&self.id).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// Drives the run until it stops or suspends.
    async fn drive_once(
        &self,
        begin: Begin,
        signals: &mut Signals,
    ) -> Result<DriveOutcome, CliError> {
        let mut sink = EventSink::default();
        let mut follower = Follower::new(self, &mut sink);
        let task = self.start(begin, sink, follower.shutdown.clone());
        let result = follower.follow(task, signals).await;
        let Follower { mut views, is_saved, signal, .. } = follower;
        let Some(result) = result else {
            drop(views.close());
            return Err(self.left(signal.unwrap_or(Signal::Terminate), Status::Running));
        };
        if is_reported(&result, is_saved) {
            self.write_reports(WriteOccasion::Stop, &mut views).await;
        }
        let shown = views.close();
        let written = |status: Status| {
            shown.map_err(|error| {
                let unwritten = self.globals.unwritten(&self.name, status, self.database, error);
                match exit_of_signal(signal, status) {
                    Some(exit) => unwritten.with_exit(exit),
                    None => unwritten,
                }
            })
        };
        match result {
            Ok(end) => {
                written(end.status)?;
                Ok(DriveOutcome::Stopped { end: Box::new(end), signal })
            }
            Err(RunError::AlreadyEnded(status)) => {
                written(status)?;
                print_message(&format!("run {} is {} already", self.name, status.as_str()));
                Ok(DriveOutcome::AlreadyEnded)
            }
            Err(error @ RunError::NotBegun { .. }) => {
                let refused = CliError::from(error);
                Err(signal.map(Signal::exit).into_iter().fold(refused, CliError::with_exit))
            }
            Err(error) if is_saved => {
                // A file that was taken away, which is still open, may hold an end that no other process can read.
                let is_full = matches!(error, RunError::Checkpoint(CheckpointError::Full { .. }));
                let status = if is_full { self.last_status().await } else { Status::Running };
                Err(self.leave(self.failure(error), status))
            }
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// Starts the engine on a worker thread of its nodes, so that a step mostly wakes no other thread.
    fn start(&self, begin: Begin, sink: EventSink, shutdown: ShutdownHandle) -> EngineTask {
        let engine = self.engine.clone();
        let id = self.id.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            match begin {
                Begin::Start(info, input) => {
                    launch(engine.run(input).with_info(*info), sink, &shutdown).await
                }
                Begin::Turn { info, input, is_queued } => {
                    let turn = engine.turn(info.name.clone(), input).with_info(*info);
                    let turn = if is_queued { turn.queued() } else { turn };
                    launch(turn, sink, &shutdown).await
                }
                Begin::Resume(answers) => {
                    launch(engine.resume(&id).with_answers(answers), sink, &shutdown).await
                }
                Begin::Retry(node) => launch(engine.retry(&id).only(node), sink, &shutdown).await,
            }
        }))
    }

    /// Writes the reports of the workflow. One that cannot be written is a warning.
    pub(super) async fn write_reports(&self, occasion: WriteOccasion, views: &mut Views) {
        for warning in self.reports.write(self.checkpointer.as_ref(), &self.id, occasion).await {
            let line = self.globals.stderr.loud(&format!("warning: {warning}"));
            match self.globals.progress {
                Progress::Silent => print_message(&line),
                Progress::Tree | Progress::Plain => views.note(&line),
            }
        }
    }

    /// Asks the open questions at the terminal.
    async fn ask(
        &self,
        lines: &mut StdinLines,
        signals: &mut Signals,
    ) -> Result<AskOutcome, CliError> {
        let saved = self.checkpointer.load(&self.id).await?;
        let open = open_questions(&saved.position, &saved.records);
        answer::ask(&open, lines, signals, self.globals.stderr).await.map_err(|error| {
            let error = CliError::new(Exit::Paused, "cannot read the terminal").because(error);
            self.leave(error, Status::Paused)
        })
    }

    /// Returns the report of the run after it stopped like this, with the exit code.
    pub(crate) async fn report(&self, outcome: &DriveOutcome) -> Result<StoppedRun, CliError> {
        match outcome {
            // The turn of a thread may have joined a run that another process has begun meanwhile.
            DriveOutcome::Stopped { end, signal } => {
                let report = self.report_of_turn(&end.run, Some(end)).await?;
                Ok(self.stopped(report, *signal))
            }
            DriveOutcome::AlreadyEnded => {
                Ok(StoppedRun { is_driven: false, ..self.report_from_storage(None).await? })
            }
        }
    }

    /// Returns the report of the saved run, with the exit code.
    async fn report_from_storage(&self, signal: Option<Signal>) -> Result<StoppedRun, CliError> {
        Ok(self.stopped(self.report_of_turn(&self.id, None).await?, signal))
    }

    async fn report_of_turn(
        &self,
        run: &RunId,
        end: Option<&RunEnd>,
    ) -> Result<RunReport, CliError> {
        RunReport::read_turn(self.checkpointer.as_ref(), run, end, self.database).await
    }

    fn stopped(&self, report: RunReport, signal: Option<Signal>) -> StoppedRun {
        let report = report.with_artifacts(self.reports.paths());
        let exit = exit_of_signal(signal, report.status).unwrap_or(report.exit());
        StoppedRun { report, exit, database: self.database.clone(), is_driven: true }
    }

    /// Warns of messages that no step has read, if the run is over.
    async fn warn_of_late_messages(&self, end: &RunEnd) -> Result<(), CliError> {
        if !matches!(end.status, Status::Done | Status::Failed) {
            return Ok(());
        }
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

    pub(super) fn caption(&self) -> Caption {
        let resume = self.database.command("resume", &self.name);
        Caption { name: self.name.clone(), resume }
    }

    /// Returns the error of an engine that did nothing. For a changed workflow, it contains the
    /// command to migrate the run.
    fn refusal(&self, error: RunError) -> CliError {
        let RunError::Broken { remedies, .. } = &error else {
            return explain_refusal(error, &self.name, self.database);
        };
        let command = migrate_command(self.database, &self.name, &self.workflow, remedies);
        let help = command.map(|it| format!("to migrate it: {it}"));
        help.into_iter().fold(CliError::from(error), CliError::with_help)
    }

    /// Returns the error for a run whose storage does not answer after a signal.
    fn left(&self, signal: Signal, status: Status) -> CliError {
        let message = format!("run {} was left, because its database did not answer", self.name);
        let left = self.with_resume(CliError::new(signal.exit(), message));
        self.leave(left, status)
    }

    /// Returns the saved status of a run on a full disk, which has mostly saved its end.
    async fn last_status(&self) -> Status {
        let found = timeout(LEAVE_AFTER, self.checkpointer.find(self.id.as_str())).await;
        found.ok().and_then(Result::ok).map_or(Status::Running, |it| it.status)
    }

    /// Returns an error after which this process leaves an accepted run; `status` is the last one that it saved.
    fn leave(&self, error: CliError, status: Status) -> CliError {
        let reason = Some(error.in_one_line());
        let resume = self.database.command("resume", &self.name).filter(|_| status != Status::Done);
        let run = self.id.clone();
        let name = self.name.clone();
        error.leaving(LeftRun { run, name, status, reason, resume })
    }

    /// Returns the error of an engine, with the command to resume the run.
    fn failure(&self, error: RunError) -> CliError {
        let is_overtaken =
            matches!(&error, RunError::Checkpoint(CheckpointError::Overtaken { .. }));
        let failure = CliError::from(error);
        if is_overtaken { failure } else { self.with_resume(failure) }
    }

    /// Adds the command to resume the run, if it is saved.
    fn with_resume(&self, error: CliError) -> CliError {
        match self.database.command("resume", &self.name) {
            Some(command) => {
                error.with_help(format!("to continue from the last checkpoint: {command}"))
            }
            None => error,
        }
    }
}

/// Returns the exit code of a signal that stopped a run: none if no signal stopped it.
fn exit_of_signal(signal: Option<Signal>, status: Status) -> Option<Exit> {
    let was_stopped = matches!(status, Status::Interrupted | Status::Paused);
    signal.filter(|_| was_stopped).map(Signal::exit)
}

/// Returns whether the reports of a run are written after it has stopped here: if it is one of this process, or over.
fn is_reported(result: &Result<RunEnd, RunError>, is_saved: bool) -> bool {
    match result {
        Ok(_) | Err(RunError::AlreadyEnded(_)) => true,
        // Another process writes them now.
        Err(RunError::Checkpoint(CheckpointError::Overtaken { .. })) => false,
        Err(_) => is_saved,
    }
}

/// Runs the engine with events that go to a sink, and with a handle that can stop it.
async fn launch<K: LaunchKind + 'static>(
    launch: Launch<K>,
    sink: EventSink,
    shutdown: &ShutdownHandle,
) -> Result<RunEnd, RunError> {
    launch.with_events(sink).with_shutdown(shutdown).await
}

/// Returns the error of an engine that did nothing with a run, with the commands that the run needs instead.
pub(crate) fn explain_refusal(error: RunError, name: &str, database: &Database) -> CliError {
    let command = |verb: &str| database.command(verb, name);
    let help = match &error {
        RunError::Closed { .. } => command("runs show").map(|command| {
            format!("nothing was changed; `{command}` prints the status of the run")
        }),
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
        RunError::NotFailed(Status::Limit) => command("resume").map(|command| {
            format!("resume it with a higher limit, as in `{command} --max-steps N`")
        }),
        RunError::NotFailed(Status::Running | Status::Interrupted) => {
            command("resume").map(|it| format!("continue it with `{it}`"))
        }
        _ => None,
    };
    help.into_iter().fold(CliError::from(error), CliError::with_help)
}
