//! The SVG picture: converts a drawing into boxes, lines and notes. `layout` computes positions,
//! `route` draws the lines between the boxes, and `paint` writes the SVG text.
//!
//! Exceptional edges from many nodes to one are written below their source node instead of drawn
//! through the picture.

mod layout;
mod net;
mod order;
mod paint;
mod place;
mod route;
mod sheet;

use std::collections::{BTreeMap, BTreeSet};

use self::sheet::{Item, Link, Sheet, Size, px};
use super::{
    Drawing,
    edges::{DrawnEdge, Place, edges, node_lines, width},
};

/// From this number of sources on, dashed lines into one node are written instead of drawn.
const DASHED_MANY: usize = 3;
/// The maximum number of layers that all lines together pass; beyond it, the longest lines are
/// written instead of drawn.
const PASSED_MAX: usize = 4000;
/// The maximum number of columns of a label line.
const LABEL_COLUMNS: usize = 28;

/// Font metrics: the advance of a character, and the height of a line.
const NAME: (f64, f64) = (7.9, 17.0);
const SMALL: (f64, f64) = (6.7, 14.0);
/// The inner padding of boxes and stubs.
const BOX_PADDING: (f64, f64) = (12.0, 7.0);
const STUB_PADDING: (f64, f64) = (6.0, 3.0);

/// A drawing, prepared for layout and painting.
#[derive(Debug)]
struct Picture<'a> {
    drawing: &'a Drawing,
    boxes: Vec<Shape>,
    lines: Vec<Stroke>,
    /// The lines of text below the name.
    notes: Vec<String>,
}

/// A box and its lines of text.
#[derive(Debug)]
struct Shape {
    place: Place,
    texts: Vec<String>,
}

/// A line and its label, or several edges that are written below the box they leave.
#[derive(Debug)]
struct Stroke {
    from: usize,
    to: Option<usize>,
    edges: Vec<DrawnEdge>,
    /// The lines of text, each with the index of its edge.
    texts: Vec<(usize, String)>,
}

pub(super) fn draw(drawing: &Drawing) -> String {
    let picture = Picture::of(drawing);
    let placed = layout::layout(&picture.sheet());
    paint::paint(&picture, &placed)
}

impl<'a> Picture<'a> {
    fn of(drawing: &'a Drawing) -> Self {
        let (notes, edges): (Vec<DrawnEdge>, Vec<DrawnEdge>) =
            edges(drawing).into_iter().partition(|it| it.from == Place::Start && it.is_dashed);
        let written = written(drawing, &edges);
        let drawn = |place: Place| {
            edges.iter().zip(&written).any(|(it, written)| it.to == place && !written)
        };
        let nodes = (0..drawing.nodes.len()).map(Place::Node);
        let ends = [Place::End, Place::Fail].into_iter().filter(|it| drawn(*it));
        let places: Vec<Place> = std::iter::once(Place::Start).chain(nodes).chain(ends).collect();
        let index: BTreeMap<Place, usize> =
            places.iter().enumerate().map(|(at, place)| (*place, at)).collect();

        let mut lines: Vec<Stroke> = Vec::new();
        for (edge, written) in edges.into_iter().zip(written) {
            let from = index[&edge.from];
            if !written {
                let texts = edge.words().iter().flat_map(|it| wrap(it)).map(|it| (0, it)).collect();
                let to = index.get(&edge.to).copied();
                lines.push(Stroke { from, to, edges: vec![edge], texts });
                continue;
            }
            let sign = if edge.is_dashed { "⇢" } else { "→" };
            let text = format!("{} {sign} {}", edge.words().join(" "), name(drawing, edge.to));
            let text = text.trim_start().to_owned();
            match lines.iter_mut().find(|it| it.from == from && it.to.is_none()) {
                Some(stub) => {
                    stub.texts.push((stub.edges.len(), text));
                    stub.edges.push(edge);
                }
                None => {
                    lines.push(Stroke {
                        from,
                        to: None,
                        edges: vec![edge],
                        texts: vec![(0, text)],
                    });
                }
            }
        }
        let boxes = places.into_iter().map(|it| Shape::of(drawing, it, &notes)).collect();
        Self { drawing, boxes, lines, notes: legend(drawing, &notes) }
    }

    fn sheet(&self) -> Sheet {
        let mut layers: Vec<usize> = Vec::new();
        let last = self.drawing.nodes.iter().filter_map(|it| it.layer).max().unwrap_or(0);
        for shape in &self.boxes {
            let layer = match shape.place {
                Place::Start => 0,
                Place::Node(at) => self.drawing.nodes[at].layer.unwrap_or(last + 1) + 1,
                // Below all nodes that lead there.
                Place::End | Place::Fail => {
                    let leads = self.lines.iter().filter(|it| it.to == Some(layers.len()));
                    leads.map(|it| layers[it.from] + 1).max().unwrap_or(0)
                }
            };
            layers.push(layer);
        }
        let boxes = self.boxes.iter().zip(layers).map(|(shape, layer)| Item {
            size: shape.size(),
            layer,
            groups: self.groups_of(shape.place),
        });
        let links = self.lines.iter().map(|it| Link { from: it.from, to: it.to, label: it.size() });
        let names = self.drawing.groups.iter().map(|it| px(width(&it.name)) * SMALL.0);
        Sheet { boxes: boxes.collect(), links: links.collect(), group_names: names.collect() }
    }

