//! `tool`: calls a tool, with arguments that fit its input and an output that fits the fields.

use std::sync::Arc;

use graphrun_core::{diagnostic::Diagnostic, id::ChannelName, state::Type};
use serde_json::Value;

use super::Reading;
use crate::{
    Expression, ToolNode,
    lower::Lowering,
    reader::{Data, Entry, SpannedText, Yaml},
    report::suggestion,
    tool::{BUILT_IN, Tool, built_in},
    typing::{describe, fits},
};

impl Lowering<'_> {
    pub(super) fn read_tool(&mut self, reading: Reading<'_, '_>, yaml: &Yaml) -> Option<ToolNode> {
        let Reading { name, section, .. } = reading;
        let word = self.report.word(yaml, "`tool`")?;
        let tool = self.find_tool(&word)?;
        let written = self.flow.before(name);
        let mut args = Vec::new();
        if let Some(yaml) = section.get("args") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names to expressions";
                self.report.wrong_kind(yaml, "`args`", wanted);
            }
            for Entry { key, value } in yaml.entries() {
                let expression = self.expression(value, &written);
                if let Some(expression) = &expression {
                    self.report.refuse_named_secret(&key.text, &value.range, expression);
                }
                self.check_argument(tool.as_ref(), key, value, expression.as_ref());
                args.extend(expression.map(|it| (key.text.clone(), it)));
            }
        }
        let given = section.get("args").map(Yaml::entries).unwrap_or_default();
        self.check_missing(tool.as_ref(), &word, given);
        let writes = section.get("writes").map(|it| self.read_tool_writes(tool.as_ref(), it));
        let root = self.tools_root.clone();
        Some(ToolNode { tool: word.text, root, args, writes: writes.unwrap_or_default() })
    }

    /// The tool of a name, registered or built in.
    pub(crate) fn find_tool(&mut self, word: &SpannedText) -> Option<Arc<dyn Tool>> {
        let found = self.registry.find_tool(&word.text);
        let found = found.or_else(|| built_in(&word.text, self.tools_root.clone()));
        if found.is_none() {
            let known = self.registry.tools().chain(BUILT_IN);
            self.report.unknown("GR110", "tool", word, known);
        }
        found
    }

    fn check_argument(
        &mut self,
        tool: &dyn Tool,
        key: &SpannedText,
        value: &Yaml,
        expression: Option<&Expression>,
    ) {
        let input = Type::of_schema(tool.input_schema());
        let Type::Record(record) = &input else { return };
        let Some(field) = record.fields.iter().find(|it| it.name == key.text) else {
            // The schema may allow arguments that it does not list.
            if tool.input_schema().get("additionalProperties") == Some(&Value::Bool(false)) {
                let message = format!("`{}` takes no argument `{}`", tool.name(), key.text);
                let place = self.report.place(&key.range);
                let help = suggestion(&key.text, record.fields.iter().map(|it| it.name.as_str()));
                let finding = Diagnostic::error("GR114", message).at(place, "no such argument");
                self.report.push(Diagnostic { help, ..finding });
            }
            return;
        };
        if let Some(expression) = expression
            && !fits(expression.ty(), &field.ty)
        {
            let (shown, declared) = (describe(expression.ty()), &field.ty);
            let message =
                format!("the argument `{}` is `{declared}`, and this is {shown}", key.text);
            let place = self.report.place(&value.range);
            self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
        }
    }

    fn check_missing(&mut self, tool: &dyn Tool, word: &SpannedText, given: &[Entry]) {
        let required = tool.input_schema().get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<String> = required
            .filter(|name| given.iter().all(|it| it.key.text != *name))
            .map(|it| format!("`{it}`"))
            .collect();
        if !missing.is_empty() {
            let message = format!("`{}` needs {}", tool.name(), missing.join(" and "));
            let place = self.report.place(&word.range);
            let finding = Diagnostic::error("GR114", message).at(place, "an argument is missing");
            self.report.push(finding.help("write `args: { NAME: EXPRESSION }`"));
        }
    }

    /// Reads a field for the whole output, or fields with paths into it.
    fn read_tool_writes(
        &mut self,
        tool: &dyn Tool,
        yaml: &Yaml,
    ) -> Vec<(ChannelName, Vec<String>)> {
        let output = Type::of_schema(tool.output_schema());
        let mut writes = Vec::new();
        if !matches!(yaml.data, Data::Map(_)) {
            let Some(field) = self.report.word(yaml, "`writes`") else { return writes };
            let channel = self.report.channel(&field, &self.schema);
            if let Some(channel) = channel {
                self.check_tool_output(&field, &channel, &output);
                writes.push((channel, Vec::new()));
            }
            return writes;
        }
        for Entry { key, value } in yaml.entries() {
            let channel = self.report.channel(key, &self.schema);
            let Some(path) = self.report.word(value, "a part of the output") else { continue };
            let parts: Vec<String> = path.text.split('.').map(str::to_owned).collect();
            let Some(ty) = part_of(&output, &parts) else {
                let message = format!("the output of `{}` has no `{}`", tool.name(), path.text);
                let place = self.report.place(&path.range);
                let known = match output.required() {
                    Type::Record(record) => {
                        record.fields.iter().map(|it| it.name.as_str()).collect()
                    }
                    _ => Vec::new(),
                };
                let help = suggestion(&path.text, known);
                let finding = Diagnostic::error("GR021", message).at(place, "no such field");
                self.report.push(Diagnostic { help, ..finding });
                continue;
            };
            if let Some(channel) = channel {
                self.check_tool_output(key, &channel, &ty);
                writes.push((channel, parts));
            }
        }
        writes
    }

    fn check_tool_output(&mut self, field: &SpannedText, channel: &ChannelName, given: &Type) {
        let declared = self.schema.channel(channel.as_str()).map_or(&Type::Any, |it| it.ty());
        if !fits(given, declared) {
            let message =
                format!("the tool gives {}, and `{channel}` is `{declared}`", describe(given));
            let place = self.report.place(&field.range);
            self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
        }
    }
}

/// The type at a path. A part of an optional value is optional too.
fn part_of(output: &Type, path: &[String]) -> Option<Type> {
    let mut ty = output.clone();
    for name in path {
        if *ty.required() == Type::Any {
            return Some(Type::Any);
        }
        let is_optional = matches!(ty, Type::Optional(_) | Type::Map(_));
        let part = ty.field(name)?.clone();
        ty = if is_optional { part.optional() } else { part };
    }
    Some(ty)
}
