//! Types from JSON Schema files beside the workflow.

use std::path::{Component, Path};

use graphrun_core::{diagnostic::Diagnostic, state::Schema};
use serde_json::Value;

use super::{TypeReader, refuse_reserved};
use crate::source::reader::{SpannedText, Yaml};

/// The advice about a file that is no schema.
const OF_FILE: &str = "it is a file beside the workflow that refers to no other";

/// The advice about a schema that no field can have.
pub(super) const OF_FIELDS: &str = "change the schema, or the reducer of the field";

/// The file extension that distinguishes such a file from a type.
const ENDING: &str = ".json";

/// Returns the value of `schema` if it names a file. A record may have a field `schema`.
pub(super) fn named_by(yaml: &Yaml) -> Option<&Yaml> {
    yaml.get("schema").filter(|it| it.text().is_some_and(|text| text.trim().ends_with(ENDING)))
}

impl<'y> TypeReader<'_, 'y> {
    pub(super) fn state_of_file(&mut self, file: &'y Yaml) -> Option<Schema> {
        let root = self.schema_of_file(file)?;
        if !root.get("properties").is_some_and(Value::is_object) {
            self.unusable_schema(file, "a state is an object with `properties`", OF_FILE);
            return None;
        }
        match Schema::of_json_schema(&root, self.registry.reducers()) {
            Ok(schema) => {
                let word = file.word()?;
                for channel in schema.channels() {
                    refuse_reserved(self.report, channel.name().as_str(), &word);
                }
                Some(schema)
            }
            Err(error) => {
                self.unusable_schema(file, &error.to_string(), OF_FIELDS);
                None
            }
        }
    }

    pub(super) fn schema_of_file(&mut self, file: &'y Yaml) -> Option<Value> {
        let path = self.report.word(file, "`schema`")?;
        let known = file.text().and_then(|it| self.files.get(it)).cloned();
        let schema = match known.map_or_else(|| self.parse_schema(&path), Ok) {
            Ok(schema) => schema,
            Err(reason) => {
                self.unusable_schema(file, &reason, OF_FILE);
                return None;
            }
        };
        // The size is checked before the schema is compiled, which takes time proportional to it.
        self.grow(&schema, &file.range)?;
        let is_new = file.text().is_some_and(|it| self.files.insert(it, schema.clone()).is_none());
        if let Some(reason) = Some(&schema).filter(|_| is_new).and_then(unusable) {
            self.unusable_schema(file, &reason, OF_FILE);
            return None;
        }
        Some(schema)
    }

    fn parse_schema(&self, path: &SpannedText) -> Result<Value, String> {
        let relative = Path::new(&path.text);
        if !relative.components().all(|it| matches!(it, Component::Normal(_))) {
            return Err("a path here is relative and has no `..`".to_owned());
        }
        let text = self.folder.read(&self.folder.own(relative)).map_err(|it| it.to_string())?;
        let schema: Value = serde_json::from_str(&text).map_err(|it| it.to_string())?;
        // A schema of `true` would be the type `json`, which has that name.
        if !schema.is_object() {
            return Err("a JSON Schema is an object".to_owned());
        }
        Ok(schema)
    }

    pub(super) fn unusable_schema(&mut self, file: &Yaml, reason: &str, help: &str) {
        let name = file.text().unwrap_or_default();
        let message = format!("the JSON Schema `{name}` cannot be used: {reason}");
        let span = self.report.span(&file.range);
        let diagnostic = Diagnostic::error("GR113", message).at(span, "named here");
        self.report.push(diagnostic.help(help));
    }
}

/// The reason why a schema cannot be used, if there is one.
fn unusable(schema: &Value) -> Option<String> {
    let invalid = jsonschema::meta::validate(schema).err().map(|it| it.to_string());
    invalid.or_else(|| elsewhere(schema).map(|it| format!("it refers to `{it}`")))
}

/// Returns a reference of a schema to another document.
fn elsewhere(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value {
            Value::String(target) if key == "$ref" => {
                (!target.starts_with('#')).then_some(target.as_str())
            }
            other => elsewhere(other),
        }),
        Value::Array(items) => items.iter().find_map(elsewhere),
        _ => None,
    }
}
