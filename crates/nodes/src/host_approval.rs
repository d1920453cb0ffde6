//! The approval of a person before a command runs on this machine.

use graphrun_core::graph::{ErrorKind, Failure, NodeContext, NodeError, Question};
use graphrun_sandbox::HostCommand;
use graphrun_workflow::{Approval, HostSettings};
use serde_json::json;

use crate::approval::{ApprovalAnswer, ask_for_approval, question_key};

/// The characters of a command that the trace shows.
const SHOWN_CHARACTERS_MAX: usize = 2_000;

impl ApprovalAnswer for bool {
    fn is_for_run(&self, approval: Approval) -> bool {
        *self && approval == Approval::Once
    }
}

/// A command that a person is asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedCommand<'a> {
    pub(super) host: &'a HostSettings,
    /// When a person is asked.
    pub(super) approval: Approval,
    pub(super) call: &'a HostCommand,
    /// The name of the call in its task, which no other call of the task has: two of them may be equal.
    pub(super) name: &'a str,
}

impl AskedCommand<'_> {
    /// Asks a person, if this call needs an approval.
    pub(super) async fn ask(self, ctx: &NodeContext) -> Result<(), NodeError> {
        let Self { host, approval, call, .. } = self;
        // An earlier approval of all commands counts only as long as the operator accepts such ones.
        let grant = (approval == Approval::Once).then(|| host.grant());
        let question = || self.question(ctx);
        if ask_for_approval(ctx, approval, grant.as_deref(), question).await? == Some(false) {
            let message = format!("a person declined `{}`", command_line(&call.argv));
            return Err(Failure::new(ErrorKind::Declined, message).into());
        }
        Ok(())
    }

    fn question(self, ctx: &NodeContext) -> Question {
        let HostSettings { name, secrets, .. } = self.host;
        let HostCommand { argv, folder, stdin, .. } = self.call;
        let mut show = json!({ "host": name, "command": argv });
        if let Some(folder) = folder {
            show["folder"] = folder.display().to_string().into();
        }
        if let Some(stdin) = stdin {
            show["stdin"] = stdin.as_str().into();
        }
        if !secrets.is_empty() {
            show["secrets"] = json!(secrets);
        }
        let prompt = match self.approval {
            Approval::Once => format!(
                "Run this command on this machine, and later ones on `{name}` without a question?"
            ),
            _ => "Run this command on this machine?".to_owned(),
        };
        let key = question_key(ctx, &json!([show, self.name]));
        let question = Question::new(key, format!("{prompt}\n{}", quoted(argv)));
        Question { show, ..question }
    }
}

/// Returns a command as it could be typed, so that each argument can be told apart.
fn quoted(argv: &[String]) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-./=:,@%+".contains(it);
    let quote = |argument: &String| {
        if !argument.is_empty() && argument.chars().all(plain) {
            return argument.clone();
        }
        format!("'{}'", argument.replace('\'', r"'\''"))
    };
    argv.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Returns a command for the trace.
pub(super) fn command_line(argv: &[String]) -> String {
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
        assert_eq!(command_line(&["x".repeat(3_000)]).chars().count(), SHOWN_CHARACTERS_MAX + 1);
    }
}
