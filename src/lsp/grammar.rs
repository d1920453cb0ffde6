//! The grammar of a format, that of workflows or of test cases: its JSON Schema, followed along a path.

use serde_json::Value;

use crate::workflow::{Registry, Step, cases_json_schema, json_schema};

/// The JSON Schema of the format.
#[derive(Debug)]
pub(super) struct Grammar(Value);

/// The kind of name that a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A node or a `parallel`.
    Node,
    /// A node, a `parallel`, `end` or `fail`.
    Target,
    Field,
    Agent,
    Model,
    Sandbox,
    Folder,
    /// A tier of memory.
    Tier,
    /// The path of a prompt.
    Prompt,
    Expression,
    Template,
    /// A value of a route's `match`.
    Value,
    /// A registered state.
    State,
    /// A type of a field.
    Type,
    /// The path of a JSON Schema.
    SchemaFile,
    /// The path of a workflow, in a file of test cases.
    Workflow,
    /// The path of a recording.
    Recording,
    /// A field of the state, or the path of a part of it.
    Path,
    /// A value of the field that its key names, or a part of it.
    Data,
    /// A built-in tool, which the schema describes, or one of `tools`.
    Tool,
    /// A word that the schema describes.
    Word,
}

impl Grammar {
    /// Returns the grammar with the kinds of a registry.
    pub(super) fn new(registry: &Registry) -> Self {
        Self(json_schema(registry))
    }

    /// Returns the grammar of files with test cases.
    pub(super) fn of_cases() -> Self {
        Self(cases_json_schema())
    }

    /// Returns the schema of the value at the end of a path.
    pub(super) fn at(&self, path: &[Step]) -> Option<&Value> {
        path.iter().try_fold(&self.0, |schema, step| {
            let found = match step {
                Step::Item(_) => schema.get("items"),
                Step::Key(key) => {
                    // For the long form of a field, the `then` branch of its schema has the keys.
                    let mut parts = [schema.get("then"), Some(schema)].into_iter().flatten();
                    let known = parts.find_map(|it| it.get("properties")?.get(key));
                    known.or_else(|| schema.get("additionalProperties").filter(|it| it.is_object()))
                }
            };
            // Types can be nested in types, and values in values, to any depth.
            let is_nested = matches!(role(schema), Some(Role::Type | Role::Data));
            found.or_else(|| is_nested.then_some(schema))
        })
    }

    /// Returns the kind of name that a key at the end of a path uses or declares.
    pub(super) fn key_role(&self, path: &[Step]) -> Option<Role> {
        let (last, outer) = path.split_last()?;
        let outer = self.at(outer)?;
        // A key of the format beside names of the file.
        let is_key = |key: &str| outer.get("properties").is_some_and(|all| all.get(key).is_some());
        let names = outer.get("propertyNames").and_then(role);
        names.filter(|_| !matches!(last, Step::Key(key) if is_key(key)))
    }

    /// Returns the description of a key at the end of a path; `None` for a name.
    pub(super) fn about_key(&self, path: &[Step]) -> Option<&str> {
        if self.key_role(path).is_some() {
            return None;
        }
        about(self.at(path)?)
    }
}

/// Returns the kind of name for the text of a schema.
pub(super) fn role(schema: &Value) -> Option<Role> {
    let name = schema.get("x-refers").or_else(|| schema.get("x-declares"))?.as_str()?;
    Some(match name {
        "node" => Role::Node,
        "target" => Role::Target,
        "field" => Role::Field,
        "agent" => Role::Agent,
        "model" => Role::Model,
        "sandbox" => Role::Sandbox,
        "folder" => Role::Folder,
        "tier" => Role::Tier,
        "prompt" => Role::Prompt,
        "expression" => Role::Expression,
        "template" => Role::Template,
        "value" => Role::Value,
        "state" => Role::State,
        "type" => Role::Type,
        "schema" => Role::SchemaFile,
        "tool" => Role::Tool,
        "workflow" => Role::Workflow,
        "recording" => Role::Recording,
        "path" => Role::Path,
        "data" => Role::Data,
        "word" => Role::Word,
        _ => return None,
    })
}

/// Returns the description of a schema.
pub(super) fn about(schema: &Value) -> Option<&str> {
    schema.get("description")?.as_str()
}

/// Returns the description of a word that a value can be.
pub(super) fn about_word<'s>(schema: &'s Value, word: &str) -> Option<&'s str> {
    schema.get("x-about")?.get(word)?.as_str()
}

/// Returns the keys of a section, in the order of the format.
pub(super) fn keys(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// Returns the words that a value can be, or examples of them.
pub(super) fn words(schema: &Value) -> Vec<String> {
    let listed = ["enum", "examples"].into_iter().filter_map(|it| schema.get(it)?.as_array());
    let text = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
    listed.flatten().chain(schema.get("const")).map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::registry;

    /// Fails if the format gets a kind of name that this module lacks.
    #[test]
    fn every_role_of_the_format_is_known() {
        let mut names = BTreeSet::new();
        collect(&Grammar::new(&registry()).0, &mut names);
        collect(&Grammar::of_cases().0, &mut names);
        assert!(names.len() >= 10, "{names:?}");
        for name in names {
            let known = role(&serde_json::json!({"x-refers": name})).is_some();
            assert!(known || name == "custom", "{name}");
        }
    }

    fn collect(schema: &Value, names: &mut BTreeSet<String>) {
        match schema {
            Value::Object(keywords) => {
                for (key, value) in keywords {
                    if let ("x-refers" | "x-declares", Value::String(name)) = (key.as_str(), value)
                    {
                        names.insert(name.clone());
                    }
                    collect(value, names);
                }
            }
            Value::Array(items) => items.iter().for_each(|it| collect(it, names)),
            _ => (),
        }
    }

    #[test]
    fn a_path_leads_to_its_part_of_the_format() {
        let grammar = Grammar::new(&registry());
        let path = |keys: &str| -> Vec<Step> {
            let step = |part: &str| match part.parse() {
                Ok(at) => Step::Item(at),
                Err(_) => Step::Key(part.to_owned()),
            };
            keys.split('.').map(step).collect()
        };
        let value = |keys: &str| grammar.at(&path(keys)).and_then(role);
        assert_eq!(value("nodes.x.then"), Some(Role::Target));
        assert_eq!(value("nodes.x.then.3.when"), Some(Role::Expression));
        assert_eq!(value("nodes.x.then.to.approved.0"), Some(Role::Target));
        assert_eq!(value("nodes.x.catch.timeout"), Some(Role::Target));
        assert_eq!(value("nodes.x.prompt.again"), Some(Role::Prompt));
        assert_eq!(value("nodes.x.nonsense"), None);
        assert_eq!(grammar.key_role(&path("nodes.x.set.f")), Some(Role::Field));
        assert_eq!(grammar.key_role(&path("nodes.x.then.to.v")), Some(Role::Value));
        assert_eq!(grammar.about_key(&path("nodes.x")), None);
        assert!(grammar.about_key(&path("state.f.merge")).unwrap().contains("reducer"));
        assert_eq!(
            words(grammar.at(&path("nodes.x.run_tests.runner")).unwrap()),
            ["pytest", "node"]
        );
    }
}
