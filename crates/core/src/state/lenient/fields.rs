//! The fields of an object, taken out one by one.

use serde_json::{Map, Value};

use super::{Choice, ReadLeniently, Reader, shown};

/// The fields of an object that is being read. Each method removes one.
#[derive(Debug)]
pub struct LenientFields<'r> {
    reader: &'r mut Reader,
    values: Map<String, Value>,
}

impl<'r> LenientFields<'r> {
    pub(super) fn new(reader: &'r mut Reader, values: Map<String, Value>) -> Self {
        Self { reader, values }
    }

    /// Returns the names of the remaining fields.
    pub(super) fn rest(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    /// Returns whether the model wrote this field, even if it is null.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Reads a text; empty when absent or null.
    pub fn text(&mut self, name: &str) -> String {
        self.value(name)
    }

    /// Reads a text that must not be blank.
    pub fn required_text(&mut self, name: &str) -> String {
        let text = self.text(name);
        if text.trim().is_empty() {
            self.refuse(name, "a text is required");
        }
        text
    }

    /// Reads a list of texts; empty when absent or null, without blank ones.
    pub fn texts(&mut self, name: &str) -> Vec<String> {
        let mut texts: Vec<String> = self.value(name);
        texts.retain(|text| !text.trim().is_empty());
        texts
    }

    /// Reads a list that must have at least one element.
    pub fn required_list<T: ReadLeniently>(&mut self, name: &str) -> Vec<T> {
        let noted = self.reader.problems.len();
        let list: Vec<T> = self.value(name);
        if list.is_empty() && self.reader.problems.len() == noted {
            self.refuse(name, "at least one is required");
        }
        list
    }

    /// Reads a count; 0 when absent, null or unreadable.
    pub fn count(&mut self, name: &str) -> u64 {
        self.value(name)
    }

    /// Reads a yes or no; `None` when absent or unreadable.
    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.value(name)
    }

    /// Reads one of a few words, in any case and spacing. Returns `None`, with a warning, for any other text.
    pub fn choice<T: Choice>(&mut self, name: &str) -> Option<T> {
        let answer = self.values.shift_remove(name)?;
        self.reader.inside(name, |reader| {
            let choice = reader.choice(&answer);
            if choice.is_none() {
                reader.warn(&format!(
                    "{} is not one of {}; it was omitted",
                    shown(&answer),
                    T::WORDS.join(", ")
                ));
            }
            choice
        })
    }

    /// Reads one of a few words, in any case and spacing. Anything else is a problem: this method is for
    /// words that decide.
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

    /// Takes a field out and reads it with `read` at its place.
    pub(super) fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Option<Value>, &mut Reader) -> T,
    ) -> T {
        let answer = self.values.shift_remove(name);
        self.reader.inside(name, |reader| read(answer, reader))
    }

    /// Reads a value of any type with [`ReadLeniently`]. An absent field is read like null, without a
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

    /// Drops values in fields that the model was not asked for, with a warning.
    pub fn drop_claims(&mut self, computed: &[&str]) {
        for name in computed {
            if self.values.shift_remove(*name).is_some() {
                self.warn(name, "computed, so the answer's own value was dropped");
            }
        }
    }

    /// Adds a warning: a field did not have the requested form, but could be read.
    pub fn warn(&mut self, name: &str, what: &str) {
        self.reader.inside(name, |reader| reader.warn(what));
    }

    /// Adds a problem: a field cannot be accepted.
    pub fn refuse(&mut self, name: &str, what: &str) {
        self.reader.inside(name, |reader| reader.refuse(what));
    }
}
