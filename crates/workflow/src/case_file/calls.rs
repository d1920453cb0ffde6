//! The scripted answers of agents that call tools: the calls of the model, with their results.

use graphrun_core::{
    diagnostic::{Diagnostic, SourceSpan},
    id::NodeName,
    state::{Type, Update},
};
use graphrun_expressions::problem::suggestion;
use serde_json::{Map, Value, json};

use super::{Answer, read::Reading};
use crate::{
    format::CallKeys,
    sections::types::value_of,
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        shape::Section,
    },
};

/// The answers of a model to one agent: calls of tools, and then the fields that the agent writes.
#[derive(Clone, Debug)]
pub struct ScriptedAgent {
    /// The calls, round by round: those of one reply are made at the same time.
    pub rounds: Vec<Vec<ScriptedCall>>,
    /// Its last answer, by the names of the fields in the file of the agent.
    pub answer: Map<String, Value>,
    /// Whether the answer is the value of its only field, without the name of the field.
    pub is_bare: bool,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct ScriptedCall {
    /// The place in the file.
    pub span: SourceSpan,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub input: Value,
    /// The result, or the message of the error. Nothing reads that of a rejected call.
    pub result: Result<Value, String>,
    /// The answer to the question whether the call may be made.
    pub answer: Option<Value>,
}

impl ScriptedCall {
    /// Returns whether a person rejects it.
    pub fn is_rejected(&self) -> bool {
        self.answer.as_ref().is_some_and(|it| it["decision"] == REJECT)
    }
}

/// The decision of a person after which a call is not made.
const REJECT: &str = "reject";

/// The decisions of a person about a call.
const DECISIONS: [&str; 3] = ["approve", "approve_for_run", REJECT];

impl Reading<'_> {
    /// Reads an answer with `calls`.
    pub(super) fn scripted_agent(
        &mut self,
        node: &NodeName,
        key: &SpannedText,
        entries: &[Entry],
        calls: &Entry,
    ) -> Option<Answer> {
        if self.graph.nodes[node].describe().kind != "agent" {
            let message = format!("`{node}` asks no model, so it calls no tools");
            let span = self.report.span(&calls.key.range);
            let diagnostic = Diagnostic::error("GR082", message).at(span, "not an agent");
            self.report.push(diagnostic.help("name the fields it writes"));
            return None;
        }
        let fields: Vec<&Entry> = entries.iter().filter(|it| it.key.text != "calls").collect();
        let answer = self.update(node, key, &fields, &self.written_by(node));
        let Data::List(items) = &calls.value.data else {
            let wanted = "a list of calls, or of lists of calls that are made at the same time";
            self.report.wrong_kind(&calls.value, "`calls`", wanted);
            return None;
        };
        let rounds: Vec<Option<Vec<ScriptedCall>>> =
            items.iter().map(|it| self.round(it)).collect();
        let rounds = rounds.into_iter().collect::<Option<_>>()?;
        let (answer, is_bare) = self.requested(node, &answer?);
        Some(Answer::Calls(ScriptedAgent { rounds, answer, is_bare }.into()))
    }

    /// Returns the answer of a model from which an agent makes an update, and whether it is the value of the only field.
    fn requested(&self, node: &NodeName, update: &Update) -> (Map<String, Value>, bool) {
        let definition = self.workflow.nodes.get(node);
        let fields = definition.map_or(&[][..], |it| it.settings.requested_fields());
        let scopes = definition.map_or(&[][..], |it| it.scopes.as_slice());
        let writes_one = &self.graph.nodes[node].describe().writes_one;
        let mut answer = Map::new();
        let mut are_objects = true;
        for field in fields {
            let name = scopes.iter().fold(field.clone(), |it, scope| scope.channel_name(&it));
            let written = update.writes.iter().find(|(it, _)| *it == name);
            let channel = self.graph.schema.channel(name.as_str());
            let Some(((_, value), channel)) = written.zip(channel) else { continue };
            let mut value = Value::clone(value);
            let mut ty = channel.ty().required();
            if let (Type::List(item), true) = (ty, writes_one.contains(&name)) {
                ty = item.required();
                value = match value {
                    Value::Array(mut items) if items.len() == 1 => items.remove(0),
                    value => value,
                };
            }
            are_objects &= matches!(ty, Type::Record(_) | Type::Map(_));
            answer.insert(field.to_string(), value);
        }
        (answer, fields.len() == 1 && are_objects)
    }

    fn round(&mut self, yaml: &Yaml) -> Option<Vec<ScriptedCall>> {
        let calls: Vec<Option<ScriptedCall>> = match &yaml.data {
            Data::List(calls) if calls.is_empty() => {
                self.report.wrong_kind(yaml, "a round of calls", "a list with a call at least");
                return None;
            }
            Data::List(calls) => calls.iter().map(|it| self.call(it)).collect(),
            _ => vec![self.call(yaml)],
        };
        calls.into_iter().collect()
    }

    fn call(&mut self, yaml: &Yaml) -> Option<ScriptedCall> {
        let section = Section::read::<CallKeys>(&mut self.report, yaml, "a call")?;
        let tool = section.require(&mut self.report, "tool", "name the tool that the model calls");
        let tool = self.report.word(tool?, "`tool`")?;
        let span = self.report.span(&tool.range)?;
        let mut value = |yaml: &Yaml| value_of(&mut self.report, yaml, &Type::Any);
        let input = match section.get("input") {
            Some(yaml) => value(yaml)?,
            None => json!({}),
        };
        let answer = match section.get("answer") {
            Some(yaml) => Some(self.decision(yaml)?),
            None => None,
        };
        let is_rejected = answer.as_ref().is_some_and(|it| it["decision"] == REJECT);
        let mut value = |yaml: &Yaml| value_of(&mut self.report, yaml, &Type::Any);
        let result = match (section.get("result"), section.get("fail")) {
            (None, None) if is_rejected => Ok(Value::Null),
            (Some(result), None) if !is_rejected => Ok(value(result)?),
            (None, Some(fail)) if !is_rejected => Err(self.report.word(fail, "`fail`")?.text),
            (result, fail) => {
                let what = match (result, fail) {
                    (Some(_), Some(_)) => "has a result, and it fails",
                    (None, None) => "has no result",
                    _ => "is rejected, so it has no result",
                };
                let message = format!("the call of `{}` {what}", tool.text);
                let diagnostic = Diagnostic::error("GR081", message).at(Some(span), "this call");
                let help = "give it a `result`, or the message of a `fail`, or `answer: reject`";
                self.report.push(diagnostic.help(help));
                return None;
            }
        };
        Some(ScriptedCall { span, tool: tool.text, input, result, answer })
    }

    /// Reads the decision about a call. The question itself checks the rest of the answer.
    fn decision(&mut self, yaml: &Yaml) -> Option<Value> {
        let decision = match &yaml.data {
            Data::Map(_) => yaml.get("decision").unwrap_or(yaml),
            _ => yaml,
        };
        let word = self.report.word(decision, "`answer`")?;
        if !DECISIONS.contains(&word.text.as_str()) {
            let message = format!("`{}` is no decision about a call", word.text);
            let span = self.report.span(&word.range);
            let diagnostic = Diagnostic::error("GR081", message).at(span, "no such decision");
            let help = suggestion(&word.text, DECISIONS);
            self.report.push(Diagnostic { help, ..diagnostic });
            return None;
        }
        match &yaml.data {
            Data::Map(_) => value_of(&mut self.report, yaml, &Type::Any),
            _ => Some(json!({ "decision": word.text })),
        }
    }
}
