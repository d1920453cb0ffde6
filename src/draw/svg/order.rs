//! Orders the vertices of each rank so that few lines cross.

use std::collections::BTreeMap;

use super::{net::LayoutGraph, sheet::px};

/// The number of sweeps over the ranks, alternately down and up.
const SWEEPS: usize = 16;
/// Beyond this number of vertices there are fewer sweeps, and no swaps of neighbours.
const VERTICES_MANY: usize = 1500;
const SWEEPS_FEW: usize = 4;

/// Returns the ranks, each from left to right.
pub(super) fn order(net: &LayoutGraph) -> Vec<Vec<usize>> {
    let count = net.vertices.iter().map(|it| it.rank + 1).max().unwrap_or(0);
    let mut ranks: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, vertex) in net.vertices.iter().enumerate() {
        ranks[vertex.rank].push(at);
    }
    let mut order = Order::new(net, ranks);
    let is_large = net.vertices.len() > VERTICES_MANY;
    let mut best = (order.cost(), order.ranks.clone());
    for sweep in 0..if is_large { SWEEPS_FEW } else { SWEEPS } {
        order.sweep(sweep % 2 == 0);
        if !is_large {
            order.swap_neighbours();
        }
        let cost = order.cost();
        if cost < best.0 {
            best = (cost, order.ranks.clone());
        }
    }
    best.1
}

struct Order<'a> {
    net: &'a LayoutGraph,
    ranks: Vec<Vec<usize>>,
    /// The position of each vertex in its rank.
    places: Vec<usize>,
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    beside: Vec<Vec<usize>>,
}

impl<'a> Order<'a> {
    fn new(net: &'a LayoutGraph, ranks: Vec<Vec<usize>>) -> Self {
        let none = vec![Vec::new(); net.vertices.len()];
        let mut above = none.clone();
        let mut below = none.clone();
        let mut beside = none;
        for &(upper, lower) in &net.segments {
            below[upper].push(lower);
            above[lower].push(upper);
        }
        for &(one, other) in &net.hooks {
            beside[one].push(other);
            beside[other].push(one);
        }
        let places = vec![0; net.vertices.len()];
        let mut order = Self { net, ranks, places, above, below, beside };
        for rank in 0..order.ranks.len() {
            // The nodes of a group are neighbours from the start.
            let start: BTreeMap<usize, f64> =
                order.ranks[rank].iter().enumerate().map(|(nth, at)| (*at, px(nth))).collect();
            order.arrange(rank, &start);
        }
        order
    }

    fn sweep(&mut self, down: bool) {
        let count = self.ranks.len();
        for nth in 0..count {
            let rank = if down { nth } else { count - 1 - nth };
            let keys = self.ranks[rank].iter().map(|&it| (it, self.wish(it, down))).collect();
            self.arrange(rank, &keys);
        }
    }

    /// Returns the mean position of the neighbours of a vertex, scaled to its rank.
    fn wish(&self, vertex: usize, down: bool) -> f64 {
        let next = if down { &self.above[vertex] } else { &self.below[vertex] };
        let rank = self.net.vertices[vertex].rank;
        let size = px(self.ranks[rank].len());
        let scaled = |it: &usize| {
            let others = px(self.ranks[self.net.vertices[*it].rank].len());
            (px(self.places[*it]) + 0.5) / others * size
        };
        let places = next.iter().chain(&self.beside[vertex]).map(scaled);
        let count = next.len() + self.beside[vertex].len();
        if count == 0 { px(self.places[vertex]) + 0.5 } else { places.sum::<f64>() / px(count) }
    }

    /// Sorts a rank by keys; the vertices of a group stay together.
    fn arrange(&mut self, rank: usize, keys: &BTreeMap<usize, f64>) {
        let vertices = std::mem::take(&mut self.ranks[rank]);
        let sorted = self.arranged(vertices, keys, 0);
        for (place, vertex) in sorted.iter().enumerate() {
            self.places[*vertex] = place;
        }
        self.ranks[rank] = sorted;
    }

