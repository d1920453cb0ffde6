//! What a software team hands around: stories, test cases, designs, code, reviews and reports.
//!
//! Every type that a model writes is read by [`ReadLeniently`](crate::state::ReadLeniently) and has
//! its rules in its own file. A field marked `readOnly` in the schema is computed here: a model is
//! not asked for it, and not believed when it claims it. [`TeamState`] puts them together.

mod code_artifact;
mod failure_report;
mod review;
mod state;
mod technical_spec;
mod test_result;
mod test_suite;
mod user_story;

pub use code_artifact::{CodeArtifact, CodeFile, FileType};
pub use failure_report::{FailureReport, FailureType, FixComplexity, ReportStatus, Routing};
pub use review::{Review, Verdict};
pub use state::{Decision, DecisionChoice, SseStatus, TeamState};
pub use technical_spec::{
    ApiContract, DataField, DataModel, DecisionRecord, TechnicalSpec, Technology,
};
pub use test_result::{TestProof, TestResult};
pub use test_suite::{TestCase, TestSuite, TestType};
pub use user_story::{Priority, UserStory};
