//! The runners of tests: pytest with its settings, or a command.

use serde_json::{Value, json};

use crate::sandbox;

/// What runs tests, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestRunner {
    /// Pytest, with a runner that checks itself.
    Pytest(sandbox::TestSettings),
    /// A command that writes a report.
    Command(sandbox::TestCommand),
}

/// The name of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Pytest.
    Pytest,
}

impl TestRunner {
    /// What tells the results of two runners apart.
    pub(crate) fn identity(&self) -> Value {
        match self {
            Self::Pytest(sandbox::TestSettings { fixed, proof, allow }) => {
                let hash = |it: &sandbox::FixedFile| {
                    json!([it.path, blake3::hash(&it.content).to_hex().as_str()])
                };
                json!({
                    "runner": Runner::Pytest.as_str(),
                    "fixed": fixed.iter().map(hash).collect::<Vec<Value>>(),
                    "proof": proof.as_str(),
                    "allow": allow.iter().map(|it| it.as_str()).collect::<Vec<&str>>(),
                })
            }
            Self::Command(sandbox::TestCommand { argv, report, report_path }) => {
                json!({"command": argv, "report": report.as_str(), "report_path": report_path})
            }
        }
    }
}

impl Runner {
    /// Every runner.
    pub const ALL: [Self; 1] = [Self::Pytest];

    /// The word a workflow uses for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pytest => "pytest",
        }
    }
}
