//! Draws a flowchart in the Mermaid language, which Markdown viewers render.

use serde_json::Value;

use super::{
    Drawing, Group,
    edges::{DrawnEdge, Place, edges, node_lines},
};

/// The styles of reached and unreached nodes of a run; readable on light and on dark pages.
const STYLES: [&str; 4] = [
    "classDef reached stroke:#2da44e,stroke-width:2px",
    "classDef failed stroke:#cf222e,stroke-width:3px",
    "classDef waiting stroke:#bf8700,stroke-width:3px",
    "classDef unreached opacity:0.4",
];

/// Nodes have numbers as identifiers, because Mermaid would read some names as keywords (`end`,
/// `graph`, `x--`).
pub(super) fn draw(drawing: &Drawing) -> String {
    let mut lines = vec![
        // The front matter is YAML, which includes JSON strings.
        "---".to_owned(),
        format!("title: {}", Value::from(title(drawing))),
        "---".to_owned(),
        "flowchart TD".to_owned(),
        "    run([start])".to_owned(),
    ];
    for at in 0..drawing.nodes.len() {
        if drawing.group_of(&drawing.nodes[at].name).is_none() {
            lines.push(node(drawing, at, 1));
        }
    }
    for (at, _) in drawing.groups.iter().enumerate().filter(|(_, it)| it.parent.is_none()) {
        lines.extend(group(drawing, at, 1));
    }
    let edges = edges(drawing);
    for (place, shape) in
        [(Place::End, r#"finish(["end"])"#), (Place::Fail, r#"failure(["fail"])"#)]
    {
        if edges.iter().any(|it| it.to == place) {
            lines.push(format!("    {shape}"));
        }
    }
    for edge in &edges {
        lines.push(format!("    {} {} {}", place(edge.from), line(edge), place(edge.to)));
    }
    lines.extend(styles(drawing, &edges));
    lines.push(String::new());
    lines.join("\n")
}

fn title(drawing: &Drawing) -> String {
    match &drawing.run {
        Some(run) => format!("{} · {}", drawing.name, run.words()),
        None => drawing.name.clone(),
    }
}

fn node(drawing: &Drawing, at: usize, depth: usize) -> String {
    let text = node_lines(drawing, &drawing.nodes[at]).join("\n");
    format!("{}n{at}[{}]", "    ".repeat(depth), quoted(&text))
}

fn group(drawing: &Drawing, at: usize, depth: usize) -> Vec<String> {
    let Group { name, nodes, .. } = &drawing.groups[at];
    let margin = "    ".repeat(depth);
    let mut lines = vec![format!("{margin}subgraph g{at} [{}]", quoted(name))];
    let inside = (0..drawing.nodes.len()).filter(|it| nodes.contains(&drawing.nodes[*it].name));
    lines.extend(inside.map(|it| node(drawing, it, depth + 1)));
    for (inner, it) in drawing.groups.iter().enumerate() {
        if it.parent.as_deref() == Some(name) {
            lines.extend(group(drawing, inner, depth + 1));
        }
    }
    lines.push(format!("{margin}end"));
    lines
}

fn place(place: Place) -> String {
    match place {
        Place::Start => "run".to_owned(),
        Place::Node(at) => format!("n{at}"),
        Place::End => "finish".to_owned(),
        Place::Fail => "failure".to_owned(),
    }
}

fn line(edge: &DrawnEdge) -> String {
    let line = if edge.is_dashed { "-.->" } else { "-->" };
    match edge.words_in_full().as_slice() {
        [] => line.to_owned(),
        words => format!("{line}|{}|", quoted(&words.join("\n"))),
    }
}

/// Returns the styles for a run; none without a run.
fn styles(drawing: &Drawing, edges: &[DrawnEdge]) -> Vec<String> {
    if drawing.run.is_none() {
        return Vec::new();
    }
    let mut lines: Vec<String> = STYLES.iter().map(|it| format!("    {it}")).collect();
    for class in ["reached", "failed", "waiting", "unreached"] {
        let nodes = drawing.nodes.iter().enumerate();
        let nodes = nodes.filter(|(_, it)| drawing.run_class(it) == Some(class));
        let nodes: Vec<String> = nodes.map(|(at, _)| format!("n{at}")).collect();
        if !nodes.is_empty() {
            lines.push(format!("    class {} {class}", nodes.join(",")));
        }
    }
    for (wanted, style) in [(true, "stroke:#2da44e,stroke-width:2px"), (false, "opacity:0.4")] {
        let edges = edges.iter().enumerate().filter(|(_, it)| it.is_taken() == wanted);
        let edges: Vec<String> = edges.map(|(at, _)| at.to_string()).collect();
        if !edges.is_empty() {
            lines.push(format!("    linkStyle {} {style}", edges.join(",")));
        }
    }
    lines
}

/// Quotes a text. Characters with a special meaning in Mermaid or HTML become numeric entities.
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
