//! Tables whose rows are the entries of a list in the program.

use std::path::Path;

use graphrun::{graph::ErrorKind, state::Reducer, tool::BUILT_IN, workflow::Function};
use serde_json::Value;

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

#[test]
fn the_table_of_tools_is_that_of_the_program() {
    let rows = BUILT_IN.iter().map(|it| {
        let tool = it.make(Path::new("."));
        let [takes, gives] = [tool.input_schema(), tool.output_schema()].map(|it| listed(it, it));
        format!("| `{}` | {takes} | {gives} | {} |", it.name, it.about)
    });
    check_table("docs/workflow.md", "| built in | takes | gives | does |", rows);
}

#[test]
fn the_table_of_failures_is_that_of_the_program() {
    let rows = ErrorKind::ALL.iter().map(|it| {
        let class = serde_json::to_value(it.usual_class()).unwrap();
        format!("| `{it}` | {} | `{}` |", it.about(), class.as_str().unwrap())
    });
    check_table("docs/workflow.md", "| kind | of failure | usual class |", rows);
}

/// Returns the names of the fields of an object, with those of its lists of objects.
fn listed(object: &Value, root: &Value) -> String {
    let name = |(name, field): (&String, &Value)| match field["items"]["$ref"].as_str() {
        Some(item) => {
            let item = root.pointer(item.trim_start_matches('#')).unwrap();
            format!("`{name}` ({})", listed(item, root))
        }
        None => format!("`{name}`"),
    };
    object["properties"].as_object().unwrap().iter().map(name).collect::<Vec<_>>().join(", ")
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
