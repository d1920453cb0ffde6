//! Runs the cases of a workflow: the real engine, answers in place of the world.
//!
//! Start with [`Suite`]. A case is run by `run`, with nodes that read from a `script`; `verdict`
//! says where it went otherwise than expected, `coverage` what of a graph runs have taken.
//! `explore` needs no cases: it tries every outcome.

mod coverage;
mod explore;
mod outcomes;
mod relevant;
mod run;
mod script;
mod verdict;

use std::path::{Path, PathBuf};

pub use self::{
    coverage::{Coverage, Part, PartKind},
    explore::{Effort, Explored, Stuck, explore},
    run::Ran,
    verdict::{Problem, step_text},
};
use crate::{
    compile::{CompiledGraph, compile},
    diagnostic::Diagnostics,
    graph::Graph,
    nodes::{Services, factory},
    workflow::{
        self, LoadError, Registry, Workflow,
        case_file::{Case, CaseFile, Draft},
    },
};

/// A file of cases with its workflow, both checked.
#[derive(Debug)]
pub struct Suite {
    /// The file of the cases.
    pub path: PathBuf,
    /// The file of the workflow.
    pub workflow: PathBuf,
    /// The cases in the order of the file.
    pub cases: Vec<Case>,
    definition: Workflow,
    registry: Registry,
}

impl Suite {
    /// Reads and checks a file of cases and the workflow they are for; the findings are warnings,
    /// those of the workflow left out.
    ///
    /// # Errors
    ///
    /// Fails when the file of cases cannot be read, and with every finding when one of them is an
    /// error. What is wrong with the workflow comes before what is wrong with the cases.
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
            Err(LoadError::Invalid(findings)) => return Err(with_findings(draft, findings)),
        };
        let (CaseFile { cases }, warnings) =
            draft.check(&definition, compiled.graph()).map_err(LoadError::Invalid)?;
        let registry = registry.clone();
        Ok((Self { path: path.to_owned(), workflow, cases, definition, registry }, warnings))
    }

    /// The graph of the workflow, with nodes that are not connected to anything.
    pub fn compiled(&self) -> CompiledGraph {
        self.compiled_with(Services::offline(), |_| ())
    }

    /// The graph of the workflow, with some changes that no check can object to.
    fn compiled_with(&self, services: Services, change: impl FnOnce(&mut Graph)) -> CompiledGraph {
        let (mut graph, findings) = made(&self.definition, &self.registry, services);
        change(&mut graph);
        let compiled = compile((graph, findings));
        compiled.expect("it was compiled when the suite was loaded").0
    }
}

/// Reads a workflow, with a graph whose nodes are not connected to anything.
///
/// # Errors
///
/// Fails when it cannot be read, and with every finding when one of them is an error.
pub fn load(path: &Path, registry: &Registry) -> Result<(Workflow, CompiledGraph), LoadError> {
    let (definition, _) = workflow::load(path, registry)?;
    let made = made(&definition, registry, Services::offline());
    let (compiled, _) = compile(made).map_err(LoadError::Invalid)?;
    Ok((definition, compiled))
}

fn made(definition: &Workflow, registry: &Registry, services: Services) -> (Graph, Diagnostics) {
    definition.clone().into_graph(&factory(services, registry.clone()))
}

fn with_findings(draft: Draft, mut findings: Diagnostics) -> LoadError {
    let (errors, _) = findings.counts();
    let reason =
        if errors == 1 { "it has an error".to_owned() } else { format!("it has {errors} errors") };
    findings.extend(draft.without_workflow(&reason));
    LoadError::Invalid(findings)
}
