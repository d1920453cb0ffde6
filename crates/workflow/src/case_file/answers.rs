//! The scripted answers of a case: a node's writes, its failures, a person's answer.

use std::collections::BTreeMap;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Failure, FailureClass, NodeDescription},
    id::{ChannelName, NodeName},
    state::Update,
};
use graphrun_expressions::problem::suggestion;
use serde_json::{Value, json};

use super::{Answer, Answers, Turns, read::Reading};
use crate::{
    format::FailKeys,
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        shape::Section,
    },
};

impl<'a> Reading<'a> {
    /// Reads `nodes`: the scripted answers of each node.
    pub(super) fn answers(&mut self, yaml: &Yaml, is_common: bool) -> BTreeMap<NodeName, Answers> {
        let mut answers = BTreeMap::new();
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`nodes`", "a mapping from nodes to answers");
            return answers;
        };
        for Entry { key, value } in entries {
            let Some(node) = self.node(key) else { continue };
            let Some(span) = self.report.span(&key.range) else { continue };
            if let Some(turns) = self.turns(&node, key, value) {
                answers.insert(node, Answers { span, is_common, turns });
            }
        }
        answers
    }

    fn turns(&mut self, node: &NodeName, key: &SpannedText, yaml: &Yaml) -> Option<Turns> {
        let Data::List(visits) = &yaml.data else {
            return self.answer(node, key, yaml).map(Turns::Always);
        };
        let mut turns = Vec::new();
        let mut fits = true;
        for visit in visits {
            let attempts: Option<Vec<Answer>> = match &visit.data {
                Data::List(attempts) => {
                    let read: Vec<Option<Answer>> =
                        attempts.iter().map(|it| self.answer(node, key, it)).collect();
                    read.into_iter().collect()
                }
                _ => self.answer(node, key, visit).map(|it| vec![it]),
            };
            match attempts {
                Some(attempts) if attempts.is_empty() => {
                    let wanted = "a list with an answer for each attempt";
                    self.report.wrong_kind(visit, "a visit", wanted);
                    fits = false;
                }
                Some(attempts) => turns.push(attempts),
                None => fits = false,
            }
        }
        fits.then_some(Turns::Visits(turns))
    }

    fn answer(&mut self, node: &NodeName, key: &SpannedText, yaml: &Yaml) -> Option<Answer> {
        let what = format!("the answer of `{node}`");
        let Data::Map(entries) = &yaml.data else {
            let wanted = "a mapping from the fields it writes to values, or a list of them";
            self.report.wrong_kind(yaml, &what, wanted);
            return None;
        };
        let written = self.written_by(node);
        let is_field = |name: &str| written.iter().any(|it| it.as_str() == name);
        let has = |name: &str| entries.iter().any(|it| it.key.text == name);
        if has("fail") && !is_field("fail") {
            return self.failure(&what, yaml).map(Answer::Fails);
        }
        let choices = self.choices(node);
        if has("answer") && (choices.is_some() || !is_field("answer")) {
            return self.said(node, choices, yaml);
        }
        if !is_field("calls")
            && let Some(calls) = entries.iter().find(|it| it.key.text == "calls")
        {
            return self.scripted_agent(node, key, entries, calls);
        }
        let entries: Vec<&Entry> = entries.iter().collect();
        self.update(node, key, &entries, &written).map(Answer::Writes)
    }

    /// Returns the answers to the question of a node, if it asks a person.
    fn choices(&self, node: &NodeName) -> Option<&'a [String]> {
        let workflow = self.workflow;
        workflow.nodes.get(node)?.settings.choices()
    }

    /// Returns the fields that a node may write; all fields, if its contract does not list them.
    pub(super) fn written_by(&self, node: &NodeName) -> Vec<ChannelName> {
        let all = || self.graph.schema.channels().iter().map(|it| it.name().clone()).collect();
        self.graph.nodes[node].describe().contract.writes.clone().unwrap_or_else(all)
    }

    fn failure(&mut self, what: &str, yaml: &Yaml) -> Option<Failure> {
        let section = Section::read::<FailKeys>(&mut self.report, yaml, what)?;
        let word = self.report.word(section.get("fail")?, "`fail`")?;
        let Some(kind) = ErrorKind::named(&word.text) else {
            let known = ErrorKind::ALL.map(ErrorKind::as_str);
            self.report.unknown("GR017", "kind of error", &word, known);
            return None;
        };
        let message = match section.get("message") {
            Some(message) => self.report.word(message, "`message`")?.text,
            None => format!("the case has `fail: {kind}`"),
        };
        let transient = match section.get("transient") {
            Some(yaml) => {
                let wanted = "`true` or `false`";
                self.report.number(yaml, "`transient`", wanted, |_: &bool| true)?
            }
            None => kind.usual_class() == FailureClass::Retryable,
        };
        Some(Failure { transient, ..Failure::new(kind, message) })
    }

    /// Reads a person's answer. The question itself checks that the answer fits.
    fn said(&mut self, node: &NodeName, choices: Option<&[String]>, yaml: &Yaml) -> Option<Answer> {
        let what = format!("the answer of `{node}`");
        let section = Section::read_known(&mut self.report, yaml, &what, &["answer"])?;
        let said = section.get("answer")?;
        let Some(choices) = choices else {
            let message = format!("`{node}` asks no question, so it needs no answer");
            let span = self.report.span(&said.range);
            let diagnostic = Diagnostic::error("GR082", message).at(span, "not a question");
            self.report.push(diagnostic.help("name the fields it writes"));
            return None;
        };
        if !choices.is_empty() {
            let word = self.report.word(said, "`answer`")?;
            if !choices.contains(&word.text) {
                let message = format!("\"{}\" is not a choice of `{node}`", word.text);
                let span = self.report.span(&said.range);
                let diagnostic = Diagnostic::error("GR081", message).at(span, "no such choice");
                let help = suggestion(&word.text, choices.iter().map(String::as_str));
                self.report.push(Diagnostic { help, ..diagnostic });
                return None;
            }
            return Some(Answer::Says(word.text.into()));
        }
        let schema = self.graph.schema.clone();
        let written = self.written_by(node);
        match written.first().and_then(|it| schema.channel(it.as_str())) {
            // The node adds the answer to the list as an item.
            Some(channel) if channel.reducer().grows_list() => {
                self.item(channel, said).map(Answer::Says)
            }
            Some(channel) => self.written(channel, said).map(Answer::Says),
            None => self
                .expected(
                    &ChannelName::parse("answer").ok()?,
                    &graphrun_core::state::Type::Any,
                    said,
                )
                .map(Answer::Says),
        }
    }

    pub(super) fn update(
        &mut self,
        node: &NodeName,
        key: &SpannedText,
        entries: &[&Entry],
        written: &[ChannelName],
    ) -> Option<Update> {
        let schema = self.graph.schema.clone();
        let NodeDescription { contract, writes_always, writes_one, .. } =
            self.graph.nodes[node].describe().clone();
        let mut update = Update::default();
        let mut fits = true;
        for Entry { key, value } in entries {
            let Some(name) = written.iter().find(|it| it.as_str() == key.text) else {
                self.refuse_field(node, key, written);
                fits = false;
                continue;
            };
            let Some(channel) = schema.channel(name.as_str()) else { continue };
            let written = if writes_one.contains(name) {
                self.written_item(node, channel, value)
            } else {
                self.written(channel, value)
            };
            match written {
                Some(value) => update = update.write(name.clone(), value),
                None => fits = false,
            }
        }
        let always = writes_always.or(contract.writes).unwrap_or_default();
        for name in written.iter().filter(|it| always.contains(it)) {
            let names = |key: &str| key == name.as_str() || is_short_for(key, name);
            let is_said = entries.iter().any(|it| names(&it.key.text));
            let Some(channel) = schema.channel(name.as_str()).filter(|_| !is_said) else {
                continue;
            };
            if self.conversation_of(node).is_some_and(|it| it == *name) {
                let turn = turn(&update);
                update = update.write(name.clone(), turn);
                continue;
            }
            let size = writes_one.contains(name).then_some(1);
            match self.guessed(channel, size, &key.range) {
                Some(value) => update = update.write(name.clone(), value),
                None => fits = false,
            }
        }
        fits.then_some(update)
    }

    /// Returns the field of the conversation to which a node adds its prompt and its answer.
    fn conversation_of(&self, node: &NodeName) -> Option<ChannelName> {
        let definition = self.workflow.nodes.get(node)?;
        let field = definition.settings.conversation()?.clone();
        Some(definition.scopes.iter().fold(field, |it, scope| scope.channel_name(&it)))
    }

    fn refuse_field(&mut self, node: &NodeName, key: &SpannedText, written: &[ChannelName]) {
        if let Some(within) = written.iter().find(|it| is_short_for(&key.text, it)) {
            let message = format!("this field has another name in the file of `{node}`");
            let span = self.report.span(&key.range);
            let diagnostic = Diagnostic::error("GR021", message).at(span, "its name in that file");
            self.report.push(diagnostic.help(format!("write `{within}`")));
            return;
        }
        if self.graph.schema.channel(&key.text).is_none() {
            let known = written.iter().map(ChannelName::as_str);
            self.report.unknown("GR021", "field of the state", key, known);
            return;
        }
        let message = format!("`{node}` does not write `{}`", key.text);
        let span = self.report.span(&key.range);
        let diagnostic = Diagnostic::error("GR082", message).at(span, "not written by it");
        let help = suggestion(&key.text, written.iter().map(ChannelName::as_str));
        let nothing = || format!("`{node}` writes nothing: answer `{{}}`");
        self.report.push(diagnostic.help(help.unwrap_or_else(nothing)));
    }
}

/// Returns the messages that an agent with this answer adds to its conversation; the prompt is not known.
fn turn(answer: &Update) -> Vec<Value> {
    let text = match answer.writes.as_slice() {
        [(_, only)] => only.as_str().map_or_else(|| only.to_string(), str::to_owned),
        several => {
            let fields = several.iter().map(|(name, it)| (name.to_string(), Value::clone(it)));
            Value::Object(fields.collect()).to_string()
        }
    };
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    vec![message("user", ""), message("assistant", &text)]
}

/// Returns whether `text` is the name of this field within the file of the used workflow.
fn is_short_for(text: &str, name: &ChannelName) -> bool {
    name.scope().is_some_and(|it| name.strip_scope(it) == Some(text))
}
