//! Guarantees: what guards and routes prove at a place of a workflow, and what follows from it.
//!
//! Expressions and prompts write a path alike: a name and the parts below it, such as `review.notes[0]`. In an expression a path may
//! also contain calls. Equal texts have equal values, because neither has side effects.

use graphrun_core::{graph::TriggerKind, state::NumberRange};
use serde_json::Value;

/// The largest number of visits that makes a difference.
const VISITS_MAX: i64 = 2;
const REASON: &str = "via.reason";

/// A guarantee about a value, or about the path of the run to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Guarantee {
    /// The value at this path is there.
    Present(String),
    /// The number at this path is in a range.
    InRange(String, NumberRange),
    /// The list at this path has at least so many items.
    HasItems {
        /// The path of the list.
        list: String,
        /// The number of items.
        least: i64,
    },
    /// The whole number at one path is below the size of the list at another one.
    BelowSize {
        /// The path of the number.
        index: String,
        /// The path of the list.
        list: String,
    },
    /// The map has the key of this path. Its value may be null.
    HasKey(String),
    /// A node has run at least so often, with the current visit.
    Visited {
        /// The name of the node.
        node: String,
        /// The number of visits.
        least: i64,
    },
    /// The run has reached the node by a trigger of another kind.
    NotReachedBy(TriggerKind),
    /// No item of the loop around is null.
    LoopHasItems,
    /// A guarantee about a former value of a name.
    Outdated,
}

impl Guarantee {
    /// Returns what follows once the value of a path is equal to a text, or is not.
    pub fn of_trigger(path: &str, to: &str, is_equal: bool) -> impl Iterator<Item = Self> {
        let is_reason = path == REASON;
        let excluded = move |it: &TriggerKind| is_reason && (it.as_str() == to) != is_equal;
        TriggerKind::ALL.into_iter().filter(excluded).map(Self::NotReachedBy)
    }

    /// Returns the guarantee that the visits of a node fulfil a condition; `None` if that says nothing. The visits of the reading
    /// node itself include the current one.
    pub fn of_visits(node: &str, is_own: bool, fulfils: impl Fn(i64) -> bool) -> Option<Self> {
        let least = (i64::from(is_own)..VISITS_MAX).find(|it| fulfils(*it)).unwrap_or(VISITS_MAX);
        (least > 0).then(|| Self::Visited { node: node.to_owned(), least })
    }

    /// Returns the guarantee that the size of a list fulfils a comparison with a number, where it has at least `known` items; `None`
    /// if that says nothing.
    pub fn of_size(
        list: String,
        known: i64,
        number: i64,
        fulfils: impl Fn(i64) -> bool,
    ) -> Option<Self> {
        // The comparison changes its outcome at the number, and beside it.
        let candidates = [known, number, number.saturating_add(1)];
        let fulfilling = candidates.into_iter().filter(|it| *it >= known && fulfils(*it));
        let least = fulfilling.min().unwrap_or(known);
        (least > 0).then_some(Self::HasItems { list, least })
    }

    /// Returns the guarantee that the number at one path is below the size of the list at another one.
    pub fn below_size(index: &str, list: &str) -> Self {
        Self::BelowSize { index: index.to_owned(), list: list.to_owned() }
    }

    /// Returns whether it follows from others.
    pub fn follows_from<'f>(&self, others: impl Iterator<Item = &'f Self>) -> bool {
        let mut others = others;
        match self {
            // A wider range may hold on more paths.
            Self::InRange(path, range) => {
                let known = others.filter_map(|it| it.range_of(path));
                let known = known.reduce(|all, it| all.common(it).unwrap_or(all));
                known.is_some_and(|it| range.includes(it))
            }
            Self::HasItems { list, least } => others.any(
                |guarantee| matches!(guarantee, Self::HasItems { list: of, least: other } if of == list && other >= least),
            ),
            _ => others.any(|it| it == self),
        }
    }

    fn range_of(&self, path: &str) -> Option<NumberRange> {
        match self {
            Self::InRange(of, range) if of == path => Some(*range),
            _ => None,
        }
    }

    /// Returns whether it is about a value with a text that fulfils a condition.
    fn is_about(&self, fulfils: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Present(path)
            | Self::InRange(path, _)
            | Self::HasItems { list: path, .. }
            | Self::HasKey(path) => fulfils(path),
            Self::BelowSize { index, list } => fulfils(index) || fulfils(list),
            Self::NotReachedBy(_) => fulfils(REASON),
            Self::LoopHasItems => fulfils("loop"),
            Self::Visited { .. } | Self::Outdated => false,
        }
    }
}

