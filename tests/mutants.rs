//! Mistakes, seeded one at a time in workflows that are right: each is found, with the right code,
//! on the right line, and nothing else is blamed.
//!
//! A folder in `tests/mutants` holds a right workflow with its prompts, and `mutants.txt`: under
//! a heading for each kind of mistake, lines such as
//!
//! ```text
//! GR010  then: design ⇒ then: desing
//! GR006  then: keep\n ⇒  @ run_tests:
//! GR003  too: review & GR006
//! ```
//!
//! - The text before `⇒` stands once in the file and becomes the text after it; `\n` and `\t` are
//!   what they look like.
//! - The diagnostic stands on the line where the replaced text begins (its first line that is not
//!   blank), or after ` @ ` on the only line with that text; lines around it tell it apart.
//! - ` & ` names what else may be found because of the mistake; nothing but that is.
//! - `file prompts/x.md` turns to another file of the folder.
//!
//! Every kind that must be found at load has mistakes in [`KINDS`]; each workflow itself is right.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use graphrun::{
    compile::compile,
    diagnostic::{Diagnostic, Diagnostics},
    nodes::{Services, factory},
    registry,
    workflow::{LoadError, load},
};

/// The kinds of mistakes that are found at load: the headings of the lists.
const KINDS: &[&str] = &[
    "YAML errors",
    "tabs",
    "duplicate keys",
    "tags and changed values",
    "wrong version",
    "unknown keys",
    "wrong kinds of value",
    "missing keys",
    "missing or two node kinds",
    "unknown nodes",
    "unknown agents",
    "unknown tools",
    "unknown models",
    "unknown sandboxes",
    "folders",
    "hosts",
    "declared tools",
    "agents by value",
    "models of a used workflow",
    "memory",
    "unknown types",
    "unknown fields",
    "unknown reducers",
    "unknown error kinds",
    "prompt files",
    "template syntax",
    "names in templates",
    "expression syntax",
    "expression types",
    "enum values",
    "optional values",
    "read before written, on all ways",
    "read before written, on some way",
    "parallel writes without a reducer",
    "unreachable nodes",
    "no way to an end",
    "unbounded loops",
    "bounds that reset each other",
    "exhausted into its own loop",
    "joins that cannot be met",
    "parallel and map",
    "non-exhaustive matches",
    "dead and constant cases",
    "limits below the worst case",
    "nodes reached in two steps",
    "state text in commands",
    "secrets",
    "unused",
    "names and values that are not allowed",
];

struct Mutant {
    kind: String,
    file: String,
    code: String,
    also: Vec<String>,
    old: String,
    new: String,
    marker: Option<String>,
    /// Where it stands in the list.
    listed: String,
}

fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir("tests/mutants").unwrap().map(|it| it.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|it| it.is_dir()).collect();
    folders.sort();
    folders
}

fn mutants(folder: &Path) -> Vec<Mutant> {
    let path = folder.join("mutants.txt");
    let text = fs::read_to_string(&path).unwrap();
    let mut kind = String::new();
    let mut file = "workflow.yaml".to_owned();
    let mut mutants = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let listed = format!("{}:{}", path.display(), at + 1);
        if line.is_empty() || line.starts_with('#') {
        } else if let Some(heading) = line.strip_prefix('[') {
            heading.strip_suffix(']').unwrap().clone_into(&mut kind);
            assert!(KINDS.contains(&kind.as_str()), "{listed}: the kind `{kind}` is not known");
        } else if let Some(name) = line.strip_prefix("file ") {
            name.clone_into(&mut file);
        } else {
            mutants.push(mutant(line, &kind, &file, listed));
        }
    }
    mutants
}

fn mutant(line: &str, kind: &str, file: &str, listed: String) -> Mutant {
    let (code, rest) = line.split_once("  ").unwrap_or_else(|| panic!("{listed}: no code"));
    let (old, rest) = rest.split_once(" ⇒ ").unwrap_or_else(|| panic!("{listed}: no ` ⇒ `"));
    let (rest, also) = match rest.find(" & GR") {
        Some(at) => (&rest[..at], rest[at + 3..].split(" & ").map(str::to_owned).collect()),
        None => (rest, Vec::new()),
    };
    let (new, marker) = match rest.split_once("@ ") {
        Some((new, marker)) => (new.strip_suffix(' ').unwrap_or(new), Some(plain(marker))),
        None => (rest, None),
    };
    Mutant {
        kind: kind.to_owned(),
        file: file.to_owned(),
        code: code.to_owned(),
        also,
        old: plain(old),
        new: plain(new),
        marker,
        listed,
    }
}

fn plain(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}

/// Everything that is found in a workflow.
fn diagnostics(path: &Path) -> Diagnostics {
    let (workflow, mut warnings) = match load(path, &registry()) {
        Ok(loaded) => loaded,
        Err(LoadError::Invalid(diagnostics)) => return diagnostics,
        Err(error) => panic!("{error}"),
    };
    let factory = factory(Services::offline(), registry());
    match compile(workflow.into_graph(&factory)) {
        Ok(graph) => warnings.extend(graph.warnings().in_order().into_iter().cloned()),
        Err(more) => warnings.extend(more.in_order().into_iter().cloned()),
    }
    warnings
}

