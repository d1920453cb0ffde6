//! The protocols of providers: the forms of their requests, replies and streams.
//!
//! A file for each: `chat` (OpenAI's chat completions, which most providers have), `responses`, `anthropic` and `gemini`.
//! `embeddings` has those of requests for vectors. Everything else is shared: the transport, the gate, the classes of errors, and what a reply means.

mod anthropic;
mod chat;
mod embeddings;
mod gemini;
mod responses;
mod stream;

use serde_json::Value;

pub(super) use self::stream::{IncomingReply, Pace, completion};
use crate::{
    Attachment, AttachmentKind, ChatReply, ChatRequest, ModelError, Protocol, deltas::AnswerSink,
    shape::Shape,
};

/// A request in the form of its protocol.
pub(super) struct Wire {
    /// The path behind the base URL, with its query.
    pub(super) path: String,
    pub(super) body: Value,
}

impl Protocol {
    /// Reads the body of a successful reply.
    ///
    /// # Errors
    /// Returns [`ModelError::Refused`], [`ModelError::Truncated`], [`ModelError::Incomplete`] or
    /// [`ModelError::EmptyResponse`] for a reply without a usable answer, and a classified error for another body.
    pub fn read_reply(self, body: &Value) -> Result<ChatReply, ModelError> {
        match self {
            Self::Chat => crate::read_reply(body),
            Self::Responses => responses::read(body),
            Self::Anthropic => anthropic::read(body),
            Self::Gemini => gemini::read(body),
        }
    }

    /// Reads the text of a reply that has arrived, at once or as a stream of events.
    ///
    /// # Errors
    /// Returns the errors of [`read_reply`](Self::read_reply), and [`ModelError::StreamTruncated`] for a stream that
    /// ended before its answer.
    ///
    /// ```
    /// use graphrun_models::Protocol;
    ///
    /// let stream = "data: {\"choices\": [{\"delta\": {\"content\": \"Te\"}}]}\n\n\
    ///               data: {\"choices\": [{\"delta\": {\"content\": \"al.\"}, \"finish_reason\": \"stop\"}]}\n\n\
    ///               data: [DONE]\n\n";
    /// assert_eq!(Protocol::Chat.read_text(stream)?.text, "Teal.");
    /// # Ok::<_, graphrun_models::ModelError>(())
    /// ```
    pub fn read_text(self, text: &str) -> Result<ChatReply, ModelError> {
        let mut incoming = IncomingReply::new(self, &AnswerSink::default(), usize::MAX);
        incoming.add(text.as_bytes())?;
        self.read_reply(&incoming.finish()?)
    }

    /// Refuses a file that the protocol has no place for. A model may still reject one that the protocol takes.
    pub(super) fn check_attachments(self, request: &ChatRequest) -> Result<(), ModelError> {
        let mut files = request.messages.iter().flat_map(|it| &it.attachments);
        match files.find(|it| !self.takes(it)) {
            None => Ok(()),
            Some(file) => {
                Err(ModelError::Attachment { name: file.name().to_owned(), kind: file.kind() })
            }
        }
    }

    fn takes(self, file: &Attachment) -> bool {
        match (file.kind(), self) {
            (AttachmentKind::Audio, Self::Chat) => matches!(file.format(), "wav" | "mp3"),
            (AttachmentKind::Audio, Self::Responses | Self::Anthropic) => false,
            (AttachmentKind::Audio, Self::Gemini)
            | (AttachmentKind::Image | AttachmentKind::Pdf | AttachmentKind::Text, _) => true,
        }
    }

    /// Returns the request of this protocol.
    pub(super) fn shape(self, request: &ChatRequest, shape: &Shape<'_>) -> Wire {
        match self {
            Self::Chat => {
                let body = crate::shape::shape_request(request, shape);
                Wire { path: "/chat/completions".to_owned(), body }
            }
            Self::Responses => responses::shape(request, shape),
            Self::Anthropic => anthropic::shape(request, shape),
            Self::Gemini => gemini::shape(request, shape),
        }
    }

    fn fold(self) -> Box<dyn stream::Fold> {
        match self {
            Self::Chat => Box::<chat::ChatFold>::default(),
            Self::Responses => Box::<responses::ResponsesFold>::default(),
            Self::Anthropic => Box::<anthropic::AnthropicFold>::default(),
            Self::Gemini => Box::<gemini::GeminiFold>::default(),
        }
    }
}
