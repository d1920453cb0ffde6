//! `docs/durability.md` names the tests of each promise: they are there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn each_promise_names_tests_and_these_are_there() {
    let page = fs::read_to_string("docs/durability.md").unwrap();
    let (_, section) = page.split_once("\n## Which test shows which promise\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut sources = String::new();
    sources_below(Path::new("tests"), &mut sources);
    let known: BTreeSet<&str> = sources.split(|it: char| !is_of_name(it)).collect();
    for name in names(section) {
        assert!(known.contains(name), "there is no test `{name}`");
    }
    for promise in 1..=20 {
        let (_, own) = section
            .split_once(&format!("**G{promise}** "))
            .unwrap_or_else(|| panic!("nothing is said of G{promise}"));
        let own = own.split("\n\n").next().unwrap();
        assert!(names(own).next().is_some(), "G{promise} names no test");
    }
}

/// The words in code style that look like names of tests.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |it: &&str| it.chars().all(is_of_name) && it.matches('_').count() > 2;
    text.split('`').skip(1).step_by(2).filter(is_name)
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
}

/// All Rust code below a folder, but this file.
fn sources_below(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            sources_below(&path, sources);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with(file!()) {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
