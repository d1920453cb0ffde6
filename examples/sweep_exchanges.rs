//! Reads the recorded exchanges with providers in a folder and the folders below, and reports each reply that is not read
//! as it was written.
//!
//! `cargo run --example sweep_exchanges -- FOLDER`. A file is JSON (`.json`), or has a JSON value in each line (`.jsonl`). A
//! value is one reply, as those in `tests/models/exchanges` (`status`, `body`, and `protocol` unless it is `chat`), an
//! exchange with a `request` and a `response`, or a list of exchanges as `interactions`. The response has its `body`, or the
//! text of its stream as `sse`; the names of VCR cassettes (`uri`, `status.code`, `body.string`) work, too. The protocol
//! follows from the address of the request. A second, simple reader says what a good reply contains; a bad one must have a
//! class.

use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use graphrun::models::{ChatReply, ErrorReply, ModelError, Protocol};
use serde_json::Value;

/// A recorded reply.
struct Reply {
    protocol: Protocol,
    status: u16,
    text: String,
}

/// What a good reply contains, by the simple reader.
#[derive(Debug, Default)]
struct Contents {
    text: String,
    calls: Vec<(String, String)>,
    tokens: (u64, u64),
    /// The words for the end, for a refusal and for errors.
    ends: Vec<String>,
    has_error: bool,
    /// The output of a model that its provider has rejected.
    failed: Option<String>,
}

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct Sweep {
    /// How many replies of each protocol, form and class were read as they were written.
    pub counts: BTreeMap<String, u32>,
    /// The other replies, each with its file.
    pub problems: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder of recorded exchanges")?;
    let Sweep { counts, problems } = sweep(Path::new(&folder))?;
    for (key, count) in &counts {
        println!("{count:>5} {key}");
    }
    let total: u32 = counts.values().sum();
    println!("{total} replies of {folder} as they were written, {} not", problems.len());
    for problem in &problems {
        println!("{problem}");
    }
    Ok(if problems.is_empty() && total > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads all exchanges in a folder and the folders below.
pub fn sweep(folder: &Path) -> Result<Sweep, Box<dyn Error>> {
    let mut files = Vec::new();
    find_files(folder, &mut files)?;
    files.sort();
    let mut sweep = Sweep::default();
    for path in files {
        let text = fs::read_to_string(&path)?;
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let values: Vec<Value> = values.collect::<Result<_, _>>()?;
        for reply in values.iter().flat_map(replies) {
            let name = path.strip_prefix(folder).unwrap_or(&path).display();
            match judge(&reply) {
                Ok(class) => {
                    let form = if is_stream(&reply.text) { "stream" } else { "whole" };
                    let key = format!("{:<10} {form:<7} {class}", reply.protocol.as_str());
                    *sweep.counts.entry(key).or_default() += 1;
                }
                Err(problem) => sweep.problems.push(format!("{name}: {problem}")),
            }
        }
    }
    Ok(sweep)
}

/// Adds the files of exchanges in a folder and the folders below. Links are not followed.
fn find_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find_files(&path, files)?;
        } else if path.extension().is_some_and(|it| it == "json" || it == "jsonl") {
            files.push(path);
        }
    }
    Ok(())
}

fn replies(value: &Value) -> Vec<Reply> {
    let text = |value: &Value| {
        let value = value.get("string").unwrap_or(value);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    };
    let status = |value: &Value| {
        let status = value["status"].get("code").unwrap_or(&value["status"]);
        status.as_u64().and_then(|it| u16::try_from(it).ok())
    };
    let interactions = match (value["interactions"].as_array(), value.get("response")) {
        (Some(interactions), _) => interactions.as_slice(),
        (None, Some(_)) => std::slice::from_ref(value),
        (None, None) => &[],
    };
    if interactions.is_empty() {
        let protocol = Protocol::parse(value["protocol"].as_str().unwrap_or("chat"));
        let reply = protocol.zip(status(value)).map(|(protocol, status)| Reply {
            protocol,
            status,
            text: text(&value["body"]),
        });
        return reply.into_iter().collect();
    }
    let reply = |it: &Value| {
        let (request, response) = (&it["request"], &it["response"]);
        let url = request.get("url").or_else(|| request.get("uri"));
        let url = url.and_then(Value::as_str).unwrap_or_default();
        let protocol = if url.contains("/v1/messages") {
            Protocol::Anthropic
        } else if url.contains("/responses") {
            Protocol::Responses
        } else if url.contains("enerateContent") {
            Protocol::Gemini
        } else {
            Protocol::Chat
        };
        let text = response.get("sse").or_else(|| response.get("body")).map(text)?;
        Some(Reply { protocol, status: status(response)?, text })
    };
    interactions.iter().filter_map(reply).collect()
}

fn is_stream(text: &str) -> bool {
    ["data:", "event:", ":", "id:", "retry:"].iter().any(|it| text.trim_start().starts_with(it))
}

