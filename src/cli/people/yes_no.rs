//! Yes-or-no answers: which values of a question mean yes and no.

use serde_json::{Map, Value};

use crate::{graph::Question, state::Type};

/// The values that mean yes, if exactly one of them and one other value can be chosen.
const YES: [&str; 5] = ["approve", "approved", "accept", "accepted", "yes"];
/// The values that mean no.
const NO: [&str; 7] = ["reject", "rejected", "decline", "declined", "deny", "denied", "no"];
/// The field of an answer for a comment.
const COMMENT: &str = "comment";

/// A yes or no, with its comment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict<'a> {
    pub(crate) is_yes: bool,
    pub(crate) comment: Option<&'a str>,
}

/// Returns whether `approve` and `reject` can answer a question.
pub(crate) fn is_yes_or_no(question: &Question) -> bool {
    let answer = |is_yes| Verdict { is_yes, comment: None }.answer(question);
    answer(true).is_ok() && answer(false).is_ok()
}

impl Verdict<'_> {
    /// Returns the answer with this meaning, or why the question has none.
    pub(crate) fn answer(self, question: &Question) -> Result<Value, String> {
        let ty = Type::of_schema(&question.schema);
        let answer = match (&ty, self.choice(&ty)) {
            (_, Some(choice)) if self.comment.is_none() => choice,
            (_, Some(_)) => return Err(no_comment()),
            (Type::Record(record), None) => {
                let mut answer = Map::new();
                for field in &record.fields {
                    if let Some(choice) = self.choice(&field.ty) {
                        if !answer.is_empty() {
                            return Err("has several choices between yes and no".to_owned());
                        }
                        answer.insert(field.name.clone(), choice);
                    }
                }
                if answer.is_empty() {
                    return Err(NO_CHOICE.to_owned());
                }
                if let Some(comment) = self.comment {
                    let takes = |ty: &Type| match ty {
                        Type::String => true,
                        Type::Optional(ty) => **ty == Type::String,
                        _ => false,
                    };
                    if !record.fields.iter().any(|it| it.name == COMMENT && takes(&it.ty)) {
                        return Err(no_comment());
                    }
                    answer.insert(COMMENT.to_owned(), comment.into());
                }
                Value::Object(answer)
            }
            _ => return Err(NO_CHOICE.to_owned()),
        };
        question
            .check(&answer)
            .map_err(|problems| format!("needs more fields: {}", problems.join("; ")))?;
        Ok(answer)
    }

    /// Returns the value of a type with this meaning: of a bool, or of a choice with one yes and
    /// one no.
    fn choice(self, ty: &Type) -> Option<Value> {
        let values = match ty {
            Type::Bool => return Some(self.is_yes.into()),
            Type::Enum(values) => values,
            _ => return None,
        };
        let only = |words: &[&str]| {
            let mut said = values.iter().filter(|it| words.contains(&it.to_lowercase().as_str()));
            said.next().filter(|_| said.next().is_none())
        };
        let yes = only(&YES)?;
        let no = only(&NO)?;
        Some(if self.is_yes { yes } else { no }.as_str().into())
    }
}

fn no_comment() -> String {
    format!("takes no comment: its answer has no field `{COMMENT}` for a text")
}

const NO_CHOICE: &str = "is not a choice between yes and no";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(schema: Value, is_yes: bool, comment: Option<&str>) -> Result<Value, String> {
        let question = Question::new("help", "Ship it?").with_schema(schema);
        Verdict { is_yes, comment }.answer(&question)
    }

    #[test]
    fn yes_and_no_follow_from_the_type_of_the_question() {
        for (schema, yes, no) in [
            (json!({"type": "boolean"}), json!(true), json!(false)),
            (json!({"enum": ["approve", "reject"]}), json!("approve"), json!("reject")),
            (json!({"enum": ["No", "Yes", "later"]}), json!("Yes"), json!("No")),
            (
                json!({"type": "object", "required": ["ok"], "properties": {
                    "ok": {"type": "boolean"}, "comment": {"type": "string"}}}),
                json!({"ok": true}),
                json!({"ok": false}),
            ),
        ] {
            assert_eq!(answer(schema.clone(), true, None), Ok(yes), "{schema}");
            assert_eq!(answer(schema.clone(), false, None), Ok(no), "{schema}");
        }
    }

    #[test]
    fn questions_without_yes_and_no_are_refused() {
        for schema in [
            json!(true),
            json!({"type": "string"}),
            json!({"enum": ["go_on", "stop"]}),
            json!({"enum": ["yes", "approve", "no"]}),
            json!({"type": "object", "required": ["a", "b"], "properties": {
                "a": {"type": "boolean"}, "b": {"type": "boolean"}}}),
        ] {
            assert!(answer(schema.clone(), true, None).is_err(), "{schema}");
        }
        let schema = json!({"type": "object", "required": ["ok", "name"], "properties": {
            "ok": {"type": "boolean"}, "name": {"type": "string"}}});
        let problem = answer(schema, true, None).unwrap_err();
        assert!(problem.starts_with("needs more fields: "), "{problem}");
    }

    #[test]
    fn a_comment_goes_where_the_answer_has_a_field_for_it() {
        let schema = json!({"type": "object", "required": ["verdict"], "properties": {
            "verdict": {"enum": ["approved", "rejected"]}, "comment": {"type": ["string", "null"]}}});
        let answered = json!({"verdict": "rejected", "comment": "too slow"});
        assert_eq!(answer(schema, false, Some("too slow")), Ok(answered));
        let plain = answer(json!({"type": "boolean"}), false, Some("too slow"));
        assert!(plain.unwrap_err().starts_with("takes no comment"));
    }
}
