//! `on_overflow: cut`: a request that is too long for its model is shortened and sent again.
//!
//! The order is fixed, so a repeated task sends the same requests: the oldest messages of the history; the middles of
//! results of tools, the oldest first; the middles of the longest values in the prompt; the oldest messages of a conversation
//! that is summarised. The system prompt, the other text
//! of the prompt, the calls of the model, the messages about an invalid answer, and the last error stay whole: that of a
//! tool, and that which led to the node.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{Input, NodeContext},
};
use graphrun_models::{ChatModel, ChatReply, ChatRequest, Message, ModelError, Role};
use graphrun_workflow::OnOverflow;
use serde_json::Value;

use super::result::ERROR_PREFIX;
use crate::call::WatchedModel;

/// How often a request is shortened. Each time, three quarters of its characters are left, at last a hundred-thousandth.
const CUTS_MAX: u32 = 40;
/// The length up to which a text is not shortened, in characters.
const WHOLE_CHARACTERS_MAX: usize = 1_000;

/// The text between two messages of a conversation that stands in a prompt.
pub(super) const BETWEEN_MESSAGES: &str = "\n\n";

/// A model whose requests are cut if they are too long for it, as far as the agent allows that.
#[derive(Debug)]
pub(super) struct FittingModel<'a> {
    model: &'a WatchedModel<'a>,
    ctx: &'a NodeContext,
    on_overflow: OnOverflow,
    question: RequestLayout,
    /// The messages of a conversation in the prompt, in their order. The last one stays.
    transcript: Vec<String>,
    /// The cuts of the last request: a later one of the conversation is longer.
    cuts: Mutex<u32>,
}

/// The places of the parts of a request that the agent has made.
#[derive(Clone, Copy, Debug)]
struct RequestLayout {
    /// The number of messages of the system.
    system: usize,
    /// The position of the prompt. The history stands before it.
    prompt: usize,
}

/// The parts of a prompt that may be shortened or left out.
#[derive(Debug, Default)]
struct PromptParts<'a> {
    values: &'a [LongValue],
    /// The messages of a conversation in the prompt.
    transcript: Vec<String>,
}

/// The removed parts of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct RemovedParts {
    /// The messages of the history.
    messages: usize,
    /// The characters of all parts.
    characters: usize,
    /// Those of the results of tools.
    results: usize,
    /// Those of the values of the prompt, by their names.
    values: Vec<(String, usize)>,
}

/// A text of the state or the input that may be shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LongValue {
    /// Its path, such as `files[2].content`.
    name: String,
    text: String,
}

impl<'a> FittingModel<'a> {
    /// Makes the model for requests that begin with the messages of `question`, whose last one is the prompt.
    pub(super) fn new(
        model: &'a WatchedModel<'a>,
        ctx: &'a NodeContext,
        on_overflow: OnOverflow,
        question: &ChatRequest,
    ) -> Self {
        let system = question.messages.iter().take_while(|it| it.role == Role::System).count();
        let prompt = question.messages.len().saturating_sub(1);
        Self {
            model,
            ctx,
            on_overflow,
            question: RequestLayout { system, prompt },
            transcript: Vec::new(),
            cuts: Mutex::default(),
        }
    }

    /// Also leaves out messages of a conversation in the prompt, which are joined by [`BETWEEN_MESSAGES`].
    pub(super) fn with_transcript(self, transcript: Vec<String>) -> Self {
        Self { transcript, ..self }
    }

    pub(super) async fn save_last(&self) {
        self.model.save_last().await;
    }

