//! The codes of diagnostics: each one is used, explained, and shown by an example that is checked.
//!
//! A code is a page in `docs/codes` and a line in `diagnostic/codes.rs`. After a change of the pages
//! `UPDATE=1 cargo test --all-features --test tests codes::` writes their list anew.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun::{
    cases::Suite,
    compile::compile,
    diagnostic::{CODES, Code, Diagnostics, Severity, SourceFile},
    nodes::{Services, factory},
    registry,
    workflow::{LoadError, parse},
};

const PAGES: &str = "docs/codes";

/// Every diagnostic about cases of the workflow that the pages have.
fn diagnostics_of_cases(text: &str) -> Diagnostics {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("example.test.yaml");
    fs::write(&cases, text).unwrap();
    fs::copy(Path::new(PAGES).join("review.yaml"), folder.path().join("review.yaml")).unwrap();
    match Suite::load(&cases, &registry()) {
        Ok((_, warnings)) => warnings,
        Err(LoadError::Invalid(diagnostics)) => diagnostics,
        Err(error) => panic!("{error}"),
    }
}

/// Every diagnostic about a workflow, of loading and of compiling it.
fn diagnostics(text: &str) -> Diagnostics {
    if text.starts_with("graphrun_test:") {
        return diagnostics_of_cases(text);
    }
    let file = Arc::new(SourceFile { name: "example.yaml".into(), text: text.to_owned() });
    let (workflow, mut warnings) = match parse(file, Path::new(PAGES), &registry()) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return diagnostics,
    };
    let mut made = workflow.into_graph(&factory(Services::offline(), registry()));
    warnings.extend(made.diagnostics);
    made.diagnostics = warnings;
    match compile(made) {
        Ok(graph) => graph.warnings().clone(),
        Err(diagnostics) => diagnostics,
    }
}

/// The codes that stand in a text.
fn codes_in(text: &str) -> BTreeSet<&str> {
    let code = |at: usize| text.get(at..at + 5).filter(|it| it[2..].parse::<u16>().is_ok());
    text.match_indices("GR").filter_map(|(at, _)| code(at)).collect()
}

/// The files below a folder whose names end in this way.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn the_source_and_the_table_have_the_same_codes() {
    let is_table = |it: &PathBuf| it.ends_with("diagnostic/codes.rs");
    let is_test = |it: &PathBuf| it.ends_with("tests.rs");
    let sources = files("src", ".rs").into_iter().chain(files("crates", ".rs"));
    let sources = sources.filter(|it| !is_table(it) && !is_test(it));
    let mut used = BTreeSet::new();
    for source in sources {
        let text = fs::read_to_string(source).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines = code.lines().filter(|it| !it.trim_start().starts_with("//"));
        used.extend(lines.flat_map(codes_in).map(str::to_owned));
    }
    let table: BTreeSet<String> = CODES.iter().map(|it| it.as_str().to_owned()).collect();
    assert_eq!(used, table);
}

#[test]
fn every_wrong_example_has_its_mistake_and_no_other() {
    for code in CODES {
        let name = code.as_str();
        let diagnostics = diagnostics(code.wrong());
        let found: BTreeSet<&str> = diagnostics.in_order().iter().map(|it| it.code).collect();
        assert_eq!(found, BTreeSet::from([name]), "the wrong example of {name}:\n{diagnostics}");
        for diagnostic in diagnostics.in_order() {
            assert!(!diagnostic.labels.is_empty(), "{name} has no place: {diagnostics}");
            assert_eq!(
                diagnostic.severity == Severity::Hint,
                ["GR139", "GR140"].contains(&name),
                "{diagnostics}"
            );
            assert_eq!(
                diagnostic.severity == Severity::Warning,
                ["GR018", "GR042", "GR045", "GR051", "GR132", "GR134", "GR136", "GR138", "GR141"]
                    .contains(&name),
                "{diagnostics}"
            );
        }
    }
}

#[test]
fn every_right_example_is_another_and_has_no_diagnostics() {
    for code in CODES {
        let name = code.as_str();
        let right = code.right();
        let diagnostics = diagnostics(right);
        assert!(diagnostics.is_empty(), "the right example of {name}:\n{diagnostics}");
        assert_ne!(right, code.wrong(), "{name}");
    }
}

#[test]
fn the_pages_and_their_list_match_the_table() {
    let mut list = "# Diagnostic codes\n\n\
        Each code has a page; `graphrun explain GR010` prints the same text. A code never changes \
        its meaning.\n\n| code | problem |\n|---|---|\n"
        .to_owned();
    for code in CODES {
        let name = code.as_str();
        let title = code.title();
        writeln!(list, "| [{name}]({name}.md) | {title} |").unwrap();
    }
    let path = Path::new(PAGES).join("README.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &list).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        written,
        list,
        "`UPDATE=1 cargo test --all-features --test tests codes::` writes {}",
        path.display()
    );
    for page in files(PAGES, ".md").iter().filter(|it| **it != path) {
        let name = page.file_stem().unwrap().to_str().unwrap();
        assert!(Code::find(name).is_some(), "{} is not in the table", page.display());
    }
}
