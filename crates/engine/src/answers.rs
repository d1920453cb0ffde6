//! Answers to questions: matches each to its question and checks it.

use std::{collections::BTreeMap, fmt};

use graphrun_core::id::RunId;
use jiff::Timestamp;
use serde_json::Value;

use super::{Engine, RunError, machine::TaskEvent, redaction::redact_event, retry::failed_records};
use crate::checkpoint::{
    AskedQuestion, OpenQuestion, Outcome, QuestionOutcome, SavedRun, TaskRecord, asked_questions,
    open_questions, replaceable_questions,
};

/// The answers of one person to questions of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// By the name of the question. Null is an answer.
    pub by_name: BTreeMap<String, Value>,
    /// The person who answers; saved with the answers.
    pub by: Option<String>,
}

/// Why a question no longer accepts an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosedReason {
    /// It has an answer.
    Answered {
        /// The person who answered, if given.
        by: Option<String>,
        /// When, in RFC 3339.
        at: String,
    },
    /// Its deadline has passed.
    Late {
        /// The deadline.
        since: Timestamp,
    },
    /// The run continued without an answer.
    Dropped {
        /// When, in RFC 3339.
        at: String,
    },
}

impl ClosedReason {
    /// Returns the outcome of the last question with this name that is not open.
    pub fn of(name: &str, asked: &[AskedQuestion]) -> Option<Self> {
        let is_it = |it: &&AskedQuestion| it.full_name() == name || it.question.key == name;
        asked.iter().rev().filter(is_it).find_map(|question| match question.outcome.clone() {
            QuestionOutcome::Open => None,
            QuestionOutcome::Answered { by, at, .. } => Some(Self::Answered { by, at }),
            QuestionOutcome::Dropped { at } => {
                let over = at.parse::<Timestamp>().ok();
                let late =
                    question.question.deadline.filter(|&since| over.is_none_or(|at| since <= at));
                Some(late.map_or(Self::Dropped { at }, |since| Self::Late { since }))
            }
        })
    }
}

impl From<BTreeMap<String, Value>> for Answers {
    fn from(by_name: BTreeMap<String, Value>) -> Self {
        Self { by_name, by: None }
    }
}

impl fmt::Display for ClosedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A run that no storage keeps has no times of events.
            Self::Answered { by: None, at } if at.is_empty() => f.write_str("it has an answer"),
            Self::Answered { by: Some(by), at } if at.is_empty() => write!(f, "{by} answered it"),
            Self::Answered { by: Some(by), at } => write!(f, "{by} answered it at {at}"),
            Self::Answered { by: None, at } => write!(f, "it was answered at {at}"),
            Self::Late { since } => write!(f, "its deadline passed at {since:.0}"),
            Self::Dropped { at } => write!(f, "the run continued without an answer at {at}"),
        }
    }
}

/// Finds the question of each answer and checks the answer, before anything is changed.
pub(super) async fn match_answers(
    engine: &Engine,
    run: &RunId,
    open: &[OpenQuestion],
    answers: Answers,
) -> Result<Vec<TaskEvent>, RunError> {
    let Answers { by_name, by } = answers;
    if by_name.is_empty() {
        return Ok(Vec::new());
    }
    // Answers are rare, so reading the whole journal is acceptable: it contains the earlier questions.
    let asked = asked_questions(&engine.checkpointer.journal_without_values(run).await?);
    let mut found = Vec::new();
    for (name, answer) in by_name {
        let Some(question) = open.iter().find(|it| it.is_called(&name)) else {
            return Err(refused(name, open, &asked));
        };
        if let Some(since) = question.question.deadline.filter(|&it| it <= engine.clock.now()) {
            return Err(RunError::Closed { name, closed: ClosedReason::Late { since } });
        }
        if let Err(problems) = question.question.check(&answer) {
            return Err(RunError::WrongAnswer { name, problems });
        }
        let of_it = asked
            .iter()
            .rfind(|asked| asked.task == question.task && asked.outcome == QuestionOutcome::Open);
        let question_hash = of_it.map(|it| it.hash);
        let task = question.task;
        let key = question.question.key.clone();
        let mut answered = TaskEvent::Answered { task, key, answer, by: by.clone(), question_hash };
        redact_event(&mut answered);
        found.push(answered);
    }
    Ok(found)
}

/// Takes the new answers to questions of failed tasks out of the answers, each as the record that replaces the
/// answer before.
pub(super) async fn replace_answers(
    engine: &Engine,
    saved: &SavedRun,
    answers: &mut Answers,
) -> Result<Vec<TaskRecord>, RunError> {
    let failed = failed_records(&saved.records);
    if answers.by_name.is_empty() || failed.is_empty() {
        return Ok(Vec::new());
    }
    let SavedRun { summary, position, records, .. } = saved;
    let asked =
        asked_questions(&engine.checkpointer.journal_without_values(&summary.info.id).await?);
    let open = open_questions(position, records);
    let mut replaced = Vec::new();
    for question in replaceable_questions(position, records, &asked) {
        let name = answers.by_name.keys().find(|it| question.is_called(it)).cloned();
        let is_open = |name: &String| open.iter().any(|it| it.is_called(name));
        let Some(name) = name.filter(|it| !is_open(it)) else { continue };
        let answer = answers.by_name.remove(&name).unwrap_or_default();
        if let Err(problems) = question.question.check(&answer) {
            return Err(RunError::WrongAnswer { name, problems });
        }
        let is_it = |asked: &&AskedQuestion| {
            asked.task == question.task && asked.question.key == question.question.key
        };
        let (Some(asked), Some(failed)) =
            (asked.iter().rfind(is_it), failed.iter().find(|it| it.task == question.task))
        else {
            continue;
        };
        let task = question.task;
        let key = asked.question.key.clone();
        let by = answers.by.clone();
        let question_hash = Some(asked.hash);
        let mut event = TaskEvent::Answered { task, key, answer, by, question_hash };
        redact_event(&mut event);
        let TaskEvent::Answered { key, answer, by, .. } = event else { continue };
        let outcome = Outcome::Answered { key, answer, by, question_hash };
        // The task begins from its first attempt.
        replaced.push(TaskRecord { attempt: 1, outcome, ..TaskRecord::clone(failed) });
    }
    Ok(replaced)
}

/// Returns the error for a name without an open question.
fn refused(name: String, open: &[OpenQuestion], asked: &[AskedQuestion]) -> RunError {
    // Several tasks may ask under one key at the same time; each of their questions has another name.
    let is_of_several = open.iter().filter(|it| it.question.key == name).count() > 1;
    if let Some(closed) = ClosedReason::of(&name, asked).filter(|_| !is_of_several) {
        return RunError::Closed { name, closed };
    }
    let open = open.iter().map(|it| it.name.clone()).collect();
    RunError::UnknownQuestion { name, open }
}
