//! Recorded exchanges, so that a run can be repeated without a provider.
//!
//! A recording is JSON Lines, one exchange a line. [`Recorder`] writes them as they happen, people
//! write them by hand, and [`Replay`] answers from both. A request is matched by its node and its
//! content, never by its position: so a run that was killed can be resumed with the same file in a
//! new process.

mod embeddings;
mod entry;
mod lines;
mod normalise;
mod recorder;
mod replay;
mod results;

pub use embeddings::{EmbeddingRecorder, EmbeddingReplay};
pub use entry::{BadLine, RecordingError};
pub use normalise::normalise;
pub use recorder::{Recorder, RecordingFile};
pub use replay::{Replay, UnusedEntry};
pub use results::{CallPlace, result_of_changed_call};
