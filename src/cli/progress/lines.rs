//! The events themselves on stdout, one JSON object a line.

use std::io;

use super::{super::terminal::print_result, View};
use crate::event::Stamped;

/// Writes each event as it happens, so that a program that reads them is never behind.
#[derive(Debug)]
pub(super) struct Lines;

impl View for Lines {
    fn show(&mut self, stamped: &Stamped) -> io::Result<()> {
        print_result(&(serde_json::to_string(stamped)? + "\n"))
    }

    /// What the program says itself is no event.
    fn note(&mut self, _: &str) {}
}
