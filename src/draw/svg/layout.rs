//! Computes the layout: boxes in layers, and lines between them that cross no box.
//!
//! The method is that of Sugiyama, Tagawa and Toda (1981). A line that passes a layer has a vertex
//! there, as wide as the line or its label. `order` sorts the vertices of each layer so that few
//! lines cross; `place` gives them coordinates. Lines bend only between layers, so they cross no
//! box and no label.

use super::{
    net::{LayoutGraph, before},
    order, place, route,
    sheet::{Area, GROUP_SIDE, LayoutResult, Piece, Point, Sheet, Size, TURN, px},
};

pub(super) fn layout(sheet: &Sheet) -> LayoutResult {
    let net = LayoutGraph::of(sheet);
    let ranks = order::order(&net);
    let columns = place::place(&net, &ranks, &|left, right| room(sheet, &net, left, right));
    let mut placed = route::route(sheet, &net, &ranks, &columns);
    placed.settle();
    placed
}

/// Returns the minimum distance between the centres of two neighbours.
fn room(sheet: &Sheet, net: &LayoutGraph, left: usize, right: usize) -> f64 {
    let left = &net.vertices[left];
    let right = &net.vertices[right];
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

impl LayoutResult {
    /// Moves everything so that it starts at x = 0, and computes the total size.
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
