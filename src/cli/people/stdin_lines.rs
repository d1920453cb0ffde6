//! The lines of stdin, for questions and for chats.

use std::io::{self, BufRead as _};

use tokio::sync::mpsc;

/// The lines of stdin. A command has one of these: a second one would lose lines to the thread of the first.
#[derive(Debug, Default)]
pub(crate) struct StdinLines {
    reader: Option<LineReader>,
    /// Whether the thread reads a line that nothing has taken yet.
    is_requested: bool,
}

/// A thread that reads lines, as a read cannot be interrupted. It reads a line only when one is requested, and leaves the
/// rest of the input to other readers.
#[derive(Debug)]
struct LineReader {
    requests: mpsc::Sender<()>,
    lines: mpsc::Receiver<Option<io::Result<String>>>,
}

impl StdinLines {
    /// Returns the next line, without its end; `None` at the end of the input.
    ///
    /// # Cancel safety
    ///
    /// A line that is typed after a call was cancelled is returned by the next call.
    pub(crate) async fn next(&mut self) -> Option<io::Result<String>> {
        let reader = self.reader.get_or_insert_with(LineReader::start);
        if !self.is_requested {
            reader.requests.send(()).await.ok()?;
            self.is_requested = true;
        }
        let line = reader.lines.recv().await.flatten();
        self.is_requested = false;
        line
    }
}

impl LineReader {
    fn start() -> Self {
        let (requests, mut requested) = mpsc::channel(1);
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            while requested.blocking_recv().is_some() {
                // At a terminal, lines may follow after the end of the input.
                let line = io::stdin().lock().lines().next();
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { requests, lines }
    }
}
