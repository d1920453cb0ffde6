//! Tool calls in the format of providers.
//!
//! The wire allows letters, digits, `_` and `-` in the name of a tool; other characters of our
//! names are replaced in requests and restored in replies. A call in a reply needs only a name: ids
//! may be missing, and arguments may be a text, an object or nothing.

use std::{collections::BTreeSet, iter};

use serde_json::{Value, json};

#[cfg(feature = "openai")]
use super::structured::tool_schema;
use super::{
    chat::{ChatReply, ChatRequest, Finish, OutputSchema},
    error::ModelError,
    tools::{ToolCall, ToolSpec},
};

/// The longest name on the wire, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Returns a name that the wire allows.
pub(super) fn wire_name(name: &str) -> String {
    let taken = |it: char| it.is_ascii_alphanumeric() || it == '-';
    let name = name.chars().map(|it| if taken(it) { it } else { '_' });
    let name: String = name.take(NAME_CHARS_MAX).collect();
    if name.is_empty() { "answer".to_owned() } else { name }
}

/// Returns the names of tools in a request.
pub fn names_on_the_wire(tools: &[ToolSpec]) -> Vec<String> {
    OfferedTools::of(tools).0.into_iter().map(|it| it.0).collect()
}

/// The tools of a request, each with its name on the wire.
pub(super) struct OfferedTools<'a>(Vec<(String, &'a ToolSpec)>);

impl<'a> OfferedTools<'a> {
    pub(super) fn of(tools: &'a [ToolSpec]) -> Self {
        let mut used = BTreeSet::new();
        let named = tools.iter().map(|tool| {
            let mut name = wire_name(&tool.name);
            // Two names may differ only in characters that the wire does not allow.
            let mut number = 2;
            while !used.insert(name.clone()) {
                let start: String =
                    wire_name(&tool.name).chars().take(NAME_CHARS_MAX - 4).collect();
                name = format!("{start}_{number}");
                number += 1;
            }
            (name, tool)
        });
        Self(named.collect())
    }

    /// Returns the name, the description and the schema of each tool, as a request has them.
    #[cfg(feature = "openai")]
    pub(super) fn on_the_wire(&self) -> impl Iterator<Item = (&str, &str, Value)> {
        self.0.iter().map(|(name, tool)| {
            (name.as_str(), tool.description.as_str(), tool_schema(&tool.schema))
        })
    }

    /// Returns the name and the arguments of a call, as a request that repeats it has them.
    #[cfg(feature = "openai")]
    pub(super) fn call_on_the_wire(&self, call: &ToolCall) -> (String, Value) {
        // Some providers parse the arguments. The tool's result already reported the mistake in
        // them.
        (self.name_on_the_wire(&call.name), call.input().unwrap_or_else(|_| json!({})))
    }

    /// Returns the name of a tool, as a request has it.
    #[cfg(feature = "openai")]
    pub(super) fn name_on_the_wire(&self, tool: &str) -> String {
        self.wire_name_of(tool).map_or_else(|| wire_name(tool), str::to_owned)
    }

    /// Returns the name of an offered tool on the wire.
    pub(super) fn wire_name_of(&self, tool: &str) -> Option<&str> {
        self.0.iter().find(|(_, it)| it.name == tool).map(|(name, _)| name.as_str())
    }

    /// Returns the name under which a model can call the form of its answer like a tool. No offered tool has it.
    pub(super) fn name_of_form(&self, output: &OutputSchema) -> String {
        let name = wire_name(&output.name);
        if self.find(&name).is_none() {
            return name;
        }
        let others = (2..).map(|number| format!("answer_{number}"));
        let mut others = iter::once("answer".to_owned()).chain(others);
        others.find(|it| self.find(it).is_none()).unwrap_or(name)
    }

    /// Returns calls with the names of the offer in place of those on the wire.
    fn with_own_names(&self, mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
        for call in &mut calls {
            if let Some(tool) = self.find(&call.name) {
                tool.name.clone_into(&mut call.name);
            }
        }
        calls
    }

    fn find(&self, wire_name: &str) -> Option<&'a ToolSpec> {
        // A model whose instructions mention `fs.read` may call it by that name.
        let is_meant =
            |(name, tool): &&(String, &ToolSpec)| name == wire_name || tool.name == wire_name;
        self.0.iter().find(is_meant).map(|(_, tool)| *tool)
    }
}

/// Reads the calls of a message, each by its name on the wire.
pub(super) fn read_calls(message: &Value) -> Vec<ToolCall> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let calls = calls.into_iter().flatten().filter_map(|call| {
        let extra = call.get("extra_content").map(|it| json!({"extra_content": it}));
        Some(ToolCall { extra, ..read_function(call.get("function")?, call.get("id"))? })
    });
    let calls: Vec<ToolCall> = calls.collect();
    if calls.is_empty() {
        // The older form has one, and no id.
        let call = message.get("function_call").and_then(|it| read_function(it, None));
        return call.into_iter().collect();
    }
    calls
}

