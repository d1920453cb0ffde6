//! Answers to questions: read from `--answer`, or from a person at the terminal.

use std::{collections::BTreeMap, io, str::FromStr};

use serde_json::Value;

use super::{
    error::CliError,
    signals::{Signal, Signals},
    terminal::{Paint, say},
    words::clean,
};
use crate::{diagnostic::did_you_mean, graph::Question, id::NodeName};

/// One `--answer KEY=JSON`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerFlag {
    key: String,
    text: String,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Asked {
    /// Every question has an answer that fits.
    Answers(BTreeMap<String, Value>),
    /// There was no more input: the run stays paused.
    Closed,
    /// A signal came first.
    Stopped(Signal),
}

impl FromStr for AnswerFlag {
    type Err = &'static str;

    fn from_str(flag: &str) -> Result<Self, Self::Err> {
        let (key, text) = flag.split_once('=').ok_or("expected KEY=JSON")?;
        Ok(Self { key: key.trim().to_owned(), text: text.to_owned() })
    }
}

/// Reads the flags as answers to the open questions.
///
/// # Errors
///
/// Fails with everything that is wrong: unknown keys, keys given twice, answers that do not fit.
pub(super) fn read(
    flags: &[AnswerFlag],
    open: &[(NodeName, Question)],
) -> Result<BTreeMap<String, Value>, CliError> {
    let mut answers = BTreeMap::new();
    let mut problems = Vec::new();
    for flag in flags {
        let key = &flag.key;
        let Some((_, question)) = open.iter().find(|(_, it)| it.key == *key) else {
            problems.push(unknown(key, open));
            continue;
        };
        match read_answer(question, &flag.text) {
            Ok(answer) => {
                if answers.insert(key.clone(), answer).is_some() {
                    problems.push(format!("`{key}` is answered twice"));
                }
            }
            Err(misfits) => problems.extend(misfits.into_iter().map(|it| format!("`{key}`: {it}"))),
        }
    }
    if problems.is_empty() {
        return Ok(answers);
    }
    Err(CliError::usage("the answers do not fit the questions; nothing was started")
        .with_problems(problems))
}

/// Asks whoever sits at the terminal, until every answer fits.
///
/// # Errors
///
/// Fails when the terminal cannot be read.
pub(super) async fn ask(
    open: &[(NodeName, Question)],
    signals: &mut Signals,
    paint: Paint,
) -> io::Result<Asked> {
    let mut answers = BTreeMap::new();
    for (node, question) in open {
        say(&show(node, question, paint));
        loop {
            let line = tokio::select! {
                line = tokio::task::spawn_blocking(read_line) => line??,
                signal = signals.next() => return Ok(Asked::Stopped(signal)),
            };
            let Some(line) = line else { return Ok(Asked::Closed) };
            match read_answer(question, &choice(question, &line)) {
                Ok(answer) => {
                    answers.insert(question.key.clone(), answer);
                    break;
                }
                Err(problems) => {
                    say(&format!("{} {}", paint.bad("not yet:"), clean(&problems.join("; "))));
                }
            }
        }
    }
    Ok(Asked::Answers(answers))
}

/// A question as a person sees it.
fn show(node: &NodeName, question: &Question, paint: Paint) -> String {
    let mut lines = vec![format!("\n{} {node} asks: {}", paint.loud("?"), clean(&question.prompt))];
    if !question.show.is_null() {
        // The escapes of JSON keep control characters of others away from the terminal.
        let shown = serde_json::to_string_pretty(&question.show).unwrap_or_default();
        lines.extend(shown.lines().map(|it| format!("  {}", paint.faint(it))));
    }
    let choices = choices(question);
    lines.extend(choices.iter().zip(1..).map(|(it, at)| format!("  {at}. {}", clean(it))));
    lines.push(paint.faint(match (choices.is_empty(), takes_text(question)) {
        (false, _) => "  a number or one of these texts:",
        (true, true) => "  a text, in one line:",
        (true, false) => "  an answer as JSON, in one line:",
    }));
    lines.join("\n")
}

