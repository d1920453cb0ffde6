//! Writes values as JSON, and refuses numbers that JSON does not have.
//!
//! `serde_json` writes NaN and infinity as null, which is an unwritten field here. [`Finite`] is a layer around a serializer
//! that refuses them at any depth and passes all else on, so it costs nothing beside the serialisation.

use serde::{
    Serialize, Serializer,
    ser::{
        Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};
use serde_json::{Number, Value};

use super::measure::FLOAT_INT_END;

/// Returns a value as JSON.
///
/// # Errors
///
/// Fails as [`serde_json::to_value`] does, and for a number that is not finite.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Value, serde_json::Error> {
    value.serialize(Finite(serde_json::value::Serializer))
}

/// A serializer, or a part of one, that refuses numbers that are not finite.
struct Finite<S>(S);

/// A value within another one.
struct FiniteValue<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for FiniteValue<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Finite(serializer))
    }
}

fn refused<E: Error>(number: impl std::fmt::Display) -> E {
    E::custom(format!("the number {number} cannot be written as JSON"))
}

macro_rules! plain {
    ($($function:ident($($name:ident: $type:ty),*)),* $(,)?) => {
        $(fn $function(self, $($name: $type),*) -> Result<S::Ok, S::Error> {
            self.0.$function($($name),*)
        })*
    };
}

macro_rules! compound {
    ($($function:ident($($name:ident: $type:ty),*) -> $compound:ident),* $(,)?) => {
        $(fn $function(self, $($name: $type),*) -> Result<Finite<S::$compound>, S::Error> {
            self.0.$function($($name),*).map(Finite)
        })*
    };
}

impl<S: Serializer> Serializer for Finite<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Finite<S::SerializeSeq>;
    type SerializeTuple = Finite<S::SerializeTuple>;
    type SerializeTupleStruct = Finite<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Finite<S::SerializeTupleVariant>;
    type SerializeMap = Finite<S::SerializeMap>;
    type SerializeStruct = Finite<S::SerializeStruct>;
    type SerializeStructVariant = Finite<S::SerializeStructVariant>;

    fn serialize_f32(self, number: f32) -> Result<S::Ok, S::Error> {
        if number.is_finite() { self.0.serialize_f32(number) } else { Err(refused(number)) }
    }

    fn serialize_f64(self, number: f64) -> Result<S::Ok, S::Error> {
        if number.is_finite() { self.0.serialize_f64(number) } else { Err(refused(number)) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&FiniteValue(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &FiniteValue(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &FiniteValue(value))
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }

    plain! {
        serialize_bool(value: bool),
        serialize_i8(value: i8),
        serialize_i16(value: i16),
        serialize_i32(value: i32),
        serialize_i64(value: i64),
        serialize_i128(value: i128),
        serialize_u8(value: u8),
        serialize_u16(value: u16),
        serialize_u32(value: u32),
        serialize_u64(value: u64),
        serialize_u128(value: u128),
        serialize_char(value: char),
        serialize_str(value: &str),
        serialize_bytes(value: &[u8]),
        serialize_none(),
        serialize_unit(),
        serialize_unit_struct(name: &'static str),
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str),
    }

    compound! {
        serialize_seq(length: Option<usize>) -> SerializeSeq,
        serialize_tuple(length: usize) -> SerializeTuple,
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct,
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeTupleVariant,
        serialize_map(length: Option<usize>) -> SerializeMap,
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct,
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeStructVariant,
    }
}

macro_rules! items {
    ($($trait:ident::$function:ident),* $(,)?) => {
        $(impl<S: $trait> $trait for Finite<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $function<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                self.0.$function(&FiniteValue(value))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

items! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl<S: $trait> $trait for Finite<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                let written = self.0.serialize_field(key, &FiniteValue(value));
                written.map_err(|error| S::Error::custom(format!("`{key}`: {error}")))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl<S: SerializeMap> SerializeMap for Finite<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    // A key that is a number becomes a text, and serde_json refuses one that is not finite.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&FiniteValue(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

/// Returns a value with its numbers without a fraction as integers: `1.0` as `1`.
pub fn with_whole_numbers(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, it)| (key.clone(), with_whole_numbers(it))).collect()
        }
        Value::Number(number) => whole(number).map_or_else(|| value.clone(), Value::from),
        other => other.clone(),
    }
}

/// Returns a number without a fraction as an integer, if a float holds all its digits.
fn whole(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < FLOAT_INT_END)?;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in the range")]
    Some(float as i64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    enum Shape {
        Circle(f32),
        Line(f64, f64),
        Box { sides: Option<[f64; 2]> },
    }

    #[test]
    fn finite_values_are_written_as_they_always_are() {
        let values = (
            [Shape::Circle(0.5), Shape::Line(1.0, -0.0), Shape::Box { sides: Some([1.5, 2.0]) }],
            BTreeMap::from([(1_u8, (u64::MAX, i128::from(i64::MIN), 'é', ()))]),
            json!({"a": [null, 1.5e300]}),
        );
        assert_eq!(to_json(&values).unwrap(), serde_json::to_value(&values).unwrap());
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused_at_any_depth() {
        let nan = f64::NAN;
        for refused in [
            to_json(&nan),
            to_json(&Some(f32::INFINITY)),
            to_json(&[Shape::Circle(f32::NAN)]),
            to_json(&Shape::Line(1.0, nan)),
            to_json(&Shape::Box { sides: Some([nan, 1.0]) }),
            to_json(&BTreeMap::from([("a", vec![(1, nan)])])),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.ends_with("cannot be written as JSON"), "{error}");
        }
        let error = to_json(&Shape::Box { sides: Some([1.0, nan]) }).unwrap_err();
        assert_eq!(error.to_string(), "`sides`: the number NaN cannot be written as JSON");
    }
}
