//! A flowchart in the language of Mermaid, as Markdown viewers draw it.

use serde_json::Value;

use super::{Arrow, Drawing, DrawnNode};
use crate::{graph::Target, id::NodeName};

/// Nodes are numbered rather than called by their names, some of which Mermaid takes for words of
/// its own (`end`, `graph`, `x--`).
pub(super) fn draw(drawing: &Drawing) -> String {
    let number = |name: &NodeName| drawing.nodes.iter().position(|it| it.name == *name);
    let place = |target: &Target| match target {
        Target::Node(name) => number(name).map_or_else(String::new, |at| format!("n{at}")),
        Target::End => "finish".to_owned(),
        Target::Fail => "failure".to_owned(),
    };

    let mut lines = vec![
        // YAML, of which JSON is a part.
        "---".to_owned(),
        format!("title: {}", Value::from(drawing.name.as_str())),
        "---".to_owned(),
        "flowchart TD".to_owned(),
        "    run([start])".to_owned(),
    ];
    for (at, node) in drawing.nodes.iter().enumerate() {
        lines.push(format!("    n{at}[{}]", quoted(&text(node))));
    }
    for (target, shape) in
        [(Target::End, r#"finish(["end"])"#), (Target::Fail, r#"failure(["fail"])"#)]
    {
        if drawing.arrows.iter().any(|it| it.to == target) {
            lines.push(format!("    {shape}"));
        }
    }
    for arrow in &drawing.arrows {
        let from =
            arrow.from.clone().map_or_else(|| "run".to_owned(), |it| place(&Target::Node(it)));
        lines.push(format!("    {from} {} {}", line(arrow), place(&arrow.to)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn text(node: &DrawnNode) -> String {
    let bound = node.max_visits.map_or_else(String::new, |it| format!(" ≤{it}"));
    let kind = node.kind.unwrap_or("missing");
    format!("{}{bound}\n{kind}", node.name)
}

fn line(arrow: &Arrow) -> String {
    let line = if arrow.is_dashed() { "-.->" } else { "-->" };
    // The run has one plain arrow out of `start`, which says enough.
    match arrow.label().filter(|_| arrow.from.is_some() || arrow.is_dashed()) {
        Some(label) => format!("{line}|{}|", quoted(&label)),
        None => line.to_owned(),
    }
}

/// A text in quotes. Whatever Mermaid or HTML might take for more than a character is written as
/// its number.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '\n' => quoted.push_str("<br/>"),
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | '|' | ';' => {
                quoted.extend(["#", &u32::from(character).to_string(), ";"]);
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}
