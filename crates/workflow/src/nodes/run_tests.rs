//! `run_tests`: runs tests in a sandbox.

use graphrun_core::{diagnostic::Diagnostic, id::ChannelName, state::Type};

use super::{RUN_TESTS_KEYS, Reading};
use crate::{
    RunTestsNode, TestOutput,
    lower::Lowering,
    reader::{SpannedText, Yaml},
    report::suggestion,
    shape::Section,
    typing::fits,
};

impl Lowering<'_> {
    pub(super) fn read_run_tests(
        &mut self,
        reading: Reading<'_, '_>,
        tests: &Yaml,
    ) -> Option<RunTestsNode> {
        let Reading { name, section, .. } = reading;
        let parts = Section::read(&mut self.report, tests, "`run_tests`", RUN_TESTS_KEYS)?;
        let written = self.flow.before(name);
        let artifact = parts.require(&mut self.report, "artifact", "the field with the files");
        let artifact = artifact.and_then(|it| self.expression(it, &written));
        let runner = self.read_test_runner(tests, &parts);
        let attempt = parts.get("attempt").and_then(|it| {
            let attempt = self.expression(it, &written)?;
            self.expect_type(it, attempt.ty(), &Type::Int, "the number of an attempt");
            Some(attempt)
        });
        let sandbox = self.read_sandbox_of(section);
        let help = "say which output goes to which field: `writes: { result: test_result }`";
        let writes = section.require(&mut self.report, "writes", help);
        let writes = writes.map(|it| self.read_outputs(it)).unwrap_or_default();
        Some(RunTestsNode {
            artifact: artifact?,
            runner: runner?,
            attempt,
            sandbox: sandbox?,
            writes,
        })
    }

    /// Reads `field: output`, or just fields with the names of their outputs.
    fn read_outputs(&mut self, yaml: &Yaml) -> Vec<(ChannelName, TestOutput)> {
        let mut writes = Vec::new();
        for (field, output) in self.read_pairs(yaml) {
            let channel = self.report.channel(&field, &self.schema);
            let found = TestOutput::ALL.into_iter().find(|it| it.as_str() == output.text);
            let Some(found) = found else {
                let names = TestOutput::ALL.map(TestOutput::as_str);
                let help = suggestion(&output.text, names).unwrap_or_default();
                let message = format!("a run of tests gives no `{}`", output.text);
                self.report.bad_value(&output, message, &help);
                continue;
            };
            if let Some(channel) = channel {
                self.check_output(&field, &channel, found);
                writes.push((channel, found));
            }
        }
        writes
    }

    fn check_output(&mut self, field: &SpannedText, channel: &ChannelName, output: TestOutput) {
        let given = match output {
            TestOutput::Status => Type::Enum(vec!["passed".into(), "needs_review".into()]),
            TestOutput::Attempts => Type::Int,
            TestOutput::TestResult | TestOutput::CodeArtifact => return,
        };
        let declared = self.schema.channel(channel.as_str()).map_or(&Type::Any, |it| it.ty());
        if !fits(&given, declared) {
            let message =
                format!("`{}` is `{given}`, and `{channel}` is `{declared}`", output.as_str());
            let place = self.report.place(&field.range);
            self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
        }
    }
}
