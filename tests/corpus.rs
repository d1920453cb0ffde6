//! Workflows that are right, of many shapes: not one of them gets a diagnostic.
//!
//! A false alarm is as bad as a mistake that is missed. Each file in `tests/corpus` is different
//! in structure from the others; a new case is a new file. The workflows of `graphs` and those that the mistakes of `tests/mutants`
//! are made in are right, too. `tests/codes.rs` loads the right example of each code.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use graphrun::{
    compile::{WorstCase, compile},
    nodes::{Services, factory},
    registry,
    workflow::{LoadError, json_schema, load},
};
use serde_json::Value;

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

/// How many nodes a right workflow has; every diagnostic otherwise.
fn nodes_of(path: &Path) -> Result<usize, String> {
    let (workflow, warnings) = match load(path, &registry()) {
        Ok(loaded) => loaded,
        Err(LoadError::Invalid(diagnostics)) => return Err(diagnostics.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let factory = factory(Services::offline(), registry());
    let graph =
        compile(workflow.into_graph(&factory)).map_err(|diagnostics| diagnostics.to_string())?;
    if !warnings.is_empty() || !graph.warnings().is_empty() {
        return Err(format!("{warnings}{}", graph.warnings()));
    }
    let worst_case = WorstCase::of(&graph);
    let unbounded = worst_case.nodes.iter().find(|(_, it)| it.visits_max == u64::MAX);
    match unbounded {
        Some((name, _)) => Err(format!("the visits of `{name}` have no worst case")),
        None => Ok(worst_case.nodes.len()),
    }
}

#[test]
fn no_right_workflow_gets_a_diagnostic() {
    let files = corpus();
    assert!(files.len() >= 100, "only {} files", files.len());
    let mut wrong = String::new();
    let mut sizes = Vec::new();
    for path in &files {
        match nodes_of(path) {
            Ok(nodes) => sizes.push(nodes),
            Err(diagnostics) => writeln!(wrong, "{}:\n{diagnostics}", path.display()).unwrap(),
        }
    }
    assert!(wrong.is_empty(), "these are right, and were refused:\n\n{wrong}");
    let small = sizes.iter().min().unwrap();
    let large = sizes.iter().max().unwrap();
    assert!(*small <= 5 && *large >= 45, "the corpus has {small} to {large} nodes");
}

/// The keys of a part of a JSON Schema, at any depth.
fn keys_of(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords {
                if let ("properties", Value::Object(properties)) = (keyword.as_str(), value) {
                    keys.extend(properties.keys().cloned());
                }
                keys_of(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|it| keys_of(it, keys)),
        _ => (),
    }
}

/// Each key of the format is in an example: on a page, or in a workflow that the pages describe. Other tests load and run them.
#[test]
fn every_key_of_the_format_has_an_example() {
    let mut keys = BTreeSet::new();
    keys_of(&json_schema(&registry()), &mut keys);
    assert!(keys.len() >= 150, "only {} keys", keys.len());
    let mut texts = Vec::new();
    for folder in [".", "docs", "docs/cookbook", "docs/library", "graphs", "examples"] {
        for path in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
            match path.extension().and_then(|it| it.to_str()) {
                Some("md") => {
                    let text = fs::read_to_string(path).unwrap();
                    let blocks = text.split("```yaml\n").skip(1);
                    texts.extend(blocks.filter_map(|it| Some(it.split_once("```")?.0.to_owned())));
                }
                Some("yaml") => texts.push(fs::read_to_string(path).unwrap()),
                _ => (),
            }
        }
    }
    let is_used = |key: &String| {
        let key = format!("{key}:");
        let is_key = |text: &String| {
            let before = |at: usize| text[..at].chars().next_back();
            let is_start = |at| before(at).is_none_or(|it| !it.is_alphanumeric() && it != '_');
            text.match_indices(&key).any(|(at, _)| is_start(at))
        };
        texts.iter().any(is_key)
    };
    let missing: Vec<&String> = keys.iter().filter(|it| !is_used(it)).collect();
    assert!(missing.is_empty(), "these keys have no example: {missing:?}");
}
