//! `run_tests`: runs the tests of generated code in a sandbox, and trusts only the runner.

mod baseline;
mod read;
mod read_runner;
mod result;
mod runner;

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
    state::Update,
};
use graphrun_sandbox::{
    Allowed, Job, JobError, Project, PytestError, SandboxError, SourceFile, TestCommand, TestItem,
    TestReport, TestSettings, run_node, run_pytest, run_test_command,
};
use graphrun_workflow::{ExpressionView, kind::Services};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::baseline::refuse_unnamed;
pub(super) use self::read::RunTestsKind;
pub use self::{
    baseline::{BaselineOutcome, BaselineTest, TestDifference},
    read::{RunTestsSettings, TestOutput},
    result::{TestProof, TestResult, TestStatus},
    runner::{Runner, TestRunner},
};
use super::{
    in_folder::SandboxFolder,
    sandboxed::{OpenSandbox, PreparedSandbox, SandboxServices, unusable},
    write_files::source_files,
};

/// Runs the tests of an artifact.
#[derive(Debug)]
struct RunTests {
    definition: RunTestsSettings,
    /// The runner, with the settings that a baseline needs.
    runner: TestRunner,
    sandboxes: SandboxServices,
    /// Made on first use, and kept for later visits in a loop.
    prepared: OnceCell<PreparedSandbox>,
}

impl RunTests {
    fn new(definition: RunTestsSettings, services: &Services) -> Self {
        let mut runner = definition.runner.clone();
        if definition.baseline.is_some() {
            runner = runner.after_baseline();
        }
        if writes_tests(&definition) {
            runner = runner.for_baseline();
        }
        let sandboxes = SandboxServices::of(services);
        let prepared = OnceCell::new();
        Self { definition, runner, sandboxes, prepared }
    }

    /// Returns the tested artifact and the number of the attempt.
    fn tested_and_attempt(&self, ctx: &NodeContext) -> Result<(Arc<Value>, Arc<Value>), NodeError> {
        let view = ExpressionView::of(ctx);
        let artifact = match &self.definition.artifact {
            Some(artifact) => artifact.evaluate(&view)?,
            None => Arc::default(),
        };
        let attempt = match &self.definition.attempt {
            // Attempts are counted from one on.
            Some(attempt) => match attempt.evaluate(&view)? {
                number if number.as_i64().is_some_and(|it| it < 1) => Arc::new(json!(1)),
                number => number,
            },
            None => Arc::new(json!(ctx.visit())),
        };
        Ok((artifact, attempt))
    }

    /// Returns the tests that the baseline had.
    fn baseline(&self, ctx: &NodeContext) -> Result<Option<Vec<BaselineTest>>, NodeError> {
        let Some(baseline) = &self.definition.baseline else { return Ok(None) };
        let value = baseline.evaluate(&ExpressionView::of(ctx))?;
        Ok(Some(serde_json::from_value(Value::clone(&value))?))
    }

    async fn test(&self, ctx: &NodeContext, files: &[SourceFile]) -> Result<TestRun, NodeError> {
        let prepare = || PreparedSandbox::prepare(&self.definition.sandbox, &self.sandboxes);
        let prepared = self.prepared.get_or_try_init(prepare).await?;
        let open = prepared.open_for(ctx).await?;
        // Others choose among the files.
        let takes_any = match &self.runner {
            TestRunner::Pytest(it) => it.allows(Allowed::Conftest),
            TestRunner::Node(_) => false,
            TestRunner::Command(_) => true,
        };
        let name = self.definition.folder.as_ref();
        let (ran, folder) = loop {
            let folder = SandboxFolder::open(ctx, name, takes_any && prepared.can_mount()).await?;
            let mounted_paths = match &self.runner {
                TestRunner::Pytest(_) => folder.mounted_paths().await?,
                TestRunner::Node(_) | TestRunner::Command(_) => Arc::default(),
            };
            let copied = folder.files();
            let mounted = folder.mounted();
            let files = files.to_vec();
            let project = Project { folder: copied, mounted, mounted_paths, files };
            let ran = match &self.runner {
                TestRunner::Pytest(it) => self.run_pytest(ctx, &open, &project, it).await,
                TestRunner::Node(it) => self.run_node(ctx, &open, &project, it).await,
                TestRunner::Command(it) => self.run_command(ctx, &open, &project, it).await,
            };
            match ran {
                Err(PytestError::Sandbox(error)) if prepared.copies_after(&error) => {}
                ran => break (ran, folder),
            }
        };
        open.report(ctx).await;
        match ran {
            // The model chose these names, so the model gets the error.
            Err(PytestError::Sandbox(SandboxError::Refused(JobError::Files(refused)))) => {
                let result =
                    TestResult { failed_count: 1, total_tests: 1, ..TestResult::default() }
                        .with_output(&format!("the files were not accepted: {refused}"));
                Ok(TestRun { result, ..TestRun::default() })
            }
            Err(PytestError::Sandbox(error)) => Err(unusable(&error)),
            Err(error) => Err(Failure::of(ErrorKind::Sandbox, &error).into()),
            Ok((result, items)) => {
                let mut paths = BTreeSet::new();
                if self.needs_tests() {
                    paths.extend(files.iter().map(|it| it.path.clone()));
                    let of_folder = folder.paths().await?;
                    paths.extend(of_folder.iter().filter_map(|it| it.to_str().map(str::to_owned)));
                }
                let tests = items.into_iter().map(|it| BaselineTest::of(it, &paths)).collect();
                Ok(TestRun { result, tests, paths })
            }
        }
    }

    /// Returns whether the node gives the names of the tests, or compares them.
    fn needs_tests(&self) -> bool {
        self.definition.baseline.is_some() || writes_tests(&self.definition)
    }

