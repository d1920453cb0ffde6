//! Random values of random schemas: a value of a type that fits another one is valid there.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::{super::lazy_validator::LazyValidator, *};

/// Two schemas, often of the same form.
type Pair = (Value, Value);

/// Returns schemas that differ in details, or else in everything.
fn pair() -> impl Strategy<Value = Pair> {
    let leaves = [
        json!({"type": "boolean"}),
        json!({"type": "integer"}),
        json!({"type": "integer", "minimum": 1, "maximum": 3}),
        json!({"type": "integer", "minimum": 0}),
        json!({"type": "number"}),
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 2.5}),
        json!({"type": "string"}),
        json!({"type": "string", "format": "date"}),
        json!({"type": "string", "format": "duration"}),
        json!({"enum": ["a", "b"]}),
        json!({"enum": ["a"]}),
        json!({"const": "2026-01-31"}),
    ];
    let leaf = prop::sample::select(leaves.to_vec());
    let leaves = prop_oneof![
        3 => leaf.clone().prop_map(|it| (it.clone(), it)),
        3 => (leaf.clone(), leaf.clone()),
        // A type without information fits everything, so only the second one has none.
        1 => leaf.prop_map(|it| (it, json!({}))),
    ];
    leaves.prop_recursive(3, 24, 3, |inner| {
        let record = || prop::collection::vec((inner.clone(), any::<u16>()), 1..4);
        prop_oneof![
            2 => inner.clone().prop_map(|(a, b)| (list(&a), list(&b))),
            1 => inner.clone().prop_map(|(a, b)| (map(&a), map(&b))),
            4 => (record(), any::<u8>()).prop_map(|(fields, flags)| {
                let schema = |of: fn(&Pair) -> &Value, shift| {
                    let field = |(at, (pair, flags)): (usize, &(Pair, u16))| {
                        (at, of(pair).clone(), flags >> shift)
                    };
                    let fields = fields.iter().enumerate().map(field).collect::<Vec<_>>();
                    object(&fields, flags >> shift)
                };
                (schema(|it| &it.0, 0), schema(|it| &it.1, 4))
            }),
            2 => (record(), any::<u8>()).prop_map(|(fields, flags)| {
                let value = map(&fields[0].0.1);
                let field = |(at, (pair, flags)): (usize, &(Pair, u16))| (at, pair.0.clone(), *flags);
                let fields = fields.iter().enumerate().map(field).collect::<Vec<_>>();
                (object(&fields, flags), value)
            }),
            1 => inner.clone().prop_map(|(a, b)| (nullable(&a), nullable(&b))),
            1 => inner.clone().prop_map(|(a, b)| (a, nullable(&b))),
            1 => inner.prop_map(|(a, b)| (nullable(&a), b)),
        ]
    })
}

fn list(item: &Value) -> Value {
    json!({"type": "array", "items": item})
}

fn map(value: &Value) -> Value {
    json!({"type": "object", "additionalProperties": value})
}

fn nullable(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Returns a record of these fields. Flags decide which are there, required or nullable, and whether it is open.
fn object(fields: &[(usize, Value, u16)], flags: u8) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (at, schema, flags) in fields {
        let name = ["a", "b", "c"][*at];
        if flags & 0b1100 == 0b1100 {
            continue;
        }
        if flags & 1 == 0 {
            required.push(name);
        }
        let schema = if flags & 2 == 0 { schema.clone() } else { nullable(schema) };
        properties.insert(name.to_owned(), schema);
    }
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    if flags & 1 == 0 {
        schema["additionalProperties"] = false.into();
    }
    schema
}

/// The choices of which a value is made.
struct Choices(Vec<u8>);

impl Choices {
    fn one(&mut self, below: usize) -> usize {
        usize::from(self.0.pop().unwrap_or_default()) % below
    }

    fn any(&mut self) -> Value {
        let any = [json!(null), json!(7), json!("a"), json!([1]), json!({"a": null}), json!(false)];
        any[self.one(6)].clone()
    }

    /// Returns a value of a schema.
    fn value(&mut self, schema: &Value) -> Value {
        if let Some(options) = schema["anyOf"].as_array() {
            return if self.one(3) == 0 { Value::Null } else { self.value(&options[0]) };
        }
        if let Some(texts) = schema["enum"].as_array() {
            return texts[self.one(texts.len())].clone();
        }
        if let Some(text) = schema.get("const") {
            return text.clone();
        }
        let number = |choices: &mut Self, numbers: &[Value]| {
            let least = schema["minimum"].as_f64().unwrap_or(f64::MIN);
            let above = schema["exclusiveMinimum"].as_f64().unwrap_or(f64::MIN);
            let most = schema["maximum"].as_f64().unwrap_or(f64::MAX);
            let is_in = |it: &&Value| (least..=most).contains(&it.as_f64().unwrap());
            let is_above = |it: &&Value| it.as_f64().unwrap() > above;
            let numbers: Vec<&Value> = numbers.iter().filter(is_in).filter(is_above).collect();
            numbers[choices.one(numbers.len())].clone()
        };
        match schema["type"].as_str() {
            Some("boolean") => (self.one(2) == 0).into(),
            Some("integer") => number(self, &[json!(1), json!(3), json!(0), json!(-5), json!(9)]),
            Some("number") => {
                number(self, &[json!(1), json!(0.5), json!(2.5), json!(-1), json!(9)])
            }
            Some("string") => match schema["format"].as_str() {
                Some("date") => "2026-02-28".into(),
                Some("duration") => "PT5M".into(),
                _ => ["a", "b", "c", "", "2026-01-31"][self.one(5)].into(),
            },
            Some("array") => (0..self.one(3)).map(|_| self.value(&schema["items"])).collect(),
            Some("object") => self.object(schema),
            _ => self.any(),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut made = Map::new();
        let Some(properties) = schema["properties"].as_object() else {
            for name in ["a", "b", "z"] {
                if self.one(2) == 0 {
                    made.insert(name.to_owned(), self.value(&schema["additionalProperties"]));
                }
            }
            return made.into();
        };
        let required = schema["required"].as_array().unwrap();
        for (name, field) in properties {
            if required.contains(&json!(name)) || self.one(2) == 0 {
                made.insert(name.clone(), self.value(field));
            }
        }
        let is_open = schema.get("additionalProperties").is_none();
        for name in ["a", "b", "c", "z"] {
            if is_open && !properties.contains_key(name) && self.one(3) == 0 {
                made.insert(name.to_owned(), self.any());
            }
        }
        made.into()
    }
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    LazyValidator::of(Arc::new(schema.clone())).unwrap().get().is_valid(value)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_value_of_a_type_that_fits_is_valid(
        (schema, declared) in pair(),
        choices in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 8),
    ) {
        let ty = Type::of_schema(&schema);
        let to = Type::of_schema(&declared);
        for choices in choices {
            let value = Choices(choices).value(&schema);
            prop_assert!(is_valid(&schema, &value), "{value} is made for {schema}");
            if ty.fits(&to) {
                prop_assert!(is_valid(&declared, &value), "{value} of {schema} does not fit {declared}");
            }
            if ty.fits_cut(&to) {
                let cut = to.cut(value.clone());
                prop_assert!(is_valid(&declared, &cut), "{cut} is cut of {value} to {declared}");
            }
            prop_assert!(ty.fits(&ty), "{schema} does not fit itself");
        }
    }
}
