//! The questions of a run: the open ones, their names, and the outcome of the others.
//!
//! The name of a question is its key as long as no other question of the run had that key. After
//! that the name contains the task (`help@7.0`), so that an answer never reaches a different
//! question.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    event::Event,
    graph::{OriginalTask, Question},
    id::{NodeName, TaskId},
};
use serde_json::Value;

use super::{Conversation, Entry, EntryHash, JournalEntry, Outcome, Position, TaskRecord};

/// A question without an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenQuestion {
    /// The task that waits.
    pub task: TaskId,
    /// The id of the task when it began, before a migration of the run; part of the full name.
    pub original_task: TaskId,
    /// Its node.
    pub node: NodeName,
    /// The name that an answer uses: its key, or its full name if another question of the run had that key.
    pub name: String,
    /// The question, with the key that its node set.
    pub question: Question,
}

/// A question that was asked in a run, open or not.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedQuestion {
    /// The task that asked.
    pub task: TaskId,
    /// The id of the task when it began, before a migration of the run; part of the full name.
    pub original_task: TaskId,
    /// Its node.
    pub node: NodeName,
    /// The question, with the key that its node set.
    pub question: Question,
    /// The hash of the entry that asked. It identifies the history of the run up to the question.
    pub hash: EntryHash,
    /// Its outcome.
    pub outcome: QuestionOutcome,
}

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionOutcome {
    /// It waits for an answer.
    Open,
    /// It was answered.
    Answered {
        /// The answer.
        answer: Value,
        /// The name of the sender, if given.
        by: Option<String>,
        /// The time, in RFC 3339.
        at: String,
        /// The hash that the answer names: of the entry that asked.
        to: Option<EntryHash>,
    },
    /// It ended without an answer, because its deadline passed or its task ended in another way.
    Dropped {
        /// The time, in RFC 3339.
        at: String,
    },
}

impl OpenQuestion {
    /// Returns whether a text is the name or the full name of the question.
    pub fn is_called(&self, text: &str) -> bool {
        text == self.name || text == full_name(&self.question.key, self.original_task)
    }
}

impl AskedQuestion {
    /// Returns the full name, which is unique in the run.
    pub fn full_name(&self) -> String {
        full_name(&self.question.key, self.original_task)
    }
}

/// Returns the open questions in task order. `records` are those of the step after the position,
/// oldest first.
pub fn open_questions(position: &Position, records: &[TaskRecord]) -> Vec<OpenQuestion> {
    let mut asked: Vec<(&str, TaskId)> = Vec::new();
    let mut open: BTreeMap<TaskId, (&NodeName, &Question)> = BTreeMap::new();
    for record in records {
        if let Outcome::Asked { question } = &record.outcome {
            asked.push((&question.key, record.task));
            open.insert(record.task, (&record.node, question));
        } else {
            open.remove(&record.task);
        }
    }
    let names = QuestionNames::new(&position.people, asked);
    let open = open.into_iter().map(|(task, (node, question))| {
        let original_task = position.original_task(task);
        let name = names.of(&question.key, original_task);
        let node = node.clone();
        let question = question.clone();
        OpenQuestion { task, original_task, node, name, question }
    });
    open.collect()
}

/// Returns the answered questions of the failed tasks of the open step, which accept another answer: the node may
/// have failed because of the first one. `asked` are all questions of the run.
pub fn replaceable_questions(
    position: &Position,
    records: &[TaskRecord],
    asked: &[AskedQuestion],
) -> Vec<OpenQuestion> {
    let last: BTreeMap<TaskId, &TaskRecord> = records.iter().map(|it| (it.task, it)).collect();
    let failed = |question: &&AskedQuestion| {
        let record = last.get(&question.task);
        record.is_some_and(|it| matches!(it.outcome, Outcome::Failed { .. }))
            && matches!(question.outcome, QuestionOutcome::Answered { .. })
    };
    let names = asked.iter().map(|it| (it.question.key.as_str(), it.task));
    let names = QuestionNames::new(&position.people, names);
    let replaceable = asked.iter().filter(failed).map(|question| {
        let AskedQuestion { task, original_task, node, question, .. } = question.clone();
        let name = names.of(&question.key, original_task);
        OpenQuestion { task, original_task, node, name, question }
    });
    replaceable.collect()
}

