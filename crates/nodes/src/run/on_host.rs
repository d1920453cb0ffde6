//! A command on this machine: its arguments, the permission of the operator, the approval of a person, and the call.

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
    state::plain_text,
};
use graphrun_sandbox::{HostCommand, HostCommandError, HostResult};
use graphrun_workflow::{ExpressionView, HostAccess, HostSettings, HostUse};

use super::{Argument, CommandSettings, VARIABLE_BYTES_MAX};
use crate::{
    host_approval::{AskedCommand, command_line},
    in_folder::open_folder,
    sandbox_command::STREAM_BYTES_MAX,
};

/// A call of a command on a host.
#[derive(Debug)]
pub(super) struct HostCall<'a> {
    pub(super) definition: &'a CommandSettings,
    pub(super) host: &'a HostSettings,
    pub(super) access: &'a HostAccess,
}

impl HostCall<'_> {
    /// Runs the command. No other task uses its folder meanwhile.
    pub(super) async fn run(&self, ctx: &NodeContext) -> Result<HostResult, NodeError> {
        let used = HostUse { host: self.host, shape: &self.definition.argv };
        let approval = self.access.check(used).map_err(|it| Failure::of(ErrorKind::Host, &it))?;
        let view = ExpressionView::of(ctx);
        let argv = self.argv(&view)?;
        let stdin = self.definition.stdin.as_ref().map(|it| it.evaluate(&view)).transpose()?;
        let stdin = stdin.map(|it| plain_text(&it));
        let open = match &self.host.folder {
            Some(name) => Some(open_folder(ctx, name).await?),
            None => None,
        };
        let folder = open.as_ref().map(|it| it.path().to_owned());
        let mut call = HostCommand {
            argv,
            folder,
            stdin,
            time: self.host.time,
            kept_bytes: STREAM_BYTES_MAX + 1,
            ..HostCommand::default()
        };
        let asked = AskedCommand { host: self.host, approval, call: &call, name: "run" };
        asked.ask(ctx).await?;
        let variables = self.access.variables_of(self.host);
        call.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let place = call.folder.as_ref().map(|it| format!(" in `{}`", it.display()));
        let place = place.unwrap_or_default();
        let message =
            format!("runs on the host `{}`{place}: {}", self.host.name, command_line(&call.argv));
        ctx.report(Report::Note { message }).await;
        let result = call.run(&ctx.cancel).await;
        drop(open);
        result.map_err(|error| {
            let kind = match error {
                HostCommandError::Aborted => ErrorKind::Command,
                _ => ErrorKind::Host,
            };
            Failure::of(kind, &error).into()
        })
    }

    /// Returns the program and its arguments. A value of the state is always one whole argument.
    fn argv(&self, view: &ExpressionView<'_>) -> Result<Vec<String>, NodeError> {
        let mut argv = self.definition.argv.clone();
        // Only a constant ends the options; a value that looks like this mark does not.
        let mut is_after_options = argv.iter().any(|it| it == "--");
        for argument in &self.definition.rest {
            let (value, dash) = match argument {
                Argument::Word(word) => {
                    is_after_options |= word == "--";
                    argv.push(word.clone());
                    continue;
                }
                Argument::Value { value, dash } => (value, dash),
            };
            let text = plain_text(&*value.evaluate(view)?);
            let problem = if text.starts_with('-') && !dash && !is_after_options {
                "begins with `-`, so the program would take it for an option"
            } else if text.contains('\0') {
                "has a NUL character"
            } else if text.len() > VARIABLE_BYTES_MAX {
                "is too long; pass it by `stdin`"
            } else {
                argv.push(text);
                continue;
            };
            let source = value.source();
            let message = format!("the value of `{source}` is no argument: it {problem}");
            return Err(Failure::new(ErrorKind::Command, message).into());
        }
        Ok(argv)
    }
}
