//! The text of a prompt: parts that look like placeholders, and values that become a text.

use graphrun_core::state::Type;
use graphrun_expressions::{file::is_file, problem::Problem};
use minijinja::machinery::Span;

use super::checker::PromptChecker;

impl PromptChecker<'_, '_> {
    /// Warns about text that looks like a placeholder of another template language.
    pub(super) fn raw(&mut self, text: &str, span: Span) {
        let is_field = |it: &str| self.scope.schema.channel(it).is_some();
        let mut found = Vec::new();
        for (at, _) in text.match_indices('{') {
            let rest = &text[at + 1..];
            let is_other = |it: char| !it.is_alphanumeric() && !"_.".contains(it);
            let name = &rest[..rest.find(is_other).unwrap_or(rest.len())];
            let root = name.split('.').next().unwrap_or_default();
            if rest[name.len()..].starts_with('}') && is_field(root) {
                found.push((at..at + name.len() + 2, name.to_owned()));
            }
        }
        let start = span.start_offset as usize;
        if self.text.get(..start).is_some_and(ends_with_raw_tag) {
            return;
        }
        for (range, name) in found {
            let range = start + range.start..start + range.end;
            let message = format!("`{{{name}}}` is a part of the text");
            let problem = Problem::new("GR042", range, message, "not filled in");
            self.problems.push(problem.warning().help(format!("write `{{{{ {name} }}}}`")));
        }
        let end = span.end_offset as usize;
        let next = self.text.get(end..).unwrap_or_default().trim_start();
        if text.ends_with('$') && next.starts_with("{{") {
            let message = "the `$` before `{{` is a part of the text";
            let problem = Problem::new("GR042", end.saturating_sub(1)..end, message, "stays there");
            let help = "remove it, or write `{{ '$' }}` for a sign that stays";
            self.problems.push(problem.warning().help(help));
        }
    }

    /// Checks a value that becomes a text. Of files within others, a text has the names and the media types.
    pub(super) fn printed(&mut self, ty: &Type, span: Span) {
        if is_file(ty) {
            self.refuse_file(span);
        }
    }

    /// Reports that a text would have a file or its content, which are not for its readers.
    pub(super) fn refuse_file(&mut self, span: Span) {
        let message = "a prompt cannot print a file".to_owned();
        let help = "name the file in `attach` of the agent; a prompt can print its `name` and `media_type`";
        self.problem("GR022", span, message, "a file").help = Some(help.to_owned());
    }
}

/// Returns whether a part of a template ends in `{% raw %}`: what follows is shown as it is.
fn ends_with_raw_tag(text: &str) -> bool {
    let tag = text.strip_suffix("%}").and_then(|it| it.rsplit_once("{%"));
    tag.is_some_and(|(_, it)| it.trim_matches(['-', '+', ' ', '\t', '\n', '\r']) == "raw")
}
