//! Shapes a request for a provider: the inverse of the reader.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{
    attachment::{Attachment, AttachmentKind},
    calls::{OfferedTools, wire_name},
    chat::{ChatRequest, Message, OutputSchema, Role},
    provider::{OutputMode, Parameter, Profile, SystemRole},
    reader::REASONING_DETAILS,
    refused::RefusedParameters,
    structured::{answer_instruction, answer_schema, strict_schema},
    tools::{ToolCall, ToolChoice, ToolSpec},
};

/// The key for an answer that is no object: providers force objects only.
const WRAPPER: &str = "answer";

/// The purpose of the tool that takes the answer, as a model reads it.
const ANSWER_TOOL: &str =
    "Takes your complete answer as its arguments. Call it once, when you need no other tool.";

/// The form of a request: everything that depends on the provider.
pub(super) struct Shape<'a> {
    pub(super) model: &'a str,
    pub(super) profile: &'a Profile,
    pub(super) mode: OutputMode,
    pub(super) refused: &'a RefusedParameters,
}

impl Shape<'_> {
    /// Returns the request as its protocol gets it. An answer in the form of a call is one more tool there.
    pub(super) fn formed<'r>(&self, request: &'r ChatRequest) -> Cow<'r, ChatRequest> {
        match &request.output {
            Some(output) if self.mode == OutputMode::Tool => {
                Cow::Owned(self.with_answer_tool(request, output))
            }
            _ => Cow::Borrowed(request),
        }
    }

    /// Adds the tool that takes the answer, and forces the model to call it, or another tool if it may.
    fn with_answer_tool(&self, request: &ChatRequest, output: &OutputSchema) -> ChatRequest {
        let request = ChatRequest { output: None, ..request.clone() };
        let is_forced = self.sends(Parameter::ToolChoice);
        if is_forced && request.tool_choice.is_forced() {
            // The model must call a tool of the agent first. A later request offers the tool for the answer.
            return request;
        }
        let ChatRequest { mut messages, mut tools, tool_choice, .. } = request.clone();
        let name = OfferedTools::of(&tools).name_of_form(output);
        if !is_forced {
            let instruction = format!("Give your answer by a call of the tool `{name}`.");
            add_to_instructions(&mut messages, &instruction);
        }
        let may_call_others = !tools.is_empty() && tool_choice.allows_calls();
        let tool_choice =
            if may_call_others { ToolChoice::Required } else { ToolChoice::Tool(name.clone()) };
        let description = ANSWER_TOOL.to_owned();
        tools.push(ToolSpec { name, description, schema: wire_schema(output) });
        ChatRequest { messages, tools, tool_choice, ..request }
    }

    pub(super) fn sends(&self, parameter: Parameter) -> bool {
        !self.refused.has(parameter) && self.profile.supports(self.model, parameter)
    }

    /// Adds a parameter under the provider's name of it, unless the provider does not take it.
    pub(super) fn add(
        &self,
        body: &mut Map<String, Value>,
        parameter: Parameter,
        value: Option<Value>,
    ) {
        if let Some(value) = value.filter(|_| self.sends(parameter)) {
            body.insert(self.profile.name_of(parameter).to_owned(), value);
        }
    }
}

/// Returns the body of a chat completion request.
pub(super) fn shape_request(request: &ChatRequest, shape: &Shape<'_>) -> Value {
    let Shape { model, profile, mode, refused } = shape;
    let mut body = Map::new();
    body.insert("model".into(), (*model).into());
    let mut messages = request.messages.clone();
    if let Some(output) = &request.output {
        let schema = wire_schema(output);
        match mode {
            OutputMode::JsonSchema => {
                let (strict, schema) = match strict_schema(&schema) {
                    Some(schema) => (true, schema),
                    None => (false, schema),
                };
                let format =
                    json!({"name": wire_name(&output.name), "strict": strict, "schema": schema});
                body.insert(
                    "response_format".into(),
                    json!({"type": mode.as_str(), "json_schema": format}),
                );
            }
            OutputMode::JsonObject => {
                body.insert("response_format".into(), json!({"type": mode.as_str()}));
                add_instruction(&mut messages, &schema);
            }
            // A request in the form of a call has no form here.
            OutputMode::Tool | OutputMode::Prompted => add_instruction(&mut messages, &schema),
        }
    }
    let offered = OfferedTools::of(&request.tools);
    let system_role = refused.system_role(profile.system_role);
    if system_role == SystemRole::User {
        merge_instructions(&mut messages);
    }
    let messages = messages
        .iter()
        .map(|message| wire_message(message, &offered, system_role, profile.wants_reasoning))
        .collect();
    body.insert("messages".into(), Value::Array(messages));
    if !request.tools.is_empty() {
        let tool = |(name, description, parameters): (&str, &str, Value)| {
            let function =
                json!({"name": name, "description": description, "parameters": parameters});
            json!({"type": "function", "function": function})
        };
        body.insert("tools".into(), offered.on_the_wire().map(tool).collect());
        let choice = match &request.tool_choice {
            ToolChoice::Auto => "auto".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::None => "none".into(),
            ToolChoice::Tool(name) => {
                json!({"type": "function", "function": {"name": offered.name_on_the_wire(name)}})
            }
        };
        shape.add(&mut body, Parameter::ToolChoice, Some(choice));
        let parallel = request.settings.parallel_tools.map(Value::from);
        shape.add(&mut body, Parameter::ParallelTools, parallel);
    }
    let settings = &request.settings;
    for (parameter, value) in settings.parameters() {
        shape.add(&mut body, parameter, Some(value));
    }
    let token_limit = refused.token_limit(profile.token_limit);
    if let (Some(tokens), Some(name)) = (settings.max_tokens, token_limit) {
        body.insert(name.as_str().into(), refused.most_tokens(tokens).into());
    }
    add_extra(&mut body, request);
    let streams = shape.sends(Parameter::Stream);
    body.insert("stream".into(), streams.into());
    if streams {
        // Without it, a stream has no counts of tokens.
        shape.add(&mut body, Parameter::StreamOptions, Some(json!({"include_usage": true})));
    }
    Value::Object(body)
}

