//! Separates an answer from the reasoning that some servers leave in the same text.
//!
//! A server with a parser for its model removes the marks of the model's chat format. A server without one
//! passes them on: `<think>` blocks, the end of a block whose beginning was part of the prompt, or the
//! channels of OpenAI's harmony format. An answer may also be about these marks, so a mark in code or in a
//! quotation is left alone.

use serde::de::IgnoredAny;

use super::tools::ToolCall;

/// The marks around reasoning. A prompt may end with the first mark, so the text of a model may have only the second.
const BLOCKS: [(&str, &str); 6] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
];

/// The marks of OpenAI's harmony format: a message is
/// `<|start|>assistant<|channel|>final<|message|>…<|end|>`.
const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const ENDS: [&str; 4] = ["<|end|>", "<|return|>", "<|call|>", START];

/// A text of a model in its parts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TextParts {
    /// The answer.
    pub(super) answer: String,
    /// The reasoning before it.
    pub(super) reasoning: Option<String>,
    /// The calls in the text; only the harmony format has any.
    pub(super) tool_calls: Vec<ToolCall>,
}

/// Separates the answer from the reasoning before it. Reasoning that never ends has no answer behind it.
pub(super) fn part_text(text: &str) -> TextParts {
    if let Some(parted) = part_channels(text) {
        return parted;
    }
    let mut thoughts = Vec::new();
    let mut rest = text;
    if let Some((before, after)) = split_at_lone_end(rest) {
        thoughts.push(before);
        rest = after;
    }
    while let Some((open, close)) = BLOCKS.iter().find(|it| rest.trim_start().starts_with(it.0)) {
        let block = &rest.trim_start()[open.len()..];
        let (before, after) = block.split_once(close).unwrap_or((block, ""));
        thoughts.push(before);
        rest = after;
    }
    if thoughts.is_empty() {
        return TextParts { answer: text.to_owned(), ..TextParts::default() };
    }
    TextParts {
        answer: rest.trim_start().to_owned(),
        reasoning: join(&thoughts),
        ..TextParts::default()
    }
}

/// Splits a text at the end of a block that does not begin in the text.
fn split_at_lone_end(text: &str) -> Option<(&str, &str)> {
    let ends = BLOCKS.iter().filter_map(|(open, close)| {
        let at = text.find(close)?;
        let (before, after) = (&text[..at], &text[at + close.len()..]);
        let is_end =
            !before.contains(open) && !is_quoted(before) && is_between_parts(before, after);
        is_end.then_some((at, close.len()))
    });
    let (at, length) = ends.min()?;
    Some((&text[..at], &text[at + length..]))
}

/// Returns whether the text ends inside JSON, code or a quotation, so that a mark behind it is part of an answer.
fn is_quoted(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    // Behind whole JSON, which is a draft then, a mark is none of its texts.
    let is_whole = || serde_json::from_str::<IgnoredAny>(before).is_ok();
    before.trim_start().starts_with(['{', '[']) && !is_whole()
        || before.matches("```").count() % 2 == 1
        || line.matches('`').count() % 2 == 1
        || line.matches('"').count() % 2 == 1
        || before.ends_with(['"', '\'', '“', '«'])
}

/// Returns whether a mark is at an end of its line or between two sentences, as between reasoning and its answer. A sentence or
/// code that mentions the mark continues behind it.
fn is_between_parts(before: &str, after: &str) -> bool {
    let blank = |it: char| it.is_whitespace() && it != '\n';
    let ends_here = |it: &str| it.is_empty() || it.starts_with('\n');
    let line_before = before.trim_end_matches(blank);
    if line_before.is_empty()
        || line_before.ends_with('\n')
        || ends_here(after.trim_start_matches(blank))
    {
        return true;
    }
    let is_sentence = line_before.ends_with(['.', '!', '?', '…', '。', '！', '？', '}', ']']);
    let continues =
        |it: char| !it.is_whitespace() && !it.is_alphanumeric() && !"{[(<*#_`\"“«".contains(it);
    is_sentence && !after.starts_with(continues)
}

/// Parts a text of harmony channels; `None` if it is no such text.
fn part_channels(text: &str) -> Option<TextParts> {
    let (before, mut rest) = text.split_once(CHANNEL)?;
    let before = before.trim_end();
    let before = before.strip_suffix("assistant").unwrap_or(before);
    // The prompt may contain the beginning of the first message.
    let before = before.strip_suffix(START).unwrap_or(before);
    let first = before.strip_suffix("<|end|>");
    if first.is_none() && !before.trim().is_empty() {
        return None;
    }
    let mut thoughts: Vec<&str> = first.into_iter().collect();
    let mut parted = TextParts::default();
    let mut answers = Vec::new();
    loop {
        let (header, body) = rest.split_once(MESSAGE)?;
        let end = ENDS.iter().chain([&CHANNEL]).filter_map(|it| body.find(it)).min();
        let content = &body[..end.unwrap_or(body.len())];
        match header.split_whitespace().find_map(|it| it.strip_prefix("to=")) {
            Some(recipient) => parted.tool_calls.push(call(recipient, content)),
            None if header.trim_start().starts_with("final") => answers.push(content),
            None => thoughts.push(content),
        }
        match body[content.len()..].split_once(CHANNEL) {
            Some((_, next)) => rest = next,
            None => break,
        }
    }
    parted.reasoning = join(&thoughts);
    parted.answer = join(&answers).unwrap_or_default();
    Some(parted)
}

