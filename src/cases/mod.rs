//! Runs workflow tests: the real engine with scripted answers instead of external services.
//!
//! Start with [`Suite`]. `run` runs a test case, with nodes that take their answers from a
//! `script`. `verdict` reports the differences from the expectation, and `coverage` the parts of
//! the graph that runs have taken. `explore` needs no test cases: it tries all outcomes.

mod agents;
mod beginning;
mod combinations;
mod coverage;
mod explore;
mod keyed_items;
mod leaves;
mod outcomes;
mod placed;
mod relevant;
mod run;
#[cfg(feature = "cli")]
mod saved;
mod script;
mod traces;
mod undecided;
mod verdict;

use std::path::{Path, PathBuf};

use jiff::Timestamp;

#[cfg(feature = "cli")]
pub(crate) use self::{agents::recorded_result, run::RecordedModels, saved::judge};
pub use self::{
    coverage::{Coverage, Part, PartKind},
    explore::{DeadEnd, Effort, ExplorationResult, explore},
    run::CaseRun,
    verdict::{Problem, step_text},
};
use crate::{
    compile::{CompiledGraph, compile},
    diagnostic::{Diagnostics, Severity},
    graph::{Graph, UncheckedGraph},
    nodes::{Services, factory},
    workflow::{
        self, LoadError, Registry, Workflow,
        case_file::{Case, CaseFile, Draft},
    },
};

/// The begin of each attempt, for its node: a wait of a node takes no time in a test case and in the exploration.
const AFTER_ALL_WAITS: Timestamp = Timestamp::MAX;

/// A file of test cases with its workflow, both checked.
#[derive(Debug)]
pub struct Suite {
    /// The file of the test cases.
    pub path: PathBuf,
    /// The file of the workflow.
    pub workflow: PathBuf,
    /// The test cases in the order of the file.
    pub cases: Vec<Case>,
    definition: Workflow,
    registry: Registry,
}

impl Suite {
    /// Reads and checks a file of test cases and its workflow. The returned diagnostics are
    /// warnings about the test cases, without those about the workflow.
    ///
    /// # Errors
    ///
    /// Fails if the file of test cases cannot be read. If a diagnostic is an error, fails with all
    /// diagnostics; those of the workflow come first.
    pub fn load(path: &Path, registry: &Registry) -> Result<(Self, Diagnostics), LoadError> {
        let draft = Draft::read(path)?;
        let workflow = draft.workflow();
        if let Err(error) = draft.check_workflow() {
            return Err(LoadError::Invalid(draft.without_workflow(&error.to_string())));
        }
        let (definition, compiled) = match load(&workflow, registry) {
            Ok(loaded) => loaded,
            Err(LoadError::Read { source, .. }) => {
                let reason = format!("it cannot be read: {source}");
                return Err(LoadError::Invalid(draft.without_workflow(&reason)));
            }
            Err(LoadError::Invalid(diagnostics)) => {
                return Err(with_diagnostics(draft, diagnostics));
            }
        };
        let (CaseFile { cases }, warnings) =
            draft.check(&definition, compiled.definition()).map_err(LoadError::Invalid)?;
        let registry = registry.clone();
        Ok((Self { path: path.to_owned(), workflow, cases, definition, registry }, warnings))
    }

    /// Returns the graph of the workflow, with nodes that are not connected to services.
    pub fn compiled(&self) -> CompiledGraph {
        self.compiled_with(Services::offline(), |_| ())
    }

    /// Returns the graph of the workflow after a change that keeps it valid.
    fn compiled_with(&self, services: Services, change: impl FnOnce(&mut Graph)) -> CompiledGraph {
        let mut made = made(&self.definition, &self.registry, services);
        change(&mut made.graph);
        let compiled = compile(made);
        compiled.expect("it was compiled when the suite was loaded")
    }
}

/// Reads a workflow, and compiles it with nodes that are not connected to services.
///
/// # Errors
///
/// Fails if the file cannot be read. If a diagnostic is an error, fails with all diagnostics.
pub fn load(path: &Path, registry: &Registry) -> Result<(Workflow, CompiledGraph), LoadError> {
    let (definition, _) = workflow::load(path, registry)?;
    let made = made(&definition, registry, Services::offline());
    let compiled = compile(made).map_err(LoadError::Invalid)?;
    Ok((definition, compiled))
}

fn made(definition: &Workflow, registry: &Registry, services: Services) -> UncheckedGraph {
    definition.clone().into_graph(&factory(services, registry.clone()))
}

fn with_diagnostics(draft: Draft, mut diagnostics: Diagnostics) -> LoadError {
    let errors = diagnostics.count(Severity::Error);
    let reason =
        if errors == 1 { "it has an error".to_owned() } else { format!("it has {errors} errors") };
    diagnostics.extend(draft.without_workflow(&reason));
    LoadError::Invalid(diagnostics)
}
