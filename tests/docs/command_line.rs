//! `docs/command-line.md` is the help of the program as a page.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use clap::{Arg, Command};

use crate::docs::check_generated;

const INTRODUCTION: &str = "# Command line

Every command with its arguments and flags. `graphrun help` with the name of a command prints the same for one command. A test makes
this page from the program.

";

#[test]
fn the_page_of_the_command_line_is_the_help_of_the_program() {
    let mut program = graphrun::cli::command();
    program.build();
    let mut text = INTRODUCTION.to_owned();
    let mut shared = BTreeMap::new();
    let about = "| command | does |\n|---|---|\n";
    let list = commands(&program);
    text.push_str(about);
    for command in &list {
        let name = &command.name;
        let about = &command.about;
        writeln!(text, "| [`graphrun {name}`](#{}) | {about} |", anchor(name)).unwrap();
    }
    for command in &list {
        text.push_str(&section(command, &mut shared));
    }
    for (heading, rows) in &shared {
        write!(text, "\n## {heading}\n\n| flag | meaning |\n|---|---|\n{rows}").unwrap();
    }
    let after = program.get_after_help().unwrap().to_string();
    let (codes, variables) = after.split_once("\n\n").unwrap();
    for (heading, block) in [("Exit codes", codes), ("Environment", variables)] {
        let block = block.trim_start_matches(heading).trim_start_matches(":\n").trim_end();
        write!(text, "\n## {heading}\n\n```text\n{block}\n```\n").unwrap();
    }
    check_generated(Path::new("docs/command-line.md"), &text);
}

/// A command without commands below it.
struct Leaf {
    /// The words behind `graphrun`.
    name: String,
    about: String,
    usage: String,
    args: Vec<Arg>,
}

fn commands(program: &Command) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for command in program.get_subcommands().filter(|it| it.get_name() != "help") {
        collect(command, command.get_name().to_owned(), &mut leaves);
    }
    leaves
}

fn collect(command: &Command, name: String, leaves: &mut Vec<Leaf>) {
    if command.has_subcommands() {
        for inner in command.get_subcommands().filter(|it| it.get_name() != "help") {
            collect(inner, format!("{name} {}", inner.get_name()), leaves);
        }
        // A few commands do something themselves, too.
        if command.get_positionals().next().is_none() {
            return;
        }
    }
    let usage = command.clone().render_usage().to_string();
    leaves.push(Leaf {
        name,
        about: in_a_table(&command.get_about().map(ToString::to_string).unwrap_or_default()),
        usage: usage.trim_start_matches("Usage: ").to_owned(),
        args: command.get_arguments().cloned().collect(),
    });
}

/// Returns the section of a command; flags that several commands have go into `shared`.
fn section(command: &Leaf, shared: &mut BTreeMap<String, String>) -> String {
    let Leaf { name, about, usage, args } = command;
    let mut text = format!("\n## graphrun {name}\n\n{about}.\n\n```text\n{usage}\n```\n");
    let mut rows = String::new();
    let mut more = Vec::new();
    for arg in args.iter().filter(|it| it.get_id() != "help" && !it.is_hide_set()) {
        match arg.get_help_heading() {
            None | Some("Arguments" | "Options") => rows.push_str(&row(arg)),
            Some(heading) => {
                let known = shared.entry(heading.to_owned()).or_default();
                let row = row(arg);
                if !known.contains(&row) {
                    known.push_str(&row);
                }
                let link = format!("[{heading}](#{})", anchor_of(heading));
                if heading != "Global options" && !more.contains(&link) {
                    more.push(link);
                }
            }
        }
    }
    if !rows.is_empty() {
        write!(text, "\n| argument | meaning |\n|---|---|\n{rows}").unwrap();
    }
    if !more.is_empty() {
        writeln!(text, "\nAlso: {}.", more.join(", ")).unwrap();
    }
    text
}

fn row(arg: &Arg) -> String {
    let short = arg.get_short().map(|it| format!("-{it}"));
    let long = arg.get_long().map(|it| format!("--{it}"));
    let mut name = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    let takes_value = arg.get_action().takes_values();
    for value in arg.get_value_names().unwrap_or_default().iter().filter(|_| takes_value) {
        name = if name.is_empty() { value.to_string() } else { format!("{name} {value}") };
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let mut meaning = in_a_table(&help);
    if takes_value {
        let values: Vec<String> = arg
            .get_possible_values()
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => {
                    format!("`{}` ({})", value.get_name(), in_a_table(&lower(&help.to_string())))
                }
                None => format!("`{}`", value.get_name()),
            })
            .collect();
        if !values.is_empty() {
            write!(meaning, ": {}", values.join(", ")).unwrap();
        }
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
        if !defaults.is_empty() {
            write!(meaning, " (default: `{}`)", defaults.join(" ")).unwrap();
        }
    }
    format!("| `{name}` | {meaning} |\n")
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|it| it.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn in_a_table(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

fn anchor(name: &str) -> String {
    anchor_of(&format!("graphrun {name}"))
}

fn anchor_of(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}
