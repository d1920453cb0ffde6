//! The files of earlier deliveries to a folder, so that the next delivery replaces no others.
//!
//! The list is in the folder itself, under a name that generated files may not have, and contains
//! the hash of each file. Before a delivery changes anything, the list has the old and the new hash
//! of every file: so an interrupted delivery is recognised, and the next one completes it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The name of the list.
pub(super) const LIST: &str = ".graphrun-delivered.json";

/// The largest list that is read. A larger one counts as none.
pub(super) const BYTES_MAX: u64 = 16 << 20;

/// The version of its form.
const VERSION: u32 = 1;

/// The files of earlier deliveries.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DeliveredFiles {
    v: u32,
    /// Each path with the hashes of its possible contents.
    files: BTreeMap<String, BTreeSet<String>>,
}

impl Default for DeliveredFiles {
    fn default() -> Self {
        Self { v: VERSION, files: BTreeMap::new() }
    }
}

impl DeliveredFiles {
    /// Reads a list. A damaged one, and one of another version, counts as empty.
    pub(super) fn parse(text: &[u8]) -> Self {
        let read: Option<Self> = serde_json::from_slice(text).ok();
        read.filter(|it| it.v == VERSION).unwrap_or_default()
    }

    /// Returns whether a file with this content is from a delivery.
    pub(super) fn knows(&self, path: &str, content: &[u8]) -> bool {
        self.files.get(path).is_some_and(|it| it.contains(&hash(content)))
    }

    /// Adds a content that a file is about to get.
    pub(super) fn expect(&mut self, path: &str, content: &[u8]) {
        self.files.entry(path.to_owned()).or_default().insert(hash(content));
    }

    /// Records the current content of a file as the only one.
    pub(super) fn settle(&mut self, path: &str, content: &[u8]) {
        self.files.insert(path.to_owned(), BTreeSet::from([hash(content)]));
    }

    pub(super) fn to_text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

fn hash(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_cannot_be_read_knows_nothing() {
        let mut list = DeliveredFiles::default();
        list.expect("a", b"1");
        list.expect("a", b"2");
        assert_eq!(DeliveredFiles::parse(&list.to_text()), list);
        assert!(list.knows("a", b"1") && list.knows("a", b"2") && !list.knows("b", b"1"));
        list.settle("a", b"2");
        assert!(!list.knows("a", b"1") && list.knows("a", b"2"));
        for text in ["", "{}", "[1", r#"{"v": 2, "files": {}}"#] {
            assert_eq!(DeliveredFiles::parse(text.as_bytes()), DeliveredFiles::default(), "{text}");
        }
    }
}
