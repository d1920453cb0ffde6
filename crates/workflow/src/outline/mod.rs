//! The outline of a workflow file, for editors: the place of each key and value, and the path at
//! the cursor.
//!
//! Unlike the reader it never fails. It uses indentation and brackets alone, so that it also works
//! on a file that is being typed: an unclosed bracket or quote ends where the next line is indented
//! no deeper than the key before it. Where the reader can read a file, both agree, as a test below
//! shows; they may differ only in scalars over several lines.

pub(super) mod flow_style;
mod scalar;
mod scanner;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range};

pub use self::scalar::ScalarText;
use self::scanner::Scanner;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Under a key of a mapping.
    Key(String),
    /// To an item of a list.
    Item(usize),
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its path.
    pub path: Vec<Step>,
    /// The bytes of its key, without quotes; `None` for the item of a list.
    pub key: Option<Range<usize>>,
    /// The bytes of its text, without quotes; `None` if it is no scalar.
    pub value: Option<Range<usize>>,
}

/// The element at a cursor, or the possible elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The path of the mapping whose key it is, or of the value.
    pub path: Vec<Step>,
    /// Whether it can be a key.
    pub takes_key: bool,
    /// Whether it can be a value.
    pub takes_value: bool,
    /// The start of the text typed so far.
    pub start: usize,
}

/// The values of a file, in its order.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    parts: Vec<Part>,
    /// The first part at the end of each path, and the parts directly below it.
    at: HashMap<Vec<Step>, usize>,
    below: HashMap<Vec<Step>, Vec<usize>>,
}

impl Outline {
    /// The outline of a text, which may be incomplete.
    pub fn of(text: &str) -> Self {
        let mut outline = Self { parts: Scanner::run(text).parts, ..Self::default() };
        for (number, part) in outline.parts.iter().enumerate() {
            outline.at.entry(part.path.clone()).or_insert(number);
            if let Some((_, parent)) = part.path.split_last() {
                outline.below.entry(parent.to_vec()).or_default().push(number);
            }
        }
        outline
    }

    /// Returns the slot at a cursor; the text behind it does not matter.
    pub fn slot(text: &str, cursor: usize) -> Slot {
        text.get(..cursor).map(|before| Scanner::run(before).slot).unwrap_or_default()
    }

    /// Returns every value.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the value at the end of a path.
    pub fn part(&self, path: &[Step]) -> Option<&Part> {
        self.at.get(path).map(|it| &self.parts[*it])
    }

    /// Returns the value under these keys.
    pub fn under(&self, keys: &[&str]) -> Option<&Part> {
        let path: Vec<Step> = keys.iter().map(|it| Step::Key((*it).to_owned())).collect();
        self.part(&path)
    }

    /// Returns the values directly below a path.
    pub fn below(&self, path: &[Step]) -> impl Iterator<Item = &Part> {
        self.below.get(path).into_iter().flatten().map(|it| &self.parts[*it])
    }
}

/// Returns the places of the first and the last bracket of each collection in brackets, in the order of the last ones.
pub(crate) fn bracket_pairs(text: &str) -> Vec<(usize, usize)> {
    Scanner::run(text).pairs
}

impl Part {
    /// Returns the key of the value, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self.path.last() {
            Some(Step::Key(key)) => Some(key),
            Some(Step::Item(_)) | None => None,
        }
    }
}