    fn cuts(&self) -> u32 {
        *self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the request after this many cuts, or `None` if nothing more can be removed.
    fn shortened(&self, request: &ChatRequest, cuts: u32) -> Option<(ChatRequest, RemovedParts)> {
        let all = request.characters();
        let rest = (0..cuts).fold(all, |it, _| it / 4 * 3);
        let excess = usize::try_from(all - rest).unwrap_or(usize::MAX);
        let mut messages = request.messages.clone();
        let mut left_out = RemovedParts::default();
        let values = LongValue::all(self.ctx);
        let parts = PromptParts { values: &values, transcript: self.transcript.clone() };
        self.question.cut(&mut messages, excess, parts, &mut left_out);
        let is_shorter = left_out != RemovedParts::default();
        // Another request needs another key.
        let key = match request.key.as_str() {
            "" => String::new(),
            key => format!("{key}/cut-{cuts}"),
        };
        is_shorter.then(|| (ChatRequest { key, messages, ..request.clone() }, left_out))
    }
}

#[async_trait]
impl ChatModel for FittingModel<'_> {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let mut cuts = self.cuts();
        let mut sent = match cuts {
            0 => None,
            cuts => self.shortened(request, cuts),
        };
        loop {
            let current = sent.as_ref().map_or(request, |it| &it.0);
            let replied = self.model.chat(current).await;
            let is_cut = self.on_overflow == OnOverflow::Cut;
            let reason = replied.as_ref().err().map(ModelError::reason);
            let Some(ModelError::ContextOverflow { .. }) = reason else { return replied };
            if !is_cut {
                return replied;
            }
            // A cut may leave the request as it is: the one before has removed a whole message.
            let length = current.characters();
            let shorter = (cuts + 1..=CUTS_MAX).find_map(|cuts| {
                let (next, left_out) = self.shortened(request, cuts)?;
                (next.characters() < length).then_some((cuts, next, left_out))
            });
            let Some((number, next, left_out)) = shorter else { return replied };
            cuts = number;
            *self.cuts.lock().unwrap_or_else(PoisonError::into_inner) = cuts;
            tracing::info!(model = self.name(), %left_out, "the request is cut");
            let message = format!("the request is too long for {}: {left_out}", self.name());
            self.ctx.report(Report::Warning { message }).await;
            sent = Some((next, left_out));
        }
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

impl RequestLayout {
    /// Removes at least this many characters from a conversation, as far as the order allows it.
    fn cut(
        self,
        messages: &mut Vec<Message>,
        mut excess: usize,
        parts: PromptParts<'_>,
        left_out: &mut RemovedParts,
    ) {
        let mut prompt = self.prompt.min(messages.len().saturating_sub(1));
        let removed = self.removed_messages(&messages[..prompt], &mut excess);
        if removed > 0 {
            let gone: usize = messages
                .drain(self.system..self.system + removed)
                .map(|it| length(&it.content))
                .sum();
            prompt -= removed;
            let first = &mut messages[self.system];
            first.content = format!("{}{BETWEEN_MESSAGES}{}", mark_of(removed), first.content);
            left_out.messages += removed;
            left_out.characters += gone;
        }
        let last_error = messages.iter().rposition(is_error_of_tool);
        for (at, result) in messages.iter_mut().enumerate() {
            if result.role == Role::Tool && Some(at) != last_error {
                let whole = std::mem::take(&mut result.content);
                let before = left_out.characters;
                result.content = left_out.shorten(whole, &mut excess);
                left_out.results += left_out.characters - before;
            }
        }
        let PromptParts { values, mut transcript } = parts;
        let prompt = &mut messages[prompt].content;
        for LongValue { name, text } in values {
            if excess > 0 && prompt.contains(text.as_str()) {
                let before = left_out.characters;
                let short = left_out.shorten(text.clone(), &mut excess);
                left_out.values.push((name.clone(), left_out.characters - before));
                *prompt = prompt.replacen(text.as_str(), &short, 1);
                if let Some(message) = transcript.iter_mut().find(|it| it.contains(text.as_str())) {
                    *message = message.replacen(text.as_str(), &short, 1);
                }
            }
        }
        left_out.drop_oldest(prompt, &transcript, excess);
    }

    /// Returns how many of the oldest messages before the prompt are removed. The first message that stays is one of the
    /// user, because some providers refuse others.
    fn removed_messages(self, before: &[Message], excess: &mut usize) -> usize {
        let history = &before[self.system.min(before.len())..];
        let mut removed = 0;
        while let Some(message) = history.get(removed)
            && (*excess > 0 || (removed > 0 && message.role != Role::User))
        {
            *excess = excess.saturating_sub(length(&message.content));
            removed += 1;
        }
        removed
    }
}

impl RemovedParts {
    /// Leaves out the oldest messages of the conversation in a prompt, but not the last one.
    fn drop_oldest(&mut self, prompt: &mut String, transcript: &[String], mut excess: usize) {
        let mut count = 0;
        while excess > 0 && count + 1 < transcript.len() {
            excess = excess.saturating_sub(length(&transcript[count]));
            count += 1;
        }
        let oldest = transcript[..count].join(BETWEEN_MESSAGES);
        if count == 0 || !prompt.contains(&oldest) {
            return;
        }
        *prompt = prompt.replacen(&oldest, &mark_of(count), 1);
        self.messages += count;
        self.characters += length(&oldest);
    }

