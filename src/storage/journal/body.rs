//! The parts of a row in one piece of memory: a long run has very many rows.

use std::{fmt, ops::Range};

/// What a row holds, packed.
#[derive(Clone, PartialEq)]
pub(crate) struct Body {
    bytes: Box<[u8]>,
    has_changes: bool,
    /// Where the meta is; the changes are before it, and the data after it.
    meta: Range<usize>,
}

impl Body {
    /// Copies these parts.
    pub(crate) fn new(changes: Option<&[u8]>, meta: &[u8], data: &[u8]) -> Self {
        let first = changes.unwrap_or_default();
        let bytes = [first, meta, data].concat();
        Self::of(bytes, changes.is_some(), first.len()..first.len() + meta.len())
    }

    /// Takes the parts one after the other, with the meta in this place.
    pub(super) fn of(bytes: Vec<u8>, has_changes: bool, meta: Range<usize>) -> Self {
        Self { bytes: bytes.into(), has_changes, meta }
    }

    /// What the step changed, if the entry commits one.
    pub(crate) fn changes(&self) -> Option<&[u8]> {
        self.has_changes.then(|| &self.bytes[..self.meta.start])
    }

    /// Everything else but values.
    pub(crate) fn meta(&self) -> &[u8] {
        &self.bytes[self.meta.clone()]
    }

    /// The values.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.meta.end..]
    }

    /// All of them, one after the other.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How long the changes, the meta and the data are.
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
