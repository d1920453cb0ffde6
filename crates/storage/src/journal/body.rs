//! The parts of a row in one allocation: a long run has very many rows.

use std::{fmt, ops::Range};

/// The packed parts of a row.
#[derive(Clone, PartialEq)]
pub(crate) struct Body {
    bytes: Box<[u8]>,
    has_changes: bool,
    /// The range of the meta. The changes are before it, the data after it.
    meta: Range<usize>,
}

impl Body {
    /// Copies the parts.
    pub(crate) fn new(changes: Option<&[u8]>, meta: &[u8], data: &[u8]) -> Self {
        let first = changes.unwrap_or_default();
        let bytes = [first, meta, data].concat();
        Self::of(bytes, changes.is_some(), first.len()..first.len() + meta.len())
    }

    /// Takes the concatenated parts; `meta` is the range of the meta.
    pub(super) fn of(bytes: Vec<u8>, has_changes: bool, meta: Range<usize>) -> Self {
        Self { bytes: bytes.into(), has_changes, meta }
    }

    /// Returns the changes of the step, if the entry commits one.
    pub(crate) fn changes(&self) -> Option<&[u8]> {
        self.has_changes.then(|| &self.bytes[..self.meta.start])
    }

    /// Returns the rest of the entry, without values.
    pub(crate) fn meta(&self) -> &[u8] {
        &self.bytes[self.meta.clone()]
    }

    /// Returns the values.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.meta.end..]
    }

    /// Returns all parts, concatenated.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the lengths of the changes, the meta and the data.
    pub(super) fn lengths(&self) -> [usize; 3] {
        [self.meta.start, self.meta.len(), self.bytes.len() - self.meta.end]
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("changes", &self.changes())
            .field("meta", &self.meta())
            .field("data", &self.data())
            .finish()
    }
}
