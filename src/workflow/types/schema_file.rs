//! Types that are written as JSON Schema in a file beside the workflow.

use std::path::{Component, Path};

use serde_json::Value;

use super::{Reading, refuse_reserved};
use crate::{
    diagnostic::Diagnostic,
    state::Schema,
    workflow::{
        reader::{Word, Yaml},
        source::read_text,
    },
};

/// The largest schema file, in bytes.
const BYTES_MAX: usize = 1 << 18;
/// The end of the name of such a file, which tells it from a type.
const ENDING: &str = ".json";

/// The value of `schema` if it names a file; a record may have a field of that name.
pub(super) fn named_by(yaml: &Yaml) -> Option<&Yaml> {
    yaml.get("schema").filter(|it| it.text().is_some_and(|text| text.trim().ends_with(ENDING)))
}

impl Reading<'_, '_> {
    pub(super) fn state_of_file(&mut self, file: &Yaml) -> Option<Schema> {
        let root = self.schema_of_file(file)?;
        if !root.get("properties").is_some_and(Value::is_object) {
            self.unusable_schema(file, "a state is an object with `properties`");
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
                self.unusable_schema(file, &error.to_string());
                None
            }
        }
    }

    pub(super) fn schema_of_file(&mut self, file: &Yaml) -> Option<Value> {
        let path = self.report.word(file, "`schema`")?;
        match self.read_schema(&path) {
            Ok(schema) => Some(schema),
            Err(reason) => {
                self.unusable_schema(file, &reason);
                None
            }
        }
    }

    fn read_schema(&self, path: &Word) -> Result<Value, String> {
        let relative = Path::new(&path.text);
        if !relative.components().all(|it| matches!(it, Component::Normal(_))) {
            return Err("a path here is relative and has no `..`".to_owned());
        }
        let text =
            read_text(&self.folder.join(relative), BYTES_MAX).map_err(|it| it.to_string())?;
        let schema: Value = serde_json::from_str(&text).map_err(|it| it.to_string())?;
        // A schema of `true` would be the type `json`, which has a name.
        if !schema.is_object() {
            return Err("a JSON Schema is an object".to_owned());
        }
        jsonschema::meta::validate(&schema).map_err(|it| it.to_string())?;
        match elsewhere(&schema) {
            Some(target) => Err(format!("it refers to `{target}`")),
            None => Ok(schema),
        }
    }

    pub(super) fn unusable_schema(&mut self, file: &Yaml, reason: &str) {
        let name = file.text().unwrap_or_default();
        let message = format!("the JSON Schema `{name}` cannot be used: {reason}");
        let place = self.report.place(&file.range);
        let finding = Diagnostic::error("GR113", message).at(place, "named here");
        self.report.push(finding.help("it is a file beside the workflow that refers to no other"));
    }
}

/// What a schema refers to outside of itself.
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