/// Adds the parameters that only some providers know.
pub(super) fn add_extra(body: &mut Map<String, Value>, request: &ChatRequest) {
    for (name, value) in &request.settings.extra_body {
        // What graphrun sets comes first, also if the library was given other keys.
        body.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// Returns a call in the format of a request that repeats it.
pub(super) fn wire_call(offered: &OfferedTools<'_>, call: &ToolCall) -> Value {
    let (name, arguments) = offered.call_on_the_wire(call);
    let function = json!({"name": name, "arguments": arguments.to_string()});
    let mut wire = json!({"id": call.id, "type": "function", "function": function});
    add_provider_data(&mut wire, call);
    wire
}

/// Adds the data of a call that its provider requires back.
pub(super) fn add_provider_data(wire: &mut Value, call: &ToolCall) {
    if let (Some(wire), Some(Value::Object(extra))) = (wire.as_object_mut(), &call.extra) {
        wire.extend(extra.clone());
    }
}

/// Separates the instructions from the conversation, for protocols in which they are no messages.
pub(super) fn split_instructions(messages: Vec<Message>) -> (Vec<String>, Vec<Message>) {
    let (system, others): (Vec<Message>, Vec<Message>) =
        messages.into_iter().partition(|it| it.role == Role::System);
    (system.into_iter().map(|it| it.content).collect(), others)
}

fn wire_message(
    message: &Message,
    offered: &OfferedTools<'_>,
    system_role: SystemRole,
    wants_reasoning: bool,
) -> Value {
    let Message { role, content, attachments, tool_calls, tool_call_id, reasoning, thinking } =
        message;
    let mut wire = Map::new();
    let role = match role {
        Role::System => system_role.as_str(),
        role => role.as_str(),
    };
    wire.insert("role".into(), role.into());
    // Some providers reject a message without a text, and all accept null.
    let is_silent = content.is_empty() && !tool_calls.is_empty();
    let content = match attachments.as_slice() {
        [] if is_silent => Value::Null,
        [] => content.as_str().into(),
        files => files.iter().map(wire_file).chain([text_part(content)]).collect(),
    };
    wire.insert("content".into(), content);
    if let Some(id) = tool_call_id {
        wire.insert("tool_call_id".into(), id.as_str().into());
    }
    if !tool_calls.is_empty() {
        let calls = tool_calls.iter().map(|it| wire_call(offered, it)).collect();
        wire.insert("tool_calls".into(), Value::Array(calls));
        if wants_reasoning {
            wire.insert(
                "reasoning_content".into(),
                reasoning.as_deref().unwrap_or_default().into(),
            );
        }
    }
    if !thinking.is_empty() {
        wire.insert(REASONING_DETAILS.into(), thinking.as_slice().into());
    }
    Value::Object(wire)
}

fn wire_file(file: &Attachment) -> Value {
    match file.kind() {
        AttachmentKind::Image => {
            json!({"type": "image_url", "image_url": {"url": file.data_url()}})
        }
        AttachmentKind::Audio => {
            let audio = json!({"data": file.data(), "format": file.format()});
            json!({"type": "input_audio", "input_audio": audio})
        }
        AttachmentKind::Pdf => {
            let document = json!({"filename": file.name(), "file_data": file.data_url()});
            json!({"type": "file", "file": document})
        }
        AttachmentKind::Text => text_part(&file.text().unwrap_or_default()),
    }
}

pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Puts the instructions before the first message of the user, for a model without another role for them.
fn merge_instructions(messages: &mut Vec<Message>) {
    let (texts, mut others) = split_instructions(std::mem::take(messages));
    if !texts.is_empty() {
        let instructions = texts.join("\n\n");
        match others.iter_mut().find(|it| it.role == Role::User) {
            Some(user) => user.content = format!("{instructions}\n\n{}", user.content),
            None => others.insert(0, Message::user(instructions)),
        }
    }
    *messages = others;
}

/// Removes the wrapper of an answer that was wrapped for the request.
pub(super) fn unwrap_answer(text: String, output: &OutputSchema) -> String {
    if is_object(&answer_schema(&output.schema)) {
        return text;
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(mut object)) if object.len() == 1 && object.contains_key(WRAPPER) => {
            object.remove(WRAPPER).map_or(text, |answer| answer.to_string())
        }
        _ => text,
    }
}

pub(super) fn wire_schema(output: &OutputSchema) -> Value {
    let mut schema = answer_schema(&output.schema);
    if is_object(&schema) {
        return schema;
    }
    // References start at the root, so the definitions move up with it.
    let definitions: Vec<(String, Value)> = ["$defs", "definitions"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), schema.as_object_mut()?.remove(*name)?)))
        .collect();
    let mut wrapped = Map::new();
    wrapped.insert("type".into(), "object".into());
    wrapped.insert("properties".into(), json!({WRAPPER: schema}));
    wrapped.insert("required".into(), json!([WRAPPER]));
    wrapped.extend(definitions);
    Value::Object(wrapped)
}

