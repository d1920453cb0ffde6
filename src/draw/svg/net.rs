//! The vertices of a sheet: boxes, and the points where lines pass a layer.

use std::cmp::Ordering;

use super::sheet::{GROUP_SIDE, LINE, Link, Sheet, Size};

/// A vertex in a layer: a box, or a passing line.
#[derive(Debug)]
pub(super) struct Vertex {
    pub(super) rank: usize,
    pub(super) size: Size,
    /// The horizontal offset of its line from its centre.
    pub(super) anchor: f64,
    pub(super) groups: Vec<usize>,
    pub(super) is_box: bool,
}

/// The vertices of a sheet, and their connections.
#[derive(Debug, Default)]
pub(super) struct LayoutGraph {
    pub(super) vertices: Vec<Vertex>,
    /// Connections from a rank to the next one.
    pub(super) segments: Vec<(usize, usize)>,
    /// Connections within a rank: a box, and the line that turns beside it.
    pub(super) hooks: Vec<(usize, usize)>,
    /// For each link its vertices, including the boxes.
    pub(super) chains: Vec<Vec<usize>>,
    /// For each link the vertex with its label.
    pub(super) labels: Vec<Option<usize>>,
}

impl LayoutGraph {
    pub(super) fn of(sheet: &Sheet) -> Self {
        let mut net = Self::default();
        for item in &sheet.boxes {
            // Labels have separate ranks between the layers.
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
            // The line goes up beside both of its boxes.
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
            let upper = pair[0].min(pair[1]);
            let lower = pair[0].max(pair[1]);
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

    /// Returns the groups that contain both ends of a line.
    fn common_groups(&self, link: &Link) -> Vec<usize> {
        let from = &self.vertices[link.from].groups;
        let Some(to) = link.to.map(|it| &self.vertices[it].groups) else { return Vec::new() };
        from.iter().zip(to).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
    }
}

/// Returns the space before a vertex for the borders of its groups, from a depth on. The name of a
/// group is above its first node, where no line comes down.
pub(super) fn before(sheet: &Sheet, vertex: &Vertex, depth: usize) -> f64 {
    let free = if vertex.is_box { vertex.size.width * 0.2 } else { 0.0 };
    let name = |group: &usize| GROUP_SIDE.max(sheet.group_names[*group] + 16.0 - free);
    vertex.groups[depth..].iter().map(name).sum()
}
