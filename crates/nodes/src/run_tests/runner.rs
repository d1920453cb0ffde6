//! The runners of tests: pytest and node with their settings, or a command.

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
            Self::Command(graphrun_sandbox::TestCommand { argv, report, report_path }) => {
                json!({"command": argv, "report": report.as_str(), "report_path": report_path})
            }
        }
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
        let graphrun_sandbox::TestSettings { fixed, proof, allow } = settings;
        let hash = |it: &graphrun_sandbox::FixedFile| {
            json!([it.path, blake3::hash(&it.content).to_hex().as_str()])
        };
        json!({
            "runner": self.as_str(),
            "fixed": fixed.iter().map(hash).collect::<Vec<Value>>(),
            "proof": proof.as_str(),
            "allow": allow.iter().map(|it| it.as_str()).collect::<Vec<&str>>(),
        })
    }
}
