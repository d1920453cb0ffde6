//! Tables whose rows are the entries of a list in the program.

use std::path::Path;

use graphrun::{
    graph::ErrorKind,
    registry,
    state::Reducer,
    tool::BUILT_IN,
    workflow::{Fact, Function, json_schema, memory::Tiers},
};
use serde_json::Value;

use crate::docs::{check_generated, page::Page};

#[test]
fn the_tables_of_the_reference_are_those_of_the_program() {
    let mut page = Page::read("docs/workflow.md");
    let rows = Reducer::BUILT_IN.iter().map(|reducer| {
        let name = reducer.name();
        let fields = reducer.needs();
        let about = reducer.about();
        format!("| `{name}` | {fields} | {about} |")
    });
    page.text = with_rows(&page.text, "| reducer | fields | does |", rows);
    let rows = ErrorKind::ALL.iter().map(|kind| {
        let class = serde_json::to_value(kind.usual_class()).unwrap();
        format!("| `{kind}` | {} | `{}` |", kind.about(), class.as_str().unwrap())
    });
    page.text = with_rows(&page.text, "| kind | of failure | usual class |", rows);
    let rows = BUILT_IN.iter().map(|built_in| {
        let tool = built_in.make(Path::new("."), &Tiers::new());
        let [takes, gives] = [tool.input_schema(), tool.output_schema()].map(|it| listed(it, it));
        format!("| `{}` | {takes} | {gives} | {} |", built_in.name, built_in.about)
    });
    page.text = with_rows(&page.text, "| built in | takes | gives | does |", rows);
    let registry = registry();
    let schema = json_schema(&registry);
    let rows = registry.kinds().iter().map(|kind| {
        let key = kind.key();
        let of_key = format!("/properties/nodes/additionalProperties/properties/{key}/description");
        let about = schema.pointer(&of_key).and_then(Value::as_str).unwrap().replace('\n', " ");
        let about = about.trim_start_matches("Kind: ").split(". ").next().unwrap();
        format!("| [`{key}`](#{key}) | {} |", about.trim_end_matches('.'))
    });
    page.text = with_rows(&page.text, "| kind | does |", rows);
    check_generated(&page.path, &page.text);
}

#[test]
fn the_table_of_functions_is_that_of_the_program() {
    let page = Page::read("docs/expressions.md");
    let rows = Function::all().iter().map(|function| {
        let example = function.example.replace('|', "\\|");
        format!(
            "| `{function}` | `{example}` | `{}` | {} |",
            function.example_value, function.about
        )
    });
    let text = with_rows(&page.text, "| function | example | its value | gives |", rows);
    let rows = Fact::all().iter().map(|it| format!("| `{}` | {} |", it.name, it.about));
    let text = with_rows(&text, "| fact | is |", rows);
    check_generated(&page.path, &text);
}

#[test]
fn the_table_of_templates_is_that_of_the_program() {
    let page = Page::read("docs/getting-started.md");
    let program = graphrun::cli::command();
    let init = program.find_subcommand("init").expect("the program has `init`");
    let template = init.get_arguments().find(|it| it.get_id() == "template").expect("an argument");
    let values = template.get_possible_values();
    let rows = values.iter().map(|value| {
        let names: Vec<&str> = value.get_name_and_aliases().collect();
        let help = value.get_help().expect("it is described").to_string();
        // The help of a template with another name begins with its pattern.
        let (pattern, about) = match names.get(1) {
            Some(pattern) => (format!("`{pattern}`"), help.split_once(": ").expect("a pattern").1),
            None => (String::new(), help.as_str()),
        };
        let (first, rest) = about.split_at(1);
        format!("| `{}` | {pattern} | {}{rest} |", names[0], first.to_uppercase())
    });
    let text = with_rows(&page.text, "| template | pattern | does |", rows);
    check_generated(&page.path, &text);
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

/// Returns a page with these rows below the header of a table.
fn with_rows(page: &str, header: &str, rows: impl Iterator<Item = String>) -> String {
    let (before, rest) = page.split_once(&format!("{header}\n")).expect("the table exists");
    let (line, rest) = rest.split_once('\n').expect("a line follows the header");
    let behind = rest.lines().skip_while(|it| it.starts_with('|'));
    let head = [before.to_owned() + header, line.to_owned()];
    let lines = head.into_iter().chain(rows).chain(behind.map(str::to_owned));
    lines.map(|it| it + "\n").collect()
}
