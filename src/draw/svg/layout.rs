//! Where everything stands: boxes in layers, lines between them that pass no box.
//!
//! After Sugiyama, Tagawa and Toda (1981): a line that passes a layer has a vertex there, as wide as
//! the line or its label. Vertices of a layer are put in an order with few crossings (`order`), then
//! beside each other (`place`). Lines bend only between layers, so they cross no box and no label.

use std::cmp::Ordering;

use super::{order, place, route};

/// The room in which a line turns back.
pub(super) const TURN: f64 = 26.0;
/// The room between a group and what is beside it.
pub(super) const GROUP_SIDE: f64 = 14.0;
/// The width of a line with what it keeps free beside it.
pub(super) const LINE: f64 = 8.0;

/// What is to be laid out.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) boxes: Vec<Item>,
    pub(super) links: Vec<Link>,
    /// The widths of the names of groups.
    pub(super) group_names: Vec<f64>,
}

/// A box.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) size: Size,
    pub(super) layer: usize,
    /// The groups it is in, the outermost first.
    pub(super) groups: Vec<usize>,
}

/// A line from a box to another, or to its own label only.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: Option<usize>,
    pub(super) label: Option<Size>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A point; y goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A rectangle by its upper left corner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Area {
    pub(super) at: Point,
    pub(super) size: Size,
}

/// Where everything stands.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) boxes: Vec<Area>,
    pub(super) links: Vec<Line>,
    /// None where others stand between the nodes of a group.
    pub(super) groups: Vec<Option<Area>>,
    pub(super) size: Size,
}

/// The way of a line: it begins at a point and goes on piece by piece.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) from: Point,
    pub(super) pieces: Vec<Piece>,
    pub(super) label: Option<Area>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// Straight up or down.
    To(Point),
    /// An S from upright to upright, or a U if both ends are at one height; by two handles.
    Curve(Point, Point, Point),
}

/// What has a place in a layer: a box, or a line that passes.
#[derive(Debug)]
pub(super) struct Vertex {
    pub(super) rank: usize,
    pub(super) size: Size,
    /// Where a line passes it, from its middle.
    pub(super) anchor: f64,
    pub(super) groups: Vec<usize>,
    pub(super) is_box: bool,
}

/// The vertices of a sheet, and what connects them.
#[derive(Debug, Default)]
pub(super) struct Net {
    pub(super) vertices: Vec<Vertex>,
    /// From a rank to the next one.
    pub(super) segments: Vec<(usize, usize)>,
    /// Within a rank: a box, and the line that turns beside it.
    pub(super) hooks: Vec<(usize, usize)>,
    /// For each link its vertices, boxes included.
    pub(super) chains: Vec<Vec<usize>>,
    /// For each link the vertex with its label.
    pub(super) labels: Vec<Option<usize>>,
}

pub(super) fn layout(sheet: &Sheet) -> Placed {
    let net = Net::of(sheet);
    let ranks = order::order(&net);
    let columns = place::place(&net, &ranks, &|left, right| room(sheet, &net, left, right));
    let mut placed = route::route(sheet, &net, &ranks, &columns);
    placed.settle();
    placed
}

impl Net {
    fn of(sheet: &Sheet) -> Self {
        let mut net = Self::default();
        for item in &sheet.boxes {
            // Labels have ranks of their own between the layers.
            net.vertices.push(Vertex {
                rank: item.layer * 2,
                size: item.size,
                anchor: 0.0,
                groups: item.groups.clone(),
                is_box: true,
            });
        }
        for link in &sheet.links {
            net.add(link);
        }
        net
    }

    fn add(&mut self, link: &Link) {
        let rank = self.vertices[link.from].rank;
        let mut chain = vec![link.from];
        let mut label = None;
        let groups = self.common_groups(link);
        let mut ranks: Vec<usize> = Vec::new();
        let mut labelled = rank + 1;
        match link.to.map(|it| self.vertices[it].rank) {
            None => ranks.push(rank + 1),
            Some(to) if to > rank => ranks.extend(rank + 1..to),
            // It goes up beside both of its boxes.
            Some(to) => {
                ranks.extend((to..=rank).rev());
                labelled = if to < rank { rank - 1 } else { rank };
            }
        }
        for rank in ranks {
            let mut vertex = Vertex {
                rank,
                size: Size { width: LINE, height: 0.0 },
                anchor: 0.0,
                groups: groups.clone(),
                is_box: false,
            };
            if let Some(size) = link.label.filter(|_| rank == labelled) {
                vertex.size = size;
                if link.to.is_some() {
                    vertex.size.width += LINE;
                    vertex.anchor = (LINE - vertex.size.width) / 2.0;
                }
                label = Some(self.vertices.len());
            }
            chain.push(self.vertices.len());
            self.vertices.push(vertex);
        }
        chain.extend(link.to);
        for pair in chain.windows(2) {
            let (upper, lower) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            match self.vertices[pair[0]].rank.cmp(&self.vertices[pair[1]].rank) {
                Ordering::Less => self.segments.push((pair[0], pair[1])),
                Ordering::Greater => self.segments.push((pair[1], pair[0])),
                // Boxes come before lines.
                Ordering::Equal => self.hooks.push((upper, lower)),
            }
        }
        self.chains.push(chain);
        self.labels.push(label);
    }