/// Returns the class of a reply, or how it was read wrongly.
fn judge(reply: &Reply) -> Result<String, String> {
    if reply.status != 200 {
        let failure = ErrorReply { status: reply.status, after: None, body: &reply.text };
        return match failure.classify() {
            Ok(read) if !read.text.is_empty() && reply.text.contains("failed_generation") => {
                Ok("the model's own output".to_owned())
            }
            Ok(read) => Err(format!("status {} was read as {:?}", reply.status, read.text)),
            Err(error)
                if error.to_string().contains("without a message") && !reply.text.is_empty() =>
            {
                Err(format!("the message of status {} was lost", reply.status))
            }
            Err(error) => Ok(format!("error {}", error.kind().as_str())),
        };
    }
    let contents = contents(reply);
    match reply.protocol.read_text(&reply.text) {
        Ok(read) if contents.failed.as_ref().is_some_and(|it| *it == read.text) => {
            Ok("the model's own output".to_owned())
        }
        Ok(read) => compare(&contents, &read).map(|()| "answer".to_owned()),
        Err(error) => {
            explain(&contents, &error).map(|()| format!("error {}", error.kind().as_str()))
        }
    }
}

fn compare(contents: &Contents, read: &ChatReply) -> Result<(), String> {
    // Reasoning may stand in the text itself; the answer is what follows.
    let has_marks =
        ["<think", "</think", "<|channel|>"].iter().any(|it| contents.text.contains(it));
    if read.text != contents.text && !(has_marks && contents.text.ends_with(&read.text)) {
        return Err(format!("{:?} was read as {:?}", contents.text, read.text));
    }
    let calls: Vec<_> =
        read.tool_calls.iter().map(|it| (it.name.clone(), it.arguments.clone())).collect();
    let same = |(a, b): (&(String, String), &(String, String))| {
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        a.0 == b.0 && (a.1 == b.1 || json(&a.1) == json(&b.1))
    };
    if calls.len() != contents.calls.len() || !calls.iter().zip(&contents.calls).all(same) {
        return Err(format!("the calls {:?} were read as {calls:?}", contents.calls));
    }
    let tokens = (read.usage.input_tokens, read.usage.output_tokens);
    if tokens != contents.tokens {
        return Err(format!("{:?} tokens were read as {tokens:?}", contents.tokens));
    }
    if contents.has_error { Err("an error was read as an answer".to_owned()) } else { Ok(()) }
}

/// A rejected reply must have a reason in the reply itself.
fn explain(contents: &Contents, error: &ModelError) -> Result<(), String> {
    let is_whole = |it: &String| {
        ["stop", "tool_calls", "end_turn", "tool_use", "completed", "STOP"].contains(&it.as_str())
    };
    let ended = contents.ends.iter().any(|it| !is_whole(it));
    let is_empty = contents.text.trim().is_empty() && contents.calls.is_empty();
    let only_thoughts = contents.text.trim_start().starts_with("<think");
    let has_reason = match error.reason() {
        _ if contents.has_error => true,
        ModelError::Refused { .. }
        | ModelError::Truncated { .. }
        | ModelError::Incomplete { .. } => ended,
        ModelError::EmptyResponse { .. } => is_empty || only_thoughts,
        ModelError::StreamTruncated { .. } => contents.ends.is_empty(),
        _ => is_empty && contents.ends.is_empty(),
    };
    if has_reason { Ok(()) } else { Err(format!("{contents:?} was rejected: {error}")) }
}

/// Reads a reply of known good form with as little code as possible.
fn contents(reply: &Reply) -> Contents {
    let mut contents = Contents::default();
    if is_stream(&reply.text) {
        let text = reply.text.replace("\r\n", "\n");
        for event in text.split("\n\n") {
            let data = event.lines().filter_map(|it| it.strip_prefix("data:")).collect::<Vec<_>>();
            let data = data.join("\n");
            if data.trim() == "[DONE]" {
                contents.ends.push("stop".to_owned());
            } else if let Ok(event) = serde_json::from_str::<Value>(&data) {
                contents.add(reply.protocol, &event);
            }
        }
    } else if let Ok(body) = serde_json::from_str::<Value>(&reply.text) {
        contents.add(reply.protocol, &body);
    }
    contents
}

impl Contents {
    fn add(&mut self, protocol: Protocol, value: &Value) {
        let is_error = |it: &Value| {
            !it.is_null() && *it != "" && it.as_object().is_none_or(|it| !it.is_empty())
        };
        self.has_error |= is_error(&value["error"]) || value["type"] == "error";
        self.failed =
            value["error"]["failed_generation"].as_str().map(str::to_owned).or(self.failed.take());
        match protocol {
            Protocol::Chat => self.add_chat(value),
            Protocol::Responses => self.add_response(value),
            Protocol::Anthropic => self.add_message(value),
            Protocol::Gemini => self.add_candidate(value),
        }
    }

    fn end(&mut self, word: &Value) {
        self.ends.extend(word.as_str().filter(|it| !it.is_empty()).map(str::to_owned));
    }

