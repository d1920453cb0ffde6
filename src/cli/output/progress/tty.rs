//! Draws the live tree inline: finished lines scroll up, running lines stay at the bottom.

use std::{collections::BTreeMap, io, time::Instant};

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

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

/// How often the running lines are drawn at most, per second.
const DRAWS_PER_SECOND: u8 = 20;

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
            lines: MultiProgress::with_draw_target(Screen::target()),
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

/// The terminal on stderr, without the errors of writes. The live view panics at a failed write, and a closed terminal
/// must not end the run before its signal does.
#[derive(Debug)]
struct Screen(Term);

impl Screen {
    /// Returns where the view draws: nowhere, if stderr is no terminal.
    fn target() -> ProgressDrawTarget {
        let terminal = Term::buffered_stderr();
        if !terminal.is_term() {
            return ProgressDrawTarget::hidden();
        }
        ProgressDrawTarget::term_like_with_hz(Box::new(Self(terminal)), DRAWS_PER_SECOND)
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        written(self.0.move_cursor_up(lines))
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        written(self.0.move_cursor_down(lines))
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        written(self.0.move_cursor_right(columns))
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        written(self.0.move_cursor_left(columns))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        written(self.0.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        written(self.0.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        written(self.0.clear_line())
    }

    fn flush(&self) -> io::Result<()> {
        written(self.0.flush())
    }
}

/// Drops the error of a write.
fn written(result: io::Result<()>) -> io::Result<()> {
    result.or(Ok(()))
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
    ProgressBar::new_spinner().with_style(style)
}
