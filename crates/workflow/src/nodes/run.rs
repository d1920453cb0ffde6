//! `run`: a command in a sandbox, as a list of arguments and never a shell line.
//!
//! Values of the state reach it by `env`, `stdin` and `files`, so that no text of a model becomes a
//! part of the command.

use graphrun_core::{diagnostic::Diagnostic, id::ChannelName, state::Type};
use graphrun_sandbox::is_harmless_variable;

use super::Reading;
use crate::{
    Expression, RunNode, RunOutput,
    lower::Lowering,
    reader::{Data, Entry, SpannedText, Yaml},
    report::suggestion,
    typing::{describe, fits},
};

impl Lowering<'_> {
    pub(super) fn read_run(&mut self, reading: Reading<'_, '_>, command: &Yaml) -> Option<RunNode> {
        let Reading { name, section, .. } = reading;
        let written = self.flow.before(name);
        let argv = self.read_argv(command);
        let sandbox = self.read_sandbox_of(section);
        let mut env = Vec::new();
        if let Some(yaml) = section.get("env") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names to expressions";
                self.report.wrong_kind(yaml, "`env`", wanted);
            }
            for Entry { key, value } in yaml.entries() {
                self.check_variable(key);
                let Some(expression) = self.expression(value, &written) else { continue };
                self.check_variable_type(value, &expression);
                self.report.refuse_named_secret(&key.text, &value.range, &expression);
                env.push((key.text.clone(), expression));
            }
        }
        let stdin = section.get("stdin").and_then(|it| self.expression(it, &written));
        let files = section.get("files").and_then(|it| {
            let files = self.expression(it, &written)?;
            self.check_files(it, &files);
            Some(files)
        });
        let writes = section.get("writes").map(|it| self.read_run_outputs(it));
        Some(RunNode {
            argv: argv?,
            sandbox: sandbox?,
            env,
            stdin,
            files,
            writes: writes.unwrap_or_default(),
        })
    }

    fn read_argv(&mut self, yaml: &Yaml) -> Option<Vec<String>> {
        let Data::List(items) = &yaml.data else {
            let place = self.report.place(&yaml.range);
            let message = "`run` is a list of arguments, not a shell command";
            let finding = Diagnostic::error("GR005", message).at(place, "expected a list");
            self.report.push(finding.help(as_list(yaml)));
            return None;
        };
        let mut argv = Vec::new();
        for item in items {
            let word = self.report.word(item, "each argument of `run`")?;
            if word.text.contains("{{") || word.text.contains("${") {
                let message = "a text of the state must not become part of a command";
                let place = self.report.place(&word.range);
                let finding = Diagnostic::error("GR046", message).at(place, "not filled in");
                self.report.push(finding.help("pass it by `env:`, `stdin:` or `files:`"));
            } else if word.text.contains('\0') {
                self.report.bad_value(&word, "an argument has no NUL character", "");
            }
            argv.push(word.text);
        }
        if argv.first().is_none_or(String::is_empty) {
            let message = "`run` is a list that begins with a program";
            let place = self.report.place(&yaml.range);
            self.report.push(Diagnostic::error("GR005", message).at(place, "no program"));
            return None;
        }
        Some(argv)
    }

    fn check_variable(&mut self, key: &SpannedText) {
        if is_harmless_variable(&key.text) {
            return;
        }
        let message = format!("a command in a sandbox cannot have the variable `{}`", key.text);
        let place = self.report.place(&key.range);
        let finding = Diagnostic::error("GR048", message).at(place, "not allowed");
        self.report.push(finding.help(
            "use letters, digits and `_`, but no variable that configures programs or the \
             sandbox, such as `PATH`",
        ));
    }

    fn check_variable_type(&mut self, yaml: &Yaml, expression: &Expression) {
        let plain = [Type::String, Type::Float, Type::Bool, Type::Duration];
        if !plain.iter().any(|it| fits(expression.ty(), it)) {
            let shown = describe(expression.ty());
            let message = format!("a variable must be a text or a number, and this is {shown}");
            let place = self.report.place(&yaml.range);
            let finding = Diagnostic::error("GR022", message).at(place, "another type");
            self.report.push(finding.help("pass it by `stdin:`, as JSON"));
        }
    }

    /// Reads `field: output`, or just fields with the names of their outputs.
    fn read_run_outputs(&mut self, yaml: &Yaml) -> Vec<(ChannelName, RunOutput)> {
        let mut writes = Vec::new();
        for (field, output) in self.read_pairs(yaml) {
            let channel = self.report.channel(&field, &self.schema);
            let found = RunOutput::ALL.into_iter().find(|it| it.as_str() == output.text);
            let Some(found) = found else {
                let names = RunOutput::ALL.map(RunOutput::as_str);
                let help = suggestion(&output.text, names).unwrap_or_default();
                let message = format!("a command has no output `{}`", output.text);
                self.report.bad_value(&output, message, &help);
                continue;
            };
            let Some(channel) = channel else { continue };
            let declared = self.schema.channel(channel.as_str()).map_or(&Type::Any, |it| it.ty());
            if !fits(&found.ty(), declared) {
                let (given, named) = (found.ty(), found.as_str());
                let message = format!("`{named}` is `{given}`, and `{channel}` is `{declared}`");
                let place = self.report.place(&field.range);
                self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
            }
            writes.push((channel, found));
        }
        writes
    }
}

/// The advice to write a command line as a list, with the list itself if the value is a line.
fn as_list(yaml: &Yaml) -> String {
    let words: Vec<&str> = yaml.text().unwrap_or_default().split_whitespace().collect();
    let plain = |it: &&str| it.chars().all(|it| it.is_ascii_alphanumeric() || "_-./=".contains(it));
    if words.is_empty() || words.len() > 8 || !words.iter().all(plain) {
        return "write `run: [ruff, check, src]`; graphrun starts no shell".to_owned();
    }
    format!("write `run: [{}]`", words.join(", "))
}
