//! The values that changes refer to.

use std::sync::Arc;

use graphrun_core::state::{ChangeKind, reserve};
use graphrun_engine::checkpoint::CheckpointError;
use serde_json::Value;

use super::{
    Codec, Row, StoredChange, ValuePlace,
    decode::{Damage, Reader},
};

/// The values of some rows; they are read when needed and taken when used.
#[derive(Debug)]
pub(super) struct Values<'a> {
    reader: &'a Reader<'a>,
    /// One entry per row of the reader, in order; none if the row is not read yet.
    pub(super) read: Vec<Option<Untaken>>,
}

/// The values of a row; none in place of taken values.
pub(super) type Untaken = Box<[Option<Value>]>;

impl<'a> Values<'a> {
    pub(super) fn new(reader: &'a Reader<'a>) -> Self {
        Self { reader, read: vec![None; reader.rows.len()] }
    }

    /// Returns the effect of a change on its channel.
    pub(super) fn kind(
        &mut self,
        codec: &mut Codec,
        row: &Row,
        how: &StoredChange,
    ) -> Result<ChangeKind, CheckpointError> {
        Ok(match how {
            StoredChange::Cleared => ChangeKind::Cleared,
            StoredChange::Set(place) => ChangeKind::Set(Arc::new(self.get(codec, row, *place)?)),
            StoredChange::Appended(parts) => {
                let mut items = Vec::new();
                for &(number, index, is_list) in parts {
                    match self.get(codec, row, (number, index))? {
                        Value::Array(list) if is_list && items.is_empty() => items = list,
                        Value::Array(list) if is_list => {
                            reserve(&mut items, list.len());
                            items.extend(list);
                        }
                        item => items.push(item),
                    }
                }
                ChangeKind::Appended(items)
            }
        })
    }

    fn get(
        &mut self,
        codec: &mut Codec,
        from: &Row,
        place: ValuePlace,
    ) -> Result<Value, CheckpointError> {
        let at = self.reader.row_of(from, place)?;
        if self.read[at].is_none() {
            self.read[at] = Some(self.reader.untaken(codec, at)?);
        }
        // No two changes refer to the same value.
        let value = self.read[at].as_mut().and_then(|it| it.get_mut(place.1));
        let missing = || self.reader.damaged(from, Damage::Place);
        value.and_then(Option::take).ok_or_else(missing)
    }
}
