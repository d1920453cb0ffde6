//! The questions of a run in a report: those that wait, and those that were answered.

use serde::Serialize;
use serde_json::Value;

use super::yes_no::is_yes_or_no;
use crate::{
    checkpoint::{AskedQuestion, Became, OpenQuestion},
    graph::Question,
    id::NodeName,
};

/// A question that waits for its answer.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct QuestionLine {
    pub(super) key: String,
    pub(super) node: NodeName,
    pub(super) prompt: String,
    pub(super) schema: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) show: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<String>,
    /// Whether `approve` and `reject` answer it.
    #[serde(skip)]
    pub(super) is_yes_or_no: bool,
}

/// A question that was answered: who did it, when, and to what.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct AnswerLine {
    pub(super) key: String,
    pub(super) node: NodeName,
    pub(super) by: Option<String>,
    pub(super) at: String,
    /// The link of the entry that asked: it proves the state the answer was given for.
    pub(super) asked: Option<String>,
}

impl From<OpenQuestion> for QuestionLine {
    fn from(OpenQuestion { node, question, .. }: OpenQuestion) -> Self {
        let is_yes_or_no = is_yes_or_no(&question);
        let Question { key, prompt, schema, show, deadline } = question;
        let deadline = deadline.map(|it| it.to_string());
        Self { key, node, prompt, schema, show, deadline, is_yes_or_no }
    }
}

impl AnswerLine {
    /// Nothing if nobody has answered.
    pub(super) fn of(question: AskedQuestion) -> Option<Self> {
        let key = question.full_name();
        let Became::Answered { by, at, to } = question.became else { return None };
        Some(Self { key, node: question.node, by, at, asked: to.map(|it| it.to_string()) })
    }
}
