//! The program of an agent, such as a coding agent: it gets the prompt on its standard input, works in the folder of
//! the node, and its last words are the answer.
//!
//! A program is a model to the rest of the agent, so answers are checked, repaired, counted, saved and recorded as those
//! of models are. Here is only how one request becomes one run of the program. `output` reads the output, by the rules of
//! its protocol.

mod claude;
mod codex;
mod gemini;
mod json;
mod output;

use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt as _,
    path::{self, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
    state::Update,
};
use graphrun_models::{
    ChatModel, ChatReply, ChatRequest, Message, ModelError, Role, StatedUsage, TokenUsage,
    answer_instruction, answer_schema,
};
use graphrun_sandbox::{
    Channel, Collect, HostCommand, HostCommandError, Job, JobError, JobResult, Limits,
    OutputReader, ProgramEnd, SHELL, SandboxError,
};
use graphrun_workflow::{
    HostSettings, HostUse, Program, ProgramPlace, ProgramProtocol, ProgramSandbox, SandboxSettings,
    kind::Services,
};
use serde_json::Value;
use tokio::sync::{OnceCell, mpsc};

use self::output::{Output, Reading};
use super::{
    attempt::{AgentAttempt, AttemptEnd, NoAnswer},
    session::{Session, WithSession},
};
use crate::{
    call::{Candidate, WatchedModel, failure_of},
    changes::{Changes, write_back},
    homes::RunHomes,
    host_approval::{AskedCommand, command_line},
    in_folder::{SandboxFolder, open_folder},
    run::{output_text, with_output_tail},
    sandbox_command::{StreamFiles, exit_code},
    sandboxed::{PreparedSandbox, SandboxServices, unusable},
};

/// The most bytes that a program prints before it is stopped. A host has the same limit.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of standard error that are kept.
const ERROR_BYTES_MAX: usize = 1 << 20;
/// The engine stops an attempt at its timeout. The limit of the program is later, so that it never comes first.
const AFTER_TIMEOUT: Duration = Duration::from_secs(5);
/// The calls of tools that wait to be reported. Those beyond are not reported.
const REPORTS_WAITING_MAX: usize = 256;

/// Runs the program in a sandbox with the prompt as its standard input. Its output goes to the channel of the job, where
/// it is read at once. The secrets come from the channel, each as `NAME=VALUE` before a NUL, so that only this process and
/// its children have them. Arguments: the path of the file with the prompt, then the command.
const SCRIPT: &str = r#"
exec 8<"$1"
shift
while IFS= read -r -d ''; do export "$REPLY"; done
exec "$@" <&8 >&3 8<&- 3>&-
"#;

/// The program of an agent, with the services that it needs.
#[derive(Debug)]
pub(super) struct ProgramRunner {
    program: Program,
    /// The folder of the run in which it works.
    folder: Option<String>,
    /// Files and folders of a copy that are written back.
    changes: Vec<String>,
    services: Services,
    /// Made on first use, and kept for later visits in a loop.
    prepared: OnceCell<PreparedSandbox>,
}

/// A program in place of a model, for one attempt.
#[derive(Debug)]
struct ProgramModel {
    runner: Arc<ProgramRunner>,
    ctx: NodeContext,
    /// The session that it continues; `None` if each request starts a new one.
    session: Option<Arc<Session>>,
    end: Arc<AttemptEnd>,
}

/// The input of one run of the program, and the reader of its output.
struct ProgramInput<'a> {
    /// The name of the request in its task.
    name: &'a str,
    prompt: &'a str,
    /// The session that it continues.
    session: Option<&'a str>,
    reader: OutputReader,
}

/// One run of the program.
struct ProgramRun {
    end: ProgramEnd,
    stderr: Vec<u8>,
    time: Duration,
    changes: Changes,
    /// Whether its changes were too large, so that none of them are there.
    is_too_large: bool,
    /// A secret that one of them contains, and its place.
    leak: Option<String>,
}

/// A program that has ended, with its output.
struct ProgramOutput {
    ended: ProgramRun,
    reading: Reading,
    prompt_characters: usize,
}

