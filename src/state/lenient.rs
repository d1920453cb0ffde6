//! Reads what a model wrote: generous about form, strict about meaning.
//!
//! A model writes `"ARCHITECTURAL "`, `"20"`, or one object where a list is due. Such forms have
//! one meaning only, so they are taken, each with a warning. What is missing or has no meaning is a
//! problem, and all problems of an answer are told at once, with their places, so that one repair
//! can mend them all. Start at [`ReadLeniently`].

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A type that is read from a model's answer.
///
/// ```
/// use graphrun::state::{ReadLeniently, Reader};
/// use serde_json::{Value, json};
///
/// struct Point { x: u64, label: String }
///
/// impl ReadLeniently for Point {     fn read(answer: Value, reader: &mut Reader) -> Self {
/// reader.object(answer, |point| Self { x: point.count("x"), label: point.required_text("label") })
/// } }
///
/// let reading = Point::read_leniently(json!({ "x": "20", "label": "start" })).unwrap();
/// assert_eq!(reading.value.x, 20);
/// assert_eq!(reading.warnings, ["x: the text \"20\" was read as a number"]);
///
/// let error = Point::read_leniently(json!({ "x": 1 })).err().unwrap();
/// assert_eq!(error.problems, ["label: a text is required"]);
/// ```
pub trait ReadLeniently: Sized {
    /// Reads one value and notes what it finds on `reader`.
    ///
    /// It always gives a value, so that it can go on to the next mistake. A value with problems
    /// never leaves [`read_leniently`](Self::read_leniently).
    fn read(answer: Value, reader: &mut Reader) -> Self;

    /// Reads a model's answer.
    ///
    /// # Errors
    /// Every problem of the answer, each with its place.
    fn read_leniently(answer: Value) -> Result<Reading<Self>, ReadError> {
        let mut reader = Reader::default();
        let value = Self::read(answer, &mut reader);
        if reader.problems.is_empty() {
            Ok(Reading { value, warnings: reader.warnings })
        } else {
            Err(ReadError { problems: reader.problems })
        }
    }
}

/// A value as read, and what had to be bent to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<T> {
    /// The value.
    pub value: T,
    /// One line for each thing that was not as asked for but had one meaning: `tests_passed: the
    /// text "20" was read as a number`.
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

/// Collects the warnings and problems of one answer, and knows the place it is at.
#[derive(Debug, Default)]
pub struct Reader {
    path: String,
    warnings: Vec<String>,
    problems: Vec<String>,
}

impl Reader {
    /// Notes that something was not as asked for, but could be read.
    pub fn warn(&mut self, what: &str) {
        self.warnings.push(self.placed(what));
    }

    /// Notes that something cannot be accepted.
    pub fn refuse(&mut self, what: &str) {
        self.problems.push(self.placed(what));
    }

    /// Reads an object field by field; what `read` leaves untouched is ignored with a warning.
    pub fn object<T>(&mut self, answer: Value, read: impl FnOnce(&mut Fields<'_>) -> T) -> T {
        let noted = (self.warnings.len(), self.problems.len());
        let (values, refusal) = match answer {
            Value::Object(values) => (values, None),
            other => (Map::new(), Some(format!("an object is required, got {}", kind(&other)))),
        };
        let mut fields = Fields { reader: self, values };
        let value = read(&mut fields);
        let unknown: Vec<String> = fields.values.keys().cloned().collect();
        if let Some(refusal) = refusal {
            // The fields of something that is no object are not worth a complaint each.
            self.warnings.truncate(noted.0);
            self.problems.truncate(noted.1);
            self.refuse(&refusal);
        } else if !unknown.is_empty() {
            self.warn(&format!("ignored what was not asked for: {}", unknown.join(", ")));
        }
        value
    }

    /// Does something at a place further in, such as `files` or `[0]`.
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

    fn placed(&self, what: &str) -> String {
        if self.path.is_empty() { what.to_owned() } else { format!("{}: {what}", self.path) }
    }

    fn choice<T: Choice>(&mut self, answer: &Value) -> Option<T> {
        let text = answer.as_str()?;
        let chosen = unique_word(text, T::WORDS)?;
        if chosen != text {
            self.warn(&format!("{} was read as {chosen}", quoted(text)));
        }
        Some(
            serde_json::from_value(Value::from(chosen))
                .expect("WORDS are the words that serde reads"),
        )
    }
}

/// The fields of an object that is being read. Each method takes one out.
#[derive(Debug)]
pub struct Fields<'r> {
    reader: &'r mut Reader,
    values: Map<String, Value>,
}

