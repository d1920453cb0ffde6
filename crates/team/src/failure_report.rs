//! QA's report, and where it leads.
//!
//! The reader accepts nearly every report from a model: unknown words become none, nulls become
//! empty, and then the fields are made consistent. It refuses only an answer that is no report at
//! all.

use graphrun_core::state::{Choice, LenientFields, ReadLeniently, Reader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// QA's report on the code, the review and the test run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureReport {
    /// The id of the examined code, such as CODE-001.
    pub task_id: String,
    /// The result of the examination.
    pub status: ReportStatus,
    /// The number of tests that passed.
    pub tests_passed: u64,
    /// The number of tests that failed.
    pub tests_failed: u64,
    /// The problems, one entry each.
    pub errors: Vec<String>,
    /// The paths of the files with problems.
    pub failed_files: Vec<String>,
    /// Whether the design must change, not only the code.
    pub is_architectural: bool,
    /// The kind of failure; none for a pass.
    pub failure_type: FailureType,
    /// The recommended next action, in a few sentences.
    pub recommendation: String,
    /// The size of the fix.
    pub fix_complexity: FixComplexity,
    /// The exact change, if it is known.
    pub exact_fix_hint: String,
    /// The next node of the run; computed from the fields above.
    #[schemars(extend("readOnly" = true))]
    pub routing: Routing,
}

/// The result of the examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    /// The code fulfils the requirements.
    Pass,
    /// The code does not fulfil them. An answer without a known status is also read as `fail`,
    /// because only an explicit pass counts.
    Fail,
    /// The code does not fulfil them, and the engineer alone cannot fix that.
    Escalate,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureType {
    /// The code does not follow the design.
    Code,
    /// The code follows the design, and the design is wrong.
    Architectural,
    /// There is none, or the answer does not name one.
    #[default]
    None,
}

/// The size of a fix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FixComplexity {
    /// One line.
    Trivial,
    /// One or two functions.
    Moderate,
    /// Several files.
    Complex,
    /// There is nothing to fix, or the answer does not name a size.
    #[default]
    None,
}

/// The target that follows from a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// The end: the code is delivered.
    Pass,
    /// The engineer again, with the same design.
    Code,
    /// The architect, for a new design.
    Architectural,
}

impl ReadLeniently for FailureReport {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |report| {
            if !["status", "failure_type", "is_architectural"].iter().any(|name| report.has(name)) {
                report.refuse(
                    "status",
                    "one of pass, fail, escalate is required, and no other field gives the result",
                );
            }
            report.drop_claims(&["routing"]);
            let status = read_status(report);
            let reported = (
                report.choice("failure_type").unwrap_or_default(),
                report.flag("is_architectural"),
            );
            let failure_type =
                agreed_failure_type(status, reported.0, reported.1.unwrap_or_default());
            if reported.0 != FailureType::None && reported.0 != failure_type {
                report.warn("failure_type", "a pass has none, so it was dropped");
            }
            let is_architectural = failure_type == FailureType::Architectural;
            if reported.1.is_some_and(|reported| reported != is_architectural) {
                report.warn(
                    "is_architectural",
                    &format!("set to {is_architectural}, to agree with the other fields"),
                );
            }
            Self {
                task_id: report.text("task_id"),
                status,
                tests_passed: report.count("tests_passed"),
                tests_failed: report.count("tests_failed"),
                errors: report.texts("errors"),
                failed_files: report.texts("failed_files"),
                is_architectural,
                failure_type,
                recommendation: report.text("recommendation"),
                fix_complexity: report.choice("fix_complexity").unwrap_or_default(),
                exact_fix_hint: report.text("exact_fix_hint"),
                routing: routing(status, failure_type),
            }
        })
    }
}

impl Choice for ReportStatus {
    const WORDS: &'static [&'static str] = &["pass", "fail", "escalate"];
}

impl Choice for FailureType {
    const WORDS: &'static [&'static str] = &["code", "architectural", "none"];
}

impl Choice for FixComplexity {
    const WORDS: &'static [&'static str] = &["trivial", "moderate", "complex", "none"];
}

fn read_status(report: &mut LenientFields<'_>) -> ReportStatus {
    report.choice("status").unwrap_or_else(|| {
        report.warn("status", "not known, so it was read as fail");
        ReportStatus::Fail
    })
}

/// Returns the kind of failure on which the fields agree: the named kind, or else the flag, or else
/// what follows from the status.
fn agreed_failure_type(
    status: ReportStatus,
    named: FailureType,
    is_architectural: bool,
) -> FailureType {
    match (status, named) {
        (ReportStatus::Pass, _) => FailureType::None,
        (_, FailureType::Code | FailureType::Architectural) => named,
        _ if is_architectural => FailureType::Architectural,
        (ReportStatus::Escalate, FailureType::None) => FailureType::Architectural,
        (ReportStatus::Fail, FailureType::None) => FailureType::Code,
    }
}

fn routing(status: ReportStatus, failure_type: FailureType) -> Routing {
    match (status, failure_type) {
        (ReportStatus::Pass, _) => Routing::Pass,
        (_, FailureType::Architectural) => Routing::Architectural,
        (_, FailureType::Code | FailureType::None) => Routing::Code,
    }
}
