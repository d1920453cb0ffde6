//! Computes the horizontal position of each vertex: near its connected vertices, in the order of
//! its rank.

use petgraph::unionfind::UnionFind;

use super::{
    net::{LayoutGraph, Vertex},
    sheet::px,
};

/// The number of sweeps over the ranks, down and up.
const SWEEPS: usize = 24;
/// Beyond this number of vertices there are fewer sweeps.
const VERTICES_MANY: usize = 1500;
const SWEEPS_FEW: usize = 8;

/// The number of passes that straighten lines: a line that moves may make space for another.
const STRAIGHTENED: usize = 6;

/// The weights that keep a line straight while it passes several ranks, and that pull a box to its
/// lines.
const UPRIGHT: f64 = 8.0;
const BENT: f64 = 2.0;
const PLAIN: f64 = 1.0;
/// The weight that pulls a line which turns beside a box towards that box.
const HOOK: f64 = 0.3;

/// The horizontal position of a vertex.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Column {
    pub(super) middle: f64,
    /// The position of its line.
    pub(super) line: f64,
}

/// The neighbours that pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pull {
    Above,
    Below,
    Both,
}

/// Computes the positions. `room` returns the minimum distance between two neighbours.
pub(super) fn place(
    net: &LayoutGraph,
    ranks: &[Vec<usize>],
    room: &dyn Fn(usize, usize) -> f64,
) -> Vec<Column> {
    let mut xs = vec![0.0; net.vertices.len()];
    let rooms: Vec<Vec<f64>> = ranks
        .iter()
        .map(|rank| rank.windows(2).map(|pair| room(pair[0], pair[1])).collect())
        .collect();
    for (rank, rooms) in ranks.iter().zip(&rooms) {
        // Centred, so that a first rank is not at the left of a wide second one.
        let mut x = -rooms.iter().sum::<f64>() / 2.0;
        for (nth, vertex) in rank.iter().enumerate() {
            xs[*vertex] = x;
            x += rooms.get(nth).copied().unwrap_or(0.0);
        }
    }
    let pulls = pulls(net);
    let sweeps = if net.vertices.len() > VERTICES_MANY { SWEEPS_FEW } else { SWEEPS };
    for sweep in 0..sweeps {
        // In the last sweeps the neighbours on both sides pull.
        let (down, up) = if sweep * 3 < sweeps * 2 {
            (Pull::Above, Pull::Below)
        } else {
            (Pull::Both, Pull::Both)
        };
        for (rank, rooms) in ranks.iter().zip(&rooms) {
            settle(net, rank, rooms, &pulls, down, &mut xs);
        }
        for (rank, rooms) in ranks.iter().zip(&rooms).rev() {
            settle(net, rank, rooms, &pulls, up, &mut xs);
        }
    }
    gather(net, ranks, &rooms, &mut xs);
    for _ in 0..STRAIGHTENED {
        straighten(net, ranks, &rooms, &mut xs);
    }
    let column = |(x, it): (&f64, &Vertex)| Column { middle: *x, line: x + it.anchor };
    xs.iter().zip(&net.vertices).map(column).collect()
}

/// Returns for each vertex its pulls: the other vertex, its side, and the weight.
fn pulls(net: &LayoutGraph) -> Vec<Vec<(usize, Pull, f64)>> {
    let mut pulls = vec![Vec::new(); net.vertices.len()];
    for &(upper, lower) in &net.segments {
        let strength = match (net.vertices[upper].is_box, net.vertices[lower].is_box) {
            (true, true) => PLAIN,
            (false, false) => UPRIGHT,
            _ => BENT,
        };
        pulls[upper].push((lower, Pull::Below, strength));
        pulls[lower].push((upper, Pull::Above, strength));
    }
    for &(one, other) in &net.hooks {
        pulls[other].push((one, Pull::Both, HOOK));
    }
    pulls
}

/// Moves the vertices of a rank as near as possible to the positions of their pulls. This is a
/// least squares problem with a minimum distance between neighbours; pooling adjacent violators
/// solves it exactly.
fn settle(
    net: &LayoutGraph,
    rank: &[usize],
    rooms: &[f64],
    pulls: &[Vec<(usize, Pull, f64)>],
    side: Pull,
    xs: &mut [f64],
) {
    // Blocks of vertices without free space between them: wanted start, weight, number of vertices.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    let mut offsets = Vec::with_capacity(rank.len());
    let mut offset = 0.0;
    for (nth, &vertex) in rank.iter().enumerate() {
        offsets.push(offset);
        let mut sum = 0.0;
        let mut strength = 0.0;
        for &(other, on, weight) in &pulls[vertex] {
            if on == side || on == Pull::Both || side == Pull::Both {
                sum +=
                    weight * (xs[other] + net.vertices[other].anchor - net.vertices[vertex].anchor);
                strength += weight;
            }
        }
        let wish = if strength > 0.0 { sum / strength } else { xs[vertex] };
        let mut block = (wish - offset, strength.max(0.01), 1);
        while let Some(last) = blocks.last().copied().filter(|it| it.0 > block.0) {
            blocks.pop();
            let strength = last.1 + block.1;
            block = ((last.0 * last.1 + block.0 * block.1) / strength, strength, last.2 + block.2);
        }
        blocks.push(block);
        offset += rooms.get(nth).copied().unwrap_or(0.0);
    }
    let mut nth = 0;
    for (start, _, count) in blocks {
        for _ in 0..count {
            xs[rank[nth]] = start + offsets[nth];
            nth += 1;
        }
    }
}

