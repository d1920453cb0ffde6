//! Draws a graph in the DOT language of Graphviz.

use super::{
    Drawing, Group,
    edges::{DrawnEdge, Place, edges, node_lines},
};

/// The default attributes. They set no colours of text or paper.
const DEFAULTS: [&str; 4] = [
    r#"graph [rankdir=TB, labelloc=t, fontname="sans-serif", nodesep=0.4, ranksep=0.6];"#,
    r#"node [shape=box, style=rounded, fontname="sans-serif", fontsize=11];"#,
    r#"edge [fontname="sans-serif", fontsize=9];"#,
    r#""(start)" [label="start", shape=circle];"#,
];

const GREEN: &str = "#2da44e";
const RED: &str = "#cf222e";
const YELLOW: &str = "#bf8700";
const GREY: &str = "#8c959f";
const BLUE: &str = "#0969da";

/// Nodes have their names in quotes as identifiers; no name has the parentheses of start and end.
pub(super) fn draw(drawing: &Drawing) -> String {
    let mut lines = vec![format!("digraph {} {{", quoted(&drawing.name))];
    lines.push(format!("  label={};", quoted(&title(drawing))));
    lines.extend(DEFAULTS.iter().map(|it| format!("  {it}")));
    for at in 0..drawing.nodes.len() {
        if drawing.group_of(&drawing.nodes[at].name).is_none() {
            lines.push(node(drawing, at, 1));
        }
    }
    for (at, _) in drawing.groups.iter().enumerate().filter(|(_, it)| it.parent.is_none()) {
        lines.extend(group(drawing, at, 1));
    }
    let edges = edges(drawing);
    for (place, text) in [(Place::End, "end"), (Place::Fail, "fail")] {
        if edges.iter().any(|it| it.to == place) {
            lines.push(format!("  \"({text})\" [label={}, shape=oval];", quoted(text)));
        }
    }
    lines.extend(edges.iter().map(|it| edge(drawing, it)));
    lines.push("}\n".to_owned());
    lines.join("\n")
}

fn title(drawing: &Drawing) -> String {
    match &drawing.run {
        Some(run) => format!("{}\n{}", drawing.name, run.words()),
        None => drawing.name.clone(),
    }
}

fn node(drawing: &Drawing, at: usize, depth: usize) -> String {
    let node = &drawing.nodes[at];
    let mut attributes = vec![format!("label={}", quoted(&node_lines(drawing, node).join("\n")))];
    attributes.extend(node.about.as_ref().map(|it| format!("tooltip={}", quoted(it))));
    match drawing.run_class(node) {
        Some("unreached") => {
            attributes.push(format!("color={}, fontcolor={}", quoted(GREY), quoted(GREY)));
        }
        Some("failed") => attributes.push(format!("color={}, penwidth=3", quoted(RED))),
        Some("waiting") => attributes.push(format!("color={}, penwidth=3", quoted(YELLOW))),
        Some(_) => attributes.push(format!("color={}, penwidth=2", quoted(GREEN))),
        None => (),
    }
    let name = quoted(node.name.as_str());
    format!("{}{name} [{}];", "  ".repeat(depth), attributes.join(", "))
}

fn group(drawing: &Drawing, at: usize, depth: usize) -> Vec<String> {
    let Group { name, nodes, .. } = &drawing.groups[at];
    let margin = "  ".repeat(depth);
    let mut lines = vec![format!("{margin}subgraph {} {{", quoted(&format!("cluster_{name}")))];
    lines.push(format!("{margin}  label={}; style=\"rounded,dotted\";", quoted(name)));
    let inside: Vec<usize> =
        (0..drawing.nodes.len()).filter(|it| nodes.contains(&drawing.nodes[*it].name)).collect();
    lines.extend(inside.iter().map(|it| node(drawing, *it, depth + 1)));
    let layer = |it: &usize| drawing.nodes[*it].layer;
    if inside.windows(2).all(|it| layer(&it[0]) == layer(&it[1])) && inside.len() > 1 {
        let names: Vec<String> =
            inside.iter().map(|it| quoted(drawing.nodes[*it].name.as_str())).collect();
        lines.push(format!("{margin}  {{ rank=same; {}; }}", names.join("; ")));
    }
    for (inner, it) in drawing.groups.iter().enumerate() {
        if it.parent.as_deref() == Some(name) {
            lines.extend(group(drawing, inner, depth + 1));
        }
    }
    lines.push(format!("{margin}}}"));
    lines
}

fn edge(drawing: &Drawing, edge: &DrawnEdge) -> String {
    let place = |it: Place| match it {
        Place::Start => "(start)".to_owned(),
        Place::Node(at) => drawing.nodes[at].name.to_string(),
        Place::End => "(end)".to_owned(),
        Place::Fail => "(fail)".to_owned(),
    };
    let mut attributes = Vec::new();
    let words = edge.words();
    if !words.is_empty() {
        attributes.push(format!("label={}", quoted(&words.join("\n"))));
        if !edge.labels.is_empty() {
            attributes.push(format!("tooltip={}", quoted(&edge.labels.join("\n"))));
        }
    }
    if edge.is_dashed {
        attributes.push("style=dashed".to_owned());
    }
    // Edges back, and edges from the run to its failure target, do not affect the layout.
    if edge.is_back || (edge.from == Place::Start && edge.is_dashed) {
        attributes.push("constraint=false".to_owned());
    }
    let colour = match (edge.is_taken(), edge.is_untaken(), edge.is_back) {
        (true, ..) => Some(GREEN),
        (_, true, _) => Some(GREY),
        (.., true) => Some(BLUE),
        _ => None,
    };
    attributes.extend(colour.map(|it| format!("color={0}, fontcolor={0}", quoted(it))));
    if edge.is_taken() {
        attributes.push("penwidth=2".to_owned());
    }
    let attributes =
        if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
    format!("  {} -> {}{attributes};", quoted(&place(edge.from)), quoted(&place(edge.to)))
}

/// Quotes a text. Graphviz interprets backslashes in labels as escapes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => (),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}
