//! The reducers of fields: `merge`.

use graphrun_core::{
    diagnostic::Diagnostic,
    state::{Reducer, Type},
};
use graphrun_expressions::problem::suggestion;

use super::TypeReader;
use crate::{
    format::BestKeys,
    source::{reader::Yaml, shape::Section},
};

/// Returns the names of the built-in reducers.
pub(crate) fn reducer_names() -> Vec<&'static str> {
    Reducer::BUILT_IN.iter().map(Reducer::name).collect()
}

impl TypeReader<'_, '_> {
    /// Reads `merge`, and `by`, which belongs to `merge: best`.
    pub(super) fn reducer(&mut self, section: &Section<'_>, ty: &Type) -> Option<Reducer> {
        let merge = section.get("merge");
        let by = section.get("by");
        let is_best = merge.and_then(Yaml::text) == Some("best");
        if let (Some(key), false) = (section.key("by"), is_best) {
            let span = self.report.span(&key.range);
            let diagnostic = Diagnostic::error("GR003", "`by` belongs to `merge: best`");
            self.report.push(diagnostic.at(span, "not a key here"));
        }
        let Some(merge) = merge else { return Some(Reducer::Replace) };
        if merge.get("best").is_some() {
            let parts = Section::read::<BestKeys>(self.report, merge, "`merge`")?;
            return self.best(parts.get("best")?, ty);
        }
        if is_best {
            let help = "name the number to compare: `merge: best, by: test_result.passed_count`";
            let by = by.or_else(|| section.require(self.report, "by", help))?;
            return self.best(by, ty);
        }
        self.named_reducer(merge, ty)
    }

    fn best(&mut self, path: &Yaml, ty: &Type) -> Option<Reducer> {
        let path = self.report.word(path, "the compared number")?;
        let by: Vec<String> = path.text.split('.').map(str::to_owned).collect();
        let found = by.iter().try_fold(ty, |it, name| it.field(name));
        if !found.is_some_and(|it| it.required().is_number() || *it == Type::Any) {
            let message =
                format!("`best` needs a number, and `{}` of `{ty}` is not one", path.text);
            let span = self.report.span(&path.range);
            self.report.push(Diagnostic::error("GR019", message).at(span, "not a number"));
            return None;
        }
        Some(Reducer::Best { by })
    }

    fn named_reducer(&mut self, yaml: &Yaml, ty: &Type) -> Option<Reducer> {
        let name = self.report.word(yaml, "`merge`")?;
        let own = self.registry.reducers();
        let Some(reducer) = Reducer::named(&name.text, own) else {
            let own = own.iter().map(|it| it.name());
            let known = Reducer::BUILT_IN.iter().map(Reducer::name).chain(own);
            let help = suggestion(&name.text, known).unwrap_or_default();
            let message = format!("there is no reducer `{}`", name.text);
            let span = self.report.span(&name.range);
            let diagnostic = Diagnostic::error("GR019", message).at(span, "no such reducer");
            self.report.push(diagnostic.help(help));
            return None;
        };
        if !reducer.fits(ty) {
            let needed = reducer.needs();
            let message = format!("`{reducer}` needs {needed}, and this field is `{ty}`");
            let span = self.report.span(&name.range);
            let label = format!("needs {needed}");
            self.report.push(Diagnostic::error("GR019", message).at(span, label));
            return None;
        }
        Some(reducer)
    }
}
