//! The values of cases: read by the types of their fields, completed, and checked, each mistake
//! at its place.

use std::ops::Range;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::Access,
    id::{ChannelName, NodeName},
    state::{Channel, Record, Type, complete, smallest, validator_for},
};
use graphrun_expressions::problem::suggestion;
use serde_json::Value;

use super::read::Reading;
use crate::{
    sections::types::value_of,
    source::reader::{Data, Entry, Yaml},
};

impl Reading<'_> {
    /// Reads a value that is written to a field. Parts that the case leaves out are filled in, if
    /// they decide no route. Returns `None` for a value that does not fit, which is reported.
    pub(super) fn written(&mut self, channel: &Channel, yaml: &Yaml) -> Option<Value> {
        let ty = write_type(channel, yaml);
        if !self.check_shape(yaml, ty, channel.name()) {
            return None;
        }
        let value = value_of(&mut self.report, yaml, ty)?;
        let value = self.completed(channel, value, &yaml.range)?;
        self.check_fit(channel, &value, yaml).then_some(value)
    }

    /// Reads the one item that a node adds to a list.
    pub(super) fn written_item(
        &mut self,
        node: &NodeName,
        channel: &Channel,
        yaml: &Yaml,
    ) -> Option<Value> {
        let value = self.written(channel, yaml)?;
        let count = value.as_array().map_or(1, Vec::len);
        if count != 1 {
            let message =
                format!("`{node}` adds one item to `{}`, and this is {count}", channel.name());
            let diagnostic = Diagnostic::error("GR081", message);
            self.report.push(diagnostic.at(self.report.span(&yaml.range), "not one item"));
            return None;
        }
        Some(value)
    }

    /// Reads one item of a list that grows, without the list.
    pub(super) fn item(&mut self, channel: &Channel, yaml: &Yaml) -> Option<Value> {
        let ty = match channel.ty().required() {
            Type::List(item) => item,
            _ => &Type::Any,
        };
        if !self.check_shape(yaml, ty, channel.name()) {
            return None;
        }
        let item = value_of(&mut self.report, yaml, ty)?;
        let list = self.completed(channel, Value::Array(vec![item]), &yaml.range)?;
        if !self.check_fit(channel, &list, yaml) {
            return None;
        }
        let Value::Array(mut items) = list else { return None };
        items.pop()
    }

    /// Returns the smallest value of a field that a case leaves out, or the smallest list of a size; reported if the
    /// field decides a route.
    pub(super) fn guessed(
        &mut self,
        channel: &Channel,
        size: Option<u64>,
        at: &Range<usize>,
    ) -> Option<Value> {
        let name = channel.name();
        let looked_at = self.accesses.iter().any(|it| it.channel == *name && !it.is_presence);
        if looked_at {
            self.report_unsaid(&[name.to_string()], at);
            return None;
        }
        let mut schema = channel.schema().clone();
        if let Some(size) = size {
            schema["minItems"] = size.into();
        }
        match smallest(&schema) {
            Ok(value) => Some(value),
            Err(problem) => {
                let message = format!("no value for `{name}` can be generated: {problem}");
                let span = self.report.span(at);
                let diagnostic = Diagnostic::error("GR081", message).at(span, "it is not given");
                self.report.push(diagnostic.help(format!("give it: `{name}: …`")));
                None
            }
        }
    }

    /// Reads the expected value at a path. A record may list only some of its fields.
    pub(super) fn expected(&mut self, what: &ChannelName, ty: &Type, yaml: &Yaml) -> Option<Value> {
        if !self.check_shape(yaml, ty, what) {
            return None;
        }
        let value = value_of(&mut self.report, yaml, ty)?;
        self.check_scalars(yaml, ty, &value).then_some(value)
    }

    /// Checks that the numbers of an expected value can occur: a text in quotes is none, and a range has ends.
    fn check_scalars(&mut self, yaml: &Yaml, ty: &Type, value: &Value) -> bool {
        match (&yaml.data, ty.required(), value) {
            (Data::List(items), Type::List(ty), Value::Array(values)) => {
                let wrong =
                    items.iter().zip(values).filter(|it| !self.check_scalars(it.0, ty, it.1));
                wrong.count() == 0
            }
            (Data::Map(entries), ty, Value::Object(fields)) => {
                let wrong = entries.iter().filter(|entry| {
                    let found = ty.field(&entry.key.text).zip(fields.get(&entry.key.text));
                    found.is_some_and(|(ty, value)| !self.check_scalars(&entry.value, ty, value))
                });
                wrong.count() == 0
            }
            (Data::Scalar { text, .. }, wanted @ (Type::Int(_) | Type::Float(_)), value) => {
                let is_right = match value.as_f64() {
                    Some(number) => wanted.range().is_none_or(|it| it.contains(number)),
                    None => value.is_null(),
                };
                is_right
                    || self.misfit(
                        &yaml.range,
                        &format!("\"{text}\" is never a value here"),
                        wanted,
                    )
            }
            (Data::Scalar { text, .. }, Type::Bool, value)
                if !value.is_boolean() && !value.is_null() =>
            {
                self.misfit(&yaml.range, &format!("\"{text}\" is never a value here"), &Type::Bool)
            }
            _ => true,
        }
    }

    fn completed(&mut self, channel: &Channel, value: Value, at: &Range<usize>) -> Option<Value> {
        // The whole value is checked once it is folded.
        if channel.reducer().update_form().is_checked_folded() {
            return Some(value);
        }
        let is_item = matches!(channel.ty().required(), Type::List(_)) && !value.is_array();
        let value = if is_item { Value::Array(vec![value]) } else { value };
        let mut unsaid = Vec::new();
        let accesses = &self.accesses;
        let mut may_guess = |path: &[String]| {
            let may = !accesses.iter().any(|it: &Access| it.is_below(channel.name(), path));
            if !may {
                let mut whole = vec![channel.name().to_string()];
                whole.extend_from_slice(path);
                unsaid.push(whole);
            }
            may
        };
        let completed = complete(channel.schema(), value, &mut may_guess);
        for path in &unsaid {
            self.report_unsaid(path, at);
        }
        match completed {
            Ok(value) if unsaid.is_empty() => Some(value),
            Ok(_) => None,
            Err(problem) => {
                let message = format!("`{}` cannot be completed: {problem}", channel.name());
                let span = self.report.span(at);
                let diagnostic =
                    Diagnostic::error("GR081", message).at(span, "something is missing");
                self.report.push(diagnostic.help("give the whole value"));
                None
            }
        }
    }

    fn report_unsaid(&mut self, path: &[String], at: &Range<usize>) {
        let name = path.join(".");
        let what = "the route of the run depends on";
        let message = format!("{what} `{name}`, and the case does not set it");
        let diagnostic = Diagnostic::error("GR081", message);
        let diagnostic = diagnostic.at(self.report.span(at), format!("no `{name}`"));
        self.report.push(diagnostic.help("only values that no route reads may be omitted"));
    }

    /// Checks names of fields and values of enums for misspellings, each of them.
    fn check_shape(&mut self, yaml: &Yaml, ty: &Type, channel: &ChannelName) -> bool {
        match (&yaml.data, ty.required()) {
            (Data::Map(entries), Type::Record(record)) => {
                let wrong = entries.iter().filter(|it| !self.check_field(it, record, channel));
                wrong.count() == 0
            }
            (Data::Map(entries), Type::Map(ty)) => {
                entries.iter().filter(|it| !self.check_shape(&it.value, ty, channel)).count() == 0
            }
            (Data::List(items), Type::List(ty)) => {
                items.iter().filter(|it| !self.check_shape(it, ty, channel)).count() == 0
            }
            (Data::Scalar { text, .. }, Type::Enum(values)) if !values.contains(text) => {
                let message = format!("\"{text}\" is never a value here");
                let span = self.report.span(&yaml.range);
                let diagnostic = Diagnostic::error("GR081", message).at(span, "no such value");
                let help = suggestion(text, values.iter().map(String::as_str));
                self.report.push(Diagnostic { help, ..diagnostic });
                false
            }
            (Data::Null, Type::Any) => true,
            (Data::Null, required) if !matches!(ty, Type::Optional(_)) => {
                self.misfit(&yaml.range, &format!("nothing is not a `{required}`"), required)
            }
            (Data::Map(_) | Data::List(_), Type::Any) => true,
            (Data::Map(_) | Data::List(_), wanted) => {
                let found = if matches!(yaml.data, Data::Map(_)) { "mapping" } else { "list" };
                self.misfit(&yaml.range, &format!("a {found} is not a `{wanted}`"), wanted)
            }
            (
                Data::Scalar { text, .. },
                wanted @ (Type::Record(_) | Type::List(_) | Type::Map(_)),
            ) => self.misfit(&yaml.range, &format!("`{text}` is not a `{wanted}`"), wanted),
            _ => true,
        }
    }

    fn check_field(&mut self, entry: &Entry, record: &Record, channel: &ChannelName) -> bool {
        let Entry { key, value } = entry;
        if let Some(field) = record.fields.iter().find(|it| it.name == key.text) {
            return self.check_shape(value, &field.ty, channel);
        }
        let help = suggestion(&key.text, record.fields.iter().map(|it| it.name.as_str()));
        let span = self.report.span(&key.range);
        let message = format!("`{channel}` has no field `{}`", key.text);
        let diagnostic = Diagnostic::error("GR081", message).at(span, "no such field");
        self.report.push(Diagnostic { help, ..diagnostic });
        false
    }

    fn misfit(&mut self, at: &Range<usize>, message: &str, wanted: &Type) -> bool {
        let span = self.report.span(at);
        let diagnostic =
            Diagnostic::error("GR081", message).at(span, format!("expected `{wanted}`"));
        self.report.push(diagnostic);
        false
    }

    /// Checks a value against the schema itself and marks the part that does not fit.
    fn check_fit(&mut self, channel: &Channel, value: &Value, yaml: &Yaml) -> bool {
        if channel.check(value).is_ok() {
            return true;
        }
        let Ok(validator) = validator_for(channel.schema()) else { return false };
        for error in validator.iter_errors(value) {
            let path = error.instance_path().to_string();
            let range = inner(yaml, &path).range.clone();
            let shown = if path.is_empty() { String::new() } else { format!(" at `{path}`") };
            let message = format!("this does not fit `{}`{shown}: {error}", channel.name());
            let span = self.report.span(&range);
            let diagnostic = Diagnostic::error("GR081", message);
            self.report.push(diagnostic.at(span, format!("not a `{}`", channel.ty())));
        }
        false
    }
}

/// Returns the type for reading a value: that of the field, or of one item of a list.
fn write_type<'a>(channel: &'a Channel, yaml: &Yaml) -> &'a Type {
    let reducer = channel.reducer();
    match (channel.ty().required(), &yaml.data) {
        (Type::List(_), Data::List(_)) => channel.ty(),
        (Type::List(item), _) if reducer.grows_list() => item,
        _ if reducer.update_form().is_checked_folded() => &Type::Any,
        _ => channel.ty(),
    }
}

/// Returns the value at a JSON pointer, or the deepest part of it that the file contains.
fn inner<'y>(yaml: &'y Yaml, pointer: &str) -> &'y Yaml {
    let mut found = yaml;
    for part in pointer.split('/').filter(|it| !it.is_empty()) {
        let item = part.parse().ok().and_then(|at: usize| found.items().get(at));
        match item.or_else(|| found.get(part)) {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}
