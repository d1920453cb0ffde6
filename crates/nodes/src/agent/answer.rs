//! The requested answer of an agent: the types of the fields it writes.

use graphrun_core::{
    graph::NodeError,
    id::ChannelName,
    state::{Channel, Schema, Type, Update},
};
use graphrun_models::{OutputSchema, answer_schema};
use serde_json::{Map, Value, json};

/// The fields of an answer.
///
/// A single record field is the answer itself. Several fields, a list or a single value become
/// properties of an object, because structured output requires an object.
#[derive(Debug)]
pub(super) struct AnswerForm<'a> {
    channels: Vec<&'a Channel>,
    is_wrapped: bool,
}

impl<'a> AnswerForm<'a> {
    pub(super) fn of(writes: &[ChannelName], schema: &'a Schema) -> Result<Self, NodeError> {
        let find = |name: &ChannelName| {
            schema
                .channel(name.as_str())
                .ok_or_else(|| NodeError::permanent(format!("the state has no field `{name}`")))
        };
        let channels = writes.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let is_object =
            |it: &&Channel| matches!(it.ty().required(), Type::Record(_) | Type::Map(_));
        let is_wrapped = channels.len() != 1 || !channels.iter().all(is_object);
        Ok(Self { channels, is_wrapped })
    }

    /// Returns the single field that takes any text; then no structure is requested.
    pub(super) fn as_text(&self) -> Option<&'a ChannelName> {
        match self.channels.as_slice() {
            [channel] if *channel.ty().required() == Type::String => Some(channel.name()),
            _ => None,
        }
    }

    /// Returns the schema for the model: without the computed properties.
    pub(super) fn schema(&self, name: &str) -> OutputSchema {
        let name = name.to_owned();
        if let ([channel], false) = (self.channels.as_slice(), self.is_wrapped) {
            return OutputSchema { name, schema: answer_schema(channel.schema()) };
        }
        let mut properties = Map::new();
        let mut definitions = Map::new();
        for channel in &self.channels {
            let mut schema = answer_schema(channel.schema());
            if let Some(Value::Object(more)) =
                schema.as_object_mut().and_then(|it| it.shift_remove("$defs"))
            {
                definitions.extend(more);
            }
            properties.insert(channel.name().to_string(), schema);
        }
        let required: Vec<&String> = properties.keys().collect();
        let mut schema = json!({
            "type": "object",
            "required": required,
            "properties": properties,
            "additionalProperties": false,
        });
        if !definitions.is_empty() {
            schema["$defs"] = Value::Object(definitions);
        }
        OutputSchema { name, schema }
    }

    /// Reads an answer into the fields. Also returns the tolerated deviations.
    pub(super) fn read(&self, answer: Value) -> Result<(Update, Vec<String>), Vec<String>> {
        let (mut update, mut warnings, mut problems) = (Update::default(), Vec::new(), Vec::new());
        let mut parts = self.parts(answer)?;
        for channel in &self.channels {
            let name = channel.name();
            let Some(part) = parts.shift_remove(name.as_str()) else {
                problems.push(format!("{name}: missing"));
                continue;
            };
            let at = |it: String| if self.is_wrapped { format!("{name}: {it}") } else { it };
            match read_part(channel, part) {
                Ok((value, overlooked)) => {
                    warnings.extend(overlooked.into_iter().map(at));
                    update = update.write(name.clone(), value);
                }
                Err(wrong) => problems.extend(wrong.into_iter().map(at)),
            }
        }
        warnings.extend(parts.keys().map(|it| format!("{it}: not requested, and ignored")));
        if problems.is_empty() { Ok((update, warnings)) } else { Err(problems) }
    }

    /// Returns the answer by field.
    fn parts(&self, answer: Value) -> Result<Map<String, Value>, Vec<String>> {
        match (self.channels.as_slice(), answer) {
            ([channel], answer) if !self.is_wrapped => {
                Ok(Map::from_iter([(channel.name().to_string(), answer)]))
            }
            // A model asked for `{"items": […]}` may return the list alone, which means the same.
            ([channel], answer) if answer.get(channel.name().as_str()).is_none() => {
                Ok(Map::from_iter([(channel.name().to_string(), answer)]))
            }
            (_, Value::Object(parts)) => Ok(parts),
            (_, other) => {
                let names: Vec<String> =
                    self.channels.iter().map(|it| it.name().to_string()).collect();
                let got = match other {
                    Value::Array(_) => "a list",
                    _ => "a single value",
                };
                Err(vec![format!("expected an object with {}, got {got}", names.join(", "))])
            }
        }
    }
}

