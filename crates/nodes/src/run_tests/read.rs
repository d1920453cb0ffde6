//! The kind `run_tests`: its keys, and how a node is read.

use std::sync::Arc;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Node},
    id::ChannelName,
    state::{Field, NumberRange, Record, Type},
};
use graphrun_sandbox::{Allowed, Proof, ReportForm};
use graphrun_workflow::{
    Expression, SandboxSettings,
    kind::{
        Keys, Kind, MakeContext, NodeReader, NodeSettings,
        values::{
            self, Either, FieldName, FolderName, NamedMap, OneOrMany, SandboxName, Scalar, Text,
        },
    },
};
use schemars::JsonSchema;

use crate::{in_folder::read_folder, outputs::read_outputs};

use super::{
    BaselineTest, RunTests, Runner, TestDifference, TestResult, TestRunner, TestStatus,
    read_runner::read_test_runner,
};

/// The kind `run_tests`.
#[derive(Debug)]
pub(crate) struct RunTestsKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RunTestsKeys {
    /// Runs tests in a sandbox.
    run_tests: RunTestsParts,
    /// One of `sandboxes`; `run` takes one of `hosts`, too.
    #[serde(rename = "in")]
    within: SandboxName,
    /// One of `folders`: the tests start in a copy of it, with the files of `artifact` above it.
    folder: Option<FolderName>,
    /// Which output goes to which field.
    writes: Either<OneOrMany<FieldName>, NamedMap<FieldName, OutputName>>,
}

/// The tested files and the runner of the tests.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct RunTestsParts {
    /// The field with the files; optional with `folder`.
    artifact: Option<values::Expression>,
    /// The runner of the tests; without one there is a `command`.
    runner: Option<RunnerName>,
    /// The tests of an earlier run, from its output `tests`: this run passes only if none of them is missing, and skips only what
    /// they skip.
    baseline: Option<values::Expression>,
    /// The number of the attempt, for the report, such as `visits("sse")`.
    attempt: Option<values::Expression>,
    /// Files and folders with tests that a person wrote, from the folder of the workflow.
    fixed: Option<OneOrMany<Text>>,
    /// The weakest proof with which a result passes.
    proof: Option<ProofName>,
    /// The exceptions that can hide a test; with a `runner`, `conftest` if the key is left out.
    allow: Option<OneOrMany<AllowedName>>,
    /// A command that runs the tests and writes a report; its result proves nothing.
    command: Option<Vec<Scalar>>,
    /// The form of the report of the command.
    report: Option<ReportName>,
    /// The file of that report; without it, the report is the output of the command.
    report_path: Option<Text>,
}

graphrun_workflow::value_types! {
    /// What runs tests.
    RunnerName = {"enum": (Runner::ALL.map(Runner::as_str))};
    /// What a result of tests proves.
    ProofName = {"enum": (Proof::ALL.map(Proof::as_str))};
    /// Something that a run of tests accepts.
    AllowedName = {"enum": (Allowed::ALL.map(Allowed::as_str))};
    /// The form of a report of tests.
    ReportName = {"enum": (ReportForm::ALL.map(ReportForm::as_str))};
    /// An output of a run of tests.
    OutputName = {"type": "string", "examples": (TestOutput::ALL.map(TestOutput::as_str))};
}

/// A node that runs tests in a sandbox.
#[derive(Clone, Debug)]
pub struct RunTestsSettings {
    /// The files to test. Without them there is a folder.
    pub artifact: Option<Expression>,
    /// The folder of the run of which the tests get a copy.
    pub folder: Option<String>,
    /// The test runner.
    pub runner: TestRunner,
    /// The tests of an earlier run, with which this one is compared.
    pub baseline: Option<Expression>,
    /// The number of the attempt, for the report.
    pub attempt: Option<Expression>,
    /// The limits of the sandbox.
    pub sandbox: SandboxSettings,
    /// The fields with the output that each receives.
    pub writes: Vec<(ChannelName, TestOutput)>,
}

/// An output of a run of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutput {
    /// The report of the runner.
    TestResult,
    /// The artifact, with the result and the number of the attempt filled in.
    CodeArtifact,
    /// `passed` or `needs_review`.
    Status,
    /// The number of the attempt.
    Attempts,
    /// The tests by name.
    Tests,
    /// What became of the tests of the baseline.
    Difference,
}

