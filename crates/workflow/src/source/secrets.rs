//! Refuses secrets in a workflow or a prompt.
//!
//! A message never repeats a secret; `redact` has the forms of keys.

use std::ops::Range;

use graphrun_core::{
    diagnostic::{Diagnostic, SourceSpan},
    state::Type,
};
use graphrun_guard::redact::{find_form, names_a_secret};

use super::report::Report;
use crate::Expression;

const HELP: &str = "remove it and revoke it; graphrun reads keys from the environment";

impl Report {
    /// Reports the first secret that a text of the workflow contains.
    pub(crate) fn refuse_secret(&mut self, text: &str, range: &Range<usize>) {
        if let Some((_, kind)) = find_form(text) {
            let message = format!("this looks like {kind}, written into the file");
            let diagnostic = Diagnostic::error("GR047", message);
            self.push(diagnostic.at(self.span(range), "a secret").help(HELP));
        }
    }

    /// Reports the first secret in another file; `place` makes places in it.
    pub(crate) fn refuse_secret_in(
        &mut self,
        text: &str,
        span: impl FnOnce(Range<usize>) -> SourceSpan,
    ) {
        if let Some((range, kind)) = find_form(text) {
            let message = format!("this looks like {kind}, written into a prompt");
            let diagnostic = Diagnostic::error("GR047", message);
            self.push(diagnostic.at(Some(span(range)), "a secret").help(HELP));
        }
    }

    /// Reports a literal text under the name of a secret.
    pub(crate) fn refuse_named_secret(
        &mut self,
        name: &str,
        range: &Range<usize>,
        expression: &Expression,
    ) {
        let is_literal = expression.reads().is_empty()
            && matches!(expression.ty(), Type::Enum(texts) if texts.iter().any(|it| !it.is_empty()));
        if is_literal && names_a_secret(name) {
            let message = format!("the value of `{name}` is written into the file");
            let diagnostic = Diagnostic::error("GR047", message);
            self.push(diagnostic.at(self.span(range), "a secret").help(HELP));
        }
    }
}
