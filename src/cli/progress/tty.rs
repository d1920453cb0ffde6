//! Draws the live tree inline: finished lines scroll up, running lines stay at the bottom.

use std::{collections::BTreeMap, io, time::Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{
    super::terminal::{Paint, print_message, shown},
    Caption, ProgressView,
    tree::Tree,
};
use crate::{
    event::{MessageDelta, RunEvent},
    id::TaskId,
};

/// One line, truncated at the width of the terminal.
const TEMPLATE: &str = "    {spinner} {wide_msg}";

/// The live tree on stderr.
#[derive(Debug)]
pub(super) struct Tty {
    tree: Tree,
    lines: MultiProgress,
    running: BTreeMap<TaskId, ProgressBar>,
    began: Instant,
}

impl Tty {
    /// Creates a view with an empty screen.
    pub(super) fn new(caption: Caption, paint: Paint) -> Self {
        Self {
            tree: Tree::new(caption, paint),
            lines: MultiProgress::new(),
            running: BTreeMap::new(),
            began: Instant::now(),
        }
    }

    /// Updates the running lines from the tree.
    fn draw(&mut self) {
        let mut gone = std::mem::take(&mut self.running);
        for (task, text) in self.tree.running(self.began.elapsed()) {
            let line = gone.remove(&task).unwrap_or_else(|| self.lines.add(spinner()));
            line.set_message(shown(&text));
            self.running.insert(task, line);
        }
        for line in gone.into_values() {
            line.finish_and_clear();
            self.lines.remove(&line);
        }
    }
}

impl ProgressView for Tty {
    fn show(&mut self, stamped: &RunEvent) -> io::Result<()> {
        let lines = self.tree.take(stamped, self.began.elapsed());
        self.draw();
        for line in lines {
            self.note(&line);
        }
        Ok(())
    }

    /// The next tick draws it: models send more pieces than a screen can show.
    fn show_delta(&mut self, delta: &MessageDelta) -> io::Result<()> {
        self.tree.take_delta(delta);
        Ok(())
    }

    fn note(&mut self, text: &str) {
        // Not `println`: it fills lines up to the width, and a copy of the screen would contain the
        // spaces.
        self.lines.suspend(|| print_message(text));
    }

    fn tick(&mut self) {
        self.draw();
        for line in self.running.values() {
            line.tick();
        }
    }

    fn close(&mut self) {
        for line in std::mem::take(&mut self.running).into_values() {
            line.finish_and_clear();
        }
        drop(self.lines.clear());
    }
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
    ProgressBar::new_spinner().with_style(style)
}
