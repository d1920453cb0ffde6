//! Takes a struct apart into its fields, without a JSON object between.

use std::{fmt, sync::Arc};

use serde::{
    Serialize, Serializer,
    ser::{self, Impossible, SerializeStruct},
};
use serde_json::Value;

use super::to_json;
use crate::id::ChannelName;

/// Returns the fields of a struct that are not null, or `None` if the value is no plain struct: something else, a
/// struct with flattened fields, or one that cannot be written as JSON or whose fields cannot be channels.
pub(super) fn fields_of_struct<T: Serialize>(value: &T) -> Option<Vec<(ChannelName, Arc<Value>)>> {
    value.serialize(FieldSerializer).ok()
}

/// The value is no plain struct.
#[derive(Debug)]
struct NotPlain;

struct FieldSerializer;

struct StructFields(Vec<(ChannelName, Arc<Value>)>);

impl SerializeStruct for StructFields {
    type Ok = Vec<(ChannelName, Arc<Value>)>;
    type Error = NotPlain;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), NotPlain> {
        let value = to_json(value).map_err(|_| NotPlain)?;
        if !value.is_null() {
            let name = ChannelName::parse_static(name).map_err(|_| NotPlain)?;
            self.0.push((name, Arc::new(value)));
        }
        Ok(())
    }

    fn end(self) -> Result<Self::Ok, NotPlain> {
        Ok(self.0)
    }
}

macro_rules! not_plain {
    ($($function:ident($($type:ty),*)),* $(,)?) => {
        $(fn $function(self, $(_: $type),*) -> Result<Self::Ok, NotPlain> {
            Err(NotPlain)
        })*
    };
}

macro_rules! no_compound {
    ($($function:ident($($type:ty),*) -> $compound:ident),* $(,)?) => {
        $(fn $function(self, $(_: $type),*) -> Result<Self::$compound, NotPlain> {
            Err(NotPlain)
        })*
    };
}

impl Serializer for FieldSerializer {
    type Ok = Vec<(ChannelName, Arc<Value>)>;
    type Error = NotPlain;
    type SerializeSeq = Impossible<Self::Ok, NotPlain>;
    type SerializeTuple = Impossible<Self::Ok, NotPlain>;
    type SerializeTupleStruct = Impossible<Self::Ok, NotPlain>;
    type SerializeTupleVariant = Impossible<Self::Ok, NotPlain>;
    type SerializeMap = Impossible<Self::Ok, NotPlain>;
    type SerializeStruct = StructFields;
    type SerializeStructVariant = Impossible<Self::Ok, NotPlain>;

    fn serialize_struct(self, _: &'static str, count: usize) -> Result<StructFields, NotPlain> {
        Ok(StructFields(Vec::with_capacity(count)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, NotPlain> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Self::Ok, NotPlain> {
        Ok(Vec::new())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, NotPlain> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Self::Ok, NotPlain> {
        Err(NotPlain)
    }

    not_plain! {
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_none(),
        serialize_unit_struct(&'static str),
        serialize_unit_variant(&'static str, u32, &'static str),
    }

    no_compound! {
        serialize_seq(Option<usize>) -> SerializeSeq,
        serialize_tuple(usize) -> SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant,
        serialize_map(Option<usize>) -> SerializeMap,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant,
    }
}

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a plain struct")
    }
}

impl std::error::Error for NotPlain {}

impl ser::Error for NotPlain {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}
