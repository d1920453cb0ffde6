//! The data of a software team: stories, test cases, designs, code, reviews and reports.
//!
//! [`ReadLeniently`](graphrun_core::state::ReadLeniently) reads every type that a model writes; the rules
//! of a type are in its file. A field marked `readOnly` in the schema is computed here: models are
//! not asked for it, and a value from a model is ignored. [`TeamState`] contains all of these
//! types.
//!
//! Nothing else in graphrun knows this crate. Its state is made known to workflows by [`register`],
//! in the same way as the state of any other program:
//!
//! ```
//! let registry = graphrun_team::register(graphrun_nodes::registry());
//! assert!(registry.schema("TeamState").unwrap().channel("user_stories").is_some());
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod code_artifact;
mod failure_report;
mod review;
mod state;
mod technical_spec;
mod test_suite;
mod user_story;

pub use code_artifact::{CodeArtifact, CodeFile, FileType};
pub use failure_report::{FailureReport, FailureType, FixComplexity, ReportStatus, Routing};
pub use review::{Review, Verdict};
pub use state::{Decision, DecisionChoice, TeamState, register};
pub use technical_spec::{
    ApiContract, DataField, DataModel, DecisionRecord, TechnicalSpec, Technology,
};
pub use test_suite::{TestCase, TestSuite, TestType};
pub use user_story::{Priority, UserStory};