/// The number of the only line that a text begins on; of a text of several lines, the first.
fn line_of(text: &str, marker: &str) -> Result<usize, String> {
    match text.match_indices(marker).collect::<Vec<_>>().as_slice() {
        [(at, _)] => Ok(text[..*at].matches('\n').count() + 1),
        found => Err(format!("{} times in the file: {marker:?}", found.len())),
    }
}

/// The expected diagnostic of a mutant, and its line.
fn seeded(folder: &Path, mutant: &Mutant) -> Result<(Diagnostics, usize), String> {
    let path = folder.join(&mutant.file);
    let right = fs::read_to_string(&path).unwrap();
    let start = line_of(&right, &mutant.old)?;
    let wrong = right.replace(&mutant.old, &mutant.new);
    if wrong == right {
        return Err("changes nothing".to_owned());
    }
    let line = match &mutant.marker {
        Some(marker) => line_of(&wrong, marker)?,
        None => start + mutant.new.bytes().take_while(|it| *it == b'\n').count(),
    };
    fs::write(&path, &wrong).unwrap();
    let found = diagnostics(&folder.join("workflow.yaml"));
    fs::write(&path, &right).unwrap();
    Ok((found, line))
}

/// Whether a mistake is among the diagnostics, on its line.
fn is_among(found: &Diagnostics, mutant: &Mutant, line: usize) -> bool {
    let is_it = |diagnostic: &&Diagnostic| {
        diagnostic.code == mutant.code
            && diagnostic.labels.first().is_some_and(|label| {
                label.span.line_and_column().0 == line
                    && label.span.file.name.ends_with(&mutant.file)
            })
    };
    found.in_order().iter().any(is_it)
}

/// The difference between the expected and actual diagnostics of a mutant, if there is one.
fn missed(folder: &Path, mutant: &Mutant) -> Result<(), String> {
    let (found, line) = seeded(folder, mutant)?;
    if !is_among(&found, mutant, line) {
        return Err(format!("no {} on line {line}, but:\n{found}", mutant.code));
    }
    let is_blamed = |diagnostic: &&Diagnostic| {
        diagnostic.code != mutant.code && !mutant.also.contains(&diagnostic.code.to_owned())
    };
    if found.in_order().into_iter().any(|it| is_blamed(&it)) {
        return Err(format!("{} and {:?} would be enough:\n{found}", mutant.code, mutant.also));
    }
    Ok(())
}

/// A copy of a folder, where files can be written.
fn copy(folder: &Path, to: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn every_mistake_gives_its_code_on_its_line_and_no_other() {
    let mut count = 0;
    let mut misses = String::new();
    let mut missing = 0;
    for folder in folders() {
        let place = tempfile::tempdir().unwrap();
        copy(&folder, place.path());
        let right = diagnostics(&place.path().join("workflow.yaml"));
        assert!(right.is_empty(), "{} is right:\n{right}", folder.display());
        for mutant in mutants(&folder) {
            count += 1;
            if let Err(problem) = missed(place.path(), &mutant) {
                missing += 1;
                let shown = format!("{}: {:?} ⇒ {:?}", mutant.listed, mutant.old, mutant.new);
                writeln!(misses, "{shown}\n{problem}").unwrap();
            }
        }
    }
    assert!(misses.is_empty(), "{missing} of {count} mistakes are missed:\n\n{misses}");
    assert!(count >= 450, "only {count} mistakes");
    assert!(folders().len() >= 6, "only {:?}", folders());
}

/// Diagnostics that a broken name may cause are not required; all others are.
#[test]
fn a_mistake_in_a_name_hides_no_mistake_elsewhere() {
    let names = ["unknown nodes", "joins that cannot be met", "parallel and map"];
    let others = ["enum values", "expression types", "optional values", "dead and constant cases"];
    let mut count = 0;
    let mut hidden = String::new();
    for folder in folders() {
        let place = tempfile::tempdir().unwrap();
        copy(&folder, place.path());
        let all = mutants(&folder);
        let path = place.path().join("workflow.yaml");
        let right = fs::read_to_string(&path).unwrap();
        let of = |kinds: &[&str]| {
            let is_of = |mutant: &&Mutant| {
                kinds.contains(&mutant.kind.as_str()) && mutant.file == "workflow.yaml"
            };
            all.iter().filter(is_of).collect::<Vec<_>>()
        };
        for first in of(&names) {
            fs::write(&path, right.replace(&first.old, &first.new)).unwrap();
            let is_lowered = load(&path, &registry()).is_ok();
            // The checks of the whole graph need resolved names.
            let second = of(&others).into_iter().filter(|_| !is_lowered);
            for second in second {
                // Two mistakes in one place are one.
                let Ok((found, line)) = seeded(place.path(), second) else { continue };
                count += 1;
                if !is_among(&found, second, line) {
                    writeln!(hidden, "{} behind {}:\n{found}", second.listed, first.listed)
                        .unwrap();
                }
            }
            fs::write(&path, &right).unwrap();
        }
    }
    assert!(hidden.is_empty(), "of {count} mistakes some are hidden:\n{hidden}");
    assert!(count >= 300, "only {count}");
}

#[test]
fn there_are_mistakes_of_every_kind() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for folder in folders() {
        for mutant in mutants(&folder) {
            *counts.entry(mutant.kind).or_default() += 1;
        }
    }
    let absent: Vec<&&str> = KINDS.iter().filter(|it| !counts.contains_key(**it)).collect();
    assert!(absent.is_empty(), "no mistakes of these kinds: {absent:?}");
}
