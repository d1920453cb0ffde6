//! Records the exchanges with a model.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::entry::{RecordingError, write_line};
use crate::{ChatModel, ChatReply, ChatRequest, ModelError};

/// Passes requests on to a model and appends every exchange to a recording, failed ones included.
///
/// Several recorders may write to one file: an exchange is one write at the end of it.
#[derive(Debug)]
pub struct Recorder {
    model: Arc<dyn ChatModel>,
    file: RecordingFile,
}

/// A recording that grows.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl Recorder {
    /// Wraps a model. An existing file is continued; an incomplete last line (after a crash) is
    /// removed.
    ///
    /// # Errors
    /// Returns [`RecordingError::Open`] when the file cannot be written.
    pub fn wrap(model: Arc<dyn ChatModel>, file: impl AsRef<Path>) -> Result<Self, RecordingError> {
        Ok(Self { model, file: RecordingFile::open(file)? })
    }
}

impl RecordingFile {
    /// Opens or creates a recording. An existing file is continued; an incomplete last line (after a crash) is
    /// removed.
    ///
    /// # Errors
    /// Returns [`RecordingError::Open`] when the file cannot be written.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let path = file.as_ref().to_owned();
        let file =
            open(&path).map_err(|source| RecordingError::Open { file: path.clone(), source })?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Appends a question of a node that no model answered, and its answer. [`Replay::look_up`](super::Replay::look_up)
    /// finds the answer again.
    ///
    /// # Errors
    /// Returns [`ModelError::NotRecorded`] when the file cannot be written.
    pub fn append_answer(
        &self,
        node: &str,
        question: &str,
        answer: &Value,
    ) -> Result<(), ModelError> {
        let reply = ChatReply { text: answer.to_string(), ..ChatReply::default() };
        self.append(&ChatRequest::of_node(node, question), &Ok(reply))
    }

    /// Appends an exchange, also a failed one. A request that was [not sent](ModelError::is_unsent) is none: it is no attempt in a
    /// replay, either.
    ///
    /// # Errors
    /// Returns [`ModelError::NotRecorded`] when the file cannot be written, [charged](ModelError::charged) with the usage and the
    /// cost of the exchange: it is paid for.
    pub fn append(
        &self,
        request: &ChatRequest,
        outcome: &Result<ChatReply, ModelError>,
    ) -> Result<(), ModelError> {
        if outcome.as_ref().is_err_and(ModelError::is_unsent) {
            return Ok(());
        }
        let line = write_line(request, outcome);
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        append_whole(&file, |mut file| file.write_all(line.as_bytes())).map_err(|error| {
            let (usage, cost_usd) = match outcome {
                Ok(reply) => (reply.usage, reply.cost_usd),
                Err(error) => (error.usage(), error.cost_usd()),
            };
            let message = error.to_string();
            ModelError::NotRecorded { file: self.path.clone(), message }.charged(usage, cost_usd)
        })
    }
}

#[async_trait]
impl ChatModel for Recorder {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let outcome = self.model.chat(request).await;
        self.file.append(request, &outcome)?;
        outcome
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        // Writing to a full pipe would wait for ever.
        let reason = "it is a pipe, and a recording is a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    if !kind.is_file() {
        // A device has no end to check.
        return Ok(file);
    }
    while_locked(&file, check)?;
    Ok(file)
}

/// Refuses a file that is no recording, and ends its last line.
fn check(mut file: &File) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    if !looks_like_a_recording(&text) {
        let reason = "it holds something else than a recording, and is left as it is";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let tail = &text[whole..];
    if serde_json::from_slice::<Value>(tail).is_ok() {
        // A complete line without a line end, as some editors leave it.
        file.write_all(b"\n")?;
    } else if !tail.is_empty() {
        file.set_len(whole as u64)?;
    }
    Ok(())
}

/// Appends to a file. After a failure in the middle, as of a full disk, the file is as before: otherwise the next line would
/// continue the part.
fn append_whole(file: &File, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return write(file);
    }
    while_locked(file, |file| {
        let length = file.metadata()?.len();
        write(file).inspect_err(|_| drop(file.set_len(length)))
    })
}

/// Works on a file that other recorders, also of other processes, leave alone meanwhile. Some file systems have no locks: there,
/// only one process may record to a file.
fn while_locked<T>(file: &File, work: impl FnOnce(&File) -> T) -> T {
    let is_locked = file.lock().is_ok();
    let done = work(file);
    if is_locked {
        drop(file.unlock());
    }
    done
}

/// Returns whether the first line is an entry or the beginning of one.
fn looks_like_a_recording(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    match text.iter().position(|&byte| byte == b'\n') {
        Some(end) => serde_json::from_slice::<Map<String, Value>>(&text[..end]).is_ok(),
        None => text.is_empty() || text.starts_with(b"{\""),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use tempfile::TempDir;

    use super::*;

    /// Returns the path of a recording that does not exist, and its folder.
    fn new_path() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        (folder, path)
    }

    #[test]
    fn a_request_that_was_not_sent_is_not_recorded() {
        let (_folder, path) = new_path();
        let file = RecordingFile::open(&path).unwrap();
        let request = ChatRequest::of_node("ask", "Which colour?");
        let failed = ModelError::Overloaded { after: None, message: "later".into() };
        let unsent = ModelError::NotSent { error: Box::new(failed.clone()) };
        for error in [unsent.clone(), failed, unsent] {
            file.append(&request, &Err(error)).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_line_that_cannot_be_written_leaves_no_part() {
        let (_folder, path) = new_path();
        let file = open(&path).unwrap();
        append_whole(&file, |mut file| file.write_all(b"{}\n")).unwrap();
        let failed = append_whole(&file, |mut file| {
            file.write_all(b"{\"v\"")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        append_whole(&file, |mut file| file.write_all(b"{}\n")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n{}\n");
    }

    #[test]
    fn a_line_that_is_being_written_is_left_alone() {
        let (_folder, path) = new_path();
        let file = open(&path).unwrap();
        let mut opening = None;
        append_whole(&file, |mut file| {
            file.write_all(b"{\"v\"")?;
            let path = path.clone();
            let thread = thread::spawn(move || open(&path).map(drop));
            // Without the lock, the thread removes the part here.
            for _ in 0..10_000 {
                thread::yield_now();
            }
            opening = Some(thread);
            file.write_all(b": 1}\n")
        })
        .unwrap();
        opening.unwrap().join().unwrap().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"v\": 1}\n");
    }
}
