//! The types of channels, as the expressions and prompts of a workflow see them.

use std::{cell::Cell, collections::BTreeSet, fmt, sync::Arc};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::{NumberRange, is_date, is_duration, schema_size};

/// The maximum depth of a type; below it, a recursive type is [`Type::Any`].
const DEPTH_MAX: usize = 16;
/// The maximum number of parts of a type for each node of its schema, and the number that is always allowed.
const PARTS_PER_NODE: u64 = 8;
const PARTS_MIN: u64 = 64;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// No information.
    Any,
    /// True or false.
    Bool,
    /// A whole number in a range.
    Int(NumberRange),
    /// A number in a range.
    Float(NumberRange),
    /// A text.
    String,
    /// A day, such as `2026-01-31`.
    Date,
    /// A span of time, such as `PT90M`.
    Duration,
    /// One of a few texts.
    Enum(Vec<String>),
    /// Any number of values of one type.
    List(Box<Self>),
    /// Values of one type by any key.
    Map(Box<Self>),
    /// Named fields.
    Record(Arc<Record>),
    /// A value that may be null or absent.
    Optional(Box<Self>),
}

/// Named fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The name of the type, if it has one.
    pub name: Option<String>,
    /// The fields in the order they were declared.
    pub fields: Vec<Field>,
    /// Whether its values have these fields and no others.
    pub is_closed: bool,
}

/// Numbers of a value that a declared type does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The fields that lead to the number, such as `plan.level`; empty for the value itself.
    pub path: String,
    /// The numbers that the value may have.
    pub found: NumberRange,
    /// The numbers that the declared type takes.
    pub declared: NumberRange,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type; [`Type::Optional`] if it may be absent.
    pub ty: Type,
}

impl Type {
    /// Any whole number.
    pub const INT: Self = Self::Int(NumberRange::ALL);
    /// Any number.
    pub const FLOAT: Self = Self::Float(NumberRange::ALL);

    /// Returns the type of the values that a Rust type is read from.
    pub fn of<T: JsonSchema + ?Sized>() -> Self {
        let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        Self::of_schema(generator.into_root_schema_for::<T>().as_value())
    }

    /// Returns the type of the values that a Rust type is written as.
    pub fn of_written<T: JsonSchema + ?Sized>() -> Self {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        Self::of_schema(generator.into_root_schema_for::<T>().as_value())
    }

    /// Returns the type that a JSON Schema describes.
    ///
    /// Details without an equivalent here (patterns, lengths, unions of records) are checked only against the
    /// schema itself.
    pub fn of_schema(schema: &Value) -> Self {
        TypeReader::of(schema, false).read(schema, 0)
    }

    /// Returns the same for a reader that fills in omitted fields with their defaults.
    pub(crate) fn of_filled(schema: &Value) -> Self {
        TypeReader::of(schema, true).read(schema, 0)
    }

    /// Returns whether each value of this type can be assigned to a declared type.
    pub fn fits(&self, declared: &Self) -> bool {
        self.fits_cut(declared) && self.undeclared_field(declared).is_none()
    }

    /// Returns whether each value of this type can be assigned to a declared type once it is [cut](Self::cut) to it.
    pub fn fits_cut(&self, declared: &Self) -> bool {
        self.has_form_of(declared) && self.out_of_range(declared).is_none()
    }