fn read_function(function: &Value, id: Option<&Value>) -> Option<ToolCall> {
    let name = function.get("name")?.as_str()?.trim();
    if name.is_empty() {
        return None;
    }
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let id = id.and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(ToolCall { id, name: name.to_owned(), arguments, extra: None })
}

/// Classifies a reply by the offered tools: calls of these tools, or an answer. A reply with both counts as calls as long as the request
/// allows them. After that, calls stay beside the answer, for a warning.
///
/// # Errors
/// Returns [`ModelError::UnknownTool`] for a reply that only calls tools although none was offered.
/// The arguments of such a call are never taken for an answer: the model wrote them for something
/// else.
pub(super) fn settle(mut reply: ChatReply, request: &ChatRequest) -> Result<ChatReply, ModelError> {
    let offered = OfferedTools::of(&request.tools);
    let mut calls = std::mem::take(&mut reply.tool_calls);
    // A model that was given a form of answer may call it like a tool.
    let form = request.output.as_ref().map(|it| offered.name_of_form(it));
    if reply.finish.is_failed_generation() {
        calls.extend(failed_call(&reply.text, |name| {
            form.as_deref() == Some(name) || offered.find(name).is_some()
        }));
    }
    let is_answer = |it: &ToolCall| form.as_ref() == Some(&it.name);
    if request.tool_choice.allows_calls() && calls.iter().any(|it| offered.find(&it.name).is_some())
    {
        // The model answers again once it has the results.
        calls.retain(|it| !is_answer(it));
    }
    if let Some(at) = calls.iter().position(is_answer) {
        let answer = calls.swap_remove(at);
        calls.retain(|it| offered.find(&it.name).is_some());
        let is_blank = answer.arguments.trim().is_empty();
        // A text beside the call is no part of the answer, unless the call is empty.
        if !is_blank {
            reply.text.clone_from(&answer.arguments);
        } else if reply.text.trim().is_empty() {
            "{}".clone_into(&mut reply.text);
        }
        if reply.finish.is_failed_generation() {
            reply.finish = Finish::ToolCalls;
        }
        reply.tool_calls = offered.with_own_names(calls);
        return Ok(reply);
    }
    if request.tools.is_empty() {
        // The text of the model beside the calls may be the answer.
        return match calls.into_iter().next() {
            Some(ToolCall { name, arguments, .. }) if reply.text.trim().is_empty() => {
                let usage = reply.usage;
                let unknown = ModelError::UnknownTool { name, arguments, usage };
                Err(unknown.charged(usage, reply.cost_usd))
            }
            _ => Ok(reply),
        };
    }
    if !calls.is_empty() && reply.finish.is_failed_generation() {
        reply.text = String::new();
    }
    reply.tool_calls = offered.with_own_names(calls);
    Ok(reply)
}

