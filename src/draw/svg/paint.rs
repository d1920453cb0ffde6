//! Writes the SVG text of a picture, without scripts, fonts or other external resources.

use graphrun_core::words::count;

use super::{
    BOX_PADDING, NAME, Picture, SMALL, STUB_PADDING, Shape, Stroke,
    sheet::{Area, LayoutResult, Line, Piece, Point, px},
};
use crate::draw::edges::{DrawnEdge, Place, width};

/// The margin around the picture.
const MARGIN: f64 = 20.0;
/// Font metrics of the name of the workflow.
const TITLE: (f64, f64) = (9.7, 24.0);
/// The length and half the width of an arrowhead.
const HEAD: (f64, f64) = (8.0, 4.0);

/// Each colour twice, for light and for dark pages.
const STYLE: &str = "
  text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 11px; fill: #1f2328; }
  .paper { fill: #ffffff; }
  .title { font-size: 16px; font-weight: 600; }
  .name { font-size: 13px; font-weight: 600; }
  .faint { fill: #59636e; }
  .box { fill: #f6f8fa; stroke: #818b98; stroke-width: 1.2; }
  .round .box { fill: #ffffff; }
  .group { fill: #818b98; fill-opacity: 0.08; stroke: #818b98; stroke-dasharray: 2 3; }
  .line { fill: none; stroke: #59636e; stroke-width: 1.3; }
  .head { fill: #59636e; stroke: none; }
  .dashed .line { stroke-dasharray: 5 4; }
  .back .line { stroke: #0969da; } .back .head, .back text { fill: #0969da; }
  .stub .box { fill: none; stroke-dasharray: 3 3; stroke-width: 1; }
  .unreached { opacity: 0.35; }
  .reached .box { stroke: #1a7f37; stroke-width: 2; }
  .waiting .box { stroke: #9a6700; stroke-width: 3; }
  .failed .box { stroke: #cf222e; stroke-width: 3; }
  .taken .line { stroke: #1a7f37; stroke-width: 2.2; } .taken .head, .taken text, text.taken { fill: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .paper, .round .box { fill: #0d1117; }
    .faint { fill: #9198a1; }
    .box { fill: #161b22; stroke: #6e7681; }
    .group { fill: #6e7681; stroke: #6e7681; }
    .line { stroke: #9198a1; } .head { fill: #9198a1; }
    .back .line { stroke: #58a6ff; } .back .head, .back text { fill: #58a6ff; }
    .reached .box { stroke: #3fb950; }
    .waiting .box { stroke: #d29922; }
    .failed .box { stroke: #f85149; }
    .taken .line { stroke: #3fb950; } .taken .head, .taken text, text.taken { fill: #3fb950; }
  }
";

pub(super) fn paint(picture: &Picture<'_>, placed: &LayoutResult) -> String {
    let drawing = picture.drawing;
    let heading = TITLE.1 + px(picture.notes.len()) * SMALL.1;
    let widest = picture.notes.iter().map(|it| px(width(it)) * SMALL.0);
    let widest = widest.fold(px(width(&drawing.name)) * TITLE.0, f64::max).max(placed.size.width);
    let all = (widest + 2.0 * MARGIN, heading + placed.size.height + 2.0 * MARGIN);
    let wide = number(all.0);
    let high = number(all.1);
    let mut lines = vec![format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" width=\"{wide}\" \
         height=\"{high}\" role=\"img\">"
    )];
    lines.push(format!("<title>{}</title>", escaped(&drawing.name)));
    lines.extend(drawing.about.iter().map(|it| format!("<desc>{}</desc>", escaped(it))));
    lines.push(format!("<style>{STYLE}</style>"));
    lines.push(format!("<rect class=\"paper\" width=\"{wide}\" height=\"{high}\"/>"));
    lines.push(text(Point { x: MARGIN, y: MARGIN + 14.0 }, "title", &drawing.name));
    for (nth, note) in picture.notes.iter().enumerate() {
        let y = MARGIN + TITLE.1 + px(nth) * SMALL.1 + 8.0;
        lines.push(text(Point { x: MARGIN, y }, "faint", note));
    }
    let x = MARGIN + (widest - placed.size.width) / 2.0;
    let x = number(x);
    let y = number(MARGIN + heading);
    lines.push(format!("<g transform=\"translate({x} {y})\">"));
    for (group, area) in drawing.groups.iter().zip(&placed.groups) {
        lines.extend(area.iter().map(|area| group_box(&group.name, area)));
    }
    // Lines that a run took are drawn above the others.
    let mut strokes: Vec<(&Stroke, &Line)> = picture.lines.iter().zip(&placed.links).collect();
    strokes.sort_by_key(|(stroke, _)| stroke.edges.iter().any(DrawnEdge::is_taken));
    lines.extend(strokes.iter().map(|(stroke, line)| edge(picture, stroke, line)));
    lines.extend(picture.boxes.iter().zip(&placed.boxes).map(|(it, area)| node(picture, it, area)));
    lines.push("</g>\n</svg>\n".to_owned());
    lines.join("\n")
}

fn group_box(name: &str, area: &Area) -> String {
    let at = Point { x: area.at.x + 6.0, y: area.at.y + 13.0 };
    let name = format!("<title>{}</title>{}", escaped(name), text(at, "faint", name));
    format!("<g>{}{name}</g>", rect(area, "group", 8.0))
}

fn node(picture: &Picture<'_>, shape: &Shape, area: &Area) -> String {
    let drawing = picture.drawing;
    let (class, about) = match shape.place {
        Place::Node(at) => {
            let node = &drawing.nodes[at];
            (drawing.run_class(node).unwrap_or_default(), node.about.as_deref())
        }
        Place::Start | Place::End | Place::Fail => ("round", None),
    };
    let middle = area.at.x + area.size.width / 2.0;
    let mut texts = Vec::new();
    for (nth, line) in shape.texts.iter().enumerate() {
        let y = area.at.y + BOX_PADDING.1 + NAME.1 - 4.0 + px(nth) * SMALL.1;
        let class = if nth == 0 { "name" } else { "faint" };
        texts.push(centred(Point { x: middle, y }, class, line));
    }
    let radius = if class == "round" { area.size.height / 2.0 } else { 6.0 };
    let title: Vec<&str> = shape.texts.iter().map(String::as_str).chain(about).collect();
    format!(
        "<g class=\"node {class}\"><title>{}</title>{}{}</g>",
        escaped(&title.join("\n")),
        rect(area, "box", radius),
        texts.concat()
    )
}

fn edge(picture: &Picture<'_>, stroke: &Stroke, line: &Line) -> String {
    let end = match line.pieces.last() {
        Some(Piece::To(at) | Piece::Curve(.., at)) => *at,
        None => line.from,
    };
    let mut parts = vec![format!("<path class=\"line\" d=\"{}\"/>", path(line, stroke))];
    if stroke.to.is_some() {
        let (long, wide) = HEAD;
        let x = end.x;
        let y = end.y;
        parts.push(format!(
            "<path class=\"head\" d=\"M{} {}L{} {}L{} {}Z\"/>",
            number(x - wide),
            number(y - long),
            number(x + wide),
            number(y - long),
            number(x),
            number(y)
        ));
    }
    if let Some(area) = &line.label {
        let (side, top) = if stroke.to.is_none() { STUB_PADDING } else { (0.0, 1.0) };
        if stroke.to.is_none() {
            parts.push(rect(area, "box", 4.0));
        }
        for (nth, (of, words)) in stroke.texts.iter().enumerate() {
            let y = area.at.y + top + 10.5 + px(nth) * SMALL.1;
            let is_taken = stroke.edges.get(*of).is_some_and(DrawnEdge::is_taken);
            let class = if is_taken { "taken" } else { "label" };
            parts.push(text(Point { x: area.at.x + side, y }, class, words));
        }
    }
    format!(
        "<g class=\"edge{}\"><title>{}</title>{}</g>",
        classes(stroke),
        escaped(&title(picture, stroke)),
        parts.concat()
    )
}

fn classes(stroke: &Stroke) -> String {
    let edges = || stroke.edges.iter();
    let of = |has: bool, class: &str| if has { format!(" {class}") } else { String::new() };
    [
        of(stroke.to.is_none(), "stub"),
        of(edges().all(|it| it.is_dashed), "dashed"),
        of(edges().all(|it| it.is_back), "back"),
        of(edges().any(DrawnEdge::is_taken), "taken"),
        of(edges().all(DrawnEdge::is_untaken), "unreached"),
    ]
    .concat()
}

/// Returns the full text, such as `tl to qa: review.verdict == "approved"`.
fn title(picture: &Picture<'_>, stroke: &Stroke) -> String {
    let name = |place| super::name(picture.drawing, place);
    let lines = stroke.edges.iter().map(|edge| {
        let words: Vec<&str> = edge.labels.iter().map(String::as_str).collect();
        let words =
            if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
        let taken =
            edge.taken.map(|it| format!(" (taken {})", count(it, "time"))).unwrap_or_default();
        format!("{} to {}{words}{taken}", name(edge.from), name(edge.to))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn path(line: &Line, stroke: &Stroke) -> String {
    let mut path = format!("M{} {}", number(line.from.x), number(line.from.y));
    for (nth, piece) in line.pieces.iter().enumerate() {
        match piece {
            Piece::To(at) => {
                let is_last = nth + 1 == line.pieces.len() && stroke.to.is_some();
                let y = if is_last { at.y - HEAD.0 + 1.0 } else { at.y };
                path.extend(["L", &number(at.x), " ", &number(y)]);
            }
            Piece::Curve(a, b, at) => {
                let points = [a, b, at].map(|it| format!("{} {}", number(it.x), number(it.y)));
                path.extend(["C", &points.join(" ")]);
            }
        }
    }
    path
}

fn rect(area: &Area, class: &str, radius: f64) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
        number(area.at.x),
        number(area.at.y),
        number(area.size.width),
        number(area.size.height),
        number(radius)
    )
}

fn text(at: Point, class: &str, words: &str) -> String {
    let x = number(at.x);
    let y = number(at.y);
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(words))
}

fn centred(at: Point, class: &str, words: &str) -> String {
    text(at, class, words).replacen("<text ", "<text text-anchor=\"middle\" ", 1)
}

/// Formats a number with one decimal, so that a picture does not depend on the last bit of a sum.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Escapes the special characters of SVG, and drops characters that SVG cannot contain.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            control if control.is_control() || control == '\u{fffe}' || control == '\u{ffff}' => (),
            plain => escaped.push(plain),
        }
    }
    escaped
}