    /// Returns whether each value of this type can be assigned to a declared type, apart from undeclared fields and
    /// the ranges of numbers.
    fn has_form_of(&self, declared: &Self) -> bool {
        match (self, declared) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Optional(value), Self::Optional(declared)) => value.has_form_of(declared),
            (value, Self::Optional(declared)) => value.has_form_of(declared),
            (Self::Int(_), Self::Int(_) | Self::Float(_))
            | (Self::Float(_), Self::Float(_))
            | (Self::Enum(_) | Self::Date | Self::Duration, Self::String) => true,
            (Self::Enum(texts), Self::Date) => texts.iter().all(|it| is_date(it)),
            (Self::Enum(texts), Self::Duration) => texts.iter().all(|it| is_duration(it)),
            (Self::Enum(values), Self::Enum(declared)) => {
                values.iter().all(|it| declared.contains(it))
            }
            (Self::List(value), Self::List(declared)) | (Self::Map(value), Self::Map(declared)) => {
                value.has_form_of(declared)
            }
            // An open record may have fields of any type.
            (Self::Record(value), Self::Map(declared)) => {
                (value.is_closed || **declared == Self::Any)
                    && value.fields.iter().all(|it| it.ty.required().has_form_of(declared))
            }
            (Self::Record(value), Self::Record(declared)) => declared.fields.iter().all(|field| {
                let found = value.fields.iter().find(|it| it.name == field.name);
                found.map_or(matches!(field.ty, Self::Optional(_)), |it| {
                    it.ty.has_form_of(&field.ty)
                })
            }),
            (value, declared) => value == declared,
        }
    }

    /// Returns whether no value but null, an empty list or an empty map is of both types.
    ///
    /// The ranges of numbers are not compared, and an integer may be a number with a fraction of zero. An open record may
    /// have fields that its type does not name, so only a closed one lacks a field. A type with an unknown part excludes
    /// nothing by it.
    ///
    /// ```
    /// use graphrun_core::state::Type;
    ///
    /// assert!(Type::of::<Vec<u8>>().excludes(&Type::of::<Vec<String>>()));
    /// assert!(!Type::of::<Option<u8>>().excludes(&Type::of::<f64>()));
    /// ```
    pub fn excludes(&self, other: &Self) -> bool {
        match (self.required(), other.required()) {
            (Self::Any, _)
            | (_, Self::Any)
            | (Self::Bool, Self::Bool)
            | (Self::Int(_) | Self::Float(_), Self::Int(_) | Self::Float(_)) => false,
            (Self::Enum(texts), Self::Enum(others)) => texts.iter().all(|it| !others.contains(it)),
            (Self::Enum(texts), Self::Date) | (Self::Date, Self::Enum(texts)) => {
                !texts.iter().any(|it| is_date(it))
            }
            (Self::Enum(texts), Self::Duration) | (Self::Duration, Self::Enum(texts)) => {
                !texts.iter().any(|it| is_duration(it))
            }
            (one, another) if one.is_text() && another.is_text() => false,
            (Self::List(one), Self::List(another)) | (Self::Map(one), Self::Map(another)) => {
                one.excludes(another)
            }
            (Self::Record(record), Self::Map(value)) | (Self::Map(value), Self::Record(record)) => {
                record.fields.iter().any(|it| it.ty.excludes(value))
            }
            (Self::Record(one), Self::Record(another)) => {
                one.lacks_field_of(another)
                    || another.lacks_field_of(one)
                    || one.fields.iter().any(|field| {
                        let found = another.fields.iter().find(|it| it.name == field.name);
                        found.is_some_and(|it| it.ty.excludes(&field.ty))
                    })
            }
            _ => true,
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::String | Self::Date | Self::Duration | Self::Enum(_))
    }

    /// Returns numbers of this type that a declared type of this form does not take.
    pub fn out_of_range(&self, declared: &Self) -> Option<OutOfRange> {
        match (self.required(), declared.required()) {
            (Self::Int(found) | Self::Float(found), Self::Int(range) | Self::Float(range)) => {
                let found = *found;
                let declared = *range;
                let path = String::new();
                (!declared.includes(found)).then_some(OutOfRange { path, found, declared })
            }
            (Self::List(value), Self::List(declared)) | (Self::Map(value), Self::Map(declared)) => {
                value.out_of_range(declared)
            }
            (Self::Record(value), Self::Map(declared)) => {
                value.fields.iter().find_map(|it| it.around(it.ty.out_of_range(declared)))
            }
            (Self::Record(value), Self::Record(declared)) => {
                declared.fields.iter().find_map(|it| {
                    let found = value.fields.iter().find(|field| field.name == it.name)?;
                    it.around(found.ty.out_of_range(&it.ty))
                })
            }
            _ => None,
        }
    }

    /// Returns the path of a field that values of this type may have and a closed record of the declared type has
    /// not, such as `owner.age`.
    pub fn undeclared_field(&self, declared: &Self) -> Option<String> {
        match (self.required(), declared.required()) {
            (Self::List(value), Self::List(declared)) | (Self::Map(value), Self::Map(declared)) => {
                value.undeclared_field(declared)
            }
            (Self::Record(value), Self::Map(declared)) => {
                value.fields.iter().find_map(|it| it.below(it.ty.undeclared_field(declared)))
            }
            (Self::Record(value), Self::Record(declared)) => value.fields.iter().find_map(|it| {
                match declared.fields.iter().find(|field| field.name == it.name) {
                    Some(field) => it.below(it.ty.undeclared_field(&field.ty)),
                    None => declared.is_closed.then(|| it.name.clone()),
                }
            }),
            _ => None,
        }
    }

    /// Returns a value without the fields that closed records of this type do not have.
    pub fn cut(&self, value: Value) -> Value {
        match (self.required(), value) {
            (Self::List(item), Value::Array(items)) => {
                items.into_iter().map(|it| item.cut(it)).collect()
            }
            (Self::Map(item), Value::Object(fields)) => {
                fields.into_iter().map(|(name, it)| (name, item.cut(it))).collect()
            }
            (Self::Record(record), Value::Object(fields)) => {
                let cut = fields.into_iter().filter_map(|(name, it)| {
                    match record.fields.iter().find(|field| field.name == name) {
                        Some(field) => Some((name, field.ty.cut(it))),
                        None => (!record.is_closed).then_some((name, it)),
                    }
                });
                cut.collect()
            }
            (_, value) => value,
        }
    }

    /// Returns the type of a part of a value: any fields of its records may be absent.
    #[must_use]
    pub fn partial(&self) -> Self {
        match self {
            Self::Optional(inner) => inner.partial().optional(),
            Self::Map(value) => Self::Map(Box::new(value.partial().optional())),
            Self::Record(record) => {
                let fields = record.fields.iter().map(|it| {
                    let ty = it.ty.partial().optional();
                    Field { name: it.name.clone(), ty }
                });
                let fields = fields.collect();
                Self::Record(Arc::new(Record { fields, ..Record::clone(record) }))
            }
            other => other.clone(),
        }
    }

    /// Returns the path of a field that is missing after values of this type are merged into a field of the declared type,
    /// which has a complete value already or may have none.
    pub(super) fn missing_field(&self, declared: &Self, has_value: bool) -> Option<String> {
        match (self.required(), declared.required()) {
            (Self::Record(part), Self::Record(declared)) => declared.fields.iter().find_map(|it| {
                let may_be_missing = matches!(it.ty, Self::Optional(_) | Self::Any);
                let found = part.fields.iter().find(|field| field.name == it.name);
                let is_certain = found.is_some_and(|it| !matches!(it.ty, Self::Optional(_)));
                if !(has_value || may_be_missing || is_certain) {
                    return Some(it.name.clone());
                }
                it.below(found?.ty.missing_field(&it.ty, has_value && !may_be_missing))
            }),
            // A key may be new.
            (Self::Record(part), Self::Map(declared)) => {
                part.fields.iter().find_map(|it| it.below(it.ty.missing_field(declared, false)))
            }
            (Self::Map(part), Self::Map(declared)) => {
                part.missing_field(declared, false).map(|it| format!("*.{it}"))
            }
            _ => None,
        }
    }

    /// Returns the type of the numbers of this type that never take a sum of them out of its range: with a largest number,
    /// none is above zero.
    #[must_use]
    pub(super) fn summand(&self) -> Self {
        let of = |range: NumberRange| NumberRange {
            min: range.min.map(|it| it.max(0.0)),
            max: range.max.map(|it| it.min(0.0)),
        };
        match self {
            Self::Int(range) => Self::Int(of(*range)),
            Self::Float(range) => Self::Float(of(*range)),
            other => other.clone(),
        }
    }

    /// Returns this type without the allowance for null.
    pub fn required(&self) -> &Self {
        match self {
            Self::Optional(inner) => inner.required(),
            other => other,
        }
    }

    /// Returns whether the values are numbers.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Float(_))
    }

    /// Returns the range of a number.
    pub fn range(&self) -> Option<NumberRange> {
        match self {
            Self::Int(range) | Self::Float(range) => Some(*range),
            _ => None,
        }
    }

    /// Returns the type of a field of this record.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self.required() {
            Self::Record(record) => {
                record.fields.iter().find(|it| it.name == name).map(|it| &it.ty)
            }
            Self::Map(value) => Some(value),
            _ => None,
        }
    }

    /// Returns this type with an allowance for null.
    #[must_use]
    pub fn optional(self) -> Self {
        match self {
            Self::Any | Self::Optional(_) => self,
            other => Self::Optional(Box::new(other)),
        }
    }
}