/// The guarantees at one place, in the order in which they were proved.
#[derive(Clone, Debug, Default)]
pub struct Guarantees(Vec<Guarantee>);

impl Guarantees {
    /// No guarantees.
    pub const NONE: Self = Self(Vec::new());

    /// Returns them in the order in which they were proved.
    pub fn iter(&self) -> impl Iterator<Item = &Guarantee> {
        self.0.iter()
    }

    /// Returns their number.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it is one of them.
    pub fn contains(&self, guarantee: &Guarantee) -> bool {
        self.0.contains(guarantee)
    }

    /// Adds one.
    pub fn push(&mut self, guarantee: Guarantee) {
        self.0.push(guarantee);
    }

    /// Keeps those that fulfil a condition.
    pub fn retain(&mut self, keep: impl FnMut(&Guarantee) -> bool) {
        self.0.retain(keep);
    }

    /// Forgets the guarantees that were proved after the first ones.
    pub fn truncate(&mut self, first: usize) {
        self.0.truncate(first);
    }

    /// Removes those after the first ones that repeat an earlier one.
    #[must_use]
    pub fn without_repetitions(mut self, first: usize) -> Self {
        for guarantee in self.0.split_off(first.min(self.0.len())) {
            if !self.contains(&guarantee) {
                self.push(guarantee);
            }
        }
        self
    }

    /// Forgets the guarantees about the paths that fulfil a condition, because they get other values. Their number stays, so
    /// [`truncate`](Self::truncate) still removes those that a condition has added.
    pub fn forget(&mut self, is_changed: impl Fn(&str) -> bool) {
        for guarantee in self.0.iter_mut().filter(|it| it.is_about(&is_changed)) {
            *guarantee = Guarantee::Outdated;
        }
    }

    /// Returns whether the value at a path is there for certain.
    pub fn is_present(&self, path: &str) -> bool {
        self.iter().any(|it| matches!(it, Guarantee::Present(of) if of == path))
    }

    /// Returns whether a map has the key of a path.
    pub fn has_key(&self, path: &str) -> bool {
        self.iter().any(|it| matches!(it, Guarantee::HasKey(of) if of == path))
    }

    /// Returns the least size that is known of a list.
    pub fn least_size(&self, list: &str) -> i64 {
        let sizes = self.iter().filter_map(|guarantee| match guarantee {
            Guarantee::HasItems { list: of, least } if of == list => Some(*least),
            _ => None,
        });
        sizes.max().unwrap_or(0)
    }

    /// Returns whether the range of some number is known.
    pub fn has_ranges(&self) -> bool {
        self.iter().any(|it| matches!(it, Guarantee::InRange(..)))
    }

    /// Returns the part of a range that a number at a path can have.
    pub fn narrowed(&self, path: &str, range: NumberRange) -> NumberRange {
        let known = self.iter().filter_map(|it| it.range_of(path));
        // Where no number is in all ranges, the place is never reached.
        known.fold(range, |range, it| it.common(range).unwrap_or(range))
    }

    /// Returns the nodes that have run, each with whether it has run more than once.
    pub fn visited(&self) -> impl Iterator<Item = (&str, bool)> {
        self.iter().filter_map(|guarantee| match guarantee {
            Guarantee::Visited { node, least } => Some((node.as_str(), *least > 1)),
            _ => None,
        })
    }

