//! The constant arguments of commands, which no shell reads and into which no value is filled.

use graphrun_core::diagnostic::Diagnostic;

use crate::source::{
    reader::{Data, SpannedText, Yaml},
    report::Report,
};

/// The forms in which values reach a command, for the help texts.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentAdvice {
    /// Instead of a template in an argument.
    pub values: &'static str,
    /// Instead of an operator of a shell.
    pub shell: &'static str,
}

/// Reads the items of a command: a list, not a shell line. `what` is the key in messages.
pub fn read_arguments<'y>(report: &mut Report, yaml: &'y Yaml, what: &str) -> Option<&'y [Yaml]> {
    let Data::List(items) = &yaml.data else {
        let span = report.span(&yaml.range);
        let message = format!("{what} is a list of arguments, not a shell command");
        let diagnostic = Diagnostic::error("GR005", message).at(span, "expected a list");
        report.push(diagnostic.help(as_list(what.trim_matches('`'), yaml)));
        return None;
    };
    if items.first().is_none_or(|it| it.text() == Some("")) {
        let message = format!("{what} is a list that begins with a program");
        let span = report.span(&yaml.range);
        report.push(Diagnostic::error("GR005", message).at(span, "no program"));
        return None;
    }
    Some(items)
}

/// Checks a constant argument. `before` are those before it.
pub fn check_argument(
    report: &mut Report,
    before: &[String],
    word: &SpannedText,
    advice: ArgumentAdvice,
) {
    let span = report.span(&word.range);
    let is_script = is_script(before);
    // A shell has variables of this form.
    if word.text.contains("{{") || word.text.contains("${") && !is_script {
        let message = "a text of the state must not become part of a command";
        let diagnostic = Diagnostic::error("GR046", message).at(span, "not filled in");
        report.push(diagnostic.help(advice.values));
    } else if is_shell_syntax(&word.text) && !is_script {
        let message = format!("no shell reads `{}`: the program gets it as it is", word.text);
        let diagnostic = Diagnostic::warning("GR051", message).at(span, "not interpreted");
        report.push(diagnostic.help(advice.shell));
    } else if word.text.contains('\0') {
        report.bad_value(word, "an argument has no NUL character", "");
    }
}

/// Returns the advice to write a command line as a list, with the list itself if the value is a line.
fn as_list(key: &str, yaml: &Yaml) -> String {
    let words: Vec<&str> = yaml.text().unwrap_or_default().split_whitespace().collect();
    let plain =
        |word: &&str| word.chars().all(|it| it.is_ascii_alphanumeric() || "_-./=".contains(it));
    if words.is_empty() || words.len() > 8 || !words.iter().all(plain) {
        return format!("write `{key}: [ruff, check, src]`; graphrun starts no shell");
    }
    format!("write `{key}: [{}]`", words.join(", "))
}

/// Returns whether the argument after these is the script of a shell.
fn is_script(before: &[String]) -> bool {
    const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
    let (Some(program), Some(last)) = (before.first(), before.last()) else { return false };
    let program = program.rsplit('/').next().unwrap_or_default();
    SHELLS.contains(&program) && last.starts_with('-') && last.ends_with('c')
}

/// Returns whether an argument is an operator or a variable of a shell, which means nothing to another program.
fn is_shell_syntax(argument: &str) -> bool {
    const OPERATORS: [&str; 14] =
        ["|", "||", "|&", "&", "&&", ";", ">", ">>", "<", "<<", "<<<", "2>", "&>", "2>&1"];
    let is_part = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_';
    // A variable, alone or at the start of a path: a program may have its own meaning for others.
    let is_variable = |word: &str| {
        let name = word.split('/').next().unwrap_or_default();
        !name.is_empty() && name.chars().all(is_part)
    };
    let is_substituted = |open: &str, close: &str| {
        argument.len() > open.len() + close.len() - 1
            && argument.starts_with(open)
            && argument.ends_with(close)
    };
    OPERATORS.contains(&argument)
        || argument.strip_prefix('$').is_some_and(is_variable)
        || argument == "~"
        || argument.starts_with("~/")
        || is_substituted("$(", ")")
        || is_substituted("`", "`")
}
