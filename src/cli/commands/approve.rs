//! `graphrun approve RUN` and `graphrun reject RUN`: answers to questions with a yes and a no.

use std::collections::BTreeMap;

use super::resume::ResumedRun;
use crate::{
    checkpoint::{AskedQuestion, OpenQuestion, QuestionOutcome},
    cli::{
        arguments::{
            globals::{Globals, Output},
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        output::words::shell_word,
        people::{
            answer::{example, is_asked_within, late},
            stdin_lines::StdinLines,
            yes_no::Verdict,
        },
        run::origin::Origin,
        settings::database::Database,
    },
    engine::ClosedReason,
};

/// Answer a question of a run with yes, and resume the run
#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// The name or the id of the run
    run: String,
    /// The node that asks, or the key of its question; required if several questions are open
    node: Option<String>,
    #[command(flatten)]
    options: RunOptions,
}

/// Answer a question of a run with no, and resume the run
#[derive(Debug, clap::Args)]
pub(crate) struct RejectArgs {
    /// The name or the id of the run
    run: String,
    /// The node that asks, or the key of its question; required if several questions are open
    node: Option<String>,
    /// The reason, for questions whose answer has a field `comment`
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    #[command(flatten)]
    options: RunOptions,
}

impl ApproveArgs {
    /// Answers a question with yes, and resumes the run.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("approve", &[Output::Text, Output::Json, Output::Jsonl])?;
        let Self { run, node, options } = self;
        give(&run, node.as_deref(), Verdict { is_yes: true, comment: None }, options, globals)
    }
}

impl RejectArgs {
    /// Answers a question with no, and resumes the run.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("reject", &[Output::Text, Output::Json, Output::Jsonl])?;
        let Self { run, node, comment, options } = self;
        let verdict = Verdict { is_yes: false, comment: comment.as_deref() };
        give(&run, node.as_deref(), verdict, options, globals)
    }
}

fn give(
    run: &str,
    node: Option<&str>,
    verdict: Verdict<'_>,
    options: RunOptions,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let answers = |open: &[OpenQuestion], asked: &[AskedQuestion], database: &Database| {
        let question = find(run, node, open, asked).map_err(|refused| {
            let is_dropped = open.is_empty()
                && asked
                    .last()
                    .is_some_and(|it| matches!(it.outcome, QuestionOutcome::Dropped { .. }));
            let command = database.command("resume", run).filter(|_| is_dropped);
            let help = command.map(|it| format!("the run continues with: {it}"));
            help.into_iter().fold(refused, CliError::with_help)
        })?;
        if let Some(since) = late(&question.question) {
            let closed = ClosedReason::Late { since };
            let message = format!("`{}` no longer accepts an answer: {closed}", question.name);
            return Err(CliError::new(Exit::NotResumable, message));
        }
        let answer = verdict.answer(&question.question).map_err(|problem| {
            let name = &question.name;
            let without_comment = Verdict { comment: None, ..verdict }.answer(&question.question);
            let value = match without_comment {
                Ok(value) => value.to_string(),
                // An example could have the other meaning.
                Err(_) if !verdict.is_yes => "JSON".to_owned(),
                Err(_) => example(&question.question.schema),
            };
            let answer = format!("{name}={value}");
            let command = database.command("resume", run);
            let command = command.map(|it| format!("{it} --answer {}", shell_word(&answer)));
            let refused = CliError::usage(format!("`{name}` {problem}; nothing was started"));
            let help = command.map(|it| format!("answer it with: {it}"));
            help.into_iter().fold(refused, CliError::with_help)
        })?;
        Ok(BTreeMap::from([(question.name.clone(), answer)]))
    };
    let resumed = ResumedRun { run, globals, lines: &mut StdinLines::default() };
    resumed.resume(|origin: Origin| origin.with_options(options), answers)?.print(globals)
}

/// Returns the open question that the arguments name.
fn find<'a>(
    run: &str,
    node: Option<&str>,
    open: &'a [OpenQuestion],
    asked: &[AskedQuestion],
) -> Result<&'a OpenQuestion, CliError> {
    let is_of = |question: &OpenQuestion, node: &str| {
        question.node.as_str() == node
            || question.is_called(node)
            || is_asked_within(question, node)
    };
    let is_meant = |it: &&OpenQuestion| node.is_none_or(|node| is_of(it, node));
    let found: Vec<&OpenQuestion> = open.iter().filter(is_meant).collect();
    let names = |questions: &mut dyn Iterator<Item = &OpenQuestion>| {
        let names: Vec<String> = questions.map(|it| format!("`{}`", it.name)).collect();
        names.join(", ")
    };
    match (found.as_slice(), node) {
        ([only], _) => Ok(only),
        ([], Some(node)) => {
            let closed = ClosedReason::of(node, asked).or_else(|| {
                let of_node = asked.iter().rfind(|it| it.node.as_str() == node)?;
                ClosedReason::of(&of_node.full_name(), asked)
            });
            let refused = match closed {
                Some(closed) => CliError::new(
                    Exit::NotResumable,
                    format!("`{node}` no longer accepts an answer: {closed}"),
                ),
                None => CliError::usage(format!("`{node}` has no open question")),
            };
            Err(match open {
                [] => refused,
                _ => refused.with_help(format!("open: {}", names(&mut open.iter()))),
            })
        }
        ([], None) => {
            let message = format!("no question of run `{run}` is open");
            let refused = CliError::new(Exit::NotResumable, message);
            let last = asked.last().and_then(|it| ClosedReason::of(&it.full_name(), asked));
            Err(match (last, asked.last()) {
                (Some(closed), Some(last)) => {
                    refused.with_help(format!("the last one was `{}`: {closed}", last.full_name()))
                }
                // An update or a migration lets the node ask again.
                _ => refused.with_help("`graphrun resume RUN` continues a run that has not ended"),
            })
        }
        (several, _) => {
            let message = format!("{} questions are open", several.len());
            let names = names(&mut several.iter().copied());
            Err(CliError::usage(message).with_help(format!("name one of them: {names}")))
        }
    }
}
