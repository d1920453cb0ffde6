//! Defaults with a text that looks like a placeholder. A default is a constant: nothing fills it in.

use graphrun_core::{diagnostic::Diagnostic, state::Schema};
use graphrun_expressions::facts::Fact;

use crate::source::{
    reader::{Data, Yaml},
    report::Report,
    shape::Section,
};

/// Warns about `{{ field }}` and `{{ via.node }}` in the defaults of the fields.
///
/// Other names in braces are not reported: the text may be for another template language.
pub(crate) fn warn_of_placeholders(report: &mut Report, top: &Section<'_>, schema: &Schema) {
    for field in top.get("state").map(Yaml::entries).unwrap_or_default() {
        let Some(default) = field.value.get("default") else { continue };
        warn_of_texts(report, &field.key.text, default, schema);
    }
}

fn warn_of_texts(report: &mut Report, field: &str, value: &Yaml, schema: &Schema) {
    let text = match &value.data {
        Data::Null => return,
        Data::List(items) => {
            return items.iter().for_each(|it| warn_of_texts(report, field, it, schema));
        }
        Data::Map(entries) => {
            let values = entries.iter().map(|it| &it.value);
            return values.for_each(|it| warn_of_texts(report, field, it, schema));
        }
        Data::Scalar { text, .. } => text,
    };
    // The first one is enough: each place takes time proportional to the text.
    let Some((start, placeholder)) = first_placeholder(text, schema) else { return };
    let message = format!("`{placeholder}` is a part of the default of `{field}`");
    let range = value.within(&report.file.text, &(start..start + placeholder.len()));
    let diagnostic = Diagnostic::warning("GR042", message).at(report.span(&range), "not filled in");
    let help = format!(
        "a default is a constant; compute the field with `set: {{ {field}: … }}` in the first node"
    );
    report.push(diagnostic.help(help));
}

/// Returns the first `{{ name … }}` with the name of a field or a fact, and where it starts.
fn first_placeholder<'t>(text: &'t str, schema: &Schema) -> Option<(usize, &'t str)> {
    let mut rest = text;
    loop {
        let (_, after) = rest.split_once("{{")?;
        let (inside, next) = after.split_once("}}")?;
        let inside = inside.rsplit("{{").next().unwrap_or_default();
        let is_word = |it: char| it.is_alphanumeric() || it == '_';
        let name = inside.trim_start_matches('-').trim_start();
        let name = name.split(|it| !is_word(it)).next().unwrap_or_default();
        if schema.channel(name).is_some() || Fact::find(name).is_some() {
            let end = text.len() - next.len();
            let start = end - inside.len() - "{{}}".len();
            return Some((start, &text[start..end]));
        }
        rest = next;
    }
}
