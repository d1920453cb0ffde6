//! Answers from a recording.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use graphrun_guard::{beneath::read_named, data_limit::DataLimit};
use serde_json::Value;

use super::{
    embeddings::RecordedVectors,
    entry::{BadLine, Entry, Matcher, RecordingError, joined, request_key},
    results::{CallPlace, RecordedResults},
};
use crate::{
    ChatModel, ChatReply, ChatRequest, EmbeddingReply, EmbeddingRequest, ModelError, Nearest,
    calls::{OfferedTools, settle},
    embeddings::problem_of,
};

/// The most characters of a quoted line in a difference.
const QUOTE_CHARS_MAX: usize = 120;

/// A model that answers from a recording, and only from it.
///
/// Among the entries of the asking node, an entry recorded for the same request comes first (the same after
/// [`normalise`](super::normalise())), then the hand-written entries whose texts are in the request. If several match,
/// each is used once, in the order of the file, and the last from then on. A request without a matching entry is an
/// error that names the nearest entry.
#[derive(Debug)]
pub struct Replay {
    file: PathBuf,
    name: String,
    entries: Vec<Entry>,
    /// Parallel to `entries`: whether each has answered. One lock, so that two tasks never get the same entry.
    used: Mutex<Vec<bool>>,
    /// The results of tools in the recorded requests.
    results: RecordedResults,
}

/// An entry of a recording that never answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedEntry {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its node.
    pub node: String,
    /// The entry's own description.
    pub about: Option<String>,
}

impl Replay {
    /// The model of a reply whose recording names none.
    pub const MODEL: &str = "recorded";

    /// Reads a recording. Empty lines are skipped.
    ///
    /// # Errors
    /// Returns [`RecordingError::Open`] when the file cannot be read, and [`RecordingError::Lines`] with every
    /// line that is no entry.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let file = path.as_ref().to_owned();
        let text = read_named(&file, DataLimit::InputBytes)
            .map_err(|error| RecordingError::Open { file: file.clone(), source: error.into() })?;
        let mut entries = Vec::new();
        let mut lines = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            match Entry::parse(text, line) {
                Ok(entry) => entries.push(entry),
                Err(what) => lines.push(BadLine { line, what }),
            }
        }
        if !lines.is_empty() {
            return Err(RecordingError::Lines { file, lines });
        }
        let stem =
            file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let used = Mutex::new(vec![false; entries.len()]);
        let results = RecordedResults::of(&mut entries);
        Ok(Self { name: format!("replay/{stem}"), file, entries, used, results })
    }

    /// Returns the entries that have not answered in this process. After a complete run these are superfluous.
    pub fn unused(&self) -> Vec<UnusedEntry> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = self.entries.iter().zip(&*used).filter(|(_, used)| !**used);
        unused
            .map(|(entry, _)| UnusedEntry {
                line: entry.line,
                node: entry.node.clone(),
                about: entry.about.clone(),
            })
            .collect()
    }

    /// Returns the answer to a question of a node that no model answered. Other lines of the node are answers of its model,
    /// so only one with a value that `is_answer` accepts counts.
    ///
    /// # Errors
    /// Returns [`ModelError::NoRecording`] when no entry answers it.
    pub fn look_up(
        &self,
        node: &str,
        question: &str,
        is_answer: impl Fn(&Value) -> bool,
    ) -> Result<Value, ModelError> {
        let request = ChatRequest::of_node(node, question);
        let answer = |entry: &Entry| -> Option<Value> {
            let reply = entry.answer(&request).ok()?;
            serde_json::from_str(&reply.text).ok().filter(|it| is_answer(it))
        };
        let found = self.find_among(&request, &|entry| answer(entry).is_some());
        found.and_then(answer).ok_or_else(|| self.no_recording(&request))
    }

    /// Returns the nodes that the lines name, each with the number of its first line.
    pub fn nodes(&self) -> BTreeMap<&str, usize> {
        let mut nodes = BTreeMap::new();
        for entry in &self.entries {
            nodes.entry(entry.node.as_str()).or_insert(entry.line);
        }
        nodes
    }

    /// Returns the recorded result of a call that the model of a node made, as the model saw it. Lines that were written by
    /// hand have none.
    ///
    /// Results at the same place of a conversation come first. If several match, each is used once, in the order of the file, and the
    /// last from then on.
    pub fn tool_result(
        &self,
        node: &str,
        tool: &str,
        arguments: &Value,
        place: Option<&CallPlace>,
    ) -> Option<&str> {
        self.results.take(names_of(node), tool, arguments, place)
    }

    /// Returns the recorded vectors of texts.
    pub(super) fn embed(
        &self,
        request: &EmbeddingRequest,
        model: &str,
    ) -> Result<EmbeddingReply, ModelError> {
        let asked = request.as_chat(model);
        let entry = self.find(&asked).ok_or_else(|| self.no_recording(&asked))?;
        let reply = entry.answer(&asked)?;
        let recorded = serde_json::from_str(&reply.text).map_err(|it| it.to_string());
        let recorded = recorded.and_then(|RecordedVectors { vectors }| {
            problem_of(&vectors, request.texts.len()).map_or(Ok(vectors), Err)
        });
        let vectors = recorded.map_err(|problem| ModelError::NoRecording {
            node: request.caller.clone(),
            file: self.file.clone(),
            nearest: Some(Nearest {
                line: entry.line,
                why: format!("its reply is no list of `vectors`: {problem}"),
            }),
        })?;
        let ChatReply { usage, cost_usd, model, .. } = reply;
        Ok(EmbeddingReply { vectors, usage, cost_usd, model, ..EmbeddingReply::default() })
    }

    fn answer(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        match self.find(request) {
            Some(entry) => entry.answer(request),
            None => Err(self.no_recording(request)),
        }
    }

    fn no_recording(&self, request: &ChatRequest) -> ModelError {
        ModelError::NoRecording {
            node: request.caller.clone(),
            file: self.file.clone(),
            nearest: self.nearest(request),
        }
    }

    fn find(&self, request: &ChatRequest) -> Option<&Entry> {
        self.find_among(request, &|_| true)
    }

    /// Returns the entry that answers a request, among those that fulfil a condition.
    fn find_among(&self, request: &ChatRequest, counts: &dyn Fn(&Entry) -> bool) -> Option<&Entry> {
        // The hash of a recorded request contains the name of its node as it was recorded.
        let keys: Vec<(&str, String)> =
            names_of(&request.caller).map(|it| (it, request_key(it, request))).collect();
        let text = joined(&request.messages);
        let exact = |entry: &Entry| match &entry.matcher {
            Matcher::Exact { key, .. } => keys.iter().any(|it| it.0 == entry.node && it.1 == *key),
            Matcher::Content { .. } => false,
        };
        let by_content = |entry: &Entry| match &entry.matcher {
            Matcher::Content { contains, lacks } => {
                contains.iter().all(|part| text.contains(part))
                    && !lacks.iter().any(|part| text.contains(part))
            }
            Matcher::Exact { .. } => false,
        };
        // A line with the full name comes before those with the name of a node in several nested runs.
        names_of(&request.caller).find_map(|recorded| {
            let exact = |entry: &Entry| exact(entry) && counts(entry);
            let by_content = |entry: &Entry| by_content(entry) && counts(entry);
            self.take(recorded, &exact).or_else(|| self.take(recorded, &by_content))
        })
    }

    /// Returns the first matching entry that has not answered yet, or else the last one, and marks it.
    fn take(&self, node: &str, fits: &dyn Fn(&Entry) -> bool) -> Option<&Entry> {
        let fitting: Vec<usize> = (0..self.entries.len())
            .filter(|&at| self.entries[at].node == node && fits(&self.entries[at]))
            .collect();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let at = fitting.iter().find(|&&at| !used[at]).or(fitting.last()).copied()?;
        used[at] = true;
        Some(&self.entries[at])
    }

    /// Returns the entry of the node that differs least from a request.
    fn nearest(&self, request: &ChatRequest) -> Option<Nearest> {
        let text = joined(&request.messages);
        self.entries
            .iter()
            .filter(|entry| names_of(&request.caller).any(|it| it == entry.node))
            .map(|entry| (entry.line, Difference::between(&entry.matcher, &text)))
            // On a tie the later one wins: it is more likely the one that was just added.
            .min_by_key(|(line, difference)| (difference.size, usize::MAX - line))
            .map(|(line, difference)| Nearest { line, why: difference.why })
    }
}

