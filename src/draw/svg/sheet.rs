//! A sheet: the input of the layout, and the resulting positions.

/// The space in which a line turns back.
pub(super) const TURN: f64 = 26.0;
/// The space between a group and its neighbours.
pub(super) const GROUP_SIDE: f64 = 14.0;
/// The width of a line including the free space beside it.
pub(super) const LINE: f64 = 8.0;

/// The input of the layout.
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
    /// The groups that contain it, the outermost first.
    pub(super) groups: Vec<usize>,
}

/// A line from a box to another box, or only to its own label.
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

/// A point; y increases downwards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A rectangle with its upper left corner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Area {
    pub(super) at: Point,
    pub(super) size: Size,
}

/// The result of the layout.
#[derive(Debug, Default)]
pub(super) struct LayoutResult {
    pub(super) boxes: Vec<Area>,
    pub(super) links: Vec<Line>,
    /// `None` if other vertices are between the nodes of a group.
    pub(super) groups: Vec<Option<Area>>,
    pub(super) size: Size,
}

/// The path of a line: a start point and the pieces that follow.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) from: Point,
    pub(super) pieces: Vec<Piece>,
    pub(super) label: Option<Area>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// A vertical piece.
    To(Point),
    /// An S-shaped curve between two vertical pieces, or a U if both ends have one height; with two
    /// control points.
    Curve(Point, Point, Point),
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

/// Converts a number of items for computations with lengths.
pub(super) fn px(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