    /// The groups that a line never leaves.
    fn common_groups(&self, link: &Link) -> Vec<usize> {
        let from = &self.vertices[link.from].groups;
        let Some(to) = link.to.map(|it| &self.vertices[it].groups) else { return Vec::new() };
        from.iter().zip(to).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
    }
}

/// How far apart the middles of two neighbours stand at least.
fn room(sheet: &Sheet, net: &Net, left: usize, right: usize) -> f64 {
    let (left, right) = (&net.vertices[left], &net.vertices[right]);
    let same = left.groups.iter().zip(&right.groups).take_while(|(a, b)| a == b).count();
    let leaving = px(left.groups.len() - same) * GROUP_SIDE;
    let entering = before(sheet, right, same);
    let apart = match (left.is_box, right.is_box) {
        (true, true) => 28.0,
        (true, false) | (false, true) => 14.0,
        (false, false) => 6.0,
    };
    f64::midpoint(left.size.width, right.size.width) + apart + leaving + entering
}

/// The room before a vertex for the borders of the groups it is in, from some depth on. The name
/// of a group stands before its first node, where no line comes down.
pub(super) fn before(sheet: &Sheet, vertex: &Vertex, depth: usize) -> f64 {
    let free = if vertex.is_box { vertex.size.width * 0.2 } else { 0.0 };
    let name = |group: &usize| GROUP_SIDE.max(sheet.group_names[*group] + 16.0 - free);
    vertex.groups[depth..].iter().map(name).sum()
}

impl Placed {
    /// Moves everything so that it begins at nought, and measures it.
    fn settle(&mut self) {
        let mut left = f64::MAX;
        let mut right = f64::MIN;
        let mut bottom = 0.0f64;
        let mut see = |area: &Area| {
            left = left.min(area.at.x);
            right = right.max(area.at.x + area.size.width);
            bottom = bottom.max(area.at.y + area.size.height);
        };
        self.boxes.iter().for_each(&mut see);
        self.groups.iter().flatten().for_each(&mut see);
        for line in &self.links {
            line.label.iter().for_each(&mut see);
            for piece in &line.pieces {
                let (Piece::To(at) | Piece::Curve(.., at)) = *piece;
                // A line has a width, and turns back below its lowest point.
                let size = Size { width: 4.0, height: TURN };
                see(&Area { at: Point { x: at.x - 2.0, y: at.y }, size });
            }
        }
        if left > right {
            return;
        }
        let shift = |it: &mut Point| it.x -= left;
        self.boxes.iter_mut().for_each(|it| shift(&mut it.at));
        self.groups.iter_mut().flatten().for_each(|it| shift(&mut it.at));
        for line in &mut self.links {
            shift(&mut line.from);
            line.label.iter_mut().for_each(|it| shift(&mut it.at));
            for piece in &mut line.pieces {
                match piece {
                    Piece::To(at) => shift(at),
                    Piece::Curve(a, b, at) => [a, b, at].into_iter().for_each(shift),
                }
            }
        }
        self.size = Size { width: right - left, height: bottom };
    }
}

impl Area {
    pub(super) fn meets(&self, other: &Self) -> bool {
        let apart = |a: f64, wide: f64, b: f64, broad: f64| a + wide <= b || b + broad <= a;
        !apart(self.at.x, self.size.width, other.at.x, other.size.width)
            && !apart(self.at.y, self.size.height, other.at.y, other.size.height)
    }

    pub(super) fn grown(&self, by: f64) -> Self {
        Self {
            at: Point { x: self.at.x - by, y: self.at.y - by },
            size: Size { width: self.size.width + 2.0 * by, height: self.size.height + 2.0 * by },
        }
    }
}

/// A number of things as a measure.
pub(super) fn px(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
