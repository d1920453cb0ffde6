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
/// Stands for a further field of an open record in a path.
const FURTHER_FIELD: &str = "*";

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
    /// How the field is absent.
    pub absence: Absence,
}

/// How a field of an optional or unknown type is absent from a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absence {
    /// It is null, or it is omitted.
    #[default]
    NullOrOmitted,
    /// It is null: the key is always there.
    Null,
    /// It is omitted: the value is never null.
    Omitted,
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
        self.fits_apart_from_ranges(declared) && self.out_of_range(declared).is_none()
    }

    /// Returns the same without a check of the ranges of numbers.
    pub fn fits_apart_from_ranges(&self, declared: &Self) -> bool {
        self.has_form_of(declared) && self.undeclared_field(declared).is_none()
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
                    && value.fields.iter().all(|it| it.ty_of_key().has_form_of(declared))
            }
            (Self::Record(value), Self::Record(declared)) => declared.fields.iter().all(|field| {
                match value.fields.iter().find(|it| it.name == field.name) {
                    Some(it) => it.ty.has_form_of(&field.ty) && it.has_absence_of(field),
                    // An open record may have it with any type.
                    None => value.is_closed && field.may_be_omitted(),
                }
            }),
            (value, declared) => value == declared,
        }
    }

    /// Returns whether no value is of both types, apart from values of which a part is null, omitted or empty.
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
    /// not, such as `owner.age`; `*` stands for a further field of an open record.
    pub fn undeclared_field(&self, declared: &Self) -> Option<String> {
        match (self.required(), declared.required()) {
            (Self::List(value), Self::List(declared)) | (Self::Map(value), Self::Map(declared)) => {
                value.undeclared_field(declared)
            }
            (Self::Record(value), Self::Map(declared)) => {
                value.fields.iter().find_map(|it| it.below(it.ty.undeclared_field(declared)))
            }
            (Self::Record(value), Self::Record(declared)) => {
                let undeclared = value.fields.iter().find_map(|it| {
                    match declared.fields.iter().find(|field| field.name == it.name) {
                        Some(field) => it.below(it.ty.undeclared_field(&field.ty)),
                        None => declared.is_closed.then(|| it.name.clone()),
                    }
                });
                let is_open = declared.is_closed && !value.is_closed;
                undeclared.or_else(|| is_open.then(|| FURTHER_FIELD.to_owned()))
            }
            _ => None,
        }
    }

    /// Returns the path of an optional field that a declared type does not take without a value as this type has it, and
    /// what that looks like in this type.
    pub fn absent_field(&self, declared: &Self) -> Option<(String, Absence)> {
        let below = |it: &Field, found: Option<(String, Absence)>| {
            found.map(|(path, absence)| (it.path_to(&path), absence))
        };
        match (self.required(), declared.required()) {
            (Self::List(value), Self::List(declared)) | (Self::Map(value), Self::Map(declared)) => {
                value.absent_field(declared)
            }
            (Self::Record(value), Self::Map(declared)) => value.fields.iter().find_map(|it| {
                let is_null = matches!(it.ty_of_key(), Self::Optional(_))
                    && !matches!(**declared, Self::Optional(_) | Self::Any);
                let found = is_null.then(|| (it.name.clone(), Absence::Null));
                found.or_else(|| below(it, it.ty.absent_field(declared)))
            }),
            (Self::Record(value), Self::Record(declared)) => value.fields.iter().find_map(|it| {
                let field = declared.fields.iter().find(|field| field.name == it.name)?;
                let has_absence = !field.may_be_absent() || it.has_absence_of(field);
                let absence = match field.absence {
                    Absence::Null => Absence::Omitted,
                    Absence::NullOrOmitted | Absence::Omitted => Absence::Null,
                };
                let found = (!has_absence).then(|| (it.name.clone(), absence));
                found.or_else(|| below(it, it.ty.absent_field(&field.ty)))
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

    /// Returns this type without further fields of its records.
    #[must_use]
    pub fn closed(&self) -> Self {
        match self {
            Self::Optional(inner) => inner.closed().optional(),
            Self::List(item) => Self::List(Box::new(item.closed())),
            Self::Map(value) => Self::Map(Box::new(value.closed())),
            Self::Record(record) => {
                let field = |it: &Field| Field { ty: it.ty.closed(), ..it.clone() };
                let fields = record.fields.iter().map(field).collect();
                let name = record.name.clone();
                Self::Record(Arc::new(Record { name, fields, is_closed: true }))
            }
            other => other.clone(),
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
                    // Null removes a field.
                    let absence =
                        if it.may_be_omitted() { Absence::NullOrOmitted } else { Absence::Omitted };
                    Field::new(&*it.name, it.ty.partial().optional()).absent_as(absence)
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
                let may_be_missing = it.may_be_omitted();
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
    /// Returns a field that is null or omitted without a value, if its type allows that.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Self { name: name.into(), ty, absence: Absence::default() }
    }

    /// Sets how it is absent. A field that always has a value is left unchanged.
    #[must_use]
    pub fn absent_as(mut self, absence: Absence) -> Self {
        if self.may_be_absent() {
            self.absence = absence;
        }
        self
    }

    /// Returns a field with values of this one or of another one; `None` stands for a record that omits it.
    #[must_use]
    pub fn joined(&self, other: Option<&Self>, ty: Type) -> Self {
        let mut absences = [Some(self), other].into_iter().filter_map(|it| match it {
            Some(it) => it.may_be_absent().then_some(it.absence),
            None => Some(Absence::Omitted),
        });
        let absence = match (absences.next(), absences.next()) {
            (Some(one), Some(other)) if one != other => Absence::NullOrOmitted,
            (one, _) => one.unwrap_or_default(),
        };
        Self::new(&*self.name, ty).absent_as(absence)
    }

    fn may_be_absent(&self) -> bool {
        matches!(self.ty, Type::Optional(_) | Type::Any)
    }

    /// Returns whether a record may lack its key.
    pub fn may_be_omitted(&self) -> bool {
        self.may_be_absent() && self.absence != Absence::Null
    }

    /// Returns the type of its value where a record has its key.
    fn ty_of_key(&self) -> &Type {
        match self.absence {
            Absence::Omitted => self.ty.required(),
            Absence::Null | Absence::NullOrOmitted => &self.ty,
        }
    }

    /// Returns whether a record without a value of this field fits a declared field.
    fn has_absence_of(&self, declared: &Self) -> bool {
        !matches!(self.ty, Type::Optional(_))
            || (declared.ty == Type::Any && declared.absence != Absence::Null)
            || declared.absence == Absence::NullOrOmitted
            || declared.absence == self.absence
    }

    fn path_to(&self, below: &str) -> String {
        format!("{}.{below}", self.name)
    }

    /// Returns the path of a field below this one.
    fn below(&self, field: Option<String>) -> Option<String> {
        field.map(|it| self.path_to(&it))
    }

    /// Returns numbers in the value of this field, with their path from its record.
    fn around(&self, found: Option<OutOfRange>) -> Option<OutOfRange> {
        let mut found = found?;
        found.path = match found.path.as_str() {
            "" => self.name.clone(),
            path => self.path_to(path),
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
            let absence = match (always, &ty) {
                (true, _) => Absence::Null,
                (false, Type::Optional(_)) => Absence::NullOrOmitted,
                (false, _) => Absence::Omitted,
            };
            Field::new(name, if always { ty } else { ty.optional() }).absent_as(absence)
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
mod tests;
