//! `run`: runs a command in a sandbox, or on a host.
//!
//! The output of the command is its result. In a sandbox, texts of the state reach it as variables,
//! as standard input and as files, and never as a part of its arguments.

mod on_host;
mod read;

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
    state::{Update, plain_text, read_json_bytes},
};
use graphrun_sandbox::{HostResult, JobError, SandboxError, SourceFile, clean_output};
use graphrun_workflow::{
    Expression, ExpressionView, HostAccess, HostSettings, SandboxSettings, kind::Services,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::on_host::HostCall;
pub(super) use self::read::RunKind;
pub use self::read::{Argument, CommandPlace, CommandSettings, RunOutput};
use super::{
    changes::{Changes, write_back},
    in_folder::SandboxFolder,
    sandbox_command::{CommandOutput, STREAM_BYTES_MAX, SandboxCommand, exit_code},
    sandboxed::{PreparedSandbox, SandboxServices, unusable},
    write_files::source_files,
};

/// The longest value of a variable; the kernel takes twice as much.
const VARIABLE_BYTES_MAX: usize = 64 << 10;

/// Runs a command.
#[derive(Debug)]
struct Run {
    definition: CommandSettings,
    sandboxes: SandboxServices,
    hosts: Arc<HostAccess>,
    /// Made on first use, and kept for later visits in a loop.
    prepared: OnceCell<PreparedSandbox>,
}

impl Run {
    fn new(definition: CommandSettings, services: &Services) -> Self {
        let sandboxes = SandboxServices::of(services);
        let hosts = Arc::clone(&services.hosts);
        Self { definition, sandboxes, hosts, prepared: OnceCell::new() }
    }

    /// Returns the command with the values of the state.
    fn command(
        &self,
        view: &ExpressionView<'_>,
        settings: &SandboxSettings,
    ) -> Result<SandboxCommand, NodeError> {
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
        let stdin = self.definition.stdin.as_ref().map(|it| it.evaluate(view)).transpose()?;
        let variable = |(name, value): &(String, Expression)| {
            let text = plain_text(&*value.evaluate(view)?);
            if text.len() > VARIABLE_BYTES_MAX {
                let message = format!("the variable `{name}` is too long; pass it by `stdin`");
                return Err(NodeError::from(Failure::new(ErrorKind::Command, message)));
            }
            Ok((name.clone(), text))
        };
        Ok(SandboxCommand {
            argv: self.definition.argv.clone(),
            stdin: stdin.map(|it| plain_text(&it)),
            files,
            env: self.definition.env.iter().map(variable).collect::<Result<_, _>>()?,
            limits: settings.limits(),
            changes: self.definition.changes.clone(),
            ..SandboxCommand::default()
        })
    }

    fn program(&self) -> &str {
        self.definition.argv.first().map_or("", String::as_str)
    }

    /// Returns whether an exit code is a failure. It is a result if a field receives it, unless another attempt
    /// follows.
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
        let HostResult { end, stdout, stderr } = call.run(ctx).await?;
        let code = exit_code(end, host.time).map_err(|it| it.failure(self.program()))?;
        Ok(CommandOutput { code, stdout, stderr, changes: Changes::default() })
    }

    async fn in_sandbox(
        &self,
        ctx: &NodeContext,
        settings: &SandboxSettings,
    ) -> Result<CommandOutput, NodeError> {
        let prepare = || PreparedSandbox::prepare(settings, &self.sandboxes);
        let prepared = self.prepared.get_or_try_init(prepare).await?;
        let command = self.command(&ExpressionView::of(ctx), settings)?;
        let job = |folder: &SandboxFolder| command.job(folder);
        let run = prepared.run_in_folder(ctx, self.definition.folder.as_ref(), job).await?;
        let result = match run.result {
            Ok(result) => result,
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
        Ok(command.output(result).map_err(|it| it.failure(self.program()))?)
    }

    fn update(&self, ended: &CommandOutput) -> Result<Update, Failure> {
        let mut update = Update::default();
        for (channel, output) in &self.definition.writes {
            let value = match output {
                RunOutput::Stdout => output_text(&ended.stdout).into(),
                RunOutput::Stderr => output_text(&ended.stderr).into(),
                RunOutput::ExitCode => json!(ended.code),
                RunOutput::Ok => json!(ended.code == 0),
                RunOutput::Json => match read_json_bytes(&ended.stdout) {
                    Ok(value) => value,
                    // The command failed and reports this by its exit code, which is written as
                    // well.
                    Err(_) if ended.code != 0 => continue,
                    Err(error) => {
                        let problem = if ended.stdout.len() > STREAM_BYTES_MAX {
                            "more JSON than the 1 MiB that are kept of its output".to_owned()
                        } else if error.is_limit() {
                            format!("JSON that exceeds a limit: {error}")
                        } else {
                            format!("invalid JSON: {error}")
                        };
                        let message = format!("`{}` printed {problem}", self.program());
                        let raw = Some(output_text(&ended.stdout));
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
            CommandPlace::Sandbox(settings) => self.in_sandbox(&ctx, settings).await?,
            CommandPlace::Host(host) => self.on_host(&ctx, host).await?,
        };
        let message = format!("`{}` ended with {}", self.program(), ended.code);
        ctx.report(Report::Note { message: message.clone() }).await;
        if self.is_failure(ended.code, ctx.attempt) {
            let output = if ended.stderr.is_empty() { &ended.stdout } else { &ended.stderr };
            let failure = Failure::new(ErrorKind::Command, with_output_tail(message, output));
            let raw = Some(output_text(output));
            let exit_code = Some(ended.code);
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
            CommandPlace::Sandbox(settings) => fingerprint["sandbox"] = settings.fingerprint(),
            CommandPlace::Host(host) => {
                fingerprint["host"] = json!([host.name, host.folder, host.secrets]);
                fingerprint["rest"] = rest.iter().map(Argument::fingerprint).collect();
            }
        }
        if !scripts.is_empty() {
            let hash = |file: &SourceFile| {
                json!([file.path, blake3::hash(file.content.as_bytes()).to_hex().as_str()])
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

/// Returns output as text without control characters, and with a mark where it was truncated.
pub(super) fn output_text(bytes: &[u8]) -> String {
    if bytes.len() <= STREAM_BYTES_MAX {
        return clean_output(bytes, false);
    }
    clean_output(&bytes[..STREAM_BYTES_MAX], true) + "\n… cut after 1 MiB\n"
}

/// The lines of a command's output in the text of its failure, and the characters of each.
const LAST_LINES: usize = 20;
const LINE_CHARACTERS_MAX: usize = 200;

/// Returns a message with the last lines of the output.
pub(super) fn with_output_tail(message: String, output: &[u8]) -> String {
    let output = output_text(output);
    let lines: Vec<&str> = output.lines().filter(|it| !it.trim().is_empty()).collect();
    let shown = |line: &&str| line.trim_end().chars().take(LINE_CHARACTERS_MAX).collect::<String>();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    match last {
        [] => message,
        [line] => format!("{message}: {}", shown(line).trim_start()),
        lines => format!("{message}:\n{}", lines.iter().map(shown).collect::<Vec<_>>().join("\n")),
    }
}
