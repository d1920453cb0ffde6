//! The settings of a test run: the proof that it must give, and the exceptions that it may have.

use std::collections::BTreeSet;

use super::super::job::FixedFile;

/// What a result proves about the code under test, from the least to the most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Nothing: the code under test can write the report itself.
    #[default]
    Unproven,
    /// Tests and code share one interpreter. A forged result needs code that searches the memory of the runner for its
    /// parts.
    InProcess,
    /// The tests are a person's and start the code as another program, which cannot reach the runner.
    Isolated,
}

impl Proof {
    /// Every level.
    pub const ALL: [Self; 3] = [Self::Unproven, Self::InProcess, Self::Isolated];

    /// Returns its name in workflows and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::InProcess => "in_process",
            Self::Isolated => "isolated",
        }
    }

    /// Returns the level of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

/// Something that a run of tests accepts although it can hide a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowed {
    /// Tests that are skipped.
    Skip,
    /// Tests that are expected to fail.
    Xfail,
    /// Generated `conftest.py` files.
    Conftest,
    /// The project's settings of pytest.
    Config,
    /// Tests of a baseline that are gone although their files are not.
    Missing,
}

impl Allowed {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Skip, Self::Xfail, Self::Conftest, Self::Config, Self::Missing];

    /// Returns its name in workflows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Xfail => "xfail",
            Self::Conftest => "conftest",
            Self::Config => "config",
            Self::Missing => "missing",
        }
    }
}

/// How a suite of tests is run and judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestSettings {
    /// Tests and their data that are a person's and not generated. Paths are below the folder of the workflow.
    pub fixed: Vec<FixedFile>,
    /// The least that a result must prove. At [`Proof::Isolated`] only the fixed tests run.
    pub proof: Proof,
    /// The exceptions that a pass may have.
    pub allow: BTreeSet<Allowed>,
    /// Whether pytest runs the other tests if a file cannot be loaded, so that a later run can be compared with each of them.
    /// Such a run does not pass.
    pub runs_rest: bool,
}

impl Default for TestSettings {
    /// No fixed tests, [`Proof::InProcess`], and generated `conftest.py` files are loaded: most projects keep their
    /// fixtures there, and what runs there can do no more than what runs in any other file.
    fn default() -> Self {
        let allow = [Allowed::Conftest].into();
        Self { fixed: Vec::new(), proof: Proof::InProcess, allow, runs_rest: false }
    }
}

impl TestSettings {
    /// Returns whether something of a project is accepted.
    pub fn allows(&self, what: Allowed) -> bool {
        self.allow.contains(&what)
    }
}
