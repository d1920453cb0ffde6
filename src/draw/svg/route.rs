//! Computes the heights of the ranks, and the path of each line from box to box.

use std::cmp::Ordering;

use super::{
    net::{LayoutGraph, Vertex, before},
    place::Column,
    sheet::{Area, GROUP_SIDE, LINE, LayoutResult, Line, Piece, Point, Sheet, Size, TURN, px},
};

/// The minimum space between two layers; lines with a large horizontal distance increase it.
const GAP: f64 = 14.0;

/// The maximum space.
const GAP_MAX: f64 = 44.0;

/// The space above the nodes of a group for its name, and below them.
const GROUP_TOP: f64 = 22.0;
const GROUP_BOTTOM: f64 = 10.0;

/// The distance between the ports of a box, if the box is wide enough.
const PORT: f64 = 16.0;

/// The heights of the ranks.
#[derive(Debug, Default)]
struct Bands {
    top: Vec<f64>,
    bottom: Vec<f64>,
    /// The space above and below the vertices of a rank where lines are straight, for the borders
    /// of groups.
    above: Vec<f64>,
    below: Vec<f64>,
}

/// Computes all heights and draws the lines.
pub(super) fn route(
    sheet: &Sheet,
    net: &LayoutGraph,
    ranks: &[Vec<usize>],
    columns: &[Column],
) -> LayoutResult {
    let bands = &Bands::of(sheet, net, ranks, columns);
    let area = |vertex: usize| {
        let Vertex { rank, size, .. } = &net.vertices[vertex];
        let middle = f64::midpoint(bands.top[*rank], bands.bottom[*rank]);
        let at =
            Point { x: columns[vertex].middle - size.width / 2.0, y: middle - size.height / 2.0 };
        Area { at, size: *size }
    };
    let boxes: Vec<Area> = (0..sheet.boxes.len()).map(area).collect();
    let ports = Ports::of(net, columns);
    let links = (0..sheet.links.len())
        .map(|link| {
            let mut line = line(net, columns, bands, &boxes, &ports, link);
            line.label = net.labels[link].map(|it| {
                let mut label = area(it);
                if sheet.links[link].to.is_some() {
                    label.at.x += LINE;
                    label.size.width -= LINE;
                }
                label
            });
            line
        })
        .collect();
    let mut groups: Vec<Option<Area>> =
        (0..sheet.group_names.len()).map(|it| group(sheet, net, columns, bands, it)).collect();
    for (at, group) in groups.iter_mut().enumerate() {
        let hit = |it: usize| group.is_some_and(|group| group.meets(&area(it).grown(1.0)));
        if strangers(net, at).into_iter().any(hit) {
            *group = None;
        }
    }
    LayoutResult { boxes, links, groups, size: Size::default() }
}

impl Bands {
    fn of(sheet: &Sheet, net: &LayoutGraph, ranks: &[Vec<usize>], columns: &[Column]) -> Self {
        let count = ranks.len();
        let mut bands =
            Self { above: vec![0.0; count], below: vec![0.0; count], ..Self::default() };
        for group in 0..sheet.group_names.len() {
            let inside = net.vertices.iter().filter(|it| it.groups.contains(&group));
            let ranks: Vec<usize> = inside.map(|it| it.rank).collect();
            if let (Some(&first), Some(&last)) = (ranks.iter().min(), ranks.iter().max()) {
                bands.above[first] += GROUP_TOP;
                bands.below[last] += GROUP_BOTTOM;
            }
        }
        let mut gaps = vec![GAP; count + 1];
        for &(upper, lower) in &net.segments {
            let aside = (columns[upper].line - columns[lower].line).abs();
            let gap = &mut gaps[net.vertices[lower].rank];
            *gap = gap.max((GAP + aside / 8.0).min(GAP_MAX));
        }
        for chain in &net.chains {
            for pair in chain.windows(2) {
                let rank = net.vertices[pair[0]].rank;
                if rank != net.vertices[pair[1]].rank {
                    continue;
                }
                // A line turns below the box that it leaves, and above the box where it arrives.
                let turn = if net.vertices[pair[0]].is_box { rank + 1 } else { rank };
                gaps[turn] = gaps[turn].max(TURN);
            }
        }
        let mut y = 0.0;
        for (rank, vertices) in ranks.iter().enumerate() {
            let tallest = vertices.iter().map(|it| net.vertices[*it].size.height);
            y += gaps[rank] + bands.above[rank];
            bands.top.push(y);
            y += tallest.fold(0.0, f64::max);
            bands.bottom.push(y);
            y += bands.below[rank];
        }
        bands
    }

    /// Returns the range of heights in which lines at a rank are straight.
    fn straight(&self, rank: usize) -> (f64, f64) {
        (self.top[rank] - self.above[rank], self.bottom[rank] + self.below[rank])
    }
}