fn read_part(channel: &Channel, part: Value) -> Result<(Value, Vec<String>), Vec<String>> {
    let (value, warnings) = match channel.reader() {
        Some(reader) => {
            let reading = reader(part).map_err(|error| error.problems)?;
            (reading.value, reading.warnings)
        }
        None => (part, Vec::new()),
    };
    channel.check(&value)?;
    Ok((value, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphrun_core::state::Reducer;
    use graphrun_team::TeamState;
    fn names(names: &[&str]) -> Vec<ChannelName> {
        names.iter().map(|it| ChannelName::parse(it).unwrap()).collect()
    }

    #[test]
    fn several_fields_are_the_named_parts_of_one_object() {
        let schema = TeamState::schema();
        let answer =
            AnswerForm::of(&names(&["clarified_requirements", "user_stories"]), &schema).unwrap();
        let asked = answer.schema("ba").schema;
        assert_eq!(asked["required"], json!(["clarified_requirements", "user_stories"]));
        assert!(asked["$defs"]["UserStory"].is_object(), "{asked}");
        let problems = answer.read(json!({"user_stories": [{"title": 3}]})).unwrap_err();
        assert_eq!(problems[0], "clarified_requirements: missing");
        assert!(problems[1].starts_with("user_stories: "), "{problems:?}");
    }

    #[test]
    fn computed_fields_are_not_requested_and_not_trusted() {
        let schema = TeamState::schema();
        let answer = AnswerForm::of(&names(&["candidate"]), &schema).unwrap();
        let asked = answer.schema("sse").schema;
        assert!(asked["properties"].get("test_result").is_none(), "{asked}");
        let claims = json!({
            "artifact_id": "CODE-001",
            "files": [{
                "file_path": "a.py", "file_type": "implementation", "content": "print('hello')",
                "description": "", "story_ids": ["US-1"],
            }],
            "test_result": {"passed": true, "passed_count": 99},
            "stories_covered": ["US-7"],
        });
        let (update, _) = answer.read(claims).unwrap();
        let written = &update.writes[0].1;
        assert_eq!(written["stories_covered"], json!(["US-1"]));
        assert_eq!(written["test_result"], Value::Null);
    }

    #[test]
    fn a_lenient_field_takes_forms_with_one_meaning() {
        let report = json!({
            "type": "object",
            "properties": {
                "verdict": {"type": "string", "enum": ["pass", "needs_work"], "default": "needs_work"},
                "score": {"type": "integer", "maximum": 10},
            },
            "required": ["verdict", "score"],
            "additionalProperties": false,
            "x-lenient": true,
        });
        let channel = Channel::new(names(&["report"]).remove(0), report, Reducer::Replace).unwrap();
        let schema = Schema::new([channel]).unwrap();
        let answer = AnswerForm::of(&names(&["report"]), &schema).unwrap();
        let given = json!({"verdict": "unclear", "score": "3", "mood": "good"});
        let (update, warnings) = answer.read(given).unwrap();
        assert_eq!(*update.writes[0].1, json!({"verdict": "needs_work", "score": 3}));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        let problems = answer.read(json!({"verdict": "PASS", "score": "11"})).unwrap_err();
        assert!(problems[0].contains("maximum of 10"), "{problems:?}");
    }

    #[test]
    fn a_text_field_is_asked_for_as_plain_text() {
        let schema = TeamState::schema();
        let text = AnswerForm::of(&names(&["clarified_requirements"]), &schema).unwrap();
        assert_eq!(text.as_text().unwrap().as_str(), "clarified_requirements");
        let object = AnswerForm::of(&names(&["review"]), &schema).unwrap();
        assert!(object.as_text().is_none());
    }
}