/// Returns a call of a tool that the provider itself has checked and rejected (Groq does).
fn failed_call(text: &str, is_known: impl FnOnce(&str) -> bool) -> Option<ToolCall> {
    let call: Value = serde_json::from_str(text).ok()?;
    let call = read_function(&call, None)?;
    is_known(&call.name).then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finish, OutputSchema, ToolChoice};

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.into(), description: "…".into(), schema: json!({"type": "object"}) }
    }

    fn reply(message: &Value) -> ChatReply {
        ChatReply { tool_calls: read_calls(message), ..ChatReply::default() }
    }

    fn request(tools: &[&str]) -> ChatRequest {
        ChatRequest { tools: tools.iter().map(|it| tool(it)).collect(), ..ChatRequest::default() }
    }

    #[test]
    fn wire_names_round_trip() {
        let request = request(&["fs.read", "fs/read", "fs_read"]);
        let offered = OfferedTools::of(&request.tools);
        let names: Vec<&str> = offered.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["fs_read", "fs_read_2", "fs_read_3"]);
        let message = json!({"tool_calls": [
            {"id": "1", "function": {"name": "fs_read_2", "arguments": "{}"}},
            {"id": "2", "function": {"name": "fs.read", "arguments": {"path": "a"}}},
            {"id": "3", "function": {"name": "nobody"}},
        ]});
        let calls = settle(reply(&message), &request).unwrap().tool_calls;
        let names: Vec<&str> = calls.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["fs/read", "fs.read", "nobody"]);
        assert_eq!(calls[1].arguments, r#"{"path":"a"}"#);
        let long = "x".repeat(80);
        let longs = [tool(&long), tool(&format!("{long}y"))];
        let offered = OfferedTools::of(&longs);
        assert!(offered.0.iter().all(|(name, _)| name.len() <= NAME_CHARS_MAX));
        assert_ne!(offered.0[0].0, offered.0[1].0);
    }

    #[test]
    fn provider_data_of_a_call_is_sent_back() {
        let signed = json!({"google": {"thought_signature": "AVSo"}});
        let message = json!({"tool_calls": [
            {"id": "", "extra_content": signed, "function": {"name": "now", "arguments": "oh"}},
        ]});
        let request = request(&["now"]);
        let calls = settle(reply(&message), &request).unwrap().tool_calls;
        #[cfg(feature = "openai")]
        {
            let wire = crate::shape::wire_call(&OfferedTools::of(&request.tools), &calls[0]);
            assert_eq!(wire["extra_content"], signed);
            assert_eq!(wire["function"], json!({"name": "now", "arguments": "{}"}));
        }
        assert_eq!(calls[0].extra, Some(json!({"extra_content": signed})));
    }

    #[test]
    fn only_a_call_of_the_form_that_was_asked_for_is_an_answer() {
        let called = json!({"function_call": {"name": "json", "arguments": "{\"a\": 1}"}});
        let unknown = settle(reply(&called), &request(&[])).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "the model called `json`, a tool that does not exist, instead of answering"
        );
        let answer = settle(reply(&called), &request(&["now"])).unwrap();
        assert_eq!((answer.text.as_str(), answer.tool_calls.len()), ("", 1));
        let form = OutputSchema { name: "json".into(), schema: json!({}) };
        for tools in [&[][..], &["now"]] {
            let asked = ChatRequest { output: Some(form.clone()), ..request(tools) };
            assert_eq!(settle(reply(&called), &asked).unwrap().text, "{\"a\": 1}");
            let beside = ChatReply { text: "I call it.".into(), ..reply(&called) };
            assert_eq!(settle(beside, &asked).unwrap().text, "{\"a\": 1}");
            // Groq checks the call itself.
            let text = r#"{"name": "json", "arguments": {"a": 1}}"#.into();
            let finish = Finish::failed_generation();
            let rejected = settle(ChatReply { text, finish, ..ChatReply::default() }, &asked);
            let rejected = rejected.unwrap();
            assert_eq!((rejected.text.as_str(), rejected.finish), ("{\"a\":1}", Finish::ToolCalls));
        }
        // A tool of the same name is called by its name, and the form by another one.
        let asked = ChatRequest { output: Some(form.clone()), ..request(&["json", "answer"]) };
        assert_eq!(settle(reply(&called), &asked).unwrap().tool_calls.len(), 1);
        let called = json!({"function_call": {"name": "answer_2", "arguments": "{\"a\": 1}"}});
        assert_eq!(settle(reply(&called), &asked).unwrap().text, "{\"a\": 1}");
        let other = json!({"function_call": {"name": "other", "arguments": "{\"a\": 1}"}});
        let asked = ChatRequest { output: Some(form), ..request(&[]) };
        assert!(settle(reply(&other), &asked).is_err());
        let beside = ChatReply { text: "42".into(), ..reply(&other) };
        let answer = settle(beside, &request(&[])).unwrap();
        assert_eq!((answer.text.as_str(), answer.tool_calls.len()), ("42", 0));
    }

    #[test]
    fn calls_beside_the_form_of_an_answer_come_first() {
        let form = OutputSchema { name: "json".into(), schema: json!({}) };
        let called = json!({"tool_calls": [
            {"id": "1", "function": {"name": "json", "arguments": "{\"a\": 1}"}},
            {"id": "2", "function": {"name": "fs_read", "arguments": "{}"}},
            {"id": "3", "function": {"name": "nobody", "arguments": "{}"}},
        ]});
        let names = |reply: &ChatReply| -> Vec<String> {
            reply.tool_calls.iter().map(|it| it.name.clone()).collect()
        };
        let asked = ChatRequest { output: Some(form), ..request(&["fs.read"]) };
        let calls = settle(reply(&called), &asked).unwrap();
        assert_eq!(
            (calls.text.as_str(), names(&calls)),
            ("", vec!["fs.read".to_owned(), "nobody".to_owned()])
        );
        let last = ChatRequest { tool_choice: ToolChoice::None, ..asked.clone() };
        let answer = settle(reply(&called), &last).unwrap();
        assert_eq!(
            (answer.text.as_str(), names(&answer)),
            ("{\"a\": 1}", vec!["fs.read".to_owned()])
        );
        // A call of a tool that does not exist is no reason to give up an answer.
        let asked = ChatRequest { tools: vec![tool("other")], ..asked };
        let answer = settle(reply(&called), &asked).unwrap();
        assert_eq!((answer.text.as_str(), answer.tool_calls.len()), ("{\"a\": 1}", 0));
    }

    #[test]
    fn a_call_that_the_provider_has_rejected_is_a_call() {
        let rejected = |text: &str| ChatReply {
            text: text.into(),
            finish: Finish::failed_generation(),
            ..ChatReply::default()
        };
        let call = r#"{"name": "now", "arguments": {"zone": 3}}"#;
        let settled = |text: &str, tool: &str| settle(rejected(text), &request(&[tool])).unwrap();
        let calls = settled(call, "now");
        assert_eq!(
            (calls.text.as_str(), calls.tool_calls[0].arguments.as_str()),
            ("", r#"{"zone":3}"#)
        );
        assert!(settled(call, "then").tool_calls.is_empty());
        assert_eq!(settled("{oh", "now").text, "{oh");
    }
}
