//! Writes the events to stdout, one JSON object per line.

use std::io;

use super::{super::terminal::print_result, ProgressView};

use crate::event::{DeltaLine, MessageDelta, RunEvent};

/// Writes each event immediately, so that a reader is never behind.
#[derive(Debug)]
pub(super) struct Lines;

impl ProgressView for Lines {
    fn show(&mut self, stamped: &RunEvent) -> io::Result<()> {
        print_result(&(serde_json::to_string(stamped)? + "\n"))
    }

    fn show_delta(&mut self, delta: &MessageDelta) -> io::Result<()> {
        let line = DeltaLine::Message(delta.clone());
        print_result(&(serde_json::to_string(&line)? + "\n"))
    }

    /// Messages of the program are not events.
    fn note(&mut self, _: &str) {}
}
