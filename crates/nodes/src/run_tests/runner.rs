//! The runners of tests: pytest and node with their settings, or a command.

use std::collections::BTreeSet;

use graphrun_sandbox::Allowed;
use serde_json::{Value, json};

/// A test runner with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestRunner {
    /// Pytest, with a runner that checks itself.
    Pytest(graphrun_sandbox::TestSettings),
    /// The test runner of node, with a runner that checks itself.
    Node(graphrun_sandbox::TestSettings),
    /// A command that writes a report.
    Command(graphrun_sandbox::TestCommand),
}

/// The name of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Pytest.
    Pytest,
    /// The test runner of node.
    Node,
}

impl TestRunner {
    /// Returns the part of the cache key of a runner.
    pub fn fingerprint(&self) -> Value {
        match self {
            Self::Pytest(settings) => Runner::Pytest.fingerprint(settings),
            Self::Node(settings) => Runner::Node.fingerprint(settings),
            Self::Command(graphrun_sandbox::TestCommand { argv, report, report_path, allow }) => {
                let report = report.as_str();
                let mut fingerprint =
                    json!({"command": argv, "report": report, "report_path": report_path});
                if !allow.is_empty() {
                    fingerprint["allow"] = allow.iter().map(|it| it.as_str()).collect();
                }
                fingerprint
            }
        }
    }

    /// Returns the exceptions that a pass may have.
    pub fn allow(&self) -> &BTreeSet<Allowed> {
        match self {
            Self::Pytest(it) | Self::Node(it) => &it.allow,
            Self::Command(it) => &it.allow,
        }
    }

    /// Returns the runner for a run whose tests are a baseline of later ones.
    pub(super) fn for_baseline(mut self) -> Self {
        match &mut self {
            Self::Pytest(it) | Self::Node(it) => it.runs_rest = true,
            Self::Command(_) => {}
        }
        self
    }

    /// Returns the runner for a run that is compared with a baseline, where skipped tests are judged by that.
    pub(super) fn after_baseline(mut self) -> Self {
        let allow = match &mut self {
            Self::Pytest(it) | Self::Node(it) => &mut it.allow,
            Self::Command(it) => &mut it.allow,
        };
        allow.extend([Allowed::Skip, Allowed::Xfail]);
        self
    }
}

impl Runner {
    /// Every runner.
    pub const ALL: [Self; 2] = [Self::Pytest, Self::Node];

    /// Returns the word for it in a workflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pytest => "pytest",
            Self::Node => "node",
        }
    }

    fn fingerprint(self, settings: &graphrun_sandbox::TestSettings) -> Value {
        let graphrun_sandbox::TestSettings { fixed, proof, allow, runs_rest: _ } = settings;
        let hash = |file: &graphrun_sandbox::FixedFile| {
            json!([file.path, blake3::hash(&file.content).to_hex().as_str()])
        };
        json!({
            "runner": self.as_str(),
            "fixed": fixed.iter().map(hash).collect::<Vec<Value>>(),
            "proof": proof.as_str(),
            "allow": allow.iter().map(|it| it.as_str()).collect::<Vec<&str>>(),
        })
    }
}