/// Returns all questions of a run, oldest first, from its whole journal.
pub fn asked_questions(journal: &[JournalEntry]) -> Vec<AskedQuestion> {
    let mut asked = AskedQuestions::default();
    for logged in journal {
        asked.add(logged);
    }
    asked.questions
}

/// The questions of a run, entry by entry.
#[derive(Debug, Default)]
pub struct AskedQuestions {
    /// All of them so far, oldest first.
    pub questions: Vec<AskedQuestion>,
    /// The original ids of the tasks of the open step, if they have others since a migration or a step of messages.
    original_ids: BTreeMap<TaskId, TaskId>,
}

impl AskedQuestions {
    /// Takes in the next entry.
    pub fn add(&mut self, JournalEntry { hash, entry, .. }: &JournalEntry) {
        for record in &entry.records {
            let is_of_it = |it: &&mut AskedQuestion| it.task == record.task;
            let open = self.questions.iter_mut().rev().find(is_of_it);
            let open = open.filter(|it| it.outcome == QuestionOutcome::Open);
            match (&record.outcome, open) {
                (Outcome::Asked { question }, _) => self.questions.push(AskedQuestion {
                    task: record.task,
                    original_task: self
                        .original_ids
                        .get(&record.task)
                        .copied()
                        .unwrap_or(record.task),
                    node: record.node.clone(),
                    question: question.clone(),
                    hash: *hash,
                    outcome: QuestionOutcome::Open,
                }),
                (Outcome::Answered { key, answer, by, question_hash }, open) => {
                    // Without an open question, it is a new answer to a question of a failed task.
                    let is_it =
                        |it: &&mut AskedQuestion| it.task == record.task && it.question.key == *key;
                    let asked = match open {
                        Some(open) => Some(open),
                        None => self.questions.iter_mut().rev().find(is_it),
                    };
                    if let Some(asked) = asked {
                        asked.outcome = QuestionOutcome::Answered {
                            answer: answer.clone(),
                            by: by.clone(),
                            at: time_of(entry.events.iter(), record.task),
                            to: *question_hash,
                        };
                    }
                }
                (_, Some(open)) => {
                    open.outcome =
                        QuestionOutcome::Dropped { at: time_of(entry.events.iter(), record.task) };
                }
                (_, None) => (),
            }
        }
        if entry.commit.is_some() {
            self.original_ids = names_after(entry);
        }
        if entry.migration.is_some() {
            reassign_open_questions(&mut self.questions, entry, &self.original_ids);
        }
    }
}

/// Returns the original ids of the tasks in the step that is open after a commit.
fn names_after(entry: &Entry) -> BTreeMap<TaskId, TaskId> {
    let Some(position) = entry.commit.as_ref().map(|it| &it.position) else {
        return BTreeMap::new();
    };
    let step = position.step.next();
    let name =
        |(index, original): (&u32, &OriginalTask)| (TaskId { step, index: *index }, original.task);
    position.original_tasks.iter().map(name).collect()
}

/// Updates open questions after a migration: each belongs to another task or is dropped.
fn reassign_open_questions(
    asked: &mut [AskedQuestion],
    entry: &Entry,
    original_ids: &BTreeMap<TaskId, TaskId>,
) {
    for it in asked.iter_mut().filter(|it| it.outcome == QuestionOutcome::Open) {
        let of_it =
            |record: &&TaskRecord| original_ids.get(&record.task) == Some(&it.original_task);
        let last = entry.carried().iter().rev().find(of_it);
        match last.map(|it| (it, &it.outcome)) {
            Some((record, Outcome::Asked { question })) => {
                (it.task, it.node) = (record.task, record.node.clone());
                it.question.clone_from(question);
            }
            _ => {
                it.outcome = QuestionOutcome::Dropped { at: time_of(entry.events.iter(), it.task) }
            }
        }
    }
}

/// Returns the time of the event about a task, or else of the first event.
fn time_of<'a>(
    mut events: impl Iterator<Item = &'a graphrun_core::event::RunEvent> + Clone,
    task: TaskId,
) -> String {
    let is_of_it = |event: &Event| match event {
        Event::QuestionAnswered { task: it, .. }
        | Event::TaskFinished { task: it, .. }
        | Event::TaskUndecided { task: it, .. }
        | Event::TaskFailed { task: it, .. } => *it == task,
        _ => false,
    };
    let found = events.clone().find(|it| is_of_it(&it.event)).or_else(|| events.next());
    found.map(|it| it.ts.clone()).unwrap_or_default()
}

