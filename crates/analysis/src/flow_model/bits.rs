//! Sets of small numbers.

/// A set of numbers below a fixed length.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Returns the empty set for a length.
    pub fn none(length: usize) -> Self {
        Self(vec![0; length.div_ceil(64)])
    }

    /// Returns the set of all numbers below a length.
    pub fn all(length: usize) -> Self {
        let mut bits = Self(vec![u64::MAX; length.div_ceil(64)]);
        if let (Some(last), over @ 1..) = (bits.0.last_mut(), length % 64) {
            *last = (1 << over) - 1;
        }
        bits
    }

    /// Returns whether a number is in the set.
    pub fn contains(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }

    /// Adds a number; returns whether it is new.
    pub fn insert(&mut self, at: usize) -> bool {
        let is_new = !self.contains(at);
        self.0[at / 64] |= 1 << (at % 64);
        is_new
    }

    pub(crate) fn extend(&mut self, numbers: &[usize]) {
        for &at in numbers {
            self.insert(at);
        }
    }

    /// Adds all numbers of another set; returns whether this set grew.
    pub fn add(&mut self, other: &Self) -> bool {
        self.change(other, |mine, theirs| mine | theirs)
    }

    /// Returns the union with another set.
    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    /// Keeps only the numbers that are also in another set; returns whether this set shrank.
    pub(crate) fn keep(&mut self, other: &Self) -> bool {
        self.change(other, |mine, theirs| mine & theirs)
    }

    /// Removes the numbers of another set; returns whether this set shrank.
    pub fn remove(&mut self, other: &Self) -> bool {
        self.change(other, |mine, theirs| mine & !theirs)
    }

    /// Returns whether the two sets have a common number.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Returns the numbers below a smaller length, as a set of that length.
    pub(crate) fn first(&self, length: usize) -> Self {
        let mut bits = Self(self.0[..length.div_ceil(64)].to_vec());
        bits.keep(&Self::all(length));
        bits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|it| *it == 0)
    }

    /// Returns the numbers in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = usize::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }

    fn change(&mut self, other: &Self, change: impl Fn(u64, u64) -> u64) -> bool {
        debug_assert_eq!(self.0.len(), other.0.len(), "sets of one length go together");
        let mut is_changed = false;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            let next = change(*mine, *theirs);
            is_changed |= next != *mine;
            *mine = next;
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_numbers_in_order() {
        let mut bits = Bits::none(130);
        assert!([64, 3, 129, 63].map(|it| bits.insert(it)).iter().all(|it| *it));
        assert!(!bits.insert(64));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [3, 63, 64, 129]);
        assert_eq!(Bits::all(130).iter().count(), 130);
        assert_eq!(Bits::all(128).iter().count(), 128);
        assert!(!bits.is_empty());
        assert_eq!(bits.first(64).iter().collect::<Vec<_>>(), [3, 63]);
        assert_eq!(bits.first(63).iter().collect::<Vec<_>>(), [3]);
        assert!(bits.meets(&Bits::all(130)) && !bits.meets(&Bits::none(130)));
        assert!(!bits.keep(&Bits::all(130)) && bits.remove(&Bits::all(130)) && bits.is_empty());
    }
}
