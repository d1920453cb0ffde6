//! The tables of the shipped systems, which name a test for each rule.

use std::{collections::BTreeSet, fs, path::Path};

use crate::docs::page::Page;

/// The pages of the systems, each with the name of its workflow.
const SYSTEMS: [&str; 5] = ["dev_team", "escalation", "autocode", "cycle", "lifecycle"];

#[test]
fn each_rule_of_a_system_names_tests_that_exist() {
    let mut unknown = Vec::new();
    let functions = functions();
    let cases = cases();
    for system in SYSTEMS {
        let page = Page::read(format!("docs/{system}.md"));
        let workflow = fs::read_to_string(format!("graphs/{system}.yaml")).unwrap();
        let rows: Vec<&str> =
            page.text.split("\n| rule |").nth(1).unwrap_or_default().lines().collect();
        let rows: Vec<&&str> = rows.iter().skip(2).take_while(|it| it.starts_with('|')).collect();
        assert!(rows.len() > 5, "{system} has no table of its rules");
        for row in rows {
            let cell = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
            let mut names = cell.split('`').skip(1).step_by(2).peekable();
            assert!(names.peek().is_some() || cell.trim() == "the workflow", "{system}: {row}");
            for name in names {
                let is_part = !name.contains(' ') && workflow.contains(name);
                let is_test = cases.iter().chain(&functions).any(|it| fits(name, it));
                if !is_test && !Path::new(name).exists() && !is_part {
                    unknown.push(format!("{system}: {name}"));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Whether a name, in which `…` stands for any text, is that of a test.
fn fits(name: &str, test: &str) -> bool {
    let parts: Vec<&str> = name.split('…').map(str::trim).collect();
    let first = parts[0];
    let last = parts[parts.len() - 1];
    if parts.len() == 1 {
        return name == test;
    }
    let mut rest = test;
    let is_in_order = parts.iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    });
    is_in_order && test.starts_with(first) && test.ends_with(last)
}

/// Returns the names of the test cases of all workflows.
fn cases() -> BTreeSet<String> {
    let files = fs::read_dir("graphs").unwrap().map(|it| it.unwrap().path());
    let files = files.filter(|it| it.display().to_string().ends_with(".test.yaml"));
    let names = |text: String| {
        let names = text.lines().filter_map(|it| it.trim().strip_prefix("- name: "));
        names.map(|it| it.trim_matches('"').to_owned()).collect::<Vec<_>>()
    };
    files.flat_map(|it| names(fs::read_to_string(it).unwrap())).collect()
}

/// Returns the names of all functions of the tests and the crates.
fn functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open = vec!["tests".to_owned(), "crates".to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.display().to_string());
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let after = text.split("fn ").skip(1);
                names.extend(after.filter_map(|it| Some(it.split_once('(')?.0.to_owned())));
            }
        }
    }
    names
}
