//! Reads a model's answer: tolerant about form, strict about meaning.
//!
//! A model writes `"ARCHITECTURAL "`, `"20"`, or one object in place of a list. Such forms have only one
//! meaning, so they are accepted, each with a warning. A missing or meaningless value is a problem. All
//! problems of an answer are reported together with their places, so that one repair can fix them all. Start
//! at [`ReadLeniently`].

mod basic;
mod by_schema;
mod fields;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

pub(super) use self::by_schema::is_lenient;
pub use self::{
    by_schema::{LENIENT, read_by_schema},
    fields::LenientFields,
};

/// A type that is read from a model's answer.
///
/// ```
/// use graphrun_core::state::{ReadLeniently, Reader};
/// use serde_json::{Value, json};
///
/// struct Point {
///     x: u64,
///     label: String,
/// }
///
/// impl ReadLeniently for Point {
///     fn read(answer: Value, reader: &mut Reader) -> Self {
///         reader.object(answer, |point| Self {
///             x: point.count("x"),
///             label: point.required_text("label"),
///         })
///     }
/// }
///
/// let reading = Point::read_leniently(json!({ "x": "20", "label": "start" })).unwrap();
/// assert_eq!(reading.value.x, 20);
/// assert_eq!(reading.warnings, ["x: the text \"20\" was read as a number"]);
///
/// let error = Point::read_leniently(json!({ "x": 1 })).err().unwrap();
/// assert_eq!(error.problems, ["label: a text is required"]);
/// ```
pub trait ReadLeniently: Sized {
    /// Reads one value and reports warnings and problems to `reader`.
    ///
    /// It always returns a value, so that reading continues to the next mistake. A value with problems never
    /// leaves [`read_leniently`](Self::read_leniently).
    fn read(answer: Value, reader: &mut Reader) -> Self;

    /// Reads a model's answer.
    ///
    /// # Errors
    /// Returns every problem of the answer, each with its place.
    fn read_leniently(answer: Value) -> Result<LenientValue<Self>, ReadError> {
        let mut reader = Reader::default();
        let value = Self::read(answer, &mut reader);
        reader.finish(value)
    }
}

/// A value read from an answer, with the deviations of its form.
#[derive(Clone, Debug, PartialEq)]
pub struct LenientValue<T> {
    /// The value.
    pub value: T,
    /// One line for each deviation that had only one meaning: `tests_passed: the text "20" was read as a
    /// number`.
    pub warnings: Vec<String>,
}

/// Why an answer could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct ReadError {
    /// One line for each problem: `files[0].content: at least 10 characters, got 3`.
    pub problems: Vec<String>,
}

/// An enum that is written as one of a few words.
pub trait Choice: DeserializeOwned {
    /// The words, as serde reads them.
    const WORDS: &'static [&'static str];
}

/// Collects the warnings and problems of one answer, with their places.
#[derive(Debug, Default)]
pub struct Reader {
    path: String,
    warnings: Vec<String>,
    problems: Vec<String>,
}

impl Reader {
    /// Adds a warning: a value did not have the requested form, but could be read.
    pub fn warn(&mut self, what: &str) {
        self.warnings.push(self.placed(what));
    }

    /// Adds a problem: a value cannot be accepted.
    pub fn refuse(&mut self, what: &str) {
        self.problems.push(self.placed(what));
    }

    /// Reads an object field by field; fields that `read` does not use are ignored with a warning.
    pub fn object<T>(
        &mut self,
        answer: Value,
        read: impl FnOnce(&mut LenientFields<'_>) -> T,
    ) -> T {
        let noted = (self.warnings.len(), self.problems.len());
        let (values, refusal) = match answer {
            Value::Object(values) => (values, None),
            other => (Map::new(), Some(format!("an object is required, got {}", kind(&other)))),
        };
        let mut fields = LenientFields::new(self, values);
        let value = read(&mut fields);
        let unknown: Vec<String> = fields.rest();
        if let Some(refusal) = refusal {
            // If the value is not an object, one problem is enough; problems of its fields are dropped.
            self.warnings.truncate(noted.0);
            self.problems.truncate(noted.1);
            self.refuse(&refusal);
        } else if !unknown.is_empty() {
            self.warn(&format!("ignored unrequested fields: {}", unknown.join(", ")));
        }
        value
    }

    /// Runs `act` at a nested place, such as `files` or `[0]`.
    pub fn inside<T>(&mut self, segment: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.path.len();
        if outside > 0 && !segment.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(segment);
        let value = act(self);
        self.path.truncate(outside);
        value
    }

    fn finish<T>(self, value: T) -> Result<LenientValue<T>, ReadError> {
        if self.problems.is_empty() {
            Ok(LenientValue { value, warnings: self.warnings })
        } else {
            Err(ReadError { problems: self.problems })
        }
    }

    fn placed(&self, what: &str) -> String {
        if self.path.is_empty() { what.to_owned() } else { format!("{}: {what}", self.path) }
    }

    fn choice<T: Choice>(&mut self, answer: &Value) -> Option<T> {
        let chosen = self.word(answer, T::WORDS)?;
        Some(
            serde_json::from_value(Value::from(chosen))
                .expect("WORDS are the words that serde reads"),
        )
    }

    /// Reads one of a few words, in any case and spacing.
    fn word<'w>(&mut self, answer: &Value, words: &[&'w str]) -> Option<&'w str> {
        let text = answer.as_str()?;
        // A word that is written exactly is meant, even if another one folds alike.
        let exact = words.iter().copied().find(|it| *it == text);
        let chosen = exact.or_else(|| unique_word(text, words))?;
        if chosen != text {
            self.warn(&format!("{} was read as {chosen}", quoted(text)));
        }
        Some(chosen)
    }
}