    fn arranged(
        &self,
        vertices: Vec<usize>,
        keys: &BTreeMap<usize, f64>,
        depth: usize,
    ) -> Vec<usize> {
        let mut units: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        for vertex in vertices {
            let group = self.net.vertices[vertex].groups.get(depth).copied();
            match units.iter_mut().find(|(it, _)| group.is_some() && *it == group) {
                Some((_, unit)) => unit.push(vertex),
                None => units.push((group, vec![vertex])),
            }
        }
        let mut keyed: Vec<(f64, Vec<usize>)> = units
            .into_iter()
            .map(|(group, unit)| {
                let key = unit.iter().map(|it| keys[it]).sum::<f64>() / px(unit.len());
                let unit =
                    if group.is_some() { self.arranged(unit, keys, depth + 1) } else { unit };
                (key, unit)
            })
            .collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed.into_iter().flat_map(|(_, unit)| unit).collect()
    }

    /// Swaps neighbours of one group if that lowers the cost.
    fn swap_neighbours(&mut self) {
        for rank in 0..self.ranks.len() {
            for place in 1..self.ranks[rank].len() {
                let left = self.ranks[rank][place - 1];
                let right = self.ranks[rank][place];
                if self.net.vertices[left].groups != self.net.vertices[right].groups {
                    continue;
                }
                let before = self.cost_around(left, right);
                self.swap(rank, place);
                if self.cost_around(right, left) >= before {
                    self.swap(rank, place);
                }
            }
        }
    }

    fn swap(&mut self, rank: usize, place: usize) {
        self.ranks[rank].swap(place - 1, place);
        for it in [place - 1, place] {
            self.places[self.ranks[rank][it]] = it;
        }
    }

    /// Returns the cost of the order of two neighbours: crossings of their lines, and the distances
    /// within the rank.
    fn cost_around(&self, left: usize, right: usize) -> usize {
        let mut cost = 0;
        for next in [&self.above, &self.below] {
            for a in &next[left] {
                cost +=
                    2 * next[right].iter().filter(|b| self.places[**b] < self.places[*a]).count();
            }
        }
        for vertex in [left, right] {
            let far = |it: &usize| self.places[*it].abs_diff(self.places[vertex]);
            cost += self.beside[vertex].iter().map(far).sum::<usize>();
        }
        cost
    }

    fn cost(&self) -> usize {
        let mut gaps: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.ranks.len()];
        for &(upper, lower) in &self.net.segments {
            gaps[self.net.vertices[upper].rank].push((self.places[upper], self.places[lower]));
        }
        let crossings: usize = gaps.into_iter().map(crossings).sum();
        let far = |(a, b): &(usize, usize)| self.places[*a].abs_diff(self.places[*b]);
        crossings * 2 + self.net.hooks.iter().map(far).sum::<usize>()
    }
}

/// Counts the crossings of lines: pairs whose ends are in opposite orders. It uses a Fenwick tree
/// over the lower ends.
fn crossings(mut lines: Vec<(usize, usize)>) -> usize {
    lines.sort_unstable();
    let size = lines.iter().map(|it| it.1 + 2).max().unwrap_or(1);
    let mut sums = vec![0usize; size];
    let mut crossings = 0;
    for (seen, (_, lower)) in lines.iter().enumerate() {
        let mut at = lower + 1;
        let mut not_beyond = 0;
        while at > 0 {
            not_beyond += sums[at];
            at &= at - 1;
        }
        crossings += seen - not_beyond;
        at = lower + 1;
        while at < size {
            sums[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    crossings
}

#[cfg(test)]
mod tests {
    use super::crossings;

    #[test]
    fn crossings_are_pairs_in_opposite_orders() {
        assert_eq!(crossings(vec![(0, 0), (1, 1), (2, 2)]), 0);
        assert_eq!(crossings(vec![(0, 2), (1, 1), (2, 0)]), 3);
        // Lines that start or end together do not cross.
        assert_eq!(crossings(vec![(0, 1), (0, 0), (1, 1)]), 0);
        assert_eq!(crossings(vec![(1, 0), (0, 1), (0, 2), (2, 1)]), 3);
    }
}
