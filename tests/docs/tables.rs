//! Tables whose rows are the entries of a list in the program.

use std::path::Path;

use graphrun::{state::Reducer, workflow::Function};

use crate::{check_generated, page::Page};

#[test]
fn the_table_of_reducers_is_that_of_the_program() {
    let rows = Reducer::BUILT_IN.iter().map(|it| {
        let (name, fields, about) = (it.name(), it.needs(), it.about());
        format!("| `{name}` | {fields} | {about} |")
    });
    check_table("docs/workflow.md", "| reducer | fields | does |", rows);
}

#[test]
fn the_table_of_functions_is_that_of_the_program() {
    let rows = Function::all().iter().map(|it| {
        let (example, about) = (it.example().replace('|', "\\|"), it.about());
        format!("| `{it}` | `{example}` | {about} |")
    });
    check_table("docs/expressions.md", "| function | example | gives |", rows);
}

/// Compares the rows below the header of a table, or writes them with `UPDATE=1`.
fn check_table(path: &str, header: &str, rows: impl Iterator<Item = String>) {
    let page = Page::read(path);
    let (before, rest) = page.text.split_once(&format!("{header}\n")).expect("the table exists");
    let (line, rest) = rest.split_once('\n').expect("a line follows the header");
    let behind = rest.lines().skip_while(|it| it.starts_with('|'));
    let head = [before.to_owned() + header, line.to_owned()];
    let lines = head.into_iter().chain(rows).chain(behind.map(str::to_owned));
    let wanted = lines.map(|it| it + "\n").collect::<String>();
    check_generated(Path::new(path), &wanted);
}
