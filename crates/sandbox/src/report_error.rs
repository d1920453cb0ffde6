//! Why the report of a test command cannot be read.

use thiserror::Error;

/// Why the report of a test command cannot be read.
#[derive(Debug, Error)]
pub(super) enum ReportError {
    /// It is above the limit.
    #[error("it has more than 4 MiB")]
    TooLarge,
    /// It is not text.
    #[error("it is not UTF-8")]
    Encoding,
    /// It is not XML.
    #[error("it is no XML document: {0}")]
    Xml(#[from] roxmltree::Error),
    /// It has no JSON of this form.
    #[error("it has another form of JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is incomplete, contradicts itself, or has another form.
    #[error("{0}")]
    Form(String),
}

impl ReportError {
    pub(super) fn form(detail: impl Into<String>) -> Self {
        Self::Form(detail.into())
    }
}

impl From<std::str::Utf8Error> for ReportError {
    fn from(_: std::str::Utf8Error) -> Self {
        Self::Encoding
    }
}