    /// Returns whether a part of `via` is there for certain: all kinds of triggers that remain have it.
    pub fn is_part_of_trigger(&self, path: &str) -> bool {
        let has: fn(TriggerKind) -> bool = match path {
            "via.node" => TriggerKind::has_node,
            "via.error" => TriggerKind::has_error,
            _ => return false,
        };
        let mut lacking = TriggerKind::ALL.into_iter().filter(|it| !has(*it));
        lacking.all(|it| self.contains(&Guarantee::NotReachedBy(it)))
    }
}

impl Extend<Guarantee> for Guarantees {
    fn extend<I: IntoIterator<Item = Guarantee>>(&mut self, guarantees: I) {
        self.0.extend(guarantees);
    }
}

impl FromIterator<Guarantee> for Guarantees {
    fn from_iter<I: IntoIterator<Item = Guarantee>>(guarantees: I) -> Self {
        Self(guarantees.into_iter().collect())
    }
}

/// Returns the path of the value of a key, such as `counts.a` or `counts["a b"]`.
pub fn path_of_key(of: &str, key: &str) -> String {
    if is_name(key) { format!("{of}.{key}") } else { format!("{of}[{}]", Value::from(key)) }
}

/// Returns whether a text can stand behind a point.
pub(crate) fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|it| it.is_alphabetic() || it == '_')
        && characters.all(|it| it.is_alphanumeric() || it == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(known: i64, number: i64, fulfils: impl Fn(i64) -> bool) -> i64 {
        match Guarantee::of_size("a".to_owned(), known, number, fulfils) {
            Some(Guarantee::HasItems { least, .. }) => least,
            _ => 0,
        }
    }

    #[test]
    fn a_comparison_proves_the_least_size_that_fulfils_it() {
        for (number, proved, condition) in [
            (0, 1, (|it, number| it > number) as fn(i64, i64) -> bool),
            (0, 1, |it, number| it != number),
            (3, 0, |it, number| it != number),
            (2, 3, |it, number| it > number),
            (2, 2, |it, number| it >= number),
            (2, 2, |it, number| it == number),
            (2, 0, |it, number| it < number),
            (-1, 0, |it, number| it > number),
            (i64::MAX, i64::MAX, |it, number| it == number),
        ] {
            assert_eq!(size(0, number, |it| condition(it, number)), proved, "{number}");
        }
    }

    #[test]
    fn a_comparison_adds_to_the_known_size() {
        assert_eq!(size(1, 1, |it| it != 1), 2);
        assert_eq!(size(3, 1, |it| it != 1), 3);
        assert_eq!(size(2, 5, |it| it >= 5), 5);
        assert_eq!(size(2, 1, |it| it < 1), 2);
    }

    #[test]
    fn a_comparison_proves_the_least_visits_that_fulfil_it() {
        for (is_own, least_of, condition) in [
            (false, 0, (|it| it >= 0) as fn(i64) -> bool),
            (false, 1, |it| it > 0),
            (false, 1, |it| it != 0),
            (false, 0, |it| it != 1),
            (true, 2, |it| it != 1),
            (true, 1, |it| it >= 1),
            (false, 2, |it| it == 7),
            (false, 0, |it| it < 3),
        ] {
            let expected = (least_of > 0)
                .then(|| Guarantee::Visited { node: "a".to_owned(), least: least_of });
            assert_eq!(Guarantee::of_visits("a", is_own, condition), expected);
        }
    }

    #[test]
    fn a_weaker_guarantee_follows_from_a_stronger_one() {
        let range = |min, max| Guarantee::InRange("n".to_owned(), NumberRange { min, max });
        let items = |least| Guarantee::HasItems { list: "a".to_owned(), least };
        let known = [range(Some(1.0), None), range(None, Some(4.0)), items(2)];
        for (guarantee, follows) in [
            (range(Some(0.0), Some(4.0)), true),
            (range(Some(2.0), None), false),
            (items(1), true),
            (items(3), false),
            (Guarantee::Present("n".to_owned()), false),
        ] {
            assert_eq!(guarantee.follows_from(known.iter()), follows, "{guarantee:?}");
        }
    }
}