impl ProgramOutput {
    /// Returns whether a program that should continue a session has failed before it found it: it has not named the
    /// session, and has done no work. Its messages differ from release to release. A program that names its session at
    /// its end cannot be judged by that.
    fn is_session_lost(&self, protocol: ProgramProtocol) -> bool {
        let Self { ended, reading, .. } = self;
        let failed = match ended.end {
            ProgramEnd::Exited(0) => reading.error.is_some(),
            ProgramEnd::Exited(_) => true,
            _ => false,
        };
        let tokens = reading.usage.map_or(0, |it| it.input_tokens + it.output_tokens);
        let is_silent = reading.session.is_none() && reading.answer.is_none() && tokens == 0;
        failed && is_silent && protocol != ProgramProtocol::Json
    }

    /// Returns the reason of a failure, in parentheses.
    fn last_words(&self) -> String {
        match &self.reading.error {
            Some(error) => format!(" ({error})"),
            None => format!(" ({})", with_output_tail("it failed".to_owned(), &self.ended.stderr)),
        }
    }
}

impl ProgramRunner {
    pub(super) fn new(
        program: Program,
        folder: Option<String>,
        changes: Vec<String>,
        services: Services,
    ) -> Self {
        Self { program, folder, changes, services, prepared: OnceCell::new() }
    }

    /// Returns the part of the agent's fingerprint for the program.
    pub(super) fn fingerprint(&self) -> Value {
        let mut fingerprint = self.program.fingerprint();
        fingerprint["changes"] = self.changes.clone().into();
        fingerprint
    }
}

impl AgentAttempt<'_> {
    /// Asks the program for the answer.
    pub(super) async fn ask_program(
        &self,
        runner: &Arc<ProgramRunner>,
        request: &ChatRequest,
    ) -> Result<Update, NodeError> {
        let Self { agent, ctx, ref end, .. } = *self;
        let name = &runner.program.name;
        let field = &agent.definition.session;
        let session = match field {
            Some(field) => Some(Arc::new(Session::of(ctx, field).await)),
            None => None,
        };
        let model = Arc::new(ProgramModel {
            runner: Arc::clone(runner),
            ctx: ctx.clone(),
            session: session.clone(),
            end: Arc::clone(end),
        });
        let candidate = Candidate::alone(name, model);
        let watched = WatchedModel::new(candidate, ctx, &agent.services, &self.calls);
        let answered = match &session {
            Some(session) => {
                let model = WithSession { model: &watched, session };
                self.answer_of(name, &model, request).await
            }
            None => self.answer_of(name, &watched, request).await,
        };
        match answered {
            Err(NoAnswer::End(end)) => Err(end),
            Err(NoAnswer::Model(error)) => Err(failure_of(&error).into()),
            Err(NoAnswer::Unreadable(failure)) => Err(failure.into()),
            Ok(update) => {
                let update = self.with_history(request, None, update);
                Ok(match (field, session) {
                    (Some(field), Some(session)) => {
                        update.write(field.clone(), session.id().unwrap_or_default())
                    }
                    _ => update,
                })
            }
        }
    }
}

#[async_trait]
impl ChatModel for ProgramModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let models = &self.runner.services.models;
        if let Some(model) = models.in_place_of_programs() {
            return model.chat(request).await;
        }
        let outcome = match self.work(request).await {
            Ok(outcome) => outcome,
            Err(NodeError::Failed(failure)) => {
                let usage = TokenUsage::default();
                let cost_usd = None;
                Err(ModelError::Program { failure, usage, cost_usd })
            }
            Err(question @ (NodeError::Ask(_) | NodeError::Wait(_))) => {
                // It is not recorded, because the program did not run.
                self.end.set(question);
                return Err(self.failure(ErrorKind::Declined, "waits for an approval", None));
            }
        };
        // A resumed run makes an aborted call again.
        if !self.ctx.cancel.token().is_cancelled() {
            models.record_program(request, &outcome)?;
        }
        outcome
    }

    fn name(&self) -> &str {
        &self.runner.program.name
    }
}

impl ProgramModel {
    fn command(&self) -> &str {
        self.runner.program.command()
    }

    fn failure(&self, kind: ErrorKind, what: &str, reading: Option<&Reading>) -> ModelError {
        let failure = Failure::new(kind, format!("`{}` {what}", self.command()));
        failed(failure, reading)
    }

