//! The approval of a person before a command runs on this machine.

use graphrun_core::graph::{ErrorKind, Failure, NodeContext, NodeError, Question};
use graphrun_sandbox::HostCommand;
use graphrun_workflow::{Approval, HostSettings};
use serde_json::json;

/// The characters of a command that the trace shows.
const SHOWN_CHARACTERS_MAX: usize = 2_000;

/// Asks a person, if this call needs an approval. The key of the question contains a hash of the whole call, so an
/// answer never approves another one.
pub(super) async fn ask_for_command(
    ctx: &NodeContext,
    host: &HostSettings,
    approval: Approval,
    call: &HostCommand,
) -> Result<(), NodeError> {
    let HostSettings { name, secrets, .. } = host;
    let grant = host.grant();
    let is_approved = match approval {
        Approval::Never => true,
        Approval::Once => ctx.is_granted(&grant),
        Approval::Each => false,
    };
    if is_approved {
        return Ok(());
    }
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
    let hash = blake3::hash(show.to_string().as_bytes()).to_hex();
    let key = format!("{}-{}", ctx.node, &hash[..12]);
    let prompt = match approval {
        Approval::Once => format!(
            "Run this command on this machine, and later ones on `{name}` without a question?"
        ),
        _ => "Run this command on this machine?".to_owned(),
    };
    let mut question = Question::new(key, format!("{prompt}\n{}", quoted(&call.argv)));
    question.show = show;
    if !ctx.ask::<bool>(question)? {
        let message = format!("a person declined `{}`", command_line(&call.argv));
        return Err(Failure::new(ErrorKind::Declined, message).into());
    }
    if approval == Approval::Once {
        ctx.grant(&grant).await?;
    }
    Ok(())
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
