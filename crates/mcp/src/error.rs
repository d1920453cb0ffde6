//! What can go wrong with a server.

use std::time::Duration;

use graphrun_core::graph::with_causes;
use graphrun_workflow::tool::ToolError;
use thiserror::Error;

/// A server cannot be used, or a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum McpError {
    /// The operator does not allow it.
    #[error("the server `{server}` may not be used")]
    Refused {
        /// Its name.
        server: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It would need a question before it starts.
    #[error(
        "the server `{server}` may not start without a question: your configuration of the host has no `approve = \"never\"`"
    )]
    Asks {
        /// Its name.
        server: String,
    },
    /// It did not start.
    #[error("the server `{server}` did not start")]
    Start {
        /// Its name.
        server: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It did not answer in time.
    #[error("the server `{server}` did not answer within {time:?}")]
    TimedOut {
        /// Its name.
        server: String,
        /// The limit.
        time: Duration,
    },
    /// It ended, or closed its streams.
    #[error("the server `{server}` ended{how}")]
    Ended {
        /// Its name.
        server: String,
        /// The reason and the end of its standard error, if they are known.
        how: String,
    },
    /// It cannot be reached.
    #[error("the server `{server}` cannot be reached: {reason}; check its `url`")]
    Unreachable {
        /// Its name.
        server: String,
        /// The reason.
        reason: String,
    },
    /// It does not accept the headers.
    #[error(
        "the server `{server}` denies access ({status}): check its `headers`, and the secrets that they name"
    )]
    Denied {
        /// Its name.
        server: String,
        /// The status of its answer.
        status: u16,
    },
    /// It cannot answer now, or has forgotten the session.
    #[error("the server `{server}` answered with status {status}")]
    Status {
        /// Its name.
        server: String,
        /// The status.
        status: u16,
    },
    /// Its answer is not one of the protocol.
    #[error("the server `{server}` gave no answer of MCP: {reason}; check its `url`")]
    Invalid {
        /// Its name.
        server: String,
        /// The reason.
        reason: String,
    },
    /// Its answer is too long.
    #[error("the server `{server}` answered with more than 8 MiB")]
    TooLarge {
        /// Its name.
        server: String,
    },
    /// It answered, in another form than that of the request.
    #[error(
        "the server `{server}` gave an answer without the fields that MCP requires, or with parts of an unknown type"
    )]
    Form {
        /// Its name.
        server: String,
    },
    /// It answered with an error of the protocol.
    #[error("the server `{server}` refused: {message}")]
    Protocol {
        /// Its name.
        server: String,
        /// Its message.
        message: String,
    },
    /// A tool reported a failure.
    #[error("{message}")]
    Failed {
        /// Its message.
        message: String,
    },
    /// It lists more than a lock file may have.
    #[error("the server `{server}` lists more than {most} {what}")]
    TooMany {
        /// Its name.
        server: String,
        /// The kind of entries.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Its list has no end.
    #[error(
        "the server `{server}` lists its {what} in more than {most} pages: correct its `nextCursor`"
    )]
    TooManyPages {
        /// Its name.
        server: String,
        /// The kind of entries.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// A tool or a prompt cannot be offered to a model.
    #[error("the server `{server}` has the {part} `{name}`, which cannot be used: {reason}")]
    Unusable {
        /// Its name.
        server: String,
        /// `tool` or `prompt`.
        part: &'static str,
        /// The name of the tool or the prompt.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A tool or a prompt is not as the lock file has it.
    #[error(
        "the server `{server}` has changed its {part} `{name}` since it was locked: run `graphrun mcp lock`, and read the new description"
    )]
    Changed {
        /// Its name.
        server: String,
        /// `tool` or `prompt`.
        part: &'static str,
        /// The name of the tool or the prompt.
        name: String,
    },
    /// The workflow does not allow a resource.
    #[error("`resources` of the server `{server}` does not allow `{uri}`")]
    NotAllowed {
        /// Its name.
        server: String,
        /// The URI.
        uri: String,
    },
}

impl From<McpError> for ToolError {
    fn from(error: McpError) -> Self {
        let transient = matches!(
            error,
            McpError::TimedOut { .. }
                | McpError::Ended { .. }
                | McpError::Unreachable { .. }
                | McpError::Status { status: 404 | 408 | 429 | 500.., .. }
        );
        Self { message: with_causes(&error), transient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_that_may_pass_is_transient() {
        let is_transient = |status| {
            let server = "docs".to_owned();
            ToolError::from(McpError::Status { server, status }).transient
        };
        assert!([404, 408, 429, 500, 503].into_iter().all(is_transient));
        assert!(![400, 405, 413, 422].into_iter().any(is_transient));
    }
}