    fn groups_of(&self, place: Place) -> Vec<usize> {
        let Place::Node(at) = place else { return Vec::new() };
        let Some(group) = self.drawing.group_of(&self.drawing.nodes[at].name) else {
            return Vec::new();
        };
        let path = self.drawing.group_path(group);
        let position = |name: &str| self.drawing.groups.iter().position(|it| it.name == name);
        path.into_iter().filter_map(|it| position(&it.name)).collect()
    }
}

impl Shape {
    fn of(drawing: &Drawing, place: Place, notes: &[DrawnEdge]) -> Self {
        let mut texts = match place {
            Place::Node(at) => node_lines(drawing, &drawing.nodes[at]),
            place => vec![name(drawing, place)],
        };
        let leading_here = notes.iter().filter(|it| it.to == place);
        texts.extend(leading_here.flat_map(|it| &it.labels).map(|it| format!("⇠ {it}")));
        Self { place, texts }
    }

    fn size(&self) -> Size {
        let widths = self
            .texts
            .iter()
            .enumerate()
            .map(|(nth, text)| px(width(text)) * if nth == 0 { NAME.0 } else { SMALL.0 });
        let small = px(self.texts.len().saturating_sub(1));
        Size {
            width: widths.fold(40.0, f64::max) + 2.0 * BOX_PADDING.0,
            height: NAME.1 + small * SMALL.1 + 2.0 * BOX_PADDING.1,
        }
    }
}

impl Stroke {
    fn size(&self) -> Option<Size> {
        let widest =
            self.texts.iter().map(|(_, text)| px(width(text)) * SMALL.0).fold(0.0, f64::max);
        let height = px(self.texts.len()) * SMALL.1;
        let (side, top) = if self.to.is_none() { STUB_PADDING } else { (0.0, 1.0) };
        let size = Size { width: widest + 2.0 * side, height: height + 2.0 * top };
        (!self.texts.is_empty()).then_some(size)
    }
}

/// Returns which edges are written below the box they leave.
fn written(drawing: &Drawing, edges: &[DrawnEdge]) -> Vec<bool> {
    let mut into: BTreeMap<Place, BTreeSet<Place>> = BTreeMap::new();
    for edge in edges.iter().filter(|it| it.is_dashed && it.from != it.to) {
        into.entry(edge.to).or_default().insert(edge.from);
    }
    let is_written = |edge: &DrawnEdge| {
        let is_outside = matches!(edge.to, Place::End | Place::Fail);
        let is_hub = into.get(&edge.to).is_some_and(|it| it.len() >= DASHED_MANY);
        edge.is_dashed && edge.from != edge.to && (is_outside || is_hub)
    };
    let mut written: Vec<bool> = edges.iter().map(is_written).collect();

    let last = drawing.nodes.iter().filter_map(|it| it.layer).max().unwrap_or(0) + 1;
    let layer = |place: Place| match place {
        Place::Start => 0,
        Place::Node(at) => drawing.nodes[at].layer.unwrap_or(last),
        Place::End | Place::Fail => last,
    };
    let passed = |it: &usize| layer(edges[*it].from).abs_diff(layer(edges[*it].to));
    let mut drawn: Vec<usize> = (0..edges.len()).filter(|it| !written[*it]).collect();
    drawn.sort_by_key(passed);
    let mut sum = 0;
    for edge in drawn {
        sum += passed(&edge);
        written[edge] = sum > PASSED_MAX && edges[edge].from != Place::Start;
    }
    written
}

/// Returns the text below the name: the run, and the targets of the run itself.
fn legend(drawing: &Drawing, notes: &[DrawnEdge]) -> Vec<String> {
    let mut legend = Vec::new();
    if let Some(run) = &drawing.run {
        legend.push(run.words());
        legend.extend(run.notes.iter().map(|it| format!("note: {it}")));
    }
    for edge in notes {
        let taken = edge.taken.filter(|it| *it > 0).map(|it| format!(" ×{it}")).unwrap_or_default();
        legend.push(format!("{} ⇢ {}{taken}", edge.labels.join(", "), name(drawing, edge.to)));
    }
    legend
}

fn name(drawing: &Drawing, place: Place) -> String {
    match place {
        Place::Start => "start".to_owned(),
        Place::Node(at) => drawing.nodes[at].name.to_string(),
        Place::End => "end".to_owned(),
        Place::Fail => "fail".to_owned(),
    }
}

/// Wraps a line between words if it is too long.
fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|it| width(it) + 1 + width(word) <= LABEL_COLUMNS) {
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