    /// Runs the program, and reads its answer. The outer error means that it did not run to its end.
    async fn work(
        &self,
        request: &ChatRequest,
    ) -> Result<Result<ChatReply, ModelError>, NodeError> {
        let mut continued = self.session.as_ref().and_then(|it| it.id());
        let mut worked = self.run_once(request, continued.as_deref()).await?;
        let protocol = self.runner.program.protocol;
        if let Some(lost) = continued.take_if(|_| worked.is_session_lost(protocol)) {
            let message = format!(
                "`{}` cannot continue its session {lost}{}; it starts a new one",
                self.command(),
                worked.last_words(),
            );
            self.ctx.report(Report::Warning { message }).await;
            worked = self.run_once(request, None).await?;
        }
        let ProgramOutput { ended, reading, prompt_characters } = worked;
        let stated = reading.session.clone();
        let reply = match self.reply(&ended, reading, prompt_characters) {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(name) = &self.runner.folder
            && let Err(error) = write_back(&self.ctx, name, ended.changes, self.command()).await
        {
            // The work costs the same without its changes.
            let NodeError::Failed(failure) = error else { return Err(error) };
            let usage = reply.usage;
            let cost_usd = reply.cost_usd;
            return Ok(Err(ModelError::Program { failure, usage, cost_usd }));
        }
        let session = self.session_after(continued, stated).await;
        Ok(Ok(ChatReply { session, ..reply }))
    }

    /// Runs the program once.
    async fn run_once(
        &self,
        request: &ChatRequest,
        session: Option<&str>,
    ) -> Result<ProgramOutput, NodeError> {
        // The session has the earlier messages.
        let prompt = if session.is_some() { last_turn_of(request) } else { prompt_of(request) };
        let (reports, mut waiting) = mpsc::channel(REPORTS_WAITING_MAX);
        let output = Output::new(self.runner.program.protocol, request.deltas.clone(), reports);
        let output = Arc::new(Mutex::new(Some(output)));
        let taken = Arc::clone(&output);
        let reader = OutputReader::new(move |bytes| {
            if let Some(output) = &mut *lock(&taken) {
                output.take(bytes);
            }
        });
        let report = async {
            while let Some(report) = waiting.recv().await {
                self.ctx.report(report).await;
            }
        };
        let run = async {
            let task = self.ctx.idempotency_key();
            let name = request.key.strip_prefix(&task).unwrap_or(&request.key);
            let ended = self.run(ProgramInput { name, prompt: &prompt, session, reader }).await;
            // Dropping it ends the reports.
            let read = lock(&output).take().map(|it| it.finish(request.output.as_ref()));
            ended.map(|it| (it, read.unwrap_or_default()))
        };
        let (ended, ()) = tokio::join!(run, report);
        let (ended, reading) = ended?;
        if let Some(message) = reading.stated.warning(&format!("`{}`", self.command())) {
            self.ctx.report(Report::Warning { message }).await;
        }
        Ok(ProgramOutput { ended, reading, prompt_characters: prompt.chars().count() })
    }

    /// Returns the session that a later request continues.
    async fn session_after(
        &self,
        continued: Option<String>,
        stated: Option<String>,
    ) -> Option<String> {
        self.session.as_ref()?;
        let Some(continued) = continued else { return stated };
        if self.runner.program.protocol == ProgramProtocol::Claude {
            // Some releases state a new id for each process, and keep the session under the first one.
            return Some(continued);
        }
        if stated.as_ref() != Some(&continued) {
            let message = format!("`{}` did not continue its session {continued}", self.command());
            self.ctx.report(Report::Warning { message }).await;
        }
        stated
    }

    async fn run(&self, input: ProgramInput<'_>) -> Result<ProgramRun, NodeError> {
        match &self.runner.program.place {
            ProgramPlace::Sandbox(sandbox) => self.in_sandbox(sandbox, input).await,
            ProgramPlace::Host(host) => self.on_host(host, input).await,
        }
    }

    /// Returns the time limit of the program: the timeout of the node, or else the limit of its place.
    fn time(&self, of_place: Duration) -> Duration {
        self.ctx.timeout.map_or(of_place, |it| it.saturating_add(AFTER_TIMEOUT))
    }

    fn sandbox_job(
        &self,
        settings: &SandboxSettings,
        ProgramInput { prompt, session, reader, .. }: ProgramInput<'_>,
        secrets: &BTreeMap<&str, &str>,
    ) -> Job {
        let program @ Program { scripts, .. } = &self.runner.program;
        let argv = session.map_or_else(|| program.argv.clone(), |it| program.argv_of_session(it));
        let streams = StreamFiles::default();
        let input = streams.input_path();
        let wrapper = [SHELL, "-c", SCRIPT, "program", &input].map(str::to_owned);
        let time = self.time(settings.time);
        // Sessions are files in the home of the program.
        let cache = absolute(&self.runner.services.cache_dir);
        let home =
            self.session.as_ref().map(|_| RunHomes::home_of(&self.ctx, &program.name, &cache));
        let named = session.map(|it| (Program::SESSION_VARIABLE.to_owned(), it.to_owned()));
        Job {
            argv: wrapper.into_iter().chain(argv.iter().cloned()).collect(),
            files: scripts.clone(),
            fixed: vec![streams.input_file(prompt)],
            home,
            env: named.into_iter().collect(),
            limits: Limits { wall: time, output_bytes: OUTPUT_BYTES_MAX, ..settings.limits() },
            collect: Collect { below: self.runner.changes.clone(), ..Collect::default() },
            // The program is looked up before it runs, so that nothing inside can make it seem absent.
            required: argv.first().cloned().into_iter().collect(),
            channel: Channel::Records { secret: channel_of(secrets), reader: Some(reader) },
            ..Job::default()
        }
    }

    async fn in_sandbox(
        &self,
        sandbox: &ProgramSandbox,
        input: ProgramInput<'_>,
    ) -> Result<ProgramRun, NodeError> {
        let settings = &sandbox.settings;
        let secrets = self.runner.services.hosts.secrets_of(sandbox);
        let secrets = secrets.map_err(|it| Failure::of(ErrorKind::Sandbox, &it))?;
        if let Some(message) = self.runner.program.grant() {
            self.ctx.report(Report::Note { message }).await;
        }
        let services = SandboxServices::of(&self.runner.services);
        let prepare = || PreparedSandbox::prepare(settings, &services);
        let prepared = self.runner.prepared.get_or_try_init(prepare).await?;
        let job = self.sandbox_job(settings, input, &secrets);
        let time = job.limits.wall;
        let in_folder = |folder: &SandboxFolder| Job {
            folder: folder.files(),
            mounted: folder.mounted(),
            ..job.clone()
        };
        let folder = self.runner.folder.as_ref();
        match prepared.run_in_folder(&self.ctx, folder, in_folder).await?.result {
            Ok(finished) => {
                let leak = find_secret(&finished, &secrets);
                Ok(ProgramRun {
                    end: finished.end,
                    stderr: finished.output.clone().into_bytes(),
                    time,
                    leak,
                    is_too_large: finished.is_too_large,
                    changes: Changes::of(finished),
                })
            }
            Err(SandboxError::Refused(JobError::Files(refused))) => {
                let message = format!("the files were not accepted: {refused}");
                Err(Failure::new(ErrorKind::Command, message).into())
            }
            Err(
                error @ (SandboxError::HomeTooLarge { .. } | SandboxError::HomeUnmeasured { .. }),
            ) => {
                let message = format!("`{}` was stopped: {error}", self.command());
                Err(Failure::new(ErrorKind::Command, message).into())
            }
            Err(SandboxError::ProgramNotFound { program }) => {
                let message = format!(
                    "there is no program `{program}` inside the sandbox, which has those below /usr; install it there, \
                     or run it on one of `hosts`"
                );
                Err(Failure::new(ErrorKind::Sandbox, message).into())
            }
            Err(error) => Err(unusable(&error)),
        }
    }

    async fn on_host(
        &self,
        host: &HostSettings,
        ProgramInput { name, prompt, session, reader }: ProgramInput<'_>,
    ) -> Result<ProgramRun, NodeError> {
        let program = &self.runner.program;
        let access = &self.runner.services.hosts;
        let used = HostUse { host, shape: &program.argv };
        let approval = access.check(used).map_err(|it| Failure::of(ErrorKind::Host, &it))?;
        // No other task uses the folder meanwhile.
        let open = match &host.folder {
            Some(name) => Some(open_folder(&self.ctx, name).await?),
            None => None,
        };
        let argv = session.map_or_else(|| program.argv.clone(), |it| program.argv_of_session(it));
        let mut call = HostCommand {
            argv: argv.clone(),
            folder: open.as_ref().map(|it| it.path().to_owned()),
            stdin: Some(prompt.to_owned()),
            time: self.time(host.time),
            kept_bytes: ERROR_BYTES_MAX,
            reader: Some(reader),
            ends_all: true,
            ..HostCommand::default()
        };
        AskedCommand { host, approval, call: &call, name }.ask(&self.ctx).await?;
        let variables = access.variables_of(host);
        let session = session.map(|it| (Program::SESSION_VARIABLE, it));
        let variables = variables.chain(session);
        call.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let place = call.folder.as_ref().map(|it| format!(" in `{}`", it.display()));
        let place = place.unwrap_or_default();
        let message = format!("runs on the host `{}`{place}: {}", host.name, command_line(&argv));
        self.ctx.report(Report::Note { message }).await;
        let result = call.run(&self.ctx.cancel).await.map_err(|error| {
            let kind = match error {
                HostCommandError::Aborted => ErrorKind::Command,
                _ => ErrorKind::Host,
            };
            let failure = Failure::of(kind, &error);
            let help = match error {
                HostCommandError::ProgramNotFound { .. } => {
                    "; install it there, or name another program"
                }
                _ => "",
            };
            Failure { message: failure.message + help, ..failure }
        })?;
        let end = result.end;
        let stderr = result.stderr;
        let time = call.time;
        let changes = Changes::default();
        Ok(ProgramRun { end, stderr, time, changes, is_too_large: false, leak: None })
    }

    /// Checks that a program has ended by itself, with exit code zero and without an error in its output.
    fn check_end(&self, ended: &ProgramRun, reading: &Reading) -> Result<(), ModelError> {
        let code = match exit_code(ended.end, ended.time) {
            Ok(code) => code,
            Err(stop) => {
                let failure = stop.failure(self.command());
                let more = match ended.end {
                    ProgramEnd::TimedOut => {
                        ", the time limit of its place; give the node a longer `timeout`"
                    }
                    ProgramEnd::OutputLimit => ", more than 64 MiB",
                    _ => "",
                };
                let failure = Failure { message: failure.message + more, ..failure };
                return Err(failed(failure, Some(reading)));
            }
        };
        if code != 0 || reading.error.is_some() {
            let program = self.command();
            let message = match &reading.error {
                Some(error) => format!("`{program}` ended with {code} and this error: {error}"),
                None => with_output_tail(format!("`{program}` ended with {code}"), &ended.stderr),
            };
            let said = if ended.stderr.is_empty() { &reading.rest } else { &ended.stderr };
            let raw = Some(output_text(said));
            let exit_code = Some(code);
            let failure = Failure::new(ErrorKind::Command, message);
            return Err(failed(Failure { raw, exit_code, ..failure }, Some(reading)));
        }
        Ok(())
    }

    /// Returns the answer of a program that has ended, or the reason why there is none.
    fn reply(
        &self,
        ended: &ProgramRun,
        mut reading: Reading,
        prompt_chars: usize,
    ) -> Result<ChatReply, ModelError> {
        if reading.usage.is_none()
            && (reading.cost_usd.is_some() || reading.stated != StatedUsage::default())
        {
            // A failed program counts, too, if it states anything.
            let answer_chars = reading.answer.as_ref().map_or(0, |it| it.chars().count());
            reading.usage = Some(TokenUsage::estimate(prompt_chars, answer_chars));
        }
        self.check_end(ended, &reading)?;
        let fail = |kind, what: &str| Err(self.failure(kind, what, Some(&reading)));
        let Some(answer) = &reading.answer else {
            let program = self.command();
            let message = format!(
                "`{program}` ended without an answer: {}",
                output::what_is_missing(self.runner.program.protocol)
            );
            let raw = Some(output_text(&reading.rest));
            let failure = Failure::new(ErrorKind::InvalidOutput, message);
            return Err(failed(Failure { raw, ..failure }, Some(&reading)));
        };
        if ended.is_too_large {
            let what = "was stopped: the files in its `changes` are larger than 8 MiB together, so none came back";
            return fail(ErrorKind::Command, what);
        }
        if let Some(leak) = &ended.leak {
            let what = format!("wrote {leak}; no file was written back");
            return fail(ErrorKind::Command, &what);
        }
        let estimate = || TokenUsage::estimate(prompt_chars, answer.chars().count());
        Ok(ChatReply {
            usage: reading.usage.unwrap_or_else(estimate),
            cost_usd: reading.cost_usd,
            model: reading.model.unwrap_or_else(|| self.runner.program.name.clone()),
            text: answer.clone(),
            ..ChatReply::default()
        })
    }
}

fn failed(failure: Failure, reading: Option<&Reading>) -> ModelError {
    ModelError::Program {
        failure: Box::new(failure),
        usage: reading.and_then(|it| it.usage).unwrap_or_default(),
        cost_usd: reading.and_then(|it| it.cost_usd),
    }
}

/// Returns the whole conversation as one text. The form of the answer comes last, where a program that has worked for
/// long still finds it.
fn prompt_of(request: &ChatRequest) -> String {
    let (system, turns): (Vec<&Message>, Vec<&Message>) =
        request.messages.iter().partition(|it| it.role == Role::System);
    let mut parts: Vec<String> = system.into_iter().map(|it| it.content.clone()).collect();
    match turns.as_slice() {
        [only] => parts.push(only.content.clone()),
        turns => parts.extend(turns.iter().map(|turn| {
            let head = if turn.role == Role::Assistant { "You answered" } else { "The user wrote" };
            format!("{head}:\n{}", turn.content)
        })),
    }
    with_form(parts, request)
}

/// Returns the message that a session has not seen yet, as a text.
fn last_turn_of(request: &ChatRequest) -> String {
    with_form(request.messages.last().map(|it| it.content.clone()).into_iter().collect(), request)
}

fn with_form(mut parts: Vec<String>, request: &ChatRequest) -> String {
    if let Some(output) = &request.output {
        parts.push(format!(
            "When the work is done: {}",
            answer_instruction(&answer_schema(&output.schema))
        ));
    }
    parts.join("\n\n")
}

/// Returns the path from the root, as a sandbox needs it.
fn absolute(path: &Path) -> PathBuf {
    path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the variables in the form that [`SCRIPT`] reads.
fn channel_of(secrets: &BTreeMap<&str, &str>) -> Vec<u8> {
    secrets.iter().flat_map(|(name, value)| format!("{name}={value}\0").into_bytes()).collect()
}

/// Finds a secret in changed files or their paths, and returns where it is, without the secret. One that is hidden, such as
/// by an encoding, is not found.
fn find_secret(finished: &JobResult, secrets: &BTreeMap<&str, &str>) -> Option<String> {
    let secret_in = |text: &[u8]| {
        let has = |value: &str| {
            !value.is_empty() && text.windows(value.len()).any(|it| it == value.as_bytes())
        };
        secrets.iter().find(|(_, value)| has(value)).map(|(name, _)| *name)
    };
    // The paths come first: one with a secret must not be named because of its content.
    let collected = finished.collected.keys().map(String::as_bytes);
    let refused = finished.refused.keys().map(|it| it.as_os_str().as_bytes());
    if let Some(name) = collected.chain(refused).find_map(secret_in) {
        return Some(format!("the secret `{name}` into the name of a file"));
    }
    finished.collected.iter().find_map(|(path, content)| {
        Some(format!("the secret `{}` into `{path}`", secret_in(content)?))
    })
}

fn lock(output: &Mutex<Option<Output>>) -> MutexGuard<'_, Option<Output>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use graphrun_models::OutputSchema;
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_become_variables_of_the_program_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("prompt");
        std::fs::write(&input, "Mend it.").unwrap();
        let value = "two\nlines, 'quotes', \"more\", $(echo no), \\n and a = sign ";
        let secrets = BTreeMap::from([("ONE", value), ("input", "x")]);
        let mut command = std::process::Command::new("bash");
        command.args(["-c", r#"exec "$@" 3>&1"#, "outer", "bash", "-c", SCRIPT, "program"]);
        command.arg(&input).args(["bash", "-c", r#"printf '%s|%s|' "$ONE" "$input"; cat"#]);
        let mut channel = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut channel, &channel_of(&secrets)).unwrap();
        std::io::Seek::rewind(&mut channel).unwrap();
        let output = command.stdin(channel).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{value}|x|Mend it."));
    }

    #[test]
    fn a_conversation_becomes_one_prompt() {
        let mut request = ChatRequest {
            messages: vec![Message::system("Be brief."), Message::user("Mend it.")],
            ..ChatRequest::default()
        };
        assert_eq!(prompt_of(&request), "Be brief.\n\nMend it.");
        request.messages.extend([Message::assistant("{"), Message::user("Not JSON.")]);
        request.output = Some(OutputSchema { name: "n".into(), schema: json!({"type": "object"}) });
        let prompt = prompt_of(&request);
        let start = "Be brief.\n\nThe user wrote:\nMend it.\n\nYou answered:\n{\n\nThe user wrote:\nNot JSON.\n\nWhen";
        assert!(prompt.starts_with(start), "{prompt}");
        assert!(prompt.ends_with("{\n  \"type\": \"object\"\n}"), "{prompt}");
        let turn = last_turn_of(&request);
        assert!(turn.starts_with("Not JSON.\n\nWhen the work is done"), "{turn}");
    }
}
