//! Answers to questions: read from `--answer`, or from a person at the terminal.

use std::{collections::BTreeMap, io, str::FromStr};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{question_text::QuestionText, stdin_lines::StdinLines};
use crate::{
    checkpoint::{AskedQuestion, OpenQuestion},
    cli::{
        arguments::keys::redact_given,
        error::CliError,
        exit::Exit,
        output::{
            json::not_json,
            terminal::{Paint, print_message},
            words::clean,
        },
        process::signals::{Signal, Signals},
    },
    diagnostic::did_you_mean,
    engine::ClosedReason,
    graph::Question,
    id::NodeName,
    state::{Field, Type, read_json},
};

/// One `--answer KEY=JSON`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerFlag {
    key: String,
    text: String,
}

/// The result of asking.
#[derive(Debug)]
pub(crate) enum AskOutcome {
    /// Valid answers. Other questions may stay open, also some whose deadline has passed.
    Answers(BTreeMap<String, Value>),
    /// The input ended: the run stays paused.
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

/// Reads the flags as answers to the open questions; `asked` contains all questions of the run.
///
/// # Errors
///
/// Fails with all problems: unknown keys, duplicate keys, answers that do not fit, questions that
/// no longer accept an answer.
pub(crate) fn read(
    flags: &[AnswerFlag],
    open: &[OpenQuestion],
    asked: &[AskedQuestion],
) -> Result<BTreeMap<String, Value>, CliError> {
    let mut answers = BTreeMap::new();
    let mut problems = Vec::new();
    let mut closed = 0;
    for flag in flags {
        let key = &flag.key;
        let found = find_called(open, key);
        let over = match found {
            Some(open) => late(&open.question).map(|since| ClosedReason::Late { since }),
            None => ClosedReason::of(key, asked),
        };
        if let Some(over) = over {
            problems.push(format!(
                "`{key}` no longer accepts an answer: {over}{}",
                list_open_questions(open)
            ));
            closed += 1;
            continue;
        }
        let Some(OpenQuestion { name, question, .. }) = found else {
            problems.push(unknown(key, open));
            continue;
        };
        match read_answer(name, question, &flag.text) {
            Ok(answer) => {
                if answers.insert(name.clone(), answer).is_some() {
                    problems.push(format!("`{key}` is answered twice"));
                }
            }
            Err(misfits) => problems.extend(misfits.into_iter().map(|it| format!("`{key}`: {it}"))),
        }
    }
    if problems.is_empty() {
        return Ok(answers);
    }
    let refused = CliError::usage("the answers do not fit the questions; nothing was started");
    let refused = if problems.len() == closed {
        refused.with_exit(Exit::NotResumable).with_help(
            "`graphrun runs show` prints who answered when; `graphrun resume` continues without an answer",
        )
    } else {
        refused
    };
    Err(refused.with_problems(problems))
}

/// Asks the person at the terminal until every answer fits or the deadline of a question has
/// passed.
///
/// # Errors
///
/// Fails when the terminal cannot be read.
pub(crate) async fn ask(
    open: &[OpenQuestion],
    lines: &mut StdinLines,
    signals: &mut Signals,
    paint: Paint,
) -> io::Result<AskOutcome> {
    let mut answers = BTreeMap::new();
    let due = open.iter().filter_map(|it| it.question.due()).min();
    for OpenQuestion { node, name, question, .. } in open {
        print_message(&show(node, question, paint));
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                signal = signals.next() => return Ok(AskOutcome::Stopped(signal)),
                () = until(due) => {
                    let mut why = "the run continues";
                    if open.iter().any(|it| late(&it.question).is_some()) {
                        why = "too late: the deadline has passed";
                    }
                    print_message(&paint.faint(&format!("  {why}")));
                    return Ok(AskOutcome::Answers(answers));
                }
            };
            let line = match line {
                Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    print_message(&format!("{} the line is not UTF-8", paint.bad("not accepted:")));
                    continue;
                }
                Some(line) => line?,
                None => return Ok(AskOutcome::Closed),
            };
            match read_answer(name, question, &choice(question, &line)) {
                Ok(answer) => {
                    answers.insert(name.clone(), answer);
                    if question.due().is_some() {
                        // The answers are used before the next deadline.
                        return Ok(AskOutcome::Answers(answers));
                    }
                    break;
                }
                Err(problems) => {
                    print_message(&format!(
                        "{} {}",
                        paint.bad("not accepted:"),
                        clean(&problems.join("; "))
                    ));
                }
            }
        }
    }
    Ok(AskOutcome::Answers(answers))
}

