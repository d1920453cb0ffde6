//! The scripted answers of agents that call tools: the calls of the model, with their results.

use graphrun_core::{
    diagnostic::{Diagnostic, SourceSpan},
    id::{ChannelName, NodeName},
    state::{Type, Update},
};
use serde_json::{Value, json};

use super::{Answer, read::Reading};
use crate::{
    format::CallKeys,
    reader::{Data, Entry, SpannedText, Yaml},
    shape::Section,
    types::value_of,
};

/// The answers of a model to one agent: calls of tools, and then the fields that the agent writes.
#[derive(Clone, Debug)]
pub struct ScriptedAgent {
    /// The calls, round by round: those of one reply are made at the same time.
    pub rounds: Vec<Vec<ScriptedCall>>,
    /// The fields of its last answer.
    pub answer: Update,
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
    /// The result, or the message of the error.
    pub result: Result<Value, String>,
}

impl Reading<'_> {
    /// Reads an answer with `calls`.
    pub(super) fn scripted_agent(
        &mut self,
        node: &NodeName,
        (key, entries): (&SpannedText, &[Entry]),
        calls: &Entry,
        written: &[ChannelName],
    ) -> Option<Answer> {
        if self.graph.nodes[node].node.describe().kind != "agent" {
            let message = format!("`{node}` asks no model, so it calls no tools");
            let span = self.report.span(&calls.key.range);
            let diagnostic = Diagnostic::error("GR082", message).at(span, "not an agent");
            self.report.push(diagnostic.help("name the fields it writes"));
            return None;
        }
        let fields: Vec<&Entry> = entries.iter().filter(|it| it.key.text != "calls").collect();
        let answer = self.update(node, key, &fields, written);
        let Data::List(items) = &calls.value.data else {
            let wanted = "a list of calls, or of lists of calls that are made at the same time";
            self.report.wrong_kind(&calls.value, "`calls`", wanted);
            return None;
        };
        let rounds: Vec<Option<Vec<ScriptedCall>>> =
            items.iter().map(|it| self.round(it)).collect();
        let rounds = rounds.into_iter().collect::<Option<_>>()?;
        Some(Answer::Calls(ScriptedAgent { rounds, answer: answer? }.into()))
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
        let result = match (section.get("result"), section.get("fail")) {
            (Some(result), None) => Ok(value(result)?),
            (None, Some(fail)) => Err(self.report.word(fail, "`fail`")?.text),
            (result, _) => {
                let both = if result.is_some() { "a result, and it fails" } else { "no result" };
                let message = format!("the call of `{}` has {both}", tool.text);
                let diagnostic = Diagnostic::error("GR081", message).at(Some(span), "this call");
                self.report.push(diagnostic.help("give it a `result`, or the message of a `fail`"));
                return None;
            }
        };
        Some(ScriptedCall { span, tool: tool.text, input, result })
    }
}