/// Returns the one word that a text means, independent of case, blanks, dashes and a final full stop; also
/// after a label of one word, as in `Verdict: approved`. A longer label could mean anything, such as the
/// opposite.
fn unique_word<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    let only = |text: &str| {
        let mut matching = words.iter().filter(|word| fold(word) == fold(text));
        matching.next().filter(|_| matching.next().is_none()).copied()
    };
    let labelled = text.split_once(':').filter(|(label, _)| label.split_whitespace().count() == 1);
    only(text).or_else(|| only(labelled?.1))
}

fn fold(text: &str) -> String {
    let bare = text.trim().trim_end_matches('.').trim_matches(['"', '\'', '`', '*']);
    bare.chars()
        .filter(|c| !matches!(c, '-' | '_') && !c.is_whitespace())
        .flat_map(char::to_lowercase)
        .collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| kind(value).to_owned(), quoted)
}

/// Returns the text in quotes, shortened to fit a line of a log.
fn quoted(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut start: String = text.chars().take(CHARACTERS_MAX).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}

/// Reads an answer as `T` and returns its normal form.
///
/// # Errors
///
/// Names every place where the answer cannot be read as `T`.
pub fn read_as<T: ReadLeniently + Serialize>(
    answer: Value,
) -> Result<LenientValue<Value>, ReadError> {
    let LenientValue { value, warnings } = T::read_leniently(answer)?;
    let value = serde_json::to_value(value)
        .map_err(|error| ReadError { problems: vec![error.to_string()] })?;
    Ok(LenientValue { value, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Answer {
        #[default]
        GoOn,
        Stop,
    }

    impl Choice for Answer {
        const WORDS: &'static [&'static str] = &["go_on", "stop"];
    }

    fn read_choice(text: &str) -> Option<Answer> {
        Reader::default().choice(&Value::from(text))
    }

    #[test]
    fn a_word_is_found_in_any_case_spacing_and_punctuation() {
        for text in
            ["go_on", "Go on", " GO-ON ", "\"go on\".", "goOn", "Choice: go on", "**go_on**"]
        {
            assert_eq!(read_choice(text), Some(Answer::GoOn), "{text}");
        }
    }

    #[test]
    fn prose_and_near_words_choose_nothing() {
        for text in [
            "",
            "go",
            "gone on",
            "go on, or stop",
            "stop it",
            "do not stop",
            "I would not: stop",
            "не стоп",
        ] {
            assert_eq!(read_choice(text), None, "{text}");
        }
    }

    #[test]
    fn two_words_that_fold_alike_choose_nothing() {
        assert_eq!(unique_word("go on", &["go_on", "goon"]), None);
        assert_eq!(unique_word("stop", &["go_on", "goon", "stop"]), Some("stop"));
    }

    #[test]
    fn places_are_listed_from_the_outside_in() {
        let mut reader = Reader::default();
        reader.inside("files", |reader| {
            reader.inside("[2]", |reader| {
                reader.inside("content", |reader| reader.refuse("too short"));
            });
        });
        reader.refuse("not good");
        assert_eq!(reader.problems, ["files[2].content: too short", "not good"]);
    }

    #[test]
    fn an_error_names_every_problem() {
        let error = ReadError { problems: vec!["a: x".to_owned(), "b: y".to_owned()] };
        assert_eq!(error.to_string(), "a: x; b: y");
    }

    #[test]
    fn long_texts_are_cut_between_characters_in_messages() {
        let shown = quoted(&"ä".repeat(100));
        assert_eq!(shown.chars().count(), 63);
        assert!(shown.ends_with("…\""));
    }
}