impl Fields<'_> {
    /// Whether the model wrote this field, be it null.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A text; empty when absent or null.
    pub fn text(&mut self, name: &str) -> String {
        self.value(name)
    }

    /// A text that must say something.
    pub fn required_text(&mut self, name: &str) -> String {
        let text = self.text(name);
        if text.trim().is_empty() {
            self.refuse(name, "a text is required");
        }
        text
    }

    /// A list of texts; empty when absent or null, without blank ones.
    pub fn texts(&mut self, name: &str) -> Vec<String> {
        let mut texts: Vec<String> = self.value(name);
        texts.retain(|text| !text.trim().is_empty());
        texts
    }

    /// A list that must have at least one element.
    pub fn required_list<T: ReadLeniently>(&mut self, name: &str) -> Vec<T> {
        let noted = self.reader.problems.len();
        let list: Vec<T> = self.value(name);
        if list.is_empty() && self.reader.problems.len() == noted {
            self.refuse(name, "at least one is required");
        }
        list
    }

    /// A count; 0 when absent, null or unreadable.
    pub fn count(&mut self, name: &str) -> u64 {
        self.value(name)
    }

    /// A yes or no; none when absent or unreadable.
    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.value(name)
    }

    /// One of a few words, in any case and spacing; none, with a warning, when it is not one of
    /// them.
    pub fn choice<T: Choice>(&mut self, name: &str) -> Option<T> {
        let answer = self.values.shift_remove(name)?;
        self.reader.inside(name, |reader| {
            let choice = reader.choice(&answer);
            if choice.is_none() {
                reader.warn(&format!(
                    "{} is none of {}; it was left out",
                    shown(&answer),
                    T::WORDS.join(", ")
                ));
            }
            choice
        })
    }

    /// One of a few words, in any case and spacing. Anything else is a problem: this is for words
    /// that decide.
    pub fn required_choice<T: Choice + Default>(&mut self, name: &str) -> T {
        let answer = self.values.shift_remove(name).unwrap_or_default();
        self.reader.inside(name, |reader| {
            let choice = reader.choice(&answer);
            if choice.is_none() {
                reader.refuse(&format!(
                    "one of {} is required, got {}",
                    T::WORDS.join(", "),
                    shown(&answer)
                ));
            }
            choice.unwrap_or_default()
        })
    }

    /// A value of any type that reads leniently; absent is read as the type reads null, without a
    /// warning.
    pub fn value<T: ReadLeniently>(&mut self, name: &str) -> T {
        let answer = self.values.shift_remove(name);
        let absent = answer.is_none();
        let warnings = self.reader.warnings.len();
        let value = self.reader.inside(name, |reader| T::read(answer.unwrap_or_default(), reader));
        if absent {
            self.reader.warnings.truncate(warnings);
        }
        value
    }

    /// Drops what the model claims in fields that it is not asked for, with a warning.
    pub fn drop_claims(&mut self, computed: &[&str]) {
        for name in computed {
            if self.values.shift_remove(*name).is_some() {
                self.warn(name, "computed, so the answer's own value was dropped");
            }
        }
    }

    /// Notes that a field was not as asked for, but could be read.
    pub fn warn(&mut self, name: &str, what: &str) {
        self.reader.inside(name, |reader| reader.warn(what));
    }

    /// Notes that a field cannot be accepted.
    pub fn refuse(&mut self, name: &str, what: &str) {
        self.reader.inside(name, |reader| reader.refuse(what));
    }
}

/// A single element where a list is due becomes a list of one.
impl<T: ReadLeniently> ReadLeniently for Vec<T> {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        let elements = match answer {
            Value::Array(elements) => elements,
            Value::Null => {
                reader.warn("null was read as an empty list");
                return Self::new();
            }
            Value::String(text) if text.trim().is_empty() => {
                reader.warn("a blank text was read as an empty list");
                return Self::new();
            }
            single => {
                reader.warn(&format!("{} was read as a list of one", kind(&single)));
                vec![single]
            }
        };
        let places = 0..elements.len();
        places
            .zip(elements)
            .map(|(place, element)| {
                reader.inside(&format!("[{place}]"), |reader| T::read(element, reader))
            })
            .collect()
    }
}