#[async_trait]
impl ChatModel for Replay {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let mut reply = self.answer(request)?;
        // A recording has the names of tools, and another tool may have one of these as its name on the wire.
        let offered = OfferedTools::of(&request.tools);
        for call in &mut reply.tool_calls {
            if let Some(name) = offered.wire_name_of(&call.name) {
                call.name = name.to_owned();
            }
        }
        settle(reply, request)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the names of a node in a recording: the full one, and those in the files that nested runs use.
fn names_of(full_name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(full_name), |it| Some(it.split_once('.')?.1))
}

/// The difference between an entry and a request it does not answer.
struct Difference {
    /// Counts texts or lines; comparable between entries of one kind.
    size: usize,
    why: String,
}

impl Difference {
    fn between(matcher: &Matcher, text: &str) -> Self {
        match matcher {
            Matcher::Content { contains, lacks } => {
                let missing = contains.iter().filter(|part| !text.contains(*part));
                let missing = missing.map(|part| format!("the request lacks {}", quote(part)));
                let present = lacks.iter().filter(|part| text.contains(*part));
                let present = present.map(|part| format!("the request has {}", quote(part)));
                let all: Vec<String> = missing.chain(present).collect();
                Self { size: all.len(), why: all.join(", and ") }
            }
            Matcher::Exact { text: Some(recorded), .. } => Self::of_lines(recorded, text),
            Matcher::Exact { text: None, .. } => Self {
                size: usize::MAX,
                why: "only its key was recorded, and it differs".to_owned(),
            },
        }
    }

    fn of_lines(recorded: &str, asked: &str) -> Self {
        let lines = recorded.lines().count().max(asked.lines().count());
        let same = recorded.lines().zip(asked.lines()).filter(|(a, b)| a == b).count();
        let first = recorded.lines().zip(asked.lines()).take_while(|(a, b)| a == b).count();
        let at = |text: &str| text.lines().nth(first).map_or_else(|| "nothing".to_owned(), quote);
        let why = if lines == same {
            "the schema or the division into messages is another".to_owned()
        } else {
            let recorded = at(recorded);
            let asked = at(asked);
            format!("line {} of its request is {recorded}, where this one has {asked}", first + 1)
        };
        Self { size: lines - same, why }
    }
}

fn quote(text: &str) -> String {
    let cut: String = text.chars().take(QUOTE_CHARS_MAX).collect();
    if cut.len() < text.len() { format!("{cut:?}…") } else { format!("{cut:?}") }
}
