//! The output of a program: events as JSON lines, or one JSON value, by the rules of its protocol.
//!
//! Unknown events are passed over, because each release of a program adds some.

use std::{collections::BTreeMap, time::Instant};

use graphrun_core::{event::Report, state::read_json_bytes};
use graphrun_models::{AnswerSink, MessagePart, OutputSchema, StatedUsage, TokenUsage};
use graphrun_workflow::ProgramProtocol;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{claude, codex, gemini, json};
use crate::agent::{
    result::{INPUT_CHARACTERS_MAX, cut},
    session::is_id,
};

/// The most bytes of a line, and of the lines that are no events. Longer ones are dropped.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// The most calls of tools that are reported, because reports are saved with the run.
const CALLS_MAX: usize = 1_000;
/// The most characters of an error that a program states.
const ERROR_CHARACTERS_MAX: usize = 2_000;

/// Reads the output of a program while it works.
#[derive(Debug)]
pub(super) struct Output {
    protocol: ProgramProtocol,
    /// The beginning of a line.
    line: Vec<u8>,
    is_line_too_long: bool,
    reading: Reading,
    deltas: AnswerSink,
    reports: mpsc::Sender<Report>,
    /// The calls of tools without a result, by their ids.
    open: BTreeMap<String, Call>,
    calls: usize,
}

/// The part of the answer of a program that has arrived.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The answer, once the program has ended its work.
    pub(super) answer: Option<String>,
    /// The text that is the answer if the work ends now.
    pub(super) last_text: String,
    /// Why the work failed.
    pub(super) error: Option<String>,
    pub(super) usage: Option<TokenUsage>,
    pub(super) cost_usd: Option<f64>,
    /// The numbers that are ignored in the usage and the cost.
    pub(super) stated: StatedUsage,
    pub(super) model: Option<String>,
    /// The session, once the program has begun or found it.
    pub(super) session: Option<String>,
    /// The lines that are no events.
    pub(super) rest: Vec<u8>,
}

/// A part of the work that an event shows.
#[derive(Debug, PartialEq)]
pub(super) enum Activity {
    /// A part of a message.
    Text(String),
    /// A part of the reasoning.
    Reasoning(String),
    /// A tool is called.
    Call {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// Its input.
        input: String,
    },
    /// A tool has a result.
    Result {
        /// The id of the call.
        id: String,
        /// The error, if it failed.
        error: Option<String>,
    },
}

#[derive(Debug)]
struct Call {
    tool: String,
    input: String,
    began: Instant,
}

impl Output {
    pub(super) fn new(
        protocol: ProgramProtocol,
        deltas: AnswerSink,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        Self {
            protocol,
            line: Vec::new(),
            is_line_too_long: false,
            reading: Reading::default(),
            deltas,
            reports,
            open: BTreeMap::new(),
            calls: 0,
        }
    }

    /// Takes a piece of the output.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        // The program works, so the idle timeout of its node does not run out.
        self.deltas.send(MessagePart::Text, "");
        for part in bytes.split_inclusive(|it| *it == b'\n') {
            if self.line.len() + part.len() > TEXT_BYTES_MAX {
                self.is_line_too_long = true;
                self.line.clear();
            }
            if !self.is_line_too_long {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_line_too_long) || line.trim_ascii().is_empty() {
            return;
        }
        let event = match self.protocol {
            ProgramProtocol::Json => None,
            _ => read_json_bytes(&line).ok().filter(Value::is_object),
        };
        match event {
            Some(event) => self.read(&event),
            None => self.reading.keep(&line),
        }
    }

    fn read(&mut self, event: &Value) {
        let reading = &mut self.reading;
        let activities = match self.protocol {
            ProgramProtocol::Claude => claude::read(event, reading),
            ProgramProtocol::Codex => codex::read(event, reading),
            ProgramProtocol::Gemini => gemini::read(event, reading),
            ProgramProtocol::Json => Vec::new(),
        };
        for activity in activities {
            self.show(activity);
        }
    }

    fn show(&mut self, activity: Activity) {
        match activity {
            Activity::Text(text) => self.deltas.send(MessagePart::Text, &text),
            Activity::Reasoning(text) => self.deltas.send(MessagePart::Reasoning, &text),
            Activity::Call { id, tool, input } => {
                if self.calls < CALLS_MAX {
                    self.calls += 1;
                    let input = cut(&input, INPUT_CHARACTERS_MAX);
                    let began = Instant::now();
                    self.open.insert(id, Call { tool, input, began });
                }
            }
            Activity::Result { id, error } => {
                let Some(Call { tool, input, began }) = self.open.remove(&id) else { return };
                let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                let error = error.map(|it| cut(&it, ERROR_CHARACTERS_MAX));
                // A run that does not keep up with its program misses reports, but not the answer.
                let _ = self.reports.try_send(Report::ToolCall { tool, input, ms, error });
            }
        }
    }