impl Record {
    /// Returns whether it is closed and has no field that each value of another record has.
    fn lacks_field_of(&self, other: &Self) -> bool {
        let has = |name: &str| self.fields.iter().any(|it| it.name == name);
        let is_lacking =
            |it: &Field| !matches!(it.ty, Type::Optional(_) | Type::Any) && !has(&it.name);
        self.is_closed && other.fields.iter().any(is_lacking)
    }
}

impl Field {
    /// Returns the path of a field below this one.
    fn below(&self, field: Option<String>) -> Option<String> {
        field.map(|it| format!("{}.{it}", self.name))
    }

    /// Returns numbers in the value of this field, with their path from its record.
    fn around(&self, found: Option<OutOfRange>) -> Option<OutOfRange> {
        let mut found = found?;
        found.path = match found.path.as_str() {
            "" => self.name.clone(),
            path => format!("{}.{path}", self.name),
        };
        Some(found)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("json"),
            Self::Bool => f.write_str("bool"),
            Self::Int(_) => f.write_str("int"),
            Self::Float(_) => f.write_str("float"),
            Self::String => f.write_str("string"),
            Self::Date => f.write_str("date"),
            Self::Duration => f.write_str("duration"),
            Self::Enum(values) => f.write_str(&values.join(" | ")),
            Self::List(item) => write!(f, "[{item}]"),
            Self::Map(value) => write!(f, "map[string, {value}]"),
            Self::Optional(inner) => write!(f, "{inner}?"),
            Self::Record(record) => {
                if let Some(name) = &record.name {
                    return f.write_str(name);
                }
                let fields = record.fields.iter().map(|it| format!("{}: {}", it.name, it.ty));
                write!(f, "{{{}}}", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Reads schemas that refer to definitions of one root.
struct TypeReader<'a> {
    root: &'a Value,
    /// Whether omitted fields are filled in with their defaults.
    fills: bool,
    /// The number of parts of the type that may still be made.
    parts_left: Cell<u64>,
}

impl<'a> TypeReader<'a> {
    fn of(root: &'a Value, fills: bool) -> Self {
        // A type that contains itself several times doubles with each level; any other type has fewer parts
        // than its schema has nodes.
        let parts = schema_size(root).map_or(0, |it| PARTS_PER_NODE * it + PARTS_MIN);
        Self { root, fills, parts_left: Cell::new(parts) }
    }

    fn read(&self, schema: &Value, depth: usize) -> Type {
        let Value::Object(schema) = schema else { return Type::Any };
        let Some(left) = self.parts_left.get().checked_sub(1) else { return Type::Any };
        self.parts_left.set(left);
        if depth > DEPTH_MAX {
            return Type::Any;
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let target = reference.strip_prefix('#').and_then(|it| self.root.pointer(it));
            let ty = target.map_or(Type::Any, |it| self.read(it, depth + 1));
            return named(ty, name);
        }
        if let Some(values) = schema.get("enum").and_then(texts) {
            return Type::Enum(values);
        }
        if let Some(value) = schema.get("const").and_then(Value::as_str) {
            return Type::Enum(vec![value.to_owned()]);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(options)) = schema.get(key) {
                return self.read_options(options, depth);
            }
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.read_named(name, schema, depth),
            Some(Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                match names.as_slice() {
                    [one, "null"] | ["null", one] => self.read_named(one, schema, depth).optional(),
                    _ => Type::Any,
                }
            }
            _ => Type::Any,
        }
    }

    fn read_named(&self, name: &str, schema: &Map<String, Value>, depth: usize) -> Type {
        match name {
            "boolean" => Type::Bool,
            "integer" => Type::Int(NumberRange::of_schema(schema, true)),
            "number" => Type::Float(NumberRange::of_schema(schema, false)),
            "string" => match schema.get("format").and_then(Value::as_str) {
                Some("date") => Type::Date,
                Some("duration") => Type::Duration,
                _ => Type::String,
            },
            "array" => {
                let item = schema.get("items").map_or(Type::Any, |it| self.read(it, depth + 1));
                Type::List(Box::new(item))
            }
            "object" => self.read_object(schema, depth),
            _ => Type::Any,
        }
    }

    fn read_object(&self, schema: &Map<String, Value>, depth: usize) -> Type {
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return match schema.get("additionalProperties") {
                Some(value @ Value::Object(_)) => Type::Map(Box::new(self.read(value, depth + 1))),
                _ => Type::Map(Box::new(Type::Any)),
            };
        };
        if self.parts_left.get() < properties.len() as u64 {
            return Type::Any;
        }
        let required: BTreeSet<String> =
            schema.get("required").and_then(texts).unwrap_or_default().into_iter().collect();
        let field = |(name, schema): (&String, &Value)| {
            let ty = self.read(schema, depth + 1);
            let is_filled = self.fills && schema.get("default").is_some();
            let always = required.contains(name) || is_filled;
            Field { name: name.clone(), ty: if always { ty } else { ty.optional() } }
        };
        let name = schema.get("title").and_then(Value::as_str).map(str::to_owned);
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        let fields = properties.iter().map(field).collect();
        Type::Record(Arc::new(Record { name, fields, is_closed }))
    }

    fn read_options(&self, options: &[Value], depth: usize) -> Type {
        let is_null = |it: &Value| it.get("type").and_then(Value::as_str) == Some("null");
        let (nulls, others): (Vec<&Value>, Vec<&Value>) =
            options.iter().partition(|it| is_null(it));
        let types: Vec<Type> = others.iter().map(|it| self.read(it, depth + 1)).collect();
        let ty = match types.as_slice() {
            [one] => one.clone(),
            many => all_enums(many).map_or(Type::Any, Type::Enum),
        };
        if nulls.is_empty() { ty } else { ty.optional() }
    }
}

/// Returns the texts of several enums. schemars writes an enum with documented variants this way.
fn all_enums(types: &[Type]) -> Option<Vec<String>> {
    let mut values = Vec::new();
    for ty in types {
        let Type::Enum(more) = ty else { return None };
        values.extend(more.iter().cloned());
    }
    (!values.is_empty()).then_some(values)
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|it| it.as_str().map(str::to_owned)).collect()
}

