//! `run_tests`: runs the tests of generated code in a sandbox, and believes only the runner.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    Services, expression_view,
    sandboxed::{probe, python, unusable},
    write_files::source_files,
};
use crate::{
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeError},
    sandbox::{
        JobError, PytestError, PytestReport, PythonEnvironment, Sandbox, SandboxError, SourceFile,
        run_pytest,
    },
    state::Update,
    team::{SseStatus, TestResult},
    workflow::{RunTestsNode, Runner, TestOutput},
};

/// Runs the tests of an artifact.
#[derive(Debug)]
pub(super) struct RunTests {
    definition: RunTestsNode,
    cache_dir: PathBuf,
    /// Made when it is first needed, and kept for the loop that comes back here.
    ready: OnceCell<Arc<Ready>>,
}

/// A place where tests can run.
#[derive(Debug)]
struct Ready {
    sandbox: Sandbox,
    environment: PythonEnvironment,
}

impl RunTests {
    pub(super) fn new(definition: RunTestsNode, services: Services) -> Self {
        Self { definition, cache_dir: services.cache_dir, ready: OnceCell::new() }
    }

    async fn prepare(&self) -> Result<Arc<Ready>, NodeError> {
        let sandbox = probe().await?;
        let requirements = &self.definition.sandbox.requirements;
        let environment = python(requirements, &self.cache_dir).await?;
        Ok(Arc::new(Ready { sandbox, environment }))
    }

    /// What is tested, and the number of the attempt.
    fn tested_and_attempt(&self, ctx: &NodeContext) -> Result<(Value, Value), NodeError> {
        let view = expression_view(ctx, None);
        let artifact = self.definition.artifact.evaluate(&view)?;
        let attempt = match &self.definition.attempt {
            Some(attempt) => attempt.evaluate(&view)?,
            None => json!(ctx.visit()),
        };
        Ok((artifact, attempt))
    }

    async fn test(&self, ctx: &NodeContext, files: &[SourceFile]) -> Result<TestResult, NodeError> {
        let ready = self.ready.get_or_try_init(|| self.prepare()).await?;
        let limits = self.definition.sandbox.limits();
        let Runner::Pytest = self.definition.runner;
        let ran = run_pytest(&ready.sandbox, &ready.environment, files, &limits, &ctx.cancel).await;
        match ran {
            Ok(report) => Ok(result_of(&report)),
            // The model chose these names, so the model is told.
            Err(PytestError::Sandbox(SandboxError::Refused(JobError::Files(refused)))) => {
                Ok(TestResult { failed_count: 1, total_tests: 1, ..TestResult::default() }
                    .with_output(&format!("the files were not accepted: {refused}")))
            }
            Err(PytestError::Sandbox(error)) => Err(unusable(&error)),
            Err(error) => Err(Failure::of(ErrorKind::Sandbox, &error).into()),
        }
    }
}

#[async_trait]
impl Node for RunTests {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let (artifact, attempt) = self.tested_and_attempt(&ctx)?;
        let files = source_files(&artifact["files"])?;
        let result = self.test(&ctx, &files).await?;
        let message = format!("{} of {} tests passed", result.passed_count, result.total_tests);
        ctx.report(Report::Note { message }).await;

        let status = if result.passed { SseStatus::Passed } else { SseStatus::NeedsReview };
        let result = serde_json::to_value(result)?;
        let mut update = Update::default();
        for (channel, output) in &self.definition.writes {
            let value = match output {
                TestOutput::TestResult => result.clone(),
                TestOutput::CodeArtifact => tested(artifact.clone(), &attempt, &result),
                TestOutput::Status => serde_json::to_value(status)?,
                TestOutput::Attempts => attempt.clone(),
            };
            update = update.write(channel.clone(), value);
        }
        Ok(update.into())
    }

    fn contract(&self) -> Contract {
        let writes = self.definition.writes.iter().map(|(channel, _)| channel.clone()).collect();
        Contract { reads: None, writes: Some(writes) }
    }

    fn calls_max(&self) -> Option<u64> {
        Some(0)
    }

    fn kind(&self) -> &'static str {
        "run_tests"
    }

    fn identity(&self) -> Value {
        let RunTestsNode { runner, sandbox, writes, .. } = &self.definition;
        let writes = writes.iter().map(|(channel, output)| json!([channel, output.as_str()]));
        json!({
            "runner": runner.as_str(),
            "sandbox": sandbox.identity(),
            "writes": writes.collect::<Vec<Value>>(),
        })
    }

    fn given(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let (artifact, attempt) = self.tested_and_attempt(ctx)?;
        Ok(json!([artifact, attempt]))
    }
}

/// The artifact with what the runner found, whatever it claimed before.
fn tested(mut artifact: Value, attempt: &Value, result: &Value) -> Value {
    if let Value::Object(fields) = &mut artifact {
        fields.insert("attempt_number".to_owned(), attempt.clone());
        fields.insert("test_result".to_owned(), result.clone());
    }
    artifact
}

fn result_of(report: &PytestReport) -> TestResult {
    TestResult {
        passed: report.is_passed(),
        total_tests: report.total,
        passed_count: report.passed,
        failed_count: report.failed,
        error_output: String::new(),
        duration_seconds: report.wall.as_secs_f64(),
    }
    .with_output(&report.output)
}
