//! `run`: runs a command in a sandbox, or on a host.
//!
//! The output of the command is its result. In a sandbox, texts of the state reach it as variables,
//! as standard input and as files, and never as a part of its arguments.

mod on_host;
mod read;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
    state::{Update, read_json_bytes},
};
use graphrun_sandbox::{
    Finished, HostResult, Job, JobError, Outcome, SandboxError, SourceFile, clean_output,
};
use graphrun_workflow::{
    Expression, ExpressionView, HostAccess, HostSettings, SandboxSettings, kind::Services,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::on_host::HostCall;
pub(super) use self::read::RunKind;
pub use self::read::{Argument, CommandSettings, RunOutput, RunPlace};
use super::{
    call_in_sandbox::Streams,
    changes::{Changes, write_back},
    in_folder::SandboxFolder,
    sandboxed::{Bench, SandboxServices, unusable},
    write_files::source_files,
};

/// The longest value of a variable; the kernel takes twice as much.
const VARIABLE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of each stream that are kept. Written into the script of [`Streams`].
pub(super) const STREAM_BYTES_MAX: usize = 1 << 20;

/// Runs a command.
#[derive(Debug)]
struct Run {
    definition: CommandSettings,
    sandboxes: SandboxServices,
    hosts: Arc<HostAccess>,
    /// Made on first use, and kept for later visits in a loop.
    bench: OnceCell<Bench>,
}

/// The result of a command that ended by itself.
struct CommandOutput {
    code: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    changes: Changes,
}

impl Run {
    fn new(definition: CommandSettings, services: &Services) -> Self {
        let (sandboxes, hosts) = (SandboxServices::of(services), Arc::clone(&services.hosts));
        Self { definition, sandboxes, hosts, bench: OnceCell::new() }
    }

    /// Returns the job. The names of the files with its streams cannot be guessed, so a file of the command is never taken
    /// for a stream.
    fn job(
        &self,
        view: &ExpressionView<'_>,
        settings: &SandboxSettings,
        folder: &SandboxFolder,
        names: &Streams,
    ) -> Result<Job, NodeError> {
        let mut files = match &self.definition.files {
            Some(files) => source_files(files.evaluate(view)?.as_ref())?,
            None => Vec::new(),
        };
        let scripts = &self.definition.scripts;
        let is_script = |it: &&SourceFile| scripts.iter().any(|script| script.path == it.path);
        if let Some(file) = files.iter().find(is_script) {
            let message =
                format!("`files` has a file under the name of the script `{}`", file.path);
            return Err(Failure::new(ErrorKind::Command, message).into());
        }
        files.extend(scripts.iter().cloned());
        if let Some(stdin) = &self.definition.stdin {
            let content = text_of(stdin.evaluate(view)?.as_ref());
            files.push(SourceFile { path: names.input.clone(), content });
        }
        let variable = |(name, value): &(String, Expression)| {
            let text = text_of(value.evaluate(view)?.as_ref());
            if text.len() > VARIABLE_BYTES_MAX {
                let message = format!("the variable `{name}` is too long; pass it by `stdin`");
                return Err(NodeError::from(Failure::new(ErrorKind::Command, message)));
            }
            Ok((name.clone(), text))
        };
        Ok(Job {
            argv: names.argv(self.definition.argv.iter().cloned()),
            files,
            folder: folder.files(),
            mounted: folder.mounted(),
            env: self.definition.env.iter().map(variable).collect::<Result<_, _>>()?,
            limits: settings.limits(),
            collect_temporary: vec![names.output.clone(), names.errors.clone()],
            collect_below: self.definition.changes.clone(),
            // The program is looked up before any code of the command runs, so that no command can
            // make it seem absent.
            required: self.definition.argv.first().cloned().into_iter().collect(),
            ..Job::default()
        })
    }

    fn program(&self) -> &str {
        self.definition.argv.first().map_or("", String::as_str)
    }

    /// Returns the exit code of a command that was not stopped.
    fn code(&self, outcome: Outcome, time: Duration) -> Result<i32, Failure> {
        let program = self.program();
        match outcome {
            Outcome::Passed => Ok(0),
            Outcome::Failed(code) => Ok(code),
            Outcome::Signaled(signal) => Ok(128 + signal),
            Outcome::TimedOut => {
                let message = format!("`{program}` was stopped after {time:?}");
                Err(Failure::new(ErrorKind::Timeout, message))
            }
            Outcome::OutOfMemory => Err(stopped(program, "it used too much memory")),
            Outcome::OutputLimit => Err(stopped(program, "it wrote too much output")),
        }
    }

    /// Returns the result of a command in a sandbox that was not stopped.
    fn ended(
        &self,
        mut finished: Finished,
        names: &Streams,
        time: Duration,
    ) -> Result<CommandOutput, Failure> {
        let program = self.program();
        let code = self.code(finished.outcome, time)?;
        // The shell around the program brings the output out, and a program can kill all processes.
        let missing = if finished.is_too_large {
            "its output and its changes together are larger than 8 MiB"
        } else {
            "a signal ended it together with the shell that keeps its output"
        };
        let mut stream =
            |name: &str| finished.collected.remove(name).ok_or_else(|| stopped(program, missing));
        let (stdout, stderr) = (stream(&names.output)?, stream(&names.errors)?);
        Ok(CommandOutput { code, stdout, stderr, changes: Changes::of(finished) })
    }

    /// Whether an exit code is a failure. It is a result if a field receives it, unless another attempt follows.
    fn is_failure(&self, code: i32, attempt: u32) -> bool {
        let retry = &self.definition.retry;
        let follows = attempt < retry.attempts_max.unwrap_or(1);
        let is_result = self.definition.writes.iter().any(|(_, it)| it.reports_failure());
        code != 0 && (!is_result || follows && retry.exit_codes.contains(&code))
    }

    async fn on_host(
        &self,
        ctx: &NodeContext,
        host: &HostSettings,
    ) -> Result<CommandOutput, NodeError> {
        let call = HostCall { definition: &self.definition, host, access: &self.hosts };
        let HostResult { outcome, stdout, stderr } = call.run(ctx).await?;
        let code = self.code(outcome, host.time)?;
        Ok(CommandOutput { code, stdout, stderr, changes: Changes::default() })
    }

    async fn in_sandbox(
        &self,
        ctx: &NodeContext,
        settings: &SandboxSettings,
    ) -> Result<CommandOutput, NodeError> {
        let prepare = || Bench::prepare(settings, &self.sandboxes);
        let bench = self.bench.get_or_try_init(prepare).await?;
        let names = Streams::new();
        let view = ExpressionView::of(ctx);
        let job = |folder: &SandboxFolder| self.job(&view, settings, folder, &names);
        let finished = match bench.run_in_folder(ctx, self.definition.folder.as_ref(), job).await? {
            Ok(finished) => finished,
            // A model may have chosen these names, so the failure is one of the work.
            Err(SandboxError::Refused(JobError::Files(refused))) => {
                let message = format!("the files were not accepted: {refused}");
                return Err(Failure::new(ErrorKind::Command, message).into());
            }
            Err(SandboxError::ProgramNotFound { program }) => {
                let message = format!(
                    "there is no program `{program}` inside the sandbox (only those below /usr; \
                     packages of Python are run by `python -m`)"
                );
                return Err(Failure::new(ErrorKind::Sandbox, message).into());
            }
            Err(error) => return Err(unusable(&error)),
        };
        Ok(self.ended(finished, &names, settings.time)?)
    }

    fn update(&self, ended: &CommandOutput) -> Result<Update, Failure> {
        let mut update = Update::default();
        for (channel, output) in &self.definition.writes {
            let value = match output {
                RunOutput::Stdout => shown(&ended.stdout).into(),
                RunOutput::Stderr => shown(&ended.stderr).into(),
                RunOutput::ExitCode => json!(ended.code),
                RunOutput::Ok => json!(ended.code == 0),
                // Truncated output is no JSON any longer, so its size need not be checked.
                RunOutput::Json => match read_json_bytes(&ended.stdout) {
                    Ok(value) => value,
                    // The command failed and reports this by its exit code, which is written as
                    // well.
                    Err(_) if ended.code != 0 => continue,
                    Err(error) => {
                        let is_limit = error.is_limit();
                        let what =
                            if is_limit { "JSON that exceeds a limit" } else { "invalid JSON" };
                        let message = format!("`{}` printed {what}: {error}", self.program());
                        let raw = Some(shown(&ended.stdout));
                        let failure = Failure::new(ErrorKind::InvalidOutput, message);
                        return Err(Failure { raw, ..failure });
                    }
                },
            };
            update = update.write(channel.clone(), value);
        }
        Ok(update)
    }
}

#[async_trait]
impl Node for Run {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let ended = match &self.definition.place {
            RunPlace::Sandbox(settings) => self.in_sandbox(&ctx, settings).await?,
            RunPlace::Host(host) => self.on_host(&ctx, host).await?,
        };
        let message = format!("`{}` ended with {}", self.program(), ended.code);
        ctx.report(Report::Note { message: message.clone() }).await;
        if self.is_failure(ended.code, ctx.attempt) {
            let output = if ended.stderr.is_empty() { &ended.stdout } else { &ended.stderr };
            let failure = Failure::new(ErrorKind::Command, with_last_words(message, output));
            let (raw, exit_code) = (Some(shown(output)), Some(ended.code));
            return Err(Failure { raw, exit_code, ..failure }.into());
        }
        let update = self.update(&ended)?;
        if let Some(name) = &self.definition.folder {
            write_back(&ctx, name, ended.changes, self.program()).await?;
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let CommandSettings { argv, rest, place, scripts, writes, .. } = &self.definition;
        let outputs = writes.iter().map(|(channel, output)| json!([channel, output.as_str()]));
        let mut fingerprint = json!({
            "argv": argv,
            "writes": outputs.collect::<Vec<Value>>(),
        });
        match place {
            RunPlace::Sandbox(settings) => fingerprint["sandbox"] = settings.fingerprint(),
            RunPlace::Host(host) => {
                fingerprint["host"] = json!([host.name, host.folder, host.secrets]);
                fingerprint["rest"] = rest.iter().map(Argument::fingerprint).collect();
            }
        }
        if !scripts.is_empty() {
            let hash = |it: &SourceFile| {
                json!([it.path, blake3::hash(it.content.as_bytes()).to_hex().as_str()])
            };
            fingerprint["scripts"] = scripts.iter().map(hash).collect();
        }
        let outputs: Vec<RunOutput> = writes.iter().map(|(_, output)| *output).collect();
        let always = writes.iter().filter(|(_, output)| output.is_certain_in(&outputs));
        let channels = writes.iter().map(|(channel, _)| channel.clone()).collect();
        NodeDescription {
            kind: "run",
            contract: Contract { reads: None, writes: Some(channels) },
            writes_always: Some(always.map(|(channel, _)| channel.clone()).collect()),
            calls_max: Some(0),
            fingerprint,
            ..NodeDescription::default()
        }
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let CommandSettings { env, stdin, files, .. } = &self.definition;
        let view = ExpressionView::of(ctx);
        let value = |it: &Expression| it.evaluate(&view);
        let env = env.iter().map(|(name, it)| Ok(json!([name, value(it)?])));
        Ok(json!({
            "env": env.collect::<Result<Vec<Value>, NodeError>>()?,
            "stdin": stdin.as_ref().map(value).transpose()?,
            "files": files.as_ref().map(value).transpose()?,
        }))
    }
}

fn stopped(program: &str, why: &str) -> Failure {
    Failure::new(ErrorKind::Command, format!("`{program}` was stopped: {why}"))
}

/// A text as it is, other values as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns output as text without control characters, and with a mark where it was truncated.
pub(super) fn shown(bytes: &[u8]) -> String {
    if bytes.len() <= STREAM_BYTES_MAX {
        return clean_output(bytes, false);
    }
    clean_output(&bytes[..STREAM_BYTES_MAX], true) + "\n… cut after 1 MiB\n"
}

/// The lines of a command's output in the text of its failure, and the characters of each.
const LAST_LINES: usize = 20;
const LINE_CHARACTERS_MAX: usize = 200;

/// Returns a message with the last lines of the output.
pub(super) fn with_last_words(message: String, output: &[u8]) -> String {
    let output = shown(output);
    let lines: Vec<&str> = output.lines().filter(|it| !it.trim().is_empty()).collect();
    let shown = |it: &&str| it.trim_end().chars().take(LINE_CHARACTERS_MAX).collect::<String>();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    match last {
        [] => message,
        [line] => format!("{message}: {}", shown(line).trim_start()),
        lines => format!("{message}:\n{}", lines.iter().map(shown).collect::<Vec<_>>().join("\n")),
    }
}