/// Reads one line; nothing at the end of the input.
fn read_line() -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = io::stdin().read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
}

/// The choice a person means by a number, or else what they typed.
fn choice(question: &Question, typed: &str) -> String {
    let choices = choices(question);
    let number = typed.trim().parse::<usize>().ok().and_then(|it| it.checked_sub(1));
    number.and_then(|it| choices.get(it)).map_or_else(|| typed.to_owned(), |it| (*it).to_owned())
}

/// Reads a text as an answer: as JSON, or as it stands where a text fits.
fn read_answer(question: &Question, text: &str) -> Result<Value, Vec<String>> {
    let parsed = serde_json::from_str::<Value>(text);
    let problems = match parsed {
        Ok(value) => match question.check(&value) {
            Ok(()) => return Ok(value),
            Err(problems) => problems,
        },
        Err(error) => vec![format!("an answer is JSON, and this is none: {error}")],
    };
    if takes_text(question) {
        let value = Value::from(text.trim());
        return question.check(&value).map(|()| value);
    }
    Err(problems)
}

/// The texts to choose from, if the schema lists them.
fn choices(question: &Question) -> Vec<&str> {
    let listed = question.schema.get("enum").and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn takes_text(question: &Question) -> bool {
    let is_text = question.schema.get("type").and_then(Value::as_str) == Some("string");
    is_text || !choices(question).is_empty()
}

fn unknown(key: &str, open: &[(NodeName, Question)]) -> String {
    let keys: Vec<&str> = open.iter().map(|(_, it)| it.key.as_str()).collect();
    let hint = match (did_you_mean(key, keys.iter().copied()), keys.as_slice()) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, []) => "; no question is open".to_owned(),
        (None, keys) => format!("; open: {}", keys.join(", ")),
    };
    format!("there is no open question `{key}`{hint}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open() -> Vec<(NodeName, Question)> {
        let question = |key: &str, schema: Value| {
            let node = NodeName::parse("help").unwrap();
            (node, Question::new(key, "Go on?\u{1b}[2J").with_schema(schema))
        };
        vec![
            question("go", json!({"enum": ["go_on", "stop"]})),
            question("why", json!({"type": "string"})),
            question("plan", json!({"type": "object", "required": ["steps"]})),
        ]
    }

    fn read_flags(flags: &[&str]) -> Result<Value, String> {
        let flags: Vec<AnswerFlag> = flags.iter().map(|it| it.parse().unwrap()).collect();
        read(&flags, &open())
            .map(|it| it.into_iter().collect())
            .map_err(|it| it.draw(Paint::new(false), 80))
    }

    #[test]
    fn answers_are_json_or_the_text_that_is_wanted() {
        let answers = read_flags(&["go=go_on", "why=it is 5 = 5", r#"plan={"steps": 1}"#]);
        let expected = json!({"go": "go_on", "why": "it is 5 = 5", "plan": {"steps": 1}});
        assert_eq!(answers.unwrap(), expected);
        assert_eq!(
            read_flags(&[r#"go="stop""#, "why=5"]).unwrap(),
            json!({"go": "stop", "why": "5"})
        );
    }

    #[test]
    fn everything_that_is_wrong_with_the_answers_is_said_at_once() {
        let error = read_flags(&["goo=stop", "go=maybe", "plan={", "plan={}", "why=a", "why=b"]);
        insta::assert_snapshot!(error.unwrap_err());
    }

    #[test]
    fn a_choice_can_be_made_by_number_or_by_text() {
        let (_, question) = &open()[0];
        for (typed, meant) in
            [("2", "stop"), (" 1 ", "go_on"), ("stop", "stop"), ("3", "3"), ("0", "0")]
        {
            assert_eq!(choice(question, typed), meant);
        }
    }

    #[test]
    fn a_question_is_shown_with_its_choices_and_cannot_move_the_cursor() {
        let (node, question) = &open()[0];
        insta::assert_snapshot!(show(node, question, Paint::new(false)).trim_start(), @r"
        ? help asks: Go on?
          1. go_on
          2. stop
          a number or one of these texts:
        ");
    }
}