impl Kind for RunTestsKind {
    fn key(&self) -> &'static str {
        "run_tests"
    }

    fn keys(&self) -> Keys {
        Keys::of::<RunTestsKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let folder = read_folder(reader);
        let artifact = match parts.get("artifact") {
            None if reader.get("folder").is_some() => Some(None),
            None => {
                parts.require(reader.report(), "artifact", "the field with the files");
                None
            }
            Some(yaml) => reader.artifact(yaml).map(Some),
        };
        let runner = read_test_runner(reader, &parts);
        let attempt = parts.get("attempt").and_then(|yaml| {
            let attempt = reader.expression(yaml)?;
            reader.expect_type(yaml, attempt.ty(), &Type::INT, "the number of an attempt");
            Some(attempt)
        });
        let baseline = parts.get("baseline").and_then(|yaml| {
            let baseline = reader.expression(yaml)?;
            reader.expect_type(yaml, baseline.ty(), &Type::of::<Vec<BaselineTest>>(), "a baseline");
            Some(baseline)
        });
        let sandbox = reader.sandbox();
        let help = "say which output goes to which field: `writes: { result: test_result }`";
        let writes = reader.require("writes", help);
        let tested = artifact.iter().flatten().next().map_or(Type::Any, |it| it.ty().clone());
        // Without an expression it is the number of the visit; either is at least one.
        let max = attempt.as_ref().and_then(|it| it.ty().required().range()?.max);
        let number = Type::Int(NumberRange { min: Some(1.0), max: max.map(|it| it.max(1.0)) });
        let outputs =
            TestOutput::ALL.map(|it| (it.as_str(), type_of(it, &tested, number.clone()), it));
        let writes = writes.map(|it| read_outputs(reader, it, "a run of tests", &outputs));
        let writes = writes.unwrap_or_default();
        if parts.get("artifact").is_none() {
            check_no_output(reader, &writes, "artifact", TestOutput::CodeArtifact);
        }
        if parts.get("baseline").is_none() {
            check_no_output(reader, &writes, "baseline", TestOutput::Difference);
        }
        Some(Arc::new(RunTestsSettings {
            artifact: artifact?,
            folder,
            runner: runner?,
            baseline,
            attempt,
            sandbox: sandbox?,
            writes,
        }))
    }
}

impl NodeSettings for RunTestsSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(RunTests::new(self.clone(), ctx.services)))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(vec![ErrorKind::Sandbox, ErrorKind::Folder])
    }

    fn sandbox(&self) -> Option<&SandboxSettings> {
        Some(&self.sandbox)
    }
}

impl TestOutput {
    /// Every output.
    pub const ALL: [Self; 6] = [
        Self::TestResult,
        Self::CodeArtifact,
        Self::Status,
        Self::Attempts,
        Self::Tests,
        Self::Difference,
    ];

    /// Returns the word for it in a workflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TestResult => "test_result",
            Self::CodeArtifact => "code_artifact",
            Self::Status => "status",
            Self::Attempts => "attempts",
            Self::Tests => "tests",
            Self::Difference => "difference",
        }
    }
}

/// Reports an output that a node without a key cannot give.
fn check_no_output(
    reader: &mut NodeReader<'_>,
    writes: &[(ChannelName, TestOutput)],
    needed: &str,
    given: TestOutput,
) {
    if writes.iter().any(|(_, output)| *output == given)
        && let Some(key) = reader.key("writes")
    {
        let message = format!("without `{needed}` there is no output `{}`", given.as_str());
        reader.report().bad_value(key, message, &format!("remove it, or name the `{needed}`"));
    }
}

/// Returns the type of an output, for tests of an artifact of a type in an attempt with a number of a type.
fn type_of(output: TestOutput, artifact: &Type, attempt: Type) -> Type {
    let result = || Type::of::<TestResult>();
    let field = |(name, ty): (&str, Type)| Field::new(name, ty);
    match output {
        TestOutput::Status => Type::of::<TestStatus>(),
        TestOutput::Attempts => attempt,
        TestOutput::TestResult => result(),
        TestOutput::Tests => Type::of::<Vec<BaselineTest>>(),
        TestOutput::Difference => Type::of::<TestDifference>(),
        TestOutput::CodeArtifact => match artifact.required() {
            Type::Record(record) => {
                let added = [("attempt_number", attempt), ("test_result", result())];
                let is_own = |it: &&Field| !added.iter().any(|(name, _)| it.name == *name);
                let own: Vec<Field> = record.fields.iter().filter(is_own).cloned().collect();
                let fields = own.into_iter().chain(added.map(field)).collect();
                Type::Record(Arc::new(Record { fields, ..Record::clone(record) }))
            }
            other => other.clone(),
        },
    }
}
