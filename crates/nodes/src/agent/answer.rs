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
    fields: Vec<AskedField<'a>>,
    is_wrapped: bool,
}

/// A field of an answer.
#[derive(Clone, Copy, Debug)]
struct AskedField<'a> {
    channel: &'a Channel,
    /// Whether the answer is one item of the list.
    is_item: bool,
}

impl AskedField<'_> {
    fn ty(&self) -> &Type {
        match self.channel.ty().required() {
            Type::List(item) if self.is_item => item.required(),
            ty => ty,
        }
    }

    fn schema(&self) -> Value {
        if self.is_item {
            let mut item = self.channel.item_schema();
            // A model is asked for an object, and not for a reference to one.
            let named =
                item.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
            if let Some(mut definition) = named.and_then(|it| item.pointer(it)).cloned() {
                if let (Some(shared), Some(fields)) =
                    (item.get("$defs"), definition.as_object_mut())
                {
                    fields.insert("$defs".to_owned(), shared.clone());
                }
                item = definition;
            }
            return answer_schema(&item);
        }
        answer_schema(self.channel.schema())
    }
}

impl<'a> AnswerForm<'a> {
    /// Returns the form of an answer with some fields, of which some are lists that it adds one item to.
    pub(super) fn of(
        writes: &[ChannelName],
        writes_one: &[ChannelName],
        schema: &'a Schema,
    ) -> Result<Self, NodeError> {
        let find = |name: &ChannelName| {
            let channel = schema.channel(name.as_str());
            let missing = || NodeError::permanent(format!("the state has no field `{name}`"));
            let is_item = writes_one.contains(name);
            Ok::<_, NodeError>(AskedField { channel: channel.ok_or_else(missing)?, is_item })
        };
        let fields = writes.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let is_object = |it: &AskedField<'_>| matches!(it.ty(), Type::Record(_) | Type::Map(_));
        let is_wrapped = fields.len() != 1 || !fields.iter().all(is_object);
        Ok(Self { fields, is_wrapped })
    }

    /// Returns the single field that takes any text; then no structure is requested.
    pub(super) fn as_text(&self) -> Option<&'a ChannelName> {
        match self.fields.as_slice() {
            [field] if *field.ty() == Type::String => Some(field.channel.name()),
            _ => None,
        }
    }

    /// Returns the schema for the model: without the computed properties.
    pub(super) fn schema(&self, name: &str) -> OutputSchema {
        let name = name.to_owned();
        if let ([field], false) = (self.fields.as_slice(), self.is_wrapped) {
            return OutputSchema { name, schema: field.schema() };
        }
        let mut properties = Map::new();
        let mut definitions = Map::new();
        for field in &self.fields {
            let mut schema = field.schema();
            if let Some(Value::Object(more)) =
                schema.as_object_mut().and_then(|it| it.shift_remove("$defs"))
            {
                definitions.extend(more);
            }
            properties.insert(field.channel.name().to_string(), schema);
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
        let mut update = Update::default();
        let mut warnings = Vec::new();
        let mut problems = Vec::new();
        let mut parts = self.parts(answer)?;
        for field in &self.fields {
            let name = field.channel.name();
            let Some(part) = parts.shift_remove(name.as_str()) else {
                problems.push(format!("{name}: missing"));
                continue;
            };
            let at = |it: String| if self.is_wrapped { format!("{name}: {it}") } else { it };
            match read_part(*field, part) {
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
        match (self.fields.as_slice(), answer) {
            ([field], answer) if !self.is_wrapped => {
                Ok(Map::from_iter([(field.channel.name().to_string(), answer)]))
            }
            // A model asked for `{"items": […]}` may return the list alone, which means the same.
            ([field], answer) if answer.get(field.channel.name().as_str()).is_none() => {
                Ok(Map::from_iter([(field.channel.name().to_string(), answer)]))
            }
            (_, Value::Object(parts)) => Ok(parts),
            (_, other) => {
                let names: Vec<String> =
                    self.fields.iter().map(|it| it.channel.name().to_string()).collect();
                let got = match other {
                    Value::Array(_) => "a list",
                    _ => "a single value",
                };
                Err(vec![format!("expected an object with {}, got {got}", names.join(", "))])
            }
        }
    }
}

fn read_part(field: AskedField<'_>, part: Value) -> Result<(Value, Vec<String>), Vec<String>> {
    let AskedField { channel, is_item } = field;
    let part = if is_item { Value::Array(vec![part]) } else { part };
    let (value, warnings) = match channel.reader() {
        Some(reader) => {
            let reading = reader(part).map_err(|error| error.problems)?;
            (reading.value, reading.warnings)
        }
        None => (part, Vec::new()),
    };
    channel.check(&value)?;
    let value = match value {
        // An item is written without the list, unless it is a list itself.
        Value::Array(mut items) if is_item && !items[0].is_array() => items.remove(0),
        value => value,
    };
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
            AnswerForm::of(&names(&["clarified_requirements", "user_stories"]), &[], &schema)
                .unwrap();
        let asked = answer.schema("ba").schema;
        assert_eq!(asked["required"], json!(["clarified_requirements", "user_stories"]));
        assert!(asked["$defs"]["UserStory"].is_object(), "{asked}");
        let problems = answer.read(json!({"user_stories": [{"title": 3}]})).unwrap_err();
        assert_eq!(problems[0], "clarified_requirements: missing");
        assert!(problems[1].starts_with("user_stories: "), "{problems:?}");
    }

    #[test]
    fn one_item_of_a_list_is_requested_by_its_own_type() {
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let notes = json!({
            "type": "array",
            "items": {"$ref": "#/$defs/Note"},
            "$defs": {"Note": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            }},
        });
        let list = |name: &str, schema| {
            Channel::new(names(&[name]).remove(0), schema, Reducer::Append).unwrap()
        };
        let schema = Schema::new([list("texts", texts), list("notes", notes)]).unwrap();
        let one = |name: &str| AnswerForm::of(&names(&[name]), &names(&[name]), &schema).unwrap();
        assert_eq!(one("texts").as_text().unwrap().as_str(), "texts");
        assert_eq!(one("notes").schema("n").schema["type"], "object");
        let (update, _) = one("notes").read(json!({"text": "a"})).unwrap();
        assert_eq!(*update.writes[0].1, json!({"text": "a"}));
        assert!(one("notes").read(json!([{"text": "a"}, {"text": "b"}])).is_err());
        let both = names(&["texts", "notes"]);
        let answer = AnswerForm::of(&both, &names(&["texts"]), &schema).unwrap();
        let (update, _) = answer.read(json!({"texts": "a", "notes": []})).unwrap();
        assert_eq!(*update.writes[0].1, json!("a"));
    }

    #[test]
    fn computed_fields_are_not_requested_and_not_trusted() {
        let schema = TeamState::schema();
        let answer = AnswerForm::of(&names(&["candidate"]), &[], &schema).unwrap();
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
        let answer = AnswerForm::of(&names(&["report"]), &[], &schema).unwrap();
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
        let text = AnswerForm::of(&names(&["clarified_requirements"]), &[], &schema).unwrap();
        assert_eq!(text.as_text().unwrap().as_str(), "clarified_requirements");
        let object = AnswerForm::of(&names(&["review"]), &[], &schema).unwrap();
        assert!(object.as_text().is_none());
    }
}