    /// Removes the middle of a text: as many characters as are too many, but not all of a long text.
    fn shorten(&mut self, text: String, excess: &mut usize) -> String {
        let all = length(&text);
        if *excess == 0 || all <= WHOLE_CHARACTERS_MAX {
            return text;
        }
        let rest = all.saturating_sub(*excess).max(WHOLE_CHARACTERS_MAX);
        let gone = all - rest;
        *excess = excess.saturating_sub(gone);
        self.characters += gone;
        let start: String = text.chars().take(rest.div_ceil(2)).collect();
        let end: String = text.chars().skip(all - rest / 2).collect();
        format!("{start}\n[… {} characters left out …]\n{end}", grouped(gone))
    }
}

impl fmt::Display for RemovedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.messages {
            0 => {}
            1 => parts.push("1 earlier message".to_owned()),
            messages => parts.push(format!("{messages} earlier messages")),
        }
        if self.results > 0 {
            parts.push(format!("{} of results of tools", grouped(self.results)));
        }
        let values = self.values.iter();
        parts.extend(values.map(|(name, gone)| format!("{} of `{name}`", grouped(*gone))));
        let characters = grouped(self.characters);
        write!(f, "{characters} characters are left out: {}", parts.join(", "))
    }
}

/// Returns whether a message is the error of a call.
fn is_error_of_tool(message: &Message) -> bool {
    message.role == Role::Tool && message.content.starts_with(ERROR_PREFIX)
}