/// Null becomes an empty text, a list its lines, anything else its JSON.
impl ReadLeniently for String {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        match answer {
            Value::String(text) => text,
            Value::Null => {
                reader.warn("null was read as an empty text");
                Self::new()
            }
            Value::Array(lines) if lines.iter().all(Value::is_string) => {
                reader.warn("a list was read as the lines of a text");
                lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
            }
            other => {
                reader.warn(&format!("{} was read as a text", kind(&other)));
                other.to_string()
            }
        }
    }
}

/// A whole number, also as a text; anything else becomes 0 with a warning.
impl ReadLeniently for u64 {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        let (count, warning) = match &answer {
            Value::Number(number) => match number.as_u64().or_else(|| whole(number.as_f64()?)) {
                Some(count) => (count, None),
                None => (0, Some(format!("{number} is no count; it was read as 0"))),
            },
            Value::String(text) => match text.trim().parse() {
                Ok(count) => {
                    (count, Some(format!("the text {} was read as a number", quoted(text))))
                }
                Err(_) => {
                    (0, Some(format!("the text {} is no count; it was read as 0", quoted(text))))
                }
            },
            other => (0, Some(format!("{} was read as 0", kind(other)))),
        };
        if let Some(warning) = warning {
            reader.warn(&warning);
        }
        count
    }
}

/// A yes or no, also as the texts `true` and `false`. Any other text says neither: prose must never
/// open a gate.
impl ReadLeniently for Option<bool> {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        match &answer {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if unique_word(text, &["true", "false"]).is_some() => {
                reader.warn(&format!("the text {} was read as a yes or no", quoted(text)));
                Some(unique_word(text, &["true"]).is_some())
            }
            other => {
                reader
                    .warn(&format!("{} is neither true nor false; it was left out", shown(other)));
                None
            }
        }
    }
}

/// The one word that a text means, whatever its case, blanks, dashes or full stop; also behind a
/// label of one word, as in `Verdict: approved`. A longer label could say anything, such as the
/// opposite.
fn unique_word(text: &str, words: &[&'static str]) -> Option<&'static str> {
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "both are checked on the line before"
)]
fn whole(number: f64) -> Option<u64> {
    let fits = number >= 0.0 && number.fract() == 0.0 && number < 9_007_199_254_740_992.0;
    fits.then_some(number as u64)
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

/// The text in quotes, cut to a length that fits a line of a log.
fn quoted(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut start: String = text.chars().take(CHARACTERS_MAX).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn numbers_are_read_from_texts_and_whole_floats_only() {
        let cases = [
            (json!(20), 20, 0),
            (json!(20.0), 20, 0),
            (json!(" 20 "), 20, 1),
            (json!(null), 0, 1),
            (json!(-3), 0, 1),
            (json!(2.5), 0, 1),
            (json!("twenty"), 0, 1),
            (json!(1e300), 0, 1),
            (json!([1]), 0, 1),
        ];
        for (answer, expected, warnings) in cases {
            let reading = u64::read_leniently(answer.clone()).unwrap();
            assert_eq!((reading.value, reading.warnings.len()), (expected, warnings), "{answer}");
        }
    }

    #[test]
    fn only_plain_yes_and_no_are_read_as_a_flag() {
        let cases = [
            (json!(true), Some(true)),
            (json!("False"), Some(false)),
            (json!(" TRUE "), Some(true)),
            (json!("yes, it is"), None),
            (json!("not true"), None),
            (json!(1), None),
            (json!(null), None),
        ];
        for (answer, expected) in cases {
            assert_eq!(
                Option::<bool>::read_leniently(answer.clone()).unwrap().value,
                expected,
                "{answer}"
            );
        }
    }

    #[test]
    fn texts_and_lists_are_bent_to_what_was_asked_for() {
        let cases = [
            (json!(["a", "b"]), vec!["a", "b"], 0),
            (json!("a"), vec!["a"], 1),
            (json!(null), vec![], 1),
            (json!("  "), vec![], 1),
            (json!(["a", null, 3, {"b": 1}]), vec!["a", "", "3", r#"{"b":1}"#], 3),
            (json!([["a", "b"]]), vec!["a\nb"], 1),
        ];
        for (answer, expected, warnings) in cases {
            let reading = Vec::<String>::read_leniently(answer.clone()).unwrap();
            assert_eq!(reading.value, expected, "{answer}");
            assert_eq!(reading.warnings.len(), warnings, "{answer}: {:?}", reading.warnings);
        }
    }

    #[test]
    fn places_are_told_from_the_outside_in() {
        let mut reader = Reader::default();
        reader.inside("files", |reader| {
            reader.inside("[2]", |reader| {
                reader.inside("content", |reader| reader.refuse("too short"))
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
