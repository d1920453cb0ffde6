//! The lines of stdin, for questions and for chats.

use std::io::{self, BufRead, ErrorKind, Read as _};

use tokio::sync::mpsc;

use crate::data_limit::DataLimit;

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
                let line = read_line(&mut io::stdin().lock());
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { requests, lines }
    }
}

/// Reads the next line, up to the limit of an input, since some sources never end one; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Option<io::Result<String>> {
    let limit = DataLimit::InputBytes;
    let mut bytes = Vec::new();
    let read = input.take(limit.value().saturating_add(1)).read_until(b'\n', &mut bytes);
    match read {
        Err(error) => return Some(Err(error)),
        Ok(0) => return None,
        Ok(_) => {}
    }
    if let Err(reached) = limit.check(bytes.len() as u64) {
        return Some(Err(io::Error::new(ErrorKind::FileTooLarge, format!("a line is {reached}"))));
    }
    if bytes.pop_if(|it| *it == b'\n').is_some() {
        bytes.pop_if(|it| *it == b'\r');
    }
    let line = String::from_utf8(bytes);
    Some(line.map_err(|error| io::Error::new(ErrorKind::InvalidData, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_without_their_ends_up_to_the_limit() {
        let mut input = &b"one\r\n\n\xff\nlast"[..];
        let mut next = || read_line(&mut input).map(|it| it.map_err(|error| error.kind()));
        assert_eq!(next(), Some(Ok("one".to_owned())));
        assert_eq!(next(), Some(Ok(String::new())));
        assert_eq!(next(), Some(Err(ErrorKind::InvalidData)));
        assert_eq!(next(), Some(Ok("last".to_owned())));
        assert_eq!(next(), None);
        let endless = &mut io::BufReader::new(io::repeat(b'a'));
        let error = read_line(endless).unwrap().unwrap_err();
        assert!(error.to_string().starts_with("a line is larger than"), "{error}");
    }
}