fn is_object(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
        || schema.get("properties").is_some()
}

pub(super) fn add_instruction(messages: &mut Vec<Message>, schema: &Value) {
    add_to_instructions(messages, &answer_instruction(schema));
}

fn add_to_instructions(messages: &mut Vec<Message>, instruction: &str) {
    match messages.iter_mut().find(|message| message.role == Role::System) {
        Some(system) => {
            system.content.push_str("\n\n");
            system.content.push_str(instruction);
        }
        None => messages.insert(0, Message::system(instruction)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestSettings;

    fn shaped(request: &ChatRequest, model: &str, profile: &Profile, mode: OutputMode) -> Value {
        shape_request(
            request,
            &Shape { model, profile, mode, refused: &RefusedParameters::default() },
        )
    }

    fn request(schema: Value) -> ChatRequest {
        ChatRequest {
            caller: "secret-node-name".into(),
            messages: vec![Message::system("Be brief."), Message::user("Hi")],
            output: Some(OutputSchema { name: "User story!".into(), schema }),
            settings: RequestSettings {
                temperature: Some(0.5),
                max_tokens: Some(9),
                ..RequestSettings::default()
            },
            ..ChatRequest::default()
        }
    }

    #[test]
    fn no_request_has_the_node_or_a_reasoning_temperature() {
        let profile = Profile::default();
        let shape = |model| {
            shaped(&request(json!({"type": "object"})), model, &profile, OutputMode::JsonObject)
        };
        assert_eq!(shape("gpt-4o")["temperature"], 0.5);
        assert_eq!(shape("gpt-5-mini").get("temperature"), None);
        assert_eq!(shape("openai/o3").get("temperature"), None);
        assert_eq!(shape("gpt-4o")["max_tokens"], 9);
        assert!(!shape("gpt-4o").to_string().contains("secret-node-name"));
    }

    #[test]
    fn instructions_have_the_role_of_the_provider() {
        let roles = |system_role| {
            let profile = Profile { system_role, ..Profile::default() };
            let request = ChatRequest { output: None, ..request(json!({})) };
            let body = shaped(&request, "m", &profile, OutputMode::Prompted);
            let message = |message: &Value| {
                format!("{}: {}", message["role"], message["content"]).replace('"', "")
            };
            body["messages"].as_array().unwrap().iter().map(message).collect::<Vec<_>>()
        };
        assert_eq!(roles(SystemRole::System), ["system: Be brief.", "user: Hi"]);
        assert_eq!(roles(SystemRole::Developer), ["developer: Be brief.", "user: Hi"]);
        assert_eq!(roles(SystemRole::User), ["user: Be brief.\\n\\nHi"]);
    }

    #[test]
    fn a_list_travels_in_an_object_and_comes_out_again() {
        let schema = json!({
            "type": "array", "items": {"$ref": "#/$defs/Story"},
            "$defs": {"Story": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}}
        });
        let request = request(schema);
        let body = shaped(&request, "m", &Profile::default(), OutputMode::JsonSchema);
        let format = &body["response_format"]["json_schema"];
        assert_eq!(format["name"], "User_story_");
        assert_eq!(format["strict"], true);
        assert_eq!(format["schema"]["properties"]["answer"]["items"]["$ref"], "#/$defs/Story");
        assert_eq!(format["schema"]["$defs"]["Story"]["additionalProperties"], false);

        let output = request.output.unwrap();
        assert_eq!(
            unwrap_answer(r#"{"answer": [{"id": "a"}]}"#.into(), &output),
            r#"[{"id":"a"}]"#
        );
        assert_eq!(unwrap_answer(r#"[{"id": "a"}]"#.into(), &output), r#"[{"id": "a"}]"#);
        assert_eq!(unwrap_answer("no JSON".into(), &output), "no JSON");
    }

    #[test]
    fn the_schema_goes_into_the_prompt_where_nothing_forces_it() {
        let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
        let body = shaped(&request(schema), "m", &Profile::default(), OutputMode::Prompted);
        assert_eq!(body.get("response_format"), None);
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("Be brief.\n\n") && system.contains("colour"), "{system}");
    }
}