/// Returns the interval in which a vertex can move without touching its neighbours.
fn freedom(ranks: &[Vec<usize>], rooms: &[Vec<f64>], xs: &[f64], at: (usize, usize)) -> (f64, f64) {
    let (rank, place) = at;
    let before = place.checked_sub(1).map(|it| xs[ranks[rank][it]] + rooms[rank][it]);
    let after = ranks[rank].get(place + 1).map(|it| xs[*it] - rooms[rank][place]);
    (before.unwrap_or(f64::MIN), after.unwrap_or(f64::MAX))
}

/// Centres separate components below or above the largest one; no line holds them in place.
fn gather(net: &LayoutGraph, ranks: &[Vec<usize>], rooms: &[Vec<f64>], xs: &mut [f64]) {
    let mut parts: Vec<usize> = (0..xs.len()).collect();
    let mut joined = UnionFind::new(xs.len());
    for &(one, other) in net.segments.iter().chain(&net.hooks) {
        joined.union(one, other);
    }
    for (at, part) in parts.iter_mut().enumerate() {
        *part = joined.find(at);
    }
    let size = |part: usize| parts.iter().filter(|it| **it == part).count();
    let mut found: Vec<usize> = parts.clone();
    found.sort_unstable();
    found.dedup();
    let Some(largest) = found.iter().copied().max_by_key(|it| (size(*it), usize::MAX - it)) else {
        return;
    };
    let middle = |part: usize, xs: &[f64]| {
        let inside = || (0..xs.len()).filter(|it| parts[*it] == part).map(|it| xs[it]);
        f64::midpoint(inside().fold(f64::MAX, f64::min), inside().fold(f64::MIN, f64::max))
    };
    for part in found.into_iter().filter(|it| *it != largest) {
        let wish = middle(largest, xs) - middle(part, xs);
        let mut low = f64::MIN;
        let mut high = f64::MAX;
        for (rank, vertices) in ranks.iter().enumerate() {
            for (place, vertex) in vertices.iter().enumerate().filter(|(_, it)| parts[**it] == part)
            {
                let (before, after) = freedom(ranks, rooms, xs, (rank, place));
                let is_other = |it: Option<usize>| it.is_some_and(|it| parts[vertices[it]] != part);
                if is_other(place.checked_sub(1)) {
                    low = low.max(before - xs[*vertex]);
                }
                if is_other(Some(place + 1).filter(|it| *it < vertices.len())) {
                    high = high.min(after - xs[*vertex]);
                }
            }
        }
        let shift = wish.max(low).min(high);
        for vertex in (0..xs.len()).filter(|it| parts[*it] == part) {
            xs[vertex] += shift;
        }
    }
}

/// Aligns the vertices of each line vertically, as far as their neighbours leave space.
fn straighten(net: &LayoutGraph, ranks: &[Vec<usize>], rooms: &[Vec<f64>], xs: &mut [f64]) {
    let mut places = vec![0; xs.len()];
    for (place, vertex) in ranks.iter().flat_map(|rank| rank.iter().enumerate()) {
        places[*vertex] = place;
    }
    for thread in threads(net) {
        let mut run: Vec<usize> = Vec::new();
        let mut within = (f64::MIN, f64::MAX);
        for vertex in thread {
            let at = (net.vertices[vertex].rank, places[vertex]);
            let (low, high) = freedom(ranks, rooms, xs, at);
            let anchor = net.vertices[vertex].anchor;
            let low = low + anchor;
            let high = high + anchor;
            if within.0.max(low) > within.1.min(high) {
                align(net, &run, within, xs);
                run.clear();
                within = (f64::MIN, f64::MAX);
            }
            run.push(vertex);
            within = (within.0.max(low), within.1.min(high));
        }
        align(net, &run, within, xs);
    }
}

/// Returns the chains of vertices that can share one column: lines, and boxes that have only one
/// line on that side, so that its port is in the middle.
fn threads(net: &LayoutGraph) -> Vec<Vec<usize>> {
    let mut ends = vec![(0, 0); net.vertices.len()];
    for chain in &net.chains {
        ends[chain[0]].0 += 1;
        ends[chain[chain.len() - 1]].1 += 1;
    }
    let is_free = |chain: &[usize], at: usize| {
        let (leaving, coming) = ends[chain[at]];
        !net.vertices[chain[at]].is_box || (if at == 0 { leaving } else { coming }) == 1
    };
    let mut next: Vec<Option<usize>> = vec![None; net.vertices.len()];
    let mut is_first = vec![true; net.vertices.len()];
    for chain in &net.chains {
        for at in 1..chain.len() {
            let one = chain[at - 1];
            let other = chain[at];
            let is_beside = net.vertices[one].rank == net.vertices[other].rank;
            if is_free(chain, at - 1) && is_free(chain, at) && !is_beside {
                next[one] = Some(other);
                is_first[other] = false;
            }
        }
    }
    let starts = (0..net.vertices.len()).filter(|it| is_first[*it] && next[*it].is_some());
    starts.map(|it| std::iter::successors(Some(it), |it| next[*it]).collect()).collect()
}

/// Aligns vertices vertically, near their current positions and between two bounds.
fn align(net: &LayoutGraph, run: &[usize], (low, high): (f64, f64), xs: &mut [f64]) {
    let lines = run.iter().map(|it| xs[*it] + net.vertices[*it].anchor);
    // Due to rounding, `high` may be slightly less than `low`.
    let line = (lines.sum::<f64>() / px(run.len().max(1))).max(low).min(high.max(low));
    for vertex in run {
        xs[*vertex] = line - net.vertices[*vertex].anchor;
    }
}
