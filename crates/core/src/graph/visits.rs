//! How often each node has run.

use std::sync::{Arc, OnceLock};

use crate::id::NodeName;

/// How often each node has run since its count was last reset.
///
/// ```
/// use graphrun_core::{graph::Visits, id::NodeName};
///
/// let visits: Visits = [(NodeName::parse("work").unwrap(), 2)].into_iter().collect();
/// assert_eq!((visits.get("work"), visits.get("rest")), (Some(2), None));
/// ```
#[derive(Clone, Debug)]
pub struct Visits {
    /// The nodes, in the order of their names.
    names: Arc<[NodeName]>,
    /// By node; [`NEVER`] without a count.
    counts: Vec<u32>,
}

/// The count of a node that has none.
const NEVER: u32 = u32::MAX;

impl Visits {
    /// Begins without counts for nodes that are sorted by name.
    pub fn new(names: Arc<[NodeName]>) -> Self {
        let counts = vec![NEVER; names.len()];
        Self { names, counts }
    }

    /// Returns the count of a node; `None` if it has none.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.names.binary_search_by(|it| it.as_str().cmp(name)).ok().and_then(|it| self.at(it))
    }

    /// Returns the count of the node with this index in the order of names.
    pub fn at(&self, index: usize) -> Option<u32> {
        Some(self.counts[index]).filter(|&it| it != NEVER)
    }

    /// Replaces the count of the node with this index.
    pub fn set(&mut self, index: usize, count: Option<u32>) {
        self.counts[index] = count.map_or(NEVER, |it| it.min(NEVER - 1));
    }

    /// Returns the nodes that have a count, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeName, u32)> {
        self.names.iter().zip(&self.counts).filter(|it| *it.1 != NEVER).map(|it| (it.0, *it.1))
    }
}

impl Default for Visits {
    fn default() -> Self {
        static NONE: OnceLock<Arc<[NodeName]>> = OnceLock::new();
        Self::new(Arc::clone(NONE.get_or_init(|| Arc::new([]))))
    }
}

impl PartialEq for Visits {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl FromIterator<(NodeName, u32)> for Visits {
    fn from_iter<I: IntoIterator<Item = (NodeName, u32)>>(counts: I) -> Self {
        let mut counts: Vec<(NodeName, u32)> = counts.into_iter().collect();
        // The last count of a node is kept.
        counts.reverse();
        counts.sort_by(|a, b| a.0.cmp(&b.0));
        counts.dedup_by(|a, b| a.0 == b.0);
        let (names, counts): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
        Self { names: names.into(), counts }
    }
}
