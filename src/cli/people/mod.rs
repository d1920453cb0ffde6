//! The questions of runs, and the answers of people.

pub(super) mod answer;
pub(super) mod person;
mod question_text;
pub(super) mod questions;
pub(super) mod stdin_lines;
pub(super) mod yes_no;