/// Waits until a moment; forever if there is none.
async fn until(moment: Option<Timestamp>) {
    let Some(moment) = moment else { return std::future::pending().await };
    let left = moment.duration_since(Timestamp::now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
}

/// Returns the question of a name, or the only one of the node of a nested run.
fn find_called<'a>(open: &'a [OpenQuestion], name: &str) -> Option<&'a OpenQuestion> {
    let mut of_node = open.iter().filter(|it| is_asked_within(it, name));
    let only = || of_node.next().filter(|_| of_node.next().is_none());
    open.iter().find(|it| it.is_called(name)).or_else(only)
}

/// Returns whether a node of a nested run asks a question, by the name that is shown of it, such as `review.ask`.
pub(crate) fn is_asked_within(asked: &OpenQuestion, node: &str) -> bool {
    asked.question.nested.as_ref().is_some_and(|it| it.node.as_str() == node)
}

/// Returns the deadline of a question, if it has passed.
pub(crate) fn late(question: &Question) -> Option<Timestamp> {
    question.deadline.filter(|&it| it <= Timestamp::now())
}

/// Returns an example of a valid answer as JSON, as far as the schema is known.
pub(crate) fn example(schema: &Value) -> String {
    match Form::of(schema) {
        Form::Choice { field, values } => {
            values.first().map_or(Value::Null, |it| chosen(field.as_deref(), it)).to_string()
        }
        Form::Text => r#""TEXT""#.to_owned(),
        Form::Json if Type::of_schema(schema) == Type::Bool => "true".to_owned(),
        Form::Json => "JSON".to_owned(),
    }
}

/// Returns the texts between which an answer chooses, if there are several.
pub(crate) fn choices(schema: &Value) -> Option<Vec<String>> {
    match Form::of(schema) {
        Form::Choice { values, .. } => Some(values).filter(|it| it.len() > 1),
        Form::Text | Form::Json => None,
    }
}

/// The form of input that a question needs.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// One of a few texts: the answer itself, or the only required field of an answer.
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
                    (Some(Field { name, ty: Type::Enum(values), .. }), None) => {
                        Self::Choice { field: Some(name.clone()), values: values.clone() }
                    }
                    _ => Self::Json,
                }
            }
            _ => Self::Json,
        }
    }
}

