//! Decisions that exclude each other: two routes never make them on the same values of the fields that both read.
//!
//! **Example.** `call` leads on if `urgent`, and `write` if `!urgent`. Both run in one step and neither writes `urgent`, so one of
//! them leads on at most. Later in the run, that still holds until a node writes `urgent`.

use std::collections::{BTreeMap, BTreeSet};

use super::Bits;

/// A choice of a route: the number of its edge, and the position of the choice.
pub(crate) type Choice = (usize, usize);

/// The choices of routes that exclude each other.
#[derive(Clone, Debug, Default)]
pub struct Exclusions {
    /// The choices that each choice excludes.
    excluded: BTreeMap<Choice, BTreeSet<Choice>>,
    /// The fields that each route reads, with the node behind which it decides.
    routes: BTreeMap<usize, (usize, Bits)>,
    /// The fields that each node may change.
    changes: Vec<Bits>,
}

impl Exclusions {
    /// Returns exclusions that are none so far. `changes` are the fields that each node may change.
    pub(crate) fn new(changes: Vec<Bits>) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Adds a route that decides behind `node` and reads these fields.
    pub(crate) fn add_route(&mut self, edge: usize, node: usize, reads: Bits) {
        self.routes.insert(edge, (node, reads));
    }

    /// Adds two choices that exclude each other.
    pub(crate) fn add(&mut self, one: Choice, other: Choice) {
        self.excluded.entry(one).or_default().insert(other);
        self.excluded.entry(other).or_default().insert(one);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.excluded.is_empty()
    }

    /// Returns whether a choice excludes any other one.
    pub(super) fn matters(&self, choice: Choice) -> bool {
        self.excluded.contains_key(&choice)
    }

    /// Returns whether two choices of one step exclude each other: neither node changes what both routes read.
    pub(super) fn exclude(&self, one: Choice, other: Choice) -> bool {
        let Some(excluded) = self.excluded.get(&one) else { return false };
        let Some(((first, reads), (second, also))) =
            self.routes.get(&one.0).zip(self.routes.get(&other.0))
        else {
            return false;
        };
        let mut shared = reads.clone();
        shared.keep(also);
        let changes = |node: usize| self.changes[node].meets(&shared);
        excluded.contains(&other) && !changes(*first) && !changes(*second)
    }

    /// Returns whether a choice is excluded by one of an earlier step, since which nothing has changed what its route reads.
    pub(super) fn excludes_later(&self, earlier: Choice, later: Choice) -> bool {
        let is_excluded = self.excluded.get(&earlier).is_some_and(|it| it.contains(&later));
        let (Some((_, reads)), Some((node, _))) =
            (self.routes.get(&earlier.0), self.routes.get(&later.0))
        else {
            return false;
        };
        is_excluded && !self.changes[*node].meets(reads)
    }

    /// Returns whether a choice of this step, or of an earlier one, still counts after the step in which these nodes ran.
    ///
    /// A route sees what its own node has changed, so that alone ends nothing in the step of the decision.
    pub(super) fn stays(
        &self,
        choice: Choice,
        is_new: bool,
        ran: impl Iterator<Item = usize>,
    ) -> bool {
        let Some((node, reads)) = self.routes.get(&choice.0) else { return false };
        ran.filter(|it| !(is_new && it == node)).all(|it| !self.changes[it].meets(reads))
    }

    /// Returns the nodes behind which a choice may be made that this one excludes.
    pub(super) fn partners(&self, choice: Choice) -> impl Iterator<Item = usize> {
        let excluded = self.excluded.get(&choice).into_iter().flatten();
        excluded.filter_map(|choice| self.routes.get(&choice.0).map(|it| it.0))
    }
}