/// Returns a call of `functions.NAME`, or of a tool of the server.
fn call(recipient: &str, arguments: &str) -> ToolCall {
    let recipient = recipient.split("<|").next().unwrap_or_default();
    ToolCall {
        id: String::new(),
        name: recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned(),
        arguments: arguments.trim().to_owned(),
        extra: None,
    }
}

fn join(parts: &[&str]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_no_part_of_an_answer() {
        let cases = [
            ("Teal.", None, "Teal."),
            ("<think>Sea.</think>\n\nTeal.", Some("Sea."), "Teal."),
            ("\n<think>\nSea.\n</think><think>Sky.</think>Teal.", Some("Sea.\n\nSky."), "Teal."),
            ("Sea or sky?\n</think>\n\nTeal.", Some("Sea or sky?"), "Teal."),
            ("Sea.</think>Teal.", Some("Sea."), "Teal."),
            ("</think>Teal.", None, "Teal."),
            ("Sea or sky.\n</think> Teal.", Some("Sea or sky."), "Teal."),
            ("Sea or sky </think>\nTeal.", Some("Sea or sky"), "Teal."),
            ("Sea or sky. </think> Teal.", Some("Sea or sky."), "Teal."),
            ("{\"a\": 1}</think>{\"a\": 2}", Some("{\"a\": 1}"), "{\"a\": 2}"),
            ("{\"a\": 1}\n</think>\n{\"a\": 2}", Some("{\"a\": 1}"), "{\"a\": 2}"),
            (
                "<think>Sea. Sky. Perhaps {\"colour\": \"red\"}",
                Some("Sea. Sky. Perhaps {\"colour\": \"red\"}"),
                "",
            ),
            ("[THINK]Sea.[/THINK]Teal.", Some("Sea."), "Teal."),
            ("<|channel|>final<|message|>Teal.<|return|>", None, "Teal."),
            (
                "<|channel|>analysis<|message|>Sea.<|end|><|start|>assistant<|channel|>final<|message|>Teal.",
                Some("Sea."),
                "Teal.",
            ),
            (
                "Sea.<|end|><|start|>assistant<|channel|>final<|message|>Teal.",
                Some("Sea."),
                "Teal.",
            ),
            ("<|channel|>analysis<|message|>Sea. Sky", Some("Sea. Sky"), ""),
            (
                "<|start|>assistant<|channel|>final <|constrain|>json<|message|>{\"a\": 1}<|end|>",
                None,
                "{\"a\": 1}",
            ),
        ];
        for (text, reasoning, answer) in cases {
            let parted = part_text(text);
            assert_eq!(
                (parted.reasoning.as_deref(), parted.answer.as_str()),
                (reasoning, answer),
                "{text}"
            );
            assert!(parted.tool_calls.is_empty(), "{text}");
        }
    }

    #[test]
    fn an_answer_about_the_marks_stays_whole() {
        for text in [
            r#"{"code": "text.split(\"</think>\")"}"#,
            r#"["</think>"]"#,
            "Split the text at `</think>`.",
            "Split it:\n```py\ntext.split(END)  # </think>\n```\n",
            "The mark is \"</think>\".",
            "import re\ns = re.sub(r\"^.*</think>\", \"\", s)",
            "import re\ns = re.sub(r'^.*?</think>', '', s)",
            "Remove the text before </think> and keep the rest.",
            "Use <think> and </think>.",
            r#"{"code": "<|channel|>final<|message|>"}"#,
            "The mark of a channel is <|channel|>final<|message|>.",
            "<|channel|> is a mark.",
        ] {
            assert_eq!(
                part_text(text),
                TextParts { answer: text.to_owned(), ..TextParts::default() }
            );
        }
    }

    #[test]
    fn a_call_in_a_channel_is_a_call() {
        let text = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary \
                    to=functions.read_file <|constrain|>json<|message|>{\"path\": \"a\"}<|call|>";
        let parted = part_text(text);
        assert_eq!((parted.answer.as_str(), parted.reasoning.as_deref()), ("", Some("Look.")));
        let call = &parted.tool_calls[0];
        assert_eq!(
            (call.name.as_str(), call.arguments.as_str()),
            ("read_file", "{\"path\": \"a\"}")
        );
    }
}
