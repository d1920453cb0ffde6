//! Reads values from a file that may be damaged.

use rusqlite::{Row, RowIndex, types::ValueRef};

/// Returns the bytes of a text or a blob. Damage may have changed the type to a number; the
/// checksum then fails.
pub(super) fn bytes<'a>(row: &'a Row<'_>, column: impl RowIndex) -> rusqlite::Result<&'a [u8]> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    })
}
