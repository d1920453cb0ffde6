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
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
    state::Update,
};
use graphrun_guard::redact::redact;
use graphrun_models::{
    ChatModel, ChatReply, ChatRequest, Message, ModelError, Role, TokenUsage, answer_instruction,
    answer_schema,
};
use graphrun_sandbox::{
    HostCommand, HostError, Job, JobError, Limits, Outcome, OutputReader, SandboxError, SourceFile,
};
use graphrun_workflow::{
    HostSettings, HostUse, Program, ProgramPlace, SandboxSettings, kind::Services,
};
use serde_json::Value;
use tokio::sync::{OnceCell, mpsc};

use self::output::{Output, Reading};
use super::{Agent, AnswerForm, NoAnswer};
use crate::{
    call::{Calls, Watched, failure_of},
    call_in_sandbox::Streams,
    changes::write_back,
    host_approval::{ask_for_command, shown as shown_command},
    in_folder::{SandboxFolder, open_folder},
    run::{shown, with_last_words},
    sandboxed::{Bench, SandboxServices, unusable},
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
/// it is read at once. Arguments: the name of the file with the prompt, then the command.
const SCRIPT: &str = r#"
input=$1
shift
[[ -d /env/bin ]] && PATH=/env/bin:$PATH
exec 8<"$input"
rm -- "$input"
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
    bench: OnceCell<Bench>,
}

/// A program in place of a model, for one attempt.
#[derive(Debug)]
struct ProgramModel {
    runner: Arc<ProgramRunner>,
    ctx: NodeContext,
    /// Why the attempt ends here, if it does: a person has to answer first.
    end: Mutex<Option<NodeError>>,
}

/// The end of a program.
struct Ended {
    outcome: Outcome,
    stderr: Vec<u8>,
    time: Duration,
    /// The files that are written back, by path.
    changes: BTreeMap<String, Vec<u8>>,
}

impl ProgramRunner {
    pub(super) fn new(
        program: Program,
        (folder, changes): (Option<String>, Vec<String>),
        services: Services,
    ) -> Self {
        Self { program, folder, changes, services, bench: OnceCell::new() }
    }

    /// The part of the agent's fingerprint for the program.
    pub(super) fn fingerprint(&self) -> Value {
        let mut fingerprint = self.program.fingerprint();
        fingerprint["changes"] = self.changes.clone().into();
        fingerprint
    }
}

