//! Answers to questions: read from `--answer`, or from a person at the terminal.

use std::{collections::BTreeMap, io, str::FromStr};

use serde_json::{Value, json};

use super::{
    error::CliError,
    signals::{Signal, Signals},
    terminal::{Paint, say},
    words::clean,
};
use crate::{
    diagnostic::did_you_mean,
    graph::Question,
    id::NodeName,
    state::{Field, Type},
};

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

/// An answer that fits, as JSON, as far as the schema tells.
pub(super) fn example(schema: &Value) -> String {
    match Form::of(schema) {
        Form::Choice { field, values } => {
            values.first().map_or(Value::Null, |it| chosen(field.as_deref(), it)).to_string()
        }
        Form::Text => r#""TEXT""#.to_owned(),
        Form::Json => "JSON".to_owned(),
    }
}

/// What a person has to type.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// One of a few texts: the answer itself, or the one field that an answer must have.
    Choice { field: Option<String>, values: Vec<String> },
    /// Any text.
    Text,
    /// JSON.
    Json,
}

impl Form {
    fn of(schema: &Value) -> Self {
        match Type::of_schema(schema) {
            Type::Enum(values) => Self::Choice { field: None, values },
            Type::String => Self::Text,
            Type::Record(record) => {
                let mut needed =
                    record.fields.iter().filter(|it| !matches!(it.ty, Type::Optional(_)));
                match (needed.next(), needed.next()) {
                    (Some(Field { name, ty: Type::Enum(values) }), None) => {
                        Self::Choice { field: Some(name.clone()), values: values.clone() }
                    }
                    _ => Self::Json,
                }
            }
            _ => Self::Json,
        }
    }
}

/// A question as a person sees it.
fn show(node: &NodeName, question: &Question, paint: Paint) -> String {
    let mut lines = vec![format!("\n{} {node} asks: {}", paint.loud("?"), clean(&question.prompt))];
    if !question.show.is_null() {
        // The escapes of JSON keep control characters of others away from the terminal.
        let shown = serde_json::to_string_pretty(&question.show).unwrap_or_default();
        lines.extend(shown.lines().map(|it| format!("  {}", paint.faint(it))));
    }
    let request = match Form::of(&question.schema) {
        Form::Choice { values, .. } => {
            lines.extend(values.iter().zip(1..).map(|(it, at)| format!("  {at}. {}", clean(it))));
            "  a number or one of these texts:"
        }
        Form::Text => "  a text, in one line:",
        Form::Json => "  an answer as JSON, in one line:",
    };
    lines.push(paint.faint(request));
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
    let number = typed.trim().parse::<usize>().ok().and_then(|it| it.checked_sub(1));
    match (Form::of(&question.schema), number) {
        (Form::Choice { values, .. }, Some(at)) if at < values.len() => values[at].clone(),
        _ => typed.to_owned(),
    }
}

/// Reads a text as an answer: as JSON, or as it stands where a text is wanted.
fn read_answer(question: &Question, text: &str) -> Result<Value, Vec<String>> {
    let problems = match serde_json::from_str::<Value>(text) {
        Ok(value) => match question.check(&value) {
            Ok(()) => return Ok(value),
            Err(problems) => problems,
        },
        Err(error) => vec![format!("an answer is JSON, and this is none: {error}")],
    };
    let value = match Form::of(&question.schema) {
        Form::Choice { field, values } if values.iter().any(|it| it == text.trim()) => {
            chosen(field.as_deref(), text.trim())
        }
        Form::Choice { field: None, .. } | Form::Text => Value::from(text.trim()),
        Form::Choice { field: Some(_), .. } | Form::Json => return Err(problems),
    };
    question.check(&value).map(|()| value)
}

/// The answer that makes a choice.
fn chosen(field: Option<&str>, value: &str) -> Value {
    match field {
        Some(field) => json!({ field: value }),
        None => Value::from(value),
    }
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
    use super::*;

    /// As the schema of a Rust type says it: a choice, and a comment that may be left out.
    fn decision() -> Value {
        json!({
            "type": "object",
            "required": ["choice"],
            "properties": {"choice": {"$ref": "#/$defs/Choice"}, "comment": {"type": ["string", "null"]}},
            "$defs": {"Choice": {"oneOf": [
                {"const": "go_on", "description": "On."}, {"const": "stop", "description": "Stop."},
            ]}},
        })
    }

    fn open() -> Vec<(NodeName, Question)> {
        let question = |key: &str, schema: Value| {
            let node = NodeName::parse("help").unwrap();
            (node, Question::new(key, "Go on?\u{1b}[2J").with_schema(schema))
        };
        vec![
            question("go", json!({"enum": ["go_on", "stop"]})),
            question("why", json!({"type": "string"})),
            question("plan", json!({"type": "object", "required": ["steps"]})),
            question("decision", decision()),
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
        let decided = json!({"decision": {"choice": "stop"}});
        assert_eq!(read_flags(&["decision=stop"]).unwrap(), decided);
        assert_eq!(read_flags(&[r#"decision={"choice": "stop"}"#]).unwrap(), decided);
        assert!(read_flags(&["decision=perhaps"]).is_err());
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
    fn an_example_fits_the_question_as_far_as_the_schema_tells() {
        let examples: Vec<String> = open().iter().map(|(_, it)| example(&it.schema)).collect();
        assert_eq!(examples, [r#""go_on""#, r#""TEXT""#, "JSON", r#"{"choice":"go_on"}"#]);
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