fn named(ty: Type, name: &str) -> Type {
    match ty {
        Type::Record(record) if record.name.is_none() => {
            let record = Record { name: Some(name.to_owned()), ..Record::clone(&record) };
            Type::Record(Arc::new(record))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is of interest")]
    enum Verdict {
        /// Documented, so that schemars writes `oneOf`.
        Approved,
        Rework,
    }

    #[derive(Serialize, JsonSchema)]
    struct Review {
        verdict: Verdict,
        score: Option<f64>,
        issues: Vec<String>,
    }

    fn closed(fields: &[(&str, Type)]) -> Type {
        let field = |(name, ty): &(&str, Type)| Field { name: (*name).to_owned(), ty: ty.clone() };
        let fields = fields.iter().map(field).collect();
        Type::Record(Arc::new(Record { name: None, fields, is_closed: true }))
    }

    #[test]
    fn a_value_with_undeclared_fields_fits_once_it_is_cut() {
        let list = |it: Type| Type::List(Box::new(it));
        let small =
            list(closed(&[("a", Type::INT), ("b", closed(&[("x", Type::INT)]).optional())]));
        let inner = closed(&[("x", Type::INT), ("y", Type::INT)]);
        let big = list(closed(&[("a", Type::INT), ("b", inner), ("c", Type::Bool)]));
        assert!(big.fits_cut(&small) && !big.fits(&small) && !small.fits_cut(&big));
        assert_eq!(big.undeclared_field(&small).as_deref(), Some("b.y"));
        let value = json!([{"a": 1, "b": {"x": 2, "y": 3}, "c": true}]);
        assert_eq!(small.cut(value.clone()), json!([{"a": 1, "b": {"x": 2}}]));
        assert_eq!(big.cut(value.clone()), value);

        let open = Type::of::<Review>();
        let more = json!({"verdict": "rework", "score": 1, "issues": [], "more": 1});
        assert_eq!(open.cut(more.clone()), more, "an open record keeps all fields");
    }

    #[test]
    fn types_exclude_each_other_if_no_value_is_of_both() {
        let excludes = |one: &Type, another: &Type| {
            assert_eq!(one.excludes(another), another.excludes(one), "{one} and {another}");
            one.excludes(another)
        };
        let list = |it: Type| Type::List(Box::new(it));
        let words =
            |values: &[&str]| Type::Enum(values.iter().map(|it| (*it).to_owned()).collect());
        let narrow = Type::of_schema(&json!({"type": "integer", "minimum": 7}));
        let (point, far) =
            (closed(&[("x", Type::INT)]), closed(&[("x", Type::INT), ("y", Type::INT)]));
        let open = |fields: &[(&str, Type)]| match closed(fields) {
            Type::Record(it) => {
                Type::Record(Arc::new(Record { is_closed: false, ..Record::clone(&it) }))
            }
            other => other,
        };

        for (one, another) in [
            (Type::INT, Type::String),
            (Type::INT.optional(), Type::Bool),
            (list(Type::INT), list(Type::String)),
            (list(Type::INT), Type::INT),
            (words(&["a", "b"]), words(&["c"])),
            (words(&["a"]), Type::Date),
            (point.clone(), far.clone()),
            (open(&[("x", Type::String)]), point.clone()),
            (Type::Map(Box::new(Type::Bool)), point.clone()),
        ] {
            assert!(excludes(&one, &another), "{one} and {another}");
        }
        for (one, another) in [
            (Type::Any, Type::String),
            (list(Type::Any), list(Type::String)),
            (Type::INT.optional(), Type::FLOAT),
            (narrow, Type::INT),
            (words(&["a", "b"]), words(&["b"])),
            (words(&["a"]), Type::String),
            (words(&["2026-01-31"]), Type::Date),
            (point.clone(), open(&[])),
            (open(&[("y", Type::INT)]), open(&[("x", Type::INT)])),
            (closed(&[("x", Type::INT), ("y", Type::INT.optional())]), point),
        ] {
            assert!(!excludes(&one, &another), "{one} and {another}");
        }
        assert!(!excludes(&open(&[("x", Type::INT)]), &far));
    }

    #[test]
    fn a_number_fits_only_in_a_range_that_includes_its_own() {
        let of = |schema| Type::of_schema(&schema);
        let grade = of(json!({"type": "integer", "minimum": 1, "maximum": 6}));
        let count = of(json!({"type": "integer", "minimum": 0}));
        assert!(grade.fits(&count) && grade.fits(&Type::INT) && grade.fits(&Type::FLOAT));
        assert!(!count.fits(&grade) && !Type::INT.fits(&count) && !Type::FLOAT.fits(&Type::INT));
        assert!(!count.clone().optional().fits(&grade.clone().optional()));

        let plan = |level: &Type| closed(&[("level", level.clone()), ("x", Type::Bool)]);
        let plans = |level: &Type| closed(&[("all", Type::List(Box::new(plan(level))))]);
        assert!(plans(&grade).fits(&plans(&count)) && !plans(&count).fits(&plans(&grade)));
        let found = plans(&count).out_of_range(&plans(&grade)).unwrap();
        assert_eq!(found.path, "all.level");
        assert_eq!(found.declared, grade.range().unwrap());
    }

    #[test]
    fn an_open_record_fits_only_a_map_of_anything() {
        let map = |it: Type| Type::Map(Box::new(it));
        let Type::Record(record) = closed(&[("a", Type::INT)]) else { panic!("a record") };
        let open = Type::Record(Arc::new(Record { is_closed: false, ..Record::clone(&record) }));
        assert!(Type::Record(record).fits(&map(Type::INT)) && open.fits(&map(Type::Any)));
        assert!(!open.fits(&map(Type::INT)));
    }

    #[test]
    fn a_part_may_lack_any_field_and_has_no_other() {
        let whole = closed(&[("a", Type::INT), ("b", closed(&[("x", Type::INT)]))]);
        assert!(closed(&[]).fits(&whole.partial()));
        assert!(closed(&[("b", closed(&[]))]).fits(&whole.partial()));
        assert!(!closed(&[("b", closed(&[("y", Type::INT)]))]).fits(&whole.partial()));
        assert!(!closed(&[("a", Type::Bool)]).fits(&whole.partial()));
    }

    #[test]
    fn types_are_read_from_the_schema_of_a_rust_type() {
        let ty = Type::of_schema(schema_for!(Review).as_value());
        assert_eq!(ty.to_string(), "Review");
        assert_eq!(ty.field("verdict").unwrap().to_string(), "rework | approved");
        assert_eq!(ty.field("score").unwrap().to_string(), "float?");
        assert_eq!(ty.field("issues").unwrap().to_string(), "[string]");
        assert_eq!(ty.field("nothing"), None);
    }

    #[derive(Serialize, JsonSchema)]
    struct Tree {
        children: Vec<Self>,
    }

    fn parts(ty: &Type) -> usize {
        match ty.required() {
            Type::Record(record) => 1 + record.fields.iter().map(|it| parts(&it.ty)).sum::<usize>(),
            _ => 1,
        }
    }

    #[test]
    fn a_type_that_contains_itself_often_has_few_parts() {
        let tree = serde_json::json!({"$ref": "#"});
        let fields: Map<String, Value> =
            (0..100).map(|at| (format!("f{at}"), tree.clone())).collect();
        let schema = serde_json::json!({"type": "object", "properties": fields});
        let size = parts(&Type::of_schema(&schema));
        assert!((100..100_000).contains(&size), "{size} parts");
    }

    #[test]
    fn a_recursive_type_ends() {
        let ty = Type::of_schema(schema_for!(Tree).as_value());
        assert!(matches!(ty.field("children"), Some(Type::List(_))));
    }
}