    async fn run_pytest(
        &self,
        ctx: &NodeContext,
        open: &OpenSandbox,
        project: &Project,
        settings: &TestSettings,
    ) -> Result<(TestResult, Vec<TestItem>), PytestError> {
        let limits = self.definition.sandbox.limits();
        let environment = open.environment.as_ref().ok_or(PytestError::NotInstalled)?;
        let report =
            run_pytest(&open.sandbox, environment, project, settings, &limits, &ctx.cancel).await?;
        Ok(result_of(report))
    }

    async fn run_node(
        &self,
        ctx: &NodeContext,
        open: &OpenSandbox,
        project: &Project,
        settings: &TestSettings,
    ) -> Result<(TestResult, Vec<TestItem>), PytestError> {
        let limits = self.definition.sandbox.limits();
        let OpenSandbox { sandbox, mounts, .. } = open;
        let report = run_node(sandbox, mounts, project, settings, &limits, &ctx.cancel).await?;
        Ok(result_of(report))
    }

    async fn run_command(
        &self,
        ctx: &NodeContext,
        open: &OpenSandbox,
        project: &Project,
        command: &TestCommand,
    ) -> Result<(TestResult, Vec<TestItem>), PytestError> {
        let limits = self.definition.sandbox.limits();
        let OpenSandbox { sandbox, mounts, env, .. } = open;
        let job = Job { read_only: mounts.clone(), env: env.clone(), limits, ..Job::default() };
        let report = run_test_command(sandbox, job, command, project, &ctx.cancel).await?;
        let counts = report.counts.unwrap_or_default();
        let result = TestResult {
            passed: report.is_passed,
            total_tests: counts.total(),
            passed_count: counts.passed,
            failed_count: counts.failed,
            skipped_count: counts.skipped,
            error_output: String::new(),
            duration_seconds: report.wall.as_secs_f64(),
            proof: TestProof::Unproven,
        };
        Ok((result.with_output(&report.output), report.items))
    }
}

/// A run of the tests.
#[derive(Debug, Default)]
struct TestRun {
    result: TestResult,
    tests: Vec<BaselineTest>,
    /// The paths of the tested files, if the names of the tests are needed.
    paths: BTreeSet<String>,
}

#[async_trait]
impl Node for RunTests {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let (artifact, attempt) = self.tested_and_attempt(&ctx)?;
        let files = match &self.definition.artifact {
            Some(_) => source_files(&artifact["files"])?,
            None => Vec::new(),
        };
        let baseline = self.baseline(&ctx)?;
        let TestRun { result, tests, paths } = self.test(&ctx, &files).await?;
        let allow = self.definition.runner.allow();
        let (difference, result) = match baseline {
            // A run that ended before any test was found is no pass, and has nothing to compare.
            Some(baseline) if result.passed || !tests.is_empty() => {
                let difference = TestDifference::between(&baseline, &tests, &paths);
                let result = difference.judge(result, allow);
                (difference, refuse_unnamed(result, &tests, allow))
            }
            _ => (TestDifference::default(), result),
        };
        let TestResult { passed_count, total_tests, proof, .. } = &result;
        let message = format!("{passed_count} of {total_tests} tests passed ({})", proof.as_str());
        ctx.report(Report::Note { message }).await;

        let status = if result.passed { TestStatus::Passed } else { TestStatus::NeedsReview };
        let result = serde_json::to_value(result)?;
        let mut update = Update::default();
        for (channel, output) in &self.definition.writes {
            let value = match output {
                TestOutput::TestResult => result.clone(),
                TestOutput::CodeArtifact => tested(Value::clone(&artifact), &attempt, &result),
                TestOutput::Status => serde_json::to_value(status)?,
                TestOutput::Attempts => Value::clone(&attempt),
                TestOutput::Tests => serde_json::to_value(&tests)?,
                TestOutput::Difference => serde_json::to_value(&difference)?,
            };
            update = update.write(channel.clone(), ctx.state.schema().cut(channel, value));
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let RunTestsSettings { runner, sandbox, writes, .. } = &self.definition;
        let outputs = writes.iter().map(|(channel, output)| json!([channel, output.as_str()]));
        let writes = writes.iter().map(|(channel, _)| channel.clone()).collect();
        NodeDescription {
            kind: "run_tests",
            contract: Contract { reads: None, writes: Some(writes) },
            calls_max: Some(0),
            fingerprint: json!({
                "runner": runner.fingerprint(),
                "sandbox": sandbox.fingerprint(),
                "writes": outputs.collect::<Vec<Value>>(),
            }),
            ..NodeDescription::default()
        }
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let (artifact, attempt) = self.tested_and_attempt(ctx)?;
        Ok(match self.baseline(ctx)? {
            Some(baseline) => json!([artifact, attempt, baseline]),
            None => json!([artifact, attempt]),
        })
    }
}

/// Returns the artifact with the result of the runner in place of any result it claimed.
fn tested(mut artifact: Value, attempt: &Value, result: &Value) -> Value {
    if let Value::Object(fields) = &mut artifact {
        fields.insert("attempt_number".to_owned(), attempt.clone());
        fields.insert("test_result".to_owned(), result.clone());
    }
    artifact
}

fn writes_tests(definition: &RunTestsSettings) -> bool {
    definition.writes.iter().any(|(_, output)| *output == TestOutput::Tests)
}

fn result_of(report: TestReport) -> (TestResult, Vec<TestItem>) {
    let result = TestResult {
        passed: report.is_passed(),
        total_tests: report.total,
        passed_count: report.passed,
        failed_count: report.failed,
        skipped_count: report.skipped,
        error_output: String::new(),
        duration_seconds: report.wall.as_secs_f64(),
        proof: report.proof.into(),
    };
    (result.with_output(&report.output), report.items)
}
