//! `use`: runs another workflow as a part of this one.

use graphrun_core::{
    diagnostic::Diagnostic,
    id::ChannelName,
    state::{Channel, Type},
};

use super::Reading;
use crate::{
    EnterNode, Workflow,
    lower::Lowering,
    reader::{Data, Entry, SpannedText, Yaml},
    report::suggestion,
    shape::Section,
};

/// The keys of a `use`.
pub(crate) const USE_KEYS: &[&str] = &["workflow", "in", "out"];
/// The common keys that do not apply to a node that uses a workflow.
const REFUSED: &[(&str, &str)] = &[
    ("when", "put the condition into the route that leads here"),
    ("timeout", "each node of the used workflow has its own"),
    ("retry", "each node of the used workflow has its own"),
];

impl Lowering<'_> {
    pub(super) fn read_use(&mut self, reading: Reading<'_, '_>, yaml: &Yaml) -> Option<EnterNode> {
        let Reading { name, section, .. } = reading;
        for (key, help) in REFUSED {
            if let Some(key) = section.key(key) {
                let message = format!("a node that is `use` takes no key `{}`", key.text);
                let place = self.report.place(&key.range);
                let finding = Diagnostic::error("GR003", message).at(place, "not a key here");
                self.report.push(finding.help(*help));
            }
        }
        let parts = Section::read(&mut self.report, yaml, "`use`", USE_KEYS)?;
        parts.require(&mut self.report, "workflow", "name a file: `workflow: review.yaml`");
        let used = self.loaded.remove(name)?;
        let sets = self.read_in(reading, &parts, &used);
        let takes = parts.get("out").map(|it| self.read_out(it, &used)).unwrap_or_default();
        let enter = EnterNode {
            workflow: used.name.clone(),
            sets: sets.iter().map(|(it, value)| (it.within(name), value.clone())).collect(),
        };
        self.uses.insert(name.clone(), (used, takes));
        Some(enter)
    }

    fn read_in(
        &mut self,
        Reading { name, key, .. }: Reading<'_, '_>,
        parts: &Section<'_>,
        used: &Workflow,
    ) -> Vec<(ChannelName, crate::Expression)> {
        let written = self.flow.before(name);
        let mut sets = Vec::new();
        let given = parts.get("in");
        if let Some(yaml) = given.filter(|it| !matches!(it.data, Data::Map(_))) {
            let wanted = "a mapping from inputs to expressions";
            self.report.wrong_kind(yaml, "`in`", wanted);
        }
        for Entry { key, value } in given.map(Yaml::entries).unwrap_or_default() {
            let expression = self.expression(value, &written);
            let Some(channel) = input_of(used, &key.text) else {
                let known = used.input.iter().map(ChannelName::as_str);
                self.unknown_field(used, key, "takes no input", known);
                continue;
            };
            let Some(expression) = expression else { continue };
            let what = format!("the input `{}`", key.text);
            self.expect_type(value, expression.ty(), channel.ty(), &what);
            sets.push((channel.name().clone(), expression));
        }
        let is_given =
            |it: &ChannelName| given.is_some_and(|given| given.get(it.as_str()).is_some());
        for input in used.input.iter().filter(|it| !is_given(it)) {
            let needed = used
                .schema
                .channel(input.as_str())
                .is_some_and(|it| it.default().is_none() && !matches!(it.ty(), Type::Optional(_)));
            if needed {
                let message = format!("`{}` needs the input `{input}`", used.name);
                let place = self.report.place(&parts.key("in").unwrap_or(key).range);
                let finding = Diagnostic::error("GR071", message).at(place, "not given");
                self.report.push(finding.help(format!("add `in: {{ {input}: … }}`")));
            }
        }
        sets
    }

    fn read_out(&mut self, yaml: &Yaml, used: &Workflow) -> Vec<(ChannelName, ChannelName)> {
        let Data::Map(entries) = &yaml.data else {
            let wanted = "a mapping from fields to outputs of the used workflow";
            self.report.wrong_kind(yaml, "`out`", wanted);
            return Vec::new();
        };
        let mut takes = Vec::new();
        for Entry { key, value } in entries {
            let field = self.report.channel(key, &self.schema);
            let Some(output) = self.report.word(value, "an output") else { continue };
            let known = || {
                let fields = used.schema.channels().iter().filter(|it| !it.is_private());
                fields.filter(|it| used.output.is_empty() || used.output.contains(it.name()))
            };
            let Some(channel) = known().find(|it| it.name().as_str() == output.text) else {
                let known = known().map(|it| it.name().as_str());
                self.unknown_field(used, &output, "gives no output", known);
                continue;
            };
            let Some(field) = field else { continue };
            self.check_set(value, &field, channel.ty().required());
            takes.push((field, channel.name().clone()));
        }
        takes
    }

    fn unknown_field<'n>(
        &mut self,
        used: &Workflow,
        word: &SpannedText,
        what: &str,
        known: impl Iterator<Item = &'n str>,
    ) {
        let message = format!("the workflow `{}` {what} `{}`", used.name, word.text);
        let place = self.report.place(&word.range);
        let help = suggestion(&word.text, known);
        let finding = Diagnostic::error("GR072", message).at(place, "not known there");
        self.report.push(Diagnostic { help, ..finding });
    }
}

fn input_of<'a>(used: &'a Workflow, name: &str) -> Option<&'a Channel> {
    let is_input = used.input.iter().any(|it| it.as_str() == name);
    used.schema.channel(name).filter(|_| is_input)
}