    /// Returns what the whole output says. The program has ended.
    pub(super) fn finish(mut self, output: Option<&OutputSchema>) -> Reading {
        self.end_line();
        if self.protocol == ProgramProtocol::Json {
            let rest = std::mem::take(&mut self.reading.rest);
            self.reading = json::read(&rest, output);
            self.reading.rest = rest;
        } else if self.reading.answer.is_none() {
            // Without a stream, the output is one value over several lines.
            match read_json_bytes(&self.reading.rest) {
                Ok(Value::Array(events)) => events.iter().for_each(|it| self.read(it)),
                Ok(event) => self.read(&event),
                Err(_) => {}
            }
        }
        self.deltas.end();
        let mut reading = self.reading;
        reading.error = reading.error.map(|it| cut(it.trim(), ERROR_CHARACTERS_MAX));
        reading
    }
}

impl Reading {
    /// Takes the usage that is made of counts. A usage with a count that cannot be right is unknown.
    pub(super) fn take_usage(&mut self, make: impl FnOnce(&mut StatedUsage) -> TokenUsage) {
        let mut stated = StatedUsage::default();
        let usage = make(&mut stated);
        self.usage = stated.usage(TokenUsage { calls: 1, ..usage });
        self.stated = stated;
    }

    /// Takes the cost of a value, after the [usage](Self::take_usage).
    pub(super) fn take_cost(&mut self, value: &Value, name: &str) {
        self.cost_usd = self.stated.cost(name, value.get(name));
    }

    /// Takes the session that an event names.
    pub(super) fn note_session(&mut self, event: &Value, name: &str) {
        let id = event.get(name).and_then(Value::as_str).filter(|it| is_id(it));
        self.session = id.map(str::to_owned).or(self.session.take());
    }

    fn keep(&mut self, line: &[u8]) {
        if self.rest.len() + line.len() > TEXT_BYTES_MAX {
            // The end matters more than the beginning.
            self.rest.clear();
        }
        self.rest.extend_from_slice(line);
    }
}

/// Returns why a program of this protocol has no answer, and the usual remedy.
pub(super) fn what_is_missing(protocol: ProgramProtocol) -> &'static str {
    match protocol {
        ProgramProtocol::Claude => {
            "there is no whole `result` event; its options must include `-p --output-format stream-json --verbose`"
        }
        ProgramProtocol::Codex => {
            "there is no whole `turn.completed` event; its arguments must be those of `codex exec --json`"
        }
        ProgramProtocol::Gemini => {
            "there is no whole `result` event; its options must include `--output-format stream-json`"
        }
        ProgramProtocol::Json => {
            "it printed nothing; its answer is the last JSON value that it prints"
        }
    }
}

/// Returns a count of a mapping, or 0 if it is not stated.
pub(super) fn count(stated: &mut StatedUsage, counts: &Value, name: &str) -> u64 {
    stated.count(name, counts.get(name)).unwrap_or(0)
}

/// Returns a part of another count of a mapping, or 0 if it is not stated.
pub(super) fn part(stated: &mut StatedUsage, counts: &Value, name: &str) -> u64 {
    stated.part(name, counts.get(name))
}

/// Returns a text of a mapping.
pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads an output in small pieces. Returns the reading, and the reports of tools.
    pub(in super::super) fn read(protocol: ProgramProtocol, text: &str) -> (Reading, Vec<Report>) {
        let (sender, mut receiver) = mpsc::channel(100);
        let mut output = Output::new(protocol, AnswerSink::default(), sender);
        text.as_bytes().chunks(7).for_each(|it| output.take(it));
        let reading = output.finish(None);
        let reports = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        (reading, reports)
    }

    #[test]
    fn lines_that_are_no_events_and_unknown_events_are_passed_over() {
        let text = "Loading…\n{\"type\": \"new_in_the_next_release\", \"message\": 7}\n[1]\n7\n{\"type\"\n\n\
                    {\"type\": \"result\", \"result\": \"done\"}";
        let (reading, _) = read(ProgramProtocol::Claude, text);
        assert_eq!(reading.answer.as_deref(), Some("done"));
        assert_eq!(reading.rest, "Loading…\n[1]\n7\n{\"type\"\n".as_bytes());
        for protocol in ProgramProtocol::ALL {
            let half = r#"{"type": "result", "result": "do"#;
            let (reading, _) = read(protocol, half);
            let is_text = protocol == ProgramProtocol::Json;
            assert_eq!(reading.answer.is_some(), is_text, "{protocol:?}");
            assert!(read(protocol, "").0.answer.is_none(), "{protocol:?}");
        }
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let (sender, _receiver) = mpsc::channel(1);
        let mut output = Output::new(ProgramProtocol::Claude, AnswerSink::default(), sender);
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..20 {
            output.take(&piece);
            assert!(output.line.len() <= TEXT_BYTES_MAX);
        }
        output.take(b"\n{\"type\": \"result\", \"result\": \"done\"}\n");
        assert_eq!(output.finish(None).answer.as_deref(), Some("done"));
    }
}