/// The names of the questions of a step. A question is named by its key, unless an earlier step or another task has
/// asked with that key.
pub(crate) struct QuestionNames<'a> {
    earlier: &'a BTreeSet<String>,
    askers: BTreeMap<&'a str, BTreeSet<TaskId>>,
}

impl<'a> QuestionNames<'a> {
    /// `asked` has the key and the task of each question of the step, also of those that are answered.
    pub(crate) fn new(
        people: &'a Conversation,
        asked: impl IntoIterator<Item = (&'a str, TaskId)>,
    ) -> Self {
        let mut askers: BTreeMap<&str, BTreeSet<TaskId>> = BTreeMap::new();
        for (key, task) in asked {
            askers.entry(key).or_default().insert(task);
        }
        Self { earlier: &people.question_keys, askers }
    }

    /// Returns the name of a question whose task has this original id.
    pub(crate) fn of(&self, key: &str, original_task: TaskId) -> String {
        let is_reused =
            self.earlier.contains(key) || self.askers.get(key).is_some_and(|tasks| tasks.len() > 1);
        if is_reused { full_name(key, original_task) } else { key.to_owned() }
    }
}

/// Returns the reason of a run that waits for people; `None` without an open question.
pub(crate) fn unanswered(open: &[OpenQuestion]) -> Option<String> {
    let names: Vec<&str> = open.iter().map(|it| it.name.as_str()).collect();
    (!names.is_empty()).then(|| format!("waiting for an answer to {}", names.join(", ")))
}

/// Returns the full name of a question, which is unique in the run.
pub(crate) fn full_name(key: &str, original_task: TaskId) -> String {
    format!("{key}@{original_task}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphrun_core::{event::Usage, id::Step};
    fn record(index: u32, outcome: Outcome) -> TaskRecord {
        TaskRecord {
            task: TaskId { step: Step(1), index },
            node: NodeName::parse("help").unwrap(),
            attempt: 1,
            ms: 0,
            usage: Usage::default(),
            outcome,
        }
    }

    fn asks(index: u32, key: &str) -> TaskRecord {
        record(index, Outcome::Asked { question: Question::new(key, "Go on?") })
    }

    fn answered(index: u32, key: &str) -> TaskRecord {
        let key = key.to_owned();
        let answer = serde_json::Value::Null;
        record(index, Outcome::Answered { key, answer, by: None, question_hash: None })
    }

    fn names(position: &Position, records: &[TaskRecord]) -> Vec<String> {
        open_questions(position, records).into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn a_question_is_named_by_its_key_until_the_key_is_reused() {
        let new = Position::default();
        assert_eq!(names(&new, &[asks(0, "help")]), ["help"]);
        assert_eq!(names(&new, &[asks(0, "help"), answered(0, "help")]), [""; 0]);
        let both = [asks(0, "help"), asks(1, "help")];
        assert_eq!(names(&new, &both), ["help@1.0", "help@1.1"]);
        // An answered question still reserves its name.
        let rest = [asks(0, "help"), asks(1, "help"), answered(0, "help")];
        assert_eq!(names(&new, &rest), ["help@1.1"]);
        let later = Position {
            people: Conversation {
                question_keys: ["help".to_owned()].into(),
                ..Conversation::default()
            },
            ..Position::default()
        };
        assert_eq!(names(&later, &[asks(0, "help"), asks(1, "why")]), ["help@1.0", "why"]);
    }

    #[test]
    fn the_whole_name_of_a_question_is_always_known() {
        let open = open_questions(&Position::default(), &[asks(0, "help")]);
        assert!(open[0].is_called("help") && open[0].is_called("help@1.0"));
        assert!(!open[0].is_called("help@1.1") && !open[0].is_called("hel"));
        let open = open_questions(&Position::default(), &[asks(0, "help"), asks(1, "help")]);
        assert!(open[0].is_called("help@1.0"));
        assert!(!open[0].is_called("help") && !open[0].is_called("help@1.0@1.0"));
    }
}
