//! Workflows that are right, of many shapes: not one of them gets a finding.
//!
//! A false alarm is as bad as a mistake that is missed. Each file in `tests/corpus` is different
//! in structure from the others; a new case is a new file. The workflows of `graphs` and those that the mistakes of `tests/mutants`
//! are made in are right, too. `tests/codes.rs` loads the right example of each code.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use graphrun::{
    compile::{Envelope, compile},
    nodes::{Services, factory},
    registry,
    workflow::{LoadError, load},
};

fn corpus() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["tests/corpus", "tests/mutants", "graphs"] {
        collect(Path::new(folder), &mut files);
    }
    files.sort();
    files
}

/// The workflows below a folder that no other one uses.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|it| it == "yaml") && !name.contains(".test.") {
            files.push(path);
        }
    }
}

/// How many nodes a right workflow has; every finding otherwise.
fn nodes_of(path: &Path) -> Result<usize, String> {
    let (workflow, warnings) = match load(path, &registry()) {
        Ok(loaded) => loaded,
        Err(LoadError::Invalid(findings)) => return Err(findings.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let factory = factory(Services::offline(), registry());
    let graph = compile(workflow.into_graph(&factory)).map_err(|findings| findings.to_string())?;
    if !warnings.is_empty() || !graph.warnings().is_empty() {
        return Err(format!("{warnings}{}", graph.warnings()));
    }
    let envelope = Envelope::of(&graph);
    let unbounded = envelope.nodes.iter().find(|(_, it)| it.visits_max == u64::MAX);
    match unbounded {
        Some((name, _)) => Err(format!("the visits of `{name}` have no worst case")),
        None => Ok(envelope.nodes.len()),
    }
}

#[test]
fn no_right_workflow_gets_a_finding() {
    let files = corpus();
    assert!(files.len() >= 100, "only {} files", files.len());
    let mut wrong = String::new();
    let mut sizes = Vec::new();
    for path in &files {
        match nodes_of(path) {
            Ok(nodes) => sizes.push(nodes),
            Err(findings) => writeln!(wrong, "{}:\n{findings}", path.display()).unwrap(),
        }
    }
    assert!(wrong.is_empty(), "these are right, and were refused:\n\n{wrong}");
    let (small, large) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*small <= 5 && *large >= 45, "the corpus has {small} to {large} nodes");
}
