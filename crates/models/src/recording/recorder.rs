//! Records the exchanges with a model.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
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
    /// Returns [`ModelError::NotRecorded`] when the file cannot be written.
    pub fn append(
        &self,
        request: &ChatRequest,
        outcome: &Result<ChatReply, ModelError>,
    ) -> Result<(), ModelError> {
        if outcome.as_ref().is_err_and(ModelError::is_unsent) {
            return Ok(());
        }
        let line = write_line(request, outcome);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).and_then(|()| file.flush()).map_err(|error| {
            ModelError::NotRecorded { file: self.path.clone(), message: error.to_string() }
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
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
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
        file.seek(SeekFrom::End(0))?;
    }
    Ok(file)
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
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
}
