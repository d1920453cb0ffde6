//! The lines of a picture: arrows of one kind between the same two places become one line.

use super::{Arrow, Drawing, DrawnNode};
use crate::{graph::Target, id::NodeName};

/// The maximum number of characters of a label beside a line.
const LABEL_LENGTH_MAX: usize = 72;

/// The maximum number of characters of a line in a box.
const BOX_LENGTH_MAX: usize = 44;

/// The maximum number of labels beside a line.
const LABELS_MAX: usize = 4;

/// An end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Start,
    /// The node with this index in the drawing.
    Node(usize),
    End,
    Fail,
}

/// A line of a picture.
#[derive(Clone, Debug)]
pub(super) struct DrawnEdge {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) is_dashed: bool,
    pub(super) is_back: bool,
    /// The labels beside it, one line each and in full.
    pub(super) labels: Vec<String>,
    /// The bounds of its loop.
    pub(super) bound: Option<String>,
    pub(super) taken: Option<u64>,
}

/// Returns the lines of a drawing, in the order of its arrows.
pub(super) fn edges(drawing: &Drawing) -> Vec<DrawnEdge> {
    let mut edges: Vec<DrawnEdge> = Vec::new();
    for arrow in drawing.shown_arrows() {
        let Some(edge) = DrawnEdge::of(drawing, &arrow) else { continue };
        let key = |it: &DrawnEdge| (it.from, it.to, it.is_dashed);
        match edges.iter_mut().find(|it| key(it) == key(&edge)) {
            Some(same) => same.merge(edge),
            None => edges.push(edge),
        }
    }
    edges
}

impl Place {
    fn of(drawing: &Drawing, name: &NodeName) -> Option<Self> {
        drawing.nodes.iter().position(|it| it.name == *name).map(Self::Node)
    }
}

impl DrawnEdge {
    fn of(drawing: &Drawing, arrow: &Arrow) -> Option<Self> {
        let from = match &arrow.from {
            Some(name) => Place::of(drawing, name)?,
            None => Place::Start,
        };
        let to = match &arrow.to {
            Target::Node(name) => Place::of(drawing, name)?,
            Target::End => Place::End,
            Target::Fail => Place::Fail,
        };
        // The arrow from `start` to the first node needs no label.
        let label = arrow.label().filter(|_| from != Place::Start || arrow.is_dashed());
        Some(Self {
            from,
            to,
            is_dashed: arrow.is_dashed(),
            is_back: arrow.back,
            labels: label.into_iter().filter(|it| !it.is_empty()).collect(),
            bound: arrow.bound_words("≤"),
            taken: arrow.taken,
        })
    }

    fn merge(&mut self, other: Self) {
        for label in other.labels {
            if !self.labels.contains(&label) {
                self.labels.push(label);
            }
        }
        // Counts are per place and kind, so merged lines share one count; the maximum keeps it.
        self.taken = self.taken.max(other.taken);
    }

    /// Returns whether the drawing has a run that did not take this line.
    pub(super) fn is_untaken(&self) -> bool {
        self.taken == Some(0)
    }

    /// Returns whether a run took this line.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some_and(|it| it > 0)
    }

    /// Returns the text beside it in a few short lines: labels, the bound of its loop, how often it
    /// was taken.
    pub(super) fn words(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.labels.iter().map(|it| cut(it, LABEL_LENGTH_MAX)).collect();
        if lines.len() > LABELS_MAX {
            let more = lines.len() - (LABELS_MAX - 1);
            lines.truncate(LABELS_MAX - 1);
            lines.push(format!("and {more} more"));
        }
        self.marked(lines)
    }

    /// Returns the same text with full labels.
    pub(super) fn words_in_full(&self) -> Vec<String> {
        self.marked(self.labels.clone())
    }

    fn marked(&self, mut lines: Vec<String>) -> Vec<String> {
        let mut marks = Vec::new();
        if self.is_back {
            marks.push("↺".to_owned());
            marks.extend(self.bound.clone());
        }
        marks.extend(self.taken.filter(|it| *it > 0).map(|it| format!("×{it}")));
        if !marks.is_empty() {
            let marks = marks.join(" ");
            match lines.last_mut().filter(|it| width(it) + width(&marks) < LABEL_LENGTH_MAX) {
                Some(last) => last.extend([" ", &marks]),
                None => lines.push(marks),
            }
        }
        lines
    }
}

/// Returns the lines of text in the box of a node: name and bound, kind, condition, visits of a
/// run.
pub(super) fn node_lines(drawing: &Drawing, node: &DrawnNode) -> Vec<String> {
    let bound = node.max_visits.map_or_else(String::new, |it| format!(" ≤{it}"));
    let mut lines = vec![format!("{}{bound}", node.name), cut(&node.kind_words(), BOX_LENGTH_MAX)];
    lines.extend(node.condition_words().iter().map(|it| cut(it, BOX_LENGTH_MAX)));
    match &node.visits {
        Some(visits) => lines.push(visits.words()),
        None if drawing.is_unreached(node) => lines.push("not reached".to_owned()),
        None => (),
    }
    lines
}

/// Returns the number of columns of a text in a monospaced font.
pub(super) fn width(text: &str) -> usize {
    // From the Korean alphabet on, most characters take two columns.
    text.chars().map(|it| if it >= '\u{1100}' && !is_sign(it) { 2 } else { 1 }).sum()
}

/// Returns whether a character is an arrow, a dash or the like; these have high code points but one
/// column.
fn is_sign(character: char) -> bool {
    ('\u{2000}'..'\u{2e80}').contains(&character)
}

fn cut(text: &str, columns_max: usize) -> String {
    if width(text) <= columns_max {
        return text.to_owned();
    }
    let mut room = columns_max - 1;
    let fits = |it: &char| {
        let columns = width(it.encode_utf8(&mut [0; 4]));
        let has_room = columns <= room;
        room = room.saturating_sub(columns);
        has_room
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{}…", kept.trim_end())
}
