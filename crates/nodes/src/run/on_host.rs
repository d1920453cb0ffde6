//! A command on this machine: its arguments, the permission of the operator, the approval of a person, and the call.

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError, Question},
};
use graphrun_sandbox::{HostCommand, HostError, HostResult};
use graphrun_workflow::{Approval, ExpressionView, HostAccess, HostSettings, HostUse};
use serde_json::json;

use super::{Argument, RunNode, STREAM_BYTES_MAX, VARIABLE_BYTES_MAX, text_of};
use crate::in_folder::open_folder;

/// The characters of a command that the trace shows.
const SHOWN_CHARACTERS_MAX: usize = 2_000;

/// A call of a command on a host.
#[derive(Debug)]
pub(super) struct HostCall<'a> {
    pub(super) definition: &'a RunNode,
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
        let stdin = stdin.map(|it| text_of(it.as_ref()));
        let open = match &self.host.folder {
            Some(name) => Some(open_folder(ctx, name).await?),
            None => None,
        };
        let folder = open.as_ref().map(|it| it.path().to_owned());
        let mut call = HostCommand {
            argv,
            folder,
            env: Vec::new(),
            stdin,
            time: self.host.time,
            kept_bytes: STREAM_BYTES_MAX + 1,
        };
        self.ask(ctx, approval, &call).await?;
        let variables = self.access.variables_of(self.host);
        call.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let place = call.folder.as_ref().map(|it| format!(" in `{}`", it.display()));
        let place = place.unwrap_or_default();
        let message =
            format!("runs on the host `{}`{place}: {}", self.host.name, shown(&call.argv));
        ctx.report(Report::Note { message }).await;
        let result = call.run(&ctx.cancel).await;
        drop(open);
        result.map_err(|error| {
            let kind = match error {
                HostError::Aborted => ErrorKind::Command,
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
            let text = text_of(value.evaluate(view)?.as_ref());
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

    /// Asks a person, if this call needs an approval. The key of the question contains a hash of the whole call, so an
    /// answer never approves another one.
    async fn ask(
        &self,
        ctx: &NodeContext,
        approval: Approval,
        call: &HostCommand,
    ) -> Result<(), NodeError> {
        let (host, grant) = (&self.host.name, self.host.grant());
        let is_approved = match approval {
            Approval::Never => true,
            Approval::Once => ctx.is_granted(&grant),
            Approval::Each => false,
        };
        if is_approved {
            return Ok(());
        }
        let mut show = json!({ "host": host, "command": call.argv });
        if let Some(folder) = &call.folder {
            show["folder"] = folder.display().to_string().into();
        }
        if let Some(stdin) = &call.stdin {
            show["stdin"] = stdin.as_str().into();
        }
        if !self.host.secrets.is_empty() {
            show["secrets"] = json!(self.host.secrets);
        }
        let hash = blake3::hash(show.to_string().as_bytes()).to_hex();
        let key = format!("{}-{}", ctx.node, &hash[..12]);
        let prompt = match approval {
            Approval::Once => format!(
                "Run this command on this machine, and later ones on `{host}` without a question?"
            ),
            _ => "Run this command on this machine?".to_owned(),
        };
        let mut question = Question::new(key, format!("{prompt}\n{}", quoted(&call.argv)));
        question.show = show;
        if !ctx.ask::<bool>(question)? {
            let message = format!("a person declined `{}`", shown(&call.argv));
            return Err(Failure::new(ErrorKind::Declined, message).into());
        }
        if approval == Approval::Once {
            ctx.grant(&grant).await?;
        }
        Ok(())
    }
}

/// Returns a command as it could be typed, so that each argument can be told apart.
fn quoted(argv: &[String]) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-./=:,@%+".contains(it);
    let quote = |it: &String| {
        if !it.is_empty() && it.chars().all(plain) {
            return it.clone();
        }
        format!("'{}'", it.replace('\'', r"'\''"))
    };
    argv.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn shown(argv: &[String]) -> String {
    let text = quoted(argv);
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_can_be_told_apart() {
        let argv = ["git", "commit", "-m", "it's a\nline", "", "$HOME", "a b"].map(str::to_owned);
        assert_eq!(quoted(&argv), "git commit -m 'it'\\''s a\nline' '' '$HOME' 'a b'");
        assert_eq!(shown(&["x".repeat(3_000)]).chars().count(), SHOWN_CHARACTERS_MAX + 1);
    }
}
