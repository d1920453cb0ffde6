//! Fields that show the success of a command: where they do, it has written its other fields, too.
//!
//! With `writes: { code: exit_code, report: json }`, a command that ends with 0 has written `report`. So `code == 0` is a
//! guard of `report`, as `has(report)` is.

use std::collections::{BTreeMap, BTreeSet};

/// The largest exit code.
const CODE_MAX: i64 = 255;

/// How a field shows that a command has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessForm {
    /// It is `true`.
    Bool,
    /// It is an exit code, and 0.
    ExitCode,
}

/// The fields that show the success of commands, each with the fields that are written then.
#[derive(Clone, Debug, Default)]
pub struct SuccessFields(BTreeMap<String, (SuccessForm, BTreeSet<String>)>);

impl SuccessFields {
    /// Adds a command that writes a field in this form, and others if it succeeds.
    pub fn add(&mut self, field: &str, form: SuccessForm, written: BTreeSet<String>) {
        match self.0.get_mut(field) {
            Some((known, all)) if *known == form => all.retain(|it| written.contains(it)),
            Some((_, all)) => all.clear(),
            None => drop(self.0.insert(field.to_owned(), (form, written))),
        }
    }

    /// Adds a node that writes a field, and nothing that follows from its value.
    pub fn add_unrelated(&mut self, field: &str) {
        self.add(field, SuccessForm::Bool, BTreeSet::new());
    }

    /// Returns the fields that are written where the value of a path is true.
    pub fn shown_by_bool(&self, path: &str) -> impl Iterator<Item = &str> {
        self.shown_by(path, SuccessForm::Bool)
    }

    /// Returns the fields that are written where the value of a path fulfils a condition.
    pub fn shown_by_code(
        &self,
        path: &str,
        fulfils: impl Fn(i64) -> bool,
    ) -> impl Iterator<Item = &str> {
        let shown = self.shown_by(path, SuccessForm::ExitCode);
        let is_zero = !(1..=CODE_MAX).any(fulfils);
        shown.filter(move |_| is_zero)
    }

    fn shown_by(&self, path: &str, form: SuccessForm) -> impl Iterator<Item = &str> {
        let shown = self.0.get(path).filter(|it| it.0 == form);
        shown.into_iter().flat_map(|it| it.1.iter().map(String::as_str))
    }
}