/// Returns a question as text for a person.
fn show(node: &NodeName, question: &Question, paint: Paint) -> String {
    let Question { prompt, show, .. } = question;
    let mut lines = vec![String::new()];
    lines.extend(QuestionText { node, prompt, show }.draw(paint));
    if let Some(deadline) = question.deadline {
        lines.push(paint.faint(&format!("  until {deadline:.0}")));
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

/// Returns the choice with the typed number, or else the typed text. A number that is a choice itself is that choice.
fn choice(question: &Question, typed: &str) -> String {
    let number = typed.trim().parse::<usize>().ok().and_then(|it| it.checked_sub(1));
    match (Form::of(&question.schema), number) {
        (Form::Choice { values, .. }, Some(at))
            if at < values.len() && values.iter().all(|it| it != typed.trim()) =>
        {
            values[at].clone()
        }
        _ => typed.to_owned(),
    }
}

/// Reads a text as an answer and redacts keys in it.
fn read_answer(name: &str, question: &Question, text: &str) -> Result<Value, Vec<String>> {
    let mut answer = read_as_typed(question, text)?;
    redact_given(name, &mut answer);
    Ok(answer)
}

/// Reads a text as an answer: as JSON, or as plain text where a text is expected.
fn read_as_typed(question: &Question, text: &str) -> Result<Value, Vec<String>> {
    let problems = match read_json(text) {
        Ok(value) => match question.check(&value) {
            Ok(()) => return Ok(value),
            Err(problems) if value.is_string() => {
                return Err(with_quotes_too_many(question, &value, problems));
            }
            Err(problems) => problems,
        },
        Err(error) if error.is_limit() => vec![error.to_string()],
        Err(error) => vec![not_json(text, &error)],
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

/// Adds a remedy to the problems of a text that would fit without its quotes, which a shell has kept.
fn with_quotes_too_many(
    question: &Question,
    value: &Value,
    mut problems: Vec<String>,
) -> Vec<String> {
    let inner = value.as_str().and_then(|it| it.strip_prefix('"')?.strip_suffix('"'));
    if let Some(inner) = inner
        && read_as_typed(question, inner).is_ok()
    {
        problems.push(format!(
            "the value has one pair of quotes too many; give it as `{}`",
            clean(inner)
        ));
    }
    problems
}

/// Returns the answer for a choice.
fn chosen(field: Option<&str>, value: &str) -> Value {
    match field {
        Some(field) => json!({ field: value }),
        None => Value::from(value),
    }
}

/// Returns the list of questions that accept an answer.
fn list_open_questions(open: &[OpenQuestion]) -> String {
    let open = open.iter().filter(|it| late(&it.question).is_none());
    let names: Vec<String> = open.map(|it| format!("`{}`", it.name)).collect();
    if names.is_empty() { String::new() } else { format!("; open: {}", names.join(", ")) }
}

fn unknown(name: &str, open: &[OpenQuestion]) -> String {
    let names: Vec<&str> = open.iter().map(|it| it.name.as_str()).collect();
    let hint = match (did_you_mean(name, names.iter().copied()), names.as_slice()) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, []) => "; no question is open".to_owned(),
        (None, names) => format!("; open: {}", names.join(", ")),
    };
    format!("there is no open question `{name}`{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the schema of a Rust type: a choice and an optional comment.
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

    fn open() -> Vec<OpenQuestion> {
        let question = |key: &str, schema: Value| OpenQuestion {
            task: crate::id::TaskId { step: crate::id::Step(7), index: 0 },
            original_task: crate::id::TaskId { step: crate::id::Step(7), index: 0 },
            node: NodeName::parse("help").unwrap(),
            name: key.to_owned(),
            question: Question::new(key, "Go on?\u{1b}[2J").with_schema(schema),
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
        read(&flags, &open(), &[])
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
    fn all_mistakes_of_answers_are_reported_together() {
        let error = read_flags(&["goo=stop", "go=maybe", "plan={", "plan={}", "why=a", "why=b"]);
        insta::assert_snapshot!(error.unwrap_err());
    }

    #[test]
    fn a_choice_can_be_made_by_number_or_by_text() {
        let question = &open()[0].question;
        for (typed, meant) in
            [("2", "stop"), (" 1 ", "go_on"), ("stop", "stop"), ("3", "3"), ("0", "0")]
        {
            assert_eq!(choice(question, typed), meant);
        }
        let stars = Question::new("stars", "How good?");
        let stars = stars.with_schema(json!({"enum": ["3", "2", "1", "none"]}));
        for (typed, meant) in [("3", "3"), (" 1 ", " 1 "), ("4", "none")] {
            assert_eq!(choice(&stars, typed), meant);
        }
    }

    #[test]
    fn an_example_fits_a_question_with_a_known_schema() {
        let examples: Vec<String> = open().iter().map(|it| example(&it.question.schema)).collect();
        assert_eq!(examples, [r#""go_on""#, r#""TEXT""#, "JSON", r#"{"choice":"go_on"}"#]);
        assert_eq!(example(&json!({"type": "boolean"})), "true");
    }

    #[test]
    fn a_question_shows_choices_and_cannot_move_the_cursor() {
        let OpenQuestion { node, question, .. } = &open()[0];
        insta::assert_snapshot!(show(node, question, Paint::new(false)).trim_start(), @r"
        ? help asks: Go on?
          1. go_on
          2. stop
          a number or one of these texts:
        ");
    }
}