/// Returns the mark in place of messages.
fn mark_of(messages: usize) -> String {
    format!("[… {messages} earlier messages left out …]")
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

impl LongValue {
    /// Returns the texts of the state and the input that may be shortened, the longest first. The error that led to the
    /// node, and parts of it, are none of them.
    fn all(ctx: &NodeContext) -> Vec<Self> {
        let mut values = Vec::new();
        for channel in ctx.state.schema().channels() {
            let name = channel.name().as_str();
            Self::add(&mut values, name.to_owned(), ctx.state.get(name).unwrap_or(&Value::Null));
        }
        if let Input::Value(item) = &ctx.input {
            Self::add(&mut values, "item".to_owned(), item);
        }
        if let Some(error) = ctx.trigger.error() {
            values.retain(|it| !error.contains(&it.text));
        }
        values.sort_by(|a, b| length(&b.text).cmp(&length(&a.text)).then(a.text.cmp(&b.text)));
        values.dedup_by(|later, earlier| later.text == earlier.text);
        values
    }

    fn add(values: &mut Vec<Self>, name: String, value: &Value) {
        match value {
            Value::String(text) if length(text) > WHOLE_CHARACTERS_MAX => {
                values.push(Self { name, text: text.clone() });
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    Self::add(values, format!("{name}[{at}]"), item);
                }
            }
            Value::Object(fields) => {
                for (field, value) in fields {
                    Self::add(values, format!("{name}.{field}"), value);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Vec<Message> {
        vec![
            Message::system("s".repeat(3_000)),
            Message::user("u".repeat(100)),
            Message::assistant("a".repeat(100)),
            Message::user("v".repeat(100)),
            Message::assistant("b".repeat(100)),
            Message::user(format!(
                "Fix this: {}\nThe error: {}",
                "c".repeat(4_000),
                "e".repeat(2_000)
            )),
            Message::tool("1", "o".repeat(5_000)),
            Message::tool("2", "p".repeat(5_000)),
            Message::assistant("no JSON".repeat(500)),
            Message::user("It is invalid.".repeat(500)),
        ]
    }

    fn cut(excess: usize) -> (Vec<Message>, RemovedParts) {
        let mut messages = question();
        let mut left_out = RemovedParts::default();
        let values = [LongValue { name: "code".to_owned(), text: "c".repeat(4_000) }];
        let parts = PromptParts { values: &values, ..PromptParts::default() };
        RequestLayout { system: 1, prompt: 5 }.cut(&mut messages, excess, parts, &mut left_out);
        (messages, left_out)
    }

    #[test]
    fn the_oldest_messages_are_left_out_first_and_in_pairs() {
        let (messages, left_out) = cut(50);
        let expected = RemovedParts { messages: 2, characters: 200, ..RemovedParts::default() };
        assert_eq!(left_out, expected);
        let first = format!("[… 2 earlier messages left out …]\n\n{}", "v".repeat(100));
        assert_eq!((messages.len(), messages[1].content.as_str()), (8, first.as_str()));
        assert_eq!(messages[2..], question()[4..]);
        let (messages, left_out) = cut(201);
        assert_eq!((messages.len(), left_out.messages), (6, 4));
        assert!(messages[1].content.starts_with("[… 4 earlier messages left out …]\n\nFix this"));
    }

    #[test]
    fn then_results_lose_their_middles_the_oldest_first() {
        let (messages, left_out) = cut(400 + 1_500);
        assert_eq!(left_out.characters, 1_900);
        let middle = "\n[… 1,500 characters left out …]\n";
        let expected = format!("{}{middle}{}", "o".repeat(1_750), "o".repeat(1_750));
        assert_eq!(messages[2].content, expected);
        assert_eq!(messages[3..], question()[7..]);
        let (messages, _) = cut(400 + 4_000 + 10);
        let short = &messages[2].content;
        assert!(short.starts_with(&"o".repeat(500)) && short.contains("4,000"), "{short}");
        assert_eq!(messages[3].content.matches('p').count(), 4_990);
    }

    #[test]
    fn then_the_longest_values_of_the_prompt_lose_their_middles() {
        let (messages, left_out) = cut(usize::MAX);
        assert_eq!(
            left_out.to_string(),
            "11,400 characters are left out: 4 earlier messages, 8,000 of results of tools, 3,000 of `code`"
        );
        let prompt = &messages[1].content;
        assert!(prompt.contains("Fix this: ccc") && prompt.contains("3,000 characters left out"));
        assert!(prompt.ends_with(&format!("\nThe error: {}", "e".repeat(2_000))), "{prompt}");
        assert_eq!(messages[0], question()[0], "the system prompt is never cut");
        assert_eq!(messages[4..], question()[8..], "an invalid answer and its problems stay");
    }

    #[test]
    fn the_last_error_of_a_tool_stays_whole() {
        let failed = |id: &str| Message::tool(id, format!("error: {}", "x".repeat(3_000)));
        let mut messages = vec![Message::user("Go."), failed("1"), failed("2")];
        messages.push(Message::tool("3", "o".repeat(3_000)));
        let whole = messages.clone();
        let mut left_out = RemovedParts::default();
        RequestLayout { system: 0, prompt: 0 }.cut(
            &mut messages,
            usize::MAX,
            PromptParts::default(),
            &mut left_out,
        );
        assert_eq!((&messages[0], &messages[2]), (&whole[0], &whole[2]));
        assert_eq!(left_out.results, 2_007 + 2_000);
    }

    #[test]
    fn a_conversation_that_is_summarised_loses_its_oldest_messages() {
        let long = "l".repeat(2_000);
        let mut transcript: Vec<String> = (0..40).map(|it| format!("user:\nshort {it}")).collect();
        transcript[0] = format!("user:\n{long}");
        let prompt = format!("Summarise:\n{}\nEnd.", transcript.join(BETWEEN_MESSAGES));
        let values = [LongValue { name: "chat[0].content".to_owned(), text: long }];
        let cut = |excess: usize| {
            let mut messages = vec![Message::user(prompt.as_str())];
            let mut left_out = RemovedParts::default();
            let parts = PromptParts { values: &values, transcript: transcript.clone() };
            let layout = RequestLayout { system: 0, prompt: 0 };
            layout.cut(&mut messages, excess, parts, &mut left_out);
            (messages.swap_remove(0).content, left_out)
        };
        let (text, left_out) = cut(500);
        assert_eq!((left_out.messages, left_out.characters), (0, 500), "long messages come first");
        assert!(text.contains("500 characters left out"), "{text}");
        let (text, left_out) = cut(2_000);
        assert_eq!((left_out.messages, left_out.values.len()), (1, 1));
        let start = "Summarise:\n[… 1 earlier messages left out …]\n\nuser:\nshort 1\n\n";
        assert!(text.starts_with(start), "{text}");
        let (text, left_out) = cut(usize::MAX);
        let only = "Summarise:\n[… 39 earlier messages left out …]\n\nuser:\nshort 39\nEnd.";
        assert_eq!((text.as_str(), left_out.messages), (only, 39));
    }

    #[test]
    fn nothing_is_left_out_of_a_request_that_fits() {
        assert_eq!(cut(0), (question(), RemovedParts::default()));
    }
}