    fn count(&mut self, usage: &Value, names: [&[&str]; 2]) {
        let sum = |names: &[&str]| names.iter().filter_map(|it| usage[*it].as_u64()).sum();
        if usage.is_object() {
            self.tokens = (sum(names[0]), sum(names[1]));
        }
    }

    fn add_chat(&mut self, value: &Value) {
        for usage in [&value["x_groq"]["usage"], &value["usage"]] {
            self.count(usage, [&["prompt_tokens"], &["completion_tokens"]]);
        }
        let choices = value["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|it| it["index"].as_u64().unwrap_or(0) == 0).take(1) {
            let is_delta = choice["delta"].is_object();
            let message = if is_delta { &choice["delta"] } else { &choice["message"] };
            self.text += &text_of(&message["content"]);
            self.end(&choice["finish_reason"]);
            self.has_error |= choice["error"].is_object();
            if message["refusal"].is_string() {
                self.ends.push("refusal".to_owned());
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let function = &call["function"];
                let name = function["name"].as_str().unwrap_or_default();
                let arguments = match &function["arguments"] {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    other => other.to_string(),
                };
                let number = call["index"].as_u64().and_then(|it| usize::try_from(it).ok());
                match self.calls.get_mut(number.unwrap_or(usize::MAX)) {
                    Some(known) if is_delta => known.1 += &arguments,
                    _ => self.calls.push((name.to_owned(), arguments)),
                }
            }
        }
    }

    fn add_response(&mut self, value: &Value) {
        // The last event of a stream has the whole reply.
        let is_end = ["response.completed", "response.incomplete", "response.failed"]
            .iter()
            .any(|it| value["type"] == *it);
        let body = if is_end { &value["response"] } else { value };
        if !body["output"].is_array() {
            return;
        }
        self.has_error |= body["error"].is_object();
        self.end(&body["status"]);
        self.count(&body["usage"], [&["input_tokens"], &["output_tokens"]]);
        for item in body["output"].as_array().into_iter().flatten() {
            if item["type"] == "function_call" {
                let [name, arguments] = ["name", "arguments"].map(|it| text_of(&item[it]));
                self.calls.push((name, arguments));
            }
            for part in item["content"].as_array().into_iter().flatten() {
                if part["type"] == "refusal" {
                    self.ends.push("refusal".to_owned());
                } else if item["type"] == "message" {
                    self.text += &text_of(&part["text"]);
                }
            }
        }
    }

    fn add_message(&mut self, value: &Value) {
        let message = if value["message"].is_object() { &value["message"] } else { value };
        let usage = &message["usage"];
        let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
        if usage["input_tokens"].is_u64() {
            self.count(usage, [&input, &["output_tokens"]]);
        } else if let Some(output) = usage["output_tokens"].as_u64() {
            self.tokens.1 = output;
        }
        self.end(&message["stop_reason"]);
        self.end(&value["delta"]["stop_reason"]);
        let started = (value["type"] == "content_block_start").then(|| &value["content_block"]);
        for block in message["content"].as_array().into_iter().flatten().chain(started) {
            if block["type"] == "tool_use" {
                let input =
                    if started.is_some() { String::new() } else { block["input"].to_string() };
                self.calls.push((text_of(&block["name"]), input));
            } else if block["type"] == "text" {
                self.text += &text_of(&block["text"]);
            }
        }
        if value["type"] == "content_block_delta" {
            self.text += &text_of(&value["delta"]["text"]);
            if let (Some(call), Some(piece)) =
                (self.calls.last_mut(), value["delta"]["partial_json"].as_str())
            {
                call.1 += piece;
            }
        }
        if value["type"] == "message_stop" {
            self.calls
                .iter_mut()
                .filter(|it| it.1.is_empty())
                .for_each(|it| "{}".clone_into(&mut it.1));
        }
    }

    fn add_candidate(&mut self, value: &Value) {
        if let Some(chunks) = value.as_array() {
            for chunk in chunks {
                self.add(Protocol::Gemini, chunk);
            }
            return;
        }
        let input = ["promptTokenCount", "toolUsePromptTokenCount"];
        self.count(
            &value["usageMetadata"],
            [&input, &["candidatesTokenCount", "thoughtsTokenCount"]],
        );
        self.end(&value["promptFeedback"]["blockReason"]);
        let candidate = &value["candidates"][0];
        self.end(&candidate["finishReason"]);
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            if part["thought"] != true {
                self.text += &text_of(&part["text"]);
            }
            if part["functionCall"].is_object() {
                let call = &part["functionCall"];
                self.calls.push((text_of(&call["name"]), call["args"].to_string()));
            }
        }
    }
}

/// Returns a text, or the texts of its parts that are no reasoning.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let parts = parts.iter().filter(|it| it["type"] != "thinking");
            parts.map(|it| text_of(&it["text"])).collect()
        }
        _ => String::new(),
    }
}
