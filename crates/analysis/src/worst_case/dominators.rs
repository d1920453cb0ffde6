//! The dominator tree of a graph: which nodes every path to a node passes.

use petgraph::algo::dominators;

use crate::network::Digraph;

/// The nodes in preorder, so that the nodes below a node are a range.
#[derive(Debug, Default)]
pub(super) struct DominatorTree {
    preorder: Vec<usize>,
    /// For each node its place in the preorder and the end of the places below it; `None` if no path reaches it.
    ranges: Vec<Option<(usize, usize)>>,
    parents: Vec<Option<usize>>,
}

impl DominatorTree {
    /// `root` is the number after the last node.
    pub(super) fn of(digraph: &Digraph, root: usize) -> Self {
        let found = dominators::simple_fast(digraph, root);
        let parents: Vec<Option<usize>> =
            (0..root).map(|node| found.immediate_dominator(node)).collect();
        let mut children = vec![Vec::new(); root + 1];
        for (node, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent].push(node);
            }
        }
        let mut tree =
            Self { preorder: Vec::with_capacity(root + 1), ranges: vec![None; root + 1], parents };
        // A node without its children yet, or a node whose children are all numbered.
        let mut open = vec![(root, false)];
        while let Some((node, is_numbered)) = open.pop() {
            let place = tree.preorder.len();
            if is_numbered {
                tree.ranges[node] = tree.ranges[node].map(|(first, _)| (first, place));
            } else {
                tree.preorder.push(node);
                tree.ranges[node] = Some((place, place));
                open.push((node, true));
                open.extend(children[node].iter().rev().map(|child| (*child, false)));
            }
        }
        tree
    }

    /// Returns whether some path reaches a node.
    pub(super) fn is_reached(&self, node: usize) -> bool {
        self.ranges[node].is_some()
    }

    /// Returns whether each path to `node` passes `other` before.
    pub(super) fn is_strictly_below(&self, node: usize, other: usize) -> bool {
        node != other && self.is_below(node, other)
    }

    /// Returns whether each path to `node` passes `other`, or `node` is `other`.
    pub(super) fn is_below(&self, node: usize, other: usize) -> bool {
        match (self.ranges[node], self.ranges[other]) {
            (Some((place, _)), Some((first, end))) => (first..end).contains(&place),
            _ => false,
        }
    }

    /// Returns a node and the nodes below it, itself first.
    pub(super) fn subtree(&self, node: usize) -> &[usize] {
        self.ranges[node].map_or(&[], |(first, end)| &self.preorder[first..end])
    }

    /// Returns the immediate dominator of a node: the last node that each path to it passes before; the root if only that dominates it.
    pub(super) fn parent(&self, node: usize) -> Option<usize> {
        self.parents.get(node).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_are_what_only_a_node_leads_to() {
        // 0 leads to 1 and 2, both to 3, which leads back to 1; nothing leads to 4. The root is 5.
        let digraph = Digraph::from_edges([(5, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 1)]);
        let tree = DominatorTree::of(&digraph, 5);
        assert_eq!(tree.subtree(0), [0, 1, 2, 3]);
        assert_eq!(tree.subtree(3), [3]);
        assert_eq!(tree.subtree(4), [0; 0]);
        assert_eq!((tree.parent(3), tree.parent(0), tree.parent(5)), (Some(0), Some(5), None));
        assert!(tree.is_below(1, 1) && tree.is_below(1, 0) && !tree.is_below(1, 3));
        assert!(tree.is_strictly_below(1, 0) && !tree.is_strictly_below(1, 1));
        assert!(tree.is_reached(3) && !tree.is_reached(4));
    }
}
