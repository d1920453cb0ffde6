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

/// Asks a person, if this call needs an approval.
pub(super) async fn ask_for_command(
    ctx: &NodeContext,
    host: &HostSettings,
    approval: Approval,
    call: &HostCommand,
) -> Result<(), NodeError> {
    let HostSettings { name, secrets, .. } = host;
    let grant = host.grant();
    let mut show = json!({ "host": name, "command": call.argv });
    if let Some(folder) = &call.folder {
        show["folder"] = folder.display().to_string().into();
    }
    if let Some(stdin) = &call.stdin {
        show["stdin"] = stdin.as_str().into();
    }
    if !secrets.is_empty() {
        show["secrets"] = json!(secrets);
    }
    let prompt = match approval {
        Approval::Once => format!(
            "Run this command on this machine, and later ones on `{name}` without a question?"
        ),
        _ => "Run this command on this machine?".to_owned(),
    };
    let question = || {
        let question =
            Question::new(question_key(ctx, &show), format!("{prompt}\n{}", quoted(&call.argv)));
        Question { show, ..question }
    };
    // An earlier approval of all commands counts only as long as the operator accepts such ones.
    let grant = (approval == Approval::Once).then_some(grant.as_str());
    if ask_for_approval(ctx, approval, grant, question).await? == Some(false) {
        let message = format!("a person declined `{}`", command_line(&call.argv));
        return Err(Failure::new(ErrorKind::Declined, message).into());
    }
    Ok(())
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
