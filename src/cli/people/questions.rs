//! The open and the answered questions of a run in a report.

use serde::Serialize;
use serde_json::Value;

use super::{question_text::QuestionText, yes_no::is_yes_or_no};
use crate::{
    checkpoint::{AskedQuestion, OpenQuestion, QuestionOutcome},
    graph::Question,
    id::NodeName,
};

/// An open question.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct QuestionLine {
    pub(crate) key: String,
    pub(crate) node: NodeName,
    pub(crate) prompt: String,
    pub(crate) schema: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) show: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<String>,
    /// Whether `approve` and `reject` answer it.
    #[serde(skip)]
    pub(crate) is_yes_or_no: bool,
}

/// An answered question: the answer, who gave it, and when.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct AnswerLine {
    pub(crate) key: String,
    pub(crate) node: NodeName,
    pub(crate) answer: Value,
    pub(crate) by: Option<String>,
    pub(crate) at: String,
    /// The hash of the entry with the question: it proves the state for which the answer was given.
    pub(crate) question_hash: Option<String>,
}

impl QuestionLine {
    /// Returns what a person sees of it before an answer.
    pub(crate) fn text(&self) -> QuestionText<'_> {
        let Self { node, prompt, show, .. } = self;
        QuestionText { node, prompt, show }
    }
}

impl From<OpenQuestion> for QuestionLine {
    fn from(OpenQuestion { node, name, question, .. }: OpenQuestion) -> Self {
        let is_yes_or_no = is_yes_or_no(&question);
        let Question { key: _, prompt, schema, show, deadline, nested } = question;
        // The node of a nested run says more than the one that runs its graph.
        let node = nested.map_or(node, |it| it.node);
        let deadline = deadline.map(|it| it.to_string());
        Self { key: name, node, prompt, schema, show, deadline, is_yes_or_no }
    }
}

impl AnswerLine {
    /// Returns none for an open question.
    pub(crate) fn of(question: AskedQuestion) -> Option<Self> {
        let key = question.full_name();
        let QuestionOutcome::Answered { answer, by, at, to } = question.outcome else {
            return None;
        };
        let question_hash = to.map(|it| it.to_string());
        Some(Self { key, node: question.node, answer, by, at, question_hash })
    }
}
