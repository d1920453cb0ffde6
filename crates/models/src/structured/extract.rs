//! Finds the JSON in a model's answer: after thoughts and prose, in code fences, encoded twice,
//! with typical mistakes of models. Pure, and linear in the length of the text.
//!
//! Truncated JSON is never completed: half an action is no action.

use std::{iter::Peekable, str::CharIndices};

use graphrun_core::state::read_json;
use serde_json::Value;

use crate::thoughts::part_text;

/// The most values of an answer that are compared with a schema.
const CANDIDATES_MAX: usize = 16;

/// A JSON value found in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractedValue {
    /// The value.
    pub value: Value,
    /// The repairs that were needed to read it.
    pub warnings: Vec<String>,
}

/// The expected kind of value: decides which one to take if a text contains several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedKind {
    /// An object.
    Object,
    /// A list.
    List,
    /// Any value, a bare number or text included.
    Any,
}

impl ExpectedKind {
    /// Returns the kind that a schema expects.
    pub fn of_schema(schema: &Value) -> Self {
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => Self::Object,
            Some("array") => Self::List,
            None if schema.get("properties").is_some() => Self::Object,
            _ => Self::Any,
        }
    }

    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::List => value.is_array(),
            Self::Any => true,
        }
    }
}

/// Returns the JSON value in a model's answer.
///
/// ```
/// use graphrun_models::{ExpectedKind, extract_json};
///
/// let answer = "Sure [1]! Here it is:\n```json\n{\"verdict\": \"approved\",}\n```";
/// let found = extract_json(answer, ExpectedKind::Object)?;
/// assert_eq!(found.value["verdict"], "approved");
/// assert_eq!(found.warnings, ["trailing commas were removed"]);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// Returns a description of the problem that the model can act on.
pub fn extract_json(text: &str, wanted: ExpectedKind) -> Result<ExtractedValue, String> {
    let mut found = extract_candidates(text, wanted)?;
    let is_single = found.len() == 1;
    let mut first = found.swap_remove(0);
    if !is_single {
        let warning = "the answer contains several JSON values that differ; only the first is used";
        first.warnings.push(warning.to_owned());
    }
    Ok(first)
}

/// Returns the JSON values of the wanted kind in a model's answer, in their order and at least one. A value that repeats
/// another one is left out.
pub(crate) fn extract_candidates(
    text: &str,
    wanted: ExpectedKind,
) -> Result<Vec<ExtractedValue>, String> {
    let parted = part_text(text.trim_start_matches('\u{feff}'));
    let text = parted.answer.trim();
    if text.is_empty() {
        return Err("the answer is empty".to_owned());
    }
    if let Ok(value) = read_json(text) {
        return Ok(vec![decode_twice(value, wanted)]);
    }
    let mut found = Vec::new();
    let mut problem = None;
    for part in balanced_parts(text) {
        match part.and_then(parse_mended) {
            Ok(extracted) => found.push(extracted),
            Err(message) => problem = problem.or(Some(message)),
        }
    }
    let has_fitting = found.iter().any(|it| wanted.fits(&it.value));
    // A broken object is more likely the answer than `[1]` in the prose before it.
    if let (false, Some(problem)) = (has_fitting, &problem) {
        return Err(problem.clone());
    }
    let mut candidates: Vec<ExtractedValue> = Vec::new();
    for extracted in found {
        if !has_fitting && !candidates.is_empty() || candidates.len() == CANDIDATES_MAX {
            break;
        }
        // A model that repeats its answer has one answer.
        let is_known = || candidates.iter().any(|it| it.value == extracted.value);
        if (wanted.fits(&extracted.value) || !has_fitting) && !is_known() {
            candidates.push(extracted);
        }
    }
    if candidates.is_empty() {
        return Err(problem.unwrap_or_else(|| "the answer contains no JSON".to_owned()));
    }
    Ok(candidates)
}

/// Parses a text that contains JSON again, because some models encode a tool's arguments twice.
fn decode_twice(value: Value, wanted: ExpectedKind) -> ExtractedValue {
    if let Value::String(inner) = &value
        && let Ok(decoded) = read_json(inner)
        && wanted.fits(&decoded)
        && (decoded.is_object() || decoded.is_array())
    {
        return ExtractedValue {
            value: decoded,
            warnings: vec!["the JSON was encoded twice".to_owned()],
        };
    }
    ExtractedValue { value, warnings: Vec::new() }
}

fn parse_mended(text: &str) -> Result<ExtractedValue, String> {
    let error = match read_json(text) {
        Ok(value) => return Ok(ExtractedValue { value, warnings: Vec::new() }),
        Err(error) if error.is_limit() => return Err(format!("the answer is refused: {error}")),
        Err(error) => error,
    };
    let (mended, warnings) = mend(text);
    read_json(&mended)
        .map(|value| ExtractedValue { value, warnings })
        .map_err(|_| format!("the answer is not valid JSON: {error}"))
}

/// Splits the top-level `{…}` and `[…]` from a text.
///
/// The content of a part is not searched again, even if the part is broken: an inner object would
/// be taken for the answer.
fn balanced_parts(text: &str) -> impl Iterator<Item = Result<&str, String>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let tail = rest.take()?;
        let start = tail.find(['{', '['])?;
        let tail = &tail[start..];
        match end_of_balanced(tail) {
            Some(end) => {
                rest = Some(&tail[end..]);
                Some(Ok(&tail[..end]))
            }
            None => Some(Err("the JSON of the answer is never closed".to_owned())),
        }
    })
}

/// Returns the end of the value that starts the text, in bytes.
fn end_of_balanced(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            '"' => skip_string(&mut chars),
            _ => {}
        }
    }
    None
}

fn skip_string(chars: &mut Peekable<CharIndices<'_>>) {
    while let Some((_, char)) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Removes commas before a closing bracket and escapes raw line breaks and tabs inside strings.
fn mend(text: &str) -> (String, Vec<String>) {
    let mut mended = String::with_capacity(text.len());
    let mut commas = false;
    let mut breaks = false;
    let mut in_string = false;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (in_string, char) {
            (true, '\\') => {
                mended.push('\\');
                mended.extend(chars.next());
                continue;
            }
            (true, '\n' | '\r' | '\t') => {
                mended.push_str(match char {
                    '\n' => "\\n",
                    '\r' => "\\r",
                    _ => "\\t",
                });
                breaks = true;
                continue;
            }
            (_, '"') => in_string = !in_string,
            (false, '}' | ']') => {
                let end = mended.trim_end().len();
                if mended[..end].ends_with(',') {
                    mended.truncate(end - 1);
                    commas = true;
                }
            }
            _ => {}
        }
        mended.push(char);
    }
    let warnings = [
        (commas, "trailing commas were removed"),
        (breaks, "line breaks inside texts were escaped"),
    ];
    let warnings = warnings.iter().filter(|(done, _)| *done).map(|(_, text)| (*text).to_owned());
    (mended, warnings.collect())
}
