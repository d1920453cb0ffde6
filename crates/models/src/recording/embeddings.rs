//! Embeddings in a recording. They have the same lines as chats: the texts are messages, and the reply is a JSON object with
//! `vectors`.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{RecordingError, RecordingFile, Replay};
use crate::{ChatReply, EmbeddingModel, EmbeddingReply, EmbeddingRequest, ModelError};

/// Passes requests on to a model for embeddings and appends every exchange to a recording, failed ones included.
#[derive(Debug)]
pub struct EmbeddingRecorder {
    model: Arc<dyn EmbeddingModel>,
    named: String,
    file: RecordingFile,
}

/// A model for embeddings that answers from a recording, and only from it.
#[derive(Debug)]
pub struct EmbeddingReplay {
    replay: Arc<Replay>,
    named: String,
}

/// The reply of a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedVectors {
    pub(super) vectors: Vec<Vec<f32>>,
}

impl EmbeddingRecorder {
    /// Wraps the model with this name in the workflow. An existing file is continued.
    ///
    /// # Errors
    /// Returns [`RecordingError::Open`] when the file cannot be written.
    pub fn wrap(
        model: Arc<dyn EmbeddingModel>,
        named: &str,
        file: impl AsRef<Path>,
    ) -> Result<Self, RecordingError> {
        Ok(Self { model, named: named.to_owned(), file: RecordingFile::open(file)? })
    }
}

impl EmbeddingReplay {
    /// Answers in place of the model with this name in the workflow.
    pub fn new(replay: Arc<Replay>, named: &str) -> Self {
        Self { replay, named: named.to_owned() }
    }
}

#[async_trait]
impl EmbeddingModel for EmbeddingRecorder {
    async fn embed(&self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError> {
        let outcome = self.model.embed(request).await;
        let recorded = match &outcome {
            Ok(EmbeddingReply { vectors, usage, cost_usd, model, .. }) => {
                let text = serde_json::to_string(&RecordedVectors { vectors: vectors.clone() });
                let text = text.expect("finite numbers can always be written");
                let usage = *usage;
                let cost_usd = *cost_usd;
                let model = model.clone();
                Ok(ChatReply { text, usage, cost_usd, model, ..ChatReply::default() })
            }
            Err(error) => Err(error.clone()),
        };
        self.file.append(&request.as_chat(&self.named), &recorded)?;
        outcome
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

#[async_trait]
impl EmbeddingModel for EmbeddingReplay {
    async fn embed(&self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError> {
        self.replay.embed(request, &self.named)
    }

    fn name(&self) -> &str {
        &self.named
    }
}