impl Agent {
    /// Asks the program for the answer.
    pub(super) async fn ask_program(
        &self,
        ctx: &NodeContext,
        runner: &Arc<ProgramRunner>,
        (request, answer): (&ChatRequest, &AnswerForm<'_>),
    ) -> Result<Update, NodeError> {
        let (runner, end) = (Arc::clone(runner), Mutex::default());
        let name = runner.program.name.clone();
        let model = Arc::new(ProgramModel { runner, ctx: ctx.clone(), end });
        let calls = Calls::default();
        let asked = Arc::clone(&model) as Arc<dyn ChatModel>;
        let watched = Watched::new((&name, asked), ctx, &self.services, &calls);
        let answered = self.answer_of(ctx, &watched, (request, answer)).await;
        let end = model.end().take();
        match (end, answered) {
            (Some(end), _) | (None, Err(NoAnswer::End(end))) => Err(end),
            (None, Err(NoAnswer::Model(error))) => Err(failure_of(&error).into()),
            (None, Err(NoAnswer::Unreadable(failure))) => Err(failure.into()),
            (None, Ok(update)) => Ok(self.with_history(request, update)),
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
                let (usage, cost_usd) = (TokenUsage::default(), None);
                Err(ModelError::Program { failure, usage, cost_usd })
            }
            Err(question @ NodeError::Ask(_)) => {
                // The caller takes the question, and does not look at the error. It is not recorded, because the
                // program did not run.
                *self.end() = Some(question);
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
    fn end(&self) -> MutexGuard<'_, Option<NodeError>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self) -> &str {
        self.runner.program.argv.first().map_or("", String::as_str)
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
        let prompt = prompt_of(request);
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
            let ended = self.run(&prompt, reader).await;
            // Dropping it ends the reports.
            let read = lock(&output).take().map(|it| it.finish(request.output.as_ref()));
            ended.map(|it| (it, read.unwrap_or_default()))
        };
        let (ended, ()) = tokio::join!(run, report);
        let (ended, reading) = ended?;
        let reply = self.reply(&ended, reading, prompt.chars().count());
        if let (Ok(_), Some(name)) = (&reply, &self.runner.folder) {
            write_back(&self.ctx, name, ended.changes, self.command()).await?;
        }
        Ok(reply)
    }

    async fn run(&self, prompt: &str, reader: OutputReader) -> Result<Ended, NodeError> {
        match &self.runner.program.place {
            ProgramPlace::Sandbox(settings) => self.in_sandbox(settings, prompt, reader).await,
            ProgramPlace::Host(host) => self.on_host(host, prompt, reader).await,
        }
    }

    /// The time limit of the program: the timeout of the node, or else the limit of its place.
    fn time(&self, of_place: Duration) -> Duration {
        self.ctx.timeout.map_or(of_place, |it| it.saturating_add(AFTER_TIMEOUT))
    }

    async fn in_sandbox(
        &self,
        settings: &SandboxSettings,
        prompt: &str,
        reader: OutputReader,
    ) -> Result<Ended, NodeError> {
        let Program { argv, scripts, .. } = &self.runner.program;
        let services = SandboxServices::of(&self.runner.services);
        let prepare = || Bench::prepare(settings, &services);
        let bench = self.runner.bench.get_or_try_init(prepare).await?;
        let Streams { input, .. } = Streams::new();
        let wrapper = ["bash", "-c", SCRIPT, "program", &input].map(str::to_owned);
        let mut files = scripts.clone();
        files.push(SourceFile { path: input, content: prompt.to_owned() });
        let time = self.time(settings.time);
        let job = Job {
            argv: wrapper.into_iter().chain(argv.iter().cloned()).collect(),
            files,
            read_only: bench.mounts(),
            limits: Limits { wall: time, output_bytes: OUTPUT_BYTES_MAX, ..settings.limits() },
            collect_below: self.runner.changes.clone(),
            // The program is looked up before it runs, so that nothing inside can make it seem absent.
            required: argv.first().cloned().into_iter().collect(),
            channel: Some(Vec::new()),
            reader: Some(reader),
            ..Job::default()
        };
        let in_folder = |folder: &SandboxFolder| {
            Ok(Job { folder: folder.files(), mounted: folder.mounted(), ..job.clone() })
        };
        match bench.run_in_folder(&self.ctx, self.runner.folder.as_ref(), in_folder).await? {
            Ok(finished) => Ok(Ended {
                outcome: finished.outcome,
                stderr: finished.output.into_bytes(),
                time,
                changes: finished.collected,
            }),
            Err(SandboxError::Refused(JobError::Files(refused))) => {
                let message = format!("the files were not accepted: {refused}");
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
        prompt: &str,
        reader: OutputReader,
    ) -> Result<Ended, NodeError> {
        let argv = &self.runner.program.argv;
        let access = &self.runner.services.hosts;
        let used = HostUse { host, shape: argv };
        let approval = access.check(used).map_err(|it| Failure::of(ErrorKind::Host, &it))?;
        // No other task uses the folder meanwhile.
        let open = match &host.folder {
            Some(name) => Some(open_folder(&self.ctx, name).await?),
            None => None,
        };
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
        ask_for_command(&self.ctx, host, approval, &call).await?;
        let variables = access.variables_of(host);
        call.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let place = call.folder.as_ref().map(|it| format!(" in `{}`", it.display()));
        let place = place.unwrap_or_default();
        let message = format!("runs on the host `{}`{place}: {}", host.name, shown_command(argv));
        self.ctx.report(Report::Note { message }).await;
        let result = call.run(&self.ctx.cancel).await.map_err(|error| {
            let kind = match error {
                HostError::Aborted => ErrorKind::Command,
                _ => ErrorKind::Host,
            };
            let failure = Failure::of(kind, &error);
            let help = match error {
                HostError::ProgramNotFound { .. } => "; install it there, or name another program",
                _ => "",
            };
            Failure { message: failure.message + help, ..failure }
        })?;
        let (outcome, stderr, time) = (result.outcome, result.stderr, call.time);
        Ok(Ended { outcome, stderr, time, changes: BTreeMap::new() })
    }

    /// Returns the answer of a program that has ended, or the reason why there is none.
    fn reply(
        &self,
        ended: &Ended,
        reading: Reading,
        prompt_chars: usize,
    ) -> Result<ChatReply, ModelError> {
        let fail = |kind, what: &str| Err(self.failure(kind, what, Some(&reading)));
        let code = match ended.outcome {
            Outcome::Passed => 0,
            Outcome::Failed(code) => code,
            Outcome::Signaled(signal) => 128 + signal,
            Outcome::TimedOut => {
                let what = format!(
                    "was stopped after {:?}, the time limit of its place; give the node a longer `timeout`",
                    ended.time
                );
                return fail(ErrorKind::Timeout, &what);
            }
            Outcome::OutOfMemory => {
                return fail(ErrorKind::Command, "was stopped: it used too much memory");
            }
            Outcome::OutputLimit => {
                return fail(ErrorKind::Command, "was stopped: it printed more than 64 MiB");
            }
        };
        if code != 0 || reading.error.is_some() {
            let program = self.command();
            let message = match &reading.error {
                Some(error) => format!("`{program}` ended with {code} and this error: {error}"),
                None => with_last_words(format!("`{program}` ended with {code}"), &ended.stderr),
            };
            let message = redact(&message).into_owned();
            let said = if ended.stderr.is_empty() { &reading.rest } else { &ended.stderr };
            let (raw, exit_code) = (Some(shown(said)), Some(code));
            let failure = Failure::new(ErrorKind::Command, message);
            return Err(failed(Failure { raw, exit_code, ..failure }, Some(&reading)));
        }
        let Some(answer) = &reading.answer else {
            let program = self.command();
            let message = format!(
                "`{program}` ended without an answer: {}",
                output::what_is_missing(self.runner.program.protocol)
            );
            let raw = Some(shown(&reading.rest));
            let failure = Failure::new(ErrorKind::InvalidOutput, message);
            return Err(failed(Failure { raw, ..failure }, Some(&reading)));
        };
        let answer = redact(answer).into_owned();
        let estimate = || TokenUsage::estimate(prompt_chars, answer.chars().count());
        Ok(ChatReply {
            usage: reading.usage.unwrap_or_else(estimate),
            cost_usd: reading.cost_usd,
            model: reading.model.unwrap_or_else(|| self.runner.program.name.clone()),
            text: answer,
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
        turns => parts.extend(turns.iter().map(|it| {
            let head = if it.role == Role::Assistant { "You answered" } else { "The user wrote" };
            format!("{head}:\n{}", it.content)
        })),
    }
    if let Some(output) = &request.output {
        parts.push(format!(
            "When the work is done: {}",
            answer_instruction(&answer_schema(&output.schema))
        ));
    }
    parts.join("\n\n")
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
    }
}
