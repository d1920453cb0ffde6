//! Output that a caller reads while the program still works.

use std::{fmt, sync::Arc};

/// Takes the standard output of a program as it arrives, on any thread and without waiting.
#[derive(Clone)]
pub struct OutputReader(Arc<Take>);

type Take = dyn Fn(&[u8]) + Send + Sync;

impl OutputReader {
    /// Creates a reader from a function, which gets each piece of the output, in order.
    pub fn new(take: impl Fn(&[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(super) fn take(&self, bytes: &[u8]) {
        (self.0)(bytes);
    }
}

impl fmt::Debug for OutputReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutputReader")
    }
}