/// Returns the vertices that a group's box must not overlap: other boxes, and lines between others.
fn strangers(net: &LayoutGraph, group: usize) -> Vec<usize> {
    let is_inside = |it: usize| net.vertices[it].groups.contains(&group);
    let mut strangers: Vec<usize> =
        (0..net.vertices.len()).filter(|it| net.vertices[*it].is_box && !is_inside(*it)).collect();
    for chain in &net.chains {
        if !is_inside(chain[0]) && !is_inside(chain[chain.len() - 1]) {
            strangers.extend(chain.iter().filter(|it| !net.vertices[**it].is_box));
        }
    }
    strangers
}

/// The positions where lines leave boxes and arrive at them, by link.
struct Ports {
    leaving: Vec<f64>,
    coming: Vec<f64>,
}

impl Ports {
    fn of(net: &LayoutGraph, columns: &[Column]) -> Self {
        let mut ports =
            Self { leaving: vec![0.0; net.chains.len()], coming: vec![0.0; net.chains.len()] };
        let boxes = net.vertices.iter().enumerate().filter(|(_, it)| it.is_box);
        for (at, vertex) in boxes {
            let mut leaving: Vec<(usize, usize)> = Vec::new();
            let mut coming: Vec<(usize, usize)> = Vec::new();
            for (link, chain) in net.chains.iter().enumerate() {
                if chain[0] == at {
                    leaving.push((link, chain[1]));
                }
                if chain[chain.len() - 1] == at {
                    coming.push((link, chain[chain.len() - 2]));
                }
            }
            for (ends, xs) in [(leaving, &mut ports.leaving), (coming, &mut ports.coming)] {
                let mut ends = ends;
                ends.sort_by(|a, b| columns[a.1].line.total_cmp(&columns[b.1].line));
                let last = px(ends.len().saturating_sub(1));
                let step = PORT.min(vertex.size.width * 0.6 / last.max(1.0));
                for (nth, (link, _)) in ends.iter().enumerate() {
                    xs[*link] = columns[at].middle + (px(nth) - last / 2.0) * step;
                }
            }
        }
        ports
    }
}

fn line(
    net: &LayoutGraph,
    columns: &[Column],
    bands: &Bands,
    boxes: &[Area],
    ports: &Ports,
    link: usize,
) -> Line {
    let chain = &net.chains[link];
    let last = chain.len() - 1;
    let x = |at: usize| match at {
        0 => ports.leaving[link],
        at if at == last && net.vertices[chain[at]].is_box => ports.coming[link],
        at => columns[chain[at]].line,
    };
    let source = &boxes[chain[0]];
    let from = Point { x: x(0), y: source.at.y + source.size.height };
    let mut pieces = Vec::new();
    for (at, pair) in chain.windows(2).enumerate() {
        let here = x(at);
        let there = x(at + 1);
        let rank = net.vertices[pair[0]].rank;
        let next = net.vertices[pair[1]].rank;
        let (top, bottom) = bands.straight(rank);
        let (next_top, next_bottom) = bands.straight(next);
        let (start, end) = match rank.cmp(&next) {
            Ordering::Less => (bottom, next_top),
            Ordering::Greater => (top, next_bottom),
            // Down and up again after a box, up and down again before one.
            Ordering::Equal if net.vertices[pair[0]].is_box => (bottom, bottom),
            Ordering::Equal => (top, top),
        };
        let handle = match rank.cmp(&next) {
            Ordering::Equal if net.vertices[pair[0]].is_box => start + TURN,
            Ordering::Equal => start - TURN,
            Ordering::Less | Ordering::Greater => f64::midpoint(start, end),
        };
        pieces.push(Piece::To(Point { x: here, y: start }));
        pieces.push(Piece::Curve(
            Point { x: here, y: handle },
            Point { x: there, y: handle },
            Point { x: there, y: end },
        ));
    }
    let end = if net.vertices[chain[last]].is_box {
        boxes[chain[last]].at.y
    } else {
        bands.top[net.vertices[chain[last]].rank]
    };
    pieces.push(Piece::To(Point { x: x(last), y: end }));
    Line { from, pieces, label: None }
}

fn group(
    sheet: &Sheet,
    net: &LayoutGraph,
    columns: &[Column],
    bands: &Bands,
    group: usize,
) -> Option<Area> {
    let mut area: Option<(Point, Point)> = None;
    for (at, vertex) in net.vertices.iter().enumerate() {
        let Some(depth) = vertex.groups.iter().position(|it| *it == group) else { continue };
        // The border of an outer group surrounds those of its inner groups.
        let around = px(vertex.groups.len() - depth);
        let half = vertex.size.width / 2.0;
        let left = columns[at].middle - half - before(sheet, vertex, depth) + 4.0;
        let right = columns[at].middle + half + around * GROUP_SIDE - 4.0;
        let top = bands.top[vertex.rank] - GROUP_TOP * around + 2.0;
        let bottom = bands.bottom[vertex.rank] + GROUP_BOTTOM * around - 2.0;
        let (low, high) =
            area.unwrap_or((Point { x: left, y: top }, Point { x: right, y: bottom }));
        area = Some((
            Point { x: low.x.min(left), y: low.y.min(top) },
            Point { x: high.x.max(right), y: high.y.max(bottom) },
        ));
    }
    let (low, high) = area?;
    let size = Size { width: high.x - low.x, height: high.y - low.y };
    Some(Area { at: low, size })
}
